"""Objects of kinds that are looked up and not counted: budgets, classes, volumes, claims, services and so on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar, cast

from trimtab.cluster.changes import Changes
from trimtab.kube.objects import KubeObject

K = TypeVar("K", bound=KubeObject)


class Shelves:
    """One shelf per kind, by the objects' keys; each counts its changes, for those who keep something made of it."""

    def __init__(self) -> None:
        self._shelves: dict[type[KubeObject], dict[str, KubeObject]] = {}
        self._revisions: dict[type[KubeObject], int] = {}
        self._changes: dict[type[KubeObject], Changes[str]] = {}

    def of(self, kind: type[K]) -> dict[str, K]:
        """The objects of a kind: ``namespace/name`` to object, or name to object; only to read."""
        return cast("dict[str, K]", self._shelves.setdefault(cast("type[KubeObject]", kind), {}))

    def everything(self) -> Iterator[KubeObject]:
        """All objects, kind by kind."""
        for shelf in self._shelves.values():
            yield from shelf.values()

    def revision(self, *kinds: type[KubeObject]) -> int:
        """A number that rises whenever an object of one of the kinds comes, goes or changes."""
        return sum(self._revisions.get(kind, 0) for kind in kinds)

    def changes(self, kind: type[KubeObject]) -> Changes[str]:
        """Which objects of a kind came, went or changed, by key; logged from the first time that somebody asks."""
        return self._changes.setdefault(kind, Changes())

    def set(self, kind: type[KubeObject], key: str, obj: KubeObject | None) -> None:
        """Put an object on its shelf, or take it off (``None``)."""
        if obj is None:
            del self._shelves[kind][key]
        else:
            self._shelves.setdefault(kind, {})[key] = obj
        self._revisions[kind] = self._revisions.get(kind, 0) + 1
        changes = self._changes.get(kind)
        if changes is not None:
            changes.note(key)
