"""The pods whose time is over: each is tried until it is gone or its time is not over any more.

Nothing of this need survive a restart: what is overdue is due at once for the next process, which comes to the same.
A pod that waits is an entry in a heap or a line, not a task; so many workers, and no more, ask the API server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from trimtab.api import reasons
from trimtab.api.taint_manager import OBSERVE, TaintManagerSpec
from trimtab.api.taint_manager_status import RefusedPod, StuckNode
from trimtab.tainting.deadlines.rule import Deadline
from trimtab.tainting.ending.answer import Answer
from trimtab.tainting.ending.job import Job, Place
from trimtab.tainting.ending.judging import Move, not_due, waits
from trimtab.tainting.ending.looking import ByTaint, Looks
from trimtab.tainting.ending.outcome import What
from trimtab.tainting.ending.room import WaitingRoom
from trimtab.tainting.ending.telling import StuckWatch, refused_pods
from trimtab.tainting.ending.tries import Tries
from trimtab.tainting.services import Services

logger = logging.getLogger(__name__)

WORKERS: Final = 32
"""Pods that are being ended at once; the API server's connections are shared with all else that trimtab does."""

BLIND_LOOK: Final = 0.25
"""Seconds between two looks whether the picture can be acted on again."""

LOOK: Final = 5.0
"""Seconds between two looks where nothing happens."""


class Ending:
    """Acts on deadlines that are due.

    Args:
        services: the API, the picture, clocks, who is told.
        spec: of the TaintManager.
        deadline_of: what the book has of a pod by its ``namespace/name``, ``None`` for no deadline.
        deadlines_of: the deadlines that the taints of its node give a pod, each of them alone
            (:meth:`~trimtab.tainting.deadlines.DeadlineBook.deadlines_of`), so that a pod that waits for its eviction,
            or for a rate, goes once another taint says so.
        workers: pods that are being ended at once.
    """

    def __init__(
        self,
        services: Services,
        spec: TaintManagerSpec,
        *,
        deadline_of: Callable[[str], Deadline | None],
        deadlines_of: ByTaint,
        workers: int = WORKERS,
    ) -> None:
        self._services = services
        self._looks = Looks(services, spec, deadline_of, deadlines_of)
        self._workers = workers
        self._spec = spec
        self._room = WaitingRoom(
            spec.user_taint_rates, zone_of=self._looks.zone_of, free_at=self._looks.free_at, workers=workers
        )
        self._tries = Tries(services, self._looks, self._room)
        self._stuck = StuckWatch(services)
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def deleted(self) -> int:
        """Pods that were deleted since the start."""
        return self._tries.tally.deleted

    @property
    def evicted(self) -> int:
        """Pods that were evicted since the start."""
        return self._tries.tally.evicted

    @property
    def waiting(self) -> int:
        """Pods whose time is over and that the API server has not let go yet."""
        return len(self._tries.jobs) - self._tries.going

    @property
    def held(self) -> int:
        """Those of them that a rate of user taints holds back."""
        return self._room.held

    @property
    def refused(self) -> tuple[RefusedPod, ...]:
        """Those of them that somebody does not let go, the longest due first."""
        return refused_pods(self._tries.jobs.values())

    @property
    def stuck(self) -> tuple[StuckNode, ...]:
        """Dead nodes on which pods are terminating and cannot end, by name; looked for every ten seconds."""
        return self._stuck.nodes()

    def due(self, deadline: Deadline) -> None:
        """Take a pod whose time is over; returns at once. What is told twice is no error.

        It is judged before anything is done: what is told too early, or in mode Observe, does no harm.
        """
        if self._spec.mode == OBSERVE or self._tries.stopping:
            return
        job = self._tries.jobs.get(deadline.key)
        if job is not None:
            if job.deadline.uid == deadline.uid:
                self._tries.again_by(job, deadline)
                return
            self._tries.forget(job)
        job = self._tries.jobs[deadline.key] = Job(deadline)
        self._room.enter(job, self._monotonic())

    def changed(self, key: str) -> None:
        """The book has another deadline for a pod, or none: judge it anew. Of no account for pods that are not here.

        The picture has to show the pod already as the book took it.
        """
        job = self._tries.jobs.get(key)
        if job is None or job.place in (Place.BUSY, Place.LINE):  # a worker judges it anyhow
            return
        verdict = self._looks.judge(job)
        if verdict.move is Move.NOTHING or verdict.move is Move.WAIT:
            self._tries.not_now(job, verdict)
        else:
            self._tries.again_by(job, verdict.deadline)

    def node_changed(self, name: str) -> None:
        """A node has other taints: who waits for an eviction or a rate may have to go sooner, by another one of them.

        Book and picture have to show the node already.
        """
        for key, _ in self._services.picture.pods_on(name):
            job = self._tries.jobs.get(key)
            if job is not None:
                self._tries.look_sooner(job)

    def configure(self, spec: TaintManagerSpec) -> None:
        """Go on by another spec; in mode Observe with nothing, and whoever is due has to be told again afterwards."""
        before, self._looks.waits, self._spec = self._looks.waits, waits(spec), spec
        now = self._monotonic()
        self._room.regulate(spec.user_taint_rates, now)
        for job in tuple(self._tries.jobs.values()):
            if spec.mode == OBSERVE:
                self._tries.settle(job, not_due("the mode is Observe now"))
            elif job.place is Place.LATER and self._looks.waits != before:
                self._room.leave(job)
                self._room.enter(job, now)

    async def run(self) -> None:
        """Work until cancelled; what is in flight then is lost sight of, and found again by the next process."""
        for job in [each for each in self._tries.jobs.values() if each.place is Place.BUSY]:  # of a run that failed
            self._room.enter(job, self._monotonic())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._move_up(), name="due pods: turns")
            for number in range(self._workers):
                group.create_task(self._work(), name=f"due pods: worker {number}")

    async def stop(self, seconds: float = 10.0) -> None:
        """Begin nothing further, and wait for what is in flight, at most so long; then :meth:`run` may be cancelled."""
        self._tries.stopping = True
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            logger.warning("%d pods were being ended when the time to stop was over", self._busy)

    # --- whose turn it is ----------------------------------------------------------------------------------------

    async def _move_up(self) -> None:
        while True:
            pause: float | None = LOOK
            try:
                now, blind = self._monotonic(), self._services.stale() is not None
                turn = self._room.turn(now, blind=blind)
                pause = BLIND_LOOK if blind else min(LOOK, LOOK if turn is None else turn)
            except Exception:  # the pods that wait must not depend on one that cannot be moved
                logger.exception("pods that are due could not be moved up")
            await self._room.moved(pause)

    async def _work(self) -> None:
        while True:
            job = await self._room.next()
            self._busy += 1
            self._idle.clear()
            try:
                if self._tries.jobs.get(job.deadline.key) is job and job.place is Place.LINE:
                    job.place = Place.BUSY
                    await self._tries.one(job)
            except Exception as error:  # a defect must not end a worker, nor the pod's tries
                logger.exception("%s could not be ended", job.deadline.key)
                words = f"{type(error).__name__}: {error}"
                self._tries.take_up(job, Answer(What.FAILED, reasons.DELETION_FAILED, words, doubt=True))
            finally:
                self._room.done(job)
                self._busy -= 1
                if not self._busy:
                    self._idle.set()

    def _monotonic(self) -> float:
        return self._services.clock.monotonic()
