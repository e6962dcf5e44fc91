"""Rate limiters. The caller passes the current time, in seconds on one monotonic clock.

    bucket = TokenBucket(rate=10.0, burst=20.0, now=clock.monotonic())  # 10 per second, bursts of 20
    if not bucket.take(now):
        await clock.sleep(bucket.wait(now))

    window = SlidingWindow((60, 60.0), (10, 10.0))  # at most 60 in any minute, and 10 in any ten seconds

A token bucket allows a burst in addition to its rate. A sliding window limits the number of events in every interval of
a given length, and stores one number for each event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

ALWAYS: Final = float("-inf")
"""The earliest time of the next event if there is no limit."""

_ROUNDING: Final = 1e-9
"""Maximum floating-point error of a sum of times, in seconds."""

_TIDY_FROM: Final = 1024


class TokenBucket:
    """A token bucket with up to ``burst`` tokens. It gains ``rate`` tokens per second, and each event takes one token.

    In any interval of T seconds at most ``rate * T + burst`` tokens are taken.

    Args:
        rate: the tokens per second.
        burst: the capacity, at least 1.
        now: the current time.
        last: the time at which a token was last taken, possibly by an earlier process, or ``None`` for a full bucket.
            It prevents a new burst after a restart.
    """

    def __init__(self, *, rate: float, burst: float, now: float, last: float | None = None) -> None:
        self._step = 1.0 / rate
        self._full = burst / rate
        # The time at which the bucket was empty. The number of tokens follows from it without accumulating errors.
        self._empty_at = now - self._full if last is None else max(min(last, now), now - self._full)
        self._last: float | None = None

    def take(self, now: float) -> bool:
        """Take a token if one is available, and return whether it was taken."""
        empty_at = max(self._empty_at, now - self._full)
        if now < empty_at + self._step - _ROUNDING:
            return False
        self._empty_at = empty_at + self._step
        self._last = now
        return True

    def next_at(self) -> float:
        """Return the earliest time at which a token is available."""
        return self._empty_at + self._step

    def wait(self, now: float) -> float:
        """Return the seconds until a token is available, or 0 if one is available now."""
        wait = self.next_at() - now
        return wait if wait > _ROUNDING else 0.0

    def give_back(self, taken: float) -> None:
        """Put back the token that was taken at the time ``taken``, because its event did not happen.

        If another token has been taken since, the token is not put back, because two events could then follow each
        other faster than the rate.
        """
        if self._last == taken:
            self._empty_at -= self._step
            self._last = None


class KeyedTokenBuckets(Generic[K]):
    """A :class:`TokenBucket` for each key. Full buckets are dropped, so the number of keys need not be limited.

    Args:
        rate: the tokens per second for each key, or ``None`` for no limit.
        burst: the capacity of each bucket, at least 1.
    """

    def __init__(self, rate: float | None, *, burst: float = 1.0) -> None:
        self._rate = rate
        self._burst = burst
        self._buckets: dict[K, TokenBucket] = {}
        self._tidy_at = _TIDY_FROM

    def __len__(self) -> int:
        return len(self._buckets)

    def next_at(self, key: K) -> float:
        """Return the earliest time at which a token is available for a key; ``-inf`` if there is no limit."""
        bucket = self._buckets.get(key)
        return ALWAYS if bucket is None else bucket.next_at()

    def take(self, key: K, now: float) -> bool:
        """Take a token for a key if one is available, and return whether it was taken."""
        if self._rate is None:
            return True
        bucket = self._buckets.get(key)
        if bucket is None:
            self._drop_full(now)
            bucket = self._buckets[key] = TokenBucket(rate=self._rate, burst=self._burst, now=now)
        return bucket.take(now)

    def give_back(self, key: K, taken: float) -> None:
        """See :meth:`TokenBucket.give_back`."""
        bucket = self._buckets.get(key)
        if bucket is not None:
            bucket.give_back(taken)

    def _drop_full(self, now: float) -> None:
        if len(self._buckets) >= self._tidy_at:
            assert self._rate is not None
            refill = (self._burst - 1.0) / self._rate
            self._buckets = {key: each for key, each in self._buckets.items() if each.next_at() + refill > now}
            self._tidy_at = max(_TIDY_FROM, 2 * len(self._buckets))


class SlidingWindow:
    """Limits the number of events in every interval of a given length. Several limits can be combined.

    Args:
        limits: pairs of the maximum number of events (at least 1) and the length of the interval in seconds.
    """

    def __init__(self, *limits: tuple[int, float]) -> None:
        self._limits = limits
        self._times: deque[float] = deque()

    def __len__(self) -> int:
        return len(self._times)

    def limit(self, *limits: tuple[int, float]) -> None:
        """Replace the limits.

        Past events count toward the new limits, as far as the previous limits required them to be stored.
        """
        self._limits = limits

    def wait(self, now: float) -> float:
        """Return the seconds until the next event is allowed, or 0 if it is allowed now."""
        longest = max((seconds for _, seconds in self._limits), default=0.0)
        while self._times and self._times[0] <= now - longest:
            self._times.popleft()
        return max((self._wait_for(now, number, seconds) for number, seconds in self._limits), default=0.0)

    def take(self, now: float) -> None:
        """Record an event, regardless of whether the limits allow it."""
        self._times.append(now)

    def give_back(self, taken: float) -> None:
        """Remove the event that was recorded at the time ``taken``, because it did not happen."""
        if taken in self._times:
            self._times.remove(taken)

    def postpone(self, taken: float, now: float) -> None:
        """Record the event of the time ``taken`` at a later time instead. It may have been dropped meanwhile."""
        for index in range(len(self._times) - 1, -1, -1):
            if self._times[index] <= taken:
                if self._times[index] == taken:
                    del self._times[index]
                break
        self._times.append(now)

    def _wait_for(self, now: float, number: int, seconds: float) -> float:
        if len(self._times) < number:
            return 0.0
        return max(0.0, self._times[-number] + seconds - now)
