"""What underutilized nodes can still take, as columns: thousands of pods are placed on them, one after the other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np

from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.resources import CPU, MEMORY, BoolArray, IntArray
from trimtab.descheduling.utilization import FloatArray, Level, room_below_target

_Likes = tuple[bytes, int]

_OFTEN: Final = 8
"""From so many pods of one kind on a queue of nodes pays for its making."""

_GRAINS: Final = 2.0**30
"""Of a whole node: a power of two, so that even shares of memory are whole numbers of grains, far from a half."""

_MANY: Final = 64
"""With so many unwelcome slots a queue would mostly be passed by."""

_MOST_QUEUES: Final = 32
"""A queue takes some 400 KiB at 5,000 nodes; a cluster may have thousands of kinds of pods."""


class Room:
    """The nodes that pods are moved to, by name, and what is left of each below allocatable and targets.

    Kept beside the node table and not read from it, because a pass over three thousand nodes must take microseconds:
    only these nodes, a row a resource, and the score of each at hand. It only shrinks, so what has once failed for a
    pod without regard to others fails for all its likes from then on.

    Args:
        nodes: the node table.
        slots: int64; the nodes to fill, by name.
        levels: targets that no move may exceed.
    """

    def __init__(self, nodes: NodeTable, slots: IntArray, levels: Sequence[Level]) -> None:
        self.slots = slots
        self._capacity = nodes.capacity
        self._position = {slot: position for position, slot in enumerate(slots.tolist())}
        limits = nodes.allocatable[slots].T.copy()
        for level in levels:
            below = room_below_target(limits[level.column], level.target)
            limits[level.column] = np.minimum(limits[level.column], below)
        self._left: IntArray = limits - nodes.requested[slots].T
        self._share_of_one: dict[int, FloatArray] = {}
        self._free: dict[int, FloatArray] = {}
        self._score: FloatArray = np.zeros(len(slots), dtype=np.float64)
        for column in (CPU, MEMORY):
            have = nodes.allocatable[slots, column].astype(np.float64)
            share = self._share_of_one[column] = np.divide(1.0, have, out=np.zeros_like(have), where=have > 0)
            free = self._free[column] = have - nodes.requested[slots, column]
            self._score += free * share
        self._masks: dict[int, tuple[BoolArray, BoolArray | None]] = {}
        self._asked: dict[_Likes, int] = {}
        self._queues: dict[_Likes, _Queue] = {}

    def best(
        self, row: IntArray, eligible: BoolArray, unwelcome: Collection[int] = (), also: BoolArray | None = None
    ) -> int | None:
        """The slot with most room left that takes a pod, ties by name: as LeastAllocated, but without its rounding.

        Args:
            row: the pod's requests.
            eligible: bool, shape (nodes.capacity,), as :meth:`Placer.eligible` gives it; known by its id.
            unwelcome: slots to leave out.
            also: bool, shape (nodes.capacity,); what else must hold, for this pod alone.
        """
        if also is not None or len(unwelcome) > _MANY:
            return self._scan(row, eligible, unwelcome, also)
        likes = (row.tobytes(), id(eligible))
        queue = self._queues.get(likes)
        if queue is None:
            asked = self._asked[likes] = self._asked.get(likes, 0) + 1
            if asked < _OFTEN or len(self._queues) >= _MOST_QUEUES:
                return self._scan(row, eligible, unwelcome, None)
            queue = self._queues[likes] = _Queue(self._scores(row), self._candidates(row, eligible))
        return self._next(queue, row, unwelcome)

    def accepting(self, row: IntArray) -> BoolArray:
        """The slots with room for such a pod: bool, shape (nodes.capacity,)."""
        mask: BoolArray = np.zeros(self._capacity, dtype=np.bool_)
        mask[self.slots[self._fits(row)]] = True
        return mask

    def take(self, slot: int, row: IntArray) -> None:
        """Count a pod that was moved to a slot."""
        position = self._position[slot]
        self._left[: len(row), position] -= row
        score = 0.0
        for column, free in self._free.items():
            free[position] -= row[column]
            score += float(free[position] * self._share_of_one[column][position])
        self._score[position] = score

    def _scan(
        self, row: IntArray, eligible: BoolArray, unwelcome: Collection[int], also: BoolArray | None
    ) -> int | None:
        """Judge all nodes at once."""
        fits = self._candidates(row, eligible)
        if also is not None:
            fits &= also[self.slots]
        positions = [position for slot in unwelcome if (position := self._position.get(slot)) is not None]
        if positions:
            fits[positions] = False
        position = int(np.where(fits, self._scores(row), -np.inf).argmax())
        return int(self.slots[position]) if fits[position] else None

    def _next(self, queue: _Queue, row: IntArray, unwelcome: Collection[int]) -> int | None:
        """Take the best node of a queue whose place in it is not out of date, and that takes the pod."""
        wanted = [(self._left[column], row[column]) for column in np.flatnonzero(row > 0)]
        passed = []
        found = None
        while queue.heap:
            worst_first, position = queue.heap[0]
            score = self._score_of(row, position)
            if score != -worst_first:  # pods of other kinds came in the meantime; scores only fall
                heappop(queue.heap)
                heappush(queue.heap, (-score, position))
            elif any(left[position] < amount for left, amount in wanted):
                heappop(queue.heap)  # for good: room only shrinks
            elif int(self.slots[position]) in unwelcome:
                passed.append(heappop(queue.heap))
            else:
                found = int(self.slots[position])
                break
        for entry in passed:
            heappush(queue.heap, entry)
        return found

    def _scores(self, row: IntArray) -> FloatArray:
        """What would be left free of cpu and memory, as shares: what the pod takes is not the same share everywhere.

        In whole grains, so that sums that differ by their rounding only are ties.
        """
        shares = self._score - row[CPU] * self._share_of_one[CPU] - row[MEMORY] * self._share_of_one[MEMORY]
        grains: FloatArray = np.rint(shares * _GRAINS)
        return grains

    def _score_of(self, row: IntArray, position: int) -> float:
        """One of :meth:`_scores`."""
        cpu, memory = self._share_of_one[CPU][position], self._share_of_one[MEMORY][position]
        return float(np.rint((self._score[position] - row[CPU] * cpu - row[MEMORY] * memory) * _GRAINS))

    def _candidates(self, row: IntArray, eligible: BoolArray) -> BoolArray:
        fits = self._fits(row)
        mask = self._compressed(eligible)
        return fits if mask is None else fits & mask

    def _fits(self, row: IntArray) -> BoolArray:
        wanted = np.flatnonzero(row > 0)  # the number of pods is always among them
        fits: BoolArray = self._left[wanted[0]] >= row[wanted[0]]
        for column in wanted[1:]:
            fits &= self._left[column] >= row[column]
        return fits

    def _compressed(self, eligible: BoolArray) -> BoolArray | None:
        """The mask over these nodes only, ``None`` where it leaves none out."""
        found = self._masks.get(id(eligible))
        if found is None:
            mask = eligible[self.slots]
            found = self._masks[id(eligible)] = (eligible, None if mask.all() else mask)  # held: its id stays its own
        return found[1]


class _Queue:
    """Positions by score, the best first, ties by name; scores may be out of date, then they are too good."""

    __slots__ = ("heap",)

    def __init__(self, scores: FloatArray, fits: BoolArray) -> None:
        positions = np.flatnonzero(fits)
        self.heap: list[tuple[float, int]] = list(zip((-scores[positions]).tolist(), positions.tolist(), strict=True))
        heapify(self.heap)
