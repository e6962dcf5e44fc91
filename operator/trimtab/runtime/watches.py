"""The informers that keep the live picture, and whether that picture can be trusted."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from trimtab.cluster.kinds import KINDS, MADE_BY, OPTIONAL, versions
from trimtab.cluster.live import LiveCluster
from trimtab.kube.api import Api, Unreachable
from trimtab.kube.discovery import Discovery
from trimtab.kube.objects import NODE_LEASES
from trimtab.kube.resources import LEASES, Resource
from trimtab.kube.server_version import streams_lists
from trimtab.kube.watching.informer import Informer
from trimtab.kube.watching.optional import ABSENT, HIDDEN_PHASE, OptionalInformer
from trimtab.kube.watching.state import InformerState, ServerAbilities
from trimtab.kube.watching.store import Listener, Store
from trimtab.kube.wire.intern import Interner

ASKING: Final = 5.0
"""Seconds that the server has to tell its version, before watching goes on without."""

CUT: Final = frozenset(("Retrying", "Refused"))
"""Phases of an informer that hears nothing."""

NAMESPACES: Final[Mapping[Resource, str]] = {LEASES: NODE_LEASES}
"""Where of a kind only one namespace's objects are watched: other Leases are renewed every two seconds, for nobody."""

KNOWN: Final = frozenset(("Watching", ABSENT, HIDDEN_PHASE))
"""Phases of an informer whose store is what the server has, as far as we may see it."""


class Watch(Protocol):
    """What both kinds of informers have."""

    @property
    def resource(self) -> Resource:
        """What is watched."""
        ...

    @property
    def store(self) -> Store[Any]:
        """What is kept equal."""
        ...

    @property
    def state(self) -> InformerState:
        """What it is doing."""
        ...

    async def run(self) -> None:
        """Watch until cancelled."""
        ...


class Watches:
    """One informer a resource, all feeding the same picture.

    Args:
        api: the API server.
        live: the picture.
        kinds: what is watched for it; of these, what is in :data:`~trimtab.cluster.kinds.OPTIONAL` may be absent.
        apart: what is watched besides, for listeners alone: the picture does not get it.
    """

    def __init__(
        self, api: Api, live: LiveCluster, kinds: Sequence[Resource] = KINDS, *, apart: Sequence[Resource] = ()
    ) -> None:
        self._informers: list[Informer[Any]] = []
        self._optional: dict[Resource, OptionalInformer[Any]] = {}
        self._stores: dict[Resource, Store[Any]] = {}
        self._api = api
        self._abilities = ServerAbilities()
        self._apart = tuple(apart)
        interner, discovery = Interner(), Discovery(api)
        for resource in (*kinds, *apart):
            store: Store[Any] = Store()
            if resource not in apart:
                store.subscribe(live.apply)
            self._stores[resource] = store
            if resource in OPTIONAL:
                self._optional[resource] = OptionalInformer(
                    api,
                    versions(resource),
                    store,
                    discovery=discovery,
                    interner=interner,
                    abilities=self._abilities,
                )
            else:
                namespace = NAMESPACES.get(resource, "")
                self._informers.append(
                    Informer(api, resource, store, namespace=namespace, interner=interner, abilities=self._abilities)
                )
        self._tasks: list[asyncio.Task[None]] = []

    def listen(self, resource: Resource, listener: Listener[Any]) -> None:
        """Tell a listener of each change of a resource from now on, after the picture has it."""
        self._stores[resource].subscribe(listener, replay=False)

    def start(self) -> list[asyncio.Task[None]]:
        """Start watching; a task that ends has failed."""
        asked = asyncio.create_task(self._ask(), name="ask for the server's version")
        watches: list[Watch] = [*self._informers, *self._optional.values()]
        watching = [
            asyncio.create_task(_run(informer, asked), name=f"watch {informer.resource.name}") for informer in watches
        ]
        freezing = asyncio.create_task(self._freeze(), name="freeze after the first fill")
        self._tasks = [*watching, freezing, asked]
        return watching

    async def stop(self) -> None:
        """End all watches."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def check(self) -> str | None:
        """What keeps the picture from being complete, for /readyz; ``None`` where nothing does.

        Of kinds that a cluster may lack only the first answer is waited for: where theirs cannot be read, whatever else
        this process does goes on.
        """
        waiting = [_told(informer) for informer in self._informers if not informer.store.synced]
        waiting += [
            _told(informer)
            for informer in self._optional.values()
            if not informer.store.synced and not informer.state.error
        ]
        return f"waiting for {', '.join(waiting)}" if waiting else None

    def stale(self) -> str | None:
        """What keeps the picture from being planned on now: not complete, or a watch that is cut or being refilled.

        Node groups are another matter: :meth:`stale_groups`.
        """
        return _stale([each for each in self._informers if each.resource not in self._apart])

    def stale_of(self, resources: Collection[Resource]) -> str | None:
        """The same of these resources alone, whether or not the picture has them."""
        return _stale([each for each in self._informers if each.resource in resources])

    def informer(self, resource: Resource) -> Informer[Any]:
        """The one that watches a resource.

        Raises:
            KeyError: it is not watched, or may be absent.
        """
        for each in self._informers:
            if each.resource == resource:
                return each
        raise KeyError(resource.name)

    @property
    def apart(self) -> dict[str, int]:
        """How many objects there are of what the picture does not get."""
        return {resource.plural: len(self._stores[resource]) for resource in self._apart}

    def stale_groups(self) -> str | None:
        """What keeps node groups from being planned on now, beside :meth:`stale`.

        Kinds that a cluster lacks do not. But sets of machines without their machines would look as if all of these
        were missing, so whoever may read the one and not the other is not let near them.
        """
        wrong = _stale(self._optional.values())
        if wrong is not None:
            return wrong
        for maker, made in MADE_BY.items():
            if maker not in self._optional or not self._stores[maker].objects:
                continue
            for resource in made:
                state = self._optional[resource].state
                if state.phase != "Watching":
                    return f"there are {maker.name}, but no {resource.name} can be read ({state.error})"
        return None

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


async def _run(informer: Watch, asked: asyncio.Task[None]) -> None:
    """Watch, once it is known how to begin."""
    await asyncio.shield(asked)
    await informer.run()


def _stale(informers: Collection[Watch]) -> str | None:
    """The worst of what is wrong with informers: objects were never read, a watch is cut, one is being refilled."""
    waiting = [_told(informer) for informer in informers if not informer.store.synced]
    if waiting:
        return f"waiting for {', '.join(waiting)}"
    cut = [_told(informer) for informer in informers if informer.state.phase in CUT]
    if cut:
        return f"no word from the API server on {', '.join(cut)}"
    again = [informer.resource.plural for informer in informers if informer.state.phase not in KNOWN]
    return f"listing {', '.join(again)} again" if again else None


def _told(informer: Watch) -> str:
    """The resource, and what is wrong with its watch."""
    error = informer.state.error
    return f"{informer.resource.plural} ({error})" if error else informer.resource.plural
