"""What is done with what a server sends: objects into the store, resource versions remembered, no I/O.

Apart from :mod:`trimtab.kube.watching.informer`, which knows about connections, this knows about the order of events.
"""

from __future__ import annotations

import logging
from typing import Generic, NoReturn, TypeVar

from msgspec import Raw

from trimtab.kube.errors import InputError
from trimtab.kube.status import error_from_status
from trimtab.kube.watching.store import Store, Stored
from trimtab.kube.wire.codec import INITIAL_EVENTS_END, Codec, Metadata, StatusMessage, WatchFrame

T = TypeVar("T", bound=Stored)

logger = logging.getLogger(__name__)


class Intake(Generic[T]):
    """Applies frames and list items to a store.

    Attributes:
        store: what is filled.
        broken: by key, objects that cannot be decoded, and why. They are not in the store.
        version: the resource version to resume at; ``""`` where everything has to be listed.
        filling: whether the initial events, or the pages of a list, are not through yet.
        events: objects and bookmarks that came.
        decode_errors: how many of them could not be decoded.
        lists: how often the store has been filled as a whole.
    """

    def __init__(self, plural: str, store: Store[T]) -> None:
        self.store = store
        self.broken: dict[str, str] = {}
        self.version = ""
        self.events = 0
        self.decode_errors = 0
        self.lists = 0
        self._plural = plural
        self._seen: set[str] | None = None

    @property
    def filling(self) -> bool:
        """Whether a list or a stream's initial events are under way."""
        return self._seen is not None

    @property
    def progress(self) -> int:
        """Grows with everything that is heard; an empty list is news, too."""
        return self.events + self.lists

    def begin(self, *, initial: bool) -> None:
        """A new connection: it begins with all objects, or goes on at :attr:`version`."""
        self._seen = set() if initial else None

    def end(self, version: str) -> None:
        """All objects of a list have come: those that were not among them are gone."""
        seen = self._seen or set()
        self._seen = None
        self.store.retain(seen)
        self.broken = {key: why for key, why in self.broken.items() if key in seen}
        self.version = version
        self.lists += 1
        self.store.heard()
        self.store.synced = True

    def event(self, codec: Codec, event: WatchFrame) -> None:
        """Apply a frame of a watch.

        Raises:
            ApiError: what an ERROR event says; Gone where everything has to be listed again.
        """
        match event.type:
            case "ADDED" | "MODIFIED":
                self.take(codec, event.raw)
            case "DELETED":
                self._drop(codec.metadata(event.raw))
            case "BOOKMARK":
                self._bookmark(codec.metadata(event.raw))
            case "ERROR":
                _fail(codec.status(event.raw))
            case other:
                logger.warning("Watching %s: an event of the unknown type %r", self._plural, other)

    def take(self, codec: Codec, raw: bytes | Raw) -> None:
        """Take in an object, or note why that is not possible."""
        self.events += 1
        try:
            value: T = codec.decode(raw)
        except Exception as error:  # noqa: BLE001 (even a bug of ours must not hide all other objects)
            metadata = codec.metadata(raw)
            self._break(metadata.key, error)
            key, version = metadata.key, metadata.resource_version
        else:
            self.store.apply(value)
            key, version = value.key, value.resource_version
            if self.broken:
                self.broken.pop(key, None)
        if self._seen is not None:
            self._seen.add(key)
        elif version:
            self.version = version

    def _break(self, key: str, error: Exception) -> None:
        """Leave an object out: a stale state of it would be a lie."""
        self.decode_errors += 1
        why = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        if self.broken.get(key) != why:
            logger.error("Leaving out an object of %s that cannot be read: %s: %s", self._plural, key, why)
        self.broken[key] = why
        self.store.remove(key)

    def _drop(self, metadata: Metadata) -> None:
        self.events += 1
        self.store.remove(metadata.key)
        self.broken.pop(metadata.key, None)
        if self._seen is not None:
            self._seen.discard(metadata.key)
        elif metadata.resource_version:
            self.version = metadata.resource_version

    def _bookmark(self, metadata: Metadata) -> None:
        self.events += 1
        if self._seen is None:
            self.version = metadata.resource_version or self.version
        elif metadata.annotations.get(INITIAL_EVENTS_END) == "true":
            self.end(metadata.resource_version)


def _fail(status: StatusMessage) -> NoReturn:
    """Raise what an ERROR event says."""
    raise error_from_status(
        {"message": status.message, "reason": status.reason},
        code=410 if status.reason in {"Expired", "Gone"} else status.code,
        retry_after=status.retry_after,
    )
