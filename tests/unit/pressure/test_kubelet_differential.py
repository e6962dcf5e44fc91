"""The plans for random timelines are those of the kubelet's eviction manager, of which the outcomes are stored.

``make differential-kubelet`` runs the manager itself, on any number of timelines.
"""

from __future__ import annotations

import pytest

from tests.kubelet_differential.comparison import compare, empty_comparison
from tests.kubelet_differential.recorded import RECORDED, recorded
from tests.kubelet_differential.timelines import random_timeline


def test_plans_are_those_of_the_kubelet() -> None:
    found = empty_comparison()
    outcomes = recorded()
    assert len(outcomes) == RECORDED
    for seed, outcome in enumerate(outcomes):
        compare(random_timeline(seed), outcome, found)
    assert found.unexplained == []
    assert found.readings == 60 * RECORDED
    assert found.evictions > 900
    assert found.named.keys() == {"ConditionFromNextReading", "FreesNothing", "SeveralDue", "WaitsForStats"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("evicted", "pod-99", id="another pod"),
        pytest.param("evicted", "", id="no eviction"),
        pytest.param("grace", 7, id="another grace period"),
        pytest.param("conditions", ["PIDPressure", "MemoryPressure", "DiskPressure"], id="other conditions"),
        pytest.param("conditions", [], id="no conditions"),
    ],
)
def test_comparison_finds_differences(key: str, value: object) -> None:
    seed, outcomes = next((seed, each) for seed, each in enumerate(recorded()) if each[20]["evicted"])
    changed = [{**each, key: value} if number == 20 else each for number, each in enumerate(outcomes)]
    found = empty_comparison()
    compare(random_timeline(seed), changed, found)
    assert {each.partition(":")[0] for each in found.unexplained} == {"reading 20"}
