"""Finds target nodes for pods of overutilized nodes.

The target is the underutilized node with the most free capacity that can run the pod.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, NamedTuple

import numpy as np

from trimtab.api.reasons import REPLACEMENT_LARGER
from trimtab.cluster.node_table import NodeTable
from trimtab.cluster.resources import CPU, MEMORY, BoolArray, IntArray
from trimtab.descheduling.planning.context import PlacementPreference, StrategyContext
from trimtab.descheduling.planning.node_usage import FloatArray, NodeUsage, UtilizationLevel, room_below_target
from trimtab.descheduling.planning.victim_order import Amounts
from trimtab.disruption.outcome import Refusal
from trimtab.kube.objects import Pod

_Likes = tuple[bytes, int]

Wanted = tuple[tuple[int, int], ...]
"""A pod's nonzero requests, as pairs of column and amount."""

_OFTEN: Final = 8
"""Number of pods of one shape (:class:`PodShape`) at which a queue of nodes becomes faster than scanning all nodes."""

_GRAINS: Final = 2.0**30
"""Number of steps per unit to which scores are rounded. It is a power of two, so that even shares of memory are exact.
"""

_MANY: Final = 64
"""Number of excluded slots above which scanning is faster than a queue."""

_MOST_QUEUES: Final = 32
"""Maximum number of queues. One queue uses about 400 KiB for 5,000 nodes, and there may be thousands of pod shapes."""


class DestinationCapacity:
    """The free capacity of target nodes, limited by allocatable and by the policy's targets.

    It is stored separately from the node table, because a search over three thousand nodes must take microseconds. It
    contains only the target nodes, one row per resource, and precomputed scores. Capacity only decreases during
    planning, so a node that has rejected a pod rejects all later pods of the same shape.

    Single values are read from Python lists, which is several times faster than reading from arrays. The lists are
    authoritative, and the arrays are updated from them on demand.

    Args:
        nodes: the node table.
        slots: int64; the slots of the target nodes, sorted by name.
        levels: utilization targets. No move may cause a node to exceed them.
    """

    def __init__(self, nodes: NodeTable, slots: IntArray, levels: Sequence[UtilizationLevel]) -> None:
        self.slots = slots
        self._capacity = nodes.capacity
        self._slots: list[int] = slots.tolist()
        self._position = {slot: position for position, slot in enumerate(self._slots)}
        limits = nodes.allocatable[slots].T.copy()
        for level in levels:
            below = room_below_target(limits[level.column], level.target)
            limits[level.column] = np.minimum(limits[level.column], below)
        self._left_columns: IntArray = limits - nodes.requested[slots].T
        self._left: list[list[int]] = self._left_columns.tolist()
        self._shares: list[FloatArray] = []
        scores: FloatArray = np.zeros(len(slots), dtype=np.float64)
        free_columns = []
        for column in (CPU, MEMORY):
            have = nodes.allocatable[slots, column].astype(np.float64)
            share = np.divide(1.0, have, out=np.zeros_like(have), where=have > 0)
            free = have - nodes.requested[slots, column]
            scores += free * share
            self._shares.append(share)
            free_columns.append(free.tolist())
        self._cpu_free, self._memory_free = free_columns
        self._cpu_share, self._memory_share = (share.tolist() for share in self._shares)
        self._score_column = scores
        self._score: list[float] = scores.tolist()
        self._stale: set[int] = set()
        """Positions at which the arrays are older than the lists."""
        self._wants: dict[int, tuple[IntArray, Wanted, bytes]] = {}
        self._masks: dict[int, tuple[BoolArray, BoolArray | None]] = {}
        self._asked: dict[_Likes, int] = {}
        self._queues: dict[_Likes, _Queue] = {}

    def best(
        self, row: IntArray, eligible: BoolArray, excluded: Collection[int] = (), also: BoolArray | None = None
    ) -> int | None:
        """Return the slot with the most free capacity that can run the pod; ``None`` if none can.

        Ties are broken by name. The score is the same as kube-scheduler's LeastAllocated, but not rounded.

        Args:
            row: the pod's requests.
            eligible: bool, shape (nodes.capacity,), as :meth:`Placer.eligible` returns it. Results are cached by its
                id.
            excluded: slots to skip.
            also: bool, shape (nodes.capacity,); an additional condition for this pod only.
        """
        if also is not None or len(excluded) > _MANY:
            return self._scan(row, eligible, excluded, also)
        _, wanted, amounts = self._want(row)
        likes = (amounts, id(eligible))
        queue = self._queues.get(likes)
        if queue is None:
            count = self._asked[likes] = self._asked.get(likes, 0) + 1
            if count < _OFTEN or len(self._queues) >= _MOST_QUEUES:
                return self._scan(row, eligible, excluded, None)
            queue = self._queues[likes] = self._queue(row, wanted, eligible)
        return self._next(queue, excluded)

    def accepting(self, row: IntArray) -> BoolArray:
        """Return the slots with capacity for a pod with these requests: bool, shape (nodes.capacity,)."""
        mask: BoolArray = np.zeros(self._capacity, dtype=np.bool_)
        mask[self.slots[self._fits(row)]] = True
        return mask

    def take(self, slot: int, row: IntArray) -> None:
        """Reserve a slot's capacity for a moved pod."""
        position = self._position[slot]
        for column, amount in self._want(row)[1]:
            self._left[column][position] -= amount
            if column == CPU:
                self._cpu_free[position] -= amount
            elif column == MEMORY:
                self._memory_free[position] -= amount
        score = self._cpu_free[position] * self._cpu_share[position]
        self._score[position] = score + self._memory_free[position] * self._memory_share[position]
        self._stale.add(position)

    def _want(self, row: IntArray) -> tuple[IntArray, Wanted, bytes]:
        """Return the row, its nonzero requests and its bytes. Pods with the same spec share one row."""
        found = self._wants.get(id(row))
        if found is None:
            wanted = tuple((column, amount) for column, amount in enumerate(row.tolist()) if amount > 0)
            found = self._wants[id(row)] = (row, wanted, row.tobytes())  # the row is kept, so that the id stays valid
        return found

    def _queue(self, row: IntArray, wanted: Wanted, eligible: BoolArray) -> _Queue:
        amounts = dict(wanted)
        limits = [(self._left[column], amount) for column, amount in wanted]
        scores, fits = self._scores(row), self._candidates(row, eligible)
        return _Queue(scores, fits, limits, amounts.get(CPU, 0), amounts.get(MEMORY, 0))

    def _refresh(self) -> None:
        """Copy changed values from the lists to the arrays."""
        if self._stale:
            positions = list(self._stale)
            self._stale.clear()
            self._score_column[positions] = [self._score[position] for position in positions]
            self._left_columns[:, positions] = [[left[position] for position in positions] for left in self._left]

    def _scan(
        self, row: IntArray, eligible: BoolArray, excluded: Collection[int], also: BoolArray | None
    ) -> int | None:
        """Evaluate all target nodes at once, and return the best slot; ``None`` if no node can run the pod."""
        fits = self._candidates(row, eligible)
        if also is not None:
            fits &= also[self.slots]
        positions = [position for slot in excluded if (position := self._position.get(slot)) is not None]
        if positions:
            fits[positions] = False
        position = int(np.where(fits, self._scores(row), -np.inf).argmax())
        return int(self.slots[position]) if fits[position] else None

    def _next(self, queue: _Queue, excluded: Collection[int]) -> int | None:
        """Return the position of the best node in a queue that can run the pod; ``None`` if there is none.

        Outdated scores are corrected first.
        """
        heap, limits, cpu, memory = queue.heap, queue.limits, queue.cpu, queue.memory
        passed = []
        found = None
        while heap:
            worst_first, position = heap[0]
            shares = self._score[position] - cpu * self._cpu_share[position] - memory * self._memory_share[position]
            score = float(round(shares * _GRAINS))
            if score != -worst_first:  # pods of other shapes have been moved here since; scores only decrease
                heapreplace(heap, (-score, position))
                continue
            for left, amount in limits:
                if left[position] < amount:
                    heappop(heap)  # permanently, because capacity only decreases
                    break
            else:
                if self._slots[position] not in excluded:
                    found = self._slots[position]
                    break
                passed.append(heappop(heap))
        for entry in passed:
            heappush(heap, entry)
        return found

    def _scores(self, row: IntArray) -> FloatArray:
        """Return a score for each target node: the fractions of cpu and memory that would remain free.

        Scores are rounded to the resolution :data:`_GRAINS`, so that sums that differ only by rounding errors are ties.
        """
        self._refresh()
        shares = self._score_column - row[CPU] * self._shares[0] - row[MEMORY] * self._shares[1]
        grains: FloatArray = np.rint(shares * _GRAINS)
        return grains

    def _candidates(self, row: IntArray, eligible: BoolArray) -> BoolArray:
        fits = self._fits(row)
        mask = self._compressed(eligible)
        return fits if mask is None else fits & mask

    def _fits(self, row: IntArray) -> BoolArray:
        self._refresh()
        (first, amount), *others = self._want(row)[1]  # not empty, because every pod requests one unit of pods
        fits: BoolArray = self._left_columns[first] >= amount
        for column, amount in others:
            fits &= self._left_columns[column] >= amount
        return fits

    def _compressed(self, eligible: BoolArray) -> BoolArray | None:
        """Return the part of a mask over all slots for the target nodes; ``None`` if it excludes none of them."""
        found = self._masks.get(id(eligible))
        if found is None:
            mask = eligible[self.slots]
            found = self._masks[id(eligible)] = (
                eligible,
                None if mask.all() else mask,
            )  # kept, so that the id stays valid
        return found[1]


class _Queue:
    """Target nodes for one pod shape, ordered by score, best first; ties are broken by name.

    Outdated scores are too high, because capacity only decreases. For each resource that the shape requests, ``limits``
    contains the free amounts by position and the amount that must be free.
    """

    __slots__ = ("cpu", "heap", "limits", "memory")

    def __init__(
        self, scores: FloatArray, fits: BoolArray, limits: list[tuple[list[int], int]], cpu: int, memory: int
    ) -> None:
        self.limits = limits
        self.cpu = cpu
        self.memory = memory
        positions = np.flatnonzero(fits)
        self.heap: list[tuple[float, int]] = list(zip((-scores[positions]).tolist(), positions.tolist(), strict=True))
        heapify(self.heap)


_NOT_A_DESTINATION: Final = "node(s) were not underutilized, or would have been above targetThresholds"
_NOT_A_LASTING_DESTINATION: Final = (
    "node(s) were not underutilized, about to be removed, or would have been above targetThresholds"
)

_STUCK: Final = 16
"""Maximum number of refusals that are cached per pod shape. The oldest are dropped."""


class PodShape(NamedTuple):
    """Values that depend only on a pod's spec: its requests, the eligible nodes, and a key that equal specs share."""

    row: IntArray
    eligible: BoolArray
    likes: tuple[bytes, int]


class DestinationFinder:
    """Finds the target nodes for pods of overutilized nodes, one pod after the other.

    Args:
        context: the strategy's context.
        node_usage: the utilization of nodes.
        measured: the utilization targets of measured resources.
        room: the free capacity of the target nodes.
        unneeded: whether underutilized nodes were omitted because they are about to be removed.
    """

    def __init__(
        self,
        context: StrategyContext,
        node_usage: NodeUsage,
        measured: Sequence[UtilizationLevel],
        room: DestinationCapacity,
        *,
        unneeded: bool = False,
    ) -> None:
        self._otherwise = _NOT_A_LASTING_DESTINATION if unneeded else _NOT_A_DESTINATION
        self._context = context
        self._snapshot = context.snapshot
        self._placer = context.placer
        self._node_usage = node_usage
        self._measured = measured
        self._room = room
        self._shapes: dict[int, PodShape] = {}
        self._stuck: dict[tuple[bytes, int], list[tuple[Amounts, Refusal]]] = {}

    def find(self, pod: Pod) -> int | Refusal:
        """Return the slot of the target node with the most free capacity, or the reason why there is none."""
        context, room = self._context, self._room
        replacement = self._placer.replacement(pod)
        row, eligible, likes = self._shape_of(replacement)
        plain = self._placer.ignores_other_pods(replacement)
        uses = self._uses(pod)
        stuck = self._stuck.get(likes) if plain else None
        for least, known in stuck or ():
            if uses == least or all(one >= other for one, other in zip(uses, least, strict=True)):
                return known
        slots_below_targets = self._slots_below_targets(pod)
        objections = [slots for slots, _ in context.objections(pod)]
        excluded = objections[0] if len(objections) == 1 else {slot for slots in objections for slot in slots}
        also = _intersection(slots_below_targets, None if plain else self._suitable_neighbours(pod))
        also = _intersection(also, context.plan_state.endings.lasting(pod))
        slot = room.best(row, eligible, excluded, also)
        if slot is not None:
            return slot
        accepting = room.accepting(row)
        refusal = context.find_node(
            pod,
            PlacementPreference(
                accepting if slots_below_targets is None else accepting & slots_below_targets, self._otherwise
            ),
        )
        if not plain or not isinstance(refusal, Refusal) or refusal.reason == REPLACEMENT_LARGER:
            return refusal
        if room.best(row, eligible, (), slots_below_targets) is None:
            # The refusal applies to all pods of the shape with the same or higher usage, regardless of their node.
            self._stuck[likes] = [(uses, refusal), *(stuck or ())[: _STUCK - 1]]
        return refusal

    def take(self, pod: Pod, slot: int) -> None:
        """Reserve a slot's capacity for a moved pod."""
        self._room.take(slot, self._shape_of(self._placer.replacement(pod)).row)

    def _shape_of(self, asked: Pod) -> PodShape:
        """Return the shape of the pod that will need a node."""
        found = self._shapes.get(id(asked.spec))  # the snapshot and the placer keep the specs, so ids stay valid
        if found is None:
            row, eligible = self._snapshot.row(asked.spec), self._placer.eligible(asked)
            found = self._shapes[id(asked.spec)] = PodShape(row, eligible, (row.tobytes(), id(eligible)))
        return found

    def _uses(self, pod: Pod) -> Amounts:
        """Return the pod's measured usage of the resources that have a target; empty if nothing is measured."""
        if not self._node_usage.resources:
            return ()
        amounts = self._node_usage.of_pod(pod)
        return tuple(int(amounts[level.column]) for level in self._measured)

    def _slots_below_targets(self, pod: Pod) -> BoolArray | None:
        return (
            slots_below_targets(self._node_usage, self._measured, pod) if self._node_usage.resources else None
        )  # DestinationCapacity checks targets for requests

    def _suitable_neighbours(self, pod: Pod) -> BoolArray:
        """Return the slots on which no rule about other pods rejects the pod.

        The pod is not counted on its current node.
        """
        mark = self._snapshot.mark()
        try:
            return self._placer.passing_pod_filters(self._placer.displace(pod))
        finally:
            self._snapshot.undo(mark)


def slots_below_targets(node_usage: NodeUsage, measured: Sequence[UtilizationLevel], pod: Pod) -> BoolArray:
    """Return the slots that would not exceed a target if the pod's measured usage were added.

    The result is bool of shape (nodes.capacity,).
    """
    present, row = node_usage.current(), node_usage.of_pod(pod)
    mask: BoolArray = node_usage.known_nodes.copy()
    for level in measured:
        most = room_below_target(node_usage.table.allocatable[:, level.column], level.target)
        mask &= present[:, level.column] + row[level.column] <= most
    return mask


def _intersection(one: BoolArray | None, other: BoolArray | None) -> BoolArray | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other
