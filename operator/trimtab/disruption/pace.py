"""The pace of evictions: so many a minute, evenly enough."""

from __future__ import annotations

from collections import deque
from typing import Final

MINUTE: Final = 60.0
BURST_SHARE: Final = 6
"""A sixth of a minute's evictions may come at once, so that a short plan is soon done."""

LARGEST_BURST: Final = 10


class Pace:
    """A log of the last minute's evictions, from which follows when the next may be.

    Never more than ``per_minute`` fall into any minute, whenever it begins. A token bucket alone would let its burst
    pass on top of that; a counter of whole minutes would let two minutes' worth meet. An eviction that the API server
    did not take is struck from the log.
    """

    def __init__(self) -> None:
        self._log: deque[float] = deque()

    def wait(self, now: float, *, per_minute: int) -> float:
        """Seconds until the next eviction may start; 0 if it may now.

        Args:
            now: seconds on a monotonic clock, the same for all calls.
            per_minute: at least 1.
        """
        self._forget(now)
        burst = max(1, min(LARGEST_BURST, per_minute // BURST_SHARE))
        return max(
            0.0,
            self._until(now, number=per_minute, window=MINUTE),
            self._until(now, number=burst, window=MINUTE * burst / per_minute),
        )

    def take(self, now: float) -> None:
        """Note an eviction that starts now."""
        self._log.append(now)

    def give_back(self, started: float) -> None:
        """Strike out the eviction that started then: it came to nothing."""
        if started in self._log:
            self._log.remove(started)

    def _until(self, now: float, *, number: int, window: float) -> float:
        """Seconds until fewer than ``number`` evictions lie within the last ``window`` seconds."""
        return self._log[-number] + window - now if len(self._log) >= number else 0.0

    def _forget(self, now: float) -> None:
        while self._log and self._log[0] <= now - MINUTE:
            self._log.popleft()
