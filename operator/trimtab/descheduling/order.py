"""Which of several pods goes first: one strict total order, so that a plan never depends on chance."""

from __future__ import annotations

from typing import Final

from trimtab.disruption.protections.no_eviction_annotation import prefers_to_stay
from trimtab.kube.objects import Pod

QOS_RANK: Final = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}

Rank = tuple[int, int, bool]
Size = tuple[int, int, float, str, str]


def rank(pod: Pod) -> Rank:
    """What a strategy's own gain never outweighs: priority, then QoS class, the lesser first, then the pod's own wish.

    A pod without a priority has priority 0, as the API server admits it where no default class exists. The wish is the
    annotation ``prefer-no-eviction``: pods without it go first.
    """
    return pod.priority, QOS_RANK[pod.spec.qos], prefers_to_stay(pod)


def size(pod: Pod) -> Size:
    """What decides between pods of equal rank and gain: the smaller, then the younger, then by name.

    Smaller is what requests less cpu, then less memory. The youngest has done the least work, and was likely the one
    that came too many. A pod without a creation time, as hand-written files have it, counts as the oldest.
    """
    requests = pod.spec.requests
    return requests.get("cpu", 0), requests.get("memory", 0), -(pod.created or 0.0), pod.namespace, pod.name


def victim_order(pod: Pod, gain: float = 0.0) -> tuple[Rank, float, Size]:
    """The key to sort victims by: rank, then the strategy's gain (more first), then size."""
    return rank(pod), -gain, size(pod)
