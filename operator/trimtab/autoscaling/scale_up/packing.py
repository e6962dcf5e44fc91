"""Count arithmetic: how many equal new nodes take how many pods of which classes.

First-fit-decreasing, as upstream's estimator, but on counts. Nodes with equal contents are one entry with a number, and
pods of one class are put on all of them at once: the cost is that of the classes and of the kinds of contents, however
many pods and nodes there are. The result is that of trying pod after pod. Several orders of "decreasing" are tried and
the best is taken, so that it is never worse than upstream's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from trimtab.autoscaling.scale_up.classes import Clashes
from trimtab.cluster.resources import CPU, MEMORY, IntArray

_MANY: Final = np.iinfo(np.int64).max

Shares = npt.NDArray[np.float64]

_MEASURES: Final[tuple[Callable[[Shares], float], ...]] = (
    lambda share: float(share[CPU] + share[MEMORY]),
    lambda share: float(share.sum()),
    lambda share: float(share.max(initial=0.0)),
)
"""What "large" means of a pod's shares of a node: cpu and memory as upstream, all resources, the scarcest."""


class Ask(Struct, frozen=True, eq=False):
    """What a class asks of a node, as far as packing goes.

    Attributes:
        number: of the class.
        count: how many pods are left to place.
        row: int64, shape (resources,): what one pod takes, with 1 in the column of pods.
        priority: of the pods.
        most: how many a node may have; 0 for any number.
    """

    number: int
    count: int
    row: IntArray
    priority: int = 0
    most: int = 0


class Content(Struct, frozen=True):
    """New nodes with equal contents: pods by class number, and how many such nodes."""

    pods: Mapping[int, int]
    nodes: int


class Packing(Struct, frozen=True):
    """New nodes of one kind with what would be on them, in the order in which they were opened.

    Attributes:
        contents: equal nodes together.
        nodes: how many there are in all.
        placed: pods by class number.
    """

    contents: tuple[Content, ...] = ()
    nodes: int = 0
    placed: Mapping[int, int] = {}

    @property
    def pods(self) -> int:
        """How many pods are placed in all."""
        return sum(self.placed.values())


def pack(asks: Sequence[Ask], free: IntArray, *, most: int, clashes: Clashes) -> Packing:
    """Pack pods onto new nodes.

    Args:
        asks: of the classes that such a node may take; in any order, which has no say.
        free: int64, shape (resources,): what a new node has left once all that comes with it is there.
        most: how many nodes there may be.
        clashes: which classes must not share a node.

    Returns:
        Of several packings the one with most pods, then with the fewest nodes. Where not all pods find a place because
        there may be no more nodes, the most important come first.
    """
    wanted = sum(ask.count for ask in asks)
    made = [_pack(order, free, most, clashes) for order in _orders(asks, free)]
    best = max(made, key=lambda packing: (packing.pods, -packing.nodes), default=Packing())
    if best.pods == wanted or best.nodes < most or len({ask.priority for ask in asks}) < 2:
        return best
    first = _orders(asks, free)[0]
    return _pack(sorted(first, key=lambda ask: -ask.priority), free, most, clashes)


def _orders(asks: Sequence[Ask], free: IntArray) -> list[list[Ask]]:
    """Classes the largest first: by cpu and memory together as upstream, by all resources, and by the scarcest."""
    room = np.maximum(free, 1).astype(np.float64)
    shares = [(ask, ask.row / room) for ask in sorted(asks, key=lambda ask: ask.number)]
    found = []
    for measure in _MEASURES:
        order = [ask for ask, share in sorted(shares, key=lambda each: -measure(each[1]))]
        if order not in found:
            found.append(order)
    return found


def _pack(order: Collection[Ask], free: IntArray, most: int, clashes: Clashes) -> Packing:
    opened = _Opened(free, most, clashes)
    for ask in order:
        left = opened.fill(ask)
        if left:
            opened.open(ask, left)
    return opened.packing()


class _Opened:
    """The nodes opened so far; equal ones are one entry."""

    def __init__(self, free: IntArray, most: int, clashes: Clashes) -> None:
        self._new = free
        self._left = most
        self._clashes = clashes
        self._free: IntArray = np.zeros((16, len(free)), dtype=np.int64)
        self._pods: list[dict[int, int]] = []
        self._nodes: list[int] = []

    def fill(self, ask: Ask) -> int:
        """Put pods where they fit on open nodes, the first opened first; returns how many are left."""
        left, there = ask.count, len(self._pods)
        if not there:
            return left
        fits = _times(self._free[:there], ask.row)
        for place in np.flatnonzero(fits).tolist():
            fit = self._limited(ask, int(fits[place]), self._pods[place])
            if fit:
                left -= self._put(place, ask, left, fit)
            if not left:
                break
        return left

    def open(self, ask: Ask, left: int) -> None:
        """Open as many nodes as pods of a class need, or as many as there may be."""
        if not self._left:
            return
        fit = self._limited(ask, int(_times(self._new[None, :], ask.row)[0]), {})
        if not fit:
            return
        nodes = min(-(-left // fit), self._left)
        self._left -= nodes
        self._append(self._new, {}, nodes)
        self._put(len(self._pods) - 1, ask, left, fit)

    def packing(self) -> Packing:
        """What came of it."""
        placed: dict[int, int] = {}
        for pods, nodes in zip(self._pods, self._nodes, strict=True):
            for number, count in pods.items():
                placed[number] = placed.get(number, 0) + count * nodes
        contents = tuple(Content(pods, nodes) for pods, nodes in zip(self._pods, self._nodes, strict=True))
        return Packing(contents, sum(self._nodes), placed)

    def _limited(self, ask: Ask, fit: int, pods: Mapping[int, int]) -> int:
        against = self._clashes.get(ask.number)
        if against:
            if not against.isdisjoint(pods):
                return 0
            if ask.number in against:
                fit = min(fit, 1)
        return min(fit, ask.most) if ask.most else fit

    def _put(self, place: int, ask: Ask, left: int, fit: int) -> int:
        """Put up to ``left`` pods on the nodes of an entry, ``fit`` each, the last one fewer; returns how many."""
        nodes, pods = self._nodes[place], self._pods[place]
        if nodes == 1:  # nothing to part, as with most entries where classes are many
            count = min(left, fit)
            self._free[place] -= count * ask.row
            pods[ask.number] = count
            return count
        free = self._free[place].copy()
        full = min(nodes, left // fit)
        rest = left - full * fit if full < nodes else 0
        parts = [(count, size) for count, size in ((fit, full), (rest, 1)) if count and size]
        for position, (count, size) in enumerate(parts):
            content = {**pods, ask.number: count}
            if position == 0:
                self._free[place], self._pods[place], self._nodes[place] = free - count * ask.row, content, size
            else:
                self._append(free - count * ask.row, content, size)
            nodes -= size
        if nodes:
            self._append(free, pods, nodes)
        return full * fit + rest

    def _append(self, free: IntArray, pods: dict[int, int], nodes: int) -> None:
        place = len(self._pods)
        if place == len(self._free):
            self._free = np.pad(self._free, ((0, place), (0, 0)))
        self._free[place] = free
        self._pods.append(pods)
        self._nodes.append(nodes)


def _times(free: IntArray, row: IntArray) -> IntArray:
    """How often a row fits into each of several: int64, shape (len(free),)."""
    wanted = row > 0
    if not wanted.any():
        return np.full(len(free), _MANY, dtype=np.int64)
    found: IntArray = np.maximum((free[:, wanted] // row[wanted]).min(axis=1), 0)
    return found
