"""Settings of policies and of the ClusterAutoscaler that work against each other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.golden import Golden
from tests.unit.descheduling.planning import DUPLICATES, deviation, packing, policy, utilization
from trimtab.api.cluster_autoscaler import ClusterAutoscaler
from trimtab.disruption.settings_conflicts import (
    autoscaler_condition,
    policy_condition,
    settings_conflict,
    settings_conflicts,
)


def autoscaler(**scale_down: Any) -> ClusterAutoscaler:
    spec = {"scaleDown": {"enabled": True, **scale_down}}
    return msgspec.convert({"metadata": {"name": "default"}, "spec": spec}, ClusterAutoscaler)


CPU_50 = utilization({"cpu": 20}, {"cpu": 50})
ABSENT = msgspec.convert({"metadata": {"name": "default"}, "spec": {}}, ClusterAutoscaler)


@pytest.mark.parametrize(
    ("strategies", "spec", "other", "conflict"),
    [
        pytest.param(CPU_50, {}, autoscaler(), True, id="the defaults of both: 50% and 0.5"),
        pytest.param(CPU_50, {}, ABSENT, True, id="scaleDown is enabled where it is left out"),
        pytest.param(CPU_50, {}, autoscaler(enabled=False), False, id="scaleDown is off"),
        pytest.param(CPU_50, {}, autoscaler(utilizationThreshold="0.49"), False, id="the target is above"),
        pytest.param(utilization({"cpu": 20}, {"cpu": 80}), {}, autoscaler(), False, id="a high target"),
        pytest.param(
            utilization({"cpu": 20}, {"cpu": 80, "memory": 40}), {}, autoscaler(), True, id="one of two is low"
        ),
        pytest.param(utilization({"pods": 5}, {"pods": 10}), {}, autoscaler(), False, id="scaleDown counts no pods"),
        pytest.param(deviation({"cpu": 10}, {"cpu": 10}), {}, autoscaler(), True, id="deviations from the mean"),
        pytest.param(CPU_50, {"suspend": True}, autoscaler(), False, id="suspended"),
        pytest.param(CPU_50, {"mode": "Act"}, autoscaler(), True, id="in any mode"),
        pytest.param(packing({"cpu": 20}), {}, autoscaler(), False, id="HighNodeUtilization empties nodes as well"),
        pytest.param({DUPLICATES: {}}, {}, autoscaler(), False, id="any other strategy"),
        pytest.param(
            {"LowNodeUtilization": {**CPU_50["LowNodeUtilization"], "enabled": False}},
            {},
            autoscaler(),
            False,
            id="off",
        ),
        pytest.param(
            {
                "LowNodeUtilization": {
                    "params": {
                        **CPU_50["LowNodeUtilization"]["params"],
                        "metricsUtilization": {"source": "KubernetesMetrics"},
                    }
                }
            },
            {},
            autoscaler(),
            False,
            id="real use cannot be compared with requests",
        ),
    ],
)
def test_conflicting_settings_are_detected(
    strategies: dict[str, Any], spec: dict[str, Any], other: ClusterAutoscaler, conflict: bool
) -> None:
    assert (settings_conflict(policy(strategies, **spec), other) is not None) is conflict


def test_conflict_conditions_name_the_other_object(golden: Golden) -> None:
    found = settings_conflicts([policy(CPU_50, "b"), policy(CPU_50, "a"), policy({DUPLICATES: {}}, "c")], autoscaler())
    assert [each.policy for each in found] == ["a", "b"]
    of_policy, of_autoscaler = policy_condition(found, "a", "default"), autoscaler_condition(found)
    for each in (of_policy, of_autoscaler):
        assert (each.type, each.status, each.reason) == ("Conflicting", True, "SettingsConflict")
    golden(of_policy.message, "policy")
    golden(of_autoscaler.message, "autoscaler")


def test_conditions_without_conflict() -> None:
    for each in (policy_condition((), "c", "default"), policy_condition((), "c", ""), autoscaler_condition(())):
        assert (each.type, each.status, each.reason) == ("Conflicting", False, "NoConflict")


@given(st.integers(0, 100), st.integers(0, 100))
def test_a_conflict_ends_once_the_target_is_above_the_threshold(target: int, threshold: int) -> None:
    other = autoscaler(utilizationThreshold=f"{threshold / 100:.2f}")
    found = settings_conflict(policy(utilization({"cpu": 0}, {"cpu": target})), other)
    assert (found is not None) is (target <= threshold)


def test_without_an_autoscaler_there_is_no_conflict() -> None:
    assert settings_conflicts([policy(CPU_50)], None) == ()
