"""The values of the descheduler's Helm chart as DeschedulerPolicies."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.descheduling.imports.importing import errors_of, warnings_of, whole
from trimtab.descheduling.imports.chart import DEFAULTS, import_chart, is_chart_values
from trimtab.descheduling.imports.draft import ImportResult
from trimtab.kube.errors import InputError
from trimtab.kube.wire.files.packages import ChartValues, Unread

LOW_AND_HIGH = {
    "thresholds": {"cpu": 20, "memory": 20, "pods": 20},
    "targetThresholds": {"cpu": 50, "memory": 50, "pods": 50},
}
PROFILES = "profiles: [{name: mine, plugins: {balance: {enabled: [RemoveDuplicates]}}}]"
FIVE = {
    "RemoveDuplicates",
    "RemovePodsViolatingNodeTaints",
    "RemovePodsViolatingNodeAffinity",
    "RemovePodsViolatingInterPodAntiAffinity",
    "LowNodeUtilization",
}
SEVEN = FIVE | {"RemovePodsHavingTooManyRestarts", "RemovePodsViolatingTopologySpreadConstraint"}


def read(values: str, version: str = "", field: str = "") -> ImportResult:
    chart = ChartValues(values=msgspec.yaml.decode(values) or {}, version=version, field=field)
    return whole(lambda data, source: import_chart(data, source=source), chart)


def spec_of(values: str, version: str = "") -> dict[str, Any]:
    (document,) = read(values, version).documents
    spec = document["spec"]
    assert isinstance(spec, dict)
    return spec


@pytest.mark.parametrize(
    ("version", "strategies", "protections"),
    [
        ("0.18.1", FIVE, None),
        ("v0.24.1", FIVE, None),
        ("0.25.x", SEVEN, None),
        ("~0.29.0", SEVEN, None),
        ("0.30.1", SEVEN, {"disabled": ["PodsWithLocalStorage"], "extra": ["PodsWithPVC"]}),
        ("0.36.0", SEVEN, {"disabled": ["PodsWithLocalStorage"], "extra": ["PodsWithPVC"]}),
        ("", SEVEN, {"disabled": ["PodsWithLocalStorage"], "extra": ["PodsWithPVC"]}),
        (">=0.20.0", SEVEN, {"disabled": ["PodsWithLocalStorage"], "extra": ["PodsWithPVC"]}),
    ],
)
def test_defaults_are_those_of_the_chart_version(
    version: str, strategies: set[str], protections: dict[str, Any] | None
) -> None:
    spec = spec_of("{}", version)

    assert set(spec["strategies"]) == strategies
    assert spec["schedule"] == {"cron": "*/2 * * * *"}
    assert spec.get("protections") == protections
    low = spec["strategies"]["LowNodeUtilization"]["params"]["nodeResourceUtilizationThresholds"]
    assert low == LOW_AND_HIGH


@pytest.mark.parametrize("first", DEFAULTS)
def test_each_default_policy_is_converted_without_loss(first: tuple[int, int]) -> None:
    imported = read("{}", f"{first[0]}.{first[1]}.0")
    assert {each.severity for each in imported.warnings} == {"low"}


def test_strategies_of_the_values_are_merged_with_those_of_the_chart() -> None:
    values = (
        "deschedulerPolicy: {strategies: {LowNodeUtilization: {enabled: true}, RemoveDuplicates: {enabled: false}}}"
    )
    strategies = spec_of(values)["strategies"]

    low = strategies["LowNodeUtilization"]["params"]["nodeResourceUtilizationThresholds"]
    assert low == LOW_AND_HIGH
    assert {name for name, each in strategies.items() if each["enabled"]} == SEVEN - {"RemoveDuplicates"}


def test_null_removes_a_strategy_of_the_chart() -> None:
    spec = spec_of("deschedulerPolicy: {strategies: {LowNodeUtilization: null}}")
    assert set(spec["strategies"]) == SEVEN - {"LowNodeUtilization"}


def test_profiles_of_the_values_replace_those_of_the_chart() -> None:
    assert set(spec_of(f"deschedulerPolicy: {{{PROFILES}}}")["strategies"]) == {"RemoveDuplicates"}


@pytest.mark.parametrize(
    ("values", "version"),
    [
        pytest.param(
            f"{{deschedulerPolicyAPIVersion: descheduler/v1alpha2, deschedulerPolicy: {{{PROFILES}}}}}",
            "0.27.1",
            id="profiles on a chart with strategies",
        ),
        pytest.param(
            "{deschedulerPolicyAPIVersion: descheduler/v1alpha1, "
            "deschedulerPolicy: {strategies: {RemoveDuplicates: {enabled: true}}}}",
            "0.31.0",
            id="strategies on a chart with profiles",
        ),
    ],
)
def test_defaults_in_the_other_format_are_left_out(values: str, version: str) -> None:
    assert set(spec_of(values, version)["strategies"]) == {"RemoveDuplicates"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param("{schedule: '30 2 * * *'}", {"schedule": {"cron": "30 2 * * *"}}, id="schedule"),
        pytest.param(
            "{schedule: '@daily', timeZone: Europe/Berlin, suspend: true}",
            {"schedule": {"cron": "0 0 * * *", "timeZone": "Europe/Berlin"}, "suspend": True},
            id="macro, time zone and suspend",
        ),
        pytest.param("{kind: Deployment}", {"interval": "5m"}, id="Deployment"),
        pytest.param("{kind: Deployment, deschedulingInterval: 1h}", {"interval": "1h"}, id="deschedulingInterval"),
        pytest.param(
            "{kind: Deployment, cmdOptions: {descheduling-interval: 90s}}", {"interval": "1m30s"}, id="as a flag"
        ),
        pytest.param(
            "{kind: Deployment, replicas: 0}", {"interval": "5m", "suspend": True}, id="Deployment without replicas"
        ),
        pytest.param(
            "{schedule: '@hourly', cmdOptions: {max-pods-to-evict-per-node: 10, node-selector: a=b, dry-run: true}}",
            {
                "schedule": {"cron": "0 * * * *"},
                "limits": {"perNode": 10},
                "nodeSelector": {"matchLabels": {"a": "b"}},
            },
            id="cmdOptions",
        ),
    ],
)
def test_values_say_when_the_policy_runs_and_its_limits(values: str, expected: dict[str, Any]) -> None:
    keys = ("schedule", "interval", "suspend", "limits", "nodeSelector")
    spec = spec_of(values)
    assert {key: spec[key] for key in keys if key in spec} == expected


def test_limit_of_the_policy_wins_over_the_flag() -> None:
    spec = spec_of(
        f"{{cmdOptions: {{max-pods-to-evict-per-node: 10}}, deschedulerPolicy: "
        f"{{maxNoOfPodsToEvictPerNode: 3, {PROFILES}}}}}"
    )
    assert spec["limits"] == {"perNode": 3}


@pytest.mark.parametrize(
    ("values", "field", "severity"),
    [
        ("{cmdOptions: {v: 4, leader-elect: true}}", "cmdOptions", "low"),
        ("{cmdOptions: {max-pods-per-node: 4}}", "cmdOptions.max-pods-per-node", "high"),
        ("{cmdOptions: {feature-gates: Other=true}}", "cmdOptions.feature-gates", "medium"),
        ("{startingDeadlineSeconds: 100}", "startingDeadlineSeconds", "low"),
        ("{resources: {}, tolerations: []}", "", "low"),
    ],
)
def test_values_that_are_not_converted_are_named(values: str, field: str, severity: str) -> None:
    found = {(each.field, each.severity) for each in read(values).warnings}
    assert (field, severity) in found


def test_values_that_are_elsewhere_are_a_severe_difference() -> None:
    chart = ChartValues(values={}, field="spec.values", unread=(Unread("spec.valuesFrom", "ConfigMap shared"),))
    found = {(each.field, each.severity) for each in import_chart(chart).warnings}
    assert ("spec.valuesFrom", "high") in found


@pytest.mark.parametrize(
    ("values", "field"),
    [
        pytest.param("{kind: DaemonSet}", "spec.values.kind", id="kind"),
        pytest.param("{schedule: 'every day'}", "spec.values.schedule", id="schedule"),
        pytest.param(
            "{kind: Deployment, deschedulingInterval: soon}", "spec.values.deschedulingInterval", id="interval"
        ),
        pytest.param("{timeZone: Mars/Base}", "spec.values.timeZone", id="time zone"),
        pytest.param(
            "{cmdOptions: {max-pods-to-evict-per-node: x}}",
            "spec.values.cmdOptions.max-pods-to-evict-per-node",
            id="flag",
        ),
        pytest.param(
            "{deschedulerPolicy: {gracePeriodSeconds: -1}}",
            "spec.values.deschedulerPolicy.gracePeriodSeconds",
            id="policy",
        ),
    ],
)
def test_invalid_values_are_reported_by_their_path(values: str, field: str) -> None:
    assert set(errors_of(lambda each: read(each, field="spec.values"), values)) == {field}


def test_strategies_are_dropped_where_the_version_has_profiles() -> None:
    """The chart does not check its values, so it renders both and the descheduler drops the older format."""
    values = "{deschedulerPolicyAPIVersion: descheduler/v1alpha2, deschedulerPolicy: {strategies: {}}}"
    imported = read(values, field="spec.values")
    found = {(each.field, each.severity) for each in imported.warnings}
    assert ("spec.values.deschedulerPolicy.strategies", "high") in found
    assert imported.policies == read("{deschedulerPolicyAPIVersion: descheduler/v1alpha2}").policies


@pytest.mark.parametrize("values", ["{deschedulerPolicy: null}", "{deschedulerPolicyAPIVersion: descheduler/v1}"])
def test_values_without_a_policy_are_rejected(values: str) -> None:
    with pytest.raises(InputError):
        read(values)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"deschedulerPolicy": {}}, True),
        ({"kind": "Deployment", "schedule": "* * * * *"}, True),
        ({"kind": "Deployment", "apiVersion": "apps/v1", "deschedulerPolicy": {}}, False),
        ({"image": {}, "replicas": 1}, False),
    ],
)
def test_values_are_recognized_by_the_keys_of_the_chart(values: dict[str, Any], expected: bool) -> None:
    assert is_chart_values(values) is expected


def test_names_of_the_values_are_in_the_differences() -> None:
    found = warnings_of(read("{deschedulerPolicy: {evictionFailureEventNotification: true, " + PROFILES + "}}", "0.33"))
    assert found
    assert all(not field or field.startswith("deschedulerPolicy") for field in found if "." in field)
