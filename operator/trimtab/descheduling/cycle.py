"""One cycle of one policy: observe → plan → act, as three steps that share nothing but values."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.eviction_memory import Memory
from trimtab.api.plan import SURGE, Evict, Plan
from trimtab.api.windows import closes_at
from trimtab.cluster.live import in_thread
from trimtab.cluster.rollouts import Rollouts, read_rollouts
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage import Usage, matched
from trimtab.descheduling.burden import measured_by
from trimtab.descheduling.measuring import UseReader
from trimtab.descheduling.memory.cycle_memory import CycleMemory
from trimtab.descheduling.memory.routine import routine
from trimtab.descheduling.planner import plan as make_plan
from trimtab.descheduling.recheck import still_holds
from trimtab.descheduling.report import CycleResult
from trimtab.descheduling.runs.approval import judge_again
from trimtab.descheduling.runs.journal import Journal
from trimtab.descheduling.runs.keeper import RunKeeper
from trimtab.descheduling.runs.lifecycle import Run
from trimtab.descheduling.runs.record import evictions, run_plan
from trimtab.descheduling.services import Services
from trimtab.descheduling.telling import log_plan, reference, tell_of_giving_up, tell_of_plan
from trimtab.disruption.announce import announce
from trimtab.disruption.execution import LATE
from trimtab.disruption.outcome import Outcome
from trimtab.disruption.refusal import Refusal

log = logging.getLogger(__name__)

LONGEST_ACTING: Final = 300.0
"""Seconds that a cycle may act. A plan ages: what is left after that is planned anew, on the picture as it is then."""

SHORTEST_ACTING: Final = 30.0
"""Seconds that a cycle may act at least, however short the interval: a replacement needs some to run."""


class Cycle:
    """One run of a policy.

    Args:
        policy: as it was written when the cycle began.
        services: what it needs.
        runs: writes what the cycle planned, and what became of it.
        halt: set to finish what is in flight and start nothing more.
        running: told in words what is going on, and what is watched from now on, before acting begins.
        memory: what the policy remembers of its evictions.
        usage: reads real use, for policies that judge by it.
    """

    def __init__(
        self,
        policy: DeschedulerPolicy,
        services: Services,
        *,
        runs: RunKeeper,
        halt: asyncio.Event,
        running: Callable[[str, Memory], Awaitable[None]],
        memory: Memory,
        usage: UseReader,
    ) -> None:
        self._policy = policy
        self._services = services
        self._runs = runs
        self._halt = halt
        self._running = running
        self._usage = usage
        self._use: Usage | None = None
        self._rollouts: Rollouts | None = None
        self._memory = CycleMemory(memory, policy.spec.cooldown, routine=routine(policy.spec))
        services.metrics.acts_as(policy.name, policy.spec.mode)

    async def run(self, started: float) -> CycleResult:
        """Plan on the picture as it is now and, in mode Act, carry the plan out.

        Args:
            started: seconds since the epoch; the plan's ``now``.

        Raises:
            ApiError, Unreachable: in mode Approve, the run could not be written.
        """
        services, spec = self._services, self._policy.spec
        made = await self._plan(started)
        plan = made.plan
        services.metrics.planned_by(self._policy.name, spec.mode, plan)
        log_plan(self._policy, plan)
        run = await self._runs.record(self._policy, run_plan(self._policy, plan, nodes=made.nodes, pods=made.pods))
        outcomes: list[Outcome] = []
        if spec.mode == "Act" and plan.actions:
            await self._begin(f"evicting {len(plan.actions)} pods", plan.actions, started)
            async with Journal(self._runs, run, passing=True) as journal:
                outcomes = await self._act(plan.actions, self._until_next(started), journal)
            if run is not None:
                await self._runs.complete(self._runs.get(run))
        elif plan.actions:
            tell_of_plan(self._policy, plan, run, recorder=services.recorder)
        return self._result(made, plan, outcomes, started, run=run)

    async def carry_out(self, run: Run, started: float) -> CycleResult:
        """Act on an approved run, or go on with one: what still holds of it is done, and what does not is told.

        Args:
            run: approved, and not expired.
            started: seconds since the epoch.

        Raises:
            ApiError, Unreachable: that it begins could not be noted; nothing was done.
        """
        run = await self._runs.begin(run)
        left = tuple(action for action in evictions(run.plan) if action.uid not in run.done)
        made = await self._plan(started, wanted=left)
        judged = judge_again(left, made.plan, present=made.present)
        log.info("run %s: %d actions are carried out, %d no longer hold", run.name, len(judged.go), len(judged.dropped))
        acted: list[Outcome] = []
        async with Journal(self._runs, run, passing=False) as journal:
            for outcome in judged.dropped:
                announce(outcome, policy=reference(self._policy), recorder=self._services.recorder)
                self._services.metrics.ended(outcome)
                journal.note(outcome)
            if judged.go:
                await self._begin(f"evicting {len(judged.go)} pods of run {run.name}", judged.go, started)
                acted = await self._act(judged.go, LONGEST_ACTING, journal)
        run = self._runs.get(run)
        if run.done >= {action.uid for action in run.plan.actions}:
            await self._runs.complete(run)
        plan = Plan(now=started, actions=left, kept=made.plan.kept)
        return self._result(made, plan, [*judged.dropped, *acted], started, run=run, approved=True)

    async def _plan(self, started: float, *, wanted: Sequence[Evict] = ()) -> _Made:
        """Plan on the picture as it is now, and see which of the wanted pods are still there."""
        services = self._services
        wanted_use = measured_by(self._policy)
        if wanted_use is not None:
            self._measured(await self._usage.read(wanted_use, started))
        if self._policy.spec.single_replica == SURGE:
            self._rollouts = await read_rollouts(services.api)
        async with services.live.borrow() as snapshot:
            nodes, pods = len(snapshot.nodes), len(snapshot.pods)
            began = time.perf_counter()
            plan = await in_thread(lambda: self._plan_on(snapshot, started))
            services.metrics.plan_seconds.labels(self._policy.name).observe(time.perf_counter() - began)
            found = (snapshot.pods.get(action.key) for action in wanted)
            present = frozenset(pod.uid for pod in found if pod is not None)
        return _Made(plan=plan, nodes=nodes, pods=pods, present=present)

    def _plan_on(self, snapshot: Snapshot, now: float) -> Plan:
        """See what became of earlier evictions, plan with that, and see what the plan thinks of where they ended."""
        memory = self._memory.look(snapshot, now=now)
        if self._use is not None:
            self._use = matched(self._use, snapshot.nodes.slot_of)
        plan = self._plan_with(memory, snapshot, now)
        self._memory.planned(plan, snapshot, now=now)
        return plan

    def _plan_with(self, memory: Memory, snapshot: Snapshot, now: float, *, only: str = "") -> Plan:
        name = self._policy.name
        usages = self._services.peers.usages()
        if self._use is not None:
            usages[name] = self._use
        return make_plan(
            snapshot,
            [self._policy],
            now=now,
            memories={name: memory},
            usages=usages,
            rollouts=self._rollouts,
            peers=self._services.peers.beside(name),
            only=only,
        )

    async def _begin(self, message: str, actions: Sequence[Evict], started: float) -> None:
        """Say what is about to be done, before it is: a process that dies in the middle has then lost nothing."""
        async with self._services.live.borrow() as snapshot:
            memory = self._memory.begin(actions, snapshot, now=started)
        await self._running(message, memory)

    def _result(
        self,
        made: _Made,
        plan: Plan,
        outcomes: list[Outcome],
        started: float,
        *,
        run: Run | None,
        approved: bool = False,
    ) -> CycleResult:
        tell_of_giving_up(self._policy, self._memory.gave_up, recorder=self._services.recorder)
        return CycleResult(
            mode=self._policy.spec.mode,
            plan=plan,
            outcomes=outcomes,
            started=started,
            finished=self._services.clock.now(),
            nodes=made.nodes,
            pods=made.pods,
            run="" if run is None else run.name,
            approved=approved,
            memory=self._memory.memory,
            unmeasured="" if self._use is None else self._use.problem,
        )

    def _until_next(self, started: float) -> float:
        """Seconds that a cycle in mode Act may act: the next one plans anew."""
        spare = self._policy.spec.next_due(last=started) - started
        return min(LONGEST_ACTING, max(SHORTEST_ACTING, spare))

    async def _act(self, actions: Sequence[Evict], seconds: float, journal: Journal) -> list[Outcome]:
        services, policy = self._services, self._policy

        def observe(outcome: Outcome) -> None:
            self._memory.ended(outcome)
            journal.note(outcome)

        now = services.clock.now()
        closes = closes_at(policy.spec.windows, now, until=now + seconds)
        late = LATE
        if closes < now + seconds:
            late = Refusal(reasons.WINDOW_CLOSED, "the policy's window closed before the pod's turn came")
        async with self._usage.reading_on(measured_by(policy), self._measured, clock=services.clock):
            return await services.executor.execute(
                actions,
                policy=reference(policy),
                per_minute=policy.spec.limits.per_minute,
                grace_period=policy.spec.grace_period_seconds,
                deadline=services.clock.monotonic() + (closes - now),
                recheck=self._recheck,
                stop=self._halt,
                blind=services.stale,
                observe=observe,
                late=late,
            )

    def _measured(self, usage: Usage) -> None:
        """Go by a new measurement from now on, and let others' cycles know it."""
        self._use = usage
        wanted = measured_by(self._policy)
        if wanted is not None:
            self._services.peers.measured(self._policy.name, wanted, usage)

    def _recheck(self, action: Evict) -> Refusal | None:
        """Whether the move still holds on the picture as it is now."""
        if not self._services.leading():
            return Refusal(reasons.LEASE_LOST, "the lease may have run out")
        return self._services.live.examine(lambda snapshot: self._recheck_on(snapshot, action))

    def _recheck_on(self, snapshot: Snapshot, action: Evict) -> Refusal | None:
        """Judge the move again, knowing where the pods came to that went before it in this cycle."""
        now = self._now()
        refusal = self._memory.useless(
            action, snapshot, now=now, judge=lambda memory: self._plan_with(memory, snapshot, now, only=action.strategy)
        )
        refusal = refusal or still_holds(snapshot, self._policy, action, now, usage=self._use, rollouts=self._rollouts)
        if refusal is None:
            self._memory.sent(action, snapshot)
        return refusal

    def _now(self) -> float:
        return self._services.clock.now()


class _Made(Struct, frozen=True):
    """A plan, what its picture held, and which of the pods that were asked for are there."""

    plan: Plan
    nodes: int
    pods: int
    present: frozenset[str]
