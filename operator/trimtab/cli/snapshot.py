"""``trimtab snapshot``: the live cluster as a file that ``--cluster`` reads.

The list is written as it comes, page by page: a cluster of 150,000 pods is half a gigabyte of JSON, which need not be
in memory to be written down.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, TextIO

import click
import msgspec

from trimtab.cli.errors import reported
from trimtab.cli.options import STDIN, connection_options
from trimtab.cli.redaction import redact
from trimtab.cluster.load import KINDS, LoadFailed
from trimtab.kube.api import Api, ApiError, Gone, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.resources import Resource

PAGE: Final = 500
"""Objects a page, as kubectl asks for."""

RESTARTS: Final = 2
"""How often a kind is begun anew whose pages expired midway; a page token lives five minutes."""

YAML_SUFFIXES: Final = (".yaml", ".yml")


@click.command()
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE",
    default=STDIN,
    help="Where to: .yaml or .yml for YAML, .json for JSON, - (the default) for JSON on standard output. "
    "JSON is the form for big clusters: it is written and read many times faster.",
)
@connection_options
def snapshot(*, target: str, kubeconfig: str | None, context: str | None) -> None:
    """Save the live cluster as a v1 List of what planners read, for `--cluster`.

    It holds nodes, pods, disruption budgets, namespaces and priority classes, and no Secrets or ConfigMaps. Snapshots
    get shared, so of containers only name, image, ports, resources and restart policy are kept: no environment, no
    commands, arguments, probes or hooks. managedFields, the last-applied annotation, volumes of secrets and config
    maps, and drivers' parameters are left out too. Labels and other annotations are kept as they are.

    A plan on the snapshot is the plan on the cluster as it was then.
    """
    from trimtab.cli.live import with_api

    with reported():
        make_writer = _writer(target)
        with _opened(target) as stream:
            progress = Progress(sys.stderr)
            with_api(
                lambda api: write_cluster(api, make_writer(stream), progress=progress),
                kubeconfig=kubeconfig,
                context=context,
            )


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


async def write_cluster(api: Api, writer: Writer, *, kinds: Sequence[Resource] = KINDS, progress: Progress) -> None:
    """Write the list of a live cluster.

    Each kind is as it was at one moment: pages of one list share a resource version.

    Raises:
        LoadFailed: a kind cannot be listed.
    """
    writer.begin()
    for resource in kinds:
        try:
            await _write_kind(api, writer, resource, progress)
        except (ApiError, Unreachable) as error:
            raise LoadFailed(resource, error) from error
    writer.end()
    progress.end()


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


def _writer(target: str) -> Callable[[IO[bytes]], Writer]:
    suffix = Path(target).suffix.lower()
    if target == STDIN or suffix == ".json":
        return JsonList
    if suffix in YAML_SUFFIXES:
        return YamlList
    raise InputError(
        f"the name's ending says the format: allowed are .json, {', '.join(YAML_SUFFIXES)}, and - for JSON on standard "
        "output",
        source=target,
    )


@contextmanager
def _opened(target: str) -> Iterator[IO[bytes]]:
    """A seekable file that becomes the target when all went well; what was there before stays if not."""
    if target == STDIN:
        with tempfile.TemporaryFile(prefix="trimtab-") as stream:
            yield stream
            stream.seek(0)
            shutil.copyfileobj(stream, click.get_binary_stream("stdout"))
        return
    path = Path(target)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as stream:
            yield stream
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
