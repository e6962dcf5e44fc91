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

    Attributes:
        counts: int64, shape (number of domains,) rounded up.
        total: the sum over domains; pods on nodes without the label don't count.
    """

    def __init__(self, topology: TopologyKey) -> None:
        self.topology = topology
        self.counts: IntArray = np.zeros(max(8, len(topology.values)), dtype=np.int64)
        self.total = 0

    def add(self, slot: int, amount: int) -> None:
        """Count ``amount`` more (or less) pods on the node in ``slot``."""
        domain = self.topology.ids[slot]
        if domain < 0:
            return
        if domain >= len(self.counts):
            self.counts = np.pad(self.counts, (0, max(len(self.counts), int(domain) + 1 - len(self.counts))))
        self.counts[domain] += amount
        self.total += amount

    def by_slot(self) -> IntArray:
        """The count of each slot's domain; int64, shape (capacity,), 0 where the node lacks the label."""
        ids = self.topology.ids
        if len(self.counts) < len(self.topology.values):
            self.counts = np.pad(self.counts, (0, len(self.topology.values) - len(self.counts)))
        return np.where(ids >= 0, self.counts[ids], 0)
