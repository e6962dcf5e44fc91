r"""Decodes Kubernetes' protobuf (``application/vnd.kubernetes.protobuf``) into the values that planners read.

A body consists of the four bytes ``k8s\0`` and a ``runtime.Unknown`` that contains the object. A watch is a sequence of
frames: a length (four bytes, big-endian) and a ``metav1.WatchEvent``, whose object is such a body. The messages in
``slim.proto`` declare only the fields that are read; the C parser skips the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from google.protobuf.message import DecodeError, Message
from msgspec import Raw, Struct

from trimtab.kube.errors import InputError
from trimtab.kube.objects import KubeObject
from trimtab.kube.wire import slim_pb2
from trimtab.kube.wire.caching_pod_decoder import CachingPodDecoder
from trimtab.kube.wire.codec import ListSplitter, Metadata, Page, Splitter, StatusMessage, WatchFrame
from trimtab.kube.wire.identity import GROUPS, JSON_ONLY
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.projection.fields import FieldError
from trimtab.kube.wire.projection.objects import projector

_MAGIC: Final = b"k8s\0"
_LENGTH: Final = 4
_MAX_FRAME: Final = 1 << 28
"""Maximum frame size. etcd limits objects to 1.5 MiB by default; ``{"ty`` of JSON, read as a length, is much larger."""


class Envelope(Struct, frozen=True):
    """An encoded object with its kind."""

    kind: str
    raw: bytes


def _encode_spec(spec: slim_pb2.PodSpec) -> bytes:
    spec.ClearField("node_name")
    for volume in spec.volumes:
        source = volume.volume_source
        if not (source.HasField("ephemeral") or source.HasField("empty_dir") or source.HasField("host_path")):
            volume.ClearField("name")
    spec.DiscardUnknownFields()
    return spec.SerializeToString(deterministic=True)


_MESSAGES: Final[dict[str, type[Message]]] = {kind: getattr(slim_pb2, kind) for kind in GROUPS if kind not in JSON_ONLY}
_PROJECTORS: Final = {kind: projector(kind, _encode_spec) for kind in _MESSAGES}


def decode_protobuf(kind: str, raw: bytes, *, interner: Interner) -> KubeObject:
    """Decode one object of a known kind.

    Args:
        kind: a type name in :data:`~trimtab.kube.wire.identity.GROUPS` that is not in ``JSON_ONLY``.
        raw: the bytes of the object inside its envelope.
        interner: shares identical parts with other objects.

    Raises:
        InputError: the object is invalid. The error names the object and, if known, the field.
        KeyError: there is no type for the kind.
    """
    message: Any = _MESSAGES[kind]()
    try:
        message.MergeFromString(raw)
        return _PROJECTORS[kind](message, interner)
    except FieldError as error:
        raise InputError(error.message, object=f"{kind}/{_name(message.metadata)}", field=error.path) from None
    except DecodeError as error:
        raise InputError(f"is not the protobuf of a {kind}: {error}", object=kind) from None


def decode_envelope(body: bytes) -> Envelope:
    """Decode the envelope of a response body, or of the object in a watch event.

    Raises:
        InputError: the bytes are not Kubernetes protobuf.
    """
    if not body.startswith(_MAGIC):
        raise InputError(f"is not Kubernetes protobuf: it begins with {body[:4]!r}, not with {_MAGIC!r}")
    unknown = slim_pb2.Unknown()
    try:
        unknown.MergeFromString(body[len(_MAGIC) :])
    except DecodeError as error:
        raise InputError(f"is not Kubernetes protobuf: {error}") from None
    return Envelope(kind=unknown.type_meta.kind, raw=unknown.raw)


class FrameSplitter:
    """Splits a stream into frames, which consist of a length of four bytes and a watch event."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Add a chunk and yield the complete frames, without their lengths.

        Frames that are not consumed are yielded again with the next chunk.

        Raises:
            InputError: a length is implausible, so the stream has another format, e.g. JSON.
        """
        buffer = self._buffer
        buffer += chunk
        start = 0
        try:
            while len(buffer) - start >= _LENGTH:
                size = int.from_bytes(buffer[start : start + _LENGTH], "big")
                if size > _MAX_FRAME:
                    raise InputError(f"is not a protobuf watch: it begins with {bytes(buffer[start : start + 40])!r}")
                end = start + _LENGTH + size
                if end > len(buffer):
                    return
                frame = bytes(buffer[start + _LENGTH : end])
                start = end
                yield frame
        finally:
            del buffer[:start]


class ProtobufCodec:
    """Decodes one kind from protobuf (:class:`~trimtab.kube.wire.codec.Codec`).

    Args:
        kind: a type name in :data:`~trimtab.kube.wire.identity.GROUPS` that is not in ``JSON_ONLY``.
        interner: shares identical parts of objects.
    """

    list_type = "application/vnd.kubernetes.protobuf"
    watch_type = "application/vnd.kubernetes.protobuf;stream=watch"

    def __init__(self, kind: str, interner: Interner) -> None:
        self._kind = kind
        self._decode: Callable[[bytes], KubeObject] = partial(decode_protobuf, kind, interner=interner)
        if kind == "Pod":
            self._decode = CachingPodDecoder(interner, general=self._decode, encode_spec=_encode_spec).decode

    def splitter(self) -> Splitter:
        """See :class:`~trimtab.kube.wire.codec.Codec`."""
        return FrameSplitter()

    def frame(self, frame: bytes) -> WatchFrame:
        """See :class:`~trimtab.kube.wire.codec.Codec`."""
        event = slim_pb2.WatchEvent()
        try:
            event.MergeFromString(frame)
        except DecodeError as error:
            raise InputError(f"is not a watch event: {error}", object=self._kind) from None
        return WatchFrame(type=event.type, raw=decode_envelope(event.object.raw).raw)

    def list_splitter(self) -> ListSplitter:
        """See :class:`~trimtab.kube.wire.codec.Codec`."""
        return ItemSplitter(self._kind)

    def decode(self, raw: bytes | Raw) -> KubeObject:
        """See :class:`~trimtab.kube.wire.codec.Codec`."""
        return self._decode(bytes(raw))

    def metadata(self, raw: bytes | Raw) -> Metadata:
        """See :class:`~trimtab.kube.wire.codec.Codec`. Field 1 is the metadata in every kind."""
        partial = slim_pb2.PartialObject()
        try:
            partial.MergeFromString(bytes(raw))
        except DecodeError:
            return Metadata()
        metadata = partial.metadata
        return Metadata(
            namespace=metadata.namespace,
            name=metadata.name,
            resource_version=metadata.resource_version,
            annotations=dict(metadata.annotations),
        )

    def status(self, raw: bytes | Raw) -> StatusMessage:
        """See :class:`~trimtab.kube.wire.codec.Codec`."""
        status = slim_pb2.Status()
        try:
            status.MergeFromString(bytes(raw))
        except DecodeError:
            return StatusMessage(message=repr(bytes(raw)[:200]))
        return StatusMessage(
            code=status.code,
            reason=status.reason,
            message=status.message,
            retry_after=float(status.details.retry_after_seconds) or None,
        )


def decode_error(body: bytes) -> dict[str, Any] | None:
    """Decode a Status in protobuf into its JSON form. Return ``None`` if the body is not a Status.

    The server encodes errors in the requested format.
    """
    status = slim_pb2.Status()
    try:
        envelope = decode_envelope(body)
        status.MergeFromString(envelope.raw)
    except (InputError, DecodeError):
        return None
    if envelope.kind not in {"Status", ""}:
        return None
    causes = [
        {"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in status.details.causes
    ]
    return {
        "kind": "Status",
        "code": status.code,
        "reason": status.reason,
        "message": status.message,
        "details": {"causes": causes, "retryAfterSeconds": status.details.retry_after_seconds},
    }


def _name(metadata: Any) -> str:
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else str(metadata.name)


_TYPE_META: Final = 0x0A
_RAW: Final = 0x12
"""Tags of the envelope's fields: field 1 is the type of the list, field 2 the list."""
_METADATA: Final = 0x0A
_ITEM: Final = 0x12
"""Tags of the list's fields: field 1 is its metadata, field 2 an item.

Each tag is followed by the length of the field.
"""
_MORE: Final = 0x80
"""The bit that is set in each byte of a varint except the last."""
_LONGEST: Final = 10
"""Maximum number of bytes of a varint."""


class ItemSplitter:
    """Splits the body of a list into items while it arrives (:class:`~trimtab.kube.wire.codec.ListSplitter`).

    API servers from v1.33 encode lists object by object (KEP-5116). So neither side needs memory for the complete list,
    and the client decodes the first objects while the server still encodes the others. A WatchList takes four times the
    server's CPU time, because each event is written, flushed and encrypted. The list is inside a ``runtime.Unknown``
    that starts with its length, so a truncated list is detected.
    """

    __slots__ = ("_buffer", "_kind", "_left", "_metadata")

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._buffer = b""
        self._left = -1  # bytes of the list that are not split yet; negative before the list starts
        self._metadata = slim_pb2.ListMeta()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Add a chunk, and yield the complete items. The caller must consume them before the next chunk.

        Raises:
            InputError: the body is not a list in protobuf.
        """
        buffer = self._buffer + chunk if self._buffer else chunk
        position = 0 if self._left >= 0 else self._begin(buffer)
        while self._left > 0:
            try:
                tag, size, start = buffer[position], buffer[position + 1], position + 2
                if size >= _MORE:  # inlined, because most lengths have two bytes and a call per item would be slow
                    size, start = size + (buffer[start] - 1 << 7), start + 1
                    if buffer[start - 1] >= _MORE:
                        size, start = _number(buffer, position + 1)
            except IndexError:
                break
            end = start + size
            if end > len(buffer):
                break
            self._left -= end - position
            position = end
            if tag == _ITEM:
                yield buffer[start:end]
            elif tag == _METADATA:
                self._read_metadata(buffer[start:end])
            else:
                raise self._no_list(f"field {tag >> 3}")
        if self._left < 0:
            self._buffer = buffer
        else:
            self._buffer = buffer[position : position + self._left]  # ignore what follows the list

    def end(self) -> Page | None:
        """Return the list's metadata, or ``None`` if the body was truncated."""
        if self._left:
            return None
        metadata = self._metadata
        return Page(resource_version=metadata.resource_version, next=metadata.continue_token, items=[])

    def _begin(self, buffer: bytes) -> int:
        """Decode the start of the envelope, and return the offset of the list, or 0 if more data is needed."""
        if not _MAGIC.startswith(buffer[: len(_MAGIC)]):
            raise self._no_list(repr(buffer[:40]))
        position = len(_MAGIC)
        try:
            while (tag := buffer[position]) != _RAW:
                if tag != _TYPE_META:
                    raise self._no_list(f"field {tag >> 3} of the envelope")
                size, position = _number(buffer, position + 1)
                position += size
            self._left, position = _number(buffer, position + 1)
        except IndexError:
            return 0
        return position

    def _read_metadata(self, raw: bytes) -> None:
        try:
            self._metadata.MergeFromString(raw)
        except DecodeError as error:
            raise self._no_list(str(error)) from None

    def _no_list(self, why: str) -> InputError:
        return InputError(f"is not a list in Kubernetes protobuf: {why}", object=self._kind)


def _number(buffer: bytes, position: int) -> tuple[int, int]:
    """Read a varint, and return its value and the offset of its end.

    Raises:
        IndexError: the buffer is too short.
    """
    number = 0
    for shift in range(_LONGEST):
        byte = buffer[position + shift]
        number |= (byte & (_MORE - 1)) << (7 * shift)
        if byte < _MORE:
            return number, position + shift + 1
    raise InputError("is not protobuf: a number does not end")
