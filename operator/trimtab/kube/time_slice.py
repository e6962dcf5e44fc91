"""Divides CPU-bound work on an event loop into time slices, so that health probes, Leases and requests are not delayed.

:mod:`trimtab.kube.wire.limits` bounds the cost of one object. Time slices bound the cost of many objects. They are
limited by time instead of by a number of objects, because tenants decide how expensive their objects are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from time import perf_counter
from typing import Final

SLICE_SECONDS: Final = 0.005
"""Maximum seconds of work before other tasks of the event loop run. A dozen watches may work at the same time."""


class TimeSlice:
    """Measures how long a task has worked without yielding to the event loop. Create an instance when the work starts.

    It uses real time even if tests use a virtual clock, because it bounds the CPU time for which other tasks have to
    wait.
    """

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = perf_counter() + SLICE_SECONDS

    @property
    def over(self) -> bool:
        """Return whether the time slice is used up, so that the task should call :meth:`pause`."""
        return perf_counter() >= self._end

    async def pause(self) -> None:
        """Let other tasks of the event loop run, and start the next slice."""
        await asyncio.sleep(0)
        self._end = perf_counter() + SLICE_SECONDS


async def run_in_slices(steps: Iterable[object]) -> None:
    """Iterate over the steps of some work, and let other tasks run when a time slice is used up."""
    slice_ = TimeSlice()
    for _ in steps:
        if slice_.over:
            await slice_.pause()
