"""Detects, from node and pod objects, that other controllers are about to remove a node or terminate a pod.

A planner that moves pods must know which nodes will soon be removed and which pods will soon be terminated anyway.
Every controller announces these disruptions in the objects. cluster-autoscaler and karpenter add taints, and trimtab's
autoscaler also adds an annotation. Administrators cordon nodes. NoExecute taints announce evictions by the taint
manager, and the condition DisruptionTarget is set on a pod that is being evicted. The signals do not depend on process
memory, so an offline plan computed from files uses the same signals as the operator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api.plan import rfc3339
from trimtab.api.reasons import DISRUPTION_UNDERWAY, TAINT_DEADLINE
from trimtab.kube.frozen import NO_RESOURCES, Labels
from trimtab.kube.objects import Node, Pod, Taint, Toleration
from trimtab.kube.rules.taints import (
    DELETION_CANDIDATE,
    KARPENTER_DISRUPTED,
    KARPENTER_DISRUPTION,
    NO_EXECUTE,
    NO_SCHEDULE,
    TO_BE_DELETED,
    UNSCHEDULABLE,
    format_taint,
    tolerates,
)

if TYPE_CHECKING:
    from trimtab.cluster.snapshot import Snapshot

UNNEEDED_SINCE: Final = "trimtab.dev/unneeded-since"
"""Node annotation with the time (RFC 3339) at which scale-down started to consider the node unneeded."""

TAINT_DEADLINE_HORIZON: Final = 600.0
"""Strategies do not move a pod that a taint will evict within this number of seconds.

This is twice the 300 seconds for which pods tolerate ``not-ready`` and ``unreachable`` by default. A pod with a later
deadline is moved, because it then leaves the tainted node permanently.
"""

DISRUPTION_TARGET: Final = "DisruptionTarget"
"""Condition of pods that are being disrupted. Pod failure policies of Jobs and the disruption controller read it."""

STALE_DISRUPTION_TARGET: Final = 120.0
"""Seconds after which a DisruptionTarget condition without a deletion is ignored (``stalePodDisruptionTimeout`` of
kube-controller-manager)."""


class PendingTermination(Struct, frozen=True):
    """The reason why another controller is about to terminate a pod.

    Attributes:
        reason: a reason code of :mod:`trimtab.api.reasons`.
        message: the details, with numbers.
    """

    reason: str
    message: str


class TaintDeadline(Struct, frozen=True):
    """The time at which a NoExecute taint evicts a pod.

    Attributes:
        at: the deadline in seconds since the epoch. It is in the past if the taint manager is late, because it evicts
            at a limited rate.
        taint: the taint with the earliest deadline.
        seconds: the seconds for which the pod tolerates the taint, or 0 if it does not tolerate it.
    """

    at: float
    taint: Taint
    seconds: float


def is_being_removed(node: Node) -> bool:
    """Return whether the node is being removed: it is terminating, or an autoscaler is draining it."""
    return node.deleted is not None or any(_removes(taint) for taint in node.taints)


_DRAINING: Final = (Taint(UNSCHEDULABLE, NO_SCHEDULE), Taint(TO_BE_DELETED, NO_SCHEDULE))


def as_draining(node: Node) -> Node:
    """Return the node as it is while an autoscaler drains it: cordoned, and with the taints that keep new pods away.

    It still exists, so kube-scheduler counts it as a topology domain unless a constraint has ``nodeTaintsPolicy:
    Honor``.
    """
    present = {taint.key for taint in node.taints}
    added = tuple(taint for taint in _DRAINING if taint.key not in present)
    return replace(node, unschedulable=True, taints=(*node.taints, *added))


def as_removed(node: Node) -> Node:
    """Return the node as it is while it is drained, without room, so that all of its pods must fit on other nodes.

    Pods that tolerate every taint could otherwise stay on the node.
    """
    return replace(as_draining(node), allocatable=NO_RESOURCES)


MAINTENANCE_CONDITIONS: Final = frozenset({"MaintenancePlanned", "DrainInProgress", "GracefulNodeShutdownInProgress"})
"""Conditions of nodes that administrators or kubelets set before a node is drained or shut down (KEP-5683)."""


def maintenance_condition(node: Node) -> str | None:
    """Return the condition that announces the end of the node or of its pods, or ``None`` if no condition does."""
    for condition in node.conditions:
        if condition.type in MAINTENANCE_CONDITIONS and condition.status == "True":
            return condition.type
    return None


def removal_signal(node: Node) -> str | None:
    """Return what indicates that the node may be removed soon, as text for messages, or ``None`` if nothing does.

    Call :func:`is_being_removed` first, because this function ignores nodes that are already being removed.
    """
    for taint in node.taints:
        if taint.key == DELETION_CANDIDATE:
            return f"taint {format_taint(taint)}"
    since = unneeded_since(node)
    if since is not None:
        return f"annotation {UNNEEDED_SINCE}={node.annotations[UNNEEDED_SINCE]}"
    return "the node is cordoned" if node.unschedulable else None


def unneeded_since(node: Node) -> float | None:
    """Return when trimtab's scale-down started to consider the node unneeded, or ``None`` if it does not.

    The time is read from the node's annotation, in seconds since the epoch.
    """
    text = node.annotations.get(UNNEEDED_SINCE)
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    # A time before 1970 is invalid; the year 1, for example, cannot be formatted again.
    return None if time.tzinfo is None or time.timestamp() < 0 else time.timestamp()


def mark_unneeded(snapshot: Snapshot, unneeded: Mapping[str, float]) -> None:
    """Add the unneeded-since annotation, in the snapshot only, to unneeded nodes that have no removal signal yet.

    Call this function only within a fork.

    Args:
        snapshot: the cluster, whose nodes are changed.
        unneeded: when each node became unneeded, by node name, in seconds since the epoch. Nodes that do not exist are
            skipped.
    """
    for name, since in unneeded.items():
        node = snapshot.nodes.get(name)
        if node is not None and not is_being_removed(node) and removal_signal(node) is None:
            marks = Labels({**node.annotations, UNNEEDED_SINCE: rfc3339(since)})
            snapshot.put(replace(node, annotations=marks))


def taint_deadline(pod: Pod, node: Node, *, now: float) -> TaintDeadline | None:
    """Return the time at which a NoExecute taint evicts the pod, or ``None`` if no taint evicts it.

    Args:
        pod: a pod on the node.
        node: the node. A taint without ``timeAdded`` is treated as if it was added at ``now``.
        now: seconds since the epoch.
    """
    earliest: TaintDeadline | None = None
    for taint in node.taints:
        if taint.effect != NO_EXECUTE:
            continue
        seconds = tolerated_seconds(pod.spec.tolerations, taint)
        if seconds == math.inf:
            continue
        at = (now if taint.time_added is None else taint.time_added) + seconds
        if earliest is None or at < earliest.at:
            earliest = TaintDeadline(at, taint, seconds)
    return earliest


def tolerated_seconds(tolerations: Iterable[Toleration], taint: Taint) -> float:
    """Return the number of seconds for which a pod with these tolerations may stay on a node with a NoExecute taint.

    The result is 0 if no toleration matches, and infinity if a matching toleration has no ``tolerationSeconds``.
    Otherwise it is the shortest ``tolerationSeconds`` of the matching tolerations.
    """
    matching = [each for each in tolerations if tolerates(each, taint)]
    if not matching:
        return 0.0
    limits = [each.seconds for each in matching if each.seconds is not None]
    return float(max(0, min(limits))) if len(limits) == len(matching) else math.inf


def pending_termination(
    pod: Pod, node: Node | None, *, now: float, but: str | None = None
) -> PendingTermination | None:
    """Return the reason why the pod is about to be terminated, or ``None`` if it is not.

    Such a pod should not be moved, because that would disrupt it twice.

    Args:
        pod: a bound pod that is not terminating.
        node: the pod's node, or ``None`` if it is unknown.
        now: the current time in seconds since the epoch.
        but: a reason of the DisruptionTarget condition to ignore. Components that set this condition pass their own
            reason.
    """
    for condition in pod.conditions:
        if condition.type == DISRUPTION_TARGET and condition.status == "True" and condition.reason != but:
            age = 0.0 if condition.since is None else now - condition.since
            if age < STALE_DISRUPTION_TARGET:
                text = f"the pod's condition DisruptionTarget ({condition.reason or 'no reason given'}) is True"
                return PendingTermination(DISRUPTION_UNDERWAY, f"{text} since {max(0.0, age):.0f}s")
    if node is None or not node.taints:
        return None
    deadline = taint_deadline(pod, node, now=now)
    if deadline is None or deadline.at - now > TAINT_DEADLINE_HORIZON:
        return None
    left = deadline.at - now
    when = f"in {left:.0f}s" if left > 0 else "now"
    tolerated = f"tolerates it for {deadline.seconds:.0f}s" if deadline.seconds else "does not tolerate it"
    return PendingTermination(
        TAINT_DEADLINE,
        f"taint {format_taint(deadline.taint)} of node {node.name} evicts the pod {when}: the pod {tolerated}",
    )


def _removes(taint: Taint) -> bool:
    return taint.key in (TO_BE_DELETED, KARPENTER_DISRUPTED) or (
        taint.key == KARPENTER_DISRUPTION and taint.value == "disrupting"
    )
