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


class WorkQueue:
    """A work queue as controllers have it.

    A key that is added while it waits is in it once; one that is added while a worker has it is looked at again after
    that. What fails is tried again, ever more slowly, and holds nothing else up.
    """

    def __init__(
        self,
        reconcile: Callable[[str], Awaitable[float | None]],
        *,
        workers: int,
        clock: Clock,
        retry: Backoff = RETRY,
    ) -> None:
        """Prepare.

        Args:
            reconcile: looks at a key; returns the seconds after which to look again, ``None`` for not by itself.
            workers: how many keys at once.
            clock: waits.
            retry: how long to wait after failures of one key in a row.
        """
        self._reconcile = reconcile
        self._workers = workers
        self._clock = clock
        self._retry = retry
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._dirty: set[str] = set()
        self._held: set[str] = set()
        self._failures: dict[str, int] = {}
        self._timers: dict[str, tuple[float, asyncio.Task[None]]] = {}
        self._closing = False
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, key: str) -> None:
        """Look at a key soon."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._held:
            self._waiting.put_nowait(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Look at a key after a while; of several such wishes the earliest counts."""
        due = self._clock.monotonic() + seconds
        if key in self._timers:
            earlier, timer = self._timers[key]
            if earlier <= due:
                return
            timer.cancel()

        async def later() -> None:
            await self._clock.sleep(seconds)
            del self._timers[key]
            self.add(key)

        self._timers[key] = due, asyncio.create_task(later(), name=f"later {key}")

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work())
        finally:
            for _, timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    async def drain(self, seconds: float) -> bool:
        """Begin with no further key, and wait for those that workers have; whether all were done in time."""
        self._closing = True
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def _work(self) -> None:
        while True:
            key = await self._waiting.get()
            if self._closing:
                continue
            self._dirty.discard(key)
            self._held.add(key)
            self._idle.clear()
            try:
                await self._look_at(key)
            finally:
                self._held.discard(key)
                if not self._held:
                    self._idle.set()
            if key in self._dirty:
                self._waiting.put_nowait(key)

    async def _look_at(self, key: str) -> None:
        try:
            again = await self._reconcile(key)
        except (ApiError, Unreachable) as error:
            again, retry = self._failed(key)
            logger.log(logging.WARNING if retry else logging.INFO, "%s: again in %.1f s: %s", key, again, error)
        except Exception:
            again, _ = self._failed(key)
            logger.exception("%s: again in %.1f s", key, again)
        else:
            self._failures.pop(key, None)
        if again is not None:
            self.add_after(key, again)

    def _failed(self, key: str) -> tuple[float, int]:
        """Seconds until the next try of a key, and how many have failed before."""
        retry = self._failures.get(key, 0)
        self._failures[key] = retry + 1
        return self._retry.delay(retry), retry
