"""The informers that keep the live picture, and whether that picture can be trusted."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, Final

from trimtab.cluster.kinds import KINDS
from trimtab.cluster.live import LiveCluster
from trimtab.kube.api import Api
from trimtab.kube.watching.informer import Informer, ServerAbilities
from trimtab.kube.watching.store import Store
from trimtab.kube.wire.intern import Interner

CUT: Final = frozenset(("Retrying", "Refused"))
"""Phases of an informer that hears nothing."""


class Watches:
    """One informer a resource, all feeding the same picture."""

    def __init__(self, api: Api, live: LiveCluster) -> None:
        self._informers: list[Informer[Any]] = []
        interner, abilities = Interner(), ServerAbilities()
        for resource in KINDS:
            store: Store[Any] = Store()
            store.subscribe(live.apply)
            self._informers.append(Informer(api, resource, store, interner=interner, abilities=abilities))
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> list[asyncio.Task[None]]:
        """Start watching; a task that ends has failed."""
        self._tasks = [
            asyncio.create_task(informer.run(), name=f"watch {informer.resource.plural}")
            for informer in self._informers
        ]
        self._tasks.append(asyncio.create_task(self._freeze(), name="freeze after the first fill"))
        return self._tasks[:-1]

    async def stop(self) -> None:
        """End all watches."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def check(self) -> str | None:
        """What keeps the picture from being complete, for /readyz; ``None`` where nothing does."""
        waiting = [_told(informer) for informer in self._informers if not informer.store.synced]
        return f"waiting for {', '.join(waiting)}" if waiting else None

    def stale(self) -> str | None:
        """What keeps the picture from being planned on now: not complete, or a watch that is cut or being refilled."""
        cut = [_told(informer) for informer in self._informers if informer.state.phase in CUT]
        if cut or self.check():
            return self.check() or f"no word from the API server on {', '.join(cut)}"
        again = [informer.resource.plural for informer in self._informers if informer.state.phase != "Watching"]
        return f"listing {', '.join(again)} again" if again else None

    async def _freeze(self) -> None:
        """Take the first fill out of the garbage collector's sight: it lives on, and walking it would stop the loop."""
        for informer in self._informers:
            await informer.synced()
        gc.collect()
        gc.freeze()


def _told(informer: Informer[Any]) -> str:
    """The resource, and what is wrong with its watch."""
    error = informer.state.error
    return f"{informer.resource.plural} ({error})" if error else informer.resource.plural
