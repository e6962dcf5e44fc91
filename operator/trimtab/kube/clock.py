"""The clock interface, so that tests can use virtual time."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Final, Protocol


class Clock(Protocol):
    """A wall clock, a monotonic clock, the CPU time, and a sleep function."""

    def now(self) -> float:
        """Return the time in seconds since the epoch, for timestamps. It may jump when the host's clock is set."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start, for durations and deadlines. The result never decreases."""
        ...

    def cpu(self) -> float:
        """Return the CPU seconds that this process has used, to measure what work costs. Waiting does not count."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep for the given number of seconds. Return immediately if it is negative."""
        ...


class SystemClock:
    """The host's clocks and the running loop's sleep."""

    def now(self) -> float:
        """Return ``time.time()``."""
        return time.time()

    def monotonic(self) -> float:
        """Return ``time.monotonic()``."""
        return time.monotonic()

    def cpu(self) -> float:
        """Return ``time.process_time()``."""
        return time.process_time()

    async def sleep(self, seconds: float) -> None:
        """Wait with ``asyncio.sleep()``."""
        await asyncio.sleep(max(0.0, seconds))


class CpuTime:
    """Measures the CPU time of work from now on.

    The process has a single CPU time, which includes the work of its other threads and tasks. So the result is limited
    to the elapsed time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began, self._cpu = clock.monotonic(), clock.cpu()

    @property
    def seconds(self) -> float:
        """Return the seconds so far."""
        return max(0.0, min(self._clock.monotonic() - self._began, self._clock.cpu() - self._cpu))


SYSTEM_CLOCK: Final[Clock] = SystemClock()


MIN_TIMESTAMP: Final = datetime.min.replace(tzinfo=UTC).timestamp()
MAX_TIMESTAMP: Final = datetime.max.replace(microsecond=0, tzinfo=UTC).timestamp()
"""The latest time that RFC 3339 can represent: the end of the year 9999, in seconds since the epoch."""


def calendar_time(seconds: float) -> datetime:
    """Convert seconds since the epoch to a UTC datetime, clamped to the years 1 to 9999.

    Objects may contain larger values. For example, a pod may tolerate a taint for ``9223372036854775807`` seconds.
    """
    return datetime.fromtimestamp(min(max(seconds, MIN_TIMESTAMP), MAX_TIMESTAMP), UTC)


def micro_time(now: float) -> str:
    """Format a time as metav1.MicroTime: ``2026-11-20T12:00:00.000000Z``. Events and Leases accept no other format."""
    return calendar_time(now).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
