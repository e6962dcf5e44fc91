"""The objects of one kind as last seen, and who wants to know when they change.

A store belongs to one event loop. It has one writer, the informer, and any number of listeners, which are called at
once and in order: a snapshot kept by a listener is never behind the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from trimtab.kube.clock import SYSTEM_CLOCK, Clock


class Stored(Protocol):
    """What a store needs to know of its values; all of :mod:`trimtab.kube.objects` and our own kinds have it."""

    @property
    def key(self) -> str:
        """``namespace/name``, or the name alone."""
        ...

    @property
    def uid(self) -> str:
        """Unlike the key, never used twice."""
        ...

    @property
    def resource_version(self) -> str:
        """Equal for equal states of an object."""
        ...


T = TypeVar("T", bound=Stored)
Listener = Callable[[T | None, T | None], None]
"""Called with what was and what is: ``(None, new)`` added, ``(old, new)`` changed, ``(old, None)`` gone.

It must be quick and must not raise: what it raises ends the informer, for a listener that missed a change is wrong
from then on.
"""


class Store(Generic[T]):
    """Objects by key.

    Attributes:
        objects: read it, do not write it.
        synced: whether it has been filled once. It stays so while the connection is lost: an old picture is better
            than none, and :attr:`last_event` says how old it may be.
        last_event: when the server last said anything, a bookmark included; seconds since the epoch.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.objects: dict[str, T] = {}
        self.synced = False
        self.last_event: float | None = None
        self._clock = clock
        self._listeners: list[Listener[T]] = []

    def __len__(self) -> int:
        return len(self.objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self.objects.values())

    def get(self, key: str) -> T | None:
        """The object of that key, or ``None``."""
        return self.objects.get(key)

    def subscribe(self, listener: Listener[T], *, replay: bool = True) -> Callable[[], None]:
        """Call a listener on every change from now on.

        Args:
            listener: see :data:`Listener`.
            replay: first call it with everything that is there, as added.

        Returns:
            What ends the subscription.
        """
        if replay:
            for value in self.objects.values():
                listener(None, value)
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def apply(self, value: T) -> None:
        """Take in a state of an object. The state that is already there changes nothing and tells nobody.

        An object of the same name but another UID is another object: the old one is told gone first.
        """
        key = value.key
        old = self.objects.get(key)
        if old is not None and old.uid != value.uid:
            self.remove(key)
            old = None
        if old is not None and value.resource_version and old.resource_version == value.resource_version:
            return
        self.objects[key] = value
        for listener in self._listeners:
            listener(old, value)

    def remove(self, key: str) -> None:
        """Take out an object; one that is not there is no matter."""
        old = self.objects.pop(key, None)
        if old is None:
            return
        for listener in self._listeners:
            listener(old, None)

    def replace(self, values: Iterable[T]) -> None:
        """Make the store hold these and no others, telling of everything that has vanished."""
        seen = set()
        for value in values:
            seen.add(value.key)
            self.apply(value)
        self.retain(seen)

    def retain(self, keys: set[str]) -> None:
        """Take out everything else: the end of a relist, whose objects were applied one by one."""
        for key in [key for key in self.objects if key not in keys]:
            self.remove(key)

    def heard(self) -> None:
        """Note that the server has said something."""
        self.last_event = self._clock.now()
