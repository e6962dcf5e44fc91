"""The fewest vertices that touch every edge, against trying all sets."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.descheduling.vertex_cover import bits, minimum_vertex_cover


def graph(number: int, edges: list[tuple[int, int]]) -> list[int]:
    adjacency = [0] * number
    for one, other in edges:
        adjacency[one] |= 1 << other
        adjacency[other] |= 1 << one
    return adjacency


def by_trying(number: int, edges: list[tuple[int, int]], must: int) -> int:
    """The lowest number among the smallest covers that hold ``must``."""
    for size in range(number + 1):
        covers = [sum(1 << vertex for vertex in chosen) for chosen in combinations(range(number), size)]
        good = [
            cover
            for cover in covers
            if cover & must == must and all(cover >> one & 1 or cover >> other & 1 for one, other in edges)
        ]
        if good:
            return min(good)
    raise AssertionError("all vertices are a cover")


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]], int]:
    number = draw(st.integers(0, 8))
    pairs = list(combinations(range(number), 2))
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return number, edges, draw(st.integers(0, (1 << number) - 1)) if draw(st.booleans()) else 0


@given(graphs())
def test_it_is_the_best_of_all_sets(drawn):
    number, edges, must = drawn
    assert minimum_vertex_cover(graph(number, edges), must) == by_trying(number, edges, must)


@pytest.mark.parametrize(
    ("number", "edges", "expected"),
    [
        pytest.param(0, [], [], id="nothing"),
        pytest.param(3, [], [], id="no edges"),
        pytest.param(2, [(0, 1)], [0], id="one edge: the first"),
        pytest.param(4, [(0, 3), (1, 3), (2, 3)], [3], id="a star: its middle"),
        pytest.param(3, [(0, 1), (1, 2), (0, 2)], [0, 1], id="a triangle: all but the last"),
        pytest.param(4, [(0, 1), (1, 2), (2, 3)], [0, 2], id="a path"),
        pytest.param(16, list(combinations(range(16), 2)), list(range(15)), id="sixteen, each with each"),
        pytest.param(16, [(i, i + 8) for i in range(8)], list(range(8)), id="eight pairs"),
    ],
)
def test_known_graphs(number, edges, expected):
    assert list(bits(minimum_vertex_cover(graph(number, edges)))) == expected
