"""One pod that is due, from one try to the next: judged, asked for, and settled by what the API server says."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.tainting.deadlines.rule import Deadline
from trimtab.tainting.ending import requests
from trimtab.tainting.ending.again import delay, waits_for_mark
from trimtab.tainting.ending.answer import BUDGET, Answer, after_waiting
from trimtab.tainting.ending.job import Job, Place
from trimtab.tainting.ending.judging import Move, Verdict, not_due
from trimtab.tainting.ending.looking import Looks
from trimtab.tainting.ending.outcome import What
from trimtab.tainting.ending.room import WaitingRoom
from trimtab.tainting.ending.telling import Tally
from trimtab.tainting.services import Services

SETTLE: Final = 30.0
"""Seconds after which a pod is looked at again that the API server let go, or said not to be there, and that the watch
still shows as it was: a proxy before an API server that starts says 404 of everything."""

LONGEST_WAIT: Final = 60.0
"""Seconds after which a pod is looked at again at the latest whose time is not over because a clock was set back."""


class Tries:
    """The pods that are due, and what is tried with each.

    Args:
        services: the API, the picture, clocks, who is told.
        looks: what the book and the picture say of pods.
        room: where pods wait for their next try.

    Attributes:
        jobs: pods that are due, by their ``namespace/name``.
        going: how many of them the API server has let go.
        tally: what became of them.
        stopping: whether nothing more is begun.
    """

    def __init__(self, services: Services, looks: Looks, room: WaitingRoom) -> None:
        self.jobs: dict[str, Job] = {}
        self.going = 0
        self.tally = Tally(services)
        self.stopping = False
        self._services = services
        self._looks = looks
        self._room = room
        self._hurried: dict[str, float] = {}

    async def one(self, job: Job) -> None:
        """One try: judged before each request, since anything may have changed while the last one was answered."""
        verdict = self._look(job)
        if verdict is not None and verdict.move is Move.DELETE and not self._looks.marked(job):
            answer = await requests.mark(self._services.api, verdict.deadline, now=self._services.clock.now())
            if answer is None:
                job.marked = self._monotonic()
            elif waits_for_mark(job, answer):
                self.take_up(job, replace(answer, doubt=False))  # whatever came of it, it ends no pod
                return
            verdict = self._look(job)
        if verdict is None:
            return
        if verdict.move is Move.DELETE:
            answer = await requests.delete(self._services.api, verdict.deadline)
            if verdict.waited and answer.what is What.DELETED:
                answer = after_waiting(answer, seconds=self._services.clock.now() - verdict.deadline.due)
        else:
            job.asked_to_evict = True
            answer = await requests.evict(self._services.api, verdict.deadline)
        self.take_up(job, answer, until=verdict.until if verdict.move is Move.EVICT else None)

    # --- judging ---------------------------------------------------------------------------------------------------

    def _look(self, job: Job) -> Verdict | None:
        """What is to be requested for a pod that a worker has; ``None`` where nothing is."""
        if self.stopping or self.jobs.get(job.deadline.key) is not job:
            return None
        if self._services.stale() is not None:
            self._room.park(job)
            return None
        verdict = self._looks.judge(job)
        if verdict.move is Move.NOTHING or verdict.move is Move.WAIT:
            self.not_now(job, verdict)
            return None
        if verdict.waited and not job.asked_to_evict:  # nobody has refused: nobody was there, or a rate held it
            verdict = replace(verdict, move=Move.EVICT, waited=False)
        job.deadline = verdict.deadline
        if job.going:  # the API server took it, and nothing came of that
            job.going = False
            self.going -= 1
        return verdict

    def not_now(self, job: Job, verdict: Verdict) -> None:
        """A pod has gone, or its time is not over: whoever has another time now is told of again when that is over."""
        if verdict.why is not None:
            self.settle(job, verdict.why)
        elif verdict.deadline == job.deadline:  # the clock was set back, and nobody else knows of it
            self._room.leave(job)
            self._room.give_back(job)
            job.place = Place.LATER
            wait = min(verdict.until - self._services.clock.now(), LONGEST_WAIT)
            self._room.put_off(job, self._monotonic() + wait)
        else:
            self.settle(job, not_due(f"its time is over in {verdict.until - self._services.clock.now():.0f}s only"))

    def again_by(self, job: Job, deadline: Deadline) -> None:
        """A pod that is here already counts by this deadline; another policy takes effect at once."""
        other, job.deadline = job.deadline.taint.key != deadline.taint.key, deadline
        if other and job.place in (Place.LATER, Place.HELD):
            self._room.leave(job)
            self._room.enter(job, self._monotonic())

    def look_sooner(self, job: Job) -> None:
        """The node of a pod has other taints: if it waits, it may have to go sooner."""
        now = self._monotonic()
        if job.place is Place.HELD:
            self._room.free_sooner(job)
        elif job.place is Place.LATER and job.evicting:
            verdict = self._looks.judge(job)
            if verdict.move is Move.EVICT:
                self._room.put_off(job, min(job.again, self._looks.monotonic(verdict.until)))
            elif verdict.move is Move.DELETE:
                self._room.leave(job)
                self._room.enter(job, now)

    # --- what became of it -----------------------------------------------------------------------------------------

    def take_up(self, job: Job, answer: Answer, *, until: float | None = None) -> None:
        """Go by the answer to a try (``until``: how long the pod is evicted, if it is)."""
        job.attempts += 1
        if answer.again:
            self._try_again(job, answer, until)
            return
        ours = self.jobs.get(job.deadline.key) is job
        if answer.what is What.GONE:
            self.settle(job, answer)
        else:
            self.tally.take(job, answer)
            self._hurry(job)
        if ours:
            self._wait_for_watch(job)

    def _wait_for_watch(self, job: Job) -> None:
        """The API server says that a pod goes, or has gone: if that is not so, it is tried again."""
        self.forget(job)
        if not self._looks.known(job):  # the watch was faster than the answer
            return
        self.jobs[job.deadline.key] = job
        job.place, job.going, job.lost = Place.ASKED, True, None
        self.going += 1
        self._room.put_off(job, self._monotonic() + SETTLE)

    def _try_again(self, job: Job, answer: Answer, until: float | None) -> None:
        if answer.doubt:
            job.lost = What.DELETED if until is None else What.EVICTED
        else:
            self._room.give_back(job)
        job.last, job.evicting = answer, until is not None
        self.tally.take(job, answer)
        if self.jobs.get(job.deadline.key) is not job:
            return
        others = max(0, self._room.later - self.going)
        left = self._left(job) if job.evicting else None
        job.place = Place.LATER
        self._room.put_off(job, self._monotonic() + delay(job, answer, others=others, left=left))

    def _left(self, job: Job) -> float:
        """Seconds for which a pod is evicted still; asked anew, since its node may have changed meanwhile."""
        verdict = self._looks.judge(job)
        return verdict.until - self._services.clock.now() if verdict.move is Move.EVICT else 0.0

    def _hurry(self, job: Job) -> None:
        """A pod went that had been refused: try the others that the same one refuses, at most once a second."""
        last, now = job.last, self._monotonic()
        if last is None or last.refuser == BUDGET or now - self._hurried.get(last.refuser, now - 1.0) < 1.0:
            return
        self._hurried[last.refuser] = now
        for each in tuple(self.jobs.values()):
            if each.place is Place.LATER and each.last is not None and each.last.refuser == last.refuser:
                self._room.leave(each)
                self._room.enter(each, now)

    def settle(self, job: Job, why: Answer) -> None:
        """A pod is of no concern any more. One that went after a lost answer counts as ours."""
        self.forget(job)
        if job.going:
            return
        if job.lost is not None and why.what is What.GONE:
            words = "the answer to it was lost, and the pod has gone since"
            why = Answer(job.lost, reasons.NO_EXECUTE_TAINT, words)
        else:
            self._room.give_back(job)
        self.tally.take(job, why)

    def forget(self, job: Job) -> None:
        """A pod waits for nothing any more."""
        self._room.leave(job)
        if self.jobs.get(job.deadline.key) is job:
            del self.jobs[job.deadline.key]
            self.going -= job.going

    def _monotonic(self) -> float:
        return self._services.clock.monotonic()
