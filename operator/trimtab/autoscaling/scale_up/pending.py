"""Which pods ask for nodes, and why other pending pods do not."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.go_durations import parse_go_duration
from trimtab.api.plan import Kept
from trimtab.autoscaling.scale_up.told import kept
from trimtab.autoscaling.template.daemon_sets import daemon_set_of
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod

DELAY: Final = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"
"""On a pod: how old it must be; it can only lengthen ``newPodScaleUpDelay``, as upstream."""

_DEFAULT_SCHEDULER: Final = "default-scheduler"


class Pending(Struct, frozen=True):
    """The pending pods of a snapshot.

    Attributes:
        asking: those that nodes may be added for, the most important first, of equals by ``namespace/name``.
        kept: all others, by ``namespace/name``.
    """

    asking: tuple[Pod, ...]
    kept: tuple[Kept, ...]


def pending(snapshot: Snapshot, spec: ClusterAutoscalerSpec, *, now: float) -> Pending:
    """Which pods ask for nodes.

    Those that the scheduler has found no node for (``PodScheduled`` is False for ``Unschedulable``), and those of
    bypassed schedulers whatever is said of them.

    Args:
        snapshot: with the pods.
        spec: threshold, delay and bypassed schedulers.
        now: seconds since the epoch; ages count to it.
    """
    judge = _Judge(spec, now)
    asking: list[tuple[int, str, Pod]] = []
    told: list[tuple[str, Kept]] = []
    for key, pod in snapshot.unbound():
        if pod.terminal:
            continue
        refused = judge.refusal(pod)
        if refused is None:
            asking.append((-pod.priority, key, pod))
        else:
            told.append((key, kept(pod, *refused)))
    asking.sort(key=lambda each: each[:2])
    told.sort(key=lambda each: each[0])
    return Pending(tuple(pod for _, _, pod in asking), tuple(each for _, each in told))


class _Judge:
    def __init__(self, spec: ClusterAutoscalerSpec, now: float) -> None:
        self._threshold = spec.pod_priority_threshold
        self._bypassed = frozenset(spec.scale_up.bypassed_schedulers)
        self._delay = spec.scale_up.delay_seconds
        self._now = now

    def refusal(self, pod: Pod) -> tuple[str, str] | None:
        """Reason and message why no node is added for a pending pod."""
        if pod.deleted is not None:
            return reasons.TERMINATING, "the pod is being deleted"
        if pod.spec.scheduling_gates:
            gates = ", ".join(pod.spec.scheduling_gates)
            return (
                reasons.SCHEDULING_GATED,
                f"the scheduler does not look at the pod before its gates are gone: {gates}",
            )
        if pod.owners and daemon_set_of(pod):
            return reasons.DAEMON_SET_POD, "the pod belongs to its node: another node would bring another pod"
        if pod.priority < self._threshold:
            return (
                reasons.PRIORITY_BELOW_THRESHOLD,
                f"the pod's priority {pod.priority} is below podPriorityThreshold {self._threshold}",
            )
        if not unschedulable(pod):
            scheduler = pod.spec.scheduler_name or _DEFAULT_SCHEDULER
            if scheduler not in self._bypassed:
                return (
                    reasons.NOT_UNSCHEDULABLE,
                    f"{scheduler} has not said that it finds no node for the pod (condition PodScheduled)",
                )
        return self._too_young(pod)

    def _too_young(self, pod: Pod) -> tuple[str, str] | None:
        delay, source = self._delay, "newPodScaleUpDelay"
        own = _own_delay(pod)
        if own > delay:
            delay, source = own, f"annotation {DELAY}"
        if not delay or pod.created is None or self._now - pod.created >= delay:
            return None
        age = max(0.0, self._now - pod.created)
        return reasons.SCALE_UP_DELAYED, f"the pod is {int(age)}s old; nodes are added from {delay:g}s on ({source})"


def unschedulable(pod: Pod) -> bool:
    """Whether the scheduler says that it finds no node for the pod."""
    for condition in pod.conditions:
        if condition.type == "PodScheduled":
            return condition.status == "False" and condition.reason == "Unschedulable"
    return False


def _own_delay(pod: Pod) -> float:
    """What the pod's annotation asks for; one that cannot be read asks for nothing, as upstream."""
    text = pod.annotations.get(DELAY)
    if not text:
        return 0.0
    try:
        return parse_go_duration(text)
    except ValueError:
        return 0.0
