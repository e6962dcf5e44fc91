"""What an informer asks of a wire format, be it protobuf or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from msgspec import Raw, Struct

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends the initial events of a watch with ``sendInitialEvents``."""


class WatchFrame(Struct, frozen=True):
    """A watch event whose object is not decoded yet; ``type`` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    raw: bytes | Raw


class Page(Struct, frozen=True):
    """A list, or a page of it, whose items are not decoded yet; ``next`` is empty on the last page."""

    resource_version: str
    next: str
    items: list[bytes] | list[Raw]


class StatusMessage(Struct, frozen=True):
    """What a metav1.Status says; without a code where it could not be read."""

    code: int = 0
    reason: str = ""
    message: str = ""
    retry_after: float | None = None


class Metadata(Struct, frozen=True):
    """The metadata of an object of any kind: of bookmarks, and of what cannot be decoded as a whole."""

    namespace: str = ""
    name: str = ""
    resource_version: str = ""
    annotations: Mapping[str, str] = {}

    @property
    def key(self) -> str:
        """As the store has it: ``namespace/name``, or the name alone."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Splitter(Protocol):
    """Cuts a stream of chunks of any size into frames; belongs to one connection."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the frames that are complete; the rest waits for the next chunk.

        Raises:
            InputError: this is no stream of the format.
        """
        ...


class ListSplitter(Protocol):
    """Cuts the body of a list into its items as it comes; belongs to one answer."""

    def feed(self, chunk: bytes) -> Iterator[bytes | Raw]:
        """Yield the items that are complete; to be consumed before the next chunk.

        Raises:
            InputError: this is no list in the format.
        """
        ...

    def end(self) -> Page | None:
        """What the list says beside its items, and the items that :meth:`feed` did not yield.

        ``None`` where the body was cut short.

        Raises:
            InputError: this is no list in the format.
        """
        ...


class Codec(Protocol):
    """One kind in one wire format.

    Attributes:
        list_type: what to accept for a list.
        watch_type: what to accept for a watch.
    """

    list_type: str
    watch_type: str

    def splitter(self) -> Splitter:
        """What cuts a new connection's stream."""
        ...

    def frame(self, frame: bytes) -> WatchFrame:
        """Open a frame.

        Raises:
            InputError: this is no watch event.
        """
        ...

    def list_splitter(self) -> ListSplitter:
        """What cuts a list, or a page of it."""
        ...

    def decode(self, raw: bytes | Raw) -> Any:
        """Decode an object into its value.

        Raises:
            InputError: naming the object and the field.
        """
        ...

    def metadata(self, raw: bytes | Raw) -> Metadata:
        """Read the metadata only; what is no object has none."""
        ...

    def status(self, raw: bytes | Raw) -> StatusMessage:
        """Read the Status that an ERROR event carries."""
        ...
