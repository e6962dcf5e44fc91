"""The decoder of files and the API server accept and reject the same random changes of a policy."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import policies
from tests.fixtures.crds import assert_same_verdict
from tests.fixtures.crds import client as client
from tests.mutations import VALUES, mutate, paths
from tests.strategies import examples
from trimtab.api.decode import decode_policy
from trimtab_local.client import Client

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


BASES = [(base, path) for base in (FULL, MEASURED) for path in paths(base)[1:]]
KEYS = ["interval", "exclude", "name", "perPod", "values", "cpu", "PodLifeTime", "LowNodeUtilization", "params"]


@pytest.mark.usefixtures("client")
@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    base=st.sampled_from(BASES),
    value=st.sampled_from(VALUES),
    change=st.sampled_from(["set", "add", "drop"]),
    key=st.sampled_from(KEYS),
)
def test_decoder_and_api_server_accept_the_same_objects(
    client: Client, base: tuple[dict[str, Any], tuple[Any, ...]], value: Any, change: str, key: str
) -> None:
    spec, path = copy.deepcopy(base[0]), base[1]
    mutate(spec, path, value, change, key)
    assert_same_verdict(client, policies.manifest(spec), decode_policy)
