"""What underutilized nodes can still take, as columns: thousands of pods are placed on them, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.resources import CPU, MEMORY, BoolArray, IntArray
from trimtab.descheduling.utilization import FloatArray, Level, room_below_target


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
        self._have = {column: nodes.allocatable[slots, column].astype(np.float64) for column in (CPU, MEMORY)}
        self._free = {
            column: have - nodes.requested[slots, column].astype(np.float64) for column, have in self._have.items()
        }
        self._share_of_one = {
            column: np.divide(1.0, have, out=np.zeros_like(have), where=have > 0) for column, have in self._have.items()
        }
        self._score: FloatArray = np.zeros(len(slots), dtype=np.float64)
        for column, free in self._free.items():
            self._score += free * self._share_of_one[column]
        self._masks: dict[int, tuple[BoolArray, BoolArray | None]] = {}

    def best(self, row: IntArray, eligible: BoolArray, unwelcome: Iterable[int] = ()) -> int | None:
        """The slot with most room left that takes a pod, ties by name; as :meth:`Placer.choose` would choose.

        Args:
            row: the pod's requests.
            eligible: bool, shape (nodes.capacity,), as :meth:`Placer.eligible` gives it; kept by its id.
            unwelcome: slots to leave out.
        """
        fits = self._fits(row)
        mask = self._compressed(eligible)
        if mask is not None:
            fits &= mask
        for slot in unwelcome:
            position = self._position.get(int(slot))
            if position is not None:
                fits[position] = False
        # What the pod takes is not the same share of every node, so it counts.
        score = self._score - row[CPU] * self._share_of_one[CPU]
        score -= row[MEMORY] * self._share_of_one[MEMORY]
        score[~fits] = -np.inf
        position = int(score.argmax())
        return int(self.slots[position]) if fits[position] else None

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
