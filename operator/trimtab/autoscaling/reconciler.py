"""Reconciles the ClusterAutoscaler: observes the cluster, plans, acts and reports, once per iteration.

Slow work runs in tasks: requests to providers, drains, writes to nodes, and the status. An iteration starts the tasks,
and waits two seconds at most for scale-ups. Other outcomes are in the report of a later iteration.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import NAME as CLUSTER_AUTOSCALER
from trimtab.api.cluster_autoscaler import ClusterAutoscaler, ClusterAutoscalerSpec, NodeGroupAutoDiscovery
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.descheduler_status import TRY_AGAIN
from trimtab.api.plan import Plan, RemoveNode, ScaleUp
from trimtab.autoscaling.actuation import RemovalObserver, RemovalOutcome, Removals, RemovalSettings, RemovalState
from trimtab.autoscaling.actuation.node_markers import has_unneeded_record, removal_markers
from trimtab.autoscaling.actuation.removal_checks import is_being_deleted
from trimtab.autoscaling.cluster_state import AutoscalerState, state_from_status, status_with_state
from trimtab.autoscaling.cluster_state.backoff import clear_backoffs, is_backing_off
from trimtab.autoscaling.dependencies import AutoscalerDependencies
from trimtab.autoscaling.external.expander import NAME as GRPC
from trimtab.autoscaling.groups import Groups, ObjectProblem, build_groups
from trimtab.autoscaling.iteration import IterationInput, IterationResult, plan_iteration
from trimtab.autoscaling.priorities import NAME as PRIORITY
from trimtab.autoscaling.priorities import PriorityConfig
from trimtab.autoscaling.report import IterationReport, build_status
from trimtab.autoscaling.scale_down import UNNEEDED_SINCE
from trimtab.autoscaling.scale_down.eligibility import held_too_long
from trimtab.autoscaling.scale_up_executor import (
    ExecutorResults,
    ScaleUpExecutor,
    TargetCorrection,
    plan_corrections,
    record_results,
)
from trimtab.autoscaling.template.recording import LearnedNodeWriter
from trimtab.autoscaling.trigger import Trigger
from trimtab.cluster.shared_snapshot import in_thread
from trimtab.cluster.snapshot import Snapshot
from trimtab.controller.loop import end_tasks
from trimtab.controller.status_writer import StatusWriter
from trimtab.disruption.evictor.requests import AUTOSCALER
from trimtab.disruption.outcome import Refusal
from trimtab.kube.api import LeaderOnlyApi
from trimtab.placement.plan_budget import PlanBackoff

log = logging.getLogger(__name__)


class WakingObserver:
    """Forwards removal events to the reporter, and wakes the loop when a removal ends.

    The loop can then start the next removal without delay.

    Args:
        reporter: receives the events.
        trigger: wakes the autoscaler's loop.
    """

    def __init__(self, reporter: RemovalObserver, trigger: Trigger) -> None:
        self._reporter = reporter
        self._trigger = trigger

    def began(self, state: RemovalState) -> None:
        """See :class:`RemovalObserver`."""
        self._reporter.began(state)

    def ended(self, outcome: RemovalOutcome) -> None:
        """See :class:`RemovalObserver`."""
        self._reporter.ended(outcome)
        self._trigger.wake()

    def uncordoned(self, node: str, uid: str, why: Refusal, *, at: float) -> None:
        """See :class:`RemovalObserver`."""
        self._reporter.uncordoned(node, uid, why, at=at)


def log_iteration(report: IterationReport) -> None:
    """Log the scale-ups, size corrections and findings of an iteration. Log nothing if there are none."""
    for outcome in report.scale_up_outcomes:
        scaled, group = outcome.scaled, {"group": outcome.scaled.group}
        if scaled.done:
            message = "Scaled up node group %s from %d to %d nodes: %s"
            log.info(message, scaled.group, scaled.before, scaled.after, outcome.action.message, extra=group)
        else:
            message = "Failed to scale up node group %s from %d to %d nodes (%s): %s"
            reason = {**group, "reason": str(scaled.failure)}
            arguments = scaled.group, scaled.before, scaled.after, scaled.failure, scaled.message
            log.warning(message, *arguments, extra=reason)
    for corrected in report.size_corrections:
        done = "Changed" if corrected.done else "Failed to change"
        log.log(
            logging.INFO if corrected.done else logging.WARNING,
            "%s the target size of node group %s from %d to %d%s",
            done,
            corrected.group,
            corrected.before,
            corrected.after,
            f": {corrected.message}" if corrected.message else "",
            extra={"group": corrected.group},
        )
    for finding in report.findings:
        level = logging.WARNING if finding.failure else logging.INFO
        extra = {"group": finding.group, "reason": finding.reason}
        log.log(level, "Node group %s: %s", finding.group, finding.message, extra=extra)


class DisruptionLock:
    """Acquires the lock that the autoscaler shares with the descheduler, without blocking an iteration.

    A descheduler policy holds the lock for minutes while it evicts pods. Pending pods cannot wait that long. So the
    autoscaler scales up even while it does not hold the lock, but starts no removals. To start removals it queues for
    the lock, and its loop is woken when the lock is acquired.

    Args:
        lock: the lock that a controller holds while it plans pod moves or node removals.
        wake: called when the lock is acquired after :meth:`acquire_later`.
    """

    def __init__(self, lock: asyncio.Lock, wake: Callable[[], None]) -> None:
        self._lock = lock
        self._wake = wake
        self._held = False
        self._waiting: asyncio.Task[None] | None = None

    @property
    def held(self) -> bool:
        """Return whether the autoscaler holds the lock."""
        return self._held

    async def try_acquire(self) -> bool:
        """Acquire the lock if it is free, and return whether the autoscaler holds it."""
        if not self._held and self._waiting is None and not self._lock.locked():
            # asyncio may have promised a free lock to another waiter; a timeout of 0 does not wait for that one.
            with suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await self._lock.acquire()
                    self._held = True
        return self._held

    def acquire_later(self) -> None:
        """Queue for the lock, and wake the loop once it is acquired."""
        if not self._held and self._waiting is None:
            self._waiting = asyncio.create_task(self._wait(), name="autoscaler waits for the disruption lock")

    def release(self) -> None:
        """Release the lock. This is a no-op if the autoscaler does not hold it."""
        if self._held:
            self._held = False
            self._lock.release()

    async def close(self) -> None:
        """Release the lock, or stop waiting for it."""
        if self._waiting is not None:
            await end_tasks([self._waiting])
        self.release()

    async def _wait(self) -> None:
        try:
            await self._lock.acquire()
            self._held = True
        finally:
            self._waiting = None
        self._wake()


ACT: Final = "Act"

SHUTDOWN_TIMEOUT: Final = 5.0
"""Seconds that outstanding requests to providers may take when the process stops."""

RECORDING_PERIOD: Final = 60.0
"""Minimum number of seconds between two updates of the node descriptions on node groups."""


class Reconciler:
    """Reconciles the ClusterAutoscaler.

    It also owns the scale-ups and removals that take longer than one iteration.

    Args:
        dependencies: the autoscaler's dependencies.
        writer: writes the status of the ClusterAutoscaler.
    """

    def __init__(self, dependencies: AutoscalerDependencies, writer: StatusWriter[ClusterAutoscalerStatus]) -> None:
        self._dependencies = dependencies
        self._writer = writer
        self.try_again = ""
        """The value of the annotation ``trimtab.dev/try-again``. A new value ends the backoffs of all node groups."""
        self._state = AutoscalerState()
        self._external = dependencies.sources.unread
        self._priorities = PriorityConfig(
            dependencies.api, dependencies.namespace, configured=dependencies.priority_namespace
        )
        self._learned = LearnedNodeWriter(
            LeaderOnlyApi(dependencies.api, dependencies.leading), clock=dependencies.clock.monotonic
        )
        self._learning: asyncio.Task[Any] | None = None
        self._plan_backoff = PlanBackoff()
        self._recorded = -RECORDING_PERIOD
        self._groups = Groups()
        self._discovery = NodeGroupAutoDiscovery()
        self._lock = DisruptionLock(dependencies.disruption_lock, dependencies.trigger.wake)
        self._removals = Removals(
            api=dependencies.api,
            shared=dependencies.shared,
            lister=dependencies.lister,
            grouping=self._build_groups,
            providers=dependencies.providers,
            clock=dependencies.clock,
            leading=dependencies.leading,
            stale=dependencies.stale,
            evictor=dependencies.evictor,
            settings=RemovalSettings(mark_delay=dependencies.mark_delay),
            observer=WakingObserver(dependencies.reporter, dependencies.trigger),
        )
        self._scale_up = ScaleUpExecutor(
            dependencies.providers,
            dependencies.clock,
            wake=dependencies.trigger.wake,
            mark_delay=self._removals.mark_delay,
        )

    def resume(self, wire: Mapping[str, Any]) -> None:
        """Restore the state of an earlier process from the ClusterAutoscaler's status.

        Args:
            wire: the ``status`` field as returned by the API server.
        """
        self._writer.resume(wire)
        self._state = state_from_status(self._writer.status)

    async def reconcile(self, autoscaler: ClusterAutoscaler) -> bool:
        """Run one iteration.

        Returns:
            Whether a scale-up or a removal was started, so that the next iteration should start soon.
        """
        try:
            return await self._reconcile(autoscaler)
        finally:
            self._lock.release()

    async def reconcile_removals(self, spec: ClusterAutoscalerSpec | None) -> None:
        """Check the removals in progress without planning new actions.

        Args:
            spec: spec of the ClusterAutoscaler; ``None`` to cancel all removals and roll back their nodes.
        """
        self._lock.release()
        if spec is None:
            self._dependencies.shared_plans.unneeded = {}
        else:
            self._discovery = spec.node_group_auto_discovery
            self._removals.ignore_holds(held_too_long(self._state.held, spec, now=self._dependencies.clock.now()))
        async with self._dependencies.shared.borrow() as snapshot:
            found = await in_thread(partial(self._build_groups, snapshot))
            nodes = [node for node in snapshot.nodes.at if node is not None]
        await self._removals.reconcile(nodes, found, spec, now=self._dependencies.clock.now())

    async def clean_up(self) -> int:
        """Remove the autoscaler's taints, cordons and annotations from nodes and machines.

        Returns:
            The number of nodes and node groups on which some of them are left.
        """
        self._dependencies.shared_plans.unneeded = {}
        async with self._dependencies.shared.borrow() as snapshot:
            found = await in_thread(partial(self._build_groups, snapshot))
            nodes = [node for node in snapshot.nodes.at if node is not None]
        await self._removals.reconcile(nodes, found, None, now=self._dependencies.clock.now())
        self._removals.record({}, nodes)
        self._removals.take_outcomes()
        active = self._removals.active
        left = (
            node
            for node in nodes
            if node.name not in active and (removal_markers(node).any or has_unneeded_record(node))
        )
        return len(active) + self._removals.unmarking + sum(not is_being_deleted(node, found) for node in left)

    def report_failure(self, autoscaler: ClusterAutoscaler, started: float, error: str) -> None:
        """Report an iteration that ended with an error.

        Args:
            autoscaler: the ClusterAutoscaler.
            started: the time at which the iteration started, in seconds since the epoch.
            error: the error.
        """
        report = IterationReport(
            started=started,
            finished=self._dependencies.clock.now(),
            mode=autoscaler.spec.mode,
            generation=autoscaler.metadata.generation,
            plan=Plan(now=started),
            groups=self._groups,
            state=self._state,
            removals=self._removals.active,
            error=error,
            uid=autoscaler.metadata.uid,
        )
        self._dependencies.reporter.report(report, autoscaler.spec)

    def release_lock(self) -> None:
        """Release the disruption lock. Call this if no iteration can run."""
        self._lock.release()

    async def stop(self) -> None:
        """Wait for outstanding requests to providers, and write the state to the status for the next process."""
        self._dependencies.shared_plans.unneeded = {}
        await self._lock.close()
        outcomes, _ = await asyncio.gather(self._scale_up.finish(SHUTDOWN_TIMEOUT), self._removals.finish())
        self._record_scale_ups(outcomes, ClusterAutoscalerSpec())
        self._record_removals(self._removals.take_outcomes())
        if self._learning is not None:
            await end_tasks([self._learning])
        self._writer.amend(status_with_state(self._state, self._writer.status))
        await self._writer.stop()
        await self._dependencies.reporter.stop()

    # --- one iteration -------------------------------------------------------------------------------------------

    async def _reconcile(self, autoscaler: ClusterAutoscaler) -> bool:
        dependencies, spec = self._dependencies, autoscaler.spec
        started, began = dependencies.clock.now(), time.perf_counter()
        self._discovery = spec.node_group_auto_discovery

        # 1. Observe what the informers do not cover: external providers, and the priorities of the Priority expander.
        self._external = await dependencies.sources.observe(spec)
        priorities = await self._read_priorities() if await self._may_need_priorities(spec) else {}
        observed_at = time.perf_counter()

        # 2. Plan on the shared snapshot. Planning needs no disruption lock; starting removals (step 5) does.
        holds_lock = await self._lock.try_acquire()
        before, asked = self._state, clear_backoffs(self._state, self.try_again)
        iteration = IterationInput(
            spec=spec,
            status=self._writer.status,
            state=asked if spec.mode == ACT else self._state,
            now=started,
            machine_autoscalers=dependencies.machine_autoscalers(),
            external=self._external,
            priorities=priorities,
            record_nodes=self._may_record_nodes(spec),
            moves=dependencies.shared_plans.moves(now=started),
            removing=self._removals.running,
        )
        result = await dependencies.sources.advisor.plan_with_answers(
            lambda advice: self._plan(replace(iteration, advice=advice))
        )
        planned_at = time.perf_counter()

        # 3. Adopt the new state, so that a failure of a later step does not lose it.
        self._state, self._groups = result.state, result.groups
        if result.state.try_again != before.try_again:
            self._end_backoffs(before, now=started)

        # 4. Publish what other controllers and running removals depend on.
        dependencies.shared_plans.unneeded = result.state.unneeded if spec.mode == ACT else {}
        self._removals.ignore_holds(held_too_long(result.state.held, spec, now=started))

        # 5. Act. Scale-ups and removals continue in tasks after this iteration.
        started_removals = await self._act(result, spec, holds_lock=holds_lock)

        # 6. Collect the outcomes of scale-ups and removals that ended since the last iteration.
        outcomes = self._record_scale_ups(self._scale_up.take_results(), spec)
        removal_outcomes = self._removals.take_outcomes()
        self._record_removals(removal_outcomes)

        # 7. Report: events, metrics, ConfigMap, status and log are all built from one value.
        settings = dependencies.shared_plans.settings
        report = IterationReport(
            started=started,
            finished=dependencies.clock.now(),
            mode=spec.mode,
            generation=autoscaler.metadata.generation,
            plan=result.plan,
            groups=result.groups,
            state=self._state,
            readiness=result.readiness,
            node_uids={name: node.uid for name, node in result.nodes.items()},
            totals=result.totals,
            pending_pods=result.pending_pods,
            scale_up_outcomes=outcomes.scale_ups,
            removals=self._removals.active,
            removal_outcomes=removal_outcomes,
            size_corrections=outcomes.corrections,
            health=result.health,
            findings=result.findings.reported,
            cleaned_nodes=self._removals.take_cleaned(),
            problems=self._problems(spec),
            waiting_evictions=dependencies.evictor.waiting_status(
                AUTOSCALER, previous=self._writer.status.waiting_evictions
            ),
            conflicting=settings.of_autoscaler() if settings.any_policies else None,
            phases={
                "observe": observed_at - began,
                "plan": planned_at - observed_at,
                "act": time.perf_counter() - planned_at,
            },
            uid=autoscaler.metadata.uid,
        )
        dependencies.reporter.report(report, spec)
        previous = self._writer.status
        status = await in_thread(partial(build_status, report, previous))  # slow with many pods and groups
        if self._writer.status is previous:  # else the ClusterAutoscaler was replaced while the thread ran
            self._writer.put(status)
        log_iteration(report)
        scaled_up = any(each.scaled.done for each in outcomes.scale_ups)
        return bool(started_removals) or bool(removal_outcomes) or scaled_up

    def _end_backoffs(self, before: AutoscalerState, *, now: float) -> None:
        """End the removal backoffs, as the plan did with those of scale-ups, and log which groups were in backoff."""
        held = {id_ for id_, record in before.groups.items() if is_backing_off(record, now)}
        groups = sorted(held | set(self._removals.clear_backoffs(self._groups)))
        message = "Ended the backoff of %d node groups because annotation %s of ClusterAutoscaler %s was set to %r: %s"
        names = ", ".join(groups[:20]) or "none was in backoff"
        log.info(message, len(groups), TRY_AGAIN, CLUSTER_AUTOSCALER, self._state.try_again, names)

    async def _plan(self, iteration: IterationInput) -> IterationResult:
        dependencies = self._dependencies
        async with dependencies.shared.borrow() as snapshot:
            budget = self._plan_backoff.budget(dependencies.plan_deadline, dependencies.clock.monotonic)
            result = await in_thread(partial(plan_iteration, snapshot, replace(iteration, budget=budget)))
            self._plan_backoff.finish(budget, dependencies.clock.monotonic())
            return result

    async def _act(self, result: IterationResult, spec: ClusterAutoscalerSpec, *, holds_lock: bool) -> Sequence[str]:
        """Execute the plan as far as this is safe now.

        Actions that this iteration does not start are planned again by the next one.

        Returns:
            The names of the nodes whose removal was started.
        """
        dependencies = self._dependencies
        scaling = result.plan.scaling or ()
        started_removals: Sequence[str] = ()
        may_act = spec.mode == ACT and dependencies.leading() and dependencies.stale() is None
        # 1. Start removals, if the autoscaler holds the disruption lock; else queue for it.
        removals = [each for each in scaling if isinstance(each, RemoveNode)]
        if may_act and removals:
            if holds_lock:
                started_removals = self._removals.begin(removals, spec, result.groups)
            else:
                self._lock.acquire_later()
        self._lock.release()
        # 2. Start scale-ups. The record of a replacement must be in the status before its new nodes are requested.
        if may_act:
            self._writer.amend(replace(self._writer.status, replacements=result.replacements))
            self._scale_up.start([each for each in scaling if isinstance(each, ScaleUp)], result.groups)
            if not result.health.cluster:
                wanted = plan_corrections(result.findings, result.groups)
                self._scale_up.correct([each for each in wanted if self._may_correct(each)], result.groups)
        # 3. Check the removals in progress against the snapshot, and handle leftovers of earlier processes.
        await self._removals.reconcile(
            result.nodes.values(),
            result.groups,
            spec,
            now=dependencies.clock.now(),
            marking=self._scale_up.marking,
            halted=result.health.cluster,
        )
        # 4. Record on nodes since when they are unneeded. In Simulate mode no iteration would update the records, and
        #    a later iteration in Act mode would rely on outdated ones, so they are removed.
        if may_act:
            self._removals.record(result.state.unneeded, result.nodes.values())
        elif spec.mode != ACT:
            self._removals.record({}, [node for node in result.nodes.values() if UNNEEDED_SINCE in node.annotations])
        # 5. Record the description of nodes on their node groups.
        if may_act and result.recordings:
            writing = self._learned.write(result.recordings)
            self._learning = asyncio.create_task(writing, name="record node descriptions")
        # 6. Give fast providers time to respond, so that this iteration's report has their results.
        await self._scale_up.wait()
        return started_removals

    def _may_correct(self, correction: TargetCorrection) -> bool:
        group = self._groups.by_id[correction.group]
        if group.id in self._removals.changing:
            return False
        return not (correction.machines and self._removals.backoff_reason(group))

    def _may_record_nodes(self, spec: ClusterAutoscalerSpec) -> bool:
        """Return whether this iteration computes the node descriptions to write to node groups.

        This happens at most once per :data:`RECORDING_PERIOD`.
        """
        now = self._dependencies.clock.monotonic()
        idle = self._learning is None or self._learning.done()
        if spec.mode != ACT or not idle or now - self._recorded < RECORDING_PERIOD:
            return False
        self._recorded = now
        return True

    def _record_scale_ups(self, outcomes: ExecutorResults, spec: ClusterAutoscalerSpec) -> ExecutorResults:
        """Add the results of scale-ups and the outstanding requests to the state."""
        running, now = self._scale_up.running, self._dependencies.clock.now()
        self._state = record_results(self._state, outcomes, running, self._groups, spec, now=now)
        return outcomes

    def _record_removals(self, outcomes: Sequence[RemovalOutcome]) -> None:
        """Add the times of the last successful and the last failed removal to the state."""
        for each in outcomes:
            if each.done:
                self._state = replace(self._state, last_scale_down=max(each.finished, self._state.last_scale_down or 0))
            elif each.failed:
                latest = max(each.finished, self._state.last_scale_down_failure or 0)
                self._state = replace(self._state, last_scale_down_failure=latest)

    async def _read_priorities(self) -> Mapping[int, tuple[str, ...]]:
        namespaces = (each.metadata.namespace for each in self._dependencies.machine_autoscalers())
        return await self._priorities.read(namespaces)

    async def _may_need_priorities(self, spec: ClusterAutoscalerSpec) -> bool:
        if PRIORITY not in spec.expanders:
            self._priorities.problem = None
            return False
        async with self._dependencies.shared.borrow() as snapshot:
            return any(not pod.terminal for _, pod in snapshot.unbound())

    def _problems(self, spec: ClusterAutoscalerSpec) -> tuple[ObjectProblem, ...]:
        found = [] if self._priorities.problem is None or PRIORITY not in spec.expanders else [self._priorities.problem]
        advisor = self._dependencies.sources.advisor
        found += [] if advisor.problem is None or GRPC not in spec.expanders else [advisor.problem]
        for key, error in sorted(self._dependencies.invalid_machine_autoscalers().items()):
            namespace, _, name = key.partition("/")
            found.append(
                ObjectProblem("MachineAutoscaler", namespace, name, reasons.INVALID_MACHINE_AUTOSCALER, str(error))
            )
        return tuple(found)

    def _build_groups(self, snapshot: Snapshot) -> Groups:
        autoscalers, confirmed = self._dependencies.machine_autoscalers(), self._state.confirmed_namespaces
        return build_groups(snapshot, autoscalers, self._external, self._discovery, confirmed)
