"""The executor: evicts the pods of a plan, for several owners concurrently and for each owner one pod at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct

from trimtab.api.plan import SURGE, Evict, rfc3339
from trimtab.api.reasons import (
    CYCLE_DEADLINE,
    DISRUPTION_BUDGET,
    EVICTION_FAILED,
    EVICTION_REFUSED,
    OWNER_NOT_SETTLED,
    SHUTTING_DOWN,
    WAITING_FOR_EVICTION_LIMIT,
    WAITING_FOR_OWNER,
)
from trimtab.controller.loop import end_tasks
from trimtab.disruption.evictor import ClusterView, Evictor, PendingEviction, Permit
from trimtab.disruption.evictor.eviction_api import evict_once, resolve_lost_response
from trimtab.disruption.evictor.requests import DESCHEDULER, EvictionRequest, Requester
from trimtab.disruption.executor.events import report_outcome
from trimtab.disruption.executor.owner_queue import (
    OwnerQueue,
    QueuedEviction,
    ReadyQueue,
    check_pod,
    group_by_owner,
    request_of,
    watch_started,
)
from trimtab.disruption.executor.rollout_restart import confirm_restart, restart
from trimtab.disruption.limits import LimitScope, pace_of
from trimtab.disruption.outcome import (
    EVICTED,
    EVICTED_RESPONSE_LOST,
    FAILED,
    GONE,
    REFUSED,
    SKIPPED,
    STARTED,
    AttemptResult,
    Outcome,
    Refusal,
)
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.objects import Pod
from trimtab.kube.resources import ObjectReference
from trimtab.kube.token_bucket import SlidingWindow

log = logging.getLogger(__name__)

SHORTEST_WAIT: Final = 0.01
"""Minimum duration of a wait in seconds. Because of rounding, a shorter wait could end just before its deadline."""

Recheck = Callable[[Evict], Awaitable[Refusal | None]]
"""Validates an action immediately before its request; returns ``None`` if it is valid. It may wait for the snapshot."""

NotReady = Callable[[], str | None]
"""Returns the reason why acting on the caches is unsafe, or ``None`` if it is safe."""

CYCLE_DEADLINE_EXCEEDED: Final = Refusal(CYCLE_DEADLINE, "the cycle's deadline passed before the eviction started")
"""The default refusal for actions that were not started before the deadline."""

STOPPING: Final = Refusal(SHUTTING_DOWN, "trimtab is stopping; the eviction had not started")
"""The default refusal for actions that were not started before the execution was stopped."""

_TAKEN: Final = frozenset({EVICTED, STARTED})
"""Results that mean that the owner has lost a pod or will lose it soon."""


class ExecutorSettings(Struct, frozen=True, kw_only=True):
    """Concurrency and timeouts of the executor. All times are in seconds.

    Attributes:
        max_in_flight: concurrent requests, each for a different owner.
        recovery_timeout: time for which the next pod of an owner waits for the owner to replace the evicted one.
        unsettled_timeout: time for which the first pod of an owner waits if pods of the owner are missing before the
            first eviction. It is shorter than ``recovery_timeout``, because the cause is not this plan and the pods may
            never be replaced.
        poll_period: time between two checks of waiting owners. A check reads only the cache.
        rollout_timeout: time for which the rollout of a single replica is watched. The rollout may continue after that.
        request_timeout: timeout of one request. It is well below the 30 s that Kubernetes gives a terminating process,
            because the operator waits for its in-flight requests.
    """

    max_in_flight: int = 8
    recovery_timeout: float = 120.0
    unsettled_timeout: float = 15.0
    poll_period: float = 0.5
    rollout_timeout: float = 300.0
    request_timeout: float = 10.0


class ExecutorDependencies(Struct, frozen=True, kw_only=True):
    """The dependencies of every execution; see :class:`Executor`."""

    api: Api
    recorder: Recorder
    clock: Clock
    view: ClusterView
    observe: Callable[[Outcome], None] | None
    settings: ExecutorSettings
    evictor: Evictor


class ExecutionOptions(Struct, frozen=True, kw_only=True):
    """The options of one execution; see :meth:`Executor.execute`."""

    policy: ObjectReference
    pace: SlidingWindow
    deadline: float
    recheck: Recheck | None
    stop: asyncio.Event
    not_ready_reason: NotReady
    observe: Callable[[Outcome], None] | None = None
    grace_period: int | None = None
    deadline_refusal: Refusal = CYCLE_DEADLINE_EXCEEDED
    stop_refusal: Callable[[], Refusal] = lambda: STOPPING


class Executor:
    """Evicts pods as planned by policies.

    The process has one executor, because it enforces each policy's rate limit. Pods are evicted only through the
    Eviction API and with the planned pod's UID as precondition, so that PodDisruptionBudgets are respected and a new
    pod with the same name is not evicted. For single replicas with ``singleReplica: Surge`` the executor restarts the
    Deployment instead. It skips an action that is no longer valid.

    Attributes:
        evictor: admits evictions. All controllers share it.
    """

    def __init__(
        self,
        *,
        api: Api,
        recorder: Recorder,
        clock: Clock,
        view: ClusterView,
        evictor: Evictor,
        observe: Callable[[Outcome], None] | None = None,
        settings: ExecutorSettings | None = None,
    ) -> None:
        """Create the executor. No task runs before :meth:`execute` is called.

        Args:
            api: the API server.
            recorder: emits events.
            clock: wall clock and monotonic clock.
            view: read access to cached pods.
            evictor: admits evictions. All controllers share it.
            observe: called with every outcome, for metrics; ``None`` to call nothing.
            settings: concurrency and timeouts; ``None`` for the defaults.
        """
        self._dependencies = ExecutorDependencies(
            api=api,
            recorder=recorder,
            clock=clock,
            view=view,
            observe=observe,
            settings=settings or ExecutorSettings(),
            evictor=evictor,
        )
        self.evictor = evictor
        self._paces: dict[str, SlidingWindow] = {}

    async def execute(
        self,
        actions: Sequence[Evict],
        *,
        policy: ObjectReference,
        per_minute: int,
        deadline: float,
        recheck: Recheck | None = None,
        stop: asyncio.Event | None = None,
        not_ready_reason: NotReady = lambda: None,
        observe: Callable[[Outcome], None] | None = None,
        grace_period: int | None = None,
        deadline_refusal: Refusal = CYCLE_DEADLINE_EXCEEDED,
        stop_refusal: Callable[[], Refusal] = lambda: STOPPING,
    ) -> list[Outcome]:
        """Evict the pods of a plan until the deadline.

        An error that concerns one pod becomes the outcome of its action and is not raised. If the call is cancelled,
        the API server may grant requests whose responses are then lost. To end the execution in an orderly way, set
        ``stop`` and wait.

        Args:
            actions: the actions in the order of the plan. Of two actions that are ready, the earlier one runs first.
            policy: the object on which events are emitted in addition to those on the pods.
            per_minute: maximum evictions in any minute, counted over all calls for this policy.
            deadline: deadline on ``clock.monotonic()``, after which no request is sent. The call then waits for
                in-flight requests, which takes up to twice ``settings.request_timeout``.
            recheck: validates each action immediately before its eviction. A refusal ends the action. A recheck may
                wait for the snapshot, so the cached pod is checked again before the request is sent.
            stop: stops the execution when it is set: no new request is sent and in-flight requests finish, as at the
                deadline.
            not_ready_reason: returns the reason why it is unsafe to act on the caches. No request is sent until it
                returns ``None``.
            observe: called with every outcome of this call.
            grace_period: termination grace period in seconds; ``None`` for each pod's own.
            deadline_refusal: the reason and message of actions that were not attempted before the deadline.
            stop_refusal: returns those of actions that were not attempted before ``stop`` was set.

        Returns:
            An outcome for every action, in the order of ``actions``.
        """
        pace = self._paces.setdefault(policy.name, SlidingWindow())
        pace.limit(*pace_of(per_minute))
        options = ExecutionOptions(
            policy=policy,
            pace=pace,
            deadline=deadline,
            recheck=recheck,
            stop=stop or asyncio.Event(),
            not_ready_reason=not_ready_reason,
            observe=observe,
            grace_period=grace_period,
            deadline_refusal=deadline_refusal,
            stop_refusal=stop_refusal,
        )
        return await Execution(actions, self._dependencies, options).run()


class OutcomeRecorder:
    """Records the outcomes of one execution, in the order of its actions.

    Args:
        number: number of actions.
        dependencies: dependencies of the executor.
        options: options of the execution.
    """

    def __init__(self, number: int, dependencies: ExecutorDependencies, options: ExecutionOptions) -> None:
        self._dependencies = dependencies
        self._options = options
        self._outcomes: list[Outcome | None] = [None] * number

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes recorded so far."""
        return [outcome for outcome in self._outcomes if outcome is not None]

    def finish(self, eviction: QueuedEviction, answer: AttemptResult) -> None:
        """Record and report the outcome of an action, and release its reservations if its pod was not evicted."""
        if eviction.permit is not None:
            self._dependencies.evictor.conclude(eviction.permit, msgspec.structs.replace(answer, retry=False))
        elif eviction.lost_permit is not None and answer.result == EVICTED:
            self._dependencies.evictor.conclude_released(eviction.lost_permit, answer)
        self.withdraw(eviction)
        # A failure, for example of a webhook, may affect all pods. Keep its share of the rate limit to limit requests.
        if answer.result not in _TAKEN and answer.result != FAILED and answer.reason != EVICTION_REFUSED:
            self.release(eviction)
        outcome = Outcome(
            action=eviction.action,
            result=answer.result,
            reason=answer.reason,
            message=answer.message,
            at=self._dependencies.clock.now(),
        )
        self._outcomes[eviction.index] = outcome
        try:
            report_outcome(outcome, policy=self._options.policy, recorder=self._dependencies.recorder)
            for observe in (self._dependencies.observe, self._options.observe):
                if observe is not None:
                    observe(outcome)
        except Exception:  # a failure in reporting must not stop the next eviction
            log.exception("Failed to record metrics and an event for the eviction of pod %s", eviction.action.key)

    def release(self, eviction: QueuedEviction) -> None:
        """Release the reservations of an action whose pod was not evicted."""
        self.release_pace(eviction)
        if eviction.permit is not None:
            self._dependencies.evictor.cancel(eviction.permit)
            eviction.lost_permit = eviction.permit if eviction.response_lost else None
            eviction.permit = None

    def withdraw(self, eviction: QueuedEviction) -> None:
        """Give up the place of an action that waits for admission."""
        self._dependencies.evictor.withdraw(eviction.action.uid, self.requester(eviction))

    def requester(self, eviction: QueuedEviction) -> Requester:
        """Return the policy and strategy that planned an action."""
        return Requester(DESCHEDULER, self._options.policy.name, eviction.action.strategy)

    def pace_from_now(self, eviction: QueuedEviction) -> None:
        """Count the action toward the policy's rate limit from now on, because its request may have arrived late."""
        if eviction.paced_at is not None:
            now = self._dependencies.clock.monotonic()
            self._options.pace.postpone(eviction.paced_at, now)
            eviction.paced_at = now

    def release_pace(self, eviction: QueuedEviction) -> None:
        """Release only the action's share of the policy's rate limit."""
        if eviction.paced_at is not None:
            self._options.pace.give_back(eviction.paced_at)
            eviction.paced_at = None


class Execution:
    """The state of one execution of a plan.

    A single loop makes all decisions. Only requests and rechecks run as tasks, at most ``settings.max_in_flight`` at a
    time. A recheck may wait while a planner uses the snapshot, so the loop checks the pod again after the recheck,
    immediately before the request.
    """

    def __init__(self, actions: Sequence[Evict], dependencies: ExecutorDependencies, options: ExecutionOptions) -> None:
        self._dependencies = dependencies
        self._options = options
        self._settings = dependencies.settings
        self._owners = group_by_owner(actions)
        self._queue = ReadyQueue(self._owners)
        self._in_flight: dict[asyncio.Task[AttemptResult], OwnerQueue] = {}
        self._rechecking: dict[asyncio.Task[Refusal | None], OwnerQueue] = {}
        self._abandoned: list[asyncio.Task[Refusal | None]] = []
        self._started: list[OwnerQueue] = []
        self._held: dict[LimitScope, float] = {}  # the time until which a reached limit blocks the actions in a scope
        self._recorder = OutcomeRecorder(len(actions), dependencies, options)

    async def run(self) -> list[Outcome]:
        """Execute all actions and return their outcomes in the same order."""
        stopped = asyncio.create_task(self._options.stop.wait())
        try:
            while self._queue or self._in_flight or self._rechecking or self._started:
                self._poll_started()
                if self._closing():
                    self._give_up()
                else:
                    self._start_ready()
                await self._wait(stopped)
                self._collect()
        finally:
            try:
                await end_tasks([stopped, *self._in_flight, *self._rechecking, *self._abandoned])
            finally:  # also if a second cancellation interrupts the cleanup
                self._cancel_permits()
        return self._recorder.outcomes()

    def _cancel_permits(self) -> None:
        """Release all reservations, even if the execution was cancelled during requests."""
        sent = {id(queue) for queue in (*self._in_flight.values(), *self._started)}
        for queue in self._owners:
            for eviction in queue.evictions:
                if eviction.permit is not None:
                    uncertain = id(queue) in sent or eviction.uncertain
                    self._dependencies.evictor.cancel(eviction.permit, uncertain=uncertain)
                self._recorder.withdraw(eviction)

    # --- time --------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return self._dependencies.clock.monotonic()

    def _closing(self) -> bool:
        """Return whether no more requests may be sent."""
        return self._options.stop.is_set() or self._now() >= self._options.deadline

    async def _wait(self, stopped: asyncio.Task[bool]) -> None:
        """Sleep until a response arrives, the execution is stopped, or the next step is due."""
        waited: set[asyncio.Task[Any]] = {*self._in_flight, *self._rechecking}
        timer: asyncio.Task[None] | None = None
        if (self._queue or self._started) and not self._closing():
            seconds = max(SHORTEST_WAIT, self._next_step() - self._now())
            timer = asyncio.create_task(self._dependencies.clock.sleep(seconds))
            waited |= {timer, stopped}
        try:
            if waited:
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if timer is not None:
                timer.cancel()

    def _next_step(self) -> float:
        """Return the time at which the next step is due, unless a response arrives earlier."""
        now = self._now()
        times = [self._options.deadline]
        if self._queue.has_ready(now) and self._has_room():
            pause = self._settings.poll_period if self._options.not_ready_reason() else 0.0
            times.append(now + max(pause, self._options.pace.wait(now)))
        if self._started:
            times.append(now + self._settings.poll_period)
        later = self._queue.next_at()
        if later is not None:
            times.append(later)
        return min(times)

    # --- starting ----------------------------------------------------------------------------------------------

    def _start_ready(self) -> None:
        while self._has_room() and self._queue.has_ready(self._now()):
            if self._options.pace.wait(self._now()) > 0.0 or self._options.not_ready_reason():
                return
            queue = self._queue.pop()
            held_until = self._held_until(queue)
            if self._now() < held_until and not queue.head.uncertain:
                self._queue.put(queue, at=held_until)
            else:
                self._advance(queue)

    def _held_until(self, queue: OwnerQueue) -> float:
        if not self._held:
            return 0.0
        return max(self._held.get(scope, 0.0) for scope in self._request(queue, queue.head).scopes)

    def _has_room(self) -> bool:
        return len(self._in_flight) + len(self._rechecking) < self._settings.max_in_flight

    def _advance(self, queue: OwnerQueue, *, rechecked: bool = False) -> None:
        """Perform a queue's next step: finish its next action, wait for its owner, or request the eviction."""
        eviction = queue.head
        if eviction.uncertain:
            api, timeout = self._dependencies.api, self._settings.request_timeout
            if eviction.action.how == SURGE:
                self._send(queue, confirm_restart(api, eviction.action, mark=eviction.mark, timeout=timeout))
            else:
                self._send(queue, resolve_lost_response(api, self._request(queue, eviction), timeout=timeout))
            return
        try:
            ended = self._admit(queue, eviction, rechecked=rechecked)
        except Exception as error:  # one pod that cannot be checked must not stop the others
            log.exception("Failed to validate pod %s before its eviction", eviction.action.key)
            ended = self._failed_check(eviction, error)
        if ended is not None:
            self._end(queue, ended)

    def _failed_check(self, eviction: QueuedEviction, error: Exception) -> AttemptResult:
        self._recorder.release(eviction)
        return AttemptResult(FAILED, EVICTION_FAILED, f"recheck failed: {type(error).__name__}: {error}")

    def _admit(self, queue: OwnerQueue, eviction: QueuedEviction, *, rechecked: bool) -> AttemptResult | None:
        """Admit an eviction, and send or recheck it. Return its result if it ends here; otherwise ``None``."""
        pod = self._dependencies.view.pod(eviction.action.key)
        ended = check_pod(eviction.action, pod, response_lost=eviction.response_lost)
        if ended is not None or pod is None:
            return ended
        request, evictor = self._request(queue, eviction), self._dependencies.evictor
        permit = eviction.permit
        found = evictor.admit(request, pod) if permit is None else evictor.owner_unsettled(request, pod) or permit
        if isinstance(found, PendingEviction):
            self._recorder.release(eviction)
            self._wait_for(queue, found)
            return None
        eviction.permit, queue.waits_since, queue.held = found, None, None
        if self._options.recheck is None or rechecked:
            self._send_eviction(queue, eviction, pod)
        else:
            self._recheck(queue, eviction, found, self._options.recheck)
        return None

    def _recheck(self, queue: OwnerQueue, eviction: QueuedEviction, permit: Permit, recheck: Recheck) -> None:
        """Reserve a share of the rate limit, and validate the action in a task, which may wait for a planner."""
        eviction.paced_at = self._now()
        self._options.pace.take(eviction.paced_at)

        checked = self._dependencies.evictor.recheck(permit, partial(recheck, eviction.action))
        self._rechecking[asyncio.create_task(checked)] = queue

    def _wait_for(self, queue: OwnerQueue, waiting: PendingEviction) -> None:
        if waiting.reason == WAITING_FOR_OWNER:
            self._wait_for_owner(queue, waiting.message)
            return
        queue.held, queue.waits_since = waiting, None
        again = self._now() + waiting.retry_after
        self._queue.put(queue, at=again)
        if waiting.reason == WAITING_FOR_EVICTION_LIMIT:  # other actions in its scope would wait for it as well
            self._held[waiting.scope] = again

    def _wait_for_owner(self, queue: OwnerQueue, why: str) -> None:
        now = self._now()
        queue.waits_for = why
        if queue.waits_since is None:
            queue.waits_since = now
        if now - queue.waits_since < (
            self._settings.recovery_timeout if queue.evicted else self._settings.unsettled_timeout
        ):
            self._queue.put(queue, at=now + self._settings.poll_period)
            return
        for eviction in queue.evictions:
            self._recorder.finish(eviction, AttemptResult(SKIPPED, OWNER_NOT_SETTLED, why))

    def _send_eviction(self, queue: OwnerQueue, eviction: QueuedEviction, pod: Pod) -> None:
        now = self._now()
        if eviction.permit is not None:
            self._dependencies.evictor.begin(eviction.permit)
        self._recorder.release_pace(eviction)  # it was reserved for the recheck; the rate limit counts requests
        self._options.pace.take(now)
        eviction.paced_at = now
        timeout = self._settings.request_timeout
        if eviction.action.how == SURGE:
            eviction.mark = eviction.mark or rfc3339(self._dependencies.clock.now())
            self._send(
                queue, restart(self._dependencies.api, eviction.action, pod, mark=eviction.mark, timeout=timeout)
            )
        else:
            self._send(queue, evict_once(self._dependencies.api, self._request(queue, eviction), timeout=timeout))

    def _request(self, queue: OwnerQueue, eviction: QueuedEviction) -> EvictionRequest:
        requester = self._recorder.requester(eviction)
        return request_of(
            eviction.action, owner=queue.owner, requester=requester, grace_period=self._options.grace_period
        )

    def _send(self, queue: OwnerQueue, request: Coroutine[Any, Any, AttemptResult]) -> None:
        self._in_flight[asyncio.create_task(request)] = queue

    def _poll_started(self) -> None:
        """Finish the started evictions that have ended, or all of them after the deadline."""
        started, self._started = self._started, []
        for queue in started:
            eviction = queue.head
            ended = None
            if eviction.started is not None:
                ended = eviction.started.poll(
                    eviction.action, self._dependencies.view.pod(eviction.action.key), now=self._now()
                )
                if ended is None and self._closing():
                    ended = eviction.started.unfinished("after the end of the descheduling cycle")
            if ended is None:
                self._started.append(queue)
            else:
                self._end(queue, ended)

    # --- ending ------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Process finished rechecks and requests, in the order of their actions."""
        rechecked = [(queue.head.index, task) for task, queue in self._rechecking.items() if task.done()]
        for _, recheck in sorted(rechecked, key=lambda pair: pair[0]):
            self._take_recheck(self._rechecking.pop(recheck), recheck)
        done = [(queue.head.index, task) for task, queue in self._in_flight.items() if task.done()]
        for _, task in sorted(done, key=lambda pair: pair[0]):
            self._take_answer(self._in_flight.pop(task), task)

    def _take_recheck(self, queue: OwnerQueue, task: asyncio.Task[Refusal | None]) -> None:
        error, eviction = task.exception(), queue.head
        if isinstance(error, Exception):
            if eviction.last is None:
                log.error("Failed to validate pod %s before its eviction", eviction.action.key, exc_info=error)
            eviction.last = self._failed_check(eviction, error)
            again_at = self._now() + self._delay(eviction, eviction.last)
            if self._closing() or again_at >= self._options.deadline:
                self._end(queue, self._tried(eviction, eviction.last))
            else:
                self._queue.put(queue, at=again_at)
            return
        refusal = task.result()
        if refusal is not None:
            self._end(queue, AttemptResult(REFUSED, refusal.reason, refusal.message))
        elif self._closing() or self._options.not_ready_reason():
            self._recorder.release(queue.head)
            self._queue.put(queue, at=self._now())  # it is rechecked when the watches are fresh again, or abandoned
        else:
            self._advance(queue, rechecked=True)

    def _take_answer(self, queue: OwnerQueue, task: asyncio.Task[AttemptResult]) -> None:
        eviction = queue.head
        if eviction.permit is not None:
            self._dependencies.evictor.response_received(eviction.permit)
        try:
            answer = task.result()
        except Exception as error:  # a bug in one request must not stop the others
            log.exception("Failed to evict pod %s: unexpected error", eviction.action.key)
            answer = AttemptResult(FAILED, EVICTION_FAILED, f"{type(error).__name__}: {error}")
        if not (eviction.uncertain and answer.uncertain):  # the check of a result that failed evicts nothing
            self._recorder.pace_from_now(eviction)
        if answer.result == STARTED:
            if eviction.permit is not None:
                self._dependencies.evictor.continues_in_background(eviction.permit)
            eviction.started = watch_started(
                eviction.action, answer, now=self._now(), rollout=self._settings.rollout_timeout
            )
            self._started.append(queue)
            return
        was_uncertain, eviction.last = eviction.uncertain, answer
        eviction.response_lost = eviction.response_lost or answer.uncertain
        if not answer.retry:
            self._end(queue, EVICTED_RESPONSE_LOST if eviction.response_lost and answer.result == GONE else answer)
            return
        if not answer.uncertain:
            self._recorder.release(eviction)
        again_at = (
            self._now() if was_uncertain and not answer.uncertain else self._now() + self._delay(eviction, answer)
        )
        if self._closing() or again_at >= self._options.deadline:
            self._end(queue, self._tried(eviction, answer))
        else:
            self._queue.put(queue, at=again_at)

    def _delay(self, eviction: QueuedEviction, answer: AttemptResult) -> float:
        eviction.tries += 1
        return self._dependencies.evictor.retry_delay(
            eviction.action.uid,
            self._recorder.requester(eviction),
            by_budget=answer.reason == DISRUPTION_BUDGET,
            retry_after=answer.retry_after,
        )

    def _give_up(self) -> None:
        """Finish all actions that are not in flight, because the deadline has passed or the execution was stopped."""
        options = self._options
        refusal = options.stop_refusal() if options.stop.is_set() else options.deadline_refusal
        late = AttemptResult(SKIPPED, refusal.reason, refusal.message)
        for recheck, queue in self._rechecking.items():
            recheck.cancel()
            self._abandoned.append(recheck)
            self._queue.put(queue)
        self._rechecking.clear()
        for queue in self._queue.drain():
            waits = queue.waits_since is not None and not self._options.stop.is_set()
            left = AttemptResult(SKIPPED, OWNER_NOT_SETTLED, queue.waits_for) if waits else late
            if queue.held is not None and not self._options.stop.is_set():
                left = AttemptResult(SKIPPED, queue.held.reason, queue.held.message)
            for eviction in queue.evictions:
                self._recorder.finish(eviction, left if eviction.last is None else self._tried(eviction, eviction.last))

    def _tried(self, eviction: QueuedEviction, last: AttemptResult) -> AttemptResult:
        """Return the result of an eviction that was attempted and will not be retried."""
        pod = self._dependencies.view.pod(eviction.action.key)
        if eviction.response_lost and (pod is None or pod.uid != eviction.action.uid or pod.deleted is not None):
            return EVICTED_RESPONSE_LOST
        tries = f"; tried {eviction.tries} times" if eviction.tries > 1 else ""
        unknown = "; it is unknown whether the pod is evicted" if last.uncertain else ""
        return msgspec.structs.replace(last, message=f"{last.message}{unknown}{tries}")

    def _end(self, queue: OwnerQueue, answer: AttemptResult) -> None:
        """Finish a queue's next eviction and proceed to the following one."""
        eviction = queue.evictions.popleft()
        self._recorder.finish(eviction, answer)
        queue.waits_since = None
        queue.evicted = queue.evicted or answer.result == EVICTED
        if queue.evictions:
            self._queue.put(queue, at=self._now())
