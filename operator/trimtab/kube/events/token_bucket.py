"""A rate with a burst, without a clock of its own."""

from __future__ import annotations


class TokenBucket:
    """Holds up to ``burst`` tokens and gets ``rate`` a second; each thing done takes one.

    Args:
        rate: tokens a second.
        burst: how many may be taken at once after a pause; also what it starts with.
        now: seconds on the clock that later calls use; a monotonic one.
    """

    def __init__(self, *, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = now

    def take(self, now: float) -> bool:
        """Take a token if there is one."""
        self._fill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def wait(self, now: float) -> float:
        """Seconds until there is a token; 0 if there is one."""
        self._fill(now)
        return max(0.0, (1.0 - self._tokens) / self._rate)

    def _fill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = max(self._at, now)
