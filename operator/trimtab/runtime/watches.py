"""The informers that keep the live picture, and whether that picture can be trusted."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from typing import Any, Final

from trimtab.cluster.kinds import KINDS
from trimtab.cluster.live import LiveCluster
from trimtab.kube.api import Api, Unreachable
from trimtab.kube.server_version import streams_lists
from trimtab.kube.watching.informer import Informer, ServerAbilities
from trimtab.kube.watching.store import Store
from trimtab.kube.wire.intern import Interner

ASKING: Final = 5.0
"""Seconds that the server has to tell its version, before watching goes on without."""

CUT: Final = frozenset(("Retrying", "Refused"))
"""Phases of an informer that hears nothing."""


class Watches:
    """One informer a resource, all feeding the same picture."""

    def __init__(self, api: Api, live: LiveCluster) -> None:
        self._informers: list[Informer[Any]] = []
        self._api = api
        self._abilities = ServerAbilities()
        interner = Interner()
        for resource in KINDS:
            store: Store[Any] = Store()
            store.subscribe(live.apply)
            self._informers.append(Informer(api, resource, store, interner=interner, abilities=self._abilities))
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> list[asyncio.Task[None]]:
        """Start watching; a task that ends has failed."""
        asked = asyncio.create_task(self._ask(), name="ask for the server's version")
        self._tasks = [
            asyncio.create_task(_run(informer, asked), name=f"watch {informer.resource.plural}")
            for informer in self._informers
        ]
        self._tasks.append(asyncio.create_task(self._freeze(), name="freeze after the first fill"))
        self._tasks.append(asked)
        return self._tasks[: len(self._informers)]

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

    async def _ask(self) -> None:
        """Let informers begin with a list where that is cheaper, not with a watch that begins with all objects."""
        with suppress(Unreachable):  # the informers find out as well, and go on trying
            self._abilities.watch_list = not await streams_lists(self._api, timeout=ASKING)

    async def _freeze(self) -> None:
        """Take the first fill out of the garbage collector's sight: it lives on, and walking it would stop the loop."""
        for informer in self._informers:
            await informer.synced()
        gc.collect()
        gc.freeze()


async def _run(informer: Informer[Any], asked: asyncio.Task[None]) -> None:
    """Watch, once it is known how to begin."""
    await asyncio.shield(asked)
    await informer.run()


def _told(informer: Informer[Any]) -> str:
    """The resource, and what is wrong with its watch."""
    error = informer.state.error
    return f"{informer.resource.plural} ({error})" if error else informer.resource.plural
