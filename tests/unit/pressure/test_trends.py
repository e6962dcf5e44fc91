"""Trends of signals, and the time until they reach a threshold."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pressure.nodes import MEMORY, START, measured
from trimtab.api.node_pressure_policy import NodePressurePolicySpec
from trimtab.pressure.thresholds import thresholds_of
from trimtab.pressure.trends import (
    MAX_VALUES,
    Trend,
    rough_seconds_to,
    seconds_to_thresholds,
    trend_of,
    values_of,
)


@pytest.mark.parametrize(
    ("values", "threshold", "expected"),
    [
        pytest.param([], 0, None, id="nothing"),
        pytest.param([(0.0, 100), (10.0, 50)], 0, None, id="two values show no trend"),
        pytest.param([(0.0, 100)] * 5, 0, None, id="one value that was read often"),
        pytest.param([(0.0, 100), (10.0, 90), (20.0, 80)], 20, Trend(-1.0, 60.0), id="falling"),
        pytest.param([(20.0, 80), (0.0, 100), (10.0, 90)], 20, Trend(-1.0, 60.0), id="in any order"),
        pytest.param([(0.0, 80), (10.0, 90), (20.0, 100)], 20, Trend(1.0, None), id="rising"),
        pytest.param([(0.0, 80), (10.0, 80), (20.0, 80)], 20, Trend(0.0, None), id="constant"),
        pytest.param([(0.0, 100), (10.0, 90), (20.0, 80)], 90, Trend(-1.0, 0.0), id="already below"),
        pytest.param([(0.0, 100), (10.0, 90), (20.0, 80)], 80, Trend(-1.0, 0.0), id="at the threshold and falling"),
        pytest.param(
            [(0.0, 100), (10.0, 90), (20.0, 5), (30.0, 70), (40.0, 60)], 20, Trend(-1.0, 40.0), id="an outlier"
        ),
        pytest.param(
            [(10.0 * each, 1000) for each in range(100)]
            + [(1000.0 + 10 * each, 990 - 10 * each) for each in range(12)],
            0,
            Trend(-1.0, 880.0),
            id="only recent values",
        ),
    ],
)
def test_trend(values: list[tuple[float, int]], threshold: int, expected: Trend | None) -> None:
    assert trend_of(values, threshold) == expected


@given(
    st.lists(st.tuples(st.floats(0, 1e10), st.integers(0, 1 << 50)), max_size=MAX_VALUES),
    st.integers(0, 1 << 50),
)
def test_time_to_the_threshold_is_never_negative(values: list[tuple[float, int]], threshold: int) -> None:
    found = trend_of(values, threshold)
    assert found is None or found.seconds_to is None or found.seconds_to >= 0.0


def test_values_have_the_times_of_the_kubelet() -> None:
    """A value that is read twice is one value."""
    history = [
        measured({MEMORY: "3Gi"}, now=START, at=START - 4),
        measured({MEMORY: "3Gi"}, now=START + 10, at=START - 4),
        measured({MEMORY: "2Gi"}, now=START + 20, at=START + 11),
        measured({}, now=START + 30),
    ]
    gibi = 1 << 30
    assert dict(values_of(MEMORY, history)) == {START - 4: 3 * gibi, START + 11: 2 * gibi}


def test_values_without_times_have_those_of_the_readings() -> None:
    history = [measured({MEMORY: "3Gi"}, now=START + each, timeless=True) for each in (0, 10)]
    assert [at for at, _ in values_of(MEMORY, history)] == [START, START + 10]


@pytest.mark.parametrize(
    ("available", "expected", "rough"),
    [
        pytest.param([4000, 3900, 3800, 3700], {"hard": 270, "soft": 170}, 170, id="falling"),
        pytest.param([4000, 3900], {}, 190, id="two values show no trend"),
        pytest.param([3700, 3800, 3900, 4000], {}, math.inf, id="rising"),
        pytest.param([2200, 2100, 2000, 1900], {"hard": 90}, 90, id="the soft threshold is met"),
        pytest.param([4000, 3999, 3998, 3997], {}, 19970, id="later"),
    ],
)
def test_time_until_thresholds_are_met(available: list[int], expected: dict[str, int], rough: float) -> None:
    spec = NodePressurePolicySpec(
        eviction_hard={MEMORY: "1000Mi"},
        eviction_soft={MEMORY: "2000Mi"},
        eviction_soft_grace_period={MEMORY: "1m"},
    )
    history = [measured({MEMORY: f"{each}Mi"}, now=START + 10 * number) for number, each in enumerate(available)]
    found = seconds_to_thresholds(thresholds_of(spec), history, within=600)
    assert {"hard" if each.hard else "soft": round(seconds) for each, seconds in found.items()} == expected
    assert rough_seconds_to(thresholds_of(spec), history[0], history[-1]) == pytest.approx(rough)
