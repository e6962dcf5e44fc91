"""OpenShift's KubeDescheduler as a DeschedulerPolicy."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.fixtures.golden import Golden
from tests.unit.descheduling.imports.importing import errors_of, warnings_of, whole
from trimtab.descheduling.imports import openshift
from trimtab.descheduling.imports.draft import ImportResult


def read(spec: Any) -> ImportResult:
    """A KubeDescheduler with that spec, which may be YAML; every ten minutes unless it says otherwise."""
    data = spec
    if isinstance(spec, str):
        content = {"deschedulingIntervalSeconds": 600, **msgspec.yaml.decode(spec)}
        metadata = {"name": "cluster", "namespace": "openshift-kube-descheduler-operator"}
        data = {
            "apiVersion": "operator.openshift.io/v1",
            "kind": "KubeDescheduler",
            "metadata": metadata,
            "spec": content,
        }
    return whole(openshift.import_policy, data)


def spec_of(spec: str) -> Any:
    (document,) = read(spec).documents
    assert document["metadata"] == {"name": "cluster"}
    return document["spec"]


def test_profiles_become_one_policy() -> None:
    spec = spec_of(
        "{profiles: [AffinityAndTaints, LifecycleAndUtilization], mode: Automatic, evictionLimits: {total: 5, node: 2}}"
    )

    shares = dict.fromkeys(("cpu", "memory", "pods"), 20)
    targets = dict.fromkeys(("cpu", "memory", "pods"), 50)
    assert spec == {
        "mode": "Act",
        "interval": "10m",
        "limits": {"perCycle": 5, "perNode": 2},
        "protections": {"extra": ["PodsWithPVC"]},
        "namespaces": {"exclude": ["hypershift"]},
        "strategies": {
            "RemovePodsViolatingInterPodAntiAffinity": {"enabled": True},
            "RemovePodsViolatingNodeTaints": {"enabled": True},
            "RemovePodsViolatingNodeAffinity": {
                "enabled": True,
                "params": {"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]},
            },
            "PodLifeTime": {"enabled": True, "params": {"maxPodLifeTimeSeconds": 86400}},
            "RemovePodsHavingTooManyRestarts": {
                "enabled": True,
                "params": {"podRestartThreshold": 100, "includingInitContainers": True},
            },
            "LowNodeUtilization": {
                "enabled": True,
                "params": {
                    "nodeResourceUtilizationThresholds": {"thresholds": shares, "targetThresholds": targets},
                    "evictionLimits": {"node": 2},
                },
            },
        },
    }


@pytest.mark.parametrize(
    ("profile", "strategies"),
    [
        ("TopologyAndDuplicates", {"RemovePodsViolatingTopologySpreadConstraint", "RemoveDuplicates"}),
        ("SoftTopologyAndDuplicates", {"RemovePodsViolatingTopologySpreadConstraint", "RemoveDuplicates"}),
        ("LongLifecycle", {"RemovePodsHavingTooManyRestarts", "LowNodeUtilization"}),
        ("CompactAndScale", {"HighNodeUtilization"}),
    ],
)
def test_a_profile_enables_its_strategies(profile: str, strategies: set[str]) -> None:
    assert set(spec_of(f"{{profiles: [{profile}]}}")["strategies"]) == strategies


def test_soft_constraints_are_enforced_by_soft_profile() -> None:
    (soft,) = read("{profiles: [SoftTopologyAndDuplicates]}").policies
    (hard,) = read("{profiles: [TopologyAndDuplicates]}").policies

    both = soft.spec.strategies.topology_spread, hard.spec.strategies.topology_spread
    assert [each.params.constraints for each in both if each] == [
        ("DoNotSchedule", "ScheduleAnyway"),
        ("DoNotSchedule",),
    ]


@pytest.mark.parametrize(
    ("profiles", "disabled", "extra"),
    [
        pytest.param("", (), ("PodsWithPVC",), id="by default"),
        pytest.param(", EvictPodsWithPVC", (), (), id="claims lifted"),
        pytest.param(", EvictPodsWithLocalStorage", ("PodsWithLocalStorage",), ("PodsWithPVC",), id="storage lifted"),
    ],
)
def test_some_profiles_disable_protections(profiles: str, disabled: tuple[str, ...], extra: tuple[str, ...]) -> None:
    (policy,) = read(f"{{profiles: [AffinityAndTaints{profiles}]}}").policies

    assert (policy.spec.protections.disabled, policy.spec.protections.extra) == (disabled, extra)


@pytest.mark.parametrize(
    ("custom", "path", "value"),
    [
        pytest.param("podLifetime: 48h", "PodLifeTime.maxPodLifeTimeSeconds", 172800, id="podLifetime"),
        pytest.param(
            "devLowNodeUtilizationThresholds: High",
            "LowNodeUtilization.nodeResourceUtilizationThresholds.thresholds.cpu",
            40,
            id="devLowNodeUtilizationThresholds",
        ),
    ],
)
def test_profiles_can_be_customized(custom: str, path: str, value: Any) -> None:
    spec = spec_of(f"{{profiles: [LifecycleAndUtilization], profileCustomizations: {{{custom}}}}}")

    name, *keys = path.split(".")
    found = spec["strategies"][name]["params"]
    for key in keys:
        found = found[key]
    assert found == value


@pytest.mark.parametrize(
    ("profile", "query"),
    [
        ("PrometheusCPUUsage", "instance:node_cpu:rate:sum"),
        ("PrometheusMemoryPSIPressure", "rate(node_pressure_memory_waiting_seconds_total[1m])"),
        ("PrometheusCPUCombined", "descheduler:combined_utilization_and_pressure:avg1m"),
        ("query:avg by (instance) (x)", "avg by (instance) (x)"),
    ],
)
@pytest.mark.parametrize(("words", "low", "high"), [("", 20, 50), ("devLowNodeUtilizationThresholds: Low, ", 10, 30)])
def test_actual_utilization_profile_becomes_query(profile: str, query: str, words: str, low: int, high: int) -> None:
    custom = f"{words}devActualUtilizationProfile: '{profile}'"
    params = spec_of(f"{{profiles: [LongLifecycle], profileCustomizations: {{{custom}}}}}")["strategies"][
        "LowNodeUtilization"
    ]["params"]
    assert params["metricsUtilization"] == {"source": "Prometheus", "prometheus": {"query": query}}
    thresholds = params["nodeResourceUtilizationThresholds"]
    assert thresholds["thresholds"] == {"MetricResource": low}
    assert thresholds["targetThresholds"] == {"MetricResource": high}
    assert "useDeviationThresholds" not in thresholds


def test_kubevirt_profile_sets_query_protections_limits_and_nodes() -> None:
    spec = spec_of("{profiles: [KubeVirtRelieveAndMigrate], mode: Automatic, deschedulingIntervalSeconds: 60}")
    query = "descheduler:node:linear_amplified_ideal_point_positive_distance:k3:avg1m"
    thresholds = {"thresholds": {"MetricResource": 0}, "targetThresholds": {"MetricResource": 10}}
    assert spec == {
        "mode": "Act",
        "interval": "1m",
        "limits": {"perCycle": 5, "perNode": 2},
        "protections": {"disabled": ["PodsWithLocalStorage"], "noEvictionPolicy": "Mandatory"},
        "namespaces": {"exclude": ["hypershift"]},
        "nodeSelector": {"matchLabels": {"kubevirt.io/schedulable": "true"}},
        "strategies": {
            "LowNodeUtilization": {
                "enabled": True,
                "params": {
                    "metricsUtilization": {"source": "Prometheus", "prometheus": {"query": query}},
                    "nodeResourceUtilizationThresholds": {**thresholds, "useDeviationThresholds": True},
                    "evictionLimits": {"node": 2},
                },
            }
        },
    }


@pytest.mark.parametrize(
    ("custom", "low", "high", "deviation"),
    [
        ("devDeviationThresholds: Medium", 20, 20, True),
        ("devLowNodeUtilizationThresholds: High", 40, 70, None),
    ],
)
def test_kubevirt_profile_thresholds_can_be_customized(
    custom: str, low: int, high: int, deviation: bool | None
) -> None:
    spec = spec_of(f"{{profiles: [DevKubeVirtRelieveAndMigrate], profileCustomizations: {{{custom}}}}}")
    found = spec["strategies"]["LowNodeUtilization"]["params"]["nodeResourceUtilizationThresholds"]
    assert (found["thresholds"], found["targetThresholds"]) == ({"MetricResource": low}, {"MetricResource": high})
    assert found.get("useDeviationThresholds") is deviation


def test_compact_and_scale_thresholds_are_converted() -> None:
    spec = spec_of("{profiles: [CompactAndScale], profileCustomizations: {devHighNodeUtilizationThresholds: Minimal}}")
    thresholds = spec["strategies"]["HighNodeUtilization"]["params"]["nodeResourceUtilizationThresholds"]
    assert thresholds == {"thresholds": {"cpu": 10, "memory": 10, "pods": 10}}


@pytest.mark.parametrize(
    ("custom", "expected"),
    [
        pytest.param("namespaces: {included: [a]}", {"namespaces": {"include": ["a"]}}, id="included"),
        pytest.param(
            "namespaces: {excluded: [a]}", {"namespaces": {"exclude": ["a", "hypershift"]}}, id="excluded besides"
        ),
        pytest.param(
            "thresholdPriority: 10",
            {"namespaces": {"exclude": ["hypershift"]}, "priorityThreshold": {"value": 10}},
            id="a priority",
        ),
        pytest.param(
            "thresholdPriorityClassName: high",
            {"namespaces": {"exclude": ["hypershift"]}, "priorityThreshold": {"name": "high"}},
            id="a priority class",
        ),
    ],
)
def test_customizations_apply_to_the_policy(custom: str, expected: Any) -> None:
    spec = spec_of(f"{{profiles: [AffinityAndTaints], profileCustomizations: {{{custom}}}}}")

    assert {part: spec[part] for part in ("namespaces", "priorityThreshold") if part in spec} == expected


@pytest.mark.parametrize(
    ("spec", "mode", "suspend"),
    [
        pytest.param("mode: Automatic", "Act", False, id="Automatic"),
        pytest.param("mode: Predictive", "Simulate", False, id="Predictive"),
        pytest.param("logLevel: Normal", "Simulate", False, id="no mode"),
        pytest.param("mode: Automatic, managementState: Removed", "Act", True, id="Removed"),
    ],
)
def test_mode_is_converted(spec: str, mode: str, suspend: bool) -> None:
    (policy,) = read(f"{{profiles: [AffinityAndTaints], {spec}}}").policies

    assert (policy.spec.mode, policy.spec.suspend) == (mode, suspend)


CUSTOM = "spec.profileCustomizations"


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        pytest.param(
            "profiles: [AffinityAndTaint]", "spec.profiles[0]", "did you mean AffinityAndTaints?", id="a slip"
        ),
        pytest.param("profiles: []", "spec.profiles", "enables no strategy", id="no profile"),
        pytest.param("profiles: [EvictPodsWithPVC]", "spec.profiles", "enables no strategy", id="only a modifier"),
        pytest.param("mode: Automatic", "spec.profiles", "must be a list", id="profiles missing"),
        pytest.param(
            "profiles: [TopologyAndDuplicates, SoftTopologyAndDuplicates]",
            "spec.profiles",
            "exclude each other",
            id="hard and soft",
        ),
        pytest.param(
            "profiles: [LifecycleAndUtilization, CompactAndScale]",
            "spec.profiles",
            "exclude each other",
            id="low and high",
        ),
        pytest.param("profiles: [LongLifecycle, LongLifecycle]", "spec.profiles[1]", "twice", id="a profile twice"),
        pytest.param(
            "profiles: [KubeVirtRelieveAndMigrate, AffinityAndTaints]",
            "spec.profiles",
            "convert it separately from AffinityAndTaints",
            id="virtual machines and others",
        ),
        pytest.param(
            "profiles: [LongLifecycle], profileCustomizations: {devActualUtilizationProfile: PrometheusCpu}",
            f"{CUSTOM}.devActualUtilizationProfile",
            "must be PrometheusCPUUsage, ",
            id="real use by an unknown name",
        ),
        pytest.param(
            "profiles: [LongLifecycle], profileCustomizations: {devActualUtilizationProfile: 'query:'}",
            f"{CUSTOM}.devActualUtilizationProfile",
            "query: and PromQL",
            id="real use by an empty query",
        ),
        pytest.param(
            "profiles: [LongLifecycle], podLifetime: 1h",
            "spec.podLifetime",
            "podLifetime belongs to spec.profileCustomizations",
            id="a key at the wrong place",
        ),
        pytest.param(
            "profiles: [LongLifecycle], profileCustomizations: {namespaces: {include: [a]}}",
            f"{CUSTOM}.namespaces.include",
            "did you mean included?",
            id="a misspelt key",
        ),
        pytest.param(
            "profiles: [LongLifecycle], profileCustomizations: {namespaces: {included: [openshift-dns]}}",
            f"{CUSTOM}.namespaces.included",
            "are protected",
            id="the cluster's own namespaces",
        ),
        pytest.param(
            "profiles: [LongLifecycle], profileCustomizations: {namespaces: {included: [a], excluded: [b]}}",
            f"{CUSTOM}.namespaces.excluded",
            "cannot be given together",
            id="included and excluded",
        ),
        pytest.param(
            "profiles: [LongLifecycle], profileCustomizations: {devLowNodeUtilizationThresholds: low}",
            f"{CUSTOM}.devLowNodeUtilizationThresholds",
            "must be Low or Medium or High",
            id="an unknown word",
        ),
        pytest.param("profiles: [LongLifecycle], mode: Act", "spec.mode", "Automatic or Predictive", id="our mode"),
        pytest.param(
            "profiles: [LongLifecycle], deschedulingIntervalSeconds: 0",
            "spec.deschedulingIntervalSeconds",
            "at least 1",
            id="no interval",
        ),
        pytest.param(
            "profiles: [LongLifecycle], deschedulingIntervalSeconds: 1",
            "spec.deschedulingIntervalSeconds",
            "5s",
            id="an interval too short",
        ),
    ],
)
def test_invalid_fields_are_reported_by_their_own_name(spec: str, field: str, words: str) -> None:
    errors = errors_of(read, f"{{{spec}}}")
    assert set(errors) == {field}
    assert words in errors[field]


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        pytest.param("managementState: Unmanaged", "spec.managementState", "is suspended", id="not managed"),
        pytest.param(
            "deschedulingIntervalSeconds: null", "spec.deschedulingIntervalSeconds", "every 5m", id="no interval"
        ),
        pytest.param(
            "profiles: [LongLifecycle], profileCustomizations: {devActualUtilizationProfile: PrometheusCPUCombined}",
            f"{CUSTOM}.devActualUtilizationProfile",
            "--prometheus-url, --prometheus-token-file; the query is a recording rule",
            id="real use by a rule of OpenShift's",
        ),
        pytest.param(
            "profiles: [LongLifecycle], profileCustomizations: {devActualUtilizationProfile: PrometheusCPUUsage}",
            f"{CUSTOM}.devActualUtilizationProfile",
            "values above 1 are not valid",
            id="real use in cores",
        ),
        pytest.param("logLevel: Debug", "spec.logLevel", "is ignored", id="a log level"),
        pytest.param(
            "profileCustomizations: {devMigrationCooldown: 5m}",
            f"{CUSTOM}.devMigrationCooldown",
            "spec.cooldown",
            id="a slots_below_targets-down of migrations",
        ),
    ],
)
def test_differences_are_reported_as_warnings(spec: str, field: str, words: str) -> None:
    spec = spec if "profiles:" in spec else f"profiles: [AffinityAndTaints], {spec}"
    warnings = warnings_of(read(f"{{deschedulingIntervalSeconds: 60, {spec}}}"))
    assert set(warnings) == {field}
    assert words in warnings[field]


@pytest.mark.parametrize("data", [None, {}, {"apiVersion": "operator.openshift.io/v1beta1", "kind": "KubeDescheduler"}])
def test_other_objects_are_rejected(data: Any, golden: Golden) -> None:
    golden("\n".join(f"{key}: {text}" for key, text in errors_of(read, data).items()))
