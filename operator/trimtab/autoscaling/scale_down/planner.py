"""Plans node removals: which unneeded nodes to remove, where to place their pods, and why other nodes are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import UTC, datetime

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.bounds import plural
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.plan import Kept, PodMove, RemoveNode
from trimtab.autoscaling.groups import Groups
from trimtab.autoscaling.replace.replacement_state import NO_REPLACEMENTS, ReplacementState
from trimtab.autoscaling.scale_down.drainability import DrainContext, DrainOutcome
from trimtab.autoscaling.scale_down.eligibility import (
    ANNOTATION_HOLDS,
    Eligibility,
    ResourceMinimums,
    UnneededPeriod,
    UnneededTimes,
    elapsed,
    held_too_long,
    not_long_enough,
    percent,
    scale_down_delay,
    threshold_of,
    unready,
    utilization,
)
from trimtab.autoscaling.scale_down.equivalence import (
    EquivalenceClass,
    EquivalenceClasses,
    is_running,
    namespaces_with_dependent_pods,
)
from trimtab.autoscaling.scale_down.rehearsal import Rehearsal
from trimtab.autoscaling.scale_down.simulation import FreeCapacity, RemovalAttempt, Simulation
from trimtab.autoscaling.scale_down.unneeded_nodes import (
    NOT_PAUSED,
    RemovalCandidate,
    RemovalOrder,
    ScaleDownPause,
    next_unneeded_records,
    of_present_nodes,
    recorded_unneeded,
)
from trimtab.cluster.disruption_signals import as_draining, mark_unneeded
from trimtab.cluster.resources import CPU, MEMORY, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import BudgetLedger
from trimtab.disruption.outcome import Refusal
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer, hold_nominated
from trimtab.placement.plan_budget import UNLIMITED, PlanBudget

STRATEGY = "ScaleDown"
"""The strategy name in a plan's reasons for node removals."""


_BLOCKING_OUTCOMES = (DrainOutcome.BLOCK, DrainOutcome.WAIT)


class ScaleDownPlan(Struct, frozen=True):
    """The result of the scale-down planner.

    Attributes:
        actions: the nodes to remove, in the order in which the planner selected them.
        kept: every other node and the reason why it is kept, sorted by name.
        unneeded: for each unneeded node, when it became unneeded, in seconds since the epoch. The operator writes it to
            the node and to the status.
        held: for each blocked node, when pod annotations or PodDisruptionBudgets began to block its removal, in seconds
            since the epoch. Empty if ``maxHold`` is not set.
        disruptions: the number of planned evictions for each PodDisruptionBudget, by ``namespace/name``.
    """

    actions: tuple[RemoveNode, ...] = ()
    kept: tuple[Kept, ...] = ()
    unneeded: Mapping[str, float] = {}
    held: Mapping[str, float] = {}
    disruptions: Mapping[str, int] = {}


def plan(
    snapshot: Snapshot,
    groups: Groups,
    spec: ClusterAutoscalerSpec,
    *,
    now: float,
    status: ClusterAutoscalerStatus | None = None,
    adding: bool = False,
    only: Collection[str] | None = None,
    pause: ScaleDownPause = NOT_PAUSED,
    replacing: ReplacementState = NO_REPLACEMENTS,
    budget: PlanBudget = UNLIMITED,
    not_held: Collection[str] = (),
) -> ScaleDownPlan:
    """Plan node removals, with a target node for each pod that must move.

    A node is removed only if it has been unneeded for long enough, see :mod:`.unneeded_nodes`. The planner also
    evaluates the other nodes, after those, to determine whether they are unneeded now.

    Args:
        snapshot: the cluster state. The planner works on a fork of it.
        groups: the node groups of the snapshot.
        spec: spec of the ClusterAutoscaler.
        now: the current time in seconds since the epoch.
        status: status of the ClusterAutoscaler, with the unneeded times and the times of the last actions.
        adding: whether the same plan also adds nodes.
        only: names of the nodes to evaluate; ``None`` for all. The plan does not mention other nodes.
        pause: the reasons why nodes of the cluster or of some groups must not be removed. Their unneeded times are
            preserved.
        replacing: the replacements in progress. Replaced nodes may be removed regardless of their utilization and
            without waiting. Their replacements are kept.
        budget: the time limit of the plan. Nodes that are not evaluated in time are kept, and their unneeded times are
            preserved.
        not_held: names of nodes that pod annotations no longer protect from removal, in addition to those in the
            status.
    """
    with snapshot.fork():
        past = status or ClusterAutoscalerStatus()
        if adding:
            past = replace(past, last_scale_up=datetime.fromtimestamp(now, tz=UTC))
        planner = _ScaleDownPlanner(snapshot, groups, spec, past, now, only, pause, replacing, budget, not_held)
        if not adding:  # nodes added as replacements must not delay the removal of the replaced nodes
            planner.delay_of_replaced = scale_down_delay(spec, replace(past, last_scale_up=None), now=now)
        return planner.plan()


class _ScaleDownPlanner:
    def __init__(
        self,
        snapshot: Snapshot,
        groups: Groups,
        spec: ClusterAutoscalerSpec,
        status: ClusterAutoscalerStatus,
        now: float,
        only: Collection[str] | None,
        pause: ScaleDownPause,
        replacing: ReplacementState,
        budget: PlanBudget,
        not_held: Collection[str],
    ) -> None:
        self._budget = budget
        self._snapshot, self._groups, self._spec, self._now = snapshot, groups, spec, now
        self._only, self._pause, self._replacing = only, pause, replacing
        self._nodes = {name: snapshot.nodes.node(slot) for name, slot in sorted(snapshot.nodes.slot_of.items())}
        self._records = recorded_unneeded(self._nodes.values(), status)
        held = {each.name: each.since.timestamp() for each in status.held}
        self._held = of_present_nodes(held, self._nodes.values())
        self._held_too_long = held_too_long(self._held, spec, now=now).union(not_held)
        self._would_remove: set[str] = set()
        """Nodes that scale-down would remove if their pods can be evicted and fit on other nodes."""
        self._held_now: set[str] = set()
        """The nodes among them whose removal a pod annotation or a PodDisruptionBudget blocks."""
        self._delay = self.delay_of_replaced = scale_down_delay(spec, status, now=now)
        self._utilization = utilization(snapshot, spec, now=now)
        self._eligibility = Eligibility(spec, groups, self._utilization, replacing)
        self._being_removed = [node for node in self._nodes.values() if self._eligibility.removal_in_progress(node)]
        names = {node.name for node in self._being_removed}
        self._remaining = [node for node in self._nodes.values() if node.name not in names]
        self._minimums = ResourceMinimums(spec.resource_limits, self._remaining)
        self._placer = Placer(snapshot)
        context = DrainContext(
            snapshot, BudgetLedger(snapshot), now, local_storage_blocks=spec.skip_nodes_with_local_storage
        )
        self._ledger = context.budgets
        self._pending = self._pending_pods()
        self._classes = EquivalenceClasses(
            self._placer,
            context,
            priority_cutoff=spec.pod_priority_threshold,
            pending=self._pending,
            held_too_long=self._held_too_long,
        )
        self._kept: dict[str, Refusal] = {}
        self._blocking_pods: dict[str, str] = {}  # by the node's name
        self._unneeded: list[str] = []
        self._actions: list[RemoveNode] = []
        self._moving: list[tuple[Pod, EquivalenceClass]] = []
        """The pods of the nodes in the actions which need another node."""
        self._evicted: dict[str, tuple[Pod, ...]] = {}
        """The pods that the actions charge to PodDisruptionBudgets, by node."""

    def plan(self) -> ScaleDownPlan:
        """Make the plan. The snapshot must be a fork, because it is changed."""
        order = self._removal_order()
        if order is not None:
            hold_nominated(self._snapshot)
            with self._snapshot.fork():
                simulation = self._simulation(order)
                for candidate in order:
                    if self._try(candidate, simulation):
                        order.mark_removed(candidate)
                certain = simulation.leaves_choice(self._moving)
            if not certain:
                self._rehearse()
        removed = {action.node for action in self._actions}
        disruptions = Counter(
            budget.key for name in removed for pod in self._evicted[name] for budget in self._ledger.matching(pod)
        )
        return ScaleDownPlan(
            actions=tuple(self._actions),
            kept=tuple(
                Kept(
                    kind="Node",
                    namespace="",
                    name=name,
                    strategy=STRATEGY,
                    reason=self._kept[name].reason,
                    message=self._kept[name].message,
                    pod=self._blocking_pods.get(name, ""),
                )
                for name in self._nodes
                if name in self._kept and name not in removed
            ),
            unneeded=next_unneeded_records(self._unneeded, self._records, now=self._now),
            held=self._next_held(),
            disruptions=dict(sorted(disruptions.items())),
        )

    def _next_held(self) -> dict[str, float]:
        """Return for each blocked node when its removal became blocked, in seconds since the epoch.

        An entry ends when scale-down would keep the node for another reason. A change to the blocking pod does not end
        it.
        """
        if self._spec.scaling_down.max_hold is None:
            return {}
        wanted = self._would_remove.union(node.name for node in self._being_removed)
        names = self._held_now.union(name for name in self._held if name in wanted)
        return {name: min(self._held.get(name, self._now), self._now) for name in sorted(names)}

    def _removal_order(self) -> RemovalOrder | None:
        """Return the removal candidates in order, or ``None`` if there are none.

        For each other node, record the reason why it is kept.
        """
        slots = self._snapshot.nodes.slot_of
        largest = self._snapshot.nodes.allocatable.max(axis=0, initial=1)
        times = UnneededTimes(self._spec.scaling_down)
        found = []
        for name, node in self._nodes.items():
            if self._only is not None and name not in self._only:
                continue
            slot = slots[name]
            refusal = self._eligibility.refusal(node, slot)
            group = self._groups.group_of(name)
            if group is not None and (still := self._pause.refusal(group)) is not None:
                refusal = refusal or still
                self._would_remove.add(name)
                if name in self._records:
                    self._unneeded.append(name)
            if refusal is None and group is not None:
                refusal = self._minimums.refusal(group, node)
            if refusal is not None or group is None:
                self._keep(
                    name, refusal or Refusal(reasons.NOT_AUTOSCALED, "the node belongs to no autoscaled node group")
                )
                continue
            self._would_remove.add(name)
            waiting = times.of(node, group, self._records.get(name))
            if name in self._replacing.old:
                waiting = UnneededPeriod(min(self._records.get(name, self._now), self._now), 0.0)
            over = waiting.is_over(self._now) and self._delay_of(name) is None
            pods = self._classes.on(name)
            running = [pod_class for pod, pod_class in pods if is_running(pod)]
            have = self._snapshot.nodes.allocatable[slot]
            candidate = RemovalCandidate(
                node=node,
                slot=slot,
                group=group,
                pods=pods,
                moving=sum([pod_class.needs_placement for pod_class in running]),
                saving=float(have[CPU] / largest[CPU] + have[MEMORY] / largest[MEMORY]),
                since=waiting.since,
                needed=waiting.needed,
                tier=0 if over else 1 + (name not in self._records),
                blocked=any(pod_class.verdict.outcome in _BLOCKING_OUTCOMES for pod_class in running),
            )
            found.append(candidate)
        if not found:
            return None
        peers = [node for node in self._remaining if self._groups.group_of(node.name) is not None]
        return RemovalOrder(found, peers, self._spec.balancing_ignored_labels)

    def _simulation(self, order: RemovalOrder) -> Simulation:
        """Return a simulation in which capacity is already reserved for pods that must be placed in any case.

        These are pending pods, and the pods of nodes that are being removed.
        """
        simulation = Simulation(
            self._placer, self._classes, FreeCapacity(self._snapshot.nodes, self._receiver_order(order)), self._budget
        )
        simulation.receivers.update(pod.nominated_node for pod in self._pending if pod.nominated_node)
        leaving = self._leaving_pods()
        for pod in leaving:
            if self._ledger.refusal(pod) is None:
                self._ledger.take(pod)
        simulation.reserve_all([*leaving, *self._not_nominated()])
        for node in self._being_removed:
            simulation.exclude(node)
        return simulation

    def _rehearse(self) -> None:
        """Keep nodes whose pods may be left without a node because of how kube-scheduler places others."""
        rehearsal = Rehearsal(
            self._placer,
            leaving=self._leaving_pods(),
            pending=self._not_nominated(),
            draining=self._being_removed,
            budget=self._budget,
        )
        result = rehearsal.run(self._actions)
        for each in result.stranded:
            self._blocking_pods[each.node] = each.pod.key
            message = (
                f"pod {each.pod.key} fits on other nodes only if the scheduler places other pods as planned: "
                f"{each.message}"
            )
            self._keep(each.node, Refusal(reasons.NO_PLACE_TO_MOVE_PODS, message))
            if each.alone:
                self._unneeded.remove(each.node)
        for removal in result.skipped:
            message = f"planning may take {self._budget.seconds:g}s, and the removal was not simulated within that time"
            self._keep(removal.node, Refusal(reasons.PLAN_DEADLINE_EXCEEDED, message))
        kept = {*(each.node for each in result.stranded), *(each.node for each in result.skipped)}
        self._actions = [action for action in self._actions if action.node not in kept]

    def _leaving_pods(self) -> list[Pod]:
        """Return the pods of nodes that are being removed which need another node."""
        return [
            pod
            for node in self._being_removed
            for pod, pod_class in self._classes.on(node.name)
            if pod_class.needs_placement and is_running(pod)
        ]

    def _not_nominated(self) -> list[Pod]:
        return [pod for pod in self._pending if not pod.nominated_node]

    def _pending_pods(self) -> list[Pod]:
        """Return the pending pods with at least the cutoff priority, sorted by descending priority."""
        least = self._spec.pod_priority_threshold
        found = [
            pod
            for _, pod in self._snapshot.unbound()
            if is_running(pod) and pod.priority >= least and not pod.spec.scheduling_gates
        ]
        return sorted(found, key=lambda pod: (-pod.priority, pod.key))

    def _receiver_order(self, order: RemovalOrder) -> IntArray:
        """Return the slots of nodes that may receive pods, in the order in which they are filled.

        Nodes that are not removal candidates come first, most utilized first. The candidates follow, in reverse removal
        order.
        """
        nodes = self._snapshot.nodes
        candidates = [candidate.slot for candidate in order.expected() if not candidate.blocked]
        known = set(candidates)
        others = [
            slot for node in self._remaining if not unready(node) and (slot := nodes.slot_of[node.name]) not in known
        ]
        rank = nodes.rank()
        others.sort(key=lambda slot: (-self._utilization.of(slot), rank[slot]))
        ready = [slot for slot in reversed(candidates) if not unready(nodes.node(slot))]
        return np.array([*others, *ready], dtype=np.int64)

    def _try(self, candidate: RemovalCandidate, simulation: Simulation) -> bool:
        """Try to plan the removal of one candidate.

        Returns:
            Whether the candidate can be removed, now or after its unneeded time.
        """
        node, name = candidate.node, candidate.node.name
        if (late := self._time_limit_reason(candidate)) is not None:
            if name in self._records:  # the node was not evaluated, so its unneeded time continues
                self._unneeded.append(name)
            return self._keep(name, Refusal(reasons.PLAN_DEADLINE_EXCEEDED, late))
        if name in simulation.receivers:
            message = "pending pods, or pods of nodes that are being removed, are planned to run on the node"
            return self._keep(name, Refusal(reasons.NEEDED_FOR_OTHER_PODS, message))
        refusal = self._minimums.refusal(candidate.group, node)
        if refusal is not None:
            return self._keep(name, refusal)
        attempt = simulation.attempt(node, candidate.pods)
        if not attempt.done:
            keeper = attempt.drain.blocking or attempt.stuck
            self._blocking_pods[name] = "" if keeper is None else keeper.key
            return self._keep(name, self._blocked_refusal(name, attempt))
        self._minimums.take(candidate.group, node)
        self._unneeded.append(name)
        waiting = UnneededPeriod(candidate.since, candidate.needed)
        if not waiting.is_over(self._now):
            self._keep(name, not_long_enough(node, waiting, now=self._now))
        elif (delayed := self._delay_of(name)) is not None:
            self._keep(name, delayed)
        else:
            self._actions.append(self._removal(candidate, attempt))
            self._moving.extend(attempt.drain.moving)
            self._evicted[name] = attempt.drain.evicted
        return True

    def _time_limit_reason(self, candidate: RemovalCandidate) -> str | None:
        """Return the reason why the time limit does not allow trying the candidate; ``None`` if it does."""
        if self._budget.over:
            return (
                self._budget.message(candidate.pods[0][0].namespace)
                if candidate.pods
                else "the time limit of the plan has expired"
            )
        slow = namespaces_with_dependent_pods(candidate.pods)
        return next((late for each in slow if (late := self._budget.exceeded(each)) is not None), None)

    def _blocked_refusal(self, name: str, attempt: RemovalAttempt) -> Refusal:
        """Return the reason for keeping a node whose pods cannot be evicted or do not fit on other nodes.

        If ``maxHold`` applies, the message states how long the pods have blocked the removal.
        """
        refusal, pod, reason = _blocked(attempt), attempt.drain.blocking, attempt.drain.verdict.reason
        longest = self._spec.scaling_down.max_hold_seconds
        if pod is None or longest is None:
            return refusal
        by_budget = reason == reasons.NOT_ENOUGH_PDB and any(
            budget.disruptions_allowed <= 0 for budget in self._ledger.matching(pod)
        )
        if not by_budget and reason not in ANNOTATION_HOLDS:
            return refusal
        self._held_now.add(name)
        period = self._now - min(self._held.get(name, self._now), self._now)
        text = f"held for {elapsed(period)}, maxHold is {longest:.10g}s"
        if by_budget and name in self._held_too_long:
            return Refusal(
                reasons.HELD_TOO_LONG, f"{refusal.message}; {text}, which does not apply to PodDisruptionBudgets"
            )
        return Refusal(refusal.reason, f"{refusal.message}; {text}")

    def _delay_of(self, name: str) -> Refusal | None:
        return self.delay_of_replaced if name in self._replacing.old else self._delay

    def _keep(self, name: str, refusal: Refusal) -> bool:
        self._kept[name] = refusal
        return False

    def _removal(self, candidate: RemovalCandidate, attempt: RemovalAttempt) -> RemoveNode:
        node, group = candidate.node, candidate.group
        machine = self._eligibility.machines.get(node.name)
        reason = reasons.UNDERUTILIZED if attempt.moves else reasons.EMPTY
        if node.name in self._replacing.old:
            reason = reasons.REPLACEMENT
        return RemoveNode(
            node=node.name,
            machine_set=group.key,
            reason=reasons.UNREADY if unready(node) else reason,
            moves=tuple([PodMove(pod.key, target) for pod, target in attempt.moves]),
            message=self._message(candidate, attempt),
            group=group.id,
            machine=machine.key if machine is not None and machine.name else "",
            uid=node.uid,
        )

    def _message(self, candidate: RemovalCandidate, attempt: RemovalAttempt) -> str:
        used, slot = self._utilization, candidate.slot
        threshold = threshold_of(self._spec, candidate.group.options, gpu=used.on_gpus(slot))
        since = candidate.since if candidate.since is not None else self._now
        state = "unready and unneeded" if unready(candidate.node) else "unneeded"
        moves, targets = len(attempt.moves), len({target for _, target in attempt.moves})
        places = "no pods need to be rescheduled"
        if moves:
            pods = "its pod fits" if moves == 1 else f"its {moves} pods fit"
            places = f"{pods} on {plural(targets, 'other node')}"
        ignored = ""
        if candidate.node.name in self._held_too_long:
            ignored = "; blocked for longer than maxHold, so annotations of its pods no longer block its removal"
        return (
            f"{used.describe(slot)}; the threshold is {percent(threshold)}; the node has been {state} for "
            f"{elapsed(self._now - since)} (required: {candidate.needed:.10g}s); {places}{ignored}"
        )


def _blocked(attempt: RemovalAttempt) -> Refusal:
    pod, verdict = attempt.drain.blocking, attempt.drain.verdict
    if pod is not None:
        if verdict.outcome is DrainOutcome.WAIT:
            return Refusal(reasons.BLOCKED_BY_ON_COMPLETION_POD, f"pod {pod.key}: {verdict.message}")
        return Refusal(
            reasons.BLOCKED_BY_POD, f"pod {pod.key} blocks the removal ({verdict.reason}): {verdict.message}"
        )
    stuck = "" if attempt.stuck is None else attempt.stuck.key
    if attempt.differing:
        return Refusal(
            reasons.REPLACEMENT_LARGER,
            f"the replacement of pod {stuck} will have {attempt.differing}, and does not fit on other nodes: "
            f"{attempt.reason}",
        )
    return Refusal(reasons.NO_PLACE_TO_MOVE_PODS, f"pod {stuck} does not fit on other nodes: {attempt.reason}")


def reserve(snapshot: Snapshot, made: ScaleDownPlan) -> None:
    """Apply a plan to a snapshot, so that subsequent planners see its reservations.

    Move the pods of removed nodes, mark the nodes as draining, charge the PodDisruptionBudgets, and set the annotation
    :data:`UNNEEDED_SINCE` on unneeded nodes. Moved pods are treated as starting. Call it only on a fork, because the
    actions have not been executed yet.

    Args:
        snapshot: a fork of the snapshot that the plan is based on.
        made: the plan.
    """
    placer = Placer(snapshot)
    for action in made.actions:
        for move in action.moves:
            pod = placer.displace(snapshot.pods[move.pod])
            placer.reserve(replace(pod, phase="Pending", created=None), snapshot.nodes.slot_of[move.target])
    for action in made.actions:
        snapshot.put(as_draining(snapshot.nodes.node(snapshot.nodes.slot_of[action.node])))
    for key, number in made.disruptions.items():
        budget = snapshot.budgets[key]
        snapshot.put(replace(budget, disruptions_allowed=max(0, budget.disruptions_allowed - number)))
    mark_unneeded(snapshot, made.unneeded)
