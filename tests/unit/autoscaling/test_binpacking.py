"""Bin packing by counts equals packing pod after pod, and is close to the optimum."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.autoscaling.scale_up.binpacking import Packing, PodDemand, pack

PODS = 110
Size = tuple[int, int]


def ask(number: int, count: int, cpu: int, memory: int, **more: Any) -> PodDemand:
    return PodDemand(number, count, np.array([cpu, memory, 1], dtype=np.int64), **more)


def packed(
    asks: Iterable[PodDemand], room: Size, *, most: int = 10**6, pods: int = PODS, clashes: Any = None
) -> Packing:
    free = np.array([*room, pods], dtype=np.int64)
    return pack(list(asks), free, max_nodes=most, conflicts=clashes or {})


def first_fit_decreasing(sizes: Iterable[Size], room: Size) -> int:
    """Upstream's algorithm: pod after pod, largest share of cpu and memory first."""
    nodes: list[list[int]] = []
    order = sorted(sizes, key=lambda size: -(size[0] / room[0] + size[1] / room[1]))
    for cpu, memory in order:
        for left in nodes:
            if left[0] >= cpu and left[1] >= memory and left[2]:
                break
        else:
            left = [*room, PODS]
            nodes.append(left)
        left[0], left[1], left[2] = left[0] - cpu, left[1] - memory, left[2] - 1
    return len(nodes)


def fewest(sizes: list[Size], room: Size) -> int:
    """The minimum number of nodes, by exhaustive search."""
    order = sorted(sizes, reverse=True)
    best = first_fit_decreasing(sizes, room)
    least = max(-(-sum(size[part] for size in sizes) // room[part]) for part in (0, 1))

    def search(place: int, nodes: list[Size]) -> None:
        nonlocal best
        if best == least or len(nodes) >= best:
            return
        if place == len(order):
            best = len(nodes)
            return
        cpu, memory = order[place]
        tried = set()
        for index, left in enumerate(nodes):
            if left not in tried and left[0] >= cpu and left[1] >= memory:
                tried.add(left)
                search(place + 1, [*nodes[:index], (left[0] - cpu, left[1] - memory), *nodes[index + 1 :]])
        search(place + 1, [*nodes, (room[0] - cpu, room[1] - memory)])

    search(0, [])
    return best


@pytest.mark.parametrize(
    ("asks", "room", "nodes"),
    [
        ([ask(0, 50_000, 50, 100), ask(1, 1000, 95, 190)], (1000, 5000), 2595),
        ([ask(0, 10, 350, 1)], (1000, 1000), 5),
        ([ask(0, 50_000, 200, 200)], (10_000, 10_000), 1000),
        ([ask(0, 300, 0, 0)], (1000, 1000), 3),
        ([ask(0, 5, 1001, 1)], (1000, 1000), 0),
        ([ask(0, 8, 10, 10, max_per_node=2)], (1000, 1000), 4),
        ([], (1000, 1000), 0),
    ],
    ids=[
        "two classes",
        "remainder",
        "one class",
        "pods without requests",
        "too large",
        "two per node",
        "none",
    ],
)
def test_packing_uses_as_few_nodes_as_needed(asks: list[PodDemand], room: Size, nodes: int) -> None:
    assert packed(asks, room).nodes == nodes


def test_conflicting_classes_share_no_node() -> None:
    clashes = {0: frozenset({0, 1}), 1: frozenset({0})}
    made = packed([ask(0, 3, 10, 10), ask(1, 4, 10, 10)], (1000, 1000), clashes=clashes)
    found = sorted((tuple(content.pods.items()), content.nodes) for content in made.contents)
    assert found == [(((0, 1),), 3), (((1, 4),), 1)]
    assert made.nodes == 4


def test_pods_of_higher_priority_get_scarce_nodes() -> None:
    asks = [ask(0, 4, 500, 500, priority=1), ask(1, 3, 300, 300, priority=9)]
    assert packed(asks, (1000, 1000), most=1).placed[1] == 3


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 1000), st.integers(0, 1000)), max_size=6),
    st.integers(1, 40),
)
def test_contents_fit_and_add_up(classes: list[tuple[int, int, int]], most: int) -> None:
    asks = [ask(number, *each) for number, each in enumerate(classes)]
    made = packed(asks, (1000, 1000), most=most)
    assert made.nodes == sum(content.nodes for content in made.contents) <= most
    for content in made.contents:
        assert content.nodes > 0
        taken = sum((count * asks[number].row for number, count in content.pods.items()), start=np.zeros(3))
        assert (taken <= [1000, 1000, PODS]).all()
    for each in asks:
        total = sum(content.pods.get(each.number, 0) * content.nodes for content in made.contents)
        assert total == made.placed.get(each.number, 0) <= each.count
    if made.nodes < most:
        assert made.pods == sum(each.count for each in asks)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 1000), st.integers(1, 1000)), max_size=6))
def test_never_more_nodes_than_first_fit_decreasing(classes: list[tuple[int, int, int]]) -> None:
    asks = [ask(number, *each) for number, each in enumerate(classes)]
    sizes = [(cpu, memory) for count, cpu, memory in classes for _ in range(count)]
    assert packed(asks, (1000, 1000)).nodes <= first_fit_decreasing(sizes, (1000, 1000))


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 1000), st.integers(1, 1000)), max_size=6),
    st.randoms(use_true_random=False),
)
def test_result_does_not_depend_on_the_order_of_classes(
    classes: list[tuple[int, int, int]], chance: random.Random
) -> None:
    asks = [ask(number, *each) for number, each in enumerate(classes)]
    first = packed(asks, (1000, 1000))
    chance.shuffle(asks)
    assert packed(asks, (1000, 1000)) == first


def test_average_is_within_a_twentieth_of_the_optimum() -> None:
    """Compare small cases with an exact search; a single case may need one node more."""
    chance, ratios = random.Random(1), []
    for _ in range(300):
        room = (chance.choice((1000, 4000, 8000)), chance.choice((1000, 4000)))
        shares = (chance.choice((0.25, 0.5, 0.7)), chance.choice((0.25, 0.5, 0.7)))
        classes = [
            (
                chance.randint(1, 4),
                *(max(1, int(chance.random() * share * part)) for part, share in zip(room, shares, strict=True)),
            )
            for _ in range(chance.randint(1, 5))
        ]
        asks = [ask(number, *each) for number, each in enumerate(classes)]
        sizes = [(cpu, memory) for count, cpu, memory in classes for _ in range(count)]
        found, best = packed(asks, room).nodes, fewest(sizes, room)
        assert best <= found <= best + 1
        ratios.append(found / best)
    assert sum(ratios) / len(ratios) < 1.05
