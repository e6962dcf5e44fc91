"""KubeDeschedulers compared with the policies that OpenShift's operator renders from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.descheduling.imports.importing import errors_of, warnings_of, whole
from trimtab.descheduling.imports import openshift
from trimtab.descheduling.imports.draft import ImportResult

TABLE = msgspec.yaml.decode((Path(__file__).parent / "openshift_policies.yaml").read_bytes())
PROTECTED = set(TABLE["protected"])
NESTED = ("thresholds", "targetThresholds", "useDeviationThresholds")
"""The arguments of the utilization strategies that a DeschedulerPolicy nests."""


def convert(spec: Mapping[str, Any]) -> ImportResult:
    manifest = {
        "apiVersion": "operator.openshift.io/v1",
        "kind": "KubeDescheduler",
        "metadata": {"name": "cluster", "namespace": "openshift-kube-descheduler-operator"},
        "spec": {"managementState": "Managed", "mode": "Predictive", **spec},
    }
    return whole(openshift.import_policy, manifest)


def expected_spec(policy: Mapping[str, Any], included: list[str]) -> dict[str, Any]:
    """Translate a rendered policy by the documented mapping of descheduler/v1alpha2."""
    plugins = {name: dict(args) for name, args in policy["plugins"].items() if name != "KubevirtMigrationAware"}
    evictor = plugins.pop("DefaultEvictor")
    limits = {
        "perCycle": policy.get("maxNoOfPodsToEvictTotal"),
        "perNode": policy.get("maxNoOfPodsToEvictPerNode"),
    }
    key, _, value = policy.get("nodeSelector", "").partition("=")
    protections = {
        "disabled": ["PodsWithLocalStorage"] if evictor.get("evictLocalStoragePods") else None,
        "extra": ["PodsWithPVC"] if evictor.get("ignorePvcPods") else None,
        "noEvictionPolicy": evictor.get("noEvictionPolicy"),
    }
    spec = {
        "mode": "Simulate",
        "limits": without_none(limits),
        "protections": without_none(protections),
        "priorityThreshold": evictor.get("priorityThreshold"),
        "nodeSelector": {"matchLabels": {key: value}} if key else None,
        "namespaces": namespaces_of(plugins, included),
        "strategies": {name: strategy_of(args) for name, args in plugins.items()},
    }
    return {name: part for name, part in spec.items() if part not in (None, {})}


def namespaces_of(plugins: Mapping[str, dict[str, Any]], included: list[str]) -> dict[str, Any]:
    """Remove the namespaces of all plugins, check that they are equal, and return the policy's.

    System namespaces are always protected. Included namespaces also apply to the utilization strategies
    (`UtilizationNamespaces` in docs/compatibility.md), for which the operator excludes the protected ones.
    """
    found = [args.pop(key, {}) for args in plugins.values() for key in ("namespaces", "evictableNamespaces")]
    for each in found:
        assert each in ({}, {"exclude": TABLE["protected"]}, {"include": included})
    return {"include": included} if included else {"exclude": ["hypershift"]}


def strategy_of(args: Mapping[str, Any]) -> dict[str, Any]:
    params = {key: value for key, value in args.items() if key not in NESTED}
    nested = {key: value for key, value in args.items() if key in NESTED}
    if nested:
        params["nodeResourceUtilizationThresholds"] = nested
    return {"enabled": True, "params": params} if params else {"enabled": True}


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def test_table_has_all_cases() -> None:
    assert len({case["name"] for case in TABLE["cases"]}) == 33


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["name"])
def test_converted_policy_equals_the_rendered_one(case: Mapping[str, Any]) -> None:
    imported = convert(case["spec"])

    (document,) = imported.documents
    included = case["spec"].get("profileCustomizations", {}).get("namespaces", {}).get("included", [])
    assert document["spec"] == expected_spec(case["policy"], included)
    sources = {each["source"] for each in case["policy"].get("metricsProviders", ())}
    metrics = document["spec"]["strategies"].get("LowNodeUtilization", {}).get("params", {}).get("metricsUtilization")
    assert sources == ({metrics["source"]} if metrics else set())


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param(
            {
                "profiles": ["LifecycleAndUtilization"],
                "profileCustomizations": {"thresholdPriority": 1000, "thresholdPriorityClassName": "high"},
            },
            "spec.profileCustomizations.thresholdPriorityClassName",
            id="ThresholdPriorityClassNameAndValueError",
        ),
        pytest.param(
            {
                "profiles": ["DevKubeVirtRelieveAndMigrate"],
                "profileCustomizations": {"devDeviationThresholds": "Low", "devLowNodeUtilizationThresholds": "Low"},
            },
            "spec.profileCustomizations.devDeviationThresholds",
            id="DevKubeVirtRelieveAndMigrateDynamicAndStaticThresholds",
        ),
    ],
)
def test_combinations_that_the_operator_rejects_are_errors(spec: dict[str, Any], field: str) -> None:
    assert set(errors_of(lambda each: convert(each), spec)) == {field}


@pytest.mark.parametrize(
    ("custom", "low", "high"),
    [
        pytest.param({"devDeviationThresholds": "Low"}, 20, 50, id="defaults"),
        pytest.param(
            {"devDeviationThresholds": "Low", "devLowNodeUtilizationThresholds": "High"}, 40, 70, id="static ones"
        ),
    ],
)
def test_deviation_thresholds_apply_to_the_profile_for_virtual_machines_only(
    custom: dict[str, str], low: int, high: int
) -> None:
    imported = convert({"profiles": ["LongLifecycle"], "profileCustomizations": custom})

    thresholds = imported.documents[0]["spec"]["strategies"]["LowNodeUtilization"]["params"]
    assert thresholds["nodeResourceUtilizationThresholds"] == {
        "thresholds": dict.fromkeys(("cpu", "memory", "pods"), low),
        "targetThresholds": dict.fromkeys(("cpu", "memory", "pods"), high),
    }
    assert "spec.profileCustomizations.devDeviationThresholds" in warnings_of(imported)


@pytest.mark.parametrize(("value", "warned"), [(False, False), (True, True)])
def test_soft_tainter_is_ignored(value: bool, warned: bool) -> None:
    imported = convert(
        {
            "profiles": ["AffinityAndTaints"],
            "deschedulingIntervalSeconds": 60,
            "profileCustomizations": {"devEnableSoftTainter": value},
        }
    )
    assert ("spec.profileCustomizations.devEnableSoftTainter" in warnings_of(imported)) is warned
