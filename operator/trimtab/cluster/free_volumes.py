"""Volumes that claims can still be bound to, by class and by where they can be used."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator

from trimtab.cluster.changes import Changes, Reader
from trimtab.cluster.shelves import Shelves
from trimtab.kube.objects import NodeSelector, PersistentVolume, PersistentVolumeClaim

Place = NodeSelector | None
"""Where a volume can be used, its node affinity; ``None`` for anywhere. Volumes of one zone share it."""


class ClassVolumes:
    """The free volumes of one class.

    Attributes:
        places: by place, the capacity and name of each free volume there, the smallest first; a place stays when its
            last volume is taken.
        changes: the places whose volumes changed.
    """

    __slots__ = ("changes", "places")

    def __init__(self) -> None:
        self.places: dict[Place, list[tuple[int, str]]] = {}
        self.changes: Changes[Place] = Changes()

    def add(self, volume: PersistentVolume) -> None:
        """Add a volume that came free."""
        insort(self.places.setdefault(volume.node_affinity, []), (volume.capacity, volume.name))
        self.changes.note(volume.node_affinity)

    def drop(self, volume: PersistentVolume) -> None:
        """Remove a volume that was taken, as it was when it was added."""
        there = self.places[volume.node_affinity]
        del there[bisect_left(there, (volume.capacity, volume.name))]
        self.changes.note(volume.node_affinity)


class FreeVolumes:
    """Free volumes by class and place, and those reserved for a claim; call :meth:`refresh` before asking.

    Free is what kube-scheduler v1.36 would bind (component-helpers ``FindMatchingVolume``): in phase Available, not
    reserved and not being deleted.
    """

    def __init__(self, shelves: Shelves) -> None:
        self._shelves = shelves
        self._changed = Reader(shelves.changes(PersistentVolume))
        self._classes: dict[str, ClassVolumes] = {}
        self._filed: dict[str, PersistentVolume] = {}
        self._reserved: defaultdict[str, set[str]] = defaultdict(set)
        for name in shelves.of(PersistentVolume):
            self._file(name)

    def refresh(self) -> None:
        """Bring the index up to date with the shelf."""
        news = self._changed.news()
        for name in news if news is not None else {*self._filed, *self._shelves.of(PersistentVolume)}:
            self._file(name)

    def of_class(self, name: str) -> ClassVolumes:
        """The free volumes of a class; one object for as long as the index lives."""
        return self._classes.setdefault(name, ClassVolumes())

    def reserved(self, claim: PersistentVolumeClaim) -> Iterator[PersistentVolume]:
        """The volumes of the claim's class that are reserved for it, by name.

        A volume reserved by hand has no UID and is for any claim of that name (``IsVolumeBoundToClaim``).
        """
        for name in sorted(self._reserved.get(claim.key, ())):
            volume = self._filed[name]
            if volume.storage_class == (claim.storage_class or "") and volume.claim_uid in ("", claim.uid):
                yield volume

    def _file(self, name: str) -> None:
        old, new = self._filed.pop(name, None), self._shelves.of(PersistentVolume).get(name)
        if old is not None and old is not new:
            if old.claim:
                self._reserved[old.claim].discard(name)
                if not self._reserved[old.claim]:
                    del self._reserved[old.claim]
            elif _is_free(old):
                self.of_class(old.storage_class).drop(old)
        if new is None:
            return
        self._filed[name] = new
        if old is new:
            return
        if new.claim:
            self._reserved[new.claim].add(name)
        elif _is_free(new):
            self.of_class(new.storage_class).add(new)


def _is_free(volume: PersistentVolume) -> bool:
    return not volume.claim and volume.phase == "Available" and volume.deleted is None
