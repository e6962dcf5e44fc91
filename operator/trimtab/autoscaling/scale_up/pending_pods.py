"""Selects the pending pods that need new nodes.

A pending pod needs no new node if it fits on an existing or upcoming node, or if it will fit after evictions that
descheduler policies have planned or after node removals that are in progress.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.plan import Kept
from trimtab.api.scalars import parse_go_duration
from trimtab.autoscaling.scale_up.messages import deadline_exceeded, kept_pod
from trimtab.autoscaling.template.node_template import daemon_set_of
from trimtab.cluster.disruption_signals import is_being_removed
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.shared_plans import COUNTS_FOR, PlannedMove
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer
from trimtab.placement.plan_budget import UNLIMITED, PlanBudget, planning_cost
from trimtab.placement.topology_spread import hard_constraints

DELAY: Final = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"
"""Pod annotation with the minimum age for scale-up. As in upstream, it can only lengthen ``newPodScaleUpDelay``."""

_DEFAULT_SCHEDULER: Final = "default-scheduler"


class PendingPodSelection(Struct, frozen=True):
    """The pending pods of a snapshot.

    Attributes:
        eligible: pods for which nodes may be added, by descending priority, then by ``namespace/name``.
        kept: plan entries for all other pending pods, sorted by ``namespace/name``.
    """

    eligible: tuple[Pod, ...]
    kept: tuple[Kept, ...]


def select_pending_pods(snapshot: Snapshot, spec: ClusterAutoscalerSpec, *, now: float) -> PendingPodSelection:
    """Select the pods for which nodes may be added.

    These are pods that the scheduler reported as unschedulable (condition ``PodScheduled`` is False with reason
    ``Unschedulable``), and all pods of bypassed schedulers.

    Args:
        snapshot: the cluster state.
        spec: spec of the ClusterAutoscaler, with the priority threshold, the delay and the bypassed schedulers.
        now: seconds since the epoch, for the age of pods.
    """
    judge = _PendingPodFilter(snapshot, spec, now)
    eligible: list[tuple[int, str, Pod]] = []
    kept: list[tuple[str, Kept]] = []
    for key, pod in snapshot.unbound():
        if pod.terminal:
            continue
        refused = judge.refusal(pod)
        if refused is None:
            eligible.append((-pod.priority, key, pod))
        else:
            kept.append((key, kept_pod(pod, *refused)))
    eligible.sort(key=lambda each: each[:2])
    kept.sort(key=lambda each: each[0])
    return PendingPodSelection(tuple(pod for _, _, pod in eligible), tuple(each for _, each in kept))


class _PendingPodFilter:
    def __init__(self, snapshot: Snapshot, spec: ClusterAutoscalerSpec, now: float) -> None:
        self._complexity = snapshot.complexity
        self._threshold = spec.pod_priority_threshold
        self._bypassed = frozenset(spec.scale_up.bypassed_schedulers)
        self._delay = spec.scale_up.delay_seconds
        self._now = now

    def refusal(self, pod: Pod) -> tuple[str, str] | None:
        """Return a reason and a message if no node may be added for a pending pod, or ``None`` if one may be added."""
        if pod.deleted is not None:
            return reasons.TERMINATING, "the pod is being deleted"
        if pod.spec.scheduling_gates:
            gates = ", ".join(pod.spec.scheduling_gates)
            return (
                reasons.SCHEDULING_GATED,
                f"the scheduler ignores the pod until its scheduling gates are removed: {gates}",
            )
        if pod.owners and daemon_set_of(pod):
            return (
                reasons.DAEMON_SET_POD,
                "a pod of a DaemonSet triggers no scale-up: a new node would only add another such pod",
            )
        complexity = self._complexity.refusal(pod)
        if complexity is not None:
            return complexity
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
                    f"{scheduler} has not reported the pod as unschedulable (condition PodScheduled)",
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
        return (
            reasons.SCALE_UP_DELAYED,
            f"the pod is {int(age)}s old; scale-up is delayed until it is {delay:g}s old ({source})",
        )


def unschedulable(pod: Pod) -> bool:
    """Return whether the scheduler has reported that no node fits the pod."""
    for condition in pod.conditions:
        if condition.type == "PodScheduled":
            return condition.status == "False" and condition.reason == "Unschedulable"
    return False


def _own_delay(pod: Pod) -> float:
    """Return the scale-up delay from the pod's annotation, in seconds. As in upstream, an invalid value counts as 0."""
    text = pod.annotations.get(DELAY)
    if not text:
        return 0.0
    try:
        return parse_go_duration(text)
    except ValueError:
        return 0.0


class ExistingPlacements(Struct, frozen=True):
    """The pending pods that fit on existing nodes, and those that do not.

    Attributes:
        reserved: the placed pods, bound to their nodes in the snapshot, sorted by ``namespace/name``.
        kept: plan entries for the placed pods, in the same order.
        unplaced: the pods that do not fit, by class.
    """

    reserved: tuple[Pod, ...]
    kept: tuple[Kept, ...]
    unplaced: list[list[Pod]]


def place_on_existing(
    placer: Placer, groups: Sequence[list[Pod]], upcoming: Mapping[str, str], budget: PlanBudget = UNLIMITED
) -> ExistingPlacements:
    """Place pending pods on existing and upcoming nodes, by descending priority.

    A pod that the scheduler has nominated for a node is placed there, because other pods are being evicted for it. If
    one pod of a class does not fit, the rest of its class is not tried. Classes with pod affinity are tried again as
    long as other pods are placed.

    Args:
        placer: placer on the snapshot with upcoming nodes.
        groups: pods by class (:func:`~trimtab.autoscaling.scale_up.pod_classes.group_equal_pods`).
        upcoming: group ids by the names of upcoming nodes.
        budget: the plan's time budget. No node is added for pods that are not evaluated in time, because they may fit
            on existing nodes.
    """
    late: list[Kept] = []
    made: list[tuple[Pod, Kept]] = []
    unplaced: list[list[Pod]] = []
    for group in groups:
        unplaced.append([])
        for pod in group:
            if pod.nominated_node and pod.nominated_node in placer.snapshot.nodes.slot_of:
                placer.snapshot.move(pod, pod.nominated_node)
                message = f"the scheduler has nominated the pod for {pod.nominated_node}"
                entry = kept_pod(pod, reasons.NOMINATED, message, node=pod.nominated_node)
                made.append((replace(pod, node=pod.nominated_node), entry))
            else:
                unplaced[-1].append(pod)
    while True:
        before = len(made)
        late += _place_round(placer, unplaced, upcoming, made, budget)
        near = any(group and group[0].spec.affinity.pod_required for group in unplaced)
        if len(made) == before or not near:
            break
    made.sort(key=lambda each: each[0].key)
    return ExistingPlacements(
        tuple(pod for pod, _ in made), (*(entry for _, entry in made), *late), [group for group in unplaced if group]
    )


def _place_round(
    placer: Placer,
    groups: list[list[Pod]],
    upcoming: Mapping[str, str],
    made: list[tuple[Pod, Kept]],
    budget: PlanBudget,
) -> list[Kept]:
    """Place each class once, by descending priority of the pods.

    Placed pods are removed from ``groups`` and added to ``made``.

    Returns:
        Entries for the pods of classes that were not evaluated in time. These pods are removed from ``groups`` too.
    """
    if not placer.snapshot.nodes.slot_of:
        return []
    order = sorted(
        ((-pod.priority, pod.key, number) for number, group in enumerate(groups) for pod in group[:1]),
    )
    late: list[int] = []
    skipped: list[tuple[int, Pod]] = []
    firsts = [(number, groups[number][0]) for _, _, number in order]
    for number, _ in budget.fair_order(firsts, _namespace, _cost, skipped):
        group = groups[number]
        placed = 0
        for pod in group:
            if placed and budget.over:
                late.append(number)
                break
            slot = placer.choose(pod, placer.feasible(pod))
            if slot is None:
                break
            placed_pod = placer.reserve(pod, slot)
            made.append((placed_pod, _kept_for_existing(placed_pod, upcoming)))
            placed += 1
        del group[:placed]
    late += (number for number, _ in skipped)
    entries = [deadline_exceeded(pod, budget) for number in late for pod in groups[number]]
    for number in late:
        groups[number].clear()
    return entries


def _namespace(first: tuple[int, Pod]) -> str:
    return first[1].namespace


def _cost(first: tuple[int, Pod]) -> int:
    return planning_cost(first[1].spec)


def _kept_for_existing(pod: Pod, upcoming: Mapping[str, str]) -> Kept:
    group = upcoming.get(pod.node)
    if group is None:
        return kept_pod(pod, reasons.FITS_ON_NODE, f"the pod fits on {pod.node}", node=pod.node)
    return kept_pod(pod, reasons.FITS_ON_UPCOMING_NODE, f"the pod fits on an upcoming node of {group}")


def place_after_moves(
    placer: Placer,
    groups: Sequence[list[Pod]],
    upcoming: Mapping[str, str],
    moves: Sequence[PlannedMove],
    *,
    now: float,
) -> ExistingPlacements:
    """Place pending pods in a snapshot in which planned evictions are simulated.

    The snapshot is restored if no pod can be placed. A planned eviction counts only while its target node still has
    capacity for the evicted pod's replacement. If a pod is already being deleted, its replacement is among the pending
    pods. The capacity does not exist in the cluster yet, so ``reserved`` is empty.

    A pod waits for planned evictions at most :data:`~trimtab.disruption.shared_plans.COUNTS_FOR` seconds. Otherwise
    plans that move different pods each time could delay its node indefinitely.

    Args:
        placer: placer on a snapshot that includes the pods placed without evictions.
        groups: pods that do not fit, by class.
        upcoming: group ids by the names of upcoming nodes.
        moves: evictions that the descheduler is executing.
        now: the current time in seconds since the epoch.
    """
    none = ExistingPlacements((), (), list(groups))
    if not moves:  # the usual case: skip the work below for thousands of pending pods
        return none
    until = {pod.key: _waiting_since(pod, now) + COUNTS_FOR for group in groups for pod in group}
    waiting = [[pod for pod in group if now < until[pod.key]] for group in groups]
    if not any(waiting):
        return none
    mark = placer.snapshot.mark()
    freeing = [move for move in moves if _make_move(placer, move)]
    found = place_on_existing(placer, waiting, upcoming) if freeing else none
    if not found.kept:
        placer.snapshot.undo(mark)
        return none
    placer.snapshot.commit(mark)
    entries = {f"{each.namespace}/{each.name}": each for each in found.kept}
    left = [[pod for pod in group if pod.key not in entries] for group in groups]
    return ExistingPlacements(
        (),
        tuple(_kept_for_moves(each, freeing, now, until=until[key]) for key, each in entries.items()),
        [group for group in left if group],
    )


REMOVALS_COUNT_FOR: Final = 600.0
"""Seconds for which an unschedulable pod waits for nodes that are being removed."""


def place_after_removals(
    placer: Placer, groups: Sequence[list[Pod]], upcoming: Mapping[str, str], *, now: float
) -> ExistingPlacements:
    """Place pending pods as if the nodes that are being removed no longer existed.

    Such a node gives room to no pod, but it is a domain of topology spread constraints, empty as soon as it is drained.
    The replacements of its own pods may fit nowhere until it is gone. Without this rule each removal could cause a
    scale-up.

    The snapshot is restored, and the capacity is not reserved: the pods wait, and other pods may be scheduled first.

    Args:
        placer: placer on a snapshot that includes the pods placed so far.
        groups: pods that do not fit, by class.
        upcoming: group ids by the names of upcoming nodes.
        now: the current time in seconds since the epoch.
    """
    snapshot = placer.snapshot
    none = ExistingPlacements((), (), list(groups))
    removed = [node for node in snapshot.nodes.at if node is not None and is_being_removed(node)]
    if not removed:
        return none
    spread = [
        [pod for pod in group if hard_constraints(pod.spec) and now < _waiting_since(pod, now) + REMOVALS_COUNT_FOR]
        for group in groups
    ]
    if not any(spread):
        return none
    with snapshot.fork():
        for node in removed:
            snapshot.remove(node)
        found = place_on_existing(placer, spread, upcoming)
    names = ", ".join(sorted(node.name for node in removed)[:3]) + (", ..." if len(removed) > 3 else "")
    entries = {f"{each.namespace}/{each.name}": _kept_for_removals(each, names) for each in found.kept}
    left = [[pod for pod in group if pod.key not in entries] for group in groups]
    return ExistingPlacements((), tuple(entries.values()), [group for group in left if group])


def _kept_for_removals(entry: Kept, names: str) -> Kept:
    message = (
        f"the pod fits on {entry.node or 'an upcoming node'} once the nodes that are being removed no longer exist "
        f"({names}); until then, they are domains of the pod's topology spread constraint, unless the constraint has "
        "nodeTaintsPolicy: Honor"
    )
    return replace(entry, reason=reasons.FITS_AFTER_REMOVALS, message=message)


def _waiting_since(pod: Pod, now: float) -> float:
    """Return the time at which the scheduler first reported the pod as unschedulable.

    If it has not, return the creation time of the pod.
    """
    for condition in pod.conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.since is not None:
            return condition.since
    return now if pod.created is None else pod.created


def _make_move(placer: Placer, move: PlannedMove) -> bool:
    """Simulate a planned eviction.

    Returns:
        False if the pod no longer exists or no longer fits on its target node.
    """
    snapshot = placer.snapshot
    pod = snapshot.pods.get(move.pod)
    if pod is None or pod.uid != move.uid or pod.node != move.node or pod.terminal:
        return False
    if pod.deleted is not None:
        snapshot.remove(pod)
        return True
    target = snapshot.nodes.slot_of.get(move.target)
    mark = snapshot.mark()
    lifted = placer.displace(pod)
    if target is None or not placer.feasible(lifted)[target]:
        snapshot.undo(mark)
        return False
    placer.reserve(lifted, target)
    snapshot.commit(mark)
    return True


def _kept_for_moves(entry: Kept, moves: Sequence[PlannedMove], now: float, *, until: float) -> Kept:
    if not entry.node:  # an upcoming node: the pod has affinity to a pod that fits after the evictions
        return entry
    leaving = [move for move in moves if move.node == entry.node] or moves
    first, more = leaving[0], len(leaving) - 1
    others = f" and {more} more pod{'s' if more > 1 else ''}" if more else ""
    message = (
        f"the pod fits on {entry.node} once policy {first.policy} has moved {first.pod}{others} from {first.node}; "
        f"scale-up waits for that for another {min(until, max(move.until for move in leaving)) - now:.0f}s"
    )
    return replace(entry, reason=reasons.FITS_AFTER_MOVES, message=message)
