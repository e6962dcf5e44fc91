"""What is left on the nodes that stay, as columns: tens of thousands of pods find their places on them."""

from __future__ import annotations

import numpy as np

from trimtab.autoscaling.scale_down.kinds import Likes
from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.resources import BoolArray, IntArray

Shares = list[tuple[int, int]]
"""Slots, and how many pods each takes."""


class Room:
    """The nodes in the order in which they are filled, and what is left of each.

    Beside the node table, for a place found here costs no change of the snapshot: that is made only once somebody has
    to look at pods and not at amounts. Positions are places in the order.

    Args:
        nodes: the node table; read now.
        order: int64: the slots to fill, the first first.
    """

    def __init__(self, nodes: NodeTable, order: IntArray) -> None:
        self.order = order
        self._capacity = nodes.capacity
        self.position = {slot: position for position, slot in enumerate(order.tolist())}
        self._free: IntArray = np.ascontiguousarray((nodes.allocatable[order] - nodes.requested[order]).T)
        self._open: BoolArray = np.ones(len(order), dtype=np.bool_)
        self._eligible: dict[int, tuple[Likes, BoolArray]] = {}

    def free_of(self, column: int) -> IntArray:
        """What is left of a resource: int64, shape (capacity,); nothing on nodes that are not in the order."""
        left: IntArray = np.zeros(self._capacity, dtype=np.int64)
        left[self.order] = self._free[column]
        return left

    def close(self, slot: int) -> None:
        """Take a node out: it is to go, or is no place for pods."""
        position = self.position.get(slot)
        if position is not None:
            self._open[position] = False

    def reopen(self, slot: int) -> None:
        """Undo :meth:`close`."""
        position = self.position.get(slot)
        if position is not None:
            self._open[position] = True

    def find(self, likes: Likes, count: int) -> Shares:
        """Places for pods, first fit in the order; fewer than ``count`` in all where there are no more."""
        times = np.where(self._open & self._suits(likes), count, 0)
        for column, amount in likes.wanted:
            left = self._free[column]
            np.minimum(times, left if amount == 1 else left // amount, out=times)
        at = np.flatnonzero(times > 0)
        total = np.cumsum(times[at])
        at = at[: int(np.searchsorted(total, count)) + 1]
        shares = []
        for position in at.tolist():
            number = min(count, int(times[position]))
            shares.append((int(self.order[position]), number))
            count -= number
        return shares

    def first(self, among: BoolArray) -> int | None:
        """The first slot of the order that is open and in ``among``: bool, shape (capacity,)."""
        at = np.flatnonzero(self._open & among[self.order])
        return int(self.order[at[0]]) if len(at) else None

    def take(self, slot: int, wanted: tuple[tuple[int, int], ...], count: int) -> None:
        """Count pods in (or, below 0, out)."""
        position = self.position[slot]
        for column, amount in wanted:
            self._free[column, position] -= amount * count

    def is_open(self) -> BoolArray:
        """Which positions may take pods."""
        return self._open

    def _suits(self, likes: Likes) -> BoolArray:
        found = self._eligible.get(likes.number)
        if found is None:
            found = self._eligible[likes.number] = (likes, likes.eligible[self.order])
        return found[1]
