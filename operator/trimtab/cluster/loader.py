"""Loads a live cluster into a Snapshot once, for the command line.

An informer is not used, because it runs until it is stopped and retries every failure, while a command should report
errors at once. A list request is cheapest for the server: for 150,000 pods it takes 2 s of CPU, and a watch with
initial events (WatchList) takes 7 s. The loader sends one request per kind to servers that stream lists, and requests
pages from older servers, which buffer the whole list. It uses protobuf, or JSON in pages for custom resources and for
servers without protobuf. The requests have no resource version, so the server returns the latest state of etcd.

Objects are put into the snapshot as they arrive, so only one page or a few kilobytes of a stream are held in memory in
addition to the snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Raw

from trimtab.cluster.kinds import ABSENT_ON_OLD_SERVERS, KINDS, OPTIONAL, versions
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.api import Api, ApiError, Forbidden, Gone, NotFound, ServerError, TooManyRequests, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.discovery import streams_lists
from trimtab.kube.errors import InputError
from trimtab.kube.objects import KubeObject
from trimtab.kube.resources import Resource
from trimtab.kube.retry import Backoff
from trimtab.kube.watching.informer import PAGE_SIZE, UNSUPPORTED_FORMAT
from trimtab.kube.wire.codec import Codec, ListSplitter, Page
from trimtab.kube.wire.identity import JSON_ONLY
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.json_codec import JsonCodec
from trimtab.kube.wire.protobuf import ProtobufCodec

IDLE: Final = 60.0
"""Seconds without data after which a connection is considered hung. Servers send lists without pauses."""

RETRY: Final = Backoff(initial=0.2, attempts=3)
"""Backoff after broken connections and for busy servers. It allows few attempts, because a user is waiting."""

OnInvalid = Callable[[InputError], None]
"""Callback for an invalid object. If it raises the error, loading fails; otherwise the object is skipped."""

OnAbsent = Callable[[Resource, ApiError], None]
"""Called for each kind that is treated as empty, with the server's error.

A kind is treated as empty if the server does not serve it, or if it is optional and the user may not list it. The
callback is not called for custom resources of node groups that do not exist, because no cluster has all of them.
"""


class LoadFailed(Exception):
    """The objects of a kind could not be listed.

    Attributes:
        action: the failed action as verb and resource: ``list poddisruptionbudgets.policy``.
        cause: the server's error, or the error that it did not respond.
    """

    def __init__(self, resource: Resource, cause: ApiError | Unreachable) -> None:
        self.action = f"list {resource.name}"
        self.cause = cause
        super().__init__(f"{self.action}: {cause}")


async def load(
    api: Api,
    *,
    kinds: Sequence[Resource] = KINDS,
    on_invalid: OnInvalid | None = None,
    on_absent: OnAbsent | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Snapshot:
    """Load the existing objects of all kinds concurrently.

    The objects of each kind are consistent. Objects of different kinds may be from different points in time within the
    duration of this call.

    Args:
        api: the API server.
        kinds: the kinds to load; planning an autoscaler needs :data:`~trimtab.cluster.kinds.SNAPSHOT_KINDS`.
        on_invalid: called with the error of an invalid object, which is then skipped. By default the error is raised.
        on_absent: called with each kind that is treated as empty, and the error
            (:data:`~trimtab.cluster.kinds.ABSENT_ON_OLD_SERVERS`, :data:`~trimtab.cluster.kinds.OPTIONAL`), once all
            kinds are loaded. If one cannot be listed, its error is all that the user sees.
        clock: waits between retries.

    Raises:
        LoadFailed: a kind cannot be listed. If several cannot, the error is that of the first one in ``kinds``.
        InputError: an object is invalid.
    """
    try:
        whole = await streams_lists(api)
    except Unreachable as error:
        raise LoadFailed(kinds[0], error) from error
    snapshot, interner = Snapshot(), Interner()
    readers = [
        _Reader(api, kind, snapshot, interner, whole=whole, on_invalid=on_invalid, clock=clock) for kind in kinds
    ]
    tasks = [asyncio.create_task(reader.run(), name=f"load {reader.resource.plural}") for reader in readers]
    try:
        for task in tasks:
            await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for reader in readers:
        if on_absent is not None and reader.absence is not None and is_reported_absence(reader.asked, reader.absence):
            on_absent(reader.asked, reader.absence)
    return snapshot


def is_tolerated_absence(resource: Resource, error: ApiError) -> bool:
    """Return whether a kind may be treated as empty after this error, instead of failing."""
    if resource in OPTIONAL:
        return isinstance(error, NotFound | Forbidden)
    return resource in ABSENT_ON_OLD_SERVERS and isinstance(error, NotFound)


def is_reported_absence(resource: Resource, error: ApiError) -> bool:
    """Return whether to warn the user that a kind is treated as empty after this error.

    There is no warning for custom resources that are not installed, because that is normal.
    """
    return resource not in OPTIONAL or isinstance(error, Forbidden)


class _MalformedResponse(Exception):
    """The response is not in the requested format, for example because a proxy replaced it."""


class _Reader:
    """Loads the objects of one kind, with fallbacks for features that the server lacks."""

    def __init__(
        self,
        api: Api,
        resource: Resource,
        snapshot: Snapshot,
        interner: Interner,
        *,
        whole: bool,
        on_invalid: OnInvalid | None,
        clock: Clock,
    ) -> None:
        self.absence: ApiError | None = None
        self.resource = resource
        self.asked, *self._older = versions(resource)
        self._api = api
        self._snapshot = snapshot
        self._interner = interner
        self._on_invalid = on_invalid
        self._clock = clock
        self._protobuf = resource.type_name not in JSON_ONLY
        self._whole = whole and self._protobuf  # JSON items can be decoded only once the response is complete
        self._taken: list[KubeObject] = []

    async def run(self) -> None:
        retry = 0
        while True:
            try:
                await self._read()
                return
            except (ApiError, Unreachable, _MalformedResponse) as error:
                if self._fall_back_to_json(error):
                    self._forget()
                    continue
                if isinstance(error, NotFound) and self._older:
                    self.resource = self._older.pop(0)
                    self._forget()
                    continue
                if isinstance(error, ApiError) and is_tolerated_absence(self.asked, error):
                    self._forget()
                    self.absence = error
                    return
                if isinstance(error, _MalformedResponse):
                    raise InputError(f"the API server's response {error}", object=self.resource.plural) from error
                passing = isinstance(error, Unreachable | Gone | ServerError | TooManyRequests)
                if not passing or RETRY.exhausted(retry):
                    raise LoadFailed(self.resource, error) from error
                if isinstance(error, Unreachable):
                    self._whole = False  # servers abort requests after a minute, which a whole list may exceed
            await self._clock.sleep(RETRY.delay(retry))
            retry += 1
            self._forget()

    def _fall_back_to_json(self, error: ApiError | Unreachable | _MalformedResponse) -> bool:
        """Switch to JSON if the server does not support protobuf, and return whether to retry the request."""
        refused = isinstance(error, _MalformedResponse) or (
            isinstance(error, ApiError) and error.status in UNSUPPORTED_FORMAT
        )
        if not (refused and self._protobuf):
            return False
        self._protobuf = self._whole = False
        return True

    async def _read(self) -> None:
        codec: Codec
        if self._protobuf:
            codec = ProtobufCodec(self.resource.type_name, self._interner)
        else:
            codec = JsonCodec(self.resource.type_name, self._interner)
        params = {} if self._whole else {"limit": str(PAGE_SIZE)}
        while True:
            page = await self._page(codec, params)
            if not page.next:
                return
            params = {"limit": str(PAGE_SIZE), "continue": page.next}

    async def _page(self, codec: Codec, params: dict[str, str]) -> Page:
        """Read a list, or one page of it, and put its objects into the snapshot."""
        splitter = codec.list_splitter()
        async with self._api.stream(
            self.resource.path(), params=params, accept=codec.list_type, idle_timeout=IDLE
        ) as chunks:
            async for chunk in chunks:
                for raw in _items(splitter, chunk):
                    self._take(codec, raw)
        page = _end(splitter)
        if page is None:
            raise Unreachable(f"the list of {self.resource.plural} is truncated")
        for raw in page.items:
            self._take(codec, raw)
        return page

    def _take(self, codec: Codec, raw: bytes | Raw) -> None:
        try:
            value: KubeObject = codec.decode(raw)
        except InputError as error:
            if self._on_invalid is None:
                raise
            self._on_invalid(error)
            return
        self._snapshot.put(value)
        self._taken.append(value)

    def _forget(self) -> None:
        """Remove the objects that were read before the failure from the snapshot.

        They may be deleted in the cluster before the retry.
        """
        for value in self._taken:
            self._snapshot.remove(value)
        self._taken.clear()


def _items(splitter: ListSplitter, chunk: bytes) -> Iterator[bytes | Raw]:
    try:
        yield from splitter.feed(chunk)
    except InputError as error:
        raise _MalformedResponse(error.message) from error


def _end(splitter: ListSplitter) -> Page | None:
    try:
        return splitter.end()
    except InputError as error:
        raise _MalformedResponse(error.message) from error
