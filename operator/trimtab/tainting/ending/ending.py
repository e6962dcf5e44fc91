"""The pods whose time is over: each is tried until it is gone or its time is not over any more.

Nothing of this need survive a restart: what is overdue is due at once for the next process, which comes to the same.
A pod that waits is an entry in a heap or a line, not a task; so many workers, and no more, ask the API server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.taint_manager import OBSERVE, TaintManagerSpec
from trimtab.api.taint_manager_status import RefusedPod, StuckNode
from trimtab.tainting.deadlines.rule import Deadline
from trimtab.tainting.ending import requests
from trimtab.tainting.ending.again import delay, waits_for_mark
from trimtab.tainting.ending.answer import BUDGET, Answer, after_waiting
from trimtab.tainting.ending.job import Job, Place
from trimtab.tainting.ending.judging import Move, Verdict, not_due, waits
from trimtab.tainting.ending.looking import Looks, Without
from trimtab.tainting.ending.outcome import What
from trimtab.tainting.ending.room import WaitingRoom
from trimtab.tainting.ending.telling import StuckWatch, Tally, refused_pods
from trimtab.tainting.services import Services

logger = logging.getLogger(__name__)

WORKERS: Final = 32
"""Pods that are being ended at once; the API server's connections are shared with all else that trimtab does."""

SETTLE: Final = 30.0
"""Seconds after which a pod is looked at again that the API server let go and that the watch still shows as it was."""

LONGEST_WAIT: Final = 60.0
"""Seconds after which a pod is looked at again at the latest whose time is not over because a clock was set back."""

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
        deadline_without: the deadline that a pod would have without taints of these keys
            (:meth:`~trimtab.tainting.deadlines.DeadlineBook.deadline_without`), so that a pod that waits for its
            eviction is deleted once another taint says so.
        workers: pods that are being ended at once.
    """

    def __init__(
        self,
        services: Services,
        spec: TaintManagerSpec,
        *,
        deadline_of: Callable[[str], Deadline | None],
        deadline_without: Without,
        workers: int = WORKERS,
    ) -> None:
        self._services = services
        self._looks = Looks(services, spec, deadline_of, deadline_without)
        self._workers = workers
        self._spec = spec
        self._jobs: dict[str, Job] = {}
        self._going = 0
        self._room = WaitingRoom(spec.user_taint_rates, self._looks.zone_of, workers=workers)
        self._tally = Tally(services)
        self._stuck = StuckWatch(services)
        self._hurried: dict[str, float] = {}
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False

    @property
    def deleted(self) -> int:
        """Pods that were deleted since the start."""
        return self._tally.deleted

    @property
    def evicted(self) -> int:
        """Pods that were evicted since the start."""
        return self._tally.evicted

    @property
    def waiting(self) -> int:
        """Pods whose time is over and that the API server has not let go yet."""
        return len(self._jobs) - self._going

    @property
    def held(self) -> int:
        """Those of them that a rate of user taints holds back."""
        return self._room.held

    @property
    def refused(self) -> tuple[RefusedPod, ...]:
        """Those of them that somebody does not let go, the longest due first."""
        return refused_pods(self._jobs.values())

    @property
    def stuck(self) -> tuple[StuckNode, ...]:
        """Dead nodes on which pods are terminating and cannot end, by name; looked for every ten seconds."""
        return self._stuck.nodes()

    def due(self, deadline: Deadline) -> None:
        """Take a pod whose time is over; returns at once. What is told twice is no error.

        It is judged before anything is done: what is told too early, or in mode Observe, does no harm.
        """
        if self._spec.mode == OBSERVE or self._stopping:
            return
        job = self._jobs.get(deadline.key)
        if job is not None:
            if job.deadline.uid == deadline.uid:
                self._again_by(job, deadline)
                return
            self._forget(job)
        job = self._jobs[deadline.key] = Job(deadline)
        self._room.enter(job, self._monotonic())

    def changed(self, key: str) -> None:
        """The book has another deadline for a pod, or none: judge it anew. Of no account for pods that are not here.

        The picture has to show the pod already as the book took it.
        """
        job = self._jobs.get(key)
        if job is None or job.place in (Place.BUSY, Place.LINE):  # a worker judges it anyhow
            return
        verdict = self._looks.judge(job)
        if verdict.move is Move.NOTHING or verdict.move is Move.WAIT:
            self._not_now(job, verdict)
        else:
            self._again_by(job, verdict.deadline)

    def configure(self, spec: TaintManagerSpec) -> None:
        """Go on by another spec; in mode Observe with nothing, and whoever is due has to be told again afterwards."""
        before, self._looks.waits, self._spec = self._looks.waits, waits(spec), spec
        now = self._monotonic()
        self._room.regulate(spec.user_taint_rates, now)
        for job in tuple(self._jobs.values()):
            if spec.mode == OBSERVE:
                self._settle(job, not_due("the mode is Observe now"))
            elif job.place is Place.LATER and self._looks.waits != before:
                self._room.leave(job)
                self._room.enter(job, now)

    async def run(self) -> None:
        """Work until cancelled; what is in flight then is lost sight of, and found again by the next process."""
        for job in [each for each in self._jobs.values() if each.place is Place.BUSY]:  # of a run that failed
            self._room.enter(job, self._monotonic())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._move_up(), name="due pods: turns")
            for number in range(self._workers):
                group.create_task(self._work(), name=f"due pods: worker {number}")

    async def stop(self, seconds: float = 10.0) -> None:
        """Begin nothing further, and wait for what is in flight, at most so long; then :meth:`run` may be cancelled."""
        self._stopping = True
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
                if self._jobs.get(job.deadline.key) is job and job.place is Place.LINE:
                    job.place = Place.BUSY
                    await self._try(job)
            except Exception as error:  # a defect must not end a worker, nor the pod's tries
                logger.exception("%s could not be ended", job.deadline.key)
                words = f"{type(error).__name__}: {error}"
                self._take_up(job, Answer(What.FAILED, reasons.DELETION_FAILED, words, doubt=True))
            finally:
                self._room.done(job)
                self._busy -= 1
                if not self._busy:
                    self._idle.set()

    async def _try(self, job: Job) -> None:
        """One try: judged before each request, since anything may have changed while the last one was answered."""
        verdict = self._look(job)
        if verdict is not None and verdict.move is Move.DELETE and not self._looks.marked(job):
            answer = await requests.mark(self._services.api, verdict.deadline, now=self._services.clock.now())
            if answer is None:
                job.marked = self._monotonic()
            elif waits_for_mark(job, answer):
                self._take_up(job, replace(answer, doubt=False))  # whatever came of it, it ends no pod
                return
            verdict = self._look(job)
        if verdict is None:
            return
        if verdict.move is Move.DELETE:
            answer = await requests.delete(self._services.api, verdict.deadline)
            if verdict.waited and answer.what is What.DELETED:
                answer = after_waiting(answer, seconds=self._services.clock.now() - verdict.deadline.due)
        else:
            answer = await requests.evict(self._services.api, verdict.deadline)
        self._take_up(job, answer, until=verdict.until if verdict.move is Move.EVICT else None)

    # --- judging ---------------------------------------------------------------------------------------------------

    def _look(self, job: Job) -> Verdict | None:
        """What is to be requested for a pod that a worker has; ``None`` where nothing is."""
        if self._stopping or self._jobs.get(job.deadline.key) is not job:
            return None
        if self._services.stale() is not None:
            self._room.park(job)
            return None
        verdict = self._looks.judge(job)
        if verdict.move is Move.NOTHING or verdict.move is Move.WAIT:
            self._not_now(job, verdict)
            return None
        job.deadline = verdict.deadline
        if job.going:  # the API server took it, and nothing came of that
            job.going = False
            self._going -= 1
        return verdict

    def _not_now(self, job: Job, verdict: Verdict) -> None:
        """A pod has gone, or its time is not over: whoever has another time now is told of again when that is over."""
        if verdict.why is not None:
            self._settle(job, verdict.why)
        elif verdict.deadline == job.deadline:  # the clock was set back, and nobody else knows of it
            self._room.leave(job)
            self._room.give_back(job)
            job.place = Place.LATER
            wait = min(verdict.until - self._services.clock.now(), LONGEST_WAIT)
            self._room.put_off(job, self._monotonic() + wait)
        else:
            self._settle(job, not_due(f"its time is over in {verdict.until - self._services.clock.now():.0f}s only"))

    def _again_by(self, job: Job, deadline: Deadline) -> None:
        """A pod that is here already counts by this deadline; another policy takes effect at once."""
        other, job.deadline = job.deadline.taint.key != deadline.taint.key, deadline
        if other and job.place in (Place.LATER, Place.HELD):
            self._room.leave(job)
            self._room.enter(job, self._monotonic())

    # --- what became of it -----------------------------------------------------------------------------------------

    def _take_up(self, job: Job, answer: Answer, *, until: float | None = None) -> None:
        """Go by the answer to a try (``until``: how long the pod is evicted, if it is)."""
        job.attempts += 1
        if answer.what is What.GONE:
            self._settle(job, answer)
            return
        if answer.again:
            self._try_again(job, answer, until)
            return
        self._tally.take(job, answer)
        self._hurry(job)
        if self._jobs.get(job.deadline.key) is not job:
            return
        job.place, job.going = Place.ASKED, True
        self._going += 1
        if self._looks.known(job):
            self._room.put_off(job, self._monotonic() + SETTLE)
        else:  # the watch was faster than the answer
            self._forget(job)

    def _try_again(self, job: Job, answer: Answer, until: float | None) -> None:
        if answer.doubt:
            job.lost = What.DELETED if until is None else What.EVICTED
        else:
            self._room.give_back(job)
        job.last = answer
        self._tally.take(job, answer)
        if self._jobs.get(job.deadline.key) is not job:
            return
        others = max(0, self._room.later - self._going)
        left = None if until is None else until - self._services.clock.now()
        job.place = Place.LATER
        self._room.put_off(job, self._monotonic() + delay(job, answer, others=others, left=left))

    def _hurry(self, job: Job) -> None:
        """A pod went that had been refused: try the others that the same one refuses, at most once a second."""
        last, now = job.last, self._monotonic()
        if last is None or last.refuser == BUDGET or now - self._hurried.get(last.refuser, now - 1.0) < 1.0:
            return
        self._hurried[last.refuser] = now
        for each in tuple(self._jobs.values()):
            if each.place is Place.LATER and each.last is not None and each.last.refuser == last.refuser:
                self._room.leave(each)
                self._room.enter(each, now)

    def _settle(self, job: Job, why: Answer) -> None:
        """A pod is of no concern any more. One that went after a lost answer counts as ours."""
        self._forget(job)
        if job.going:
            return
        if job.lost is not None and why.what is What.GONE:
            words = "the answer to it was lost, and the pod has gone since"
            why = Answer(job.lost, reasons.NO_EXECUTE_TAINT, words)
        else:
            self._room.give_back(job)
        self._tally.take(job, why)

    def _forget(self, job: Job) -> None:
        self._room.leave(job)
        if self._jobs.get(job.deadline.key) is job:
            del self._jobs[job.deadline.key]
            self._going -= job.going

    def _monotonic(self) -> float:
        return self._services.clock.monotonic()
