"""Stores nodes column by column.

Each node has a slot, amounts are arrays over slots, and topology domains are integers.

There is one domain column for each label key in use. Pods are counted per domain with these columns, and node selectors
are evaluated once per distinct label value instead of once per node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from sys import getrefcount
from typing import Final, Protocol, TypeAlias
from weakref import WeakSet

import msgspec
import numpy as np

from trimtab.cluster.resources import PODS, SCORED, BoolArray, IntArray, ResourceAxis
from trimtab.kube.objects import Node, Taint

_EMPTY: Final[Mapping[int, int]] = {}
_MANY: Final = 256
"""Counters for at least this number of domains store a dense array in addition to the dictionary."""


class TopologyKey:
    """The values of one label key on all nodes. Each distinct value is a *domain* with a number.

    Pods may refer to any label key. The columns of keys that no node has share one array.

    Attributes:
        values: the label value of each domain. Domains are never renumbered, so counters remain valid.
        id_of: the number of the domain of each value.
    """

    __slots__ = ("_ids", "_nodes", "id_of", "key", "values")

    def __init__(self, key: str, nodes: NodeTable) -> None:
        self.key = key
        self.values: list[str] = []
        self.id_of: dict[str, int] = {}
        self._nodes = nodes
        self._ids: IntArray | None = None
        if key in nodes.label_keys:
            for slot in nodes.slot_of.values():
                self.refresh(slot)

    @property
    def ids(self) -> IntArray:
        """Return the domain of each slot: int64, shape (capacity,).

        It is -1 if the node lacks the label or the slot is free.

        Callers must not write to the array.
        """
        return self._nodes.no_domain if self._ids is None else self._ids

    @property
    def known(self) -> bool:
        """Return whether any node has, or had, the label."""
        return self._ids is not None

    def refresh(self, slot: int) -> None:
        """Update the slot's domain after its node was added, removed or changed."""
        node = self._nodes.at[slot]
        value = None if node is None else node.labels.get(self.key)
        if self._ids is None:
            if value is None:
                return
            self._ids = self._nodes.no_domain.copy()
        elif slot >= len(self._ids):
            self._ids = np.pad(self._ids, (0, self._nodes.capacity - len(self._ids)), constant_values=-1)
        self._ids[slot] = -1 if value is None else self._domain(value)

    def _domain(self, value: str) -> int:
        found = self.id_of.get(value)
        if found is None:
            found = self.id_of[value] = len(self.values)
            self.values.append(value)
        return found


class DomainCounts(dict[int, int]):
    """The nonzero counts of a :class:`DomainCounter` by domain.

    Only nonzero counts are stored, because thousands of owners have terms with the hostname as topology key, and an
    array over all hosts for each of them would need hundreds of megabytes. If hundreds of domains have a nonzero count,
    a dense array is built on first access and also stored. There are few such counters, because each of them counts at
    least that many pods.
    """

    __slots__ = ("_dense",)

    def __init__(self, counts: Mapping[int, int] = _EMPTY) -> None:
        super().__init__(counts)
        self._dense: IntArray | None = None

    def add(self, domain: int, amount: int) -> None:
        """Add ``amount``, which may be negative, to the count of a domain."""
        number = self.get(domain, 0) + amount
        if number:
            self[domain] = number
        else:
            del self[domain]
        if self._dense is not None:
            if domain < len(self._dense) - 1:
                self._dense[domain] = number
            else:
                self._dense = None

    def dense(self, length: int) -> IntArray:
        """Return the count of each domain: int64, shape (length,). Callers must not write to it."""
        if self._dense is not None and len(self._dense) == length:
            return self._dense
        counts = np.zeros(length, dtype=np.int64)
        number = len(self)
        if number:
            domains = np.fromiter(self.keys(), dtype=np.int64, count=number)
            counts[domains] = np.fromiter(self.values(), dtype=np.int64, count=number)
        self._dense = counts if number >= _MANY else None
        return counts


class DomainCounter:
    """A count (usually of pods) for each domain of a topology key, updated incrementally.

    Args:
        topology: the topology key.
        counts: the counts; by default, new ones. Counters that count the same pods may share them.

    Attributes:
        counts: the nonzero counts by domain.
    """

    __slots__ = ("counts", "topology")

    def __init__(self, topology: TopologyKey, counts: DomainCounts | None = None) -> None:
        self.topology = topology
        self.counts = DomainCounts() if counts is None else counts

    @property
    def total(self) -> int:
        """Return the sum of the counts. Pods on nodes without the label are not counted."""
        return sum(self.counts.values())

    def add(self, slot: int, amount: int) -> None:
        """Add ``amount`` to the count of the slot's domain, if the node has the label."""
        if self.topology.known:
            domain = self.topology.ids.item(slot)
            if domain >= 0:
                self.counts.add(domain, amount)

    def at(self, slot: int) -> int:
        """Return the count of the slot's domain, or 0 if the node lacks the label."""
        return self.counts.get(int(self.topology.ids[slot]), 0)

    def by_domain(self) -> IntArray:
        """Return the count of each domain: int64, shape (len(topology.values) + 1,).

        The last entry is 0 and belongs to the domain -1. The array may be cached, so callers must not write to it.
        """
        return self.counts.dense(len(self.topology.values) + 1)

    def by_slot(self) -> IntArray:
        """Return the count of each slot's domain: int64, shape (capacity,).

        The count is 0 for slots whose node lacks the label.
        """
        found: IntArray = self.by_domain()[self.topology.ids]
        return found


_Counts: TypeAlias = dict[TopologyKey, list[DomainCounts]]


class CountsByTopology:
    """Counts of one kind of pods by topology key. All of them are updated for each of these pods.

    The counts of labels that no node has are skipped. Terms written to be expensive have many such topology keys.

    Args:
        nodes: the node table.
    """

    __slots__ = ("_by_topology", "_known", "_nodes", "_unknown")

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._by_topology: _Counts | None = None  # most kinds of pods have no counts
        self._unknown: _Counts | None = None
        """The counts of labels that no node had when ``_known`` columns were known."""
        self._known = 0

    def append(self, topology: TopologyKey, counts: DomainCounts) -> None:
        """Add counts that are to be updated."""
        if topology.known:
            self._by_topology = _with(self._by_topology, topology, [counts])
        else:
            self._unknown = _with(self._unknown, topology, [counts])

    def add(self, slot: int, amount: int) -> None:
        """Add ``amount`` to the counts of the domains that contain a slot."""
        if self._unknown is not None and self._known != self._nodes.known_columns:
            self._find_known(self._unknown)
        if self._by_topology is None:
            return
        for topology, of_key in self._by_topology.items():
            # the domain is looked up once per key; a pod may match hundreds of terms
            domain = topology.ids.item(slot)
            if domain >= 0:
                for counts in of_key:
                    counts.add(domain, amount)

    def _find_known(self, unknown: _Counts) -> None:
        self._known = self._nodes.known_columns
        for topology in [topology for topology in unknown if topology.known]:
            self._by_topology = _with(self._by_topology, topology, unknown.pop(topology))
        self._unknown = unknown or None


def _with(known: _Counts | None, topology: TopologyKey, counts: list[DomainCounts]) -> _Counts:
    """Add counts to a mapping, which is created if it is ``None``."""
    if known is None:
        return {topology: counts}
    known.setdefault(topology, []).extend(counts)
    return known


class SlotCounter:
    """A count (usually of pods) for each node slot, updated incrementally.

    The counts are stored sparsely, because there are thousands of counters and most of them count few pods on few
    nodes. :meth:`by_slot` builds a dense array, which is then updated with every change.

    Attributes:
        counts: the nonzero counts by slot.
    """

    __slots__ = ("_dense", "counts")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self._dense: IntArray | None = None

    def add(self, slot: int, amount: int) -> None:
        """Add ``amount``, which may be negative, to the count of a slot."""
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
        """Return the count of each slot: int64, shape (capacity,).

        The array is cached, so callers must not write to it.
        """
        if self._dense is None or len(self._dense) != capacity:
            self._dense = np.zeros(capacity, dtype=np.int64)
            if self.counts:
                self._dense[list(self.counts)] = list(self.counts.values())
        return self._dense

    def forget(self) -> None:
        """Drop the dense array. It is rebuilt on the next access."""
        self._dense = None


_LOG: Final = 16_384
"""Minimum number of changes that the log of changed slots keeps, and half of its maximum length. A reader that has
fallen further behind must read all nodes again."""

_SPARE: Final = 1000
"""The table is not rebuilt before it has more than this number of stale label values, taint sets or condition sets."""

_SPARE_COLUMNS: Final = 64
"""Number of unused label columns that are kept before :meth:`NodeTable.release_columns` drops them."""


def _reference_count_of_unshared_value() -> int:
    """Measure ``sys.getrefcount`` of a value that only a dictionary references.

    The result depends on the Python version.
    """
    held = {"probe": object()}
    return getrefcount(held["probe"])


_UNREFERENCED: Final = _reference_count_of_unshared_value()


class SpecCache(Protocol):
    """A cache of results for pods that outlives a plan. It adds itself to :attr:`NodeTable.caches`."""

    def forget_removed(self, used: Set[int]) -> None:
        """Drop what is cached for pods that no longer exist. Called while no planner uses the snapshot.

        A cache keeps only results that are expensive to compute.

        Args:
            used: the ids of the specs that existing pods have.
        """
        ...


class NodeTable:
    """Stores each node in a numbered *slot*, the index of the node in all arrays.

    A slot is reused after its node is removed.

    Attributes:
        axis: the resource columns.
        slot_of: the slot of each node name.
        at: the node in each slot, or ``None`` if the slot is free.
        allocatable: the allocatable amounts of each node: int64, shape (capacity, axis.width).
        taken: the sum of :attr:`~trimtab.cluster.resources.Amounts.taken` of the pods on each node: int64, shape
            (capacity, 2 + axis.width). ``requested`` and ``nonzero`` are views of it.
        requested: the sum of the requests of the pods on each node: int64, shape (capacity, axis.width). Column
            ``PODS`` is the number of pods.
        nonzero: the sum of the cpu and memory requests that scores use
            (:attr:`~trimtab.kube.objects.PodSpec.nonzero_requests`): int64, shape (capacity, 2).
        label_keys: the number of nodes with each label key.
        no_domain: the domain column of a label that no node has: int64, shape (capacity,), all -1.
        used: whether each slot has a node: bool, shape (capacity,).
        cordoned: whether each node is cordoned (``spec.unschedulable``): bool, shape (capacity,).
        taints: the index of each node's taints in :attr:`taint_sets`: int64, shape (capacity,).
        taint_sets: the distinct sets of taints, without ``timeAdded``. The first set is empty.
        conditions: the index of each node's condition statuses in :attr:`condition_sets`: int64, shape (capacity,).
        condition_sets: the distinct sets of condition statuses, by type of the condition. The first set is empty.
        version: a number that increases when names, labels, taints, declared features or cordons change. Caches of
            static filters depend on it.
        conditions_version: a number that increases when the status of a condition changes.
        revision: a number that increases when a node is added, replaced or removed.
        images_version: a number that increases when a node's images change.
        caches: the caches that :meth:`~trimtab.cluster.snapshot.Snapshot.forget_removed` clears.
    """

    def __init__(self) -> None:
        self.axis = ResourceAxis()
        self.slot_of: dict[str, int] = {}
        self.at: list[Node | None] = []
        self.allocatable: IntArray = np.zeros((0, self.axis.width), dtype=np.int64)
        self._set_taken(np.zeros((0, SCORED + self.axis.width), dtype=np.int64))
        self.used: BoolArray = np.zeros(0, dtype=np.bool_)
        self.cordoned: BoolArray = np.zeros(0, dtype=np.bool_)
        self.taints: IntArray = np.zeros(0, dtype=np.int64)
        self.taint_sets: list[tuple[Taint, ...]] = [()]
        self.conditions: IntArray = np.zeros(0, dtype=np.int64)
        self.condition_sets: list[dict[str, str]] = [{}]
        self.version = 0
        self.conditions_version = 0
        self.revision = 0
        self.images_version = 0
        self.caches: WeakSet[SpecCache] = WeakSet()
        self._touched: list[int] = []
        self._forgotten = 0
        self._taint_set_of: dict[tuple[Taint, ...], int] = {(): 0}
        self._condition_set_of: dict[frozenset[tuple[str, str]], int] = {frozenset(): 0}
        self.label_keys: Counter[str] = Counter()
        self.no_domain: IntArray = np.zeros(0, dtype=np.int64)
        self._columns: dict[str, TopologyKey] = {}
        self._known: dict[str, TopologyKey] = {}
        self._free: list[int] = []
        self._order: tuple[int, IntArray] | None = None
        self._rank: tuple[int, IntArray] | None = None

    def __len__(self) -> int:
        return len(self.slot_of)

    @property
    def capacity(self) -> int:
        """Return the number of slots, including free ones."""
        return len(self.used)

    def node(self, slot: int) -> Node:
        """Return the node in a slot.

        Raises:
            KeyError: the slot is free.
        """
        node = self.at[slot]
        if node is None:
            raise KeyError(slot)
        return node

    def get(self, name: str) -> Node | None:
        """Return the node with this name, or ``None`` if it does not exist."""
        slot = self.slot_of.get(name)
        return None if slot is None else self.at[slot]

    @property
    def known_columns(self) -> int:
        """Return the number of columns of labels that any node has, or had."""
        return len(self._known)

    def column(self, key: str) -> TopologyKey:
        """Return the column of a node label. It is built on first access and then updated incrementally."""
        found = self._columns.get(key)
        if found is None:
            found = self._columns[key] = TopologyKey(key, self)
            if found.known:
                self._known[key] = found
        return found

    def order(self) -> IntArray:
        """Return the slots of all nodes, ordered by node name.

        Planners iterate in this order, so that plans do not depend on the order in which nodes arrived.
        """
        if self._order is None or self._order[0] != self.version:
            slots = [self.slot_of[name] for name in sorted(self.slot_of)]
            self._order = (self.version, np.array(slots, dtype=np.int64))
        return self._order[1]

    def rank(self) -> IntArray:
        """Return the position of each slot in :meth:`order`: int64, shape (capacity,). Free slots come last.

        Callers break ties by this position.
        """
        if self._rank is None or self._rank[0] != self.version:
            rank = np.full(self.capacity, self.capacity, dtype=np.int64)
            order = self.order()
            rank[order] = np.arange(len(order))
            self._rank = (self.version, rank)
        return self._rank[1]

    def put(self, node: Node) -> tuple[int, Node | None]:
        """Add or replace a node, and return its slot and the previous node. The requested amounts are kept.

        If the labels change, the caller must first subtract the node's pods, because counters depend on the old labels.
        """
        slot = self.slot_of.get(node.name)
        old = None if slot is None else self.at[slot]
        if slot is None:
            slot = self._take_slot()
            self.slot_of[node.name] = slot
            self.used[slot] = True
        self.at[slot] = node
        self.revision += 1
        if old is None or old.allocatable != node.allocatable:
            self._set_allocatable(slot, old, node)
        if old is None or old.labels != node.labels:
            self._count_labels(old, node)
        if old is None or _static(old) != _static(node):
            self.version += 1
            self.cordoned[slot] = node.unschedulable
            self.taints[slot] = self._taint_set(node.taints)
            self._refresh_columns(slot)
        if old is None or old.condition_statuses != node.condition_statuses:
            self.conditions_version += 1
            self.conditions[slot] = self._condition_set(node)
        if old is None or old.images != node.images:
            self.images_version += 1
        return slot, old

    def static_version(self, *, conditions: bool) -> int:
        """Return a number that changes if :attr:`version` or, if a cache depends on it, ``conditions_version`` does."""
        return self.version + self.conditions_version if conditions else self.version

    def drop(self, name: str) -> tuple[int, Node]:
        """Remove a node, free its slot, and return the slot and the node.

        The caller must first subtract the node's pods.

        Raises:
            KeyError: there is no such node.
        """
        slot = self.slot_of.pop(name)
        node = self.node(slot)
        self.at[slot] = None
        self.revision += 1
        self.used[slot] = False
        self.cordoned[slot] = False
        self.taints[slot] = 0
        self.conditions[slot] = 0
        self.axis.count_nodes(node.allocatable, -1)
        self.allocatable[slot] = 0
        self.taken[slot] = 0
        self.touch(slot)
        self._free.append(slot)
        self._count_labels(node, None)
        self.version += 1
        self.images_version += 1
        self._refresh_columns(slot)
        return slot, node

    @property
    def needs_rebuild(self) -> bool:
        """Return whether most of the stored label values, taint sets or condition sets are those of former nodes.

        This happens because every new node has a new hostname, and autoscalers add taints whose value is a timestamp.
        """
        most = 2 * len(self) + _SPARE
        sets = max(len(self.taint_sets), len(self.condition_sets))
        return sets > most or any(len(column.values) > most for column in self._known.values())

    def release_columns(self) -> None:
        """Drop the columns of labels that no node has and that no counter references."""
        number = len(self._columns)
        if number - len(self._known) > _SPARE_COLUMNS:
            for key in [key for key in self._columns if key not in self._known]:
                if getrefcount(self._columns[key]) <= _UNREFERENCED:
                    del self._columns[key]
            if len(self._columns) < number:
                self._columns = dict(self._columns)  # a dictionary never shrinks by itself

    def renumber(self) -> None:
        """Renumber the domains, taint sets and condition sets without gaps.

        Afterwards, the caller must rebuild all domain counters.
        """
        self._columns.clear()
        self._known.clear()
        self.taint_sets = [()]
        self._taint_set_of = {(): 0}
        self.condition_sets = [{}]
        self._condition_set_of = {frozenset(): 0}
        for slot in self.slot_of.values():
            self.taints[slot] = self._taint_set(self.node(slot).taints)
            self.conditions[slot] = self._condition_set(self.node(slot))
        self.version += 1

    def touch(self, slot: int) -> None:
        """Log that the amounts of a slot changed, for caches that depend on them."""
        if len(self._touched) >= 2 * _LOG:
            self._forgotten += _LOG
            del self._touched[:_LOG]
        self._touched.append(slot)

    def touch_all(self) -> None:
        """Log that the amounts of any slot may have changed."""
        self._forgotten = self.changes + 1
        self._touched.clear()

    @property
    def changes(self) -> int:
        """Return how many changes of amounts have been logged."""
        return self._forgotten + len(self._touched)

    def touched_since(self, number: int) -> list[int] | None:
        """Return the slots whose amounts have changed since a given number of :attr:`changes`.

        The slots are in the order of their changes, possibly with duplicates. The result is ``None`` if any slot may
        have changed, because the log no longer contains all of these changes.
        """
        return None if number < self._forgotten else self._touched[number - self._forgotten :]

    def count_rows(self, rows: IntArray, out: Sequence[int], into: Sequence[int]) -> None:
        """Move requested amounts between slots.

        Subtract ``rows[i]`` from slot ``out[i]``, and add it to slot ``into[i]``.

        A slot of -1 is skipped.

        Args:
            rows: the amounts to move, in the format of :attr:`taken`: int64, shape (n, 2 + axis.width).
            out: the n slots from which the rows are subtracted.
            into: the n slots to which the rows are added.
        """
        for slots, count in ((np.array(out, dtype=np.int64), np.subtract), (np.array(into, dtype=np.int64), np.add)):
            there = slots >= 0
            count.at(self.taken, slots[there], rows[there])
            for slot in sorted(set(slots[there].tolist())):
                self.touch(slot)

    def fit_width(self) -> None:
        """Resize the arrays to the width of the axis after a resource was added or removed."""
        missing = self.axis.width - self.allocatable.shape[1]
        if missing > 0:
            self.allocatable = np.pad(self.allocatable, ((0, 0), (0, missing)))
            self._set_taken(np.pad(self.taken, ((0, 0), (0, missing))))
        elif missing < 0:
            self.allocatable = self.allocatable[:, :missing].copy()
            self._set_taken(self.taken[:, :missing].copy())

    def utilization(self, slot: int) -> dict[str, float]:
        """Return a node's requested amounts as percentages of allocatable, by resource name.

        Resources that the node does not have are omitted.
        """
        have, want = self.allocatable[slot], self.requested[slot]
        return {
            name: 100.0 * float(want[column]) / float(have[column])
            for column, name in enumerate(self.axis.names)
            if have[column] > 0
        }

    def _set_taken(self, taken: IntArray) -> None:
        self.taken: IntArray = taken
        self.nonzero: IntArray = taken[:, :SCORED]
        self.requested: IntArray = taken[:, SCORED:]

    def _set_allocatable(self, slot: int, old: Node | None, node: Node) -> None:
        for name in node.allocatable:
            self.axis.add(name)
        self.axis.count_nodes(node.allocatable, 1)
        if old is not None:
            self.axis.count_nodes(old.allocatable, -1)
        self.fit_width()
        self.allocatable[slot] = self.axis.row(node.allocatable)
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

    def _condition_set(self, node: Node) -> int:
        statuses = node.condition_statuses
        key = frozenset(statuses.items())
        found = self._condition_set_of.get(key)
        if found is None:
            found = self._condition_set_of[key] = len(self.condition_sets)
            self.condition_sets.append(statuses)
        return found

    def _refresh_columns(self, slot: int) -> None:
        for column in self._known.values():
            column.refresh(slot)

    def _count_labels(self, old: Node | None, new: Node | None) -> None:
        """Update :attr:`label_keys` for an added (``old`` is ``None``), changed, or removed (``new`` is ``None``) node.

        When the first node with a label is added, the label's column gets its own array.
        """
        if old is not None:
            for key in old.labels:
                self.label_keys[key] -= 1
                if not self.label_keys[key]:
                    del self.label_keys[key]
        if new is not None:
            for key in new.labels:
                self.label_keys[key] += 1
                if key not in self._known and (column := self._columns.get(key)) is not None:
                    column.refresh(self.slot_of[new.name])
                    self._known[key] = column

    def _take_slot(self) -> int:
        if self._free:
            return self._free.pop()
        slot = len(self.at)
        self.at.append(None)
        if slot >= self.capacity:
            more = max(64, self.capacity)
            self.allocatable = np.pad(self.allocatable, ((0, more), (0, 0)))
            self._set_taken(np.pad(self.taken, ((0, more), (0, 0))))
            self.used = np.pad(self.used, (0, more))
            self.cordoned = np.pad(self.cordoned, (0, more))
            self.taints = np.pad(self.taints, (0, more))
            self.conditions = np.pad(self.conditions, (0, more))
            self.no_domain = np.full(self.capacity, -1, dtype=np.int64)
            self.version += 1
        return slot


def _static(node: Node) -> tuple[object, ...]:
    """Return the node fields that static filters read, except conditions."""
    return node.labels, node.taints, node.unschedulable, node.declared_features
