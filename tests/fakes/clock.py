"""Clocks for tests. Under looptime the loop's time is virtual, so nothing here waits for real."""

from __future__ import annotations

import asyncio

START = 1_800_000_000.0


class LoopClock:
    """The loop's own time; `skew` sets the wall clock wrong by so many seconds, `rate` lets it run fast or slow.

    `busy` is the share of the time in which the process uses the CPU.
    """

    def __init__(self, *, skew: float = 0.0, rate: float = 1.0, busy: float = 1.0) -> None:
        self.skew = skew
        self.busy = busy
        self.rate = rate

    def now(self) -> float:
        return START + self.skew + self.monotonic()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() * self.rate

    def cpu(self) -> float:
        return self.monotonic() * self.busy

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds / self.rate))


class SetClock:
    """Stands still until it is set; sleeping advances it at once."""

    def __init__(self, time: float = START) -> None:
        self.time = time

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def cpu(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += max(0.0, seconds)
        await asyncio.sleep(0)
