"""Keeps a :class:`~trimtab.kube.watching.store.Store` in sync with one resource of the API server.

The informer uses the cheapest protocol that the server supports: a WatchList in protobuf. If the server rejects
WatchList, it lists in pages and then watches; if the server does not support protobuf, it uses JSON. All informers of a
server share its detected :class:`ServerAbilities`. If the server streams lists
(:func:`trimtab.kube.discovery.streams_lists`), a list is cheaper than a WatchList; then the code that starts the
informers disables WatchList.

What can go wrong, and what happens then:

* The connection ends, breaks or becomes silent: the watch resumes at the last resource version, including those of
  bookmarks, so that no event is lost and nothing is listed again.
* The server sends no bookmarks for a resource that has not changed since the server started, so the watch becomes
  silent. The informer then requests shorter watches until an event or a bookmark arrives.
* The resource version is too old (410, as a response or in the stream): the informer relists, and notifies listeners of
  objects that were removed in the meantime.
* An object cannot be decoded: it is omitted, listed in :attr:`Informer.broken` and logged once; the stream continues.
* The server is overloaded, unreachable, or rejects the request (RBAC, no such resource): the informer retries with
  backoff and without a limit, and :attr:`Informer.state` shows the error. Controllers wait until the store is synced.

Retries and reconnects are logged at DEBUG. Failures that last for :data:`WARN_AFTER` seconds, and rejected requests,
are logged once at WARNING, and the recovery at INFO.

Alternatives that were rejected: the caches of client libraries (they keep complete objects, 15 times the memory), and
``kopf.on.event`` (0.4 ms per event, and it keeps objects that were deleted during a disconnect).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, NoReturn, TypeVar

from msgspec import Raw, Struct

from trimtab.kube.api import Api, ApiError, Forbidden, Gone, IdleTimeout, NotFound, Unreachable, error_from_status
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Pod
from trimtab.kube.resources import Resource
from trimtab.kube.retry import Backoff
from trimtab.kube.time_slice import TimeSlice, run_in_slices
from trimtab.kube.watching.store import Store, Stored
from trimtab.kube.wire.codec import INITIAL_EVENTS_END, Codec, Metadata, Page, Splitter, StatusMessage, WatchFrame
from trimtab.kube.wire.identity import GROUPS, JSON_ONLY
from trimtab.kube.wire.intern import Interner, share_pod
from trimtab.kube.wire.json_codec import JsonCodec

T = TypeVar("T", bound=Stored)

logger = logging.getLogger(__name__)

PAGE_SIZE: Final = 5_000
"""Number of objects per page, if the server does not stream lists."""
WATCH_TIMEOUT: Final = 290
"""Seconds after which the server ends a watch. Up to 10 % are added, so that not all watches reconnect at once."""
IDLE_TIMEOUT: Final = 75.0
"""Seconds without data after which a connection is considered dead. The server sends bookmarks every minute."""
IDLE_WATCH_TIMEOUT: Final = 55
"""Seconds after which the server ends a watch for which it sends no bookmarks. Up to 10 % are added."""
THREAD_DECODE_BYTES: Final = 64 * 1024
"""Minimum encoded size in bytes of an object that is decoded in a thread, because decoding it would block the event
loop
for too long. Few objects are that large, and a thread costs as much as decoding a small object."""

RETRY: Final = Backoff(initial=0.5, maximum=10.0)
"""Backoff after connection failures. It is short, so that the informer reconnects within seconds after an outage."""
RETRY_REFUSED: Final = Backoff(initial=5.0, maximum=60.0)
"""Backoff after Forbidden and NotFound, which an administrator has to fix."""

RETRY_FORBIDDEN_MAXIMUM: Final = 5.0
"""Maximum wait in seconds after Forbidden, so that the informer works again within seconds of the role's return."""

QUICK_REFUSAL_RETRIES: Final = 4
"""Number of consecutive rejections after which the informer retries soon if access was granted before. An API server
that has just started knows neither roles nor custom resources yet."""

WARN_AFTER: Final = 30.0
"""Seconds of failures after which the informer logs a warning."""

STABLE_SECONDS: Final = 5.0
"""Seconds after which a connection is considered successful even if it has delivered nothing."""

UNSUPPORTED_FORMAT: Final = frozenset({406, 415})
"""HTTP statuses of a server that does not support the requested format."""
UNSUPPORTED_OPTION: Final = frozenset({400, 422})
"""HTTP statuses of a server that does not support an option, such as WatchList."""

_WITH_OBJECT: Final = frozenset({"ADDED", "MODIFIED"})
"""Types of events whose object is decoded."""

WATCH_PARAMS: Final = {"watch": "true", "allowWatchBookmarks": "true"}
WATCH_LIST_PARAMS: Final = WATCH_PARAMS | {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
"""Parameters of a watch that starts with all existing objects (WatchList)."""


class ServerAbilities:
    """The features that an API server supports, as detected so far. All informers of one server share an instance."""

    def __init__(self) -> None:
        self.protobuf = True
        self.watch_list = True

    def known(self) -> tuple[bool, bool]:
        """Return the current abilities as a tuple, to detect later whether another informer has changed them."""
        return self.protobuf, self.watch_list


class InformerState(Struct, frozen=True):
    """The state of an informer.

    Attributes:
        phase: ``Starting``, ``Listing``, ``Watching``, ``Retrying`` or ``Refused`` (forbidden, or no such resource).
            Optional resources have ``Absent`` (not served) or ``Hidden`` (forbidden) instead of ``Refused``.
        error: the error in the phases Retrying, Refused, Absent and Hidden; ``""`` otherwise.
        since: when this phase started, in seconds since the epoch.
    """

    phase: str
    error: str
    since: float


class InformerStatistics(Struct, frozen=True, kw_only=True):
    """Counters of an informer since its start, for metrics. ``objects`` and ``broken`` are current numbers."""

    objects: int
    broken: int
    events: int
    decode_errors: int
    lists: int
    connections: int
    failures: int
    bytes_read: int


class Undecodable(Struct, frozen=True):
    """An object that could not be decoded, with the error."""

    metadata: Metadata
    error: Exception


def try_decode(codec: Codec, raw: bytes | Raw) -> Any:
    """Decode an object. Return :class:`Undecodable` if that fails."""
    try:
        return codec.decode(raw)
    except Exception as error:  # noqa: BLE001 (a bug in decoding one object must not hide the others)
        return Undecodable(codec.metadata(raw), error)


class StoreUpdater(Generic[T]):
    """Applies watch events and list items to a store.

    Attributes:
        store: the store.
        broken: the errors of objects that cannot be decoded, by key. The store does not contain them.
        version: the resource version at which a watch resumes, or ``""`` if a list is necessary.
        events: the number of objects and bookmarks received.
        decode_errors: the number of objects that could not be decoded.
        lists: the number of completed lists.
    """

    def __init__(self, plural: str, store: Store[T]) -> None:
        self.store = store
        self.broken: dict[str, str] = {}
        self.version = ""
        self.events = 0
        self.decode_errors = 0
        self.lists = 0
        self._plural = plural
        self._listed_keys: set[str] | None = None

    @property
    def listing(self) -> bool:
        """Return whether a list, or the initial events of a WatchList, is incomplete."""
        return self._listed_keys is not None

    @property
    def progress(self) -> int:
        """Return a counter that increases with every event and every list, even an empty one."""
        return self.events + self.lists

    def begin(self, *, initial: bool) -> None:
        """Prepare for the events of a new connection.

        Args:
            initial: whether the connection delivers all objects first. If false, it resumes at :attr:`version`.
        """
        self._listed_keys = set() if initial else None

    def end(self, version: str) -> None:
        """Complete a list: drop stored objects that the list did not contain, and remember its resource version."""
        seen = self._listed_keys or set()
        self._listed_keys = None
        self.store.retain(seen)
        self.broken = {key: why for key, why in self.broken.items() if key in seen}
        self.version = version
        self.lists += 1
        self.store.record_activity()
        self.store.synced = True

    def event(self, codec: Codec, event: WatchFrame) -> None:
        """Apply a watch event of type DELETED, BOOKMARK or ERROR.

        Raises:
            ApiError: the error of an ERROR event. It is Gone if the informer has to relist.
        """
        match event.type:
            case "DELETED":
                self._drop(codec.metadata(event.raw))
            case "BOOKMARK":
                self._bookmark(codec.metadata(event.raw))
            case "ERROR":
                _fail(codec.status(event.raw))
            case other:
                logger.warning("Ignoring a watch event of unknown type %r for %s", other, self._plural)

    def take(self, decoded: T | Undecodable) -> None:
        """Apply an added or modified object, or record that it cannot be decoded."""
        self.events += 1
        if isinstance(decoded, Undecodable):
            key, version = decoded.metadata.key, decoded.metadata.resource_version
            self._break(key, decoded.error)
        else:
            self.store.apply(decoded)
            key, version = decoded.key, decoded.resource_version
            if self.broken:
                self.broken.pop(key, None)
        if self._listed_keys is not None:
            self._listed_keys.add(key)
        elif version:
            self.version = version

    def _break(self, key: str, error: Exception) -> None:
        """Record an object that cannot be decoded.

        Its previous version is removed from the store, because it is out of date.
        """
        self.decode_errors += 1
        why = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        if self.broken.get(key) != why:
            logger.error("Failed to decode %s %s; ignoring the object: %s", self._plural, key, why)
        self.broken[key] = why
        self.store.remove(key)

    def _drop(self, metadata: Metadata) -> None:
        self.events += 1
        self.store.remove(metadata.key)
        self.broken.pop(metadata.key, None)
        if self._listed_keys is not None:
            self._listed_keys.discard(metadata.key)
        elif metadata.resource_version:
            self.version = metadata.resource_version

    def _bookmark(self, metadata: Metadata) -> None:
        self.events += 1
        if self._listed_keys is None:
            self.version = metadata.resource_version or self.version
        elif metadata.annotations.get(INITIAL_EVENTS_END) == "true":
            self.end(metadata.resource_version)


async def prune_in_slices(interner: Interner) -> None:
    """Drop interned values that no object uses any longer, in small steps.

    Other tasks of the event loop run between steps.
    """
    await run_in_slices(interner.pruning())


def _fail(status: StatusMessage) -> NoReturn:
    """Raise the exception for an ERROR event."""
    raise error_from_status(
        {"message": status.message, "reason": status.reason},
        code=410 if status.reason in {"Expired", "Gone"} else status.code,
        retry_after=status.retry_after,
    )


class Informer(Generic[T]):
    """Watches one resource. Run :meth:`run` as a task.

    Attributes:
        state: the state of the watch.
        unconfirmed: whether the watch was disconnected and has delivered nothing since then. The store may then be as
            old as the disconnect.
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
        """Create an informer. It sends no request before :meth:`run`.

        Args:
            api: the API server.
            resource: the resource to watch.
            store: the store to keep in sync. The informer is its only writer.
            namespace: the namespace to watch, or ``""`` for all namespaces.
            label_selector: the label selector of the objects to watch.
            field_selector: the field selector of the objects to watch.
            decode: decodes an object's JSON, for kinds without a type in :mod:`trimtab.kube.wire`, and raises
                InputError if the object is invalid. Such kinds are watched in JSON.
            interner: shares identical values with other informers.
            abilities: the abilities of the server, shared by all its informers.
            clock: provides the time.
            optional: whether the resource may be absent or forbidden. If true, :meth:`run` raises the error in that
                case.
        """
        self.resource = resource
        self.store = store
        self.state = InformerState(phase="Starting", error="", since=clock.now())
        self.unconfirmed = False
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
        self._updater = StoreUpdater(resource.plural, store)
        self._first_version = "0"  # of the first list: any version in the server's cache
        self._connections = self._failures = self._bytes = 0
        self._refusals = 0  # in a row
        self._silent = False  # whether the latest watch fell silent
        self._failing_since: float | None = None
        self._warned = False

    @property
    def broken(self) -> Mapping[str, str]:
        """Return the errors of objects that are omitted because they cannot be decoded, by key."""
        return self._updater.broken

    @property
    def path(self) -> str:
        """Return the URL path of the watched collection."""
        return self._path

    @property
    def selectors(self) -> Mapping[str, str]:
        """Return the label and field selectors, as query parameters."""
        return self._selectors

    @property
    def version(self) -> str:
        """Return the resource version of the store, or empty before the first list is complete."""
        return "" if self._updater.listing else self._updater.version

    async def synced(self) -> None:
        """Wait until the first list is complete."""
        await self._synced.wait()

    def statistics(self) -> InformerStatistics:
        """Return the current counters, for metrics."""
        return InformerStatistics(
            objects=len(self.store),
            broken=len(self._updater.broken),
            events=self._updater.events,
            decode_errors=self._updater.decode_errors,
            lists=self._updater.lists,
            connections=self._connections,
            failures=self._failures,
            bytes_read=self._bytes,
        )

    @property
    def activity(self) -> tuple[int, ...]:
        """Return counters that change with any activity of the informer, including failures."""
        return self._connections, self._failures, self._bytes

    async def run(self) -> None:
        """Watch until cancelled. All errors of the server are retried.

        Raises:
            NotFound, Forbidden: the resource is optional, and absent or forbidden.
            Exception: the exception of a listener of the store.
        """
        retry, relisted = 0, False
        while True:
            progress, began = self._updater.progress, self._clock.monotonic()
            used = self._abilities.known()
            error: Exception | None = None
            try:
                await self._connect()
            except Gone as again:
                logger.debug("Relisting %s: %s", self.resource.plural, again)
                self._require_relist()
                self._enter("Listing")  # immediately, because the store may be long out of date
                error = again
            except (ApiError, Unreachable, InputError) as failure:
                if self._optional and isinstance(failure, NotFound | Forbidden):
                    raise
                if self._adapt(failure) or used != self._abilities.known():
                    continue
                error = failure
            if self._updater.progress > progress or self._clock.monotonic() - began >= STABLE_SECONDS:
                retry = self._refusals = 0
                self._recovered()
            relist = isinstance(error, Gone)
            at_once, relisted = (not relisted if relist else retry == 0), relist
            if error is None or relist:
                if at_once:
                    retry = max(retry, 1)  # back off the next time, unless data arrives first
                    continue
                error = error or Unreachable("the server ended the watch without data")
            self._failures += 1
            await self._wait(error, retry)
            retry += 1

    async def _connect(self) -> None:
        """List if necessary, then watch until the connection ends or fails."""
        codec = self._codec()
        if self._updater.version:
            await self._watch(codec, initial=False)
        elif self._abilities.watch_list:
            await self._watch(codec, initial=True)
        else:
            await self._list(codec)
            await self._watch(codec, initial=False)

    @property
    def _has_protobuf(self) -> bool:
        """Return whether the resource has a protobuf encoding, which custom resources do not have."""
        kind = self.resource.type_name
        return self._decode is None and kind in GROUPS and kind not in JSON_ONLY

    def _codec(self, interner: Interner | None = None) -> Codec:
        kind, interner = self.resource.type_name, interner or self._interner
        if self._has_protobuf and self._abilities.protobuf:
            from trimtab.kube.wire.protobuf import ProtobufCodec

            return ProtobufCodec(kind, interner)
        return JsonCodec(kind, interner, self._decode)

    def _require_relist(self) -> None:
        """List again instead of resuming the watch.

        The list must not come from the server's cache: one that lags behind the store would restore deleted objects.
        """
        self._updater.version = self._first_version = ""

    def _adapt(self, error: Exception) -> bool:
        """Disable a feature that the server has just rejected, and return whether to retry immediately."""
        abilities = self._abilities
        status = error.status if isinstance(error, ApiError) else 0
        if isinstance(error, InputError) and self._updater.lists:
            self._require_relist()  # a frame was lost in a format that works in general
            return False
        if (
            abilities.protobuf
            and self._has_protobuf
            and (status in UNSUPPORTED_FORMAT or isinstance(error, InputError))
        ):
            logger.info("The API server does not support protobuf for %s; using JSON: %s", self.resource.plural, error)
            abilities.protobuf = False
            return True
        if abilities.watch_list and not self._updater.version and status in UNSUPPORTED_OPTION:
            logger.info("The API server does not support WatchList for %s; using List: %s", self.resource.plural, error)
            abilities.watch_list = False
            return True
        return False

    async def _wait(self, error: Exception, retry: int) -> None:
        refused = isinstance(error, Forbidden | NotFound)
        if isinstance(error, NotFound):
            self._require_relist()  # when the resource is served again
        wait = self._refused_for() if refused else RETRY.delay(retry)
        if isinstance(error, Forbidden):
            wait = min(wait, RETRY_FORBIDDEN_MAXIMUM)
        if isinstance(error, ApiError) and error.retry_after:
            wait = max(wait, error.retry_after)
        self.unconfirmed = self._synced.is_set()
        self._enter("Refused" if refused else "Retrying", str(error) or type(error).__name__)
        self._report(error, wait, at_once=refused and wait >= RETRY_REFUSED.initial)
        await self._clock.sleep(wait)

    def _report(self, error: Exception, wait: float, *, at_once: bool) -> None:
        now = self._clock.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        warn = not self._warned and (at_once or now - self._failing_since >= WARN_AFTER)
        self._warned = self._warned or warn
        level = logging.WARNING if warn else logging.DEBUG
        logger.log(level, "Failed to watch %s; retrying in %.1f s: %s", self.resource.plural, wait, error)

    def _recovered(self) -> None:
        if self._warned and self._failing_since is not None:
            seconds = self._clock.monotonic() - self._failing_since
            logger.info("Watch of %s recovered after %.0f s", self.resource.plural, seconds)
        self._failing_since, self._warned = None, False

    def _resume_idle(self, silence: IdleTimeout) -> None:
        """Prepare to resume a silent watch.

        The watch is considered disconnected until data arrives, because the connection may have hung.
        """
        logger.debug("Watch of %s received no data; resuming the watch: %s", self.resource.plural, silence)
        self._silent = True
        self.unconfirmed = self._synced.is_set()
        self._enter("Retrying", str(silence))

    def _refused_for(self) -> float:
        """Return the number of seconds to wait after a rejected request."""
        doubted = QUICK_REFUSAL_RETRIES if self._synced.is_set() else 0
        self._refusals += 1
        if self._refusals <= doubted:
            return RETRY.delay(self._refusals - 1)
        return RETRY_REFUSED.delay(self._refusals - doubted - 1)

    def _enter(self, phase: str, error: str = "") -> None:
        if (self.state.phase, self.state.error) != (phase, error):
            self.state = InformerState(phase=phase, error=error, since=self._clock.now())

    async def _list(self, codec: Codec) -> None:
        """Fill the store from a list, page by page.

        If the server responds from its cache, it sends the complete list as one page. If that response was truncated,
        the next list is requested in pages that the server actually limits. The server ends each response after a
        minute, so a complete list might never arrive over a slow connection.
        """
        intake, before = self._updater, self._updater.events
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
        self.unconfirmed = False
        self._synced.set()
        self._recovered()

    async def _page(self, codec: Codec, params: dict[str, str]) -> Page:
        """Read one page of a list into the store.

        A server that responds from its cache sends the complete list instead.
        """
        self._connections += 1
        splitter = codec.list_splitter()
        async with self._api.stream(
            self._path, params=params, accept=codec.list_type, idle_timeout=IDLE_TIMEOUT
        ) as chunks:
            async for chunk in chunks:
                self._bytes += len(chunk)
                await self._items(codec, splitter.feed(chunk))
        page = splitter.end()
        if page is None:
            raise Unreachable(f"the list of {self.resource.plural} was truncated")
        await self._items(codec, page.items)
        return page

    async def _items(self, codec: Codec, raws: Iterable[bytes | Raw]) -> None:
        slice_ = TimeSlice()
        for raw in raws:
            await self._object(codec, raw)
            if slice_.over:
                await slice_.pause()
        if self._interner.has_doubled:
            await prune_in_slices(self._interner)

    async def _object(self, codec: Codec, raw: bytes | Raw) -> None:
        """Decode and apply an object.

        A large object is decoded in a thread, with an interner of its own because interners are not thread-safe.
        """
        if len(memoryview(raw)) <= THREAD_DECODE_BYTES:
            self._updater.take(try_decode(codec, raw))
            return
        apart = self._codec(Interner(self._interner.limits))
        decoded: Any = await asyncio.to_thread(try_decode, apart, raw)
        if isinstance(decoded, Pod):
            decoded = share_pod(decoded, self._interner)
        self._updater.take(decoded)

    async def _watch(self, codec: Codec, *, initial: bool) -> None:
        """Watch until the stream ends.

        Start with all existing objects if ``initial``, or else at the last resource version.
        """
        self._connections += 1
        self._updater.begin(initial=initial)
        splitter = codec.splitter()
        params = self._watch_params(initial=initial)
        async with self._api.stream(
            self._path, params=params, accept=codec.watch_type, idle_timeout=IDLE_TIMEOUT
        ) as chunks:
            self._enter("Listing" if initial else "Watching")
            try:
                async for chunk in chunks:
                    await self._chunk(codec, splitter, chunk)
            except IdleTimeout as silence:
                if self.state.phase != "Watching":
                    raise
                self._resume_idle(silence)

    def _watch_params(self, *, initial: bool) -> dict[str, str]:
        longest = IDLE_WATCH_TIMEOUT if self._silent and not initial else WATCH_TIMEOUT
        seconds = longest + random.randrange(longest // 10)
        params = self._selectors | (WATCH_LIST_PARAMS if initial else WATCH_PARAMS) | {"timeoutSeconds": str(seconds)}
        version = self._first_version if initial else self._updater.version
        return params | ({"resourceVersion": version} if version else {})

    async def _chunk(self, codec: Codec, splitter: Splitter, chunk: bytes) -> None:
        self._bytes += len(chunk)
        slice_ = TimeSlice()
        for frame in splitter.feed(chunk):
            event = codec.frame(frame)
            if event.type in _WITH_OBJECT:
                await self._object(codec, event.raw)
            else:
                self._updater.event(codec, event)
            if slice_.over:
                await slice_.pause()
        if self.state.phase == "Listing" and not self._updater.listing:
            self._synced.set()
            self._enter("Watching")
        self.unconfirmed = self._silent = False
        self._recovered()
        self.store.record_activity()
        if self._interner.has_doubled:
            await prune_in_slices(self._interner)
