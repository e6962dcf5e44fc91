"""Nodes as columns: a slot per node, allocatable and requested amounts as arrays over slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from trimtab.cluster.resources import PODS, SCORED, BoolArray, IntArray, ResourceAxis
from trimtab.cluster.topology import TopologyKey
from trimtab.kube.objects import Node, Taint

_LOG: Final = 65_536
"""Changes of amounts that are remembered; who has not looked for longer looks at all nodes."""

_SPARE: Final = 1000
"""Label values and sets of taints of nodes that are gone that are no trouble."""


class NodeTable:
    """Slots of nodes; arrays run over slots, and a slot is reused after its node is gone.

    Attributes:
        axis: the resource columns.
        slot_of: node name to slot.
        at: the node in each slot, ``None`` where free.
        allocatable: int64, shape (capacity, axis.width).
        taken: int64, shape (capacity, 2 + axis.width); what the pods there take, in the order of
            :attr:`~trimtab.cluster.amounts.Amounts.taken`. Both that follow are parts of it.
        requested: int64, shape (capacity, axis.width); the sum of the pods' requests, in column ``PODS`` their number.
        nonzero: int64, shape (capacity, 2); the same of cpu and memory as scores count them
            (:attr:`~trimtab.kube.objects.PodSpec.nonzero_requests`).
        used: bool, shape (capacity,); which slots hold a node.
        cordoned: bool, shape (capacity,); which nodes are unschedulable.
        taints: int64, shape (capacity,); which of :attr:`taint_sets` each node has.
        taint_sets: the sets of taints that were seen, without their times; the first is empty.
        version: rises whenever names, labels, taints or cordons change; caches of static verdicts key on it.
        images_version: rises whenever a node's images change.
        touched: the slots whose amounts changed, the latest last, since :attr:`epoch` began.
        epoch: rises when :attr:`touched` is cut: then any slot may have changed.
    """

    def __init__(self) -> None:
        self.axis = ResourceAxis()
        self.slot_of: dict[str, int] = {}
        self.at: list[Node | None] = []
        self.allocatable: IntArray = np.zeros((0, self.axis.width), dtype=np.int64)
        self._hold(np.zeros((0, SCORED + self.axis.width), dtype=np.int64))
        self.used: BoolArray = np.zeros(0, dtype=np.bool_)
        self.cordoned: BoolArray = np.zeros(0, dtype=np.bool_)
        self.taints: IntArray = np.zeros(0, dtype=np.int64)
        self.taint_sets: list[tuple[Taint, ...]] = [()]
        self.version = 0
        self.images_version = 0
        self.touched: list[int] = []
        self.epoch = 0
        self._taint_set_of: dict[tuple[Taint, ...], int] = {(): 0}
        self._columns: dict[str, TopologyKey] = {}
        self._free: list[int] = []
        self._order: tuple[int, IntArray] | None = None
        self._rank: tuple[int, IntArray] | None = None

    def __len__(self) -> int:
        return len(self.slot_of)

    @property
    def capacity(self) -> int:
        """How many slots the arrays have."""
        return len(self.used)

    def node(self, slot: int) -> Node:
        """The node in a slot.

        Raises:
            KeyError: the slot is free.
        """
        node = self.at[slot]
        if node is None:
            raise KeyError(slot)
        return node

    def get(self, name: str) -> Node | None:
        """The node of that name, or ``None``."""
        slot = self.slot_of.get(name)
        return None if slot is None else self.at[slot]

    def column(self, key: str) -> TopologyKey:
        """The values of a node label as a column, made when first asked for and then kept up to date."""
        found = self._columns.get(key)
        if found is None:
            found = self._columns[key] = TopologyKey(key, self)
        return found

    def order(self) -> IntArray:
        """Slots in the order of node names: what planners iterate, so that plans don't depend on arrival."""
        if self._order is None or self._order[0] != self.version:
            slots = [self.slot_of[name] for name in sorted(self.slot_of)]
            self._order = (self.version, np.array(slots, dtype=np.int64))
        return self._order[1]

    def rank(self) -> IntArray:
        """The place of each slot in :meth:`order`; int64, shape (capacity,), free slots last. Breaks ties by name."""
        if self._rank is None or self._rank[0] != self.version:
            rank = np.full(self.capacity, self.capacity, dtype=np.int64)
            order = self.order()
            rank[order] = np.arange(len(order))
            self._rank = (self.version, rank)
        return self._rank[1]

    def put(self, node: Node) -> tuple[int, Node | None]:
        """Add or replace a node; its requested amounts stay. Returns the slot and the node that was there.

        Where labels change, no pod may be counted on the node meanwhile: counters go by its old labels.
        """
        slot = self.slot_of.get(node.name)
        old = None if slot is None else self.at[slot]
        if slot is None:
            slot = self._take_slot()
            self.slot_of[node.name] = slot
            self.used[slot] = True
        self.at[slot] = node
        if old is None or old.allocatable != node.allocatable:
            self._set_allocatable(slot, node)
        if old is None or _static(old) != _static(node):
            self.version += 1
            self.cordoned[slot] = node.unschedulable
            self.taints[slot] = self._taint_set(node.taints)
            self._refresh_columns(slot)
        if old is None or old.images != node.images:
            self.images_version += 1
        return slot, old

    def drop(self, name: str) -> tuple[int, Node]:
        """Remove a node and zero its columns; no pod may be counted on it.

        Raises:
            KeyError: there is no such node.
        """
        slot = self.slot_of.pop(name)
        node = self.node(slot)
        self.at[slot] = None
        self.used[slot] = False
        self.cordoned[slot] = False
        self.taints[slot] = 0
        self.allocatable[slot] = 0
        self.taken[slot] = 0
        self.touch(slot)
        self._free.append(slot)
        self.version += 1
        self.images_version += 1
        self._refresh_columns(slot)
        return slot, node

    @property
    def overgrown(self) -> bool:
        """Whether most label values or sets of taints are those of nodes that are gone.

        Every new node brings a hostname, and autoscalers mark nodes with taints whose value is the time.
        """
        most = 2 * len(self) + _SPARE
        return len(self.taint_sets) > most or any(len(column.values) > most for column in self._columns.values())

    def forget(self) -> None:
        """Number domains and sets of taints anew: counters of domains must be made anew as well."""
        self._columns.clear()
        self.taint_sets = [()]
        self._taint_set_of = {(): 0}
        for slot in self.slot_of.values():
            self.taints[slot] = self._taint_set(self.node(slot).taints)
        self.version += 1

    def touch(self, slot: int) -> None:
        """Note that the amounts of a slot changed; for those who keep something computed from them."""
        if len(self.touched) >= _LOG:
            self.touched.clear()
            self.epoch += 1
        self.touched.append(slot)

    def count_rows(self, rows: IntArray, out: Sequence[int], into: Sequence[int]) -> None:
        """Take many rows off slots and add them to others: ``rows[i]`` off ``out[i]`` and to ``into[i]``, -1 for none.

        Args:
            rows: int64, shape (n, 2 + axis.width), as :attr:`taken` has them.
            out: n slots.
            into: likewise.
        """
        for slots, count in ((np.array(out, dtype=np.int64), np.subtract), (np.array(into, dtype=np.int64), np.add)):
            there = slots >= 0
            count.at(self.taken, slots[there], rows[there])
            for slot in np.unique(slots[there]).tolist():
                self.touch(slot)

    def widen(self) -> None:
        """Give the arrays the axis' width, where a new resource made it grow."""
        missing = self.axis.width - self.allocatable.shape[1]
        if missing > 0:
            self.allocatable = np.pad(self.allocatable, ((0, 0), (0, missing)))
            self._hold(np.pad(self.taken, ((0, 0), (0, missing))))

    def utilization(self, slot: int) -> dict[str, float]:
        """Requested over allocatable in percent, by resource; resources the node does not have are left out."""
        have, want = self.allocatable[slot], self.requested[slot]
        return {
            name: 100.0 * float(want[column]) / float(have[column])
            for column, name in enumerate(self.axis.names)
            if have[column] > 0
        }

    def _hold(self, taken: IntArray) -> None:
        self.taken: IntArray = taken
        self.nonzero: IntArray = taken[:, :SCORED]
        self.requested: IntArray = taken[:, SCORED:]

    def _set_allocatable(self, slot: int, node: Node) -> None:
        row = self.axis.row(node.allocatable)
        self.widen()
        self.allocatable[slot] = row
        if "pods" not in node.allocatable:
            self.allocatable[slot, PODS] = 0
        self.touch(slot)

    def _taint_set(self, taints: tuple[Taint, ...]) -> int:
        if not taints:
            return 0
        timeless = tuple(msgspec.structs.replace(taint, time_added=None) for taint in taints)
        found = self._taint_set_of.get(timeless)
        if found is None:
            found = self._taint_set_of[timeless] = len(self.taint_sets)
            self.taint_sets.append(timeless)
        return found

    def _refresh_columns(self, slot: int) -> None:
        for column in self._columns.values():
            column.refresh(slot)

    def _take_slot(self) -> int:
        if self._free:
            return self._free.pop()
        slot = len(self.at)
        self.at.append(None)
        if slot >= self.capacity:
            more = max(64, self.capacity)
            self.allocatable = np.pad(self.allocatable, ((0, more), (0, 0)))
            self._hold(np.pad(self.taken, ((0, more), (0, 0))))
            self.used = np.pad(self.used, (0, more))
            self.cordoned = np.pad(self.cordoned, (0, more))
            self.taints = np.pad(self.taints, (0, more))
            self.version += 1
        return slot


def _static(node: Node) -> tuple[object, ...]:
    """What filters that don't depend on pods read of a node."""
    return node.labels, node.taints, node.unschedulable, node.declared_features
