"""Stores the objects of one resource, with indices and listeners.

A store belongs to one event loop. The informer is its only writer. It calls listeners synchronously and in order, so a
snapshot that a listener maintains is always in sync with the store. Indices are updated before listeners are called.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, ItemsView, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from trimtab.kube.clock import SYSTEM_CLOCK, Clock


class Stored(Protocol):
    """The interface of stored objects.

    All types in :mod:`trimtab.kube.objects` and trimtab's custom resources have it.
    """

    @property
    def key(self) -> str:
        """Return ``namespace/name``, or the name of a cluster-scoped object."""
        ...

    @property
    def uid(self) -> str:
        """Return the UID. Unlike the key, it is never reused."""
        ...

    @property
    def resource_version(self) -> str:
        """Return the resource version, which changes whenever the object changes."""
        ...


T = TypeVar("T", bound=Stored)
V = TypeVar("V", bound=Hashable)
Listener = Callable[[T | None, T | None], None]
"""Callback for a change, with the old object (``None`` if the object was added) and the new one (``None`` if it was
removed).

A listener must be fast and must not raise. An exception ends the informer, because the listener's state would be
incomplete from then on.
"""


class Index(Generic[T, V]):
    """An index of the objects of a store by a value other than their key, like client-go's Indexer.

    It is built on the first read (0.1 s for 150,000 objects) and then updated with every change, so that an unused
    index costs nothing. Create it with :meth:`Store.index`.

    Args:
        stored: all objects of the store by key.
        value_of: returns the value by which an object is found, or ``None`` to omit the object.
    """

    def __init__(self, stored: Mapping[str, T], value_of: Callable[[T], V | None]) -> None:
        self._stored = stored
        self._value_of = value_of
        self._groups: dict[V, dict[str, T]] | None = None
        self._none: dict[str, T] = {}

    def __len__(self) -> int:
        return len(self._built())

    def items(self, value: V) -> ItemsView[str, T]:
        """Return the key and the object of every object with this index value, in no particular order."""
        return self._built().get(value, self._none).items()

    def update(self, key: str, old: T | None, new: T | None) -> None:
        """Apply a change of the store. ``old`` and ``new`` are as in a :data:`Listener`."""
        groups = self._groups
        if groups is None:
            return
        before = None if old is None else self._value_of(old)
        after = None if new is None else self._value_of(new)
        if before is not None and before != after:
            group = groups[before]
            del group[key]
            if not group:
                del groups[before]
        if after is not None and new is not None:
            groups.setdefault(after, {})[key] = new

    def _built(self) -> dict[V, dict[str, T]]:
        if self._groups is None:
            self._groups = {}
            for key, value in self._stored.items():
                self.update(key, None, value)
        return self._groups


class Store(Generic[T]):
    """The objects of one resource, by key.

    Attributes:
        objects: the objects by key. Callers must not change it.
        synced: whether the first list is complete. It remains true while the connection is lost, because a stale store
            is better than none. :attr:`last_event` shows how stale it may be.
        removals: the number of objects removed since the start.
        last_event: the time at which the server last sent data, including bookmarks, in seconds since the epoch.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.objects: dict[str, T] = {}
        self.synced = False
        self.removals = 0
        self.last_event: float | None = None
        self._clock = clock
        self._indices: list[Index[T, Any]] = []
        self._listeners: list[Listener[T]] = []

    def __len__(self) -> int:
        return len(self.objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self.objects.values())

    def get(self, key: str) -> T | None:
        """Return the object with this key, or ``None`` if there is none."""
        return self.objects.get(key)

    def index(self, value_of: Callable[[T], V | None]) -> Index[T, V]:
        """Create an index that the store keeps up to date.

        Args:
            value_of: returns the value by which an object is found, or ``None`` to omit the object. The value must
                depend only on the object.
        """
        index = Index(self.objects, value_of)
        self._indices.append(index)
        return index

    def subscribe(self, listener: Listener[T], *, replay: bool = True) -> Callable[[], None]:
        """Call a listener on every change of the store.

        Args:
            listener: the callback (:data:`Listener`).
            replay: whether to first call it with all objects in the store, as if they had just been added.

        Returns:
            A function that ends the subscription.
        """
        if replay:
            for value in self.objects.values():
                listener(None, value)
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def apply(self, value: T) -> None:
        """Add or update an object. Does nothing if the resource version is already stored.

        If the stored object has another UID, it is removed first, because it is a different object.
        """
        key = value.key
        old = self.objects.get(key)
        if old is not None and old.uid != value.uid:
            self.remove(key)
            old = None
        if old is not None and value.resource_version and old.resource_version == value.resource_version:
            return
        self.objects[key] = value
        for index in self._indices:
            index.update(key, old, value)
        for listener in self._listeners:
            listener(old, value)

    def remove(self, key: str) -> None:
        """Remove an object. Does nothing if it is not stored."""
        old = self.objects.pop(key, None)
        if old is None:
            return
        self.removals += 1
        for index in self._indices:
            index.update(key, old, None)
        for listener in self._listeners:
            listener(old, None)

    def replace(self, values: Iterable[T]) -> None:
        """Replace the content of the store. Listeners are called for every change, including removals."""
        seen = set()
        for value in values:
            seen.add(value.key)
            self.apply(value)
        self.retain(seen)

    def retain(self, keys: set[str]) -> None:
        """Remove all objects except those with these keys.

        Called at the end of a relist whose objects were applied one by one.
        """
        for key in [key for key in self.objects if key not in keys]:
            self.remove(key)

    def record_activity(self) -> None:
        """Record that the server has just sent data (:attr:`last_event`)."""
        self.last_event = self._clock.now()
