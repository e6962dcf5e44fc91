"""Objects of kinds that are looked up and not counted: budgets, classes, volumes, claims, services and so on."""

from __future__ import annotations

from typing import TypeVar, cast

from trimtab.kube.objects import KubeObject

K = TypeVar("K", bound=KubeObject)


class Shelves:
    """One shelf per kind, by the objects' keys; each counts its changes, for those who keep something made of it."""

    def __init__(self) -> None:
        self._shelves: dict[type[KubeObject], dict[str, KubeObject]] = {}
        self._revisions: dict[type[KubeObject], int] = {}

    def of(self, kind: type[K]) -> dict[str, K]:
        """The objects of a kind: ``namespace/name`` to object, or name to object; only to read."""
        return cast("dict[str, K]", self._shelves.setdefault(cast("type[KubeObject]", kind), {}))

    def revision(self, *kinds: type[KubeObject]) -> int:
        """A number that rises whenever an object of one of the kinds comes, goes or changes."""
        return sum(self._revisions.get(kind, 0) for kind in kinds)

    def set(self, kind: type[KubeObject], key: str, obj: KubeObject | None) -> None:
        """Put an object on its shelf, or take it off (``None``)."""
        if obj is None:
            del self._shelves[kind][key]
        else:
            self._shelves.setdefault(kind, {})[key] = obj
        self._revisions[kind] = self._revisions.get(kind, 0) + 1
