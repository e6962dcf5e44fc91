"""Timers for the pods of a whole cluster in one heap: no task each, and moving one costs as little as setting it.

A heap cannot drop an entry from its middle. One that was moved or cancelled stays until it comes up, and is known then
by its number, which is not that of the timer any more; when more than half the entries are of that kind the heap is
made anew, which each change has paid for by then.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from msgspec import Struct

from trimtab.kube.clock import Clock

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_AGAIN: Final = 1.0
"""Seconds after which the clock is looked at again at the latest: who sets the host's clock moves all that is due."""

BATCH: Final = 500
"""Timers that are handed out before others on the event loop have their turn."""

_FLOOR: Final = 1024
"""Entries below which it is not worth while to make the heap anew."""


class Timer(Struct, Generic[T], frozen=True, gc=False):
    """What is due when: ``due`` in seconds since the epoch, ``number`` rises with each that is set."""

    due: float
    number: int
    value: T


class TimerHeap(Generic[T]):
    """What is due when, by key; setting, moving, cancelling and taking out cost O(log n) on average.

    Of several that are due at one time those that were set first come first.
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
        """How long the heap is, entries of no account included: less than twice the timers, but for a few."""
        return len(self._heap)

    @property
    def next_due(self) -> float | None:
        """When the first one is due, ``None`` where there is none."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def set(self, key: str, due: float, value: T) -> None:
        """Set a key's timer, or move it; the new value counts."""
        self._number += 1
        self._timers[key] = Timer(due, self._number, value)
        heapq.heappush(self._heap, (due, self._number, key))
        self._tidy()

    def cancel(self, key: str) -> T | None:
        """Take a key's timer away; what it held, ``None`` where there was none."""
        timer = self._timers.pop(key, None)
        self._tidy()
        return None if timer is None else timer.value

    def take(self, now: float, *, limit: int) -> list[T]:
        """Take out what is due by now, the first due first, at most so many."""
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

    def _tidy(self) -> None:
        if len(self._heap) > max(_FLOOR, 2 * len(self._timers)):
            self._heap = [(timer.due, timer.number, key) for key, timer in self._timers.items()]
            heapq.heapify(self._heap)


class Timers(Generic[T]):
    """Hands out what is due, when it is due, for as long as :meth:`run` runs.

    Times are the wall clock's, since they are compared with what is written in the cluster: a process that comes later
    hands out at the same time what this one would have, and at once what is overdue by then.

    Args:
        fire: takes what is due, at once and without waiting; that one cannot be taken is logged, and the rest go on.
        clock: tells the wall clock's time; the event loop waits.
    """

    def __init__(self, fire: Callable[[T], None], clock: Clock) -> None:
        self._fire = fire
        self._clock = clock
        self._heap: TimerHeap[T] = TimerHeap()
        self._moved = asyncio.Event()

    def __len__(self) -> int:
        return len(self._heap)

    def __contains__(self, key: str) -> bool:
        return key in self._heap

    @property
    def next_due(self) -> float | None:
        """When the first is due, in seconds since the epoch; ``None`` where there is none."""
        return self._heap.next_due

    def set(self, key: str, due: float, value: T) -> None:
        """Set a key's timer, or move it to another time, sooner or later; what is overdue is handed out next."""
        first = self._heap.next_due
        self._heap.set(key, due, value)
        if first is None or due < first:
            self._moved.set()

    def cancel(self, key: str) -> T | None:
        """Take a key's timer away; what it held, ``None`` where there was none."""
        return self._heap.cancel(key)

    async def run(self) -> None:
        """Hand out until cancelled."""
        while True:
            self._moved.clear()
            due = self._heap.take(self._clock.now(), limit=BATCH)
            for value in due:
                self._hand_out(value)
            if len(due) == BATCH:
                await asyncio.sleep(0)
            else:
                await self._wait()

    async def _wait(self) -> None:
        """Until the first is due, an earlier one is set, or it is time to look at the clock again."""
        first = self._heap.next_due
        seconds = None if first is None else min(LOOK_AGAIN, first - self._clock.now())
        try:
            async with asyncio.timeout(seconds):
                await self._moved.wait()
        except TimeoutError:
            return

    def _hand_out(self, value: T) -> None:
        try:
            self._fire(value)
        except Exception:  # one of 150,000 must not hold up the rest
            logger.exception("a timer was due and could not be handed out: %r", value)
