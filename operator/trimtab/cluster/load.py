"""Loading a live cluster once, into a Snapshot: what the command line plans on.

An informer would do more than is wanted: it goes on for ever and waits out every failure, while somebody at a terminal
wants to read what is wrong. A list is the cheapest that a server has for one look: it writes 150,000 pods in 2 s of
CPU, where a watch that begins with them (WatchList) takes 7 s. Servers that write a list as it goes are asked for the
whole of it, older ones, which would hold all of it in memory, for pages; in protobuf, and in pages of JSON where the
server speaks nothing else, as of custom resources. No resource version is named, so what comes is as fresh as etcd has
it.

Objects go into the snapshot as they come, so that a page or a few kilobytes are all that is held besides it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Raw

from trimtab.cluster.kinds import KINDS, MAY_LACK, OPTIONAL, versions
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.api import Api, ApiError, Forbidden, Gone, NotFound, ServerError, TooManyRequests, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.errors import InputError
from trimtab.kube.objects import KubeObject
from trimtab.kube.resources import Resource
from trimtab.kube.retry import Backoff
from trimtab.kube.server_version import streams_lists
from trimtab.kube.watching.informer import NO_FORMAT, PAGE_SIZE
from trimtab.kube.wire import Interner
from trimtab.kube.wire.codec import Codec, ListSplitter, Page
from trimtab.kube.wire.head import JSON_ONLY
from trimtab.kube.wire.json_codec import JsonCodec
from trimtab.kube.wire.protobuf import ProtobufCodec

IDLE: Final = 60.0
"""Seconds of silence after which the server counts as gone; it sends the present objects without a pause."""

RETRY: Final = Backoff(initial=0.2, attempts=3)
"""A cut connection or a busy server may pass; after a few tries somebody at a terminal waits for nothing."""

OnInvalid = Callable[[InputError], None]
"""What to do about an object that cannot be read: raise the error, or note it and leave the object out."""

OnAbsent = Callable[[Resource, ApiError], None]
"""Told of a kind that is taken as none: the server does not know it, or does not show one that is optional.

It is not told of custom resources that make nodes and are not there: no cluster has all of them.
"""


class LoadFailed(Exception):
    """A kind cannot be read.

    Attributes:
        action: what was asked, as verb and resource: ``list poddisruptionbudgets.policy``.
        cause: what the server said, or that it said nothing.
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
    """Read the present objects of all kinds, side by side.

    Each kind is as it was at one moment after the call, the kinds' moments lying as far apart as reading takes.

    Args:
        api: the API server.
        kinds: what to read; who autoscales reads :data:`~trimtab.cluster.kinds.EVERYTHING`.
        on_invalid: called with what is wrong with an object, which is then left out; without it that is raised.
        on_absent: called with each kind that is missed, and why; only some may be, see
            :data:`~trimtab.cluster.kinds.MAY_LACK` and :data:`~trimtab.cluster.kinds.OPTIONAL`.
        clock: waits before another try.

    Raises:
        LoadFailed: of the first kind in order that cannot be read.
        InputError: an object cannot be read.
    """
    try:
        whole = await streams_lists(api)
    except Unreachable as error:
        raise LoadFailed(kinds[0], error) from error
    snapshot, interner = Snapshot(), Interner()
    readers = [
        _Reader(api, kind, snapshot, interner, whole=whole, on_invalid=on_invalid, on_absent=on_absent, clock=clock)
        for kind in kinds
    ]
    tasks = [asyncio.create_task(reader.run(), name=f"load {reader.resource.plural}") for reader in readers]
    try:
        for task in tasks:
            await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return snapshot


def may_miss(resource: Resource, error: ApiError) -> bool:
    """Whether the picture is whole without a kind that the server answered so for."""
    if resource in OPTIONAL:
        return isinstance(error, NotFound | Forbidden)
    return resource in MAY_LACK and isinstance(error, NotFound)


def is_told(resource: Resource, error: ApiError) -> bool:
    """Whether somebody should hear of it: that a custom resource is not there is nothing special."""
    return resource not in OPTIONAL or isinstance(error, Forbidden)


class _Garbled(Exception):
    """The answer is not in the format that was asked for; something between us and the server knows another one."""


class _Reader:
    """Reads one kind, doing without what the server refuses."""

    def __init__(
        self,
        api: Api,
        resource: Resource,
        snapshot: Snapshot,
        interner: Interner,
        *,
        whole: bool,
        on_invalid: OnInvalid | None,
        on_absent: OnAbsent | None,
        clock: Clock,
    ) -> None:
        self.resource = resource
        self._asked, *self._older = versions(resource)
        self._api = api
        self._snapshot = snapshot
        self._interner = interner
        self._on_invalid = on_invalid
        self._on_absent = on_absent
        self._clock = clock
        self._protobuf = resource.type_name not in JSON_ONLY
        self._whole = whole and self._protobuf  # of JSON all has to be there before its items are
        self._taken: list[KubeObject] = []

    async def run(self) -> None:
        retry = 0
        while True:
            try:
                await self._read()
                return
            except (ApiError, Unreachable, _Garbled) as error:
                if self._does_without(error):
                    self._forget()
                    continue
                if isinstance(error, NotFound) and self._older:
                    self.resource = self._older.pop(0)
                    self._forget()
                    continue
                if isinstance(error, ApiError) and may_miss(self._asked, error):
                    self._forget()
                    if self._on_absent is not None and is_told(self._asked, error):
                        self._on_absent(self._asked, error)
                    return
                if isinstance(error, _Garbled):
                    raise InputError(f"the API server's answer {error}", object=self.resource.plural) from error
                passing = isinstance(error, Unreachable | Gone | ServerError | TooManyRequests)
                if not passing or RETRY.exhausted(retry):
                    raise LoadFailed(self.resource, error) from error
                if isinstance(error, Unreachable):
                    self._whole = False  # a server ends whatever takes it a minute, as all of a list may on a slow line
            await self._clock.sleep(RETRY.delay(retry))
            retry += 1
            self._forget()

    def _does_without(self, error: ApiError | Unreachable | _Garbled) -> bool:
        """Go on in JSON where the server speaks no protobuf; whether that is something new to try."""
        refused = isinstance(error, _Garbled) or (isinstance(error, ApiError) and error.status in NO_FORMAT)
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
        """Take in a list, or a page of it."""
        splitter = codec.list_splitter()
        async with self._api.stream(
            self.resource.path(), params=params, accept=codec.list_type, idle_timeout=IDLE
        ) as chunks:
            async for chunk in chunks:
                for raw in _items(splitter, chunk):
                    self._take(codec, raw)
        page = _end(splitter)
        if page is None:
            raise Unreachable(f"the list of {self.resource.plural} ended before its last object")
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
        """Take back what was read before the connection ended: some of it may be gone by the next try."""
        for value in self._taken:
            self._snapshot.remove(value)
        self._taken.clear()


def _items(splitter: ListSplitter, chunk: bytes) -> Iterator[bytes | Raw]:
    try:
        yield from splitter.feed(chunk)
    except InputError as error:
        raise _Garbled(error.message) from error


def _end(splitter: ListSplitter) -> Page | None:
    try:
        return splitter.end()
    except InputError as error:
        raise _Garbled(error.message) from error
