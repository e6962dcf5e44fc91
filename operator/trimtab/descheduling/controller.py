"""The loop of one policy: wait until it is due, observe, plan, act, report.

Everything a cycle starts from is written down: the last run's time stands in the status, so a restart neither forgets
nor repeats a cycle; the plan starts from what the watches say now. What is only in memory may be lost at any point.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from trimtab.api.decode import decode_policy
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.eviction_memory import TRY_AGAIN
from trimtab.api.windows import next_opening, open_at
from trimtab.descheduling.cycle import Cycle
from trimtab.descheduling.measuring import UseReader
from trimtab.descheduling.report import CycleResult
from trimtab.descheduling.runs.keeper import RunKeeper
from trimtab.descheduling.runs.lifecycle import Run
from trimtab.descheduling.services import Services
from trimtab.descheduling.status import PolicyStatus
from trimtab.descheduling.timetable import AFTER_FAILURE, Timetable
from trimtab.kube.api import ApiError, Unreachable
from trimtab.kube.daemons import Stopped
from trimtab.kube.errors import InputError

log = logging.getLogger(__name__)

BLIND: Final = 5.0
"""Seconds without a picture that can be planned on before the status says so: a watch that is renewed takes less."""

LOOK_AGAIN: Final = 0.5

LONGEST_SLEEP: Final = 30.0
"""Seconds until the wall clock is looked at again: sleeping follows another clock, and the two part when somebody sets
the time. Less than :data:`~trimtab.descheduling.timetable.LATEST_START`, so that a schedule is not missed for it."""


class PolicyController:
    """Runs one DeschedulerPolicy until it is stopped.

    Args:
        name: the policy's name.
        services: what a cycle needs, shared by all policies.
    """

    def __init__(self, name: str, services: Services) -> None:
        self.name = name
        self._services = services
        self._status = PolicyStatus(name, services)
        self._runs = RunKeeper(name, api=services.api, clock=services.clock)
        self._usage = UseReader(services.api, services.prometheus)
        self._changed = asyncio.Event()
        self._halt = asyncio.Event()
        self._policy: DeschedulerPolicy | None = None
        self._problem: InputError | None = None
        self._generation = 0  # as last written
        self._uid = ""
        self._asked = ""  # to try again what was given up
        self._times = Timetable()
        self._ended = False

    def observe(self, body: Mapping[str, Any]) -> None:
        """Take the policy in as it is written now; a new generation ends the acting of the old one and runs at once."""
        metadata = body["metadata"]
        generation = int(metadata.get("generation", 0))
        self._asked = str((metadata.get("annotations") or {}).get(TRY_AGAIN, ""))
        if not self._generation:
            self._take_up(body.get("status") or {})
        if generation == self._generation and metadata.get("uid") == self._uid:
            return
        self._generation, self._uid = generation, str(metadata.get("uid", ""))
        try:
            self._policy, self._problem = decode_policy(body, source=""), None
        except InputError as problem:
            self._policy, self._problem = None, problem
        self._services.peers.put(self.name, self._uid, self._policy)
        self._halt.set()
        self._changed.set()

    def observe_run(self, body: Mapping[str, Any], *, gone: bool = False) -> None:
        """Take in one of the policy's runs as it is written now; an approval is acted on at once."""
        if gone:
            self._runs.forget(body["metadata"]["name"])
        elif self._runs.observe(body):
            self._changed.set()

    def _take_up(self, wire: Mapping[str, Any]) -> None:
        """Go on where an earlier process ended.

        One that was killed while it acted has not reported its cycle, only that it began. That cycle counts all the
        same: else each crash would be good for another ``perCycle`` evictions.
        """
        now = self._services.clock.now()
        last_start, acted = self._status.take_up(wire)
        if self._status.cut_short:
            log.warning("policy %s: an earlier process ended while its cycle acted", self.name)
            acted = now
        self._times.take_up(last_start, min(acted, now))

    def end(self) -> None:
        """End :meth:`run`: the policy is gone, whoever took our finalizer away."""
        self._ended = True
        self._halt.set()
        self._changed.set()

    async def run(self, stopped: Stopped) -> None:
        """Run cycles until stopped; what is in flight then is finished first."""
        watcher = asyncio.create_task(self._watch(stopped), name=f"stop of policy {self.name}")
        self._services.peers.listen(self.name, self._peers_changed)
        try:
            while self._goes_on(stopped):
                self._changed.clear()
                self._status.generation = self._generation
                if not await self._know_runs():
                    await self._sleep(AFTER_FAILURE)
                    continue
                due = await self._due()
                now = self._services.clock.now()
                if due is None or due > now:
                    await self._sleep(self._pause(due, now))
                    continue
                self._halt.clear()
                if self._goes_on(stopped) and await self._can_see():
                    await self._cycle_safely()
        finally:
            watcher.cancel()
            self._services.peers.forget(self.name, self._uid)
            self._services.metrics.forget(self.name)

    def _peers_changed(self) -> None:
        """Another policy stands in the way now, which ends the acting at once, or no longer does."""
        if self._services.peers.against(self.name):
            self._halt.set()
        self._changed.set()

    def _goes_on(self, stopped: Stopped) -> bool:
        return not stopped and not self._ended

    async def _watch(self, stopped: Stopped) -> None:
        while not stopped:
            await stopped.wait()
        self._halt.set()
        self._changed.set()

    async def _know_runs(self) -> bool:
        """Know which runs there are, and end those that are outdated; ``False`` where nobody lets us."""
        try:
            await self._services.peers.take_up(self._services.api)
            await self._runs.take_up(self._uid)
        except (ApiError, Unreachable) as error:
            log.warning("policy %s waits: policies and runs cannot be listed: %s", self.name, error)
            await self._status.blind(f"the policies there are, or this one's runs, cannot be listed: {error}")
            return False
        await self._runs.tidy(generation=self._generation)
        self._services.metrics.waiting_runs.labels(self.name).set(self._runs.waiting)
        return True

    def _pause(self, due: float | None, now: float) -> float | None:
        """How long to sleep: until the next cycle is due, or a run expires."""
        times = [time for time in (due, self._runs.next_ending()) if time is not None]
        return min(max(0.0, min(times) - now), LONGEST_SLEEP) if times else None

    async def _sleep(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _can_see(self) -> bool:
        """Wait until the picture can be planned on; ``False`` where the policy changed or ended before."""
        clock, since = self._services.clock, self._services.clock.monotonic()
        said = ""
        while not self._halt.is_set():
            wrong = self._services.stale()
            if wrong is None:
                return True
            if wrong != said and clock.monotonic() - since >= BLIND:
                said = wrong
                await self._status.blind(wrong)
            await clock.sleep(LOOK_AGAIN)
        return False

    async def _due(self) -> float | None:
        """When the next cycle is to start; ``None`` to wait for the policy to change."""
        now = self._services.clock.now()
        if self._policy is None:
            if self._problem is not None:
                await self._status.invalid(self._problem)
            return None
        spec = self._policy.spec
        if spec.suspend:
            await self._status.suspended()
            return None
        opposed = self._services.peers.against(self.name)
        if opposed:
            await self._status.opposed(opposed)
            return None
        await self._status.unopposed()
        if self._runs.approved() is not None:  # no cycle before it has ended: it would plan what is being done
            due = self._times.run_due(spec, now=now)
        else:
            reported = self._status.observed_generation == self._generation
            due = self._times.cycle_due(spec, now=now, reported=reported)
        if due > now:
            shut = spec.mode != "Simulate" and not open_at(spec.windows, now)
            await self._status.waiting(due, opens=next_opening(spec.windows, after=now) if shut else None)
        return due

    async def _cycle_safely(self) -> None:
        """One cycle; whatever goes wrong ends in the status, the log and the metrics, never in the loop."""
        policy = self._policy
        assert policy is not None
        services = self._services
        async with self._turn() as ours:
            if not ours or self._services.peers.against(self.name):
                return
            started = services.clock.now()
            self._times.cycle_begins()
            run = self._runs.approved()
            try:
                result = await self._one(policy, run, started)
            except Exception as error:
                log.exception("cycle of policy %s failed", self.name)
                self._times.cycle_failed(policy.spec, started=started, now=services.clock.now())
                await self._status.failed(error, mode=policy.spec.mode)
                return
        next_run = self._times.cycle_ended(policy.spec, result)
        await self._status.done(result, next_run=next_run)

    async def _one(self, policy: DeschedulerPolicy, run: Run | None, started: float) -> CycleResult:
        """Plan anew or, where a run is approved, carry that out."""
        cycle = Cycle(
            policy,
            self._services,
            runs=self._runs,
            halt=self._halt,
            running=self._status.running,
            memory=self._status.recall(generation=policy.metadata.generation, asked=self._asked),
            usage=self._usage,
        )
        return await (cycle.run(started) if run is None else cycle.carry_out(run, started))

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[bool]:
        """One policy at a time: two that believe in the same free slot would both be wrong.

        ``False`` where the policy changed or ended first: the one that acts may take minutes.
        """
        turn = self._services.turn
        taking = asyncio.create_task(turn.acquire(), name=f"turn of policy {self.name}")
        halting = asyncio.create_task(self._halt.wait(), name=f"halt of policy {self.name}")
        try:
            await asyncio.wait({taking, halting}, return_when=asyncio.FIRST_COMPLETED)
            yield taking.done() and not self._halt.is_set()
        finally:
            halting.cancel()
            taking.cancel()
            await asyncio.gather(halting, taking, return_exceptions=True)
            if not taking.cancelled():
                turn.release()
