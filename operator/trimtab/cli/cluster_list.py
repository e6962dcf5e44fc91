"""Writing a live cluster down as a v1 List, page by page.

A cluster of 150,000 pods is half a gigabyte of JSON, which need not be in memory to be written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import IO, Any, Final, TextIO

import msgspec

from trimtab.cli.redaction import redact
from trimtab.cluster.kinds import EVERYTHING, versions
from trimtab.cluster.load import LoadFailed, OnAbsent, is_told, may_miss
from trimtab.kube.api import Api, ApiError, Gone, NotFound, Unreachable
from trimtab.kube.resources import Resource

PAGE: Final = 500
"""Objects a page, as kubectl asks for."""

RESTARTS: Final = 2
"""How often a kind is begun anew whose pages expired midway; a page token lives five minutes."""


class Writer(ABC):
    """Writes a v1 List to a seekable stream, so that a part can be taken back and written anew."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    @abstractmethod
    def begin(self) -> None:
        """Write what comes before the items."""

    @abstractmethod
    def item(self, item: dict[str, Any]) -> None:
        """Write an object."""

    @abstractmethod
    def end(self) -> None:
        """Write what comes after the items."""

    def mark(self) -> int:
        """The place that :meth:`rewind` goes back to."""
        return self._stream.tell()

    def rewind(self, mark: int) -> None:
        """Take back what was written since the mark."""
        self._stream.seek(mark)
        self._stream.truncate()


class JsonList(Writer):
    """As JSON, an object a line."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(stream)
        self._first = 0
        self._encode = msgspec.json.Encoder().encode

    def begin(self) -> None:
        """Write what comes before the items."""
        self._stream.write(b'{"apiVersion":"v1","kind":"List","items":[')
        self._first = self._stream.tell()

    def item(self, item: dict[str, Any]) -> None:
        """Write an object."""
        separator = b"\n" if self._stream.tell() == self._first else b",\n"
        self._stream.write(separator + self._encode(item))

    def end(self) -> None:
        """Write what comes after the items."""
        self._stream.write(b"\n]}\n")


class YamlList(Writer):
    """As a YAML document that kubectl reads too."""

    def begin(self) -> None:
        """Write what comes before the items."""
        self._stream.write(b"apiVersion: v1\nkind: List\nitems:\n")

    def item(self, item: dict[str, Any]) -> None:
        """Write an object as one element of a block sequence."""
        self._stream.write(msgspec.yaml.encode([item]))

    def end(self) -> None:
        """Nothing comes after the items."""


async def write_cluster(
    api: Api,
    writer: Writer,
    *,
    kinds: Sequence[Resource] = EVERYTHING,
    progress: Progress,
    on_absent: OnAbsent | None = None,
) -> None:
    """Write the list of a live cluster.

    Each kind is as it was at one moment: pages of one list share a resource version.

    Args:
        api: the API server.
        writer: where to.
        kinds: what to write.
        progress: told how far it is.
        on_absent: called with each kind that is missed, and why, as of :func:`trimtab.cluster.load.load`.

    Raises:
        LoadFailed: a kind cannot be listed.
    """
    writer.begin()
    for resource in kinds:
        try:
            await _write_newest(api, writer, resource, progress)
        except ApiError as error:
            if not may_miss(resource, error):
                raise LoadFailed(resource, error) from error
            if on_absent is not None and is_told(resource, error):
                on_absent(resource, error)
        except Unreachable as error:
            raise LoadFailed(resource, error) from error
    writer.end()
    progress.end()


async def _write_newest(api: Api, writer: Writer, resource: Resource, progress: Progress) -> None:
    *newer, oldest = versions(resource)
    for version in newer:
        try:
            await _write_kind(api, writer, version, progress)
            return
        except NotFound:
            continue
    await _write_kind(api, writer, oldest, progress)


async def _write_kind(api: Api, writer: Writer, resource: Resource, progress: Progress) -> None:
    start = writer.mark()
    for attempt in range(RESTARTS + 1):
        try:
            await _write_pages(api, writer, resource, progress)
            return
        except Gone:
            # The token of the next page has expired; what was written belongs to another moment than the rest would.
            if attempt == RESTARTS:
                raise
            writer.rewind(start)


async def _write_pages(api: Api, writer: Writer, resource: Resource, progress: Progress) -> None:
    token, count = "", 0
    while True:
        params = {"limit": str(PAGE)} | ({"continue": token} if token else {})
        page = await api.request("GET", resource.path(), params=params, timeout=60.0)
        for item in page.get("items") or ():
            writer.item({"apiVersion": resource.api_version, "kind": resource.kind} | redact(resource.kind, item))
            count += 1
        token = page["metadata"].get("continue") or ""
        progress.show(resource.plural, count, count + (page["metadata"].get("remainingItemCount") or 0))
        if not token:
            return


class Progress:
    """How far it is, on stderr, where that is a terminal; nothing elsewhere, so that logs stay clean."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream if stream.isatty() else None

    def show(self, name: str, count: int, total: int) -> None:
        """Overwrite the line with what is being written."""
        if self._stream is not None:
            self._stream.write(f"\r\x1b[K{name} {count:,} of {total:,}")
            self._stream.flush()

    def end(self) -> None:
        """Clear the line."""
        if self._stream is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
