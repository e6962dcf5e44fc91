"""The reconcile loop of one DeschedulerPolicy: wait until a cycle is due, plan, act, report.

Everything that a cycle depends on is persisted or can be read again. The status contains the start time of the last
cycle, so that a restart neither skips nor repeats a cycle. Planning uses the current caches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from trimtab.api import reasons
from trimtab.api.decode import decode_policy
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.descheduler_status import RUN_NOW, TRY_AGAIN, EvictionMemory, LastRun
from trimtab.api.schedule import next_opening, open_at
from trimtab.controller.kopf_handlers import StopFlag
from trimtab.controller.loop import ControllerLoop, NotReadyReason, end_tasks
from trimtab.controller.permissions import Requirement
from trimtab.controller.progress import PlanSchedule
from trimtab.descheduling.cycle import LONGEST_ACTING, Cycle
from trimtab.descheduling.cycle_schedule import RETRY_DELAY, CycleSchedule
from trimtab.descheduling.dependencies import DeschedulerDependencies
from trimtab.descheduling.permissions import required_permissions
from trimtab.descheduling.report.status import CycleResult, PolicyStatus
from trimtab.descheduling.runs.lifecycle import Run
from trimtab.descheduling.runs.manager import RunManager
from trimtab.descheduling.usage_reader import UsageReader
from trimtab.disruption.executor import STOPPING
from trimtab.disruption.outcome import Refusal
from trimtab.kube.api import ApiError, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.resources import DESCHEDULER_POLICIES
from trimtab.placement.plan_budget import PlanBackoff

log = logging.getLogger(__name__)

NOT_READY_PERIOD: Final = 0.5
"""Seconds between two checks of whether acting is safe."""

PROGRESS_PERIOD: Final = 5.0
"""Seconds between two updates of the progress and the pending evictions in the status while a cycle acts."""

SETTLING: Final = 180.0
"""Seconds that in-flight evictions have to finish after the end of the acting phase."""

MAX_VALUE: Final = 253
"""Characters of the annotation ``trimtab.dev/run-now`` that the status stores."""

LONGEST_SLEEP: Final = 30.0
"""Longest sleep, in seconds, before the wall clock is read again.

A sleep is measured with the monotonic clock, while cycles are scheduled with the wall clock, which can be set. The
sleep is shorter than :data:`~trimtab.descheduling.cycle_schedule.STARTING_DEADLINE`, so that no scheduled cycle is
missed because of it.
"""


class PolicyController(ControllerLoop[DeschedulerPolicy]):
    """Reconciles one DeschedulerPolicy until it is stopped.

    Args:
        name: the policy's name.
        deps: dependencies, shared by the controllers of all policies.
    """

    resource = DESCHEDULER_POLICIES

    def __init__(self, name: str, deps: DeschedulerDependencies) -> None:
        super().__init__(f"policy {name}", deps.clock)
        self.name = name
        self._deps = deps
        self._status = PolicyStatus(name, deps)
        self._runs = RunManager(name, api=deps.api, clock=deps.clock)
        self._usage = UsageReader(deps.api, deps.prometheus)
        self._plan_backoff = PlanBackoff()
        self._stop_acting = asyncio.Event()
        self._try_again = ""  # value of the annotation trimtab.dev/try-again, which resets setbacks
        self._run_now = ""  # value of the annotation trimtab.dev/run-now
        self._schedule = CycleSchedule()

    def observe(self, body: Mapping[str, Any]) -> None:
        """Process a policy event.

        If the spec has changed, the evictions of the old spec stop and the new spec is reconciled at once. A new value
        of trimtab.dev/run-now starts a cycle, after the one in progress.
        """
        annotations = body["metadata"].get("annotations") or {}
        self._try_again = str(annotations.get(TRY_AGAIN, ""))
        asked = str(annotations.get(RUN_NOW, ""))[:MAX_VALUE]
        if asked != self._run_now:
            self._run_now = asked
            self.wake()
        super().observe(body)

    def observe_run(self, body: Mapping[str, Any], *, gone: bool = False) -> None:
        """Process an event of one of the policy's DeschedulingRuns. An approval wakes the loop."""
        if gone:
            self._runs.forget(body["metadata"]["name"])
        elif self._runs.observe(body):
            self.wake()

    async def run(self, stopped: StopFlag) -> None:
        """Reconcile until stopped. Evictions that are in flight are finished before the method returns."""
        self._deps.policies.listen(self.name, self._peers_changed)
        await super().run(stopped)

    # --- the loop -----------------------------------------------------------------------------------------------------

    @property
    def _plan_schedule(self) -> PlanSchedule | None:
        if self.object is None:
            return None
        now = self._deps.clock.now()
        return PlanSchedule(DESCHEDULER_POLICIES, self.name, self.object.spec.next_due(last=now) - now)

    async def _reconcile(self, policy: DeschedulerPolicy) -> float | None:
        self._status.generation = self.generation
        # 1. List the existing policies and runs once, and end expired runs.
        if not await self._sync_policies_and_runs():
            return RETRY_DELAY
        # 2. If no cycle is due and no run is approved, sleep until a cycle is due, a run expires or the policy changes.
        due, now = await self._report_next_cycle(policy), self._deps.clock.now()
        if due is None or due > now:
            return self._seconds_to_sleep(due, now)
        # 3. Wait until the caches are fresh enough to act on. From here on a change of the policy stops the wait and
        #    the cycle. clear() also discards the signal of a change since this iteration began; the check after it
        #    detects that change.
        self._stop_acting.clear()
        if self.closing or self.object is not policy or not await self._wait_until_ready():
            return 0.0
        # 4. Execute the approved run, or plan, act and report. Only one policy at a time does this.
        await self._run_cycle(policy)
        return 0.0

    async def _invalid(self, problem: InputError) -> float | None:
        """Report why the spec is invalid. The policy's open runs still expire."""
        self._status.generation = self.generation
        if not await self._sync_policies_and_runs():
            return RETRY_DELAY
        await self._status.invalid(problem)
        return self._seconds_to_sleep(None, self._deps.clock.now())

    async def _failed(self, error: Exception) -> float:
        await self._status.failed(error, mode="" if self.object is None else self.object.spec.mode)
        return RETRY_DELAY

    async def _finish(self) -> None:
        self._deps.policies.forget(self.name, self.uid)
        self._deps.metrics.forget(self.name)

    # --- the policy ---------------------------------------------------------------------------------------------------

    def _decode(self, body: Mapping[str, Any]) -> DeschedulerPolicy:
        return decode_policy(body, source="")

    def _requirements(self, obj: DeschedulerPolicy) -> tuple[Requirement, ...]:
        return required_permissions(obj)

    def _spec_changed(self) -> None:
        self._deps.policies.update(self.name, self.uid, self.object)

    def _interrupt(self) -> None:
        self._stop_acting.set()
        self.wake()

    def _stop_refusal(self) -> Refusal:
        """Return why evictions of the cycle in progress have not started after it was interrupted."""
        if self.closing and not self.deleted:
            return STOPPING
        return Refusal(
            reasons.POLICY_CHANGED,
            "the policy was changed or deleted, or conflicts with another one; the eviction had not started",
        )

    def _resume(self, status: Mapping[str, Any]) -> None:
        """Restore the state that an earlier process wrote to the status.

        A process that was killed while it evicted pods has reported the start of its cycle but not its end. That cycle
        counts as completed, because otherwise each crash would allow another ``perCycle`` evictions.
        """
        last_start, acted = self._status.restore(status)
        if self._status.cycle_interrupted:
            message = (
                "DeschedulerPolicy %s: the previous process exited while a cycle was evicting pods; the cycle "
                "counts as completed"
            )
            log.warning(message, self.name)
        self._schedule.restore(last_start, min(acted, self._deps.clock.now()))

    def _peers_changed(self) -> None:
        """Stop evicting if a conflict with another policy has appeared, and wake the loop in either case."""
        if self._deps.policies.conflicts_of(self.name):
            self._stop_acting.set()
        self.wake()

    # --- the steps ----------------------------------------------------------------------------------------------------

    async def _sync_policies_and_runs(self) -> bool:
        """List policies and runs once, end expired runs, and return whether the lists are complete.

        The result is ``False`` if the API server refuses a list or does not answer.
        """
        try:
            await self._deps.policies.list_existing(self._deps.api)
            await self._runs.list_existing(self.uid)
        except (ApiError, Unreachable) as error:
            await self._status.not_ready(f"cannot list DeschedulerPolicies or this policy's DeschedulingRuns: {error}")
            return False
        await self._runs.tidy(generation=self.generation)
        self._deps.metrics.waiting_runs.labels(self.name).set(self._runs.waiting)
        return True

    def _seconds_to_sleep(self, due: float | None, now: float) -> float | None:
        """Return the seconds until the next cycle, expiry of a run or retry of a status update, whichever is first.

        ``None`` means to wait for events.
        """
        times = [time for time in (due, self._runs.next_expiry()) if time is not None]
        if not times:
            return LONGEST_SLEEP if self._status.out_of_sync or self._runs.out_of_sync else None
        return min(max(0.0, min(times) - now), LONGEST_SLEEP)

    async def _wait_until_ready(self) -> bool:
        """Wait until planning is safe, and return ``False`` if the policy changed or was deleted meanwhile."""
        clock, not_ready, reported = self._deps.clock, NotReadyReason(), ""
        while not self._stop_acting.is_set():
            reason = self._deps.stale()
            lasting = not_ready.lasting(reason, clock.monotonic())
            if reason is None:
                return True
            if lasting and lasting != reported:
                reported = lasting
                await self._status.not_ready(lasting)
            with self._component.waiting_for_other():  # the watches report their own health
                await clock.sleep(NOT_READY_PERIOD)
        return False

    async def _report_next_cycle(self, policy: DeschedulerPolicy) -> float | None:
        """Return the time at which the next cycle is due, or ``None``.

        ``None`` means that the policy must not act until it or another policy changes.
        """
        now, spec = self._deps.clock.now(), policy.spec
        if spec.suspend:
            await self._status.suspended()
            return None
        conflicts = self._deps.policies.conflicts_of(self.name)
        if conflicts:
            await self._status.conflict_found(conflicts)
            return None
        await self._status.conflict_resolved()
        await self._status.settings_conflict(self._deps.policies.settings_condition(self.name))
        if self._runs.approved() is not None:  # execute it before the next cycle, which would plan the same evictions
            due = self._schedule.run_due(spec, now=now)
        else:
            asked = self._run_now not in ("", self._status.run_now)
            due = self._schedule.cycle_due(spec, now=now, reported=self._status.cycle_reported, asked=asked)
        if due > now:
            closed = spec.mode != "Simulate" and not open_at(spec.windows, now)
            await self._status.waiting(
                due,
                opens=next_opening(spec.windows, after=now) if closed else None,
                scheduled=spec.schedule is not None,
                approvals=self._runs.waiting,
            )
        return due

    async def _run_cycle(self, policy: DeschedulerPolicy) -> None:
        """Run one cycle. If it fails, the failure is reported and the schedule determines the time of the retry."""
        deps = self._deps
        async with self._cycle_lock() as acquired:
            if not acquired or self._deps.policies.conflicts_of(self.name):
                return
            started = deps.clock.now()
            self._schedule.cycle_started()
            run = self._runs.approved()
            if run is None:
                self._status.cycle_started(run_now=self._run_now)
            try:
                result = await self._plan_and_act(policy, run, started)
            except Exception as error:
                log.exception("Cycle of DeschedulerPolicy %s failed", self.name)
                self._schedule.cycle_failed(policy.spec, started=started, now=deps.clock.now())
                await self._status.failed(error, mode=policy.spec.mode)
                return
        next_run = self._schedule.cycle_ended(policy.spec, result)
        await self._status.done(result, next_run=next_run)

    async def _plan_and_act(self, policy: DeschedulerPolicy, run: Run | None, started: float) -> CycleResult:
        """Run a planning cycle, or execute the approved run."""
        cycle = Cycle(
            policy,
            self._deps,
            runs=self._runs,
            stop=self._stop_acting,
            stop_refusal=self._stop_refusal,
            on_acting=self._acting_started,
            on_outcome=self._status.count_outcome,
            memory=self._status.memory_for(generation=policy.metadata.generation, try_again=self._try_again),
            usage=self._usage,
            plan_backoff=self._plan_backoff,
        )
        reporting = asyncio.create_task(self._report_progress(), name=f"progress of policy {self.name}")
        try:
            return await (cycle.run(started) if run is None else cycle.execute_run(run, started))
        finally:
            await end_tasks([reporting])

    async def _acting_started(self, message: str, memory: EvictionMemory, cycle: LastRun) -> None:
        """Report that the plan is complete and that evictions, which take minutes, begin."""
        self._component.plan_made()
        self._component.allow_silence(LONGEST_ACTING + SETTLING)
        await self._status.running(message, memory, cycle)

    async def _report_progress(self) -> None:
        """Update the numbers of evicted and pending pods in the status while a cycle runs, until cancelled."""
        while True:
            await self._deps.clock.sleep(PROGRESS_PERIOD)
            self._status.report_progress()

    @asynccontextmanager
    async def _cycle_lock(self) -> AsyncIterator[bool]:
        """Hold the lock that lets only one policy at a time plan and act.

        Two policies that plan at the same time could both use the same free capacity. The context yields ``False`` if
        this policy changed or was deleted before the lock was acquired, because another policy may hold it for minutes.
        """
        lock = self._deps.cycle_lock
        acquiring = asyncio.create_task(lock.acquire(), name=f"cycle lock of policy {self.name}")
        stopping = asyncio.create_task(self._stop_acting.wait(), name=f"stop of policy {self.name}")
        try:
            with self._component.waiting_for_other():  # the loop that holds the lock reports its own health
                await asyncio.wait({acquiring, stopping}, return_when=asyncio.FIRST_COMPLETED)
            yield acquiring.done() and not self._stop_acting.is_set()
        finally:
            stopping.cancel()
            if acquiring.done() and not acquiring.cancelled() and acquiring.exception() is None:
                lock.release()  # before the first await: a second cancellation would skip it
            else:
                acquiring.cancel()  # a cancelled acquire() never keeps the lock
            await asyncio.gather(stopping, acquiring, return_exceptions=True)
