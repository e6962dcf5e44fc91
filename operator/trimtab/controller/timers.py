"""Timers for all pods of a cluster in one heap, so that no timer needs a task and rescheduling is cheap.

A heap cannot remove an entry from its middle. If a timer was rescheduled or cancelled, its old entry stays in the heap
until it reaches the top, and is dropped there because its number differs from that of the timer. When more than half of
the entries are outdated, the heap is rebuilt. A change therefore costs O(1) amortized in addition to the heap
operation.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from msgspec import Struct

from trimtab.controller.progress import Component, current_component
from trimtab.kube.clock import Clock

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLOCK_CHECK: Final = 1.0
"""Maximum seconds between two reads of the clock. If the host's clock is changed, timers may suddenly be due."""

MAX_BATCH: Final = 500
"""Maximum number of timers that fire before other tasks of the event loop run."""

_MIN_REBUILD_SIZE: Final = 1024
"""Minimum number of entries at which the heap is rebuilt."""


class Timer(Struct, Generic[T], frozen=True, gc=False):
    """A value and the time at which it is due.

    Attributes:
        due: the due time, in the unit and on the clock of the caller.
        number: a sequence number, which increases with every :meth:`TimerHeap.set`.
        value: the value that is returned when the timer is due.
    """

    due: float
    number: int
    value: T


class TimerHeap(Generic[T]):
    """Timers by key. Each operation costs O(log n) amortized.

    Timers that are due at the same time are returned in the order in which they were set.
    """

    def __init__(self) -> None:
        self._timers: dict[str, Timer[T]] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, key: str) -> bool:
        return key in self._timers

    @property
    def entries(self) -> int:
        """Return the number of heap entries, including outdated ones.

        It is at most twice the number of timers, or a constant if there are few timers.
        """
        return len(self._heap)

    @property
    def next_due(self) -> float | None:
        """Return the due time of the earliest timer; ``None`` if there is none."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def due(self, key: str) -> float | None:
        """Return the due time of a key's timer; ``None`` if the key has none."""
        timer = self._timers.get(key)
        return None if timer is None else timer.due

    def set(self, key: str, due: float, value: T) -> None:
        """Set or reschedule the timer of a key, with a new value."""
        self._number += 1
        self._timers[key] = Timer(due, self._number, value)
        heapq.heappush(self._heap, (due, self._number, key))
        self._compact()

    def cancel(self, key: str) -> T | None:
        """Cancel the timer of a key and return its value; ``None`` if it has none."""
        timer = self._timers.pop(key, None)
        self._compact()
        return None if timer is None else timer.value

    def take(self, now: float, *, limit: int) -> list[T]:
        """Remove the timers that are due, at most ``limit``, and return their values, earliest first."""
        found: list[T] = []
        while len(found) < limit and (due := self.next_due) is not None and due <= now:
            found.append(self._timers.pop(heapq.heappop(self._heap)[2]).value)
        return found

    def _drop_stale(self) -> None:
        while self._heap and self._stale(self._heap[0]):
            heapq.heappop(self._heap)

    def _stale(self, entry: tuple[float, int, str]) -> bool:
        timer = self._timers.get(entry[2])
        return timer is None or timer.number != entry[1]

    def _compact(self) -> None:
        if len(self._heap) > max(_MIN_REBUILD_SIZE, 2 * len(self._timers)):
            self._heap = [(timer.due, timer.number, key) for key, timer in self._timers.items()]
            heapq.heapify(self._heap)


class Timers(Generic[T]):
    """Fires timers when they are due, while :meth:`run` is running.

    Times are seconds since the epoch on the wall clock, because deadlines depend on times that are stored in the
    cluster. A restarted process therefore fires at the same times. Timers that became due in the meantime fire
    immediately.

    Args:
        fire: called with the value of each due timer. It must not block. Its exceptions are logged.
        clock: the wall clock. Waiting uses the event loop.
    """

    def __init__(self, fire: Callable[[T], None], clock: Clock) -> None:
        self._fire = fire
        self._clock = clock
        self._heap: TimerHeap[T] = TimerHeap()
        self._moved = asyncio.Event()
        self._component = Component("timers")  # until it runs

    def __len__(self) -> int:
        return len(self._heap)

    def __contains__(self, key: str) -> bool:
        return key in self._heap

    @property
    def next_due(self) -> float | None:
        """Return the due time of the earliest timer, in seconds since the epoch; ``None`` if there is none."""
        return self._heap.next_due

    def set(self, key: str, due: float, value: T) -> None:
        """Set or reschedule the timer of a key. An overdue timer fires as soon as possible."""
        first = self._heap.next_due
        self._heap.set(key, due, value)
        if first is None or due < first:
            self._moved.set()
            self._component.expect()

    def cancel(self, key: str) -> T | None:
        """Cancel the timer of a key and return its value; ``None`` if it has none."""
        return self._heap.cancel(key)

    async def run(self) -> None:
        """Fire timers until cancelled."""
        component = self._component = current_component()
        while True:
            component.begin()
            self._moved.clear()
            due = self._heap.take(self._clock.now(), limit=MAX_BATCH)
            for value in due:
                self._fire_safely(value)
            if len(due) == MAX_BATCH:
                await asyncio.sleep(0)
            else:
                first = self._heap.next_due
                seconds = None if first is None else min(CLOCK_CHECK, first - self._clock.now())
                component.succeed(seconds)
                await self._wait(seconds)

    async def _wait(self, seconds: float | None) -> None:
        """Wait until the earliest timer is due, an earlier timer is set, or the clock must be read again."""
        try:
            async with asyncio.timeout(seconds):
                await self._moved.wait()
        except TimeoutError:
            return

    def _fire_safely(self, value: T) -> None:
        try:
            self._fire(value)
        except Exception:  # one failing timer of 150,000 must not delay the others
            logger.exception("Failed to process the expired timer for %r", value)
