"""Topology domains: for a node label key, which value each node has, as integers to index counters with.

The same columns answer node selectors: what holds of a label's value is judged once per value, not per node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.cluster.resources import IntArray

if TYPE_CHECKING:
    from trimtab.cluster.nodes import NodeTable

_MANY: Final = 256
"""Domains from which on an array of all of them is kept up to date."""


class TopologyKey:
    """One label key over all nodes.

    Attributes:
        ids: int64, shape (capacity,); the domain of each slot, -1 where the node lacks the label or the slot is free.
        values: the label value of each domain; domains are never renumbered, so counters stay valid.
        id_of: the domain of each value.
    """

    def __init__(self, key: str, nodes: NodeTable) -> None:
        self.key = key
        self.values: list[str] = []
        self.id_of: dict[str, int] = {}
        self._nodes = nodes
        self.ids: IntArray = np.full(nodes.capacity, -1, dtype=np.int64)
        for slot in nodes.slot_of.values():
            self.refresh(slot)

    def refresh(self, slot: int) -> None:
        """Read the slot's label again, after its node came, went or changed."""
        if slot >= len(self.ids):
            self.ids = np.pad(self.ids, (0, self._nodes.capacity - len(self.ids)), constant_values=-1)
        node = self._nodes.at[slot]
        value = None if node is None else node.labels.get(self.key)
        self.ids[slot] = -1 if value is None else self._domain(value)

    def _domain(self, value: str) -> int:
        found = self.id_of.get(value)
        if found is None:
            found = self.id_of[value] = len(self.values)
            self.values.append(value)
        return found


class DomainCounter:
    """A number per domain of a topology key, kept incrementally.

    Only domains that count something are held: thousands of owners each state a term on the hostname, and an array
    over all hosts for each of them would take hundreds of megabytes. Where hundreds of domains count, there is an array
    as well, made when first asked for: such counters are few, for each takes as many pods.

    Attributes:
        counts: the domains' numbers, none of them 0.
        total: their sum; pods on nodes without the label don't count.
    """

    __slots__ = ("_dense", "counts", "topology", "total")

    def __init__(self, topology: TopologyKey) -> None:
        self.topology = topology
        self.counts: dict[int, int] = {}
        self.total = 0
        self._dense: IntArray | None = None

    def add(self, slot: int, amount: int) -> None:
        """Count ``amount`` more (or less) pods on the node in ``slot``."""
        domain = int(self.topology.ids[slot])
        if domain < 0:
            return
        number = self.counts.get(domain, 0) + amount
        if number:
            self.counts[domain] = number
        else:
            del self.counts[domain]
        self.total += amount
        if self._dense is not None:
            if domain < len(self._dense) - 1:
                self._dense[domain] = number
            else:
                self._dense = None

    def at(self, slot: int) -> int:
        """The count of the slot's domain, 0 where the node lacks the label."""
        return self.counts.get(int(self.topology.ids[slot]), 0)

    def by_domain(self) -> IntArray:
        """The count of each domain: int64, shape (len(topology.values) + 1,), the last 0 and for domain -1.

        It may be a kept array: callers must not write to it.
        """
        wanted = len(self.topology.values) + 1
        if self._dense is not None and len(self._dense) == wanted:
            return self._dense
        counts = np.zeros(wanted, dtype=np.int64)
        number = len(self.counts)
        if number:
            domains = np.fromiter(self.counts.keys(), dtype=np.int64, count=number)
            counts[domains] = np.fromiter(self.counts.values(), dtype=np.int64, count=number)
        self._dense = counts if number >= _MANY else None
        return counts

    def by_slot(self) -> IntArray:
        """The count of each slot's domain; int64, shape (capacity,), 0 where the node lacks the label."""
        found: IntArray = self.by_domain()[self.topology.ids]
        return found


class SlotCounter:
    """A number per node slot, kept incrementally.

    Most count few pods on few nodes, and there are thousands: they are held sparse. :meth:`by_slot` makes an array,
    which is then kept up to date as well.

    Attributes:
        counts: the slots' numbers, none of them 0.
    """

    __slots__ = ("_dense", "counts")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self._dense: IntArray | None = None

    def add(self, slot: int, amount: int) -> None:
        """Count ``amount`` more (or less) pods on the node in ``slot``."""
        number = self.counts.get(slot, 0) + amount
        if number:
            self.counts[slot] = number
        else:
            del self.counts[slot]
        if self._dense is not None:
            if slot < len(self._dense):
                self._dense[slot] = number
            else:
                self._dense = None

    def by_slot(self, capacity: int) -> IntArray:
        """The number of each slot: int64, shape (capacity,); kept, so callers must not write to it."""
        if self._dense is None or len(self._dense) != capacity:
            self._dense = np.zeros(capacity, dtype=np.int64)
            if self.counts:
                self._dense[list(self.counts)] = list(self.counts.values())
        return self._dense

    def forget(self) -> None:
        """Drop the array; it is made anew when it is asked for."""
        self._dense = None
