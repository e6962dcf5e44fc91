"""Which free volumes of a class would be bound to claims that wait for their first consumer, on each node."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from typing import Final

import numpy as np
from msgspec import Struct

from trimtab.cluster.changes import Reader
from trimtab.cluster.free_volumes import ClassVolumes, Place
from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.kube.objects import LabelSelector, PersistentVolume, PersistentVolumeClaim
from trimtab.kube.rules.selectors import matches_labels
from trimtab.placement.volume_places import Places

_MOST_ANSWERS: Final = 256


class Ask(Struct, frozen=True, gc=False):
    """What of a claim decides on the volumes it can have, its class aside; claims of one template are equal here."""

    request: int
    access_modes: tuple[str, ...]
    volume_mode: str
    attributes_class: str
    selector: LabelSelector | None

    def accepts(self, volume: PersistentVolume) -> bool:
        """Whether a free volume of the class, large enough, is what is asked for."""
        return (
            self.matches(volume)
            and set(self.access_modes) <= set(volume.access_modes)
            and (self.selector is None or matches_labels(self.selector, volume.labels))
        )

    def matches(self, volume: PersistentVolume) -> bool:
        """What must hold even of a volume that is reserved for the claim, besides its place."""
        return (
            volume.capacity >= self.request
            and volume.volume_mode == self.volume_mode
            and (volume.attributes_class or "") == self.attributes_class
            and volume.deleted is None
        )


def ask_of(claim: PersistentVolumeClaim) -> Ask:
    """What a claim asks for."""
    return Ask(
        request=claim.request or 0,
        access_modes=claim.access_modes,
        volume_mode=claim.volume_mode,
        attributes_class=claim.attributes_class or "",
        selector=claim.selector,
    )


class _Answer:
    """For one list of asks, which of them find no volume, by region; with the place in the log up to which it holds."""

    def __init__(self, unmatched: BoolArray, reader: Reader[Place]) -> None:
        self.unmatched = unmatched
        self.reader = reader


class StaticVolumes:
    """The free volumes of one class on all nodes.

    Nodes that are in the same places form a region and get the same volumes: with zones there are a few regions, with
    local disks one per node. An answer is kept per list of asks, and only regions whose volumes changed are judged
    again.

    A pod's claims choose one after the other, the smallest request first, each the smallest volume that is left. Of
    equal volumes the scheduler takes any; here it is the first by name.
    """

    def __init__(
        self,
        nodes: NodeTable,
        volumes: Mapping[str, PersistentVolume],
        free: ClassVolumes,
        places: Places,
    ) -> None:
        self._nodes = nodes
        self._volumes = volumes
        self._free = free
        self._places = places
        self._regions: list[tuple[Place, ...]] = []
        self._region_of: IntArray = np.zeros(0, dtype=np.int64)
        self._regions_in: defaultdict[Place, list[int]] = defaultdict(list)
        self._made: tuple[int, int] | None = None
        self._answers: dict[tuple[Ask, ...], _Answer] = {}

    def unmatched(self, asks: tuple[Ask, ...]) -> BoolArray:
        """Which asks find no volume where: bool, shape (len(asks), capacity), a fresh array.

        Args:
            asks: in the order in which they choose.
        """
        self._refresh()
        answer = self._answers.get(asks)
        if answer is None:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            unmatched: BoolArray = np.zeros((len(asks), len(self._regions)), dtype=np.bool_)
            answer = self._answers[asks] = _Answer(unmatched, Reader(self._free.changes))
            stale = set(range(len(self._regions)))
        else:
            news = answer.reader.news()
            stale = (
                set(range(len(self._regions)))
                if news is None
                else {region for place in news for region in self._regions_in.get(place, ())}
            )
        for region in stale:
            answer.unmatched[:, region] = [name is None for name in self._match(self._regions[region], asks)]
        found: BoolArray = answer.unmatched[:, self._region_of]
        return found

    def chosen(self, slot: int, asks: tuple[Ask, ...]) -> list[str | None]:
        """The volume that each ask gets on a node, by name."""
        self._refresh()
        return self._match(self._regions[self._region_of[slot]], asks)

    def _refresh(self) -> None:
        """Make the regions anew where nodes changed or volumes came to new places."""
        made = (self._nodes.version, len(self._free.places))
        if self._made == made:
            return
        self._made = made
        self._answers.clear()
        self._regions_in.clear()
        everywhere: tuple[Place, ...] = (None,) if None in self._free.places else ()
        there: list[tuple[Place, ...]] = [everywhere] * self._nodes.capacity
        for place in self._free.places:
            if place is not None:
                for slot in self._places.slots(place).tolist():
                    there[slot] = (*there[slot], place)
        ids: dict[tuple[int, ...], int] = {}
        self._regions = []
        region_of = []
        for places in there:
            key = tuple(map(id, places))  # the index holds each place once, so that identity is equality
            found = ids.get(key)
            if found is None:
                found = ids[key] = len(self._regions)
                self._regions.append(places)
                for place in places:
                    self._regions_in[place].append(found)
            region_of.append(found)
        self._region_of = np.array(region_of, dtype=np.int64)

    def _match(self, places: tuple[Place, ...], asks: tuple[Ask, ...]) -> list[str | None]:
        taken: set[str] = set()
        chosen: list[str | None] = []
        for ask in asks:
            fitting = [found for place in places if (found := self._smallest(place, ask, taken)) is not None]
            name = min(fitting)[1] if fitting else None
            if name is not None:
                taken.add(name)
            chosen.append(name)
        return chosen

    def _smallest(self, place: Place, ask: Ask, taken: set[str]) -> tuple[int, str] | None:
        volumes = self._free.places[place]
        for entry in islice(volumes, bisect_left(volumes, (ask.request, "")), None):
            if entry[1] not in taken and ask.accepts(self._volumes[entry[1]]):
                return entry
        return None
