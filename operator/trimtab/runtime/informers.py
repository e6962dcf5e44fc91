"""Runs the informers of the process.

They keep the lister and the snapshot up to date, and report when these are stale.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from trimtab.cluster.kinds import ADDITIONAL, CHILD_KINDS, KINDS, OPTIONAL, versions
from trimtab.cluster.lister import Lister
from trimtab.controller.loop import end_tasks
from trimtab.kube.api import Api, Unreachable
from trimtab.kube.discovery import Discovery, streams_lists
from trimtab.kube.objects import NODE_LEASES
from trimtab.kube.resources import (
    LEASES,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)
from trimtab.kube.watching.informer import Informer, ServerAbilities, prune_in_slices
from trimtab.kube.watching.optional_informer import ABSENT, HIDDEN, OptionalInformer
from trimtab.kube.watching.store import Listener, Store
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.limits import DEFAULT_LIMITS, ComplexityLimits
from trimtab.runtime.health.watches import DISCONNECTED_PHASES, AnyInformer, report_progress

if TYPE_CHECKING:
    from trimtab.cluster.shared_snapshot import SharedSnapshot

VERSION_TIMEOUT: Final = 5.0
"""Timeout in seconds for reading the API server's version. After the timeout, the informers start with a WatchList."""

FREEZE_PERIOD: Final = 0.1
"""Seconds between two checks, during the first fill of the stores, whether new objects must be frozen."""

FREEZE_STEP: Final = 1000
"""Minimum number of new objects that are frozen. Garbage that is frozen with them is never freed."""

WATCHED_NAMESPACES: Final[Mapping[Resource, str]] = {LEASES: NODE_LEASES}
"""Resources that are watched in one namespace only.

No controller reads other Leases, which change every two seconds.
"""

CURRENT_PHASES: Final = frozenset(("Watching", ABSENT, HIDDEN))
"""Phases of an informer whose store is in sync with the API server, as far as RBAC permits."""


_REPLICATED: Final = (REPLICA_SETS, STATEFUL_SETS, REPLICATION_CONTROLLERS)


class Informers:
    """Runs one informer for each resource. The informers share a lister and a snapshot.

    A change updates first the lister and then the snapshot. After that the listeners are called in the order in which
    they subscribed.

    Args:
        api: the API client.
        shared: the snapshot that all planners share; ``None`` if ``kinds`` is empty.
        kinds: the resources in the snapshot. Those in :data:`~trimtab.cluster.kinds.OPTIONAL` may be absent.
        outside_snapshot: other resources to watch for the lister and the listeners.
        limits: the complexity limits of pods.

    Attributes:
        lister: looks up single objects in the caches.
    """

    def __init__(
        self,
        api: Api,
        shared: SharedSnapshot | None,
        kinds: Sequence[Resource] = KINDS,
        *,
        outside_snapshot: Sequence[Resource] = (),
        limits: ComplexityLimits = DEFAULT_LIMITS,
    ) -> None:
        self._informers: list[Informer[Any]] = []
        self._optional: dict[Resource, OptionalInformer[Any]] = {}
        self._stores: dict[Resource, Store[Any]] = {}
        self._api = api
        self._abilities = ServerAbilities()
        self._outside_snapshot = tuple(outside_snapshot)
        self._stores.update((resource, Store()) for resource in (NODES, PODS, LEASES, *kinds, *outside_snapshot))
        replicated = {each.kind: self._stores[each] for each in _REPLICATED if each in self._stores}
        self.lister = Lister(self._stores[NODES], self._stores[PODS], self._stores[LEASES], replicated)
        self._interner = interner = Interner(limits)
        discovery = Discovery(api)
        for resource in (*kinds, *outside_snapshot):
            store = self._stores[resource]
            if shared is not None and resource not in outside_snapshot:
                store.subscribe(shared.apply)
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
                namespace = WATCHED_NAMESPACES.get(resource, "")
                self._informers.append(
                    Informer(api, resource, store, namespace=namespace, interner=interner, abilities=self._abilities)
                )
        self._tasks: list[asyncio.Task[None]] = []

    def subscribe(self, resource: Resource, listener: Listener[Any], *, replay: bool = False) -> Callable[[], None]:
        """Call a listener on each change of a resource, after the lister and the snapshot are updated.

        Args:
            resource: a watched resource.
            listener: called with the old and the new object.
            replay: whether to call the listener first with all objects in the store, as if they were added.

        Returns:
            A function that ends the subscription.
        """
        return self._stores[resource].subscribe(listener, replay=replay)

    def start(self) -> list[asyncio.Task[None]]:
        """Start all informers and return their tasks. A task ends only if it has failed."""
        asked = asyncio.create_task(self._detect_streaming_lists(), name="ask for the server's version")
        watches: list[AnyInformer] = [*self._informers, *self._optional.values()]
        watching = [
            asyncio.create_task(_run(informer, asked), name=f"watch {informer.resource.name}") for informer in watches
        ]
        freezing = asyncio.create_task(self._freeze(), name="freeze after the first fill")
        reporting = asyncio.create_task(report_progress(watches), name="progress of watches")
        self._tasks = [*watching, freezing, asked, reporting]
        return [*watching, reporting]

    async def stop(self) -> None:
        """Stop all informers."""
        await end_tasks(self._tasks)

    @property
    def removals(self) -> int:
        """Return the number of objects that were removed from the stores since the start."""
        return sum(store.removals for store in self._stores.values())

    async def reclaim(self) -> None:
        """Drop interned values that no object uses any longer. Other tasks of the event loop run in between."""
        await prune_in_slices(self._interner)

    def check(self) -> str | None:
        """Return the reason why the stores are not synced, for /readyz; ``None`` if all of them are.

        An optional resource is considered synced after the first response, even if that is an error, because the other
        controllers work without the resource.
        """
        waiting = [_describe(informer) for informer in self._informers if not informer.store.synced]
        waiting += _without_response(self._optional.values())
        return f"waiting for {', '.join(waiting)}" if waiting else None

    def stale_reason(self) -> str | None:
        """Return the reason why the snapshot is stale; ``None`` if planners may use it.

        The snapshot is stale if a store is not synced, or if a watch is disconnected or relisting. Of
        VerticalPodAutoscalers and EvictionRequests, only the first response is awaited. Node groups are not included,
        see :meth:`node_groups_stale_reason`.
        """
        wrong = _stale_reason([each for each in self._informers if each.resource not in self._outside_snapshot])
        waiting = _without_response(each for each in self._optional.values() if each.resource in ADDITIONAL)
        return wrong or (f"waiting for {', '.join(waiting)}" if waiting else None)

    def stale_reason_of(self, resources: Collection[Resource]) -> str | None:
        """Return the reason why the stores of these resources are stale; ``None`` if they are up to date.

        The resources need not be in the snapshot.
        """
        return _stale_reason([each for each in self._informers if each.resource in resources])

    def informer(self, resource: Resource) -> Informer[Any]:
        """Return the informer of a resource.

        Raises:
            KeyError: the resource is not watched, or is optional.
        """
        for each in self._informers:
            if each.resource == resource:
                return each
        raise KeyError(resource.name)

    @property
    def outside_snapshot(self) -> dict[str, int]:
        """Return the number of cached objects for each resource that is not in the snapshot, by plural."""
        return {resource.plural: len(self._stores[resource]) for resource in self._outside_snapshot}

    def node_groups_stale_reason(self) -> str | None:
        """Return the reason why the caches of node groups are stale; ``None`` if they are up to date.

        :meth:`stale_reason` does not include these caches. An absent resource is not stale. But if MachineSets exist
        and their Machines cannot be read, the caches are stale, because all machines would seem to be missing.
        """
        wrong = _stale_reason([each for each in self._optional.values() if each.resource not in ADDITIONAL])
        if wrong is not None:
            return wrong
        for maker, made in CHILD_KINDS.items():
            if maker not in self._optional or not self._stores[maker].objects:
                continue
            for resource in made:
                state = self._optional[resource].state
                if state.phase != "Watching":
                    return f"there are {maker.name}, but no {resource.name} can be read ({state.error})"
        return None

    async def synced(self) -> None:
        """Wait until all caches are filled."""
        await asyncio.gather(*(informer.synced() for informer in self._informers))

    async def _detect_streaming_lists(self) -> None:
        """Make informers start with a list if the API server streams lists, because it is cheaper than a WatchList."""
        with suppress(Unreachable):  # the informers retry on their own
            self._abilities.watch_list = not await streams_lists(self._api, timeout=VERSION_TIMEOUT)

    async def _freeze(self) -> None:
        """Exclude the initially listed objects from garbage collection, because they live long and are slow to scan.

        They are excluded while they arrive: a collection of 150,000 pods would block the event loop for 0.1 s.
        """
        synced = asyncio.ensure_future(self.synced())
        frozen = 0
        try:
            while not synced.done():
                await asyncio.wait({synced}, timeout=FREEZE_PERIOD)
                objects = sum(map(len, self._stores.values()))
                if objects >= frozen + FREEZE_STEP or synced.done():
                    gc.freeze()
                    frozen = objects
        finally:
            synced.cancel()


async def _run(informer: AnyInformer, asked: asyncio.Task[None]) -> None:
    """Run an informer after the features of the API server have been detected."""
    await asyncio.shield(asked)
    await informer.run()


def _without_response(informers: Iterable[OptionalInformer[Any]]) -> list[str]:
    """Return the optional resources to whose first request there was neither a list nor an error."""
    return [_describe(each) for each in informers if not each.store.synced and not each.state.error]


def _stale_reason(informers: Collection[AnyInformer]) -> str | None:
    """Return the most severe problem of several informers; ``None`` if they have no problem.

    From most to least severe, a problem is: not synced, disconnected, relisting.
    """
    if all(each.store.synced and each.state.phase in CURRENT_PHASES for each in informers):
        return None
    waiting = [_describe(informer) for informer in informers if not informer.store.synced]
    if waiting:
        return f"waiting for {', '.join(waiting)}"
    cut = [_describe(informer) for informer in informers if informer.state.phase in DISCONNECTED_PHASES]
    if cut:
        return f"disconnected from the API server: {', '.join(cut)}"
    again = [informer.resource.plural for informer in informers if informer.state.phase not in CURRENT_PHASES]
    return f"relisting {', '.join(again)}" if again else None


def _describe(informer: AnyInformer) -> str:
    """Return the plural of an informer's resource, with the error of its watch if there is one."""
    error = informer.state.error
    return f"{informer.resource.plural} ({error})" if error else informer.resource.plural
