"""The interface of a wire format, which protobuf and JSON implement for the informer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from msgspec import Raw, Struct

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends the initial events of a watch with ``sendInitialEvents``."""


class WatchFrame(Struct, frozen=True):
    """A watch event with an encoded object. ``type`` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    raw: bytes | Raw


class Page(Struct, frozen=True):
    """A list, or a page of a list, with encoded items.

    ``next`` is the continue token, which is empty on the last page.
    """

    resource_version: str
    next: str
    items: list[bytes] | list[Raw]


class StatusMessage(Struct, frozen=True):
    """A metav1.Status. The code is 0 if the Status could not be decoded."""

    code: int = 0
    reason: str = ""
    message: str = ""
    retry_after: float | None = None


class Metadata(Struct, frozen=True):
    """The metadata of any object, for bookmarks and for objects that cannot be decoded."""

    namespace: str = ""
    name: str = ""
    resource_version: str = ""
    annotations: Mapping[str, str] = {}

    @property
    def key(self) -> str:
        """Return the object's key in a store: ``namespace/name``, or the name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Splitter(Protocol):
    """Splits the response stream of a watch into frames. Each connection needs its own instance."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Add a chunk and yield the complete frames.

        Raises:
            InputError: the stream has another format.
        """
        ...


class ListSplitter(Protocol):
    """Splits the body of a list into its items while it arrives. Each response needs its own instance."""

    def feed(self, chunk: bytes) -> Iterator[bytes | Raw]:
        """Add a chunk, and yield the complete items. The caller must consume them before the next chunk.

        Raises:
            InputError: the body is not a list in this format.
        """
        ...

    def end(self) -> Page | None:
        """Return the list's metadata and the items that :meth:`feed` has not yielded.

        The result is ``None`` if the body is truncated.

        Raises:
            InputError: the body is not a list in this format.
        """
        ...


class Codec(Protocol):
    """Decodes one kind from one wire format.

    Attributes:
        list_type: the ``Accept`` header of a list.
        watch_type: the ``Accept`` header of a watch.
    """

    list_type: str
    watch_type: str

    def splitter(self) -> Splitter:
        """Return a new splitter, which splits the response stream of one watch into frames."""
        ...

    def frame(self, frame: bytes) -> WatchFrame:
        """Decode a frame into a watch event, whose object remains encoded.

        Raises:
            InputError: the frame is not a watch event.
        """
        ...

    def list_splitter(self) -> ListSplitter:
        """Return a new splitter, which splits the body of one list, or of one page of a list, into items."""
        ...

    def decode(self, raw: bytes | Raw) -> Any:
        """Decode an object into its value.

        Raises:
            InputError: the object is invalid. The error names the object and the field.
        """
        ...

    def metadata(self, raw: bytes | Raw) -> Metadata:
        """Decode only the metadata of an object. The result is empty if the bytes are not an object."""
        ...

    def status(self, raw: bytes | Raw) -> StatusMessage:
        """Decode the Status of an ERROR event."""
        ...
