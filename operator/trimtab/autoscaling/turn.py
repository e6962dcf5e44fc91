"""The turn that the autoscaler shares with the descheduler, taken without ever waiting for it.

A policy of the descheduler holds the turn while it acts, for minutes. A pending pod does not wait so long for nodes:
who plans without the turn adds nodes, but removes none. Whoever wants to remove some stands in line meanwhile, and is
woken when it is their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress


class Turn:
    """One place in the line.

    Args:
        lock: held by whoever plans moves at present.
        wake: called once the turn is ours after standing in line.
    """

    def __init__(self, lock: asyncio.Lock, wake: Callable[[], None]) -> None:
        self._lock = lock
        self._wake = wake
        self._ours = False
        self._standing: asyncio.Task[None] | None = None

    @property
    def ours(self) -> bool:
        """Whether it is our turn."""
        return self._ours

    async def take(self) -> bool:
        """Take the turn if nobody has it, and say whether it is ours now."""
        if not self._ours and self._standing is None and not self._lock.locked():
            # One who stands in line may be about to have it, though it is free at this moment: not waited for.
            with suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await self._lock.acquire()
                    self._ours = True
        return self._ours

    def stand_in_line(self) -> None:
        """Have the turn as soon as it is free."""
        if not self._ours and self._standing is None:
            self._standing = asyncio.create_task(self._stand(), name="turn of the autoscaler")

    def give_back(self) -> None:
        """Let others have it; nothing where it is not ours."""
        if self._ours:
            self._ours = False
            self._lock.release()

    async def leave(self) -> None:
        """Give it back, and stand in line no more."""
        if self._standing is not None:
            self._standing.cancel()
            await asyncio.gather(self._standing, return_exceptions=True)
        self.give_back()

    async def _stand(self) -> None:
        try:
            await self._lock.acquire()
            self._ours = True
        finally:
            self._standing = None
        self._wake()
