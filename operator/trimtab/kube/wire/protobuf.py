r"""Decoding of Kubernetes' protobuf (``application/vnd.kubernetes.protobuf``) into the values that planners read.

A body is the four bytes ``k8s\0`` and a ``runtime.Unknown`` around the object. A watch is frames of a length (four
bytes, big-endian) and a ``metav1.WatchEvent``, whose object is such a body again. The messages of ``slim.proto`` name
only what is read; the parser skips the rest at the speed of C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from google.protobuf.message import DecodeError, Message
from msgspec import Raw, Struct

from trimtab.kube.errors import InputError
from trimtab.kube.objects import KubeObject
from trimtab.kube.wire import list_stream, slim_pb2
from trimtab.kube.wire.codec import ListSplitter, Metadata, Splitter, StatusMessage, WatchFrame
from trimtab.kube.wire.fields import FieldError
from trimtab.kube.wire.head import GROUPS, JSON_ONLY
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.projection import projector
from trimtab.kube.wire.quick_pod import QuickPods

_MAGIC: Final = b"k8s\0"
_LENGTH: Final = 4
_MAX_FRAME: Final = 1 << 28
"""More than any object: etcd takes 1.5 MiB by default. ``{"ty``, read as a length, is eight times as much."""


class Envelope(Struct, frozen=True):
    """An object that is not decoded yet."""

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
        kind: one of :data:`trimtab.kube.wire.head.GROUPS` that is not :data:`~trimtab.kube.wire.head.JSON_ONLY`.
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


class FrameSplitter:
    """Cuts a stream into frames, each a length of four bytes and a watch event."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the frames that are complete, without their lengths.

        What is not consumed of the iterator comes again with the next chunk.

        Raises:
            InputError: a length is beyond reason: this is something else, e.g. JSON, of a server that does not honour
                what we accept.
        """
        buffer = self._buffer
        buffer += chunk
        start = 0
        try:
            while len(buffer) - start >= _LENGTH:
                size = int.from_bytes(buffer[start : start + _LENGTH], "big")
                if size > _MAX_FRAME:
                    raise InputError(f"is no protobuf watch: it begins with {bytes(buffer[start : start + 40])!r}")
                end = start + _LENGTH + size
                if end > len(buffer):
                    return
                frame = bytes(buffer[start + _LENGTH : end])
                start = end
                yield frame
        finally:
            del buffer[:start]


class ProtobufCodec:
    """One kind in protobuf; see :class:`~trimtab.kube.wire.codec.Codec`.

    Args:
        kind: one of :data:`trimtab.kube.wire.head.GROUPS` that is not :data:`~trimtab.kube.wire.head.JSON_ONLY`.
        interner: shares equal parts of objects.
    """

    list_type = "application/vnd.kubernetes.protobuf"
    watch_type = "application/vnd.kubernetes.protobuf;stream=watch"

    def __init__(self, kind: str, interner: Interner) -> None:
        self._kind = kind
        self._decode: Callable[[bytes], KubeObject] = partial(decode_protobuf, kind, interner=interner)
        if kind == "Pod":
            self._decode = QuickPods(interner, general=self._decode, encode_spec=_encode_spec).decode

    def splitter(self) -> Splitter:
        """See :class:`~trimtab.kube.wire.codec.Codec`."""
        return FrameSplitter()

    def frame(self, frame: bytes) -> WatchFrame:
        """See :class:`~trimtab.kube.wire.codec.Codec`."""
        event = slim_pb2.WatchEvent()
        try:
            event.MergeFromString(frame)
        except DecodeError as error:
            raise InputError(f"is no watch event: {error}", object=self._kind) from None
        return WatchFrame(type=event.type, raw=decode_envelope(event.object.raw).raw)

    def list_splitter(self) -> ListSplitter:
        """See :class:`~trimtab.kube.wire.codec.Codec`."""
        return list_stream.ListSplitter(self._kind)

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
    """The Status in an answer's body, as JSON has it; ``None`` where the body is no Status in protobuf.

    The server writes failures in the format that was asked for.
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
