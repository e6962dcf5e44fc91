r"""Decoding of Kubernetes' protobuf (``application/vnd.kubernetes.protobuf``) into the values that planners read.

A body is the four bytes ``k8s\0`` and a ``runtime.Unknown`` around the object. A watch is frames of a length (four
bytes, big-endian) and a ``metav1.WatchEvent``, whose object is such a body again. The messages of ``slim.proto`` name
only what is read; the parser skips the rest at the speed of C.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError, Message
from msgspec import Struct

from trimtab.kube.errors import InputError
from trimtab.kube.objects import KubeObject
from trimtab.kube.wire import slim_pb2
from trimtab.kube.wire.decode import GROUPS
from trimtab.kube.wire.fields import FieldError
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.projection import projector

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"
WATCH_CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf;stream=watch"

_MAGIC: Final = b"k8s\0"
_LENGTH: Final = 4


class Envelope(Struct, frozen=True):
    """An object that is not decoded yet."""

    kind: str
    raw: bytes


class WatchFrame(Struct, frozen=True):
    """A watch event whose object is not decoded yet; ``type`` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    kind: str
    raw: bytes


class StatusMessage(Struct, frozen=True):
    """What a metav1.Status says."""

    code: int
    reason: str
    message: str
    retry_after: float | None


class Metadata(Struct, frozen=True):
    """The metadata of an object of any kind: of bookmarks, and of what cannot be decoded as a whole."""

    namespace: str
    name: str
    resource_version: str
    annotations: dict[str, str]


def _encode_spec(spec: slim_pb2.PodSpec) -> bytes:
    spec.ClearField("node_name")
    spec.DiscardUnknownFields()
    return spec.SerializeToString(deterministic=True)


_MESSAGES: Final[dict[str, type[Message]]] = {kind: getattr(slim_pb2, kind) for kind in GROUPS}
_PROJECTORS: Final = {kind: projector(kind, _encode_spec) for kind in GROUPS}


def decode_protobuf(kind: str, raw: bytes, *, interner: Interner) -> KubeObject:
    """Decode one object of a known kind.

    Args:
        kind: one of :data:`trimtab.kube.wire.decode.GROUPS`.
        raw: the object's own bytes, out of its envelope.
        interner: shares equal parts with other objects.

    Raises:
        InputError: naming the object and, where it is known, the field.
        KeyError: trimtab has no type for the kind.
    """
    message: Any = _MESSAGES[kind]()
    try:
        message.MergeFromString(raw)
        return _PROJECTORS[kind](message, interner)
    except FieldError as error:
        raise InputError(error.message, object=f"{kind}/{_name(message.metadata)}", field=error.path) from None
    except DecodeError as error:
        raise InputError(f"is no protobuf of a {kind}: {error}", object=kind) from None


def decode_envelope(body: bytes) -> Envelope:
    """Open a body, or the object of a watch event.

    Raises:
        InputError: these are no Kubernetes protobuf bytes.
    """
    if not body.startswith(_MAGIC):
        raise InputError(f"is no Kubernetes protobuf: it begins with {body[:4]!r}, not with {_MAGIC!r}")
    unknown = slim_pb2.Unknown()
    try:
        unknown.MergeFromString(body[len(_MAGIC) :])
    except DecodeError as error:
        raise InputError(f"is no Kubernetes protobuf: {error}") from None
    return Envelope(kind=unknown.type_meta.kind, raw=unknown.raw)


def decode_frame(frame: bytes) -> WatchFrame:
    """Open one frame of a watch, without its length.

    Raises:
        InputError: these are no bytes of a watch event.
    """
    event = slim_pb2.WatchEvent()
    try:
        event.MergeFromString(frame)
    except DecodeError as error:
        raise InputError(f"is no watch event: {error}") from None
    envelope = decode_envelope(event.object.raw)
    return WatchFrame(type=event.type, kind=envelope.kind, raw=envelope.raw)


def decode_list(body: bytes) -> tuple[str, str, list[bytes]]:
    """Open a list: its resource version, the token of its next page (``""`` on the last), its items' bytes.

    Raises:
        InputError: these are no bytes of a list.
    """
    listed = slim_pb2.ObjectList()
    try:
        listed.MergeFromString(decode_envelope(body).raw)
    except DecodeError as error:
        raise InputError(f"is no list: {error}") from None
    return listed.metadata.resource_version, listed.metadata.continue_token, list(listed.items)


def decode_status(raw: bytes) -> StatusMessage:
    """Read the Status that an ERROR event carries; what cannot be read is a Status without a code."""
    status = slim_pb2.Status()
    try:
        status.MergeFromString(raw)
    except DecodeError:
        return StatusMessage(code=0, reason="", message=repr(raw[:200]), retry_after=None)
    return StatusMessage(
        code=status.code,
        reason=status.reason,
        message=status.message,
        retry_after=float(status.details.retry_after_seconds) or None,
    )


def decode_metadata(raw: bytes) -> Metadata:
    """Read the metadata of an object of any kind; bytes that are no object have none.

    Every Kubernetes object has its metadata in field 1, so this works for kinds without a type too.
    """
    partial = slim_pb2.PartialObject()
    try:
        partial.MergeFromString(raw)
    except DecodeError:
        return Metadata(namespace="", name="", resource_version="", annotations={})
    metadata = partial.metadata
    return Metadata(
        namespace=metadata.namespace,
        name=metadata.name,
        resource_version=metadata.resource_version,
        annotations=dict(metadata.annotations),
    )


def _name(metadata: Any) -> str:
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else str(metadata.name)


class FrameSplitter:
    """Cuts a stream of chunks of any size into frames; belongs to one connection."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the frames that are complete; the rest waits for the next chunk.

        What is not consumed of the iterator comes again with the next chunk.
        """
        buffer = self._buffer
        buffer += chunk
        start = 0
        try:
            while len(buffer) - start >= _LENGTH:
                end = start + _LENGTH + int.from_bytes(buffer[start : start + _LENGTH], "big")
                if end > len(buffer):
                    return
                frame = bytes(buffer[start + _LENGTH : end])
                start = end
                yield frame
        finally:
            del buffer[:start]

    @property
    def pending(self) -> int:
        """How many bytes wait for the rest of their frame."""
        return len(self._buffer)
