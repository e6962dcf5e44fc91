"""Finds, for each node, the available PersistentVolumes to which a pod's unbound claims would be bound."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

import numpy as np
from msgspec import Struct

from trimtab.cluster.node_table import NodeTable
from trimtab.cluster.object_store import ChangeReader, ObjectStore
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.volumes import AvailableVolumes, ClassVolumes, VolumeAffinity
from trimtab.kube.objects import LabelSelector, PersistentVolume, PersistentVolumeClaim
from trimtab.kube.rules.selectors import matches_labels
from trimtab.placement.volume_topology import VolumeAffinityMasks

_MAX_ANSWERS: Final = 256


class ClaimRequirements(Struct, frozen=True, gc=False):
    """The fields of a claim, other than its class, that determine to which volumes it can be bound.

    Claims from the same template have equal requirements.
    """

    request: int
    access_modes: tuple[str, ...]
    volume_mode: str
    attributes_class: str
    selector: LabelSelector | None

    def accepts(self, volume: PersistentVolume) -> bool:
        """Return whether a volume matches the claim. It must be available, of the claim's class and large enough."""
        return (
            self.matches(volume)
            and set(self.access_modes) <= set(volume.access_modes)
            and (self.selector is None or matches_labels(self.selector, volume.labels))
        )

    def matches(self, volume: PersistentVolume) -> bool:
        """Return whether a volume that is reserved for the claim matches it. The node affinity is ignored."""
        return (
            volume.capacity >= self.request
            and volume.volume_mode == self.volume_mode
            and (volume.attributes_class or "") == self.attributes_class
            and volume.deleted is None
        )


def claim_requirements(claim: PersistentVolumeClaim) -> ClaimRequirements:
    """Return the fields of a claim that determine to which volumes of its class it can be bound."""
    return ClaimRequirements(
        request=claim.request or 0,
        access_modes=claim.access_modes,
        volume_mode=claim.volume_mode,
        attributes_class=claim.attributes_class or "",
        selector=claim.selector,
    )


class _CachedMatch:
    """The cached result for one list of requirements: those that match no volume, in each region.

    ``reader`` is at the position in the change log up to which the result is valid.
    """

    def __init__(self, unmatched: BoolArray, reader: ChangeReader[VolumeAffinity]) -> None:
        self.unmatched = unmatched
        self.reader = reader


class StaticVolumes:
    """Matches claims of one StorageClass with available volumes, on all nodes.

    Nodes that match the same volume node affinities can use the same volumes, and form a region. Zonal volumes result
    in a few regions, and local disks in one region per node. Results are cached per list of requirements, and only
    regions whose volumes changed are evaluated again.

    The claims of a pod are matched one after another, smallest request first, each with the smallest remaining volume.
    Of several equally suitable volumes, kube-scheduler uses an arbitrary one, and trimtab the first one by name.
    """

    def __init__(
        self,
        nodes: NodeTable,
        volumes: Mapping[str, PersistentVolume],
        free: ClassVolumes,
        masks: VolumeAffinityMasks,
    ) -> None:
        self._nodes = nodes
        self._volumes = volumes
        self._free = free
        self._masks_by_affinity = masks
        self._regions: list[tuple[VolumeAffinity, ...]] = []
        self._region_of: IntArray = np.zeros(0, dtype=np.int64)
        self._regions_in: defaultdict[VolumeAffinity, list[int]] = defaultdict(list)
        self._made: tuple[int, int] | None = None
        self._answers: dict[tuple[ClaimRequirements, ...], _CachedMatch] = {}

    def unmatched(self, asks: tuple[ClaimRequirements, ...]) -> BoolArray:
        """Return the slots without a matching volume for each claim: bool, shape (len(asks), capacity), a fresh array.

        Args:
            asks: the requirements of the claims, in the order in which they are matched.
        """
        self._refresh()
        answer = self._answers.get(asks)
        if answer is None:
            if len(self._answers) >= _MAX_ANSWERS:
                self._answers.clear()
            unmatched: BoolArray = np.zeros((len(asks), len(self._regions)), dtype=np.bool_)
            answer = self._answers[asks] = _CachedMatch(unmatched, ChangeReader(self._free.changes))
            stale = set(range(len(self._regions)))
        else:
            news = answer.reader.read_changes()
            stale = (
                set(range(len(self._regions)))
                if news is None
                else {region for place in news for region in self._regions_in.get(place, ())}
            )
        for region in stale:
            answer.unmatched[:, region] = [name is None for name in self._match(self._regions[region], asks)]
        found: BoolArray = answer.unmatched[:, self._region_of]
        return found

    def chosen(self, slot: int, asks: tuple[ClaimRequirements, ...]) -> list[str | None]:
        """Return the name of the volume for each claim on a slot's node, or ``None`` if no volume is left for it."""
        self._refresh()
        return self._match(self._regions[self._region_of[slot]], asks)

    def forget_claims(self) -> None:
        """Drop the cached results. A tenant's claims can have large selectors."""
        self._answers.clear()

    def _refresh(self) -> None:
        """Rebuild the regions if nodes have changed or volumes have new node affinities."""
        made = (self._nodes.version, len(self._free.places))
        if self._made == made:
            return
        self._made = made
        self._answers.clear()
        self._regions_in.clear()
        everywhere: tuple[VolumeAffinity, ...] = (None,) if None in self._free.places else ()
        there: list[tuple[VolumeAffinity, ...]] = [everywhere] * self._nodes.capacity
        for place in self._free.places:
            if place is not None:
                for slot in self._masks_by_affinity.slots(place).tolist():
                    there[slot] = (*there[slot], place)
        ids: dict[tuple[int, ...], int] = {}
        self._regions = []
        region_of = []
        for places in there:
            key = tuple(map(id, places))  # the index contains each affinity once, so equal ones are identical
            found = ids.get(key)
            if found is None:
                found = ids[key] = len(self._regions)
                self._regions.append(places)
                for place in places:
                    self._regions_in[place].append(found)
            region_of.append(found)
        self._region_of = np.array(region_of, dtype=np.int64)

    def _match(self, places: tuple[VolumeAffinity, ...], asks: tuple[ClaimRequirements, ...]) -> list[str | None]:
        taken: set[str] = set()
        chosen: list[str | None] = []
        for ask in asks:
            fitting = [found for place in places if (found := self._smallest(place, ask, taken)) is not None]
            name = min(fitting)[1] if fitting else None
            if name is not None:
                taken.add(name)
            chosen.append(name)
        return chosen

    def _smallest(self, place: VolumeAffinity, ask: ClaimRequirements, taken: set[str]) -> tuple[int, str] | None:
        volumes = self._free.places[place]
        for entry in islice(volumes, bisect_left(volumes, (ask.request, "")), None):
            if entry[1] not in taken and ask.accepts(self._volumes[entry[1]]):
                return entry
        return None


class VolumeMatcher:
    """Matches all claims of a pod with volumes, as kube-scheduler v1.36's ``findMatchingVolumes`` does.

    Args:
        nodes: the node table.
        objects: the volumes and claims.
        masks: computes which nodes match volume node affinities.
    """

    def __init__(self, nodes: NodeTable, objects: ObjectStore, masks: VolumeAffinityMasks) -> None:
        self._nodes = nodes
        self._objects = objects
        self._masks_by_affinity = masks
        self._free: AvailableVolumes | None = None
        self._static: dict[str, StaticVolumes] = {}

    def unmatched(self, claims: list[PersistentVolumeClaim]) -> list[BoolArray]:
        """Return for each claim the slots where no volume matches it: bool, shape (capacity,)."""
        found: dict[int, BoolArray] = {}
        for storage_class, indices, volumes in self._searches(claims):
            searching = []
            for index, volume in zip(indices, volumes, strict=True):
                if volume is None:
                    searching.append(index)
                else:
                    found[index] = ~self._masks_by_affinity.mask(volume.node_affinity)
            if searching:
                asks = tuple(claim_requirements(claims[index]) for index in searching)
                found.update(zip(searching, self._static_of(storage_class).unmatched(asks), strict=True))
        return [found[index] for index in range(len(claims))]

    def chosen(self, claims: list[PersistentVolumeClaim], slot: int) -> list[PersistentVolume | None]:
        """Return for each claim the volume to which it would be bound on a slot's node, or ``None`` if none matches."""
        found: dict[int, PersistentVolume | None] = {}
        shelf = self._objects.of(PersistentVolume)
        for storage_class, indices, volumes in self._searches(claims):
            searching = []
            for index, volume in zip(indices, volumes, strict=True):
                if volume is None:
                    searching.append(index)
                else:
                    found[index] = volume if self._masks_by_affinity.mask(volume.node_affinity)[slot] else None
            if searching:
                asks = tuple(claim_requirements(claims[index]) for index in searching)
                names = self._static_of(storage_class).chosen(slot, asks)
                found.update(
                    (index, None if name is None else shelf[name]) for index, name in zip(searching, names, strict=True)
                )
        return [found[index] for index in range(len(claims))]

    def forget_claims(self) -> None:
        """Drop what is cached for claims, which may no longer exist. It is cheap to compute again."""
        for static in self._static.values():
            static.forget_claims()

    def _searches(
        self, claims: list[PersistentVolumeClaim]
    ) -> Iterator[tuple[str, list[int], list[PersistentVolume | None]]]:
        """Yield the unbound claims grouped by class.

        Each group consists of the class name, the indices of its claims, and for each claim the volume that is reserved
        for it. A reserved volume is the only candidate for its claim, even if it cannot be used. If a pod uses the same
        claim in two volumes, the reserved volume is used once, and an available one is searched for the second time, as
        in kube-scheduler.
        """
        if self._free is None:
            self._free = AvailableVolumes(self._objects)
        self._free.refresh()
        by_class: dict[str, list[int]] = {}
        for index, claim in enumerate(claims):
            by_class.setdefault(claim.storage_class or "", []).append(index)
        for storage_class, indices in by_class.items():
            given: set[str] = set()
            volumes: list[PersistentVolume | None] = []
            for index in indices:
                ask = claim_requirements(claims[index])
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
                self._objects.of(PersistentVolume),
                self._free.of_class(storage_class),
                self._masks_by_affinity,
            )
        return found
