"""Files and ``kubectl apply`` are judged alike: random changes to a policy get one verdict from both."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import policies
from tests.api.test_crd import client as client
from tests.api.test_crd import create
from trimtab.api.decode import InvalidObject, decode_policy
from trimtab.kube.api import Invalid
from trimtab.local.client import Client

LIFE_TIME: dict[str, Any] = {
    "maxPodLifeTimeSeconds": 3,
    "states": ["Pending"],
    "conditions": [{"type": "Ready", "status": "True", "minTimeSinceLastTransitionSeconds": 3}],
    "exitCodes": [-1],
    "ownerKinds": {"include": ["Job"]},
    "includingEphemeralContainers": True,
}
PACKING: dict[str, Any] = {
    "nodeResourceUtilizationThresholds": {"thresholds": {"cpu": 20}, "useDeviationThresholds": False},
    "evictionModes": ["OnlyThresholdingResources"],
    "evictableNamespaces": {"exclude": ["a"]},
}
FULL: dict[str, Any] = {
    "strategies": policies.seed_strategies()
    | {"RemoveDuplicates": {"params": {"removeDuplicates": {"excludeOwnerKinds": ["Job"]}}}}
    | {"RemovePodsHavingTooManyRestarts": {"params": {"podRestartThreshold": 1, "states": ["Running"]}}}
    | {"PodLifeTime": {"params": LIFE_TIME}}
    | {"RemovePodsViolatingNodeTaints": {"params": {"excludedTaints": ["a=b"], "includePreferNoSchedule": True}}}
    | {"RemovePodsViolatingTopologySpreadConstraint": {"params": {"constraints": ["ScheduleAnyway"]}}}
    | {"HighNodeUtilization": {"enabled": False, "params": PACKING}}
    | {"RemovePodsViolatingInterPodAffinity": {"params": {"interPodAffinityType": [policies.REQUIRED]}}}
    | {"RemoveFailedPods": {"params": {"reasons": ["a"], "exitCodes": [1], "minPodLifetimeSeconds": 3}}},
    "mode": "Act",
    "suspend": True,
    "schedule": {"cron": "0 4 * * *", "timeZone": "UTC"},
    "limits": {"perCycle": 1, "perNode": 1, "perMinute": 3},
    "protections": {"disabled": ["SystemNamespaces"], "extra": ["PodsWithPVC"], "minReplicas": 2, "minPodAge": "5m"}
    | {"protectedStorageClasses": ["a"], "noEvictionPolicy": "Mandatory"},
    "namespaceSelector": {"matchLabels": {"a": "b"}},
    "namespaces": {"include": ["a"]},
    "podSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
    "priorityThreshold": {"value": 3},
}


SHARES: dict[str, Any] = {"MetricResource": 20}
MEASURED: dict[str, Any] = {
    "strategies": {
        "LowNodeUtilization": {
            "params": {
                "metricsUtilization": {
                    "source": "Prometheus",
                    "prometheus": {"query": "up", "nodeLabel": "node", "podQuery": "up"},
                },
                "nodeResourceUtilizationThresholds": {"thresholds": SHARES, "targetThresholds": {"MetricResource": 50}},
            }
        }
    }
}


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner for key, item in children for inner in paths(item, (*path, key)))]


# 3.0 is left out: where a rule reads the number the API server refuses it, elsewhere it takes it for 3, as we do.
VALUES: list[Any] = [
    *(True, False, 0, 1, -1, 2.5, 101, 2**31, 10**20, "", "a", "5m", "1s", "Act", "20", "PodsWithPVC", "Job"),
    *([], {}, ["a"], ["PodsWithPVC", "PodsWithPVC"], {"a": "b"}, {"cpu": 3}, {"enabled": True}, "x" * 400),
    *("Prometheus", "KubernetesMetrics", SHARES, {"source": "KubernetesMetrics"}),
]
BASES = [(base, path) for base in (FULL, MEASURED) for path in paths(base)[1:]]
KEYS = ["interval", "exclude", "name", "perPod", "values", "cpu", "PodLifeTime", "LowNodeUtilization", "params"]


@pytest.mark.usefixtures("client")
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    base=st.sampled_from(BASES),
    value=st.sampled_from(VALUES),
    change=st.sampled_from(["set", "add", "drop"]),
    key=st.sampled_from(KEYS),
)
def test_both_judge_alike(
    client: Client, base: tuple[dict[str, Any], tuple[Any, ...]], value: Any, change: str, key: str
) -> None:
    spec, path = copy.deepcopy(base[0]), base[1]
    place: Any = spec
    for step in path[:-1]:
        place = place[step]
    if change == "drop":
        del place[path[-1]]
    elif change == "add" and isinstance(place, dict):
        place[key] = value
    else:
        place[path[-1]] = value

    try:
        decode_policy(policies.manifest(spec))
        ours = ""
    except InvalidObject as error:
        ours = str(error)
    try:
        create(client, spec)
        theirs = ""
    except Invalid as error:
        theirs = error.message
    assert bool(ours) == bool(theirs), f"we say {ours or 'good'!r}, the API server says {theirs or 'good'!r}"
