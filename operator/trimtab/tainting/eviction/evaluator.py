"""Decides what to do with a due pod, based on its deadlines and the caches."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from trimtab.api.taint_manager import EVICT, TaintManagerSpec
from trimtab.kube.objects import Pod
from trimtab.tainting.deadlines.rule import Deadline, subject_to_taints
from trimtab.tainting.dependencies import TaintingDependencies
from trimtab.tainting.eviction.due_pod import DuePod, DuePodAttempt, gone, marked, not_due
from trimtab.tainting.lifecycle.node_conditions import NO_EXECUTE_KEYS
from trimtab.tainting.lifecycle.zone_state import zone_of


class EvictionAction(enum.Enum):
    """The action for a due pod."""

    DELETE = "Delete"
    EVICT = "Evict"
    WAIT = "Wait"  # the pod is not due yet
    NOTHING = "Nothing"


class EvictionDecision(Struct, frozen=True, gc=False):
    """The decision on a due pod.

    Attributes:
        action: the action.
        deadline: the pod's current deadline.
        until: a time in seconds since the epoch. For an eviction it is the time after which the pod is deleted instead.
            For a pod that is not due yet it is the due time.
        waited: whether the pod is deleted because its evictions were refused for ``maximumWait``.
        why: the result to report if no request is necessary; else ``None``.
    """

    action: EvictionAction
    deadline: Deadline
    until: float = 0.0
    waited: bool = False
    why: DuePodAttempt | None = None


def maximum_waits(spec: TaintManagerSpec) -> dict[str, float]:
    """Return ``maximumWait`` in seconds for each taint key with policy Evict.

    For other keys, pods are deleted immediately.
    """
    return {each.key: float(each.maximum_wait_seconds) for each in spec.taints if each.policy == EVICT}


def _no_others(_: Pod) -> tuple[Deadline, ...]:
    return ()


def decide(
    former: Deadline,
    current: Deadline | None,
    pod: Pod | None,
    *,
    maximum_waits: Mapping[str, float],
    now: float,
    each: Callable[[Pod], Iterable[Deadline]] = _no_others,
) -> EvictionDecision:
    """Decide what to do with a pod that was due.

    Args:
        former: the deadline that was due.
        current: the pod's current deadline; ``None`` if it has none.
        pod: the current pod with that name; ``None`` if it no longer exists.
        maximum_waits: seconds for which pods are evicted before they are deleted, by taint key; see
            :func:`maximum_waits`.
        now: the current time in seconds since the epoch.
        each: returns one deadline for each taint of the pod's node, as if the node had only that taint. A pod whose
            eviction is refused is deleted as soon as any of these deadlines requires a deletion, for example because
            its node has failed in the meantime.
    """
    if pod is None or pod.uid != former.uid:
        why = "the pod no longer exists" if pod is None else "a new pod has the same name"
        return EvictionDecision(EvictionAction.NOTHING, former, why=gone(why))
    if pod.deleted is not None:
        return EvictionDecision(EvictionAction.NOTHING, former, why=gone("the pod is already terminating"))
    if current is None or current.uid != former.uid or current.node != pod.node or not subject_to_taints(pod):
        return EvictionDecision(
            EvictionAction.NOTHING, former, why=not_due("no taint sets a deadline for the pod any more")
        )
    if current.due > now:
        return EvictionDecision(EvictionAction.WAIT, current, until=current.due)
    if current.taint.key not in maximum_waits:
        return EvictionDecision(EvictionAction.DELETE, current)
    ends = (
        (one.due + maximum_waits.get(one.taint.key, 0.0), one.taint.key in maximum_waits)
        for one in (current, *each(pod))
    )
    until, by_waiting = min(ends)
    if now < until:
        return EvictionDecision(EvictionAction.EVICT, current, until=until)
    return EvictionDecision(EvictionAction.DELETE, current, until=until, waited=by_waiting)


class DeadlinesByTaint(Protocol):
    """Returns one deadline for each NoExecute taint of a pod's node, as if the node had only that taint."""

    def __call__(self, pod: Pod, *, now: float) -> Iterable[Deadline]:
        """Return one deadline for each taint that the pod does not tolerate forever."""
        ...


class Evaluator:
    """Evaluates due pods.

    Args:
        services: the dependencies of the taint manager.
        spec: the spec of the TaintManager.
        deadline_of: returns the deadline of a pod by its ``namespace/name``; ``None`` if it has none.
        deadlines_of: returns one deadline for each taint of the pod's node, as if the node had only that taint.

    Attributes:
        maximum_waits: seconds for which pods are evicted before they are deleted, by taint key.
    """

    def __init__(
        self,
        services: TaintingDependencies,
        spec: TaintManagerSpec,
        deadline_of: Callable[[str], Deadline | None],
        deadlines_of: DeadlinesByTaint,
    ) -> None:
        self.maximum_waits = maximum_waits(spec)
        self._services = services
        self._deadline_of = deadline_of
        self._deadlines_of = deadlines_of

    def decide(self, entry: DuePod) -> EvictionDecision:
        """Decide what to do with a due pod now."""
        key, now = entry.deadline.key, self._services.clock.now()
        found, pod = self._deadline_of(key), self._services.lister.pod(key)
        return decide(
            entry.deadline, found, pod, maximum_waits=self.maximum_waits, now=now, each=self._deadlines_by_taint
        )

    def marked(self, entry: DuePod) -> bool:
        """Return whether the taint manager's condition DisruptionTarget is set on the pod."""
        return marked(entry, self._services.lister.pod(entry.deadline.key), now=self._services.clock.monotonic())

    def known(self, entry: DuePod) -> bool:
        """Return whether the pod still has a deadline and has not been replaced by another pod with the same name."""
        found = self._deadline_of(entry.deadline.key)
        return found is not None and found.uid == entry.deadline.uid

    def zone_of(self, name: str) -> str:
        """Return the zone of a node; ``""`` if the node does not exist."""
        node = self._services.lister.node(name)
        return "" if node is None else zone_of(node.labels)

    def unlimited_from(self, entry: DuePod) -> float | None:
        """Return the time from which a pod is exempt from rate limits because its node has failed.

        The time is in seconds since the epoch; ``None`` if the pod has no deadline because of a failed node.
        """
        pod = self._services.lister.pod(entry.deadline.key)
        if pod is None or pod.uid != entry.deadline.uid:
            return None
        dues = [each.due for each in self._deadlines_by_taint(pod) if each.taint.key in NO_EXECUTE_KEYS]
        return min(dues, default=None)

    def monotonic(self, at: float) -> float:
        """Convert a time in seconds since the epoch to the monotonic clock."""
        clock = self._services.clock
        return clock.monotonic() + (at - clock.now())

    def _deadlines_by_taint(self, pod: Pod) -> Iterable[Deadline]:
        return self._deadlines_of(pod, now=self._services.clock.now())
