"""The comparison with upstream's decoder finds fields that differ."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.descheduler_differential.decoding import Decoded, compare
from tests.fixtures.golden import Golden
from trimtab.api.strategies.placement import TopologySpreadParams
from trimtab.api.strategies.pod_state import FailedPodsParams

POLICY: dict[str, Any] = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerPolicy",
    "maxNoOfPodsToEvictPerNode": 3,
    "nodeSelector": "disk=ssd",
    "profiles": [
        {
            "name": "a",
            "pluginConfig": [
                {"name": "DefaultEvictor", "args": {"evictLocalStoragePods": True, "minPodAge": "90s"}},
                {
                    "name": "LowNodeUtilization",
                    "args": {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}, "numberOfNodes": 2},
                },
            ],
            "plugins": {"balance": {"enabled": ["LowNodeUtilization"]}},
        }
    ],
}


def decoded() -> dict[str, Any]:
    """The policy as upstream's decoder returns it."""
    evictor = {
        "evictLocalStoragePods": True,
        "minPodAge": "1m30s",
        "priorityThreshold": {"value": 2_000_000_000, "name": ""},
        "podProtections": {},
    }
    thresholds = {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}, "numberOfNodes": 2}
    return {
        "MaxNoOfPodsToEvictPerNode": 3,
        "MaxNoOfPodsToEvictTotal": None,
        "NodeSelector": "disk=ssd",
        "Profiles": [
            {
                "Name": "a",
                "PluginConfigs": [
                    {"Name": "DefaultEvictor", "Args": evictor},
                    {"Name": "LowNodeUtilization", "Args": thresholds},
                ],
                "Plugins": {"Deschedule": {"Enabled": None}, "Balance": {"Enabled": ["LowNodeUtilization"]}},
            }
        ],
    }


def test_same_fields_are_equal() -> None:
    assert compare(Decoded(decoded()), POLICY) == ("equal", [])


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("MaxNoOfPodsToEvictPerNode",), 4, "limits.perNode"),
        (("MaxNoOfPodsToEvictTotal",), 9, "limits.perCycle"),
        (("NodeSelector",), "disk=hdd", "nodeSelector"),
        (("Profiles", 0, "PluginConfigs", 0, "Args", "evictLocalStoragePods"), False, "disabled"),
        (("Profiles", 0, "PluginConfigs", 0, "Args", "minPodAge"), "90m0s", "minPodAge"),
        (("Profiles", 0, "PluginConfigs", 0, "Args", "priorityThreshold"), {"value": 5}, "priorityThreshold"),
        (("Profiles", 0, "PluginConfigs", 1, "Args", "thresholds"), {"cpu": 21}, "param.thresholds"),
        (("Profiles", 0, "PluginConfigs", 1, "Args", "numberOfNodes"), 0, "param.numberOfNodes"),
        (("Profiles", 0, "PluginConfigs", 1, "Args", "useDeviationThresholds"), True, "param.useDeviationThresholds"),
    ],
)
def test_each_difference_is_found(path: tuple[Any, ...], value: Any, field: str) -> None:
    policy = msgspec.json.decode(msgspec.json.encode(decoded()))
    where = policy
    for step in path[:-1]:
        where = where[step]
    where[path[-1]] = value
    verdict, lines = compare(Decoded(policy), POLICY)
    assert verdict == "differs"
    assert [line.split(": ")[1] for line in lines] == [field]


def test_a_strategy_that_only_one_side_runs_is_found(golden: Golden) -> None:
    policy = decoded()
    policy["Profiles"][0]["Plugins"]["Balance"]["Enabled"].append("RemoveDuplicates")
    verdict, [difference] = compare(Decoded(policy), POLICY)
    assert verdict == "differs"
    assert difference.startswith("RemoveDuplicates: ")
    golden(difference)


def test_verdicts_name_who_refuses() -> None:
    refused = {**POLICY, "nodeSelector": 5}
    assert compare(Decoded(error="no"), POLICY) == ("refused only upstream", ["no"])
    assert compare(Decoded(error="no"), refused)[0] == "refused by both"
    assert compare(Decoded(decoded()), refused)[0] == "refused only here"


def test_defaults_of_both_are_the_same() -> None:
    """The comparison treats fields that our policies omit as equal to upstream's defaults."""
    assert FailedPodsParams().min_pod_lifetime_seconds == 3600
    spread = TopologySpreadParams()
    assert ([str(each) for each in spread.constraints], spread.topology_balance_node_fit) == (["DoNotSchedule"], True)
