"""The domains of topology spread: which nodes count in them, and how many picked pods they have.

Which nodes count depends on a pod's spec and on the nodes alone, so it is kept until a node changes; how many pods
there are is read from counters per node that are always up to date. What is kept is bounded: thousands of owners with
an array over all nodes each would take hundreds of megabytes.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.topology import SlotCounter, TopologyKey
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import NodeSelector, Toleration
from trimtab.placement.node_masks import affinity_mask, untolerated_mask

_MOST_KEYS: Final = 16_384
_MOST_GROUNDS: Final = 64
"""Ways of choosing the nodes that count whose arrays are kept: some 130 KB each at 5,000 nodes."""
_MOST_DENSE: Final = 128
"""Selectors whose counts are kept as an array, of 64 KB each at 5,000 nodes."""
_SPARSE: Final = 512
"""Nodes with picked pods up to which an array would be no faster."""

Slots = npt.NDArray[np.intp]


class Ground(Struct, frozen=True, eq=False):
    """What decides which nodes count, and by which label; compared by identity, see :meth:`SpreadTables.ground`.

    Attributes:
        topology_key: whose values are the domains.
        required: the labels that a node must have to count.
        affinity: the node selector and required node affinity that a node must satisfy, ``None`` where unasked.
        tolerations: which must tolerate a node's taints, ``None`` where unasked.
    """

    topology_key: str
    required: tuple[str, ...]
    affinity: tuple[Labels, NodeSelector | None] | None
    tolerations: tuple[Toleration, ...] | None


_GroundKey = tuple[str, tuple[str, ...], tuple[Labels, NodeSelector | None] | None, tuple[Toleration, ...] | None]


class Domains:
    """The domains of a topology key, and which nodes count in them; made for one version of the nodes.

    Domains are numbered as in :class:`TopologyKey`; arrays over domains have one place more, the last, for nodes
    without the label.

    Attributes:
        home: intp, shape (capacity,); the domain of each slot, the last for nodes without the label and free slots.
        counting: the same, with the last also for nodes that do not count.
        eligible: bool, shape (domains + 1,); which domains have a node that counts, the last never.
        blank: the domain of the empty label value, ``None`` where no node has it.
    """

    __slots__ = ("_all", "blank", "counting", "eligible", "home")

    def __init__(self, topology: TopologyKey, count: BoolArray) -> None:
        last = len(topology.values)
        self.home: Slots = np.where(topology.ids >= 0, topology.ids, last)
        self.counting: Slots = np.where(count, self.home, last)
        self.blank = topology.id_of.get("")
        if self.blank is not None:  # where the label is not required, its absence and the empty value are one domain
            self.counting[count & (self.home == last)] = self.blank
        self.eligible: BoolArray = np.bincount(self.counting, minlength=last + 1) > 0
        self.eligible[last] = False
        self._all = bool(self.eligible[:last].all())

    def of_eligible(self, counts: IntArray) -> IntArray:
        """Those of the counts that belong to a domain with a node that counts."""
        return counts[:-1] if self._all else counts[self.eligible]


class SpreadTables:
    """Arrays that filter and score share on one node table: the grounds' domains, and which counts are dense."""

    def __init__(self) -> None:
        self._grounds: dict[_GroundKey, Ground] = {}
        self._domains: dict[Ground, Domains] = {}
        self._dense: dict[SlotCounter, None] = {}
        self._version = -1

    def ground(
        self,
        topology_key: str,
        *,
        required: tuple[str, ...] = (),
        affinity: tuple[Labels, NodeSelector | None] | None = None,
        tolerations: tuple[Toleration, ...] | None = None,
    ) -> Ground:
        """The ground of that, see :class:`Ground`; equal ones are one, so that their arrays are shared."""
        if len(self._grounds) >= _MOST_KEYS:
            self._grounds.clear()
        key = (topology_key, required, affinity, tolerations)
        found = self._grounds.get(key)
        if found is None:
            found = self._grounds[key] = Ground(*key)
        return found

    def domains(self, snapshot: Snapshot, ground: Ground) -> Domains:
        """The domains of a ground as the nodes are now; kept, so callers must not write to them."""
        if self._version != snapshot.nodes.version:
            self._domains.clear()
            self._version = snapshot.nodes.version
        found = self._domains.pop(ground, None) or _domains(snapshot, ground)
        self._domains[ground] = found  # the last is the one asked for last
        if len(self._domains) > _MOST_GROUNDS:
            del self._domains[next(iter(self._domains))]
        return found

    def counts(self, domains: Domains, counter: SlotCounter | None) -> IntArray:
        """How many pods each domain has on nodes that count: int64, shape (domains + 1,), the last 0."""
        places = len(domains.eligible)
        if counter is None or not counter.counts:
            return np.zeros(places, dtype=np.int64)
        where = domains.counting
        slots, numbers = self.per_node(counter, len(where))
        if slots is not None:
            where = where[slots]
        found: IntArray = np.bincount(where, weights=numbers, minlength=places).astype(np.int64)
        found[-1] = 0
        return found

    def per_node(self, counter: SlotCounter, capacity: int) -> tuple[Slots | None, IntArray]:
        """The slots with pods and their numbers, both of one length; without slots, the numbers of all slots.

        Where few nodes have pods, their slots are quicker to walk than an array; and only of the selectors that were
        asked for last an array is kept. The numbers may be kept ones: callers must not write to them.
        """
        counts = counter.counts
        if len(counts) <= _SPARSE:
            slots = np.fromiter(counts.keys(), dtype=np.intp, count=len(counts))
            return slots, np.fromiter(counts.values(), dtype=np.int64, count=len(counts))
        self._dense.pop(counter, None)
        self._dense[counter] = None
        if len(self._dense) > _MOST_DENSE:
            oldest = next(iter(self._dense))
            del self._dense[oldest]
            oldest.forget()
        return None, counter.by_slot(capacity)


_TABLES: Final[WeakKeyDictionary[NodeTable, SpreadTables]] = WeakKeyDictionary()


def tables_of(nodes: NodeTable) -> SpreadTables:
    """The tables of a node table, the same for all that ask."""
    found = _TABLES.get(nodes)
    if found is None:
        found = _TABLES[nodes] = SpreadTables()
    return found


def _domains(snapshot: Snapshot, ground: Ground) -> Domains:
    nodes = snapshot.nodes
    count: BoolArray = nodes.used.copy()
    for key in ground.required:
        count &= nodes.column(key).ids >= 0
    if ground.affinity is not None:
        count &= affinity_mask(snapshot, *ground.affinity)
    if ground.tolerations is not None:
        count &= ~untolerated_mask(snapshot, ground.tolerations)
    return Domains(nodes.column(ground.topology_key), count)
