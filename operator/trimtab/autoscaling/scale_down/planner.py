"""The scale-down planner: which nodes can go, where their pods go, and why the others stay. No I/O, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import UTC, datetime

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.node_removal import PodMove, RemoveNode
from trimtab.api.plan import Kept
from trimtab.autoscaling.groups import Groups
from trimtab.autoscaling.replace.record import NONE, Replacing
from trimtab.autoscaling.scale_down.candidates import Candidate, Turns
from trimtab.autoscaling.scale_down.drainability import Context, Outcome
from trimtab.autoscaling.scale_down.eligibility import Eligibility, Times, Waiting, delay, elapsed, too_soon, unready
from trimtab.autoscaling.scale_down.floors import Floors
from trimtab.autoscaling.scale_down.kinds import Kinds, ordinary
from trimtab.autoscaling.scale_down.records import next_records, recorded
from trimtab.autoscaling.scale_down.room import Room
from trimtab.autoscaling.scale_down.simulation import Attempt, Simulation
from trimtab.autoscaling.scale_down.standstill import NO_STANDSTILL, Standstill
from trimtab.autoscaling.scale_down.utilization import percent, threshold_of, utilization
from trimtab.cluster.resources import CPU, MEMORY, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import BudgetLedger
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

STRATEGY = "ScaleDown"
"""In the place of a strategy, in everything that a plan keeps and that is about removing nodes."""


_KEEPING = (Outcome.BLOCK, Outcome.WAIT)


class ScalingDown(Struct, frozen=True):
    """What scale-down plans.

    Attributes:
        actions: nodes to remove, in the order in which they were found.
        kept: every other node with its reason, by name.
        unneeded: since when nodes are unneeded, by name, in seconds since the epoch: what is to be recorded.
        disruptions: how many pods of each PodDisruptionBudget are evicted, by ``namespace/name``.
    """

    actions: tuple[RemoveNode, ...] = ()
    kept: tuple[Kept, ...] = ()
    unneeded: Mapping[str, float] = {}
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
    standstill: Standstill = NO_STANDSTILL,
    replacing: Replacing = NONE,
) -> ScalingDown:
    """Which nodes to remove, with a place for each of their pods, and why each other node stays.

    A node is removed only if it is recorded as unneeded for long enough (:mod:`.records`). Nodes that are not are tried
    as well, after the others, since what is to be recorded follows from it.

    Args:
        snapshot: the cluster; changed while planning and as before afterwards.
        groups: of the snapshot.
        spec: of the ClusterAutoscaler.
        now: seconds since the epoch.
        status: of the ClusterAutoscaler: records, and when something was last done.
        adding: whether nodes are added by the same plan.
        only: the names of the nodes in question, where not all are: the others stay, and nothing is said of them.
        standstill: what is left as it is, its records included.
        replacing: nodes whose place others have taken, which need be neither unneeded nor so for long, and these
            others, which stay.
    """
    with snapshot.fork():
        past = status or ClusterAutoscalerStatus()
        if adding:
            past = replace(past, last_scale_up=datetime.fromtimestamp(now, tz=UTC))
        planner = _Planner(snapshot, groups, spec, past, now, only, standstill, replacing)
        if not adding:  # nodes were added so that these can go
            planner.delay_of_replaced = delay(spec, replace(past, last_scale_up=None), now=now)
        return planner.plan()


class _Planner:
    def __init__(
        self,
        snapshot: Snapshot,
        groups: Groups,
        spec: ClusterAutoscalerSpec,
        status: ClusterAutoscalerStatus,
        now: float,
        only: Collection[str] | None,
        standstill: Standstill,
        replacing: Replacing,
    ) -> None:
        self._snapshot, self._groups, self._spec, self._now = snapshot, groups, spec, now
        self._only, self._standstill, self._replacing = only, standstill, replacing
        self._nodes = {name: snapshot.nodes.node(slot) for name, slot in sorted(snapshot.nodes.slot_of.items())}
        self._records = recorded(self._nodes.values(), status)
        self._delay = self.delay_of_replaced = delay(spec, status, now=now)
        self._used = utilization(snapshot, spec, now=now)
        self._eligibility = Eligibility(spec, groups, self._used, replacing)
        self._going = [node for node in self._nodes.values() if self._eligibility.going(node)]
        names = {node.name for node in self._going}
        self._staying = [node for node in self._nodes.values() if node.name not in names]
        self._floors = Floors(spec.resource_limits, self._staying)
        self._placer = Placer(snapshot)
        context = Context(
            snapshot, BudgetLedger(snapshot), now, local_storage_blocks=spec.skip_nodes_with_local_storage
        )
        self._ledger = context.budgets
        self._coming = self._waiting()
        self._kinds = Kinds(self._placer, context, least_priority=spec.pod_priority_threshold, coming=self._coming)
        self._kept: dict[str, Refusal] = {}
        self._keepers: dict[str, str] = {}  # the pod that keeps a node, by the node's name
        self._unneeded: list[str] = []
        self._actions: list[RemoveNode] = []
        self._disruptions: Counter[str] = Counter()

    def plan(self) -> ScalingDown:
        """Plan; in a fork."""
        turns = self._turns()
        if turns is not None:
            simulation = self._simulation(turns)
            for candidate in turns:
                if self._try(candidate, simulation):
                    turns.gone(candidate)
        removed = {action.node for action in self._actions}
        return ScalingDown(
            actions=tuple(self._actions),
            kept=tuple(
                Kept(
                    kind="Node",
                    namespace="",
                    name=name,
                    strategy=STRATEGY,
                    reason=self._kept[name].reason,
                    message=self._kept[name].message,
                    pod=self._keepers.get(name, ""),
                )
                for name in self._nodes
                if name in self._kept and name not in removed
            ),
            unneeded=next_records(self._unneeded, self._records, now=self._now),
            disruptions=dict(sorted(self._disruptions.items())),
        )

    def _turns(self) -> Turns | None:
        """The candidates; ``None`` where there are none. All other nodes are kept."""
        slots = self._snapshot.nodes.slot_of
        largest = self._snapshot.nodes.allocatable.max(axis=0, initial=1)
        times = Times(self._spec.scaling_down)
        found = []
        for name, node in self._nodes.items():
            if self._only is not None and name not in self._only:
                continue
            slot = slots[name]
            refusal = self._eligibility.refusal(node, slot)
            group = self._groups.group_of(name)
            if group is not None and (still := self._standstill.refusal(group)) is not None:
                refusal = refusal or still
                if name in self._records:
                    self._unneeded.append(name)
            if refusal is None and group is not None:
                refusal = self._floors.refusal(group, node)
            if refusal is not None or group is None:
                self._keep(name, refusal or Refusal(reasons.NOT_AUTOSCALED, "no group that is scaled has the node"))
                continue
            waiting = times.of(node, group, self._records.get(name))
            if name in self._replacing.old:
                waiting = Waiting(min(self._records.get(name, self._now), self._now), 0.0)
            over = waiting.over(self._now) and self._delay_of(name) is None
            pods = self._kinds.on(name)
            have = self._snapshot.nodes.allocatable[slot]
            candidate = Candidate(
                node=node,
                slot=slot,
                group=group,
                pods=pods,
                moving=sum(kind.placed and ordinary(pod) for pod, kind in pods),
                saving=float(have[CPU] / largest[CPU] + have[MEMORY] / largest[MEMORY]),
                since=waiting.since,
                needed=waiting.needed,
                turn=0 if over else 1 + (name not in self._records),
                blocked=any(kind.verdict.outcome in _KEEPING and ordinary(pod) for pod, kind in pods),
            )
            found.append(candidate)
        if not found:
            return None
        peers = [node for node in self._staying if self._groups.group_of(node.name) is not None]
        return Turns(found, peers, self._spec.balancing_ignored_labels)

    def _simulation(self, turns: Turns) -> Simulation:
        """The room on nodes that can take pods, less what pods need that have to go somewhere whatever is planned."""
        waiting = self._coming
        for pod in waiting:
            self._snapshot.amounts(pod.spec)  # the axis knows its resources before room is measured
        simulation = Simulation(self._placer, self._kinds, Room(self._snapshot.nodes, self._order(turns)))
        simulation.takers.update(pod.nominated_node for pod in waiting if pod.nominated_node)
        leaving = [
            pod for node in self._going for pod, kind in self._kinds.on(node.name) if kind.placed and ordinary(pod)
        ]
        for pod in leaving:
            if self._ledger.refusal(pod) is None:
                self._ledger.take(pod)
        simulation.settle([*leaving, *(pod for pod in waiting if not pod.nominated_node)])
        for node in self._going:
            simulation.leave_out(node)
        return simulation

    def _waiting(self) -> list[Pod]:
        """Pods without a node that count, the most important first."""
        least = self._spec.pod_priority_threshold
        found = [
            pod
            for _, pod in self._snapshot.unbound()
            if ordinary(pod) and pod.priority >= least and not pod.spec.scheduling_gates
        ]
        return sorted(found, key=lambda pod: (-pod.priority, pod.key))

    def _order(self, turns: Turns) -> IntArray:
        """The slots that may take pods: nodes that stay anyway, the fullest first, then those that would go last."""
        nodes = self._snapshot.nodes
        candidates = [candidate.slot for candidate in turns.expected() if not candidate.blocked]
        known = set(candidates)
        others = [
            slot for node in self._staying if not unready(node) and (slot := nodes.slot_of[node.name]) not in known
        ]
        rank = nodes.rank()
        others.sort(key=lambda slot: (-self._used.of(slot), rank[slot]))
        ready = [slot for slot in reversed(candidates) if not unready(nodes.node(slot))]
        return np.array([*others, *ready], dtype=np.int64)

    def _try(self, candidate: Candidate, simulation: Simulation) -> bool:
        """Try one candidate; whether it goes, now or once its time has come."""
        node, name = candidate.node, candidate.node.name
        if name in simulation.takers:
            message = "pods that wait, or pods of nodes that go, have their places on it"
            return self._keep(name, Refusal(reasons.NEEDED_FOR_OTHER_PODS, message))
        refusal = self._floors.refusal(candidate.group, node)
        if refusal is not None:
            return self._keep(name, refusal)
        attempt = simulation.attempt(node, candidate.pods)
        if not attempt.done:
            keeper = attempt.drain.blocking or attempt.stuck
            self._keepers[name] = "" if keeper is None else keeper.key
            return self._keep(name, _blocked(attempt))
        self._floors.take(candidate.group, node)
        self._unneeded.append(name)
        waiting = Waiting(candidate.since, candidate.needed)
        if not waiting.over(self._now):
            self._keep(name, too_soon(node, waiting, now=self._now))
        elif (late := self._delay_of(name)) is not None:
            self._keep(name, late)
        else:
            self._actions.append(self._removal(candidate, attempt))
            for pod in attempt.drain.evicted:
                self._disruptions.update(budget.key for budget in self._ledger.matching(pod))
        return True

    def _delay_of(self, name: str) -> Refusal | None:
        return self.delay_of_replaced if name in self._replacing.old else self._delay

    def _keep(self, name: str, refusal: Refusal) -> bool:
        self._kept[name] = refusal
        return False

    def _removal(self, candidate: Candidate, attempt: Attempt) -> RemoveNode:
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

    def _message(self, candidate: Candidate, attempt: Attempt) -> str:
        used, slot = self._used, candidate.slot
        threshold = threshold_of(self._spec, candidate.group.options, gpu=used.on_gpus(slot))
        since = candidate.since if candidate.since is not None else self._now
        state = "unready and unneeded" if unready(candidate.node) else "unneeded"
        moves, targets = len(attempt.moves), len({target for _, target in attempt.moves})
        places = "no pod needs a place"
        if moves:
            places = (
                f"{moves} pod{'s' if moves > 1 else ''} {'have places' if moves > 1 else 'has a place'} on "
                f"{targets} other node{'s' if targets > 1 else ''}"
            )
        return (
            f"{used.told(slot)}, the threshold is {percent(threshold)}; {state} for {elapsed(self._now - since)} of "
            f"{candidate.needed:.10g}s; {places}"
        )


def _blocked(attempt: Attempt) -> Refusal:
    pod, verdict = attempt.drain.blocking, attempt.drain.verdict
    if pod is not None:
        if verdict.outcome is Outcome.WAIT:
            return Refusal(reasons.BLOCKED_BY_ON_COMPLETION_POD, f"pod {pod.key}: {verdict.message}")
        return Refusal(reasons.BLOCKED_BY_POD, f"pod {pod.key} keeps it ({verdict.reason}): {verdict.message}")
    stuck = "" if attempt.stuck is None else attempt.stuck.key
    return Refusal(reasons.NO_PLACE_TO_MOVE_PODS, f"pod {stuck} finds no place elsewhere: {attempt.sentence}")
