"""Converts the values of the upstream descheduler's Helm chart, from any package that installs it.

The values are merged with the defaults of the chart's version, as Helm does, because a policy may consist of little
more: ``LowNodeUtilization: {enabled: true}`` gets its thresholds from the chart.

Defaults: kubernetes-sigs/descheduler, charts/descheduler/values.yaml of the tags descheduler-helm-chart-0.18.1 to
0.36.0 (Apache-2.0), reduced to the values that configure the policy and when it runs. 0.30.0 is represented by 0.30.1,
because the descheduler does not start with the default policy of 0.30.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from trimtab.api.decode import InvalidObject
from trimtab.api.descheduler_policy import KIND
from trimtab.api.differences import HIGH, LOW
from trimtab.api.schema import FieldError
from trimtab.descheduling.imports import v1alpha1, v1alpha2
from trimtab.descheduling.imports.draft import (
    ImportFindings,
    ImportResult,
    PolicyDraft,
)
from trimtab.descheduling.imports.run_settings import (
    RunSettings,
    apply_settings,
    take_cron_job,
    take_deployment,
    take_flags,
)
from trimtab.descheduling.imports.strategy_mapping import BALANCE, DESCHEDULE, EVICTOR
from trimtab.kube.errors import InputError
from trimtab.kube.wire.files.packages import ChartValues, merge_values

CHART: Final = "descheduler"

_SHARES: Final = {
    "thresholds": {"cpu": 20, "memory": 20, "pods": 20},
    "targetThresholds": {"cpu": 50, "memory": 50, "pods": 50},
}
_AFFINITY: Final = {"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]}
_RESTARTS: Final = {"podRestartThreshold": 100, "includingInitContainers": True}
_STRATEGIES_0_18: Final[Mapping[str, Any]] = {
    "RemoveDuplicates": {"enabled": True},
    "RemovePodsViolatingNodeTaints": {"enabled": True},
    "RemovePodsViolatingNodeAffinity": {"enabled": True, "params": _AFFINITY},
    "RemovePodsViolatingInterPodAntiAffinity": {"enabled": True},
    "LowNodeUtilization": {"enabled": True, "params": {"nodeResourceUtilizationThresholds": _SHARES}},
}
_STRATEGIES_0_25: Final[Mapping[str, Any]] = {
    **_STRATEGIES_0_18,
    "RemovePodsHavingTooManyRestarts": {"enabled": True, "params": {"podsHavingTooManyRestarts": _RESTARTS}},
    "RemovePodsViolatingTopologySpreadConstraint": {"enabled": True, "params": {"includeSoftConstraints": False}},
}


def _profile(evictor: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": "default",
            "pluginConfig": [
                {"name": EVICTOR, "args": evictor},
                {"name": "RemoveDuplicates"},
                {"name": "RemovePodsHavingTooManyRestarts", "args": _RESTARTS},
                {"name": "RemovePodsViolatingNodeAffinity", "args": _AFFINITY},
                {"name": "RemovePodsViolatingNodeTaints"},
                {"name": "RemovePodsViolatingInterPodAntiAffinity"},
                {"name": "RemovePodsViolatingTopologySpreadConstraint"},
                {"name": "LowNodeUtilization", "args": _SHARES},
            ],
            "plugins": {
                BALANCE: {
                    "enabled": [
                        "RemoveDuplicates",
                        "RemovePodsViolatingTopologySpreadConstraint",
                        "LowNodeUtilization",
                    ]
                },
                DESCHEDULE: {
                    "enabled": [
                        "RemovePodsHavingTooManyRestarts",
                        "RemovePodsViolatingNodeTaints",
                        "RemovePodsViolatingNodeAffinity",
                        "RemovePodsViolatingInterPodAntiAffinity",
                    ]
                },
            },
        }
    ]


_RUNS: Final = {"kind": "CronJob", "schedule": "*/2 * * * *", "suspend": False, "deschedulingInterval": "5m"}


def _v1alpha1(strategies: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_RUNS,
        "deschedulerPolicyAPIVersion": v1alpha1.FOREIGN_VERSION,
        "deschedulerPolicy": {"strategies": strategies},
    }


def _v1alpha2(evictor: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_RUNS,
        "deschedulerPolicyAPIVersion": v1alpha2.FOREIGN_VERSION,
        "deschedulerPolicy": {"profiles": _profile(evictor)},
    }


DEFAULTS: Final[Mapping[tuple[int, int], Mapping[str, Any]]] = {
    (0, 18): _v1alpha1(_STRATEGIES_0_18),
    (0, 25): _v1alpha1(_STRATEGIES_0_25),
    (0, 30): _v1alpha2({"evictLocalStoragePods": True, "ignorePvcPods": True}),
    (0, 34): _v1alpha2(
        {"podProtections": {"defaultDisabled": ["PodsWithLocalStorage"], "extraEnabled": ["PodsWithPVC"]}}
    ),
}
"""Maps the first chart version with certain defaults to the defaults."""

_POLICY: Final = "deschedulerPolicy"
_VERSION: Final = "deschedulerPolicyAPIVersion"
_TYPICAL: Final = frozenset({_POLICY, _VERSION, "deschedulingInterval", "cronJobApiVersion"})
_CONVERTED: Final = frozenset(
    {
        _POLICY,
        _VERSION,
        "kind",
        "schedule",
        "timeZone",
        "suspend",
        "deschedulingInterval",
        "cmdOptions",
        "replicas",
        "startingDeadlineSeconds",
        "activeDeadlineSeconds",
        "nameOverride",
        "fullnameOverride",
        "namespaceOverride",
        "enabled",
        "global",
    }
)


def is_chart_values(values: Mapping[str, Any]) -> bool:
    """Return whether values are those of the descheduler's chart, by the keys that only this chart has."""
    if "apiVersion" in values or "metadata" in values:
        return False
    return bool(_TYPICAL & values.keys()) or (
        values.get("kind") in ("CronJob", "Deployment") and bool({"schedule", "cmdOptions"} & values.keys())
    )


def import_chart(chart: ChartValues, *, source: str = "") -> ImportResult:
    """Convert the values of the descheduler's chart to DeschedulerPolicies.

    Args:
        chart: the values without the chart's defaults, see :meth:`ChartValues.of`.
        source: name of the document's source, for messages.

    Raises:
        InputError: the values are invalid, or the policy is in a ConfigMap that the chart does not create.
    """
    findings = ImportFindings()
    prefix = f"{chart.field}." if chart.field else ""
    for each in chart.unread:
        findings.warn(each.field, each.reason, HIGH)
    version, defaults = defaults_of(chart)
    values = merge_values(defaults, chart.values)
    described = f"{CHART}/{chart.release}" if chart.release else ""
    policy = values.get(_POLICY)
    if not isinstance(policy, Mapping):
        message = "is empty: the policy is in a ConfigMap of its own; convert that one"
        raise InputError(message, source=source, object=described, field=f"{prefix}{_POLICY}")
    findings.warn(chart.field, f"merged with the defaults of chart version {version}", LOW)
    if _POLICY not in chart.values:
        findings.warn(f"{prefix}{_POLICY}", "is missing: the policy is the chart's default", LOW)
    imported = _policy(values, policy, chart, prefix=prefix, source=source, described=described)
    settings = _settings(values, chart.values, prefix, findings, described)
    return apply_settings(imported, settings, source=source)


def defaults_of(chart: ChartValues) -> tuple[str, Mapping[str, Any]]:
    """Return the defaults of a chart version, or, if it is unknown, of the newest that fits the values."""
    known = re.search(r"(?<![0-9.])v?([0-9]+)\.([0-9]+)", chart.version)
    policy = chart.values.get(_POLICY)
    if known and not chart.version.lstrip().startswith((">", "*")):
        version = (int(known[1]), int(known[2]))
        first = max((each for each in DEFAULTS if each <= version), default=min(DEFAULTS))
        return f"{version[0]}.{version[1]}", DEFAULTS[first]
    old = isinstance(policy, Mapping) and "strategies" in policy and "profiles" not in policy
    if chart.values.get(_VERSION) == v1alpha1.FOREIGN_VERSION or (old and _VERSION not in chart.values):
        return "0.29 (the package gives none)", DEFAULTS[0, 25]
    return "0.36 (the package gives none)", DEFAULTS[max(DEFAULTS)]


def _policy(
    values: Mapping[str, Any],
    policy: Mapping[str, Any],
    chart: ChartValues,
    *,
    prefix: str,
    source: str,
    described: str,
) -> ImportResult:
    """Convert the policy that the chart renders, without its defaults in the other format, which are ignored."""
    version = str(values.get(_VERSION))
    given = chart.values.get(_POLICY)
    other = "strategies" if version == v1alpha2.FOREIGN_VERSION else "profiles"
    own = {key: value for key, value in policy.items() if key != other or (isinstance(given, Mapping) and key in given)}
    readers = {v1alpha1.FOREIGN_VERSION: v1alpha1.import_policy, v1alpha2.FOREIGN_VERSION: v1alpha2.import_policy}
    if version not in readers:
        message = f"must be {' or '.join(readers)}, not {version!r}"
        raise InputError(message, source=source, object=described, field=f"{prefix}{_VERSION}")
    place = f"{prefix}{_POLICY}"
    try:
        imported = readers[version]({**own, "apiVersion": version, "kind": KIND}, source=source)
    except InvalidObject as error:
        errors = tuple(FieldError(_joined(place, each.field), each.message) for each in error.errors)
        raise InvalidObject(errors, source=source, object=described) from None
    warnings = tuple(msgspec.structs.replace(each, field=_joined(place, each.field)) for each in imported.warnings)
    return ImportResult(imported.policies, imported.documents, warnings)


def _joined(place: str, field: str) -> str:
    return f"{place}.{field}" if field else place


def _settings(
    values: Mapping[str, Any],
    given: Mapping[str, Any],
    prefix: str,
    findings: ImportFindings,
    described: str,
) -> RunSettings:
    draft = PolicyDraft()
    options = values.get("cmdOptions")
    flags = {str(name): value for name, value in options.items()} if isinstance(options, Mapping) else {}
    take_flags(draft, flags, f"{prefix}cmdOptions", f"{prefix}cmdOptions.{{}}", findings)
    kind = values.get("kind")
    if kind == "Deployment":
        take_deployment(draft, values, prefix, findings)
    elif kind == "CronJob":
        take_cron_job(draft, values, prefix, findings)
    else:
        findings.error(f"{prefix}kind", f"must be CronJob or Deployment, not {kind!r}")
    unused = [str(key) for key in given if key not in _CONVERTED]
    if unused:
        message = f"{', '.join(unused)}: not converted; the values of trimtab's chart configure its own process"
        findings.warn(prefix.rstrip("."), message, LOW)
    return RunSettings(draft, findings, described)
