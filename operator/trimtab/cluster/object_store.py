"""Stores the objects that planners only look up, such as budgets, claims and services, with change logs for caches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar, cast

from trimtab.kube.objects import KubeObject

T = TypeVar("T")

_LOG: Final = 65_536
"""Maximum length of a log. A reader that has fallen further behind must resync."""


class ChangeLog(Generic[T]):
    """A log of the keys of changed objects, in the order of the changes.

    Attributes:
        log: the keys changed since :attr:`epoch` last increased, possibly with duplicates.
        epoch: a number that increases when the log is truncated.
    """

    __slots__ = ("epoch", "log")

    def __init__(self) -> None:
        self.log: list[T] = []
        self.epoch = 0

    def append(self, key: T) -> None:
        """Append a changed key. If the log is full, it is truncated first."""
        if len(self.log) >= _LOG:
            self.log.clear()
            self.epoch += 1
        self.log.append(key)


class ChangeReader(Generic[T]):
    """A reader of a :class:`ChangeLog`, with its position in the log.

    A new reader starts at the end of the log, because its owner has just read the full state.
    """

    __slots__ = ("_changes", "_epoch", "_position")

    def __init__(self, changes: ChangeLog[T]) -> None:
        self._changes = changes
        self._epoch = changes.epoch
        self._position = len(changes.log)

    def read_changes(self) -> set[T] | None:
        """Return the keys changed since the last call, or ``None`` if the log was truncated and a resync is needed."""
        changes = self._changes
        end = len(changes.log)
        if self._epoch != changes.epoch:
            self._epoch, self._position = changes.epoch, end
            return None
        if self._position == end:
            return set()
        start, self._position = self._position, end
        return set(changes.log[start:])


K = TypeVar("K", bound=KubeObject)


class ObjectStore:
    """Objects by kind and key. Each kind has a revision and a change log, with which caches detect changes.

    Attributes:
        version: the number of changes to objects of any kind. It is cheaper to compare than revisions.
    """

    def __init__(self) -> None:
        self.version = 0
        self._objects: dict[type[KubeObject], dict[str, KubeObject]] = {}
        self._revisions: dict[type[KubeObject], int] = {}
        self._changes: dict[type[KubeObject], ChangeLog[str]] = {}

    def of(self, kind: type[K]) -> dict[str, K]:
        """Return the objects of a kind by key (``namespace/name`` or name). Callers must not change the result."""
        return cast("dict[str, K]", self._objects.setdefault(cast("type[KubeObject]", kind), {}))

    def all_objects(self) -> Iterator[KubeObject]:
        """Yield all objects, grouped by kind."""
        for by_key in self._objects.values():
            yield from by_key.values()

    def revision(self, *kinds: type[KubeObject]) -> int:
        """Return a number that increases when an object of any of these kinds is added, changed or removed."""
        return sum(self._revisions.get(kind, 0) for kind in kinds)

    def changes(self, kind: type[KubeObject]) -> ChangeLog[str]:
        """Return the log of changed keys of a kind. Changes are logged from the first call on."""
        return self._changes.setdefault(kind, ChangeLog())

    def set(self, kind: type[KubeObject], key: str, obj: KubeObject | None) -> None:
        """Store an object, or remove it if ``obj`` is ``None``."""
        if obj is None:
            del self._objects[kind][key]
        else:
            self._objects.setdefault(kind, {})[key] = obj
        self.version += 1
        self._revisions[kind] = self._revisions.get(kind, 0) + 1
        changes = self._changes.get(kind)
        if changes is not None:
            changes.append(key)
