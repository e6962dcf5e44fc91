"""Keys that have to be looked at: each once, by one worker at a time, now or after a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from trimtab.kube.api import ApiError, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.retry import Backoff

logger = logging.getLogger(__name__)

RETRY: Final = Backoff(initial=0.2, maximum=5.0)


class Queue:
    """A work queue as controllers have it.

    A key that is added while it waits is in it once; one that is added while a worker has it is looked at again after
    that. What fails is tried again, ever more slowly.
    """

    def __init__(self, reconcile: Callable[[str], Awaitable[float | None]], *, workers: int, clock: Clock) -> None:
        """Prepare.

        Args:
            reconcile: looks at a key; returns the seconds after which to look again, ``None`` for not by itself.
            workers: how many keys at once.
            clock: waits.
        """
        self._reconcile = reconcile
        self._workers = workers
        self._clock = clock
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._dirty: set[str] = set()
        self._held: set[str] = set()
        self._failures: dict[str, int] = {}
        self._timers: set[asyncio.Task[None]] = set()

    def add(self, key: str) -> None:
        """Look at a key soon."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._held:
            self._waiting.put_nowait(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Look at a key after a while."""

        async def later() -> None:
            await self._clock.sleep(seconds)
            self.add(key)

        task = asyncio.create_task(later(), name=f"later {key}")
        self._timers.add(task)
        task.add_done_callback(self._timers.discard)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work())
        finally:
            for task in self._timers:
                task.cancel()

    async def _work(self) -> None:
        while True:
            key = await self._waiting.get()
            self._dirty.discard(key)
            self._held.add(key)
            try:
                await self._look_at(key)
            finally:
                self._held.discard(key)
            if key in self._dirty:
                self._waiting.put_nowait(key)

    async def _look_at(self, key: str) -> None:
        try:
            again = await self._reconcile(key)
        except (ApiError, Unreachable) as error:
            retry = self._failures.get(key, 0)
            self._failures[key] = retry + 1
            again = RETRY.delay(retry)
            logger.log(logging.WARNING if retry else logging.INFO, "%s: again in %.1f s: %s", key, again, error)
        else:
            self._failures.pop(key, None)
        if again is not None:
            self.add_after(key, again)
