"""Which of several pods goes first: one strict total order, so that a plan never depends on chance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from trimtab.disruption.protections.no_eviction_annotation import prefers_to_stay
from trimtab.kube.objects import Pod, PodSpec

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


class Ranking:
    """Sorts many pods by :func:`rank` and then by :func:`size`; what follows from a spec is read off it once."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[PodSpec, int, int, int, int]] = {}

    def groups(self, pods: Iterable[Pod]) -> Iterator[list[Pod]]:
        """Pods of equal rank, the lesser first; in each the smaller first."""
        ranked: dict[Rank, list[tuple[int, int, float, str, str, Pod]]] = {}
        known = self._of
        for pod in pods:
            spec = pod.spec
            found = known.get(id(spec))
            if found is None:
                cpu, memory = size(pod)[:2]
                found = known[id(spec)] = (spec, *rank(pod)[:2], cpu, memory)  # held, so that its id stays its own
            _, priority, qos, cpu, memory = found
            stays = bool(pod.annotations) and prefers_to_stay(pod)
            sized = (cpu, memory, -(pod.created or 0.0), pod.namespace, pod.name, pod)
            ranked.setdefault((priority, qos, stays), []).append(sized)
        for key in sorted(ranked):
            yield [each[-1] for each in sorted(ranked[key])]  # no two have one name, so pods are never compared
