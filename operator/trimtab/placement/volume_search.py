"""Which volume, of those that are there, each unbound claim of a pod would be bound to."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.cluster.free_volumes import FreeVolumes
from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.resources import BoolArray
from trimtab.cluster.shelves import Shelves
from trimtab.kube.objects import PersistentVolume, PersistentVolumeClaim
from trimtab.placement.static_volumes import StaticVolumes, ask_of
from trimtab.placement.volume_places import Places


class VolumeSearch:
    """Looks for volumes for the claims of a pod together, as kube-scheduler v1.36's ``findMatchingVolumes`` does.

    Args:
        nodes: to which volumes may be attached.
        shelves: the volumes and claims there are.
        places: where the volumes can be used.
    """

    def __init__(self, nodes: NodeTable, shelves: Shelves, places: Places) -> None:
        self._nodes = nodes
        self._shelves = shelves
        self._places = places
        self._free: FreeVolumes | None = None
        self._static: dict[str, StaticVolumes] = {}

    def unmatched(self, claims: list[PersistentVolumeClaim]) -> list[BoolArray]:
        """For each claim, the nodes where no volume is there to be bound: bool, shape (capacity,)."""
        found: dict[int, BoolArray] = {}
        for storage_class, indices, volumes in self._searches(claims):
            searching = []
            for index, volume in zip(indices, volumes, strict=True):
                if volume is None:
                    searching.append(index)
                else:
                    found[index] = ~self._places.mask(volume.node_affinity)
            if searching:
                asks = tuple(ask_of(claims[index]) for index in searching)
                found.update(zip(searching, self._static_of(storage_class).unmatched(asks), strict=True))
        return [found[index] for index in range(len(claims))]

    def chosen(self, claims: list[PersistentVolumeClaim], slot: int) -> list[PersistentVolume | None]:
        """For each claim, the volume that it is bound to on a node, ``None`` where one is to be provisioned."""
        found: dict[int, PersistentVolume | None] = {}
        shelf = self._shelves.of(PersistentVolume)
        for storage_class, indices, volumes in self._searches(claims):
            searching = []
            for index, volume in zip(indices, volumes, strict=True):
                if volume is None:
                    searching.append(index)
                else:
                    found[index] = volume if self._places.mask(volume.node_affinity)[slot] else None
            if searching:
                asks = tuple(ask_of(claims[index]) for index in searching)
                names = self._static_of(storage_class).chosen(slot, asks)
                found.update(
                    (index, None if name is None else shelf[name]) for index, name in zip(searching, names, strict=True)
                )
        return [found[index] for index in range(len(claims))]

    def _searches(
        self, claims: list[PersistentVolumeClaim]
    ) -> Iterator[tuple[str, list[int], list[PersistentVolume | None]]]:
        """The claims by class: their indices and, for each, the volume that is reserved for it.

        A reserved volume is the only one for its claim, even where it cannot be used. A pod that names one claim in
        two volumes needs two volumes: the second time the scheduler looks for a free one.
        """
        if self._free is None:
            self._free = FreeVolumes(self._shelves)
        self._free.refresh()
        by_class: dict[str, list[int]] = {}
        for index, claim in enumerate(claims):
            by_class.setdefault(claim.storage_class or "", []).append(index)
        for storage_class, indices in by_class.items():
            given: set[str] = set()
            volumes: list[PersistentVolume | None] = []
            for index in indices:
                ask = ask_of(claims[index])
                reserved = (
                    volume
                    for volume in self._free.reserved(claims[index])
                    if volume.name not in given and ask.matches(volume)
                )
                volume = next(reserved, None)
                if volume is not None:
                    given.add(volume.name)
                volumes.append(volume)
            yield storage_class, indices, volumes

    def _static_of(self, storage_class: str) -> StaticVolumes:
        found = self._static.get(storage_class)
        if found is None:
            assert self._free is not None
            found = self._static[storage_class] = StaticVolumes(
                self._nodes,
                self._shelves.of(PersistentVolume),
                self._free.of_class(storage_class),
                self._places,
            )
        return found
