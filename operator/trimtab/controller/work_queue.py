"""The work queue of controllers. It works like client-go's workqueue, with fairness between groups and rate limits.

    queue = WorkQueue(reconcile, workers=8, clock=clock, group_of=namespace_of)
    queue.add("shop/web-1")               # process it as soon as possible
    queue.add_after("shop/web-2", 30.0)   # process it in 30 seconds
    await queue.run()                     # calls reconcile("shop/web-1"), and so on, until it is cancelled

A key passes through up to three stages:

1. Delayed: :meth:`WorkQueue.add_after` or a failure delays the key for some seconds.
2. Rate-limited: the key waits in a *flow*, as in API Priority and Fairness, until a :class:`RateLimiter` admits it. All
   keys of a flow are subject to the same limits. Within a flow, the key with the lowest priority value is admitted
   first.
3. Ready: the key waits for a free worker. Groups take turns, and no group can occupy all workers.

The guarantees of client-go's workqueue apply: the queue contains a waiting key once, two workers never process the same
key at the same time, and a key that is added while a worker processes it is processed again afterwards.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Iterator
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from trimtab.controller.metrics import QueueMetrics, WorkQueueMetrics
from trimtab.controller.timers import TimerHeap
from trimtab.kube.api import ApiError, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.retry import Backoff

logger = logging.getLogger(__name__)

RETRY: Final = Backoff(initial=0.2, maximum=5.0)

GROUP_SHARE: Final = 3
"""Maximum number of workers of a group, as a multiple of the number of free workers: 24 of 32 workers if it is the only
group, 6 of the remaining 8 for a second group, and so on. A webhook that delays each request in one namespace by ten
seconds therefore does not delay the pods of other namespaces.
"""

BATCH: Final = 500
"""Maximum number of keys that move to the next stage before other tasks of the event loop run."""

MIN_WAIT: Final = 0.001
"""Minimum wait in seconds. Floating-point errors can produce shorter waits, which would cause a busy loop."""

PAUSE_POLL: Final = 0.25
"""Seconds between two checks of whether a paused queue may continue."""


class Retry(Struct, frozen=True, kw_only=True):
    """The return value of ``reconcile`` for a failure that it has already reported.

    The queue retries the key with backoff.

    Attributes:
        backoff: replaces the backoff of the queue; ``None`` to use the queue's backoff.
        at_least: minimum delay in seconds, for example the server's ``Retry-After``.
        at_most: maximum delay in seconds, for example the time until a deadline.
    """

    backoff: Backoff | None = None
    at_least: float = 0.0
    at_most: float = float("inf")


Reconcile: TypeAlias = Callable[[str], Awaitable[float | Retry | None]]


class RateLimiter(Protocol):
    """Decides when keys are admitted. The keys of a flow are subject to the same limits.

    All times are seconds on the queue's monotonic clock.
    """

    def flow_of(self, key: str) -> Hashable | None:
        """Return the flow of a key; ``None`` if no limit applies to the key.

        The queue calls this method each time the key is added, also while the key waits. It may reschedule the key.
        """
        ...

    def next_at(self, flow: Hashable) -> float:
        """Return the earliest time at which the rate limits admit the next key of a flow."""
        ...

    def next_at_any_flow(self) -> float:
        """Return the earliest time at which the limit shared by all flows admits a key; ``-inf`` if there is none."""
        ...

    def take(self, key: str, flow: Hashable, now: float) -> None:
        """Consume the tokens for an admitted key."""
        ...


class QueueStatistics(Struct, frozen=True, kw_only=True):
    """The counters of a queue. The terms are those of client-go's workqueue metrics.

    Attributes:
        depth: number of ready keys that wait for a worker.
        delayed: number of delayed keys.
        rate_limited: number of keys that wait for the rate limiter.
        processing: number of keys that workers are processing.
        processed: number of times that a worker has finished a key since the start.
        retries: number of times that a key was requeued with backoff since the start.
        queue_seconds: total seconds for which the processed keys were ready before a worker took them.
        work_seconds: total seconds that workers spent on the processed keys.
    """

    depth: int
    delayed: int
    rate_limited: int
    processing: int
    processed: int
    retries: int
    queue_seconds: float
    work_seconds: float


class WorkQueue:
    """Processes keys with a fixed number of concurrent workers. The module describes the stages of a key.

    The methods that change the queue return immediately. Call them from the event loop's thread. They may be called
    before :meth:`run` and from ``reconcile``.
    """

    def __init__(
        self,
        reconcile: Reconcile,
        *,
        workers: int,
        clock: Clock,
        retry: Backoff = RETRY,
        retries_per_second: float = float("inf"),
        group_of: Callable[[str], Hashable] | None = None,
        priority_of: Callable[[str], float] | None = None,
        rate_limiter: RateLimiter | None = None,
        paused: Callable[[], bool] | None = None,
        metrics: QueueMetrics | None = None,
    ) -> None:
        """Create a queue; :meth:`run` starts its workers.

        Args:
            reconcile: processes a key. It returns ``None`` on success, the seconds after which to process the key
                again, or a :class:`Retry`. If it raises an exception, the queue logs the exception and retries the key
                with backoff, but not before the server's ``Retry-After``.
            workers: number of keys that are processed concurrently.
            clock: provides the time.
            retry: the backoff of a key that failed several times in a row.
            retries_per_second: approximate maximum rate of retries of all keys together. It prevents overloading a
                webhook that refuses thousands of requests.
            group_of: returns the group of a key, usually its namespace. With ``None`` there are no groups, so any key
                may get the last free worker.
            priority_of: returns the priority value of a key when it starts to wait. Within a group and within a flow,
                the key with the lowest value is processed first. Keys with equal values are processed in the order in
                which they were added.
            rate_limiter: the rate limits; ``None`` for no limits.
            paused: returns whether workers must not start another key, for example while watches are stale.
            metrics: metrics of this queue; ``None`` to export no metrics.
        """
        self._reconcile = reconcile
        self._workers = workers
        self._clock = clock
        self._retry = retry
        self._retries_per_second = retries_per_second
        self._paused = paused
        self._priority_of = priority_of or (lambda _: 0.0)
        self._ready = _FairQueue(group_of)
        self._delayed: TimerHeap[str] = TimerHeap()
        self._rate_limited = None if rate_limiter is None else _RateLimitedQueue(rate_limiter)
        self._dirty: set[str] = set()
        self._processing: set[str] = set()
        self._failures: dict[str, int] = {}
        self._group: asyncio.TaskGroup | None = None
        self._changed = asyncio.Event()
        self._alarm: tuple[float, asyncio.Task[None]] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False
        self._metrics = metrics or WorkQueueMetrics().queue("")
        self._processed = self._retries = 0
        self._queue_seconds = self._work_seconds = 0.0

    # --- changing it ------------------------------------------------------------------------------------------------

    def add(self, key: str) -> None:
        """Add a key, which is processed as soon as possible.

        No-op if the key is already waiting, except that a key to which no rate limit applies any more becomes ready.
        """
        if key in self._dirty:
            if self._rate_limited is not None and self._rate_limited.discard_unlimited(key):
                self._enqueue(key)
            return
        self._dirty.add(key)
        self._metrics.added()
        if key not in self._processing:
            self._enqueue(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Add a key after a delay in seconds. If this is called several times for a key, the earliest time applies."""
        due = self._clock.monotonic() + seconds
        known = self._delayed.due(key)
        if known is None or due < known:
            self._delayed.set(key, due, key)
            self._notify()

    def reschedule(self, key: str, seconds: float | None) -> None:
        """Replace the delay that :meth:`add_after` or a failure has set; ``None`` removes it."""
        self._delayed.cancel(key)
        if seconds is not None:
            self.add_after(key, seconds)

    def expedite(self, key: str) -> None:
        """Add a delayed key immediately. No-op for keys that are not delayed."""
        if self._delayed.cancel(key) is not None:
            self.add(key)

    def discard(self, key: str) -> None:
        """Remove a waiting key and reset its failures. A worker that is processing the key finishes."""
        self._delayed.cancel(key)
        self._dirty.discard(key)
        self._failures.pop(key, None)
        self._ready.discard(key)
        if self._rate_limited is not None:
            self._rate_limited.discard(key)

    def forget(self, key: str) -> None:
        """Reset the failures of a key, so that its next failure has the initial backoff."""
        self._failures.pop(key, None)

    def set_rate_limiter(self, rate_limiter: RateLimiter) -> None:
        """Replace the rate limiter. Waiting keys keep their order."""
        waiting = [] if self._rate_limited is None else list(self._rate_limited.clear())
        self._rate_limited = _RateLimitedQueue(rate_limiter)
        for key in waiting:
            self._enqueue(key)

    def wake(self) -> None:
        """Check all rate-limited keys again, because the limits were raised."""
        if self._rate_limited is not None:
            self._rate_limited.recheck()
        self._notify()

    # --- inspecting it ----------------------------------------------------------------------------------------------

    def __contains__(self, key: str) -> bool:
        return key in self._dirty or key in self._processing or key in self._delayed

    def failures(self, key: str) -> int:
        """Return the number of failures of a key since its last success."""
        return self._failures.get(key, 0)

    def next_due(self, key: str) -> float | None:
        """Return the time on the monotonic clock at which a key becomes ready; ``None`` if the key is not delayed."""
        return self._delayed.due(key)

    def statistics(self) -> QueueStatistics:
        """Return the counters of the queue for metrics and status."""
        return QueueStatistics(
            depth=len(self._ready),
            delayed=len(self._delayed),
            rate_limited=0 if self._rate_limited is None else len(self._rate_limited),
            processing=len(self._processing),
            processed=self._processed,
            retries=self._retries,
            queue_seconds=self._queue_seconds,
            work_seconds=self._work_seconds,
        )

    # --- running it -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Process keys until cancelled. A later call processes the interrupted keys again."""
        self._metrics.started(self._ready.__len__)
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    await self._move_up_until_cancelled()
                finally:
                    self._group = None  # before the workers are cancelled, so that none of them starts another key
                    self._wake_at(None)
        finally:
            self._metrics.stopped()
            for key in tuple(self._processing):  # a task that is cancelled before its first step runs no `finally`
                self._dirty.add(key)
                self._release(key)

    async def drain(self, seconds: float) -> bool:
        """Start no further key, and wait for the keys in progress.

        Args:
            seconds: timeout in seconds.

        Returns:
            Whether all of them finished in time.
        """
        self._draining = True
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def _enqueue(self, key: str) -> None:
        priority = self._priority_of(key)
        if self._rate_limited is None or not self._rate_limited.put(key, priority):
            self._ready.put(key, priority, now=self._clock.monotonic())
            self._metrics.ready()
        self._notify()  # no worker starts yet: keys added together are ordered, and duplicates merged, first

    def _notify(self) -> None:
        """Wake :meth:`run` because keys or limits have changed."""
        self._changed.set()
        self._metrics.changed()

    async def _move_up_until_cancelled(self) -> None:
        while True:
            self._changed.clear()
            now = self._clock.monotonic()
            next_at = self._move_up(now)
            if next_at is not None and next_at <= now:
                await asyncio.sleep(0)
            else:
                self._metrics.moved(None if next_at is None else next_at - now)
                self._wake_at(next_at)
                await self._changed.wait()

    def _move_up(self, now: float) -> float | None:
        """Move keys to their next stage, and return the time of the next move.

        The time is ``None`` if no key will move until the queue changes.
        """
        if self._draining:
            return None
        if self._paused is not None and self._paused():
            self._metrics.paused()
            return now + PAUSE_POLL
        due = self._delayed.take(now, limit=BATCH)
        for key in due:
            self.add(key)
        passed = [] if self._rate_limited is None else self._rate_limited.take(now, limit=BATCH)
        for key in passed:
            self._ready.put(key, self._priority_of(key), now=now)
            self._metrics.ready()
        self._start_workers()
        if BATCH in (len(due), len(passed)):
            return now
        times = [self._delayed.next_due, None if self._rate_limited is None else self._rate_limited.next_at()]
        first = min((at for at in times if at is not None), default=None)
        return None if first is None else max(first, now + MIN_WAIT)

    def _start_workers(self) -> None:
        """Assign ready keys to free workers."""
        if self._group is None or self._draining or (self._paused is not None and self._paused()):
            return
        while (handed := self._ready.pop(self._workers)) is not None:
            key, since = handed
            waited = self._clock.monotonic() - since
            self._queue_seconds += waited
            self._metrics.handed_out(waited)
            self._dirty.discard(key)
            self._processing.add(key)
            self._idle.clear()
            self._group.create_task(self._process(key), name=f"work {key}")

    async def _process(self, key: str) -> None:
        start = self._clock.monotonic()
        try:
            await self._attempt(key)
        except asyncio.CancelledError:
            self._dirty.add(key)
            raise
        finally:
            took = self._clock.monotonic() - start
            self._work_seconds += took
            self._metrics.processed(took)
            self._processed += 1
            self._release(key)

    def _release(self, key: str) -> None:
        """Free the worker of a key, and enqueue the key again if it was added in the meantime."""
        self._processing.discard(key)
        self._ready.done(key)
        if not self._processing:
            self._idle.set()
        if key in self._dirty:
            self._enqueue(key)
        self._start_workers()

    async def _attempt(self, key: str) -> None:
        try:
            result = await self._reconcile(key)
        except (ApiError, Unreachable) as error:
            retry_after = (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0
            level = logging.WARNING if self.failures(key) else logging.INFO
            seconds = self._back_off(key, Retry(at_least=retry_after))
            logger.log(level, "Failed to reconcile %s; retrying in %.1f s: %s", key, seconds, error)
        except Exception:
            seconds = self._back_off(key, Retry())
            logger.exception("Failed to reconcile %s; retrying in %.1f s", key, seconds)
        else:
            if isinstance(result, Retry):
                self._back_off(key, result)
                return
            self._failures.pop(key, None)
            if result is not None:
                self.add_after(key, result)

    def _back_off(self, key: str, retry: Retry) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._retries += 1
        self._metrics.retried()
        crowd = len(self._delayed) / self._retries_per_second
        seconds = max((retry.backoff or self._retry).delay(failures), crowd, retry.at_least)
        seconds = max(0.0, min(seconds, retry.at_most))
        self.add_after(key, seconds)
        return seconds

    def _wake_at(self, at: float | None) -> None:
        """Set the queue's only timer to the next relevant time. If that time has not changed, the timer is kept."""
        if self._alarm is not None:
            if self._alarm[0] == at and not self._alarm[1].done():
                return
            self._alarm[1].cancel()
        self._alarm = None
        if at is not None:
            self._alarm = (
                at,
                asyncio.create_task(self._wake_later(at - self._clock.monotonic()), name="work queue timer"),
            )

    async def _wake_later(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._changed.set()


class _FairQueue:
    """The ready keys. Groups take turns; within a group, keys are sorted by priority value and then by age."""

    def __init__(self, group_of: Callable[[str], Hashable] | None) -> None:
        self._group_of = group_of
        self._number = 0
        self._waiting: dict[
            str, tuple[int, float]
        ] = {}  # by key: sequence number, and the time at which it became ready
        self._heaps: dict[Hashable, list[tuple[float, int, str]]] = {}
        self._turns: deque[Hashable] = deque()
        self._busy: Counter[Hashable] = Counter()
        self._groups: dict[str, Hashable] = {}  # group by key, of the keys in progress

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, key: str, priority: float, *, now: float) -> None:
        self._number += 1
        self._waiting[key] = self._number, now
        group = self._group(key)
        if group not in self._heaps:
            self._heaps[group] = []
            self._turns.append(group)
        heapq.heappush(self._heaps[group], (priority, self._number, key))

    def discard(self, key: str) -> None:
        self._waiting.pop(key, None)  # its heap entry is dropped when it reaches the top

    def pop(self, workers: int) -> tuple[str, float] | None:
        """Remove and return the next key and the time at which it became ready.

        Return ``None`` if no key may get a worker now.
        """
        for _ in range(len(self._turns)):
            if len(self._groups) >= workers:
                return None
            group = self._turns.popleft()
            heap = self._heaps[group]
            while heap and self._waiting.get(heap[0][2], (0, 0.0))[0] != heap[0][1]:
                heapq.heappop(heap)
            if not heap:
                del self._heaps[group]
                continue
            self._turns.append(group)
            if self._group_of is not None and self._busy[group] >= GROUP_SHARE * (workers - len(self._groups)):
                continue
            key = heapq.heappop(heap)[2]
            if not heap:
                del self._heaps[group]
                self._turns.pop()
            self._busy[group] += 1
            self._groups[key] = group
            return key, self._waiting.pop(key)[1]
        return None

    def done(self, key: str) -> None:
        group = self._groups.pop(key)
        self._busy[group] -= 1
        if not self._busy[group]:
            del self._busy[group]

    def _group(self, key: str) -> Hashable:
        return None if self._group_of is None else self._group_of(key)


class _RateLimitedQueue:
    """The keys that wait for a rate limiter, by flow.

    Only the first key of each flow is checked, and a blocked flow is not checked before its first key may be admitted.
    Thousands of waiting keys therefore cost nothing.
    """

    def __init__(self, rate_limiter: RateLimiter) -> None:
        self._limiter = rate_limiter
        self._number = 0
        self._waiting: dict[str, int] = {}
        self._flows: dict[Hashable, list[tuple[float, int, str]]] = {}
        # Open flows are sorted by the priority of their first key, and blocked flows by the time of their next check. A
        # flow is in one of the two heaps; of its heap entries only the one with the number in _entries is valid.
        self._open: list[tuple[float, int, Hashable]] = []
        self._blocked: list[tuple[float, int, Hashable]] = []
        self._entries: dict[Hashable, int] = {}
        self._blocked_flows: set[Hashable] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, key: str, priority: float) -> bool:
        """Add a key to its flow. Return ``False`` if no limit applies to the key."""
        flow = self._limiter.flow_of(key)
        if flow is None:
            return False
        number = self._next_number()
        self._waiting[key] = number
        heapq.heappush(self._flows.setdefault(flow, []), (priority, number, key))
        if flow not in self._blocked_flows and self._flows[flow][0][1] == number:  # the new first key
            self._push(self._open, priority, flow)
        return True

    def discard(self, key: str) -> None:
        self._waiting.pop(key, None)

    def discard_unlimited(self, key: str) -> bool:
        """Remove a key to which no limit applies any more, and return whether it was removed."""
        if key not in self._waiting or self._limiter.flow_of(key) is not None:
            return False
        self.discard(key)
        return True

    def clear(self) -> Iterator[str]:
        """Remove and return all keys, lowest priority value first."""
        entries = [entry for flow in self._flows.values() for entry in flow if self._waiting.get(entry[2]) == entry[1]]
        self._waiting.clear()
        for each in (self._flows, self._open, self._blocked, self._entries, self._blocked_flows):
            each.clear()
        return (key for _, _, key in sorted(entries))

    def take(self, now: float, *, limit: int) -> list[str]:
        """Remove and return the keys that the rate limiter admits now, at most ``limit``."""
        taken: list[str] = []
        while self._blocked and self._blocked[0][0] <= now:
            _, number, flow = heapq.heappop(self._blocked)
            if self._entries.get(flow) == number:
                self._blocked_flows.discard(flow)
                self._reopen(flow)
        while self._open and len(taken) < limit and self._limiter.next_at_any_flow() <= now:
            priority, number, flow = heapq.heappop(self._open)
            if self._entries.get(flow) != number:
                continue
            head = self._head(flow)
            if head is not None and (at := self._limiter.next_at(flow)) > now:
                self._blocked_flows.add(flow)
                self._push(self._blocked, at, flow)
                continue
            if head is not None and head[0] <= priority:  # else the first key was discarded, and flows may be reordered
                key = heapq.heappop(self._flows[flow])[2]
                del self._waiting[key]
                self._limiter.take(key, flow, now)
                taken.append(key)
            self._reopen(flow)
        return taken

    def recheck(self) -> None:
        """Check all blocked flows again immediately instead of at the time that the rate limiter returned earlier."""
        for flow in self._blocked_flows:
            self._reopen(flow)
        self._blocked.clear()
        self._blocked_flows.clear()

    def next_at(self) -> float | None:
        """Return the next time at which a key may be admitted; ``None`` if no key waits."""
        if not self._waiting:
            return None
        shared = self._limiter.next_at_any_flow()
        return shared if self._open or not self._blocked else max(shared, self._blocked[0][0])

    def _reopen(self, flow: Hashable) -> None:
        head = self._head(flow)
        if head is None:
            del self._flows[flow]
            del self._entries[flow]
        else:
            self._push(self._open, head[0], flow)

    def _push(self, heap: list[tuple[float, int, Hashable]], value: float, flow: Hashable) -> None:
        number = self._entries[flow] = self._next_number()
        heapq.heappush(heap, (value, number, flow))

    def _head(self, flow: Hashable) -> tuple[float, int, str] | None:
        waiting = self._flows[flow]
        while waiting and self._waiting.get(waiting[0][2]) != waiting[0][1]:
            heapq.heappop(waiting)
        return waiting[0] if waiting else None

    def _next_number(self) -> int:
        self._number += 1
        return self._number
