"""Time as a seam, so that what waits can be tested without waiting."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Final, Protocol


class Clock(Protocol):
    """Where the time comes from. Two clocks, because they answer two questions."""

    def now(self) -> float:
        """Seconds since the epoch: for what is written down. It may jump when the host's clock is set."""
        ...

    def monotonic(self) -> float:
        """Seconds since some start: for durations and deadlines. It never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; a negative time is no wait."""
        ...


class SystemClock:
    """The host's clocks and the running loop's sleep."""

    def now(self) -> float:
        """``time.time()``."""
        return time.time()

    def monotonic(self) -> float:
        """``time.monotonic()``."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """``asyncio.sleep()``."""
        await asyncio.sleep(max(0.0, seconds))


SYSTEM_CLOCK: Final[Clock] = SystemClock()


FIRST: Final = datetime.min.replace(tzinfo=UTC).timestamp()
LAST: Final = datetime.max.replace(microsecond=0, tzinfo=UTC).timestamp()
"""The years from 1 to 9999: all that RFC 3339 can write."""


def calendar_time(seconds: float) -> datetime:
    """Seconds since the epoch as a time in UTC; what no calendar has is the first or the last time that one has.

    An object may ask for more: a pod that tolerates a taint for ``9223372036854775807`` seconds is valid.
    """
    return datetime.fromtimestamp(min(max(seconds, FIRST), LAST), UTC)


def micro_time(now: float) -> str:
    """Write a time as metav1.MicroTime: ``2026-11-20T12:00:00.000000Z``. Events and leases take no other form."""
    return calendar_time(now).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
