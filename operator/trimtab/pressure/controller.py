"""The controller of a NodePressurePolicy: it reads its nodes, plans, writes nodes, evicts pods and reports.

There is one controller per policy. :class:`~trimtab.pressure.coordinator.PressureCoordinator` decides which policy
handles a node, writes nodes and evicts pods.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, overload

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.decode import decode_node_pressure_policy
from trimtab.api.node_pressure_policy import (
    ACT,
    PRESSURE_CONDITIONS,
    NodePressurePolicy,
    PressureCounts,
)
from trimtab.api.scalars import parse_duration
from trimtab.cluster.disruption_signals import is_being_removed
from trimtab.cluster.lister import Lister
from trimtab.controller.loop import ControllerLoop, NotReadyReason, end_tasks
from trimtab.controller.permissions import Requirement
from trimtab.controller.progress import PlanSchedule
from trimtab.controller.reporter import report_safely
from trimtab.controller.status_reporter import StatusReporter
from trimtab.disruption.evictor.requests import PRESSURE
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Node, Pod
from trimtab.kube.resources import NODE_PRESSURE_POLICIES, ObjectReference
from trimtab.pressure.assignment import PolicyConflict, policy_conflicts, threshold_conflicts
from trimtab.pressure.coordinator import PressureCoordinator
from trimtab.pressure.dependencies import PressureDependencies
from trimtab.pressure.evictions import EvictionJob, candidates_of
from trimtab.pressure.measurement import NodeMeasurement, Reading
from trimtab.pressure.node_writer import NO_MARKS, NodeMarks
from trimtab.pressure.planner import (
    NodePlan,
    NodePlanner,
    NodeView,
    PlannedEviction,
    failed_pods_to_delete,
    kubelet_evicts,
)
from trimtab.pressure.report import (
    Observation,
    Unread,
    build_status,
    gauges_of,
    invalid_fields,
    policy_reference,
    status_writer,
)
from trimtab.pressure.state import NodeState
from trimtab.pressure.summary import no_pods
from trimtab.pressure.thresholds import MEMORY_STALL, Threshold
from trimtab.pressure.trends import MAX_VALUES, MIN_VALUES, rough_seconds_to, seconds_to_thresholds

log = logging.getLogger(__name__)

STALE_RETRY: Final = 1.0
"""Seconds until the next iteration if the caches are stale."""

FAILURE_RETRY: Final = 5.0
"""Seconds until the next iteration after one that failed."""

PLAN_PERIOD: Final = 1.0
"""Seconds after which the nodes that have been read are planned, while others are still being read."""

MAX_SPREAD: Final = 30.0
"""Maximum seconds over which the reads of an interval are spread. A plan must not wait for most of a long interval."""

READING_MARGIN: Final = 2.0
"""Seconds after the spread for which a plan waits for reads. It does not wait for reads that hang."""

HUNG_REFRESH: Final = 60.0
"""Seconds after which the reads of all nodes are cancelled and restarted, because they hang."""

BATCH: Final = 200
"""Number of nodes to plan before other tasks of the event loop run."""

STORE_TIMEOUT: Final = 10.0
"""Seconds within which the state of a node must be stored before a pod is evicted."""

CONFLICTS_AGE: Final = 60.0
"""Seconds for which the comparison with the kubelets' thresholds is cached. It depends on the nodes' capacities."""

APPROACHING_WITHIN: Final = 600.0
"""Maximum seconds until a node meets a threshold that are shown in the metrics."""

ROUGH_NODES: Final = 50
ROUGH_FACTOR: Final = 6.0
"""Maximum number of nodes whose trends are computed in each interval, and how much sooner than by the rough estimate a
threshold may be met, because the signal has begun to fall in the last of twelve measurements."""

MIN_PAUSE: Final = 0.5
"""Minimum seconds between two iterations."""

_IN_PROGRESS: Final = frozenset({reasons.EVICTING_POD, reasons.WAITING_FOR_STATS})
"""Reasons of plans that do not withdraw an eviction in progress."""


class PodsOnNode(Sequence[Pod]):
    """The pods on a node, which are looked up when they are accessed, because few nodes are under pressure."""

    __slots__ = ("_lister", "_node", "_pods")

    def __init__(self, lister: Lister, node: str) -> None:
        self._lister = lister
        self._node = node
        self._pods: list[Pod] | None = None

    def __len__(self) -> int:
        return len(self._found())

    @overload
    def __getitem__(self, index: int) -> Pod: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Pod]: ...
    def __getitem__(self, index: int | slice) -> Pod | Sequence[Pod]:
        return self._found()[index]

    def _found(self) -> list[Pod]:
        if self._pods is None:
            self._pods = self._lister.pods_on(self._node)
        return self._pods


class NodePressurePolicyController(ControllerLoop[NodePressurePolicy]):
    """Reconciles one NodePressurePolicy.

    Args:
        name: name of the policy.
        dependencies: the dependencies of the controllers.
        shared: what the controllers of all policies share.
    """

    resource = NODE_PRESSURE_POLICIES

    def __init__(self, name: str, dependencies: PressureDependencies, shared: PressureCoordinator) -> None:
        super().__init__(f"node pressure policy {name}", dependencies.clock)
        self.name = name
        self._dependencies = dependencies
        self._shared = shared
        self._readings = dependencies.readings()
        self._planner: NodePlanner | None = None
        self._refresh: asyncio.Task[None] | None = None
        self._refresh_started = 0.0
        self._plans: dict[str, NodePlan] = {}
        self._planned: dict[str, Reading | None] = {}
        self._last_read: dict[str, float] = {}
        self._last_complete: dict[str, float] = {}
        self._first_seen: dict[str, float] = {}
        self._rough: dict[str, float] = {}
        """Roughly the seconds until a node meets a threshold, by name, of the nodes that approach one."""
        self._threshold_conflicts: tuple[NodePressurePolicy, float, tuple[PolicyConflict, ...]] | None = None
        self._stale = NotReadyReason()
        self._status = StatusReporter(
            status_writer(dependencies.api, dependencies.clock, name),
            dependencies.clock,
            reason=reasons.INVALID_POLICY,
            idle="the spec is invalid: no pod is evicted",
        )

    # --- the loop ---------------------------------------------------------------------------------------------------

    @property
    def _plan_schedule(self) -> PlanSchedule | None:
        if self.object is None:
            return None
        return PlanSchedule(NODE_PRESSURE_POLICIES, self.name, parse_duration(self.object.spec.monitoring_interval))

    async def _reconcile(self, policy: NodePressurePolicy) -> float:
        clock, began = self._dependencies.clock, self._dependencies.clock.monotonic()
        planner = self._configure(policy)
        if self._dependencies.stale() is not None:
            self._report(policy, None)
            return STALE_RETRY
        # 1. Read the policy's nodes. Reads are spread over the interval.
        nodes = self._shared.nodes_of(self.name)
        interval = float(parse_duration(policy.spec.monitoring_interval))
        spread = min(interval, MAX_SPREAD)
        self._read(nodes, planner, spread)
        # 2. Plan each node as soon as it has been read. 3. Write its state, conditions and taints. 4. Evict a pod.
        done: set[str] = set()
        while not await self._refresh_ended(until=began + spread + READING_MARGIN):
            await self._handle(policy, planner, [node for node in nodes if self._was_read(node)], done)
            self._component.advance()
        if self._outdated(policy):
            return 0.0
        await self._handle(policy, planner, [node for node in nodes if node.name not in done], done)
        self._component.plan_made()
        self._delete_failed_pods(policy, nodes)
        # 5. Report in status and metrics.
        self._report(policy, nodes)
        return max(MIN_PAUSE, began + interval - clock.monotonic())

    async def _invalid(self, problem: InputError) -> float | None:
        self._shared.remove_policy(self.uid)
        self._planner = None
        self._forget(())
        self._dependencies.reporter.metrics.show(self.name, None)
        self._status.invalid(problem, generation=self.generation, **invalid_fields(self._status.current))
        return None

    async def _failed(self, error: Exception) -> float:
        self._status.failed(error, generation=self.generation)
        return FAILURE_RETRY

    async def _finish(self) -> None:
        if self._refresh is not None:
            await end_tasks([self._refresh])
        await self._readings.close()
        self._dependencies.reporter.metrics.show(self.name, None)
        if self.deleted:  # without the finalizer; otherwise, the deletion handler removes the marks
            self._shared.remove_policy(self.uid)
        await self._status.stop(everything=True)

    def _interrupt(self) -> None:
        if self._refresh is not None:
            self._refresh.cancel()
        self.wake()

    # --- its object -------------------------------------------------------------------------------------------------

    def _decode(self, body: Mapping[str, Any]) -> NodePressurePolicy:
        return decode_node_pressure_policy(dict(body))

    def _requirements(self, obj: NodePressurePolicy) -> tuple[Requirement, ...]:
        return self._dependencies.requirements(obj.spec)

    def _resume(self, status: Mapping[str, Any]) -> None:
        self._status.resume(status)

    @property
    def _reference(self) -> ObjectReference:
        return policy_reference(self.name, self.uid)

    # --- 1. read ----------------------------------------------------------------------------------------------------

    def _configure(self, policy: NodePressurePolicy) -> NodePlanner:
        self._shared.set_policy(policy, self.wake)
        if self._planner is None or self._planner.spec is not policy.spec:
            self._planner = NodePlanner(policy.spec)
            self._planned.clear()
        return self._planner

    def _read(self, nodes: Sequence[Node], planner: NodePlanner, spread: float) -> None:
        """Start to read the nodes, unless the previous reads are still in progress."""
        now = self._dependencies.clock.monotonic()
        if self._refresh is not None and not self._refresh.done():
            if now - self._refresh_started < HUNG_REFRESH:
                return
            log.warning("The reader of node stats for NodePressurePolicy %s is stuck; restarting the reader", self.name)
            self._refresh.cancel()
        self._refresh_started = now
        self._refresh = asyncio.create_task(
            self._readings.refresh(
                nodes,
                only_memory=planner.only_memory,
                interval=spread,
                pods_needed=self._pods_needed(planner),
            ),
            name=f"read the nodes of {self.name}",
        )

    def _pods_needed(self, planner: NodePlanner) -> Callable[[NodeMeasurement], bool]:
        def needed(measurement: NodeMeasurement) -> bool:
            node = self._dependencies.lister.node(measurement.node)
            return planner.pods_needed(measurement) or (node is not None and bool(self._shared.state_of(node)))

        return needed

    async def _refresh_ended(self, *, until: float) -> bool:
        """Wait until it is time to plan again, and return whether all reads have ended or the deadline has passed."""
        refresh, clock = self._refresh, self._dependencies.clock
        if refresh is None or self.closing:
            return True
        left = until - clock.monotonic()
        if left > 0.0:
            await asyncio.wait([refresh], timeout=min(PLAN_PERIOD, left))
            if not refresh.done():
                return clock.monotonic() >= until
            if not refresh.cancelled() and (error := refresh.exception()) is not None:
                raise error
        return True

    def _outdated(self, policy: NodePressurePolicy) -> bool:
        return self.closing or self.object is not policy

    # --- 2. plan ----------------------------------------------------------------------------------------------------

    def _was_read(self, node: Node) -> bool:
        """Return whether a node was read since it was last planned."""
        return self._readings.latest(node.name) is not self._planned.get(node.name)

    async def _handle(
        self, policy: NodePressurePolicy, planner: NodePlanner, nodes: Sequence[Node], done: set[str]
    ) -> None:
        """Plan nodes, carry out the plans, and add the names of the nodes to ``done``."""
        for first in range(0, len(nodes), BATCH):
            await asyncio.sleep(0)
            if self._outdated(policy) or self._dependencies.stale() is not None:
                return
            handled = self._shared.assignment().policies
            for known in nodes[first : first + BATCH]:
                node, owner = self._dependencies.lister.node(known.name), handled.get(known.name)
                replaced = node is not None and node.uid != known.uid  # the readings are those of its predecessor
                if node is None or replaced or owner is None or owner.name != self.name:
                    self._forget_node(known.name)
                    continue
                reading = self._planned[node.name] = self._readings.latest(node.name)
                if isinstance(reading, NodeMeasurement) and reading.pods is no_pods and planner.pods_needed(reading):
                    reading = None  # its pods were dropped, because it met no threshold of the policy's previous spec
                self._handle_node(policy, planner, node, reading)
                done.add(node.name)

    def _handle_node(
        self, policy: NodePressurePolicy, planner: NodePlanner, node: Node, reading: Reading | None
    ) -> None:
        now = self._dependencies.clock.now()
        view = NodeView(
            node=node,
            pods=PodsOnNode(self._dependencies.lister, node.name),
            reading=reading,
            history=self._readings.history(node.name),
            state=self._shared.state_of(node),
            evicting=self._shared.evictions.leaving(node.name),
        )
        plan = planner.plan(view, now=now)
        rough = math.inf
        if isinstance(reading, NodeMeasurement):
            self._last_read[node.name] = reading.read_at
            if len(view.history) >= MIN_VALUES:
                first = (view.history[0], view.history[-MAX_VALUES:][0])  # it may have fallen only lately
                rough = min(rough_seconds_to(planner.thresholds, each, reading) for each in first)
        if rough <= ROUGH_FACTOR * APPROACHING_WITHIN:
            self._rough[node.name] = rough
        else:
            self._rough.pop(node.name, None)
        self._first_seen.setdefault(node.name, now)
        if policy.spec.mode != ACT:
            self._simulate(node, plan)
            return
        planned, candidates = plan.evict, []
        # By a clock that is fast, the grace period of a pod that is leaving may seem to have ended.
        if view.evicting is None or (planned is not None and planned.shortens):
            candidates = self._shared.evictions.ready(candidates_of(plan.evict, plan.alternatives))
        if candidates:
            plan = replace(plan, state=replace(plan.state, evicting=candidates[0].pod.uid))
        else:  # all candidates were refused a short time ago, or there is none
            plan = _without_eviction(plan)
        tried = candidates[0] if candidates else planned
        refusal = None if tried is None else self._shared.evictions.refusal(tried.pod)
        if refusal is not None:
            plan = replace(plan, reason=refusal.reason, message=refusal.message)
        self._write(policy, node, plan)
        self._evict(policy, node, plan, candidates)

    # --- 3. write nodes, 4. evict -----------------------------------------------------------------------------------

    def _simulate(self, node: Node, plan: NodePlan) -> None:
        """Report the plan, and keep the state in memory.

        :class:`~trimtab.pressure.coordinator.PressureCoordinator` removes the marks of an earlier mode Act.
        """
        if plan.evict is not None:
            self._dependencies.reporter.simulated(self._reference, node.name, plan.evict)
        self._record_plan(node, plan)
        self._shared.set_state(node, _without_eviction(plan).state)

    def _write(self, policy: NodePressurePolicy, node: Node, plan: NodePlan) -> None:
        shown = self._shared.writer.marks_of(node.name).conditions
        marks = NO_MARKS
        if plan.state or plan.conditions:
            marks = NodeMarks(
                plan.state,
                {name: shown.get(name) or _describe(plan, name) for name in sorted(plan.conditions)},
                taint=policy.spec.taint_nodes,
            )
        before = self._shared.state_of(node).last_met
        began = {name: message for name, message in marks.conditions.items() if name not in before}
        ended = [name for name in PRESSURE_CONDITIONS if name in before and name not in plan.conditions]
        self._dependencies.reporter.conditions_changed(
            self._reference, node, began, ended, tainted=policy.spec.taint_nodes
        )
        self._record_plan(node, plan)
        self._shared.set_state(node, plan.state)
        self._shared.writer.put(node, marks)

    def _evict(
        self, policy: NodePressurePolicy, node: Node, plan: NodePlan, candidates: Sequence[PlannedEviction]
    ) -> None:
        if candidates:
            self._shared.evictions.start(
                EvictionJob(
                    policy=self._reference,
                    node=node.name,
                    candidates=candidates,
                    record_eviction=lambda uid: self._record_eviction(node, uid),
                    record_refusal=lambda uid: self._record_refusal(node, uid, plan),
                    still_needed=lambda planned: self._still_needed(policy, node, planned),
                )
            )
            return
        if plan.reason not in _IN_PROGRESS:
            self._shared.evictions.withdraw(node.name)
        if plan.reason == reasons.KUBELET_EVICTS:
            self._dependencies.reporter.stood_down(self._reference, node, plan.message)

    def _still_needed(self, policy: NodePressurePolicy, node: Node, planned: PlannedEviction) -> bool:
        """Return whether a planned eviction that has waited, for example for a budget, may still be sent."""
        lister, now = self._dependencies.lister, self._dependencies.clock.now()
        current = lister.node(node.name)
        if self._outdated(policy) or current is None or current.uid != node.uid or not self._acts_on(node):
            return False
        if is_being_removed(current):
            return False
        return not kubelet_evicts(current, lister.pods_on(node.name), planned.threshold.condition, now)

    async def _record_eviction(self, node: Node, uid: str) -> bool:
        """Store that a pod is being evicted from a node, and return whether that succeeded."""
        state = self._shared.state_of(node)
        if state.evicting != uid:
            self._set_state(node, replace(state, evicting=uid))
        return await self._shared.writer.written(node.name, seconds=STORE_TIMEOUT)

    def _record_refusal(self, node: Node, uid: str, plan: NodePlan) -> None:
        """Store since when the API server refuses to evict a pod."""
        ranked = [each.pod.uid for each in candidates_of(plan.evict, plan.alternatives)]
        self._set_state(node, self._shared.state_of(node).refused(uid, self._dependencies.clock.now(), ranked=ranked))

    def _set_state(self, node: Node, state: NodeState) -> None:
        current = self._dependencies.lister.node(node.name)
        if current is None or current.uid != node.uid or not self._acts_on(node):
            return
        self._shared.set_state(current, state)
        self._shared.writer.put(current, replace(self._shared.writer.marks_of(node.name), state=state))

    def _acts_on(self, node: Node) -> bool:
        policy = self._shared.assignment().policies.get(node.name)
        return policy is not None and policy.name == self.name and policy.spec.mode == ACT

    def _delete_failed_pods(self, policy: NodePressurePolicy, nodes: Iterable[Node]) -> None:
        """Delete pods that kubelets evicted long ago."""
        cleanup = policy.spec.failed_pods
        if cleanup is None or policy.spec.mode != ACT:
            return
        lister = self._dependencies.lister
        failed = (pod for node in nodes for _, pod in lister.items_on(node.name) if pod.phase == "Failed")
        pods = failed_pods_to_delete(failed, cleanup, now=self._dependencies.clock.now())
        self._shared.evictions.delete_failed_pods(self._reference, pods, wanted=lambda: not self._outdated(policy))

    # --- 5. report --------------------------------------------------------------------------------------------------

    def _record_plan(self, node: Node, plan: NodePlan) -> None:
        if plan.reason or plan.conditions or plan.met:
            self._plans[node.name] = plan
        else:
            self._plans.pop(node.name, None)

    def _forget(self, nodes: Sequence[Node]) -> None:
        """Drop the plans and readings of nodes that the policy does not handle any more: of all but these."""
        names = {node.name for node in nodes}
        for known in self._known_of_nodes():
            for name in known.keys() - names:
                del known[name]

    def _forget_node(self, name: str) -> None:
        """Drop the plan and readings of a node that does not exist any more; another node may have its name."""
        for known in self._known_of_nodes():
            known.pop(name, None)

    def _known_of_nodes(self) -> tuple[dict[str, Any], ...]:
        return (self._plans, self._planned, self._last_read, self._last_complete, self._first_seen, self._rough)

    def _report(self, policy: NodePressurePolicy, nodes: Sequence[Node] | None) -> None:
        """Update the status and the metrics; with ``None`` for the nodes, only report that the caches are stale."""
        clock, shared = self._dependencies.clock, self._shared
        stale = self._stale.lasting(self._dependencies.stale(), clock.monotonic())
        if nodes is None:
            if stale:
                observed = Observation(now=clock.now(), generation=self.generation, mode=policy.spec.mode, stale=stale)
                status = build_status(observed, self._status.current, base=self._status.resumed.counts)
                self._status.put(replace(self._status.current, conditions=status.conditions))
            return
        self._forget(nodes)
        now, refused, problems = clock.now(), shared.evictions.refused_pods(self.name), shared.writer.problems
        counts = shared.evictions.counts(self.uid)
        current = [each for node in nodes if (each := self._current(node.name, now)) is not None]
        observed = Observation(
            now=now,
            generation=self.generation,
            mode=policy.spec.mode,
            nodes=len(nodes),
            readings=Counter(each.source for each in current),
            plans=[plan for _, plan in sorted(self._plans.items()) if plan.conditions or plan.met],
            unread=sorted(
                [*self._unread({each.node for each in current}, now), *self._unknown_signals(current)],
                key=lambda each: each.node,
            ),
            refused=[each.key for each in refused],
            evicting=sum(shared.evictions.granted(node.name) is not None for node in nodes),
            conflicts=self._conflicts(policy, current),
            unwritten={each.name: problems[each.name] for each in nodes if each.name in problems},
            counts=PressureCounts(evicted=counts["Evicted"], deleted=counts["Deleted"], cleaned_up=counts["CleanedUp"]),
            waiting=self._dependencies.evictor.waiting_status(
                PRESSURE, name=self.name, previous=self._status.current.waiting_evictions
            ),
            approaching=self._approaching(),
        )
        self._status.put(build_status(observed, self._status.current, base=self._status.resumed.counts))
        ages = [now - each.read_at for each in current]
        gauges = gauges_of(observed, ages, Counter(each.reason for each in refused))
        with report_safely("metrics of node pressure"):
            self._dependencies.reporter.metrics.show(self.name, gauges)

    def _approaching(self) -> dict[Threshold, float]:
        """Return the thresholds that a node soon meets, with the seconds until the first node does."""
        thresholds = () if self._planner is None else self._planner.thresholds
        soonest: dict[Threshold, float] = {}
        for name in heapq.nsmallest(ROUGH_NODES, self._rough, key=self._rough.__getitem__):
            history = tuple(self._readings.history(name))
            for threshold, seconds in seconds_to_thresholds(thresholds, history, within=APPROACHING_WITHIN).items():
                soonest[threshold] = min(seconds, soonest.get(threshold, seconds))
        return soonest

    def _conflicts(self, policy: NodePressurePolicy, current: Iterable[NodeMeasurement]) -> list[tuple[str, str]]:
        """Return the reason and the message of each conflict with other policies and with kubelets."""
        now, known = self._dependencies.clock.monotonic(), self._threshold_conflicts
        if known is None or known[0] is not policy or now - known[1] >= CONFLICTS_AGE:
            capacities = {each.node: {key: value.capacity for key, value in each.signals.items()} for each in current}
            known = self._threshold_conflicts = (policy, now, threshold_conflicts(policy, capacities))
        others = (each for each in policy_conflicts(self._shared.assignment()) if each.policy == self.name)
        return [(each.reason, each.message) for each in (*others, *known[2])]

    def _current(self, name: str, now: float) -> NodeMeasurement | None:
        """Return the current measurement of a node, if there is one."""
        reading = self._readings.latest(name)
        if not isinstance(reading, NodeMeasurement) or self._planner is None:
            return None
        return reading if now - reading.read_at <= self._planner.stale_after else None

    def _unread(self, current: set[str], now: float) -> list[Unread]:
        """Return the nodes whose signals have been unknown for some intervals, sorted by name."""
        patience = 0.0 if self._planner is None else float(self._planner.stale_after)
        found = []
        for name, plan in sorted(self._plans.items()):
            if name in current:
                continue
            known = self._last_read.get(name)
            if now - (self._first_seen.get(name, now) if known is None else known) >= patience:
                found.append(Unread(name, plan.reason, plan.message, known))
        return found

    def _unknown_signals(self, current: Iterable[NodeMeasurement]) -> list[Unread]:
        """Return the nodes whose measurement lacks the signal of a threshold, because it is implausible or stale.

        metrics.k8s.io contains only the memory; the status counts the nodes that are measured by it.
        """
        signals = [] if self._planner is None else [each.signal for each in self._planner.thresholds]
        found = []
        for each in current:
            if each.source != "Summary":
                continue
            lacking = [
                f"{signal}: {each.problems.get(signal, 'the kubelet does not report it')}"
                for signal in dict.fromkeys(signals)
                if not (each.memory_stall if signal == MEMORY_STALL else each.signals.get(signal))
            ]
            if lacking:
                known = self._last_complete.get(each.node)
                found.append(Unread(each.node, reasons.SIGNAL_UNKNOWN, "; ".join(lacking), known))
            else:
                self._last_complete[each.node] = each.read_at
        return found


def _without_eviction(plan: NodePlan) -> NodePlan:
    """Return the plan if no pod is evicted now: the state does not name another pod than before."""
    return plan if plan.evict is None else replace(plan, evict=None, state=plan.state_without_eviction)


def _describe(plan: NodePlan, name: str) -> str:
    """Return the thresholds of a condition that are met, for the message of the condition."""
    met = [each.threshold for each in plan.met if each.threshold.condition == name]
    texts = [f"the {'hard' if each.hard else 'soft'} threshold of {each.signal} is met" for each in met]
    return ", ".join(texts) or "a threshold was met within the transition period"
