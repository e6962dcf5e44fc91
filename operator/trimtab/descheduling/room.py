"""What underutilized nodes can still take, as columns: thousands of pods are placed on them, one after the other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

import numpy as np

from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.resources import CPU, MEMORY, BoolArray, IntArray
from trimtab.descheduling.utilization import FloatArray, Level, room_below_target

_Likes = tuple[bytes, int]

Wanted = tuple[tuple[int, int], ...]
"""Columns with the amounts that a pod requests of them, none of them 0."""

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

    Mostly one node after the other is asked, and single numbers are read from lists several times as fast as from
    arrays. So lists are what counts, and arrays follow when they are asked for.

    Args:
        nodes: the node table.
        slots: int64; the nodes to fill, by name.
        levels: targets that no move may exceed.
    """

    def __init__(self, nodes: NodeTable, slots: IntArray, levels: Sequence[Level]) -> None:
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
        """Positions at which the arrays are behind the lists."""
        self._wants: dict[int, tuple[IntArray, Wanted, bytes]] = {}
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
        _, wanted, amounts = self._want(row)
        likes = (amounts, id(eligible))
        queue = self._queues.get(likes)
        if queue is None:
            asked = self._asked[likes] = self._asked.get(likes, 0) + 1
            if asked < _OFTEN or len(self._queues) >= _MOST_QUEUES:
                return self._scan(row, eligible, unwelcome, None)
            queue = self._queues[likes] = self._queue(row, wanted, eligible)
        return self._next(queue, unwelcome)

    def accepting(self, row: IntArray) -> BoolArray:
        """The slots with room for such a pod: bool, shape (nodes.capacity,)."""
        mask: BoolArray = np.zeros(self._capacity, dtype=np.bool_)
        mask[self.slots[self._fits(row)]] = True
        return mask

    def take(self, slot: int, row: IntArray) -> None:
        """Count a pod that was moved to a slot."""
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
        """What a row requests, and its bytes; pods of one spec have one row."""
        found = self._wants.get(id(row))
        if found is None:
            wanted = tuple((column, amount) for column, amount in enumerate(row.tolist()) if amount > 0)
            found = self._wants[id(row)] = (row, wanted, row.tobytes())  # the row is held: its id stays its own
        return found

    def _queue(self, row: IntArray, wanted: Wanted, eligible: BoolArray) -> _Queue:
        amounts = dict(wanted)
        limits = [(self._left[column], amount) for column, amount in wanted]
        scores, fits = self._scores(row), self._candidates(row, eligible)
        return _Queue(scores, fits, limits, amounts.get(CPU, 0), amounts.get(MEMORY, 0))

    def _refresh(self) -> None:
        """Bring the arrays up to the lists."""
        if self._stale:
            positions = list(self._stale)
            self._stale.clear()
            self._score_column[positions] = [self._score[position] for position in positions]
            self._left_columns[:, positions] = [[left[position] for position in positions] for left in self._left]

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

    def _next(self, queue: _Queue, unwelcome: Collection[int]) -> int | None:
        """Take the best node of a queue whose place in it is not out of date, and that takes the pod."""
        heap, limits, cpu, memory = queue.heap, queue.limits, queue.cpu, queue.memory
        passed = []
        found = None
        while heap:
            worst_first, position = heap[0]
            shares = self._score[position] - cpu * self._cpu_share[position] - memory * self._memory_share[position]
            score = float(round(shares * _GRAINS))
            if score != -worst_first:  # pods of other kinds came in the meantime; scores only fall
                heapreplace(heap, (-score, position))
                continue
            for left, amount in limits:
                if left[position] < amount:
                    heappop(heap)  # for good: room only shrinks
                    break
            else:
                if self._slots[position] not in unwelcome:
                    found = self._slots[position]
                    break
                passed.append(heappop(heap))
        for entry in passed:
            heappush(heap, entry)
        return found

    def _scores(self, row: IntArray) -> FloatArray:
        """What would be left free of cpu and memory, as shares: what the pod takes is not the same share everywhere.

        In whole grains, so that sums that differ by their rounding only are ties.
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
        (first, amount), *others = self._want(row)[1]  # the number of pods is always among them
        fits: BoolArray = self._left_columns[first] >= amount
        for column, amount in others:
            fits &= self._left_columns[column] >= amount
        return fits

    def _compressed(self, eligible: BoolArray) -> BoolArray | None:
        """The mask over these nodes only, ``None`` where it leaves none out."""
        found = self._masks.get(id(eligible))
        if found is None:
            mask = eligible[self.slots]
            found = self._masks[id(eligible)] = (eligible, None if mask.all() else mask)  # held: its id stays its own
        return found[1]


class _Queue:
    """Positions by score, the best first, ties by name; scores may be out of date, then they are too good.

    With what the pods want that it is for: what is left of each resource by position, and how much there must be.
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
