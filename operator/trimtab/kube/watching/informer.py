"""Keeps a :class:`~trimtab.kube.watching.store.Store` equal to one kind of objects on the API server.

The cheapest way that the server offers is taken. First a watch that begins with the present objects (WatchList), in
protobuf; where the server refuses that, a list in pages and then a watch; where it speaks no protobuf, JSON. What was
refused is remembered in a :class:`ServerAbilities` that all informers of a server share. Where it is known that the
server writes lists as it goes (:func:`trimtab.kube.server_version.streams_lists`), a list is cheaper than a WatchList:
who starts the informers then takes that ability away.

What can go wrong, and what happens then:

* The connection ends, is cut or falls silent: the watch resumes at the last resource version that was seen, bookmarks
  included, so nothing is lost and nothing listed again.
* The resource version is too old (410, as an answer or within the stream): everything is listed again, and what is
  not there any more is told gone.
* An object cannot be decoded: it is left out, named in :attr:`Informer.broken` and logged once; the stream goes on.
* The server is overloaded, gone, or refuses (RBAC, no such resource): tried again, ever more slowly, for ever;
  :attr:`Informer.state` says so. An operator without a picture waits, it does not guess.

Rejected: the watch caches of client libraries (they keep whole objects, in memory 15 times as much), and
``kopf.on.event`` (0.4 ms an event, and it keeps what vanished while the connection was cut).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, TypeVar

from msgspec import Raw

from trimtab.kube.api import Api, ApiError, Forbidden, Gone, NotFound, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.errors import InputError
from trimtab.kube.resources import Resource
from trimtab.kube.retry import Backoff
from trimtab.kube.watching.intake import Intake
from trimtab.kube.watching.state import InformerState, InformerStatistics, ServerAbilities
from trimtab.kube.watching.store import Store, Stored
from trimtab.kube.wire.codec import Codec, Page, Splitter
from trimtab.kube.wire.head import GROUPS, JSON_ONLY
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.json_codec import JsonCodec

T = TypeVar("T", bound=Stored)

logger = logging.getLogger(__name__)

PAGE_SIZE: Final = 5_000
"""Objects a page, where lists are not streamed."""
WATCH_SECONDS: Final = 290
"""After which the server ends a watch; up to a tenth is added, so that all watches don't begin anew at once."""
IDLE_SECONDS: Final = 75.0
"""Silence after which a connection counts as dead: bookmarks come every minute."""
FRAMES_PER_TURN: Final = 200
"""Objects decoded before others on the loop (probes, leases) get their turn: 5 ms of work."""

RETRY: Final = Backoff(initial=0.5, maximum=10.0)
"""Connections that fail: a cut network is noticed to be back within seconds."""
RETRY_REFUSED: Final = Backoff(initial=5.0, maximum=60.0)
"""Forbidden and not found: an administrator has to act first."""

DOUBTED: Final = 4
"""Refusals in a row that are not believed of what was granted before: an API server that has just started knows neither
roles nor custom resources in its first moments."""

STABLE_SECONDS: Final = 5.0
"""A connection that lasted so long was a good one, even if nothing came of it."""

NO_FORMAT: Final = frozenset({406, 415})
"""HTTP statuses of a server that does not speak the format that was asked for."""
NO_OPTION: Final = frozenset({400, 422})
"""HTTP statuses of a server that does not know an option, as WatchList's."""

WATCH: Final = {"watch": "true", "allowWatchBookmarks": "true"}
WATCH_LIST: Final = WATCH | {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
"""Asks for a watch that begins with the present objects."""


class Informer(Generic[T]):
    """One kind, watched; run it as a task.

    Attributes:
        state: what it is doing.
        untold: whether the connection was cut, and what happened meanwhile has not begun to be told.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource,
        store: Store[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        decode: Callable[[bytes | Raw], T] | None = None,
        interner: Interner | None = None,
        abilities: ServerAbilities | None = None,
        clock: Clock = SYSTEM_CLOCK,
        optional: bool = False,
    ) -> None:
        """Prepare; nothing is asked before :meth:`run`.

        Args:
            api: the server.
            resource: what to watch.
            store: what to keep equal; the informer is its only writer.
            namespace: only objects of this one.
            label_selector: only objects that the server finds to match.
            field_selector: likewise.
            decode: decodes an object's JSON, for kinds that :mod:`trimtab.kube.wire` has no type for; it raises
                InputError. Such kinds are watched in JSON.
            interner: shares equal values with other informers.
            abilities: shared by all informers of the server.
            clock: tells and waits.
            optional: whether the kind may be absent, or hidden: then :meth:`run` ends where it turns out to be.
        """
        self.resource = resource
        self.store = store
        self.state = InformerState(phase="Starting", error="", since=clock.now())
        self.untold = False
        self._api = api
        self._path = resource.path(namespace=namespace)
        self._selectors = {
            name: value
            for name, value in {"labelSelector": label_selector, "fieldSelector": field_selector}.items()
            if value
        }
        self._decode = decode
        self._interner = interner or Interner()
        self._abilities = abilities or ServerAbilities()
        self._clock = clock
        self._optional = optional
        self._synced = asyncio.Event()
        self._intake = Intake(resource.plural, store)
        self._first_version = "0"  # of the first list: whatever the server has at hand
        self._frames = self._connections = self._failures = self._bytes = 0
        self._refusals = 0  # in a row

    @property
    def broken(self) -> Mapping[str, str]:
        """By key, the objects that are left out because they cannot be decoded, and why."""
        return self._intake.broken

    @property
    def path(self) -> str:
        """Of the collection that is watched."""
        return self._path

    @property
    def selectors(self) -> Mapping[str, str]:
        """Parameters that narrow the collection down."""
        return self._selectors

    @property
    def version(self) -> str:
        """The resource version up to which everything has been told; empty where everything has to be listed."""
        return "" if self._intake.filling else self._intake.version

    async def synced(self) -> None:
        """Wait until the store has been filled once."""
        await self._synced.wait()

    def statistics(self) -> InformerStatistics:
        """What has happened so far."""
        return InformerStatistics(
            objects=len(self.store),
            broken=len(self._intake.broken),
            events=self._intake.events,
            decode_errors=self._intake.decode_errors,
            lists=self._intake.lists,
            connections=self._connections,
            failures=self._failures,
            bytes_read=self._bytes,
        )

    async def run(self) -> None:
        """Watch until cancelled; everything that can pass is waited out.

        Raises:
            NotFound, Forbidden: of a kind that is optional.
            Exception: else only what a listener of the store raised.
        """
        retry, relisted = 0, False
        while True:
            progress, began = self._intake.progress, self._clock.monotonic()
            used = self._abilities.known()
            error: Exception | None = None
            try:
                await self._connect()
            except Gone as again:
                logger.info("Listing %s again: %s", self.resource.plural, again)
                self._intake.version = self._first_version = ""
                self._enter("Listing")  # from now on: what is held may be long out of date
                error = again
            except (ApiError, Unreachable, InputError) as failure:
                if self._optional and isinstance(failure, NotFound | Forbidden):
                    raise
                if self._adapt(failure) or used != self._abilities.known():
                    continue
                error = failure
            if self._intake.progress > progress or self._clock.monotonic() - began >= STABLE_SECONDS:
                retry = self._refusals = 0
            relist = isinstance(error, Gone)
            at_once, relisted = retry == 0 or (relist and not relisted), relist
            if error is None or relist:
                if at_once:
                    retry = max(retry, 1)  # the next time at once is one too many, unless something was heard
                    continue
                error = error or Unreachable("the server ended the watch without a word")
            self._failures += 1
            await self._wait(error, retry)
            retry += 1

    async def _connect(self) -> None:
        """One connection after another, until one of them fails or ends: list if need be, then watch."""
        codec = self._codec()
        if self._intake.version:
            await self._watch(codec, initial=False)
        elif self._abilities.watch_list:
            await self._watch(codec, initial=True)
        else:
            await self._list(codec)
            await self._watch(codec, initial=False)

    @property
    def _has_protobuf(self) -> bool:
        """Whether the kind is asked for in protobuf where the server has it: custom resources are in JSON only."""
        kind = self.resource.type_name
        return self._decode is None and kind in GROUPS and kind not in JSON_ONLY

    def _codec(self) -> Codec:
        kind = self.resource.type_name
        if self._has_protobuf and self._abilities.protobuf:
            from trimtab.kube.wire.protobuf import ProtobufCodec

            return ProtobufCodec(kind, self._interner)
        return JsonCodec(kind, self._interner, self._decode)

    def _adapt(self, error: Exception) -> bool:
        """Do without what the server has just refused, if it is that; whether to go on at once."""
        abilities = self._abilities
        status = error.status if isinstance(error, ApiError) else 0
        if isinstance(error, InputError) and self._intake.lists:
            self._intake.version = ""  # a frame was lost in a format that has worked so far: only a list is sure
            return False
        if abilities.protobuf and self._has_protobuf and (status in NO_FORMAT or isinstance(error, InputError)):
            logger.info("The server gives %s no protobuf, going on with JSON: %s", self.resource.plural, error)
            abilities.protobuf = False
            return True
        if abilities.watch_list and not self._intake.version and status in NO_OPTION:
            logger.info("The server streams no lists of %s, going on with pages: %s", self.resource.plural, error)
            abilities.watch_list = False
            return True
        return False

    async def _wait(self, error: Exception, retry: int) -> None:
        refused = isinstance(error, Forbidden | NotFound)
        if isinstance(error, NotFound):
            self._intake.version = ""  # a resource that comes back starts anew
        wait = self._refused_for() if refused else RETRY.delay(retry)
        if isinstance(error, ApiError) and error.retry_after:
            wait = max(wait, error.retry_after)
        self.untold = self._synced.is_set()
        self._enter("Refused" if refused else "Retrying", str(error) or type(error).__name__)
        level = logging.WARNING if refused or retry else logging.INFO
        logger.log(level, "Watching %s failed, trying again in %.1f s: %s", self.resource.plural, wait, error)
        await self._clock.sleep(wait)

    def _refused_for(self) -> float:
        """Seconds until it is asked again for what was refused."""
        doubted = DOUBTED if self._synced.is_set() else 0
        self._refusals += 1
        if self._refusals <= doubted:
            return RETRY.delay(self._refusals - 1)
        return RETRY_REFUSED.delay(self._refusals - doubted - 1)

    def _enter(self, phase: str, error: str = "") -> None:
        if (self.state.phase, self.state.error) != (phase, error):
            self.state = InformerState(phase=phase, error=error, since=self._clock.now())

    async def _list(self, codec: Codec) -> None:
        """Fill the store from a list, page by page.

        From its cache a server sends the whole at once. Where some of it came, but not the end, the next list is asked
        for in real pages: a server ends every answer after a minute, and over a slow line the whole would never come.
        """
        intake, before = self._intake, self._intake.events
        self._enter("Listing")
        intake.begin(initial=True)
        params = {**self._selectors, "limit": str(PAGE_SIZE)}
        if self._first_version:
            params["resourceVersion"] = self._first_version
        while True:
            try:
                page = await self._page(codec, params)
            except Unreachable:
                if intake.events > before:
                    self._first_version = ""
                raise
            if not page.next:
                break
            params = {**self._selectors, "limit": str(PAGE_SIZE), "continue": page.next}
        intake.end(page.resource_version)
        self.untold = False
        self._synced.set()

    async def _page(self, codec: Codec, params: dict[str, str]) -> Page:
        """Take in a page; a server that answers from its cache sends all of the list instead."""
        self._connections += 1
        splitter = codec.list_splitter()
        async with self._api.stream(
            self._path, params=params, accept=codec.list_type, idle_timeout=IDLE_SECONDS
        ) as chunks:
            async for chunk in chunks:
                self._bytes += len(chunk)
                await self._items(codec, splitter.feed(chunk))
        page = splitter.end()
        if page is None:
            raise Unreachable(f"the list of {self.resource.plural} ended before its last object")
        await self._items(codec, page.items)
        return page

    async def _items(self, codec: Codec, raws: Iterable[bytes | Raw]) -> None:
        for raw in raws:
            self._intake.take(codec, raw)
            self._frames += 1
            if self._frames % FRAMES_PER_TURN == 0:
                await asyncio.sleep(0)
        self._interner.prune_if_grown()

    async def _watch(self, codec: Codec, *, initial: bool) -> None:
        """Follow the stream until it ends, from all present objects or from the last resource version on."""
        self._connections += 1
        self._intake.begin(initial=initial)
        splitter = codec.splitter()
        params = self._watch_params(initial=initial)
        async with self._api.stream(
            self._path, params=params, accept=codec.watch_type, idle_timeout=IDLE_SECONDS
        ) as chunks:
            self._enter("Listing" if initial else "Watching")
            async for chunk in chunks:
                await self._chunk(codec, splitter, chunk)

    def _watch_params(self, *, initial: bool) -> dict[str, str]:
        seconds = WATCH_SECONDS + random.randrange(WATCH_SECONDS // 10)
        params = self._selectors | (WATCH_LIST if initial else WATCH) | {"timeoutSeconds": str(seconds)}
        version = self._first_version if initial else self._intake.version
        return params | ({"resourceVersion": version} if version else {})

    async def _chunk(self, codec: Codec, splitter: Splitter, chunk: bytes) -> None:
        self._bytes += len(chunk)
        for frame in splitter.feed(chunk):
            self._intake.event(codec, codec.frame(frame))
            self._frames += 1
            if self._frames % FRAMES_PER_TURN == 0:
                await asyncio.sleep(0)
        if self.state.phase == "Listing" and not self._intake.filling:
            self._synced.set()
            self._enter("Watching")
        self.untold = False
        self.store.heard()
        self._interner.prune_if_grown()
