"""The fewest vertices that touch every edge of a small graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def minimum_vertex_cover(adjacency: Sequence[int], must: int = 0) -> int:
    """The smallest cover of a graph; among equally small ones the one that spares the last vertices.

    Exact, by branching on a vertex of highest degree: either it is in the cover, or all its neighbours are. That is
    exponential in the worst case, and a matter of at most hundreds of steps for up to sixteen vertices.

    Args:
        adjacency: the neighbours of each vertex, as bits; symmetric, without loops.
        must: vertices that are in the cover in any case, as bits.

    Returns:
        The cover as bits. Vertices come in the order of preference: of two covers of one size the lower number wins,
        which is the one whose last vertex comes earlier, then whose last but one does, and so on.
    """
    everything = (1 << len(adjacency)) - 1
    best = _Best()
    _branch(adjacency, everything & ~must, must, best)
    return best.cover


def bits(mask: int) -> Iterable[int]:
    """The positions of the bits that are set, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


class _Best:
    """The best cover found so far."""

    def __init__(self) -> None:
        self.cover = 0
        self.size: int | None = None

    def offer(self, cover: int) -> None:
        size = cover.bit_count()
        if self.size is None or (size, cover) < (self.size, self.cover):
            self.size, self.cover = size, cover


def _branch(adjacency: Sequence[int], left: int, cover: int, best: _Best) -> None:
    degrees = [(adjacency[vertex] & left).bit_count() if left >> vertex & 1 else 0 for vertex in range(len(adjacency))]
    most = max(degrees, default=0)
    if most <= 1:
        best.offer(cover | _of_single_edges(adjacency, left))
        return
    least = -(-sum(degrees) // (2 * most))  # no vertex covers more than `most` of the edges that are left
    if best.size is not None and cover.bit_count() + least > best.size:
        return
    vertex = degrees.index(most)
    without = left & ~(1 << vertex)
    _branch(adjacency, without, cover | 1 << vertex, best)
    neighbours = adjacency[vertex] & left
    _branch(adjacency, without & ~neighbours, cover | neighbours, best)


def _of_single_edges(adjacency: Sequence[int], left: int) -> int:
    """Of edges without a common vertex the earlier end each."""
    cover = 0
    for vertex in bits(left):
        if (adjacency[vertex] & left) >> vertex:  # the other end comes later
            cover |= 1 << vertex
    return cover
