"""Topology domains: for a node label key, which value each node has, as integers to index counters with."""

from __future__ import annotations

import numpy as np

from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.resources import IntArray


class TopologyKey:
    """One label key over all nodes.

    Attributes:
        ids: int64, shape (capacity,); the domain of each slot, -1 where the node lacks the label or the slot is free.
        values: the label value of each domain; domains are never renumbered, so counters stay valid.
    """

    def __init__(self, key: str, nodes: NodeTable) -> None:
        self.key = key
        self.values: list[str] = []
        self._id_of: dict[str, int] = {}
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
        found = self._id_of.get(value)
        if found is None:
            found = self._id_of[value] = len(self.values)
            self.values.append(value)
        return found


class DomainCounter:
    """A number per domain of a topology key, kept incrementally.

    Only domains that count something are held: thousands of owners each state a term on the hostname, and an array
    over all hosts for each of them would take hundreds of megabytes.

    Attributes:
        counts: the domains' numbers, none of them 0.
        total: their sum; pods on nodes without the label don't count.
    """

    __slots__ = ("counts", "topology", "total")

    def __init__(self, topology: TopologyKey) -> None:
        self.topology = topology
        self.counts: dict[int, int] = {}
        self.total = 0

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

    def at(self, slot: int) -> int:
        """The count of the slot's domain, 0 where the node lacks the label."""
        return self.counts.get(int(self.topology.ids[slot]), 0)

    def by_slot(self) -> IntArray:
        """The count of each slot's domain; int64, shape (capacity,), 0 where the node lacks the label."""
        counts = np.zeros(len(self.topology.values) + 1, dtype=np.int64)  # the last for slots of domain -1
        if self.counts:
            counts[list(self.counts)] = list(self.counts.values())
        return counts[self.topology.ids]
