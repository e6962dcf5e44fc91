"""The JSON codec, for custom resources and for servers or proxies that do not support protobuf."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from trimtab.kube.errors import InputError
from trimtab.kube.wire.codec import ListSplitter, Metadata, Page, Splitter, StatusMessage, WatchFrame
from trimtab.kube.wire.decode import decode_json
from trimtab.kube.wire.intern import Interner


class _ListMeta(Struct, rename="camel", gc=False):
    resource_version: str = ""
    next: str = field(name="continue", default="")


class _List(Struct, gc=False):
    items: list[Raw] | None = None
    metadata: _ListMeta = field(default_factory=_ListMeta)


class _Event(Struct, gc=False):
    type: str
    object: Raw


class _ObjectMeta(Struct, rename="camel", gc=False):
    namespace: str = ""
    name: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Object(Struct, gc=False):
    metadata: _ObjectMeta = field(default_factory=_ObjectMeta)


class _StatusDetails(Struct, rename="camel", gc=False):
    retry_after_seconds: int = 0


class _Status(Struct, gc=False):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None


_LIST: Final = msgspec.json.Decoder(_List)
_EVENT: Final = msgspec.json.Decoder(_Event)
_OBJECT: Final = msgspec.json.Decoder(_Object)
_STATUS: Final = msgspec.json.Decoder(_Status)


class LineSplitter:
    """Splits a stream into lines of any length. aiohttp's own reader fails on lines above 128 KiB."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Add a chunk and yield the complete lines that are not empty."""
        if b"\n" not in chunk:
            self._buffer += chunk
            return
        first, *lines = chunk.split(b"\n")
        lines.insert(0, bytes(self._buffer + first))
        self._buffer = bytearray(lines.pop())
        yield from filter(bytes.strip, lines)


class BufferedList:
    """Buffers a list, and decodes it when it is complete. Lists in JSON are requested in small pages."""

    __slots__ = ("_chunks", "_kind")

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._chunks: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[Raw]:
        """See :class:`~trimtab.kube.wire.codec.ListSplitter`."""
        self._chunks.append(chunk)
        return iter(())

    def end(self) -> Page:
        """See :class:`~trimtab.kube.wire.codec.ListSplitter`. A truncated body is invalid JSON."""
        try:
            listed = _LIST.decode(b"".join(self._chunks))
        except msgspec.DecodeError as error:
            raise InputError(f"is not a list: {error}", object=self._kind) from None
        metadata = listed.metadata
        return Page(resource_version=metadata.resource_version, next=metadata.next, items=listed.items or [])


class JsonCodec:
    """Decodes one kind from JSON.

    Args:
        kind: the kind. It must be in :data:`trimtab.kube.wire.identity.GROUPS` unless ``decode`` is given.
        interner: shares identical parts of objects.
        decode: decodes kinds without a type in :mod:`trimtab.kube.wire`, such as trimtab's custom resources. It raises
            :class:`~trimtab.kube.errors.InputError`.
    """

    list_type = "application/json"
    watch_type = "application/json"

    def __init__(self, kind: str, interner: Interner, decode: Callable[[bytes | Raw], Any] | None = None) -> None:
        self._kind = kind
        self._interner = interner
        self._decode = decode

    def splitter(self) -> Splitter:
        """See :class:`~trimtab.kube.wire.codec.Codec`."""
        return LineSplitter()

    def frame(self, frame: bytes) -> WatchFrame:
        """See :class:`~trimtab.kube.wire.codec.Codec`."""
        try:
            event = _EVENT.decode(frame)
        except msgspec.DecodeError as error:
            raise InputError(f"is not a watch event: {error}", object=self._kind) from None
        return WatchFrame(type=event.type, raw=event.object)

    def list_splitter(self) -> ListSplitter:
        """See :class:`~trimtab.kube.wire.codec.Codec`."""
        return BufferedList(self._kind)

    def decode(self, raw: bytes | Raw) -> Any:
        """See :class:`~trimtab.kube.wire.codec.Codec`."""
        if self._decode is not None:
            return self._decode(raw)
        return decode_json(self._kind, raw, interner=self._interner)

    def metadata(self, raw: bytes | Raw) -> Metadata:
        """See :class:`~trimtab.kube.wire.codec.Codec`."""
        try:
            metadata = _OBJECT.decode(raw).metadata
        except msgspec.DecodeError:
            return Metadata()
        return Metadata(
            namespace=metadata.namespace,
            name=metadata.name,
            resource_version=metadata.resource_version,
            annotations=metadata.annotations or {},
        )

    def status(self, raw: bytes | Raw) -> StatusMessage:
        """See :class:`~trimtab.kube.wire.codec.Codec`."""
        try:
            status = _STATUS.decode(raw)
        except msgspec.DecodeError:
            return StatusMessage(message=repr(bytes(raw)[:200]))
        after = status.details.retry_after_seconds if status.details else 0
        return StatusMessage(
            code=status.code, reason=status.reason, message=status.message, retry_after=float(after) or None
        )
