"""Cutting a list in protobuf into its items while it comes.

From v1.33 on an API server writes a list object by object (KEP-5116): neither side need hold the whole, and the first
objects are decoded while the server still encodes the others. It costs the server a quarter of what a watch with
initial events costs it, which it writes, flushes and encrypts event by event.

A list is a ``runtime.Unknown`` around the list's bytes, whose length is told before, so a list that was cut short is
known as such.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from google.protobuf.message import DecodeError

from trimtab.kube.errors import InputError
from trimtab.kube.wire import slim_pb2
from trimtab.kube.wire.codec import Page

_MAGIC: Final = b"k8s\0"
_TYPE_META: Final = 0x0A
_RAW: Final = 0x12
"""Tags of the envelope: field 1, which says the kind of the list, and field 2, the list."""
_METADATA: Final = 0x0A
_ITEM: Final = 0x12
"""Tags of the list: fields 1 and 2, each with its length after it."""
_MORE: Final = 0x80
"""Set in each byte of a number but the last."""
_LONGEST: Final = 10
"""Bytes of a number at most."""


class ListSplitter:
    """Cuts one body into items, which stay as they came; see :class:`~trimtab.kube.wire.codec.ListSplitter`."""

    __slots__ = ("_buffer", "_kind", "_left", "_metadata")

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._buffer = b""
        self._left = -1  # bytes of the list that are not cut yet; below zero before the list has begun
        self._metadata = slim_pb2.ListMeta()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the items that are complete; to be consumed before the next chunk.

        Raises:
            InputError: this is no list in protobuf.
        """
        buffer = self._buffer + chunk if self._buffer else chunk
        position = 0 if self._left >= 0 else self._begin(buffer)
        while self._left > 0:
            try:
                tag, size, start = buffer[position], buffer[position + 1], position + 2
                if size >= _MORE:  # two bytes in nearly all items: a call for each of 150,000 would be felt
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
            self._buffer = buffer[position : position + self._left]  # what follows the list says nothing

    def end(self) -> Page | None:
        """What the list says beside its items; ``None`` where it was cut short."""
        if self._left:
            return None
        metadata = self._metadata
        return Page(resource_version=metadata.resource_version, next=metadata.continue_token, items=[])

    def _begin(self, buffer: bytes) -> int:
        """Open the envelope: where the list begins in it, once that much has come."""
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
        return InputError(f"is no list in Kubernetes protobuf: {why}", object=self._kind)


def _number(buffer: bytes, position: int) -> tuple[int, int]:
    """A number in protobuf's writing, and where it ends.

    Raises:
        IndexError: the buffer ends before it.
    """
    number = 0
    for shift in range(_LONGEST):
        byte = buffer[position + shift]
        number |= (byte & (_MORE - 1)) << (7 * shift)
        if byte < _MORE:
            return number, position + shift + 1
    raise InputError("is no protobuf: a number does not end")
