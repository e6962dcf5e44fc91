"""Runs one cycle of one policy: plan, record the plan, execute it, report."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.descheduler_status import EvictionMemory, LastRun
from trimtab.api.descheduling_run import RunPlan
from trimtab.api.plan import SURGE, Evict, Plan
from trimtab.api.scalars import to_time
from trimtab.api.schedule import closes_at
from trimtab.cluster.shared_snapshot import free, in_thread
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage.measurement import Usage, check_node_names
from trimtab.cluster.workloads.rollouts import Rollouts, read_rollouts
from trimtab.descheduling.dependencies import DeschedulerDependencies
from trimtab.descheduling.memory.assess import repeating_strategies
from trimtab.descheduling.memory.cycle_memory import CycleMemory
from trimtab.descheduling.planning.missing_namespaces import MissingNamespace, missing_namespaces
from trimtab.descheduling.planning.node_usage import metrics_utilization_of
from trimtab.descheduling.planning.planner import plan_evictions
from trimtab.descheduling.planning.recheck import recheck_move
from trimtab.descheduling.report.status import CycleResult, announce_giving_up, announce_plan, log_plan, reference
from trimtab.descheduling.runs.lifecycle import Run
from trimtab.descheduling.runs.manager import OutcomeWriter, RunManager
from trimtab.descheduling.runs.record import recheck_approved, run_plan, to_evictions
from trimtab.descheduling.usage_reader import UsageReader
from trimtab.disruption.executor import CYCLE_DEADLINE_EXCEEDED
from trimtab.disruption.executor.events import report_outcome
from trimtab.disruption.outcome import Outcome, Refusal
from trimtab.placement.plan_budget import PlanBackoff, PlanBudget, default_deadline

log = logging.getLogger(__name__)

LONGEST_ACTING: Final = 300.0
"""Longest acting phase of a cycle, in seconds.

After that time the remaining evictions are planned again, because the plan may be stale.
"""

SHORTEST_ACTING: Final = 30.0
"""Shortest acting phase of a cycle, in seconds.

It applies even if the interval is shorter, because a replacement pod needs time to start.
"""


class Cycle:
    """Runs one cycle of a policy.

    Args:
        policy: the policy as it was when the cycle started.
        deps: dependencies, shared by all policies.
        runs: records the plan and its outcomes in DeschedulingRuns.
        stop: event that stops evicting when it is set. Evictions in flight are finished.
        stop_refusal: returns why it was set.
        on_acting: called before the first eviction with a progress message, the memory to persist, and the summary of
            the cycle so far.
        on_outcome: called with each outcome of a planned eviction.
        memory: the policy's memory of earlier evictions (:mod:`trimtab.descheduling.memory`).
        usage: reads measured utilization, for policies that use it.
        plan_backoff: the namespaces whose pods did not fit into the time of the policy's earlier plans.
    """

    def __init__(
        self,
        policy: DeschedulerPolicy,
        deps: DeschedulerDependencies,
        *,
        runs: RunManager,
        stop: asyncio.Event,
        stop_refusal: Callable[[], Refusal],
        on_acting: Callable[[str, EvictionMemory, LastRun], Awaitable[None]],
        on_outcome: Callable[[Outcome], None],
        memory: EvictionMemory,
        usage: UsageReader,
        plan_backoff: PlanBackoff,
    ) -> None:
        self._policy = policy
        self._deps = deps
        self._runs = runs
        self._stop = stop
        self._stop_refusal = stop_refusal
        self._on_acting = on_acting
        self._on_outcome = on_outcome
        self._usage = usage
        self._plan_backoff = plan_backoff
        self._usage_now: Usage | None = None
        self._rollouts: Rollouts | None = None
        self._memory = CycleMemory(
            memory,
            policy.spec.cooldown,
            routine=repeating_strategies(policy.spec),
            max_hold=policy.spec.protections.max_hold_seconds,
        )
        deps.metrics.acts_as(policy.name, policy.spec.mode)

    async def run(self, started: float) -> CycleResult:
        """Plan for the current cluster state and, in Act mode, execute the plan.

        Args:
            started: start of the cycle in seconds since the epoch, which is also the plan's ``now``.

        Raises:
            ApiError, Unreachable: in Approve mode, the run could not be written.
        """
        deps, spec = self._deps, self._policy.spec
        # 1. Plan for the current state of the cluster.
        planned = await self._plan(started)
        plan = planned.plan
        recorded = await in_thread(partial(self._report_plan, planned))
        # 2. Record the plan in a DeschedulingRun, unless the newest run already records it.
        run = await self._runs.record(self._policy, recorded)
        outcomes: list[Outcome] = []
        # 3. In Act mode, evict the pods and write the outcomes to the run; in other modes, only announce the plan.
        if spec.mode == "Act" and plan.actions:
            await self._begin(
                f"evicting {len(plan.actions)} pods", plan.actions, self._so_far(planned, plan, started, run)
            )
            async with OutcomeWriter(self._runs, run, include_not_attempted=True) as writer:
                outcomes = await self._act(plan.actions, self._seconds_to_act(started), writer)
            if run is not None:
                await self._runs.complete(self._runs.get(run))
        elif plan.actions:
            announce_plan(self._policy, plan, run, recorder=deps.recorder)
        # 4. Return what the status, the metrics and the next cycle need to know.
        result = self._result(planned, plan, outcomes, started, run=run)
        parts = [*plan.actions, *plan.kept]
        del planned, plan, recorded
        await free(parts)
        return result

    async def execute_run(self, run: Run, started: float) -> CycleResult:
        """Execute an approved run, or continue its execution.

        Actions that are no longer valid are skipped and reported.

        Args:
            run: an approved run that has not expired.
            started: start of the cycle in seconds since the epoch.

        Raises:
            ApiError, Unreachable: the start could not be recorded, so no pod was evicted.
        """
        # 1. Write the start of the execution to the run's status. If that fails, no pod is evicted.
        run = await self._runs.begin(run)
        remaining = tuple(action for action in to_evictions(run.plan) if action.uid not in run.finished_uids)
        # 2. Plan again, and drop approved evictions that the new plan does not contain.
        planned = await self._plan(started, approved=remaining)
        rechecked = recheck_approved(remaining, planned.plan, present=planned.present)
        log.info(
            "DeschedulingRun %s: executing %d evictions and skipping %d evictions that are no longer valid",
            run.name,
            len(rechecked.execute),
            len(rechecked.dropped),
        )
        # 3. Report the dropped evictions, and execute the others.
        plan = Plan(now=started, actions=remaining, kept=planned.plan.kept)
        executed: list[Outcome] = []
        async with OutcomeWriter(self._runs, run, include_not_attempted=False) as writer:
            for outcome in rechecked.dropped:
                report_outcome(outcome, policy=reference(self._policy), recorder=self._deps.recorder)
                self._deps.metrics.ended(outcome)
                writer.note(outcome)
            if rechecked.execute:
                await self._begin(
                    f"evicting {len(rechecked.execute)} pods of run {run.name}",
                    rechecked.execute,
                    self._so_far(planned, plan, started, run),
                )
                executed = await self._act(rechecked.execute, LONGEST_ACTING, writer)
        # 4. Complete the run once every action has an outcome; otherwise a later cycle continues it.
        run = self._runs.get(run)
        if run.finished_uids >= {action.uid for action in run.plan.actions}:
            await self._runs.complete(run)
        return self._result(planned, plan, [*rechecked.dropped, *executed], started, run=run, approved=True)

    async def _plan(self, started: float, *, approved: Sequence[Evict] = ()) -> _CyclePlan:
        """Plan for the current cluster state, and determine which of the approved pods still exist."""
        deps = self._deps
        source = metrics_utilization_of(self._policy)
        if source is not None:
            self._use_measurement(await self._usage.read(source, started))
        if self._policy.spec.single_replica == SURGE:
            self._rollouts = await read_rollouts(deps.api)
        async with deps.shared.borrow() as snapshot:
            nodes, pods = len(snapshot.nodes), len(snapshot.pods)
            began = time.perf_counter()
            plan = await in_thread(lambda: self._plan_on(snapshot, started))
            deps.metrics.plan_seconds.labels(self._policy.name).observe(time.perf_counter() - began)
            found = (snapshot.pods.get(action.key) for action in approved)
            present = frozenset(pod.uid for pod in found if pod is not None)
            unknown = missing_namespaces(self._policy.spec, snapshot)
        return _CyclePlan(plan=plan, nodes=nodes, pods=pods, present=present, missing_namespaces=unknown)

    def _report_plan(self, planned: _CyclePlan) -> RunPlan:
        """Report the plan in the metrics and the log, and return its record. It may have 100,000 entries."""
        policy, plan = self._policy, planned.plan
        self._deps.metrics.planned_by(policy.name, policy.spec.mode, plan)
        log_plan(policy, plan)
        return run_plan(policy, plan, nodes=planned.nodes, pods=planned.pods)

    def _plan_on(self, snapshot: Snapshot, now: float) -> Plan:
        """Assess earlier evictions, then plan with the result.

        If the plan would evict the replacement of an earlier eviction again, that eviction counts as a failure.
        """
        memory = self._memory.assess(snapshot, now=now)
        if self._usage_now is not None:
            self._usage_now = check_node_names(self._usage_now, snapshot.nodes.slot_of)
        budget = self._budget()
        plan = self._plan_with(memory, snapshot, now, budget)
        self._plan_backoff.finish(budget, self._deps.clock.monotonic())
        self._memory.planned(plan, snapshot, now=now)
        return plan

    def _plan_with(
        self, memory: EvictionMemory, snapshot: Snapshot, now: float, budget: PlanBudget, *, only: str = ""
    ) -> Plan:
        name = self._policy.name
        usages = self._deps.policies.usages()
        if self._usage_now is not None:
            usages[name] = self._usage_now
        return plan_evictions(
            snapshot,
            [self._policy],
            now=now,
            memories={name: memory},
            usages=usages,
            rollouts=self._rollouts,
            peers=self._deps.policies.active_peers(name),
            only=only,
            unneeded=self._deps.shared_plans.unneeded,
            budget=budget,
        )

    def _budget(self) -> PlanBudget:
        deps, spec = self._deps, self._policy.spec
        seconds = deps.plan_deadline
        if seconds is None:
            interval = spec.next_due(last=deps.clock.now()) - deps.clock.now()
            seconds = default_deadline(interval, at_most=deps.longest_plan)
        return self._plan_backoff.budget(seconds, deps.clock.monotonic)

    async def _begin(self, message: str, actions: Sequence[Evict], cycle: LastRun) -> None:
        """Persist the evictions that are about to be requested.

        They are then observed even if the process is killed while it evicts pods.
        """
        async with self._deps.shared.borrow(short=True) as snapshot:
            memory = self._memory.begin(actions, snapshot, now=cycle.time.timestamp())
        await self._on_acting(message, memory, cycle)

    def _so_far(self, planned: _CyclePlan, plan: Plan, started: float, run: Run | None) -> LastRun:
        """Return the summary of the cycle before its first eviction."""
        return LastRun(
            time=to_time(started),
            mode=self._policy.spec.mode,
            run="" if run is None else run.name,
            planned=len(plan.actions),
            kept=len(plan.kept),
            nodes=planned.nodes,
            pods=planned.pods,
        )

    def _result(
        self,
        planned: _CyclePlan,
        plan: Plan,
        outcomes: list[Outcome],
        started: float,
        *,
        run: Run | None,
        approved: bool = False,
    ) -> CycleResult:
        announce_giving_up(self._policy, self._memory.gave_up, recorder=self._deps.recorder)
        return CycleResult(
            mode=self._policy.spec.mode,
            plan=plan,
            outcomes=outcomes,
            started=started,
            finished=self._deps.clock.now(),
            nodes=planned.nodes,
            pods=planned.pods,
            run="" if run is None else run.name,
            approved=approved,
            memory=self._memory.memory,
            usage_problem="" if self._usage_now is None else self._usage_now.problem,
            missing_namespaces=planned.missing_namespaces,
        )

    def _seconds_to_act(self, started: float) -> float:
        """Return the seconds for which a cycle in Act mode may evict pods.

        It may do so until the next cycle plans again, within bounds.
        """
        seconds = self._policy.spec.next_due(last=started) - started
        return min(LONGEST_ACTING, max(SHORTEST_ACTING, seconds))

    async def _act(self, actions: Sequence[Evict], seconds: float, writer: OutcomeWriter) -> list[Outcome]:
        deps, policy = self._deps, self._policy

        def observe(outcome: Outcome) -> None:
            self._memory.ended(outcome)
            deps.shared_plans.settle(outcome)
            self._on_outcome(outcome)
            writer.note(outcome)

        now = deps.clock.now()
        closes = closes_at(policy.spec.windows, now, until=now + seconds)
        deadline_refusal = CYCLE_DEADLINE_EXCEEDED
        if closes < now + seconds:
            deadline_refusal = Refusal(reasons.WINDOW_CLOSED, "the policy's window closed before the eviction was sent")
        refreshing = self._usage.refreshing(metrics_utilization_of(policy), self._use_measurement, clock=deps.clock)
        with deps.shared_plans.carrying_out(actions, now=now):
            async with refreshing:
                return await deps.executor.execute(
                    actions,
                    policy=reference(policy),
                    per_minute=policy.spec.limits.per_minute,
                    grace_period=policy.spec.grace_period_seconds,
                    deadline=deps.clock.monotonic() + (closes - now),
                    recheck=self._recheck,
                    stop=self._stop,
                    not_ready_reason=deps.stale,
                    observe=observe,
                    deadline_refusal=deadline_refusal,
                    stop_refusal=self._stop_refusal,
                )

    def _use_measurement(self, usage: Usage) -> None:
        """Use a new measurement for the rest of the cycle, and share it with the other policies' cycles."""
        self._usage_now = usage
        wanted = metrics_utilization_of(self._policy)
        if wanted is not None:
            self._deps.policies.record_usage(self._policy.name, wanted, usage)

    async def _recheck(self, action: Evict) -> Refusal | None:
        """Wait until no planner uses the snapshot, and check whether the eviction is still valid on it."""
        async with self._deps.shared.borrow(short=True, namespace=action.namespace) as snapshot:
            if not self._deps.leading():
                return Refusal(reasons.LEASE_LOST, "the leader lease may have expired")
            with self._memory.lent_to_thread():
                return await in_thread(lambda: self._recheck_on(snapshot, action))

    def _recheck_on(self, snapshot: Snapshot, action: Evict) -> Refusal | None:
        """Check the eviction again, considering the nodes to which this cycle's earlier replacements were scheduled."""
        now = self._now()
        refusal = self._memory.recheck(
            action,
            snapshot,
            now=now,
            judge=lambda memory: self._plan_with(memory, snapshot, now, self._budget(), only=action.strategy),
        )
        refusal = refusal or recheck_move(
            snapshot,
            self._policy,
            action,
            now,
            usage=self._usage_now,
            rollouts=self._rollouts,
            memory=self._memory.memory,
        )
        if refusal is None:
            self._memory.sent(action, snapshot)
        return refusal

    def _now(self) -> float:
        return self._deps.clock.now()


class _CyclePlan(Struct, frozen=True):
    """A plan, the size of the cluster it was planned for, and the UIDs of the approved pods that still exist.

    It also has the namespaces that the policy names and that do not exist.
    """

    plan: Plan
    nodes: int
    pods: int
    present: frozenset[str]
    missing_namespaces: tuple[MissingNamespace, ...] = ()
