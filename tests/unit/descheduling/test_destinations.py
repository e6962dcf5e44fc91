"""The underutilized node with most room left."""

from __future__ import annotations

import random
from fractions import Fraction

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import node, pod
from tests.fixtures.golden import Golden
from trimtab.api.strategies import UtilizationThresholds
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planning.destinations import DestinationCapacity
from trimtab.descheduling.planning.node_usage import (
    percent,
    percent_above_targets,
    target_excesses,
    underutilized,
    utilization_levels,
    utilization_percent,
)
from trimtab.placement.placer import Placer


def thresholds(low: dict[str, float], high: dict[str, float]) -> UtilizationThresholds:
    return UtilizationThresholds(thresholds=low, target_thresholds=high)


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 60))
def test_best_target_has_most_free_capacity(seed, number, size):
    chance = random.Random(seed)
    objects = [
        node(f"n{i:02}").allocatable(cpu=str(chance.choice([4, 8, 6])), pods=chance.choice([6, 20]))
        for i in range(number)
    ]
    snapshot = Snapshot([item.build() for item in objects])
    levels = utilization_levels(
        thresholds({"cpu": 20}, {"cpu": chance.choice([33, 60.5]), "memory": 70}), snapshot.nodes
    )
    room = DestinationCapacity(snapshot.nodes, snapshot.nodes.order(), levels)
    placer = Placer(snapshot)
    kinds = [
        pod("x").cpu(f"{chance.choice([100, 300, 1000])}m").memory(f"{chance.choice([100, 2000])}Mi").build().spec
        for _ in range(3)
    ]
    for index in range(size):
        spec = chance.choice(kinds)
        one = pod(f"p{index}").build()
        one = msgspec.structs.replace(one, spec=spec)
        worse_slots = [slot for slot in range(number) if chance.random() < 0.2]
        fits = placer.feasible(one)
        fits[worse_slots] = False
        for slot in np.flatnonzero(fits):
            want = snapshot.nodes.requested[slot] + snapshot.row(spec)
            fits[slot] = not target_excesses(snapshot.nodes.allocatable[slot], want, levels)
        expected = min(
            np.flatnonzero(fits).tolist(), key=lambda slot: (-left(snapshot, slot, spec), slot), default=None
        )
        found = room.best(snapshot.row(spec), placer.eligible(one), worse_slots)
        assert found == expected
        if found is not None:
            placer.reserve(one, found)
            room.take(found, snapshot.row(spec))


def left(snapshot, slot, spec):
    """What would be free of cpu and memory together, as exact shares."""
    have = snapshot.nodes.allocatable[slot]
    want = snapshot.nodes.requested[slot] + snapshot.row(spec)
    return sum(Fraction(int(have[column] - want[column]), int(have[column])) for column in (0, 1) if have[column])


def test_shares_thresholds_and_targets(golden: Golden):
    objects = [node("n1"), node("n2"), node("n3"), pod("a").on("n1").cpu("3"), pod("b").on("n2").cpu("800m")]
    snapshot = Snapshot([item.build() for item in objects])
    table = snapshot.nodes
    levels = utilization_levels(thresholds({"cpu": 20}, {"cpu": 50, "example.com/none": 1}), table)
    assert [level.resource for level in levels] == ["cpu"]
    slots = table.order()
    assert utilization_percent(table, levels[0])[slots].tolist() == [75.0, 20.0, 0.0]
    assert underutilized(table, levels)[slots].tolist() == [False, True, True]
    assert percent_above_targets(table, levels)[slots].tolist() == [25.0, 0.0, 0.0]
    [excess] = target_excesses(table.allocatable[slots[0]], table.requested[slots[0]], levels)
    assert (excess.share, excess.amount) == (75.0, 1000)
    golden(str(excess))


def test_excess_amount_resolves_overutilization():
    snapshot = Snapshot([node("n1").allocatable(cpu="3").build(), pod("a").on("n1").cpu("1000m").build()])
    levels = utilization_levels(thresholds({"cpu": 1}, {"cpu": 33}), snapshot.nodes)
    have, want = snapshot.nodes.allocatable[0], snapshot.nodes.requested[0].copy()
    [excess] = target_excesses(have, want, levels)
    assert excess.amount == 10
    want[0] -= excess.amount - 1
    assert target_excesses(have, want, levels)
    want[0] -= 1
    assert not target_excesses(have, want, levels)


@pytest.mark.parametrize(
    ("value", "other", "expected"),
    [
        (50.0, None, "50"),
        (33.5, None, "33.5"),
        (92.3, 50.0, "92"),
        (50.4, 50.0, "50.4"),
        (50.001, 50.0, "50.001"),
        (100.0, 50.0, "100"),
        (0.0, None, "0"),
    ],
)
def test_percentages_have_distinguishing_digits(value, other, expected):
    assert percent(value, other) == expected
