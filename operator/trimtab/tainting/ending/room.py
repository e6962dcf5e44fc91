"""Where pods wait that are due: for a worker, for a rate, for a while, or for a picture that can be acted on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from trimtab.api.taint_manager import UserTaintRates
from trimtab.tainting.conditions import NO_EXECUTE_KEYS
from trimtab.tainting.ending.held import HeldBack
from trimtab.tainting.ending.job import Job, Place
from trimtab.tainting.ending.line import Line
from trimtab.tainting.ending.rates import Rates
from trimtab.tainting.timers import TimerHeap

BATCH: Final = 500
"""Pods that are moved up before others on the event loop have their turn."""

SHORTEST: Final = 0.001
"""Seconds of the shortest wait: less is within what sums of times are off by, and would be waited for over and over."""


class WaitingRoom:
    """Hands jobs to workers in their turn. Times are a monotonic clock's, in seconds.

    Args:
        rates: of user taints.
        zone_of: the zone of a node, by its name.
        free_at: from when on no rate holds a pod, because its node fails; ``None`` for never.
        workers: how many take pods.
    """

    def __init__(
        self,
        rates: UserTaintRates,
        *,
        zone_of: Callable[[str], str],
        free_at: Callable[[Job], float | None],
        workers: int,
    ) -> None:
        self._zone_of = zone_of
        self._free_at = free_at
        self._rates = Rates(rates)
        self._held = HeldBack(self._rates)
        self._held_jobs: dict[str, Job] = {}
        self._freed: TimerHeap[Job] = TimerHeap()
        self._later: TimerHeap[Job] = TimerHeap()
        self._parked: dict[str, Job] = {}
        self._line = Line(workers)
        self._moved = asyncio.Event()

    @property
    def held(self) -> int:
        """Pods that a rate holds back."""
        return len(self._held)

    @property
    def later(self) -> int:
        """Pods that are looked at again after a while."""
        return len(self._later)

    def enter(self, job: Job, now: float) -> None:
        """A pod is to go: it stands in line, unless a rate holds it back."""
        if not self._rates.limited or job.paid is not None or job.deadline.taint.key in NO_EXECUTE_KEYS:
            job.place = Place.LINE
            self._line.put(job)
            return
        job.place, job.held_since = Place.HELD, now
        key, namespace = job.deadline.key, job.deadline.key.partition("/")[0]
        self._held_jobs[key] = job
        self._held.add(key, due=job.deadline.due, zone=self._zone_of(job.deadline.node), namespace=namespace)
        self.free_sooner(job)

    def free_sooner(self, job: Job) -> None:
        """Ask anew from when on no rate holds a pod that one holds back."""
        at = self._free_at(job)
        if at is None:
            self._freed.cancel(job.deadline.key)
        else:
            self._freed.set(job.deadline.key, at, job)
        self._moved.set()

    def put_off(self, job: Job, at: float) -> None:
        """A pod is to be looked at again then."""
        job.again = at
        first = self._later.next_due
        self._later.set(job.deadline.key, at, job)
        if first is None or at < first:
            self._moved.set()

    def park(self, job: Job) -> None:
        """A pod is to be looked at again once the picture can be acted on."""
        job.place = Place.PARKED
        self._parked[job.deadline.key] = job
        self._moved.set()

    def leave(self, job: Job) -> None:
        """A pod does not wait any more, but that it may stand in line still; what its turn took is not given back."""
        key = job.deadline.key
        match job.place:
            case Place.HELD:
                self._held.drop(key)
                self._freed.cancel(key)
                self._held_jobs.pop(key, None)
            case Place.LATER | Place.ASKED:
                self._later.cancel(key)
            case Place.PARKED:
                self._parked.pop(key, None)

    def give_back(self, job: Job) -> None:
        """A pod did not go in its turn: another may."""
        if job.paid is not None:
            self._rates.give_back(job.paid)
            job.paid = None
            self._moved.set()

    def regulate(self, rates: UserTaintRates, now: float) -> None:
        """Go by other rates; who waits for those before keeps its place."""
        if rates == self._rates.spec:
            return
        self._rates = Rates(rates)
        self._held.regulate(self._rates)
        if not self._rates.limited:
            for key in self._held.clear():
                self._to_line(self._free(key), now)
        self._moved.set()

    async def next(self) -> Job:
        """The next one for a worker, once there is one; :meth:`done` has to follow."""
        return await self._line.next()

    def done(self, job: Job) -> None:
        """A worker has ended with a pod, for now."""
        self._line.done(job)

    def turn(self, now: float, *, blind: bool) -> float | None:
        """Move those up whose turn has come.

        Args:
            now: of the monotonic clock.
            blind: whether the picture cannot be acted on: then nobody's turn comes.

        Returns:
            Seconds until the next one's turn comes; ``None`` for not by itself.
        """
        if blind:
            return None
        parked, self._parked = self._parked, {}
        for job in sorted(parked.values(), key=lambda each: each.deadline.due):
            self.enter(job, now)
        again = self._later.take(now, limit=BATCH)
        for job in again:
            self.enter(job, now)
        freed = self._freed.take(now, limit=BATCH)
        for job in freed:
            self._held.drop(job.deadline.key)
            self._to_line(self._free(job.deadline.key), now)
        turns = self._held.take(now, limit=BATCH)
        for key, paid in turns:
            job = self._free(key)
            job.paid = paid
            self._to_line(job, now)
        if BATCH in (len(again), len(freed), len(turns)):
            return 0.0
        times = [at for at in (self._later.next_due, self._freed.next_due, self._held.next_at) if at is not None]
        return max(SHORTEST, min(times) - now) if times else None

    async def moved(self, seconds: float | None) -> None:
        """Wait until somebody's turn may come sooner than was known, at most so long."""
        if seconds == 0.0:
            await asyncio.sleep(0)
        else:
            try:
                async with asyncio.timeout(seconds):
                    await self._moved.wait()
            except TimeoutError:
                return
        self._moved.clear()

    def _free(self, key: str) -> Job:
        self._freed.cancel(key)
        return self._held_jobs.pop(key)

    def _to_line(self, job: Job, now: float) -> None:
        job.held += now - job.held_since
        job.place = Place.LINE
        self._line.put(job)
