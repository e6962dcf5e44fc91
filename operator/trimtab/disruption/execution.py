"""One run of the executor: which eviction is asked for when, and how each ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import msgspec

from trimtab.api.plan import SURGE, Evict, rfc3339
from trimtab.api.reasons import EVICTION_FAILED, OWNER_NOT_SETTLED, SHUTTING_DOWN
from trimtab.disruption.answer import Answer
from trimtab.disruption.attempt import LOST_ANSWER, attempt, look_again
from trimtab.disruption.departure import departure
from trimtab.disruption.inspection import inspect
from trimtab.disruption.lanes import Job, Lane, LaneQueue, lanes_of
from trimtab.disruption.outcome import EVICTED, FAILED, GONE, REFUSED, SKIPPED, STARTED, Outcome
from trimtab.disruption.register import Register
from trimtab.disruption.restart import look_for, restart
from trimtab.disruption.terms import LATE as LATE
from trimtab.disruption.terms import Blind as Blind
from trimtab.disruption.terms import Means as Means
from trimtab.disruption.terms import Recheck as Recheck
from trimtab.disruption.terms import Terms as Terms
from trimtab.kube.objects import Pod

log = logging.getLogger(__name__)

SHORTEST_WAIT: Final = 0.01
"""Seconds: below it, rounding could make a wait end just before what it waits for."""


class Execution:
    """The state of one run.

    A single loop decides; only requests run as tasks of their own. So nothing happens between the last look at a pod
    and the request that it allowed, and there are never more tasks than requests in flight.
    """

    def __init__(self, actions: Sequence[Evict], means: Means, terms: Terms) -> None:
        self._means = means
        self._terms = terms
        self._settings = means.settings
        self._queue = LaneQueue(lanes_of(actions))
        self._in_flight: dict[asyncio.Task[Answer], Lane] = {}
        self._departing: list[Lane] = []
        self._register = Register(len(actions), means, terms)

    async def run(self) -> list[Outcome]:
        """Go through all actions and return their outcomes in the same order."""
        stopped = asyncio.create_task(self._terms.stop.wait())
        try:
            while self._queue or self._in_flight or self._departing:
                self._look_after()
                if self._closing():
                    self._give_up()
                else:
                    self._start_what_can()
                await self._wait(stopped)
                self._collect()
        finally:
            tasks = [stopped, *self._in_flight]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._register.outcomes()

    # --- time --------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return self._means.clock.monotonic()

    def _closing(self) -> bool:
        """Whether nothing new may be started."""
        return self._terms.stop.is_set() or self._now() >= self._terms.deadline

    async def _wait(self, stopped: asyncio.Task[bool]) -> None:
        """Sleep until a request is answered, the stop is asked for, or the time has come for the next step."""
        waited: set[asyncio.Task[Any]] = set(self._in_flight)
        timer: asyncio.Task[None] | None = None
        if (self._queue or self._departing) and not self._closing():
            seconds = max(SHORTEST_WAIT, self._next_step() - self._now())
            timer = asyncio.create_task(self._means.clock.sleep(seconds))
            waited |= {timer, stopped}
        try:
            if waited:
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if timer is not None:
                timer.cancel()

    def _next_step(self) -> float:
        """When to look again at the latest, if no request is answered before."""
        now = self._now()
        times = [self._terms.deadline]
        if self._queue.has_ready(now) and len(self._in_flight) < self._settings.in_flight:
            pause = self._settings.poll if self._terms.blind() else 0.0
            times.append(now + max(pause, self._terms.pace.wait(now, per_minute=self._terms.per_minute)))
        if self._departing:
            times.append(now + self._settings.poll)
        later = self._queue.next_at()
        if later is not None:
            times.append(later)
        return min(times)

    # --- starting ----------------------------------------------------------------------------------------------

    def _start_what_can(self) -> None:
        while len(self._in_flight) < self._settings.in_flight and self._queue.has_ready(self._now()):
            if self._terms.pace.wait(self._now(), per_minute=self._terms.per_minute) > 0.0 or self._terms.blind():
                return
            self._go_on(self._queue.pop())

    def _go_on(self, lane: Lane) -> None:
        """Take a lane's next step: end its next action, wait for its owner, or ask for the eviction."""
        job = lane.head
        if job.doubt:
            api, timeout = self._means.api, self._settings.timeout
            if job.action.how == SURGE:
                self._send(lane, look_for(api, job.action, mark=job.mark, timeout=timeout))
            else:
                self._send(lane, look_again(api, job.action, timeout=timeout))
            return
        try:
            ended = self._next_of(lane, job)
        except Exception as error:  # one pod that cannot be judged must not stop the others
            log.exception("could not judge %s again before its eviction", job.action.key)
            ended = Answer(FAILED, EVICTION_FAILED, f"could not be judged again: {type(error).__name__}: {error}")
        if ended is not None:
            self._end(lane, ended)

    def _next_of(self, lane: Lane, job: Job) -> Answer | None:
        """Go on with a job whose last answer leaves no doubt; return how it ends if it ends here."""
        pod = self._means.view.pod(job.action.key)
        ended = inspect(job.action, pod, asked=job.asked)
        if ended is not None or pod is None:
            return ended
        why = self._unsettled(lane, pod)
        if why is not None:
            self._wait_for_owner(lane, why)
            return None
        lane.waits_since = None
        refusal = self._terms.recheck(job.action) if self._terms.recheck is not None else None
        if refusal is not None:
            return Answer(REFUSED, refusal.reason, refusal.message)
        self._ask(lane, job, pod)
        return None

    def _unsettled(self, lane: Lane, pod: Pod) -> str | None:
        if lane.owner is None:
            return None
        pods = self._means.view.owned_by(lane.owner)
        return self._means.book.unsettled(lane.owner, pod, pods, now=self._now(), wall=self._means.clock.now())

    def _wait_for_owner(self, lane: Lane, why: str) -> None:
        now = self._now()
        lane.waits_for = why
        if lane.waits_since is None:
            lane.waits_since = now
        if now - lane.waits_since < (self._settings.settle if lane.evicted else self._settings.patience):
            self._queue.put(lane, at=now + self._settings.poll)
            return
        for job in lane.jobs:
            self._register.finish(lane, job, Answer(SKIPPED, OWNER_NOT_SETTLED, why))

    def _ask(self, lane: Lane, job: Job, pod: Pod) -> None:
        now = self._now()
        if lane.owner is not None:
            self._means.book.open(lane.owner, pod, self._means.view.owned_by(lane.owner), now=now)
        self._terms.pace.take(now)
        job.started = now
        timeout, grace_period = self._settings.timeout, self._terms.grace_period
        if job.action.how == SURGE:
            job.mark = job.mark or rfc3339(self._means.clock.now())
            self._send(lane, restart(self._means.api, job.action, pod, mark=job.mark, timeout=timeout))
        else:
            self._send(lane, attempt(self._means.api, job.action, timeout=timeout, grace_period=grace_period))

    def _send(self, lane: Lane, request: Coroutine[Any, Any, Answer]) -> None:
        self._in_flight[asyncio.create_task(request)] = lane

    def _look_after(self) -> None:
        """See how far those are that were begun and go on by themselves."""
        departing, self._departing = self._departing, []
        for lane in departing:
            job = lane.head
            ended = None
            if job.departure is not None:
                ended = job.departure.look(job.action, self._means.view.pod(job.action.key), now=self._now())
                if ended is None and self._closing():
                    ended = job.departure.last_word("had not ended when the cycle did")
            if ended is None:
                self._departing.append(lane)
            else:
                self._end(lane, ended)

    # --- ending ------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Take up what has been answered, the earlier actions first."""
        done = [(lane.head.index, task) for task, lane in self._in_flight.items() if task.done()]
        for _, task in sorted(done, key=lambda pair: pair[0]):
            self._take_up(self._in_flight.pop(task), task)

    def _take_up(self, lane: Lane, task: asyncio.Task[Answer]) -> None:
        job = lane.head
        try:
            answer = task.result()
        except Exception as error:  # a defect in the way of one request must not stop the others
            log.exception("the eviction of %s failed in an unforeseen way", job.action.key)
            answer = Answer(FAILED, EVICTION_FAILED, f"{type(error).__name__}: {error}")
        if answer.result == STARTED:
            job.departure = departure(job.action, answer, now=self._now(), rollout=self._settings.rollout)
            self._departing.append(lane)
            return
        looked, job.last = job.doubt, answer
        job.asked = job.asked or answer.doubt
        if not answer.again:
            self._end(lane, LOST_ANSWER if job.asked and answer.result == GONE else answer)
            return
        if not answer.doubt:
            self._register.release(job)
        again_at = self._now() if looked and not answer.doubt else self._now() + self._delay(job, answer)
        if self._closing() or again_at >= self._terms.deadline:
            self._end(lane, self._last_word(job, answer))
        else:
            self._queue.put(lane, at=again_at)

    def _delay(self, job: Job, answer: Answer) -> float:
        backoff = self._settings.budget_backoff if answer.result == REFUSED else self._settings.error_backoff
        delay = backoff.delay(job.tries)
        job.tries += 1
        return max(delay, answer.retry_after or 0.0)

    def _give_up(self) -> None:
        """End all that is not in flight: the time is up, or trimtab is stopping."""
        if self._terms.stop.is_set():
            late = Answer(SKIPPED, SHUTTING_DOWN, "trimtab is stopping; the pod's turn had not come")
        else:
            late = Answer(SKIPPED, self._terms.late.reason, self._terms.late.message)
        for lane in self._queue.drain():
            waits = lane.waits_since is not None and not self._terms.stop.is_set()
            left = Answer(SKIPPED, OWNER_NOT_SETTLED, lane.waits_for) if waits else late
            for job in lane.jobs:
                self._register.finish(lane, job, left if job.last is None else self._last_word(job, job.last))

    def _last_word(self, job: Job, last: Answer) -> Answer:
        """How a job ends that has been tried, and will not be again."""
        pod = self._means.view.pod(job.action.key)
        if job.asked and (pod is None or pod.uid != job.action.uid or pod.deleted is not None):
            return LOST_ANSWER
        tries = f" (tried {job.tries} times)" if job.tries > 1 else ""
        unknown = "; whether the pod is evicted is not known" if last.doubt else ""
        return msgspec.structs.replace(last, message=f"{last.message}{unknown}{tries}")

    def _end(self, lane: Lane, answer: Answer) -> None:
        """End a lane's next job, and let the one behind it move up."""
        job = lane.jobs.popleft()
        self._register.finish(lane, job, answer)
        lane.waits_since = None
        lane.evicted = lane.evicted or answer.result == EVICTED
        if lane.jobs:
            self._queue.put(lane, at=self._now())
