"""Converts OpenShift's ``KubeDescheduler`` (``operator.openshift.io/v1``).

All profiles share namespaces, priorities and protections, so they become one policy. The strategies of each profile,
and the numbers for values such as Medium, are taken from openshift/cluster-kube-descheduler-operator (2026-06,
pkg/operator/target_config_reconciler.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trimtab.api.decode import InvalidObject, describe
from trimtab.api.differences import HIGH, LOW
from trimtab.api.scalars import format_duration, parse_duration
from trimtab.api.schema import unknown_key
from trimtab.api.strategies import REQUIRED
from trimtab.descheduling.imports.draft import (
    ImportFindings,
    ImportResult,
    PolicyDraft,
    duration_of_go,
    is_true,
    object_name,
    of_format,
)
from trimtab.descheduling.imports.strategy_mapping import (
    COMBINED,
    KnownFields,
    Names,
    Shape,
    StrategyDraft,
    WrongType,
    drafts,
    finish,
    mapping,
    queried,
)
from trimtab.descheduling.imports.strategy_mapping import RESOURCES as MEASURED
from trimtab.disruption.protections import SYSTEM_NAMESPACE_PREFIXES, SYSTEM_NAMESPACES

KIND: Final = "KubeDescheduler"
FOREIGN_VERSION: Final = "operator.openshift.io/v1"
DEFAULT_NAME: Final = "cluster"
"""Name of the KubeDescheduler. OpenShift allows only one object of this kind."""

_LONG: Final = ("RemovePodsHavingTooManyRestarts", "LowNodeUtilization")
_PROFILES: Final[Mapping[str, Names]] = {
    "AffinityAndTaints": (
        "RemovePodsViolatingInterPodAntiAffinity",
        "RemovePodsViolatingNodeTaints",
        "RemovePodsViolatingNodeAffinity",
    ),
    "TopologyAndDuplicates": ("RemovePodsViolatingTopologySpreadConstraint", "RemoveDuplicates"),
    "SoftTopologyAndDuplicates": ("RemovePodsViolatingTopologySpreadConstraint", "RemoveDuplicates"),
    "LifecycleAndUtilization": ("PodLifeTime", *_LONG),
    "LongLifecycle": _LONG,
    "DevPreviewLongLifecycle": _LONG,
    "CompactAndScale": ("HighNodeUtilization",),
    "KubeVirtRelieveAndMigrate": ("LowNodeUtilization",),
    "DevKubeVirtRelieveAndMigrate": ("LowNodeUtilization",),
    "EvictPodsWithPVC": (),
    "EvictPodsWithLocalStorage": (),
}
_EXCLUSIVE: Final = (
    ("TopologyAndDuplicates", "SoftTopologyAndDuplicates"),
    ("LifecycleAndUtilization", "LongLifecycle", "DevPreviewLongLifecycle", "CompactAndScale"),
    ("CompactAndScale", "TopologyAndDuplicates"),
)
_VIRTUAL: Final = ("KubeVirtRelieveAndMigrate", "DevKubeVirtRelieveAndMigrate")
"""The profile for virtual machines and its former name.

It has its own protections, limits and node selector.
"""
_MODIFIERS: Final = ("EvictPodsWithPVC", "EvictPodsWithLocalStorage")

_LOW: Final = {"Low": (10, 30), "Medium": (20, 50), "High": (40, 70), "": (20, 50)}
_HIGH: Final = {"Minimal": 10, "Modest": 20, "Moderate": 30, "": 20}
_DEVIATION: Final = {
    "Low": (10, 10),
    "Medium": (20, 20),
    "High": (30, 30),
    "AsymmetricLow": (0, 10),
    "AsymmetricMedium": (0, 20),
    "AsymmetricHigh": (0, 30),
}
_RESOURCES: Final = ("cpu", "memory", "pods")
_DAY: Final = 24 * 3600
_RESTARTS: Final = 100

_CUSTOM: Final = {
    "podLifetime": None,
    "thresholdPriority": None,
    "thresholdPriorityClassName": None,
    "namespaces": {"included": None, "excluded": None},
    "devLowNodeUtilizationThresholds": None,
    "devHighNodeUtilizationThresholds": None,
    "devDeviationThresholds": None,
    "devActualUtilizationProfile": None,
    "devEnableEvictionsInBackground": None,
    "devEnableSoftTainter": None,
    "devMigrationCooldown": None,
    "devMaxMigrationCooldown": None,
    "devMigrationHistoryWindow": None,
}
_OF_THE_OPERATOR: Final = ("logLevel", "operatorLogLevel", "unsupportedConfigOverrides", "observedConfig")
_SHAPE: Final[Mapping[str, Shape]] = {
    "managementState": None,
    **dict.fromkeys(_OF_THE_OPERATOR),
    "profiles": None,
    "deschedulingIntervalSeconds": None,
    "evictionLimits": {"total": None, "node": None},
    "profileCustomizations": _CUSTOM,
    "mode": None,
}
_PLACES: Final = KnownFields(
    {
        "spec": _SHAPE,
        "spec.profileCustomizations": _CUSTOM,
        "spec.profileCustomizations.namespaces": ("included", "excluded"),
        "spec.evictionLimits": ("total", "node"),
    },
    owned={},
    owned_at="",
    renamed={"strategies": "it belongs to v1beta1: here spec.profiles enables strategies"},
)


def import_policy(data: object, *, source: str = "") -> ImportResult:
    """Convert a KubeDescheduler to a DeschedulerPolicy.

    ``mode: Automatic`` becomes Act, and any other mode becomes Simulate.

    Args:
        data: the document as plain data.
        source: name of the document's source, for messages.

    Raises:
        InvalidObject: the document is invalid, or has fields that have no equivalent and must not be ignored.
    """
    data = of_format(data, KIND, FOREIGN_VERSION, source=source)
    described = describe(data)
    findings = ImportFindings()
    findings.errors += _PLACES.check(data.get("spec"), _SHAPE, "spec")
    if any(isinstance(error, WrongType) for error in findings.errors):
        raise InvalidObject(tuple(findings.errors), source=source, object=described)
    spec = mapping(data.get("spec"), "spec", findings)
    custom = mapping(spec.get("profileCustomizations"), "spec.profileCustomizations", findings)
    profiles = _profiles(spec.get("profiles"), findings)
    draft = PolicyDraft()
    _timing(draft, spec, findings)
    _evictions(draft, spec, profiles)
    _customized(draft, custom, findings)
    strategies = [
        _strategy_draft(name, profiles, spec, custom, findings) for profile in profiles for name in _PROFILES[profile]
    ]
    if not strategies and not findings.errors:
        findings.error("spec.profiles", "enables no strategy: there is nothing to do")
    name = mapping(data.get("metadata"), "metadata", findings).get("name")
    base = (object_name(name) if isinstance(name, str) else "") or DEFAULT_NAME
    made = drafts(base, draft, strategies, place="spec.profiles", findings=findings) if strategies else ()
    return finish(made, findings, source=source, described=described, total="")


def _profiles(given: Any, findings: ImportFindings) -> list[str]:
    """Return the known profiles in a list, with duplicates removed. Unknown ones are recorded as errors."""
    if not isinstance(given, list):
        findings.error("spec.profiles", "must be a list of profiles")
        return []
    known = []
    for index, name in enumerate(given):
        place = f"spec.profiles[{index}]"
        if not isinstance(name, str) or name not in _PROFILES:
            findings.error(place, unknown_key(str(name), tuple(_PROFILES), what="profile"))
        elif name in known:
            findings.error(place, f'must not be given twice: "{name}"')
        else:
            known.append(name)
    for group in _EXCLUSIVE:
        together = [name for name in known if name in group]
        if len(together) > 1:
            findings.error("spec.profiles", f"{' and '.join(together)} exclude each other")
    virtual, others = _virtual(known), [name for name in known if name not in (*_VIRTUAL, *_MODIFIERS)]
    if virtual and others:
        message = f"{virtual} has protections and nodes of its own: convert it separately from {', '.join(others)}"
        findings.error("spec.profiles", message)
    return known


def _virtual(profiles: list[str]) -> str:
    """Return the name of the profile for virtual machines; ``""`` if the list does not contain it."""
    return next((name for name in profiles if name in _VIRTUAL), "")


def _timing(draft: PolicyDraft, spec: Mapping[str, Any], findings: ImportFindings) -> None:
    mode = spec.get("mode", "Predictive")
    if mode not in ("Automatic", "Predictive"):
        findings.error("spec.mode", f"must be Automatic or Predictive, not {mode!r}")
    draft.put("mode", "Act" if mode == "Automatic" else "Simulate", "spec.mode")
    state = spec.get("managementState", "Managed")
    if state not in ("Managed", "Unmanaged", "Removed", "Force"):
        findings.error("spec.managementState", f"must be Managed, Unmanaged or Removed, not {state!r}")
    elif state in ("Unmanaged", "Removed"):
        draft.put("suspend", True, "spec.managementState")
        findings.warn("spec.managementState", f"is {state}: the policy is suspended")
    place = "spec.deschedulingIntervalSeconds"
    seconds = spec.get("deschedulingIntervalSeconds")
    if seconds is None:
        findings.warn(place, "is missing, and OpenShift runs nothing without it; here a cycle starts every 5m", HIGH)
    elif isinstance(seconds, int) and not isinstance(seconds, bool) and seconds > 0:
        draft.put("interval", format_duration(seconds), place)
    else:
        findings.error(place, "must be a whole number of seconds, at least 1")
    for key in _OF_THE_OPERATOR[:3]:  # observedConfig is written by the operator
        if spec.get(key) not in (None, "", "Normal", {}):
            findings.warn(f"spec.{key}", "is ignored: it configures OpenShift's operator", LOW)


def _evictions(draft: PolicyDraft, spec: Mapping[str, Any], profiles: list[str]) -> None:
    virtual = bool(_virtual(profiles))
    limits = _limits(spec, profiles)
    for key, ours in (("total", "limits.perCycle"), ("node", "limits.perNode")):
        if key in limits:
            draft.put(ours, limits[key], f"spec.evictionLimits.{key}")
    if virtual or "EvictPodsWithLocalStorage" in profiles:
        draft.add("protections.disabled", "PodsWithLocalStorage", "spec.profiles")
    if not virtual and "EvictPodsWithPVC" not in profiles:
        draft.add("protections.extra", "PodsWithPVC", "spec.profiles")
    if virtual:
        draft.put("protections.noEvictionPolicy", "Mandatory", "spec.profiles")
        draft.put("nodeSelector", {"matchLabels": {"kubevirt.io/schedulable": "true"}}, "spec.profiles")


def _limits(spec: Mapping[str, Any], profiles: list[str]) -> dict[str, Any]:
    """Return ``spec.evictionLimits`` with the defaults of the profile for virtual machines."""
    given = mapping(spec.get("evictionLimits"), "spec.evictionLimits", ImportFindings())
    return {**({"total": 5, "node": 2} if _virtual(profiles) else {}), **given}


def _customized(draft: PolicyDraft, custom: Mapping[str, Any], findings: ImportFindings) -> None:
    place = "spec.profileCustomizations"
    for key, ours in (("thresholdPriority", "value"), ("thresholdPriorityClassName", "name")):
        if custom.get(key) not in (None, ""):
            draft.put(f"priorityThreshold.{ours}", custom[key], f"{place}.{key}")
            draft.origins["spec.priorityThreshold"] = f"{place}.{key}"
    _namespaces(draft, custom.get("namespaces") or {}, f"{place}.namespaces", findings)
    if "devEnableEvictionsInBackground" in custom:
        # trimtab always does this: an eviction that a webhook takes over is observed until it ends.
        is_true(custom["devEnableEvictionsInBackground"], f"{place}.devEnableEvictionsInBackground", findings)
    key = "devEnableSoftTainter"  # the operator's Go type writes it into every object with profileCustomizations
    if key in custom and is_true(custom[key], f"{place}.{key}", findings):
        findings.warn(f"{place}.{key}", "is ignored: trimtab adds no taints to overutilized nodes")
    for key in ("devMigrationCooldown", "devMaxMigrationCooldown", "devMigrationHistoryWindow"):
        if key in custom:
            message = "is ignored: spec.cooldown configures how long trimtab evicts no pods of an owner"
            findings.warn(f"{place}.{key}", message)


def _namespaces(draft: PolicyDraft, given: Mapping[str, Any], place: str, findings: ImportFindings) -> None:
    included, excluded = given.get("included") or [], given.get("excluded") or []
    for key, names in (("included", included), ("excluded", excluded)):
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            findings.error(f"{place}.{key}", "must be a list of namespaces")
            return
    if included:
        own = [
            name
            for name in included
            if name.startswith(SYSTEM_NAMESPACE_PREFIXES) or name in {*SYSTEM_NAMESPACES, "hypershift"}
        ]
        if own:
            findings.error(f"{place}.included", f"{', '.join(own)}: system namespaces are protected")
        draft.put("namespaces.include", included, f"{place}.included")
    if excluded or not included:
        everywhere = ["hypershift"] if not included else []  # kube-* and openshift-* are protected by default
        draft.put("namespaces.exclude", list(dict.fromkeys((*excluded, *everywhere))), f"{place}.excluded")


def _strategy_draft(
    name: str,
    profiles: list[str],
    spec: Mapping[str, Any],
    custom: Mapping[str, Any],
    findings: ImportFindings,
) -> StrategyDraft:
    """Return a strategy with the arguments that its profiles and ``profileCustomizations`` configure."""
    place = "spec.profileCustomizations"
    strategy = StrategyDraft(name=name, place="spec.profiles")
    args: dict[str, Any] = {}
    match name:
        case "RemovePodsViolatingNodeAffinity":
            args = {"nodeAffinityType": [REQUIRED]}
        case "RemovePodsViolatingTopologySpreadConstraint":
            soft = "SoftTopologyAndDuplicates" in profiles
            args = {"constraints": ["DoNotSchedule", "ScheduleAnyway"] if soft else ["DoNotSchedule"]}
        case "PodLifeTime":
            given = custom.get("podLifetime")
            age = None if given is None else duration_of_go(given, f"{place}.podLifetime", findings)
            args = {"maxPodLifeTimeSeconds": _DAY if age is None else parse_duration(age)}
        case "RemovePodsHavingTooManyRestarts":
            args = {"podRestartThreshold": _RESTARTS, "includingInitContainers": True}
        case "LowNodeUtilization":
            args = _low_utilization(custom, bool(_virtual(profiles)), findings)
            node = _limits(spec, profiles).get("node")
            if node is not None:
                args["evictionLimits"] = {"node": node}
        case "HighNodeUtilization":
            key = "devHighNodeUtilizationThresholds"
            share = _named_value(custom, key, _HIGH, "", findings)
            args = {"thresholds": dict.fromkeys(_RESOURCES, share)}
    for key, value in args.items():
        strategy.take(key, value, "spec.profiles", findings)
    return strategy


def _low_utilization(custom: Mapping[str, Any], virtual: bool, findings: ImportFindings) -> dict[str, Any]:
    """Return the arguments of LowNodeUtilization.

    Only the profile for virtual machines uses deviation thresholds. By default, it has a query, too.
    """
    place = "spec.profileCustomizations"
    deviation, static = "devDeviationThresholds", "devLowNodeUtilizationThresholds"
    query = custom.get("devActualUtilizationProfile") or (COMBINED if virtual else None)
    words, default, key = _LOW, "Medium", static
    if not virtual and custom.get(deviation) not in (None, ""):
        findings.warn(
            f"{place}.{deviation}", "is ignored, as in OpenShift: only KubeVirtRelieveAndMigrate uses it", LOW
        )
    elif virtual and deviation in custom and static in custom:
        findings.error(f"{place}.{deviation}", f"and {static} cannot be given together")
    elif virtual and (deviation in custom or static not in custom):
        words, default, key = _DEVIATION, "AsymmetricLow", deviation
    low, high = _named_value(custom, key, words, default, findings)
    metrics: dict[str, Any] = {}
    resources: tuple[str, ...] = _RESOURCES
    if query:
        metrics, resources = queried(query, f"{place}.devActualUtilizationProfile", findings), MEASURED
    args: dict[str, Any] = {"metricsUtilization": metrics} if metrics else {}
    args |= {"thresholds": dict.fromkeys(resources, low), "targetThresholds": dict.fromkeys(resources, high)}
    # An empty value for the virtual machines' profile means deviation thresholds with the static numbers, as upstream.
    return {**args, "useDeviationThresholds": True} if virtual and not custom.get(static) else args


def _named_value(
    custom: Mapping[str, Any], key: str, words: Mapping[str, Any], default: str, findings: ImportFindings
) -> Any:
    """Return the numbers that a value such as Medium stands for; those of ``default`` if it is unset or invalid."""
    word = custom.get(key)
    if isinstance(word, str) and word in words:
        return words[word]
    if word is not None:
        allowed = " or ".join(each for each in words if each)
        findings.error(f"spec.profileCustomizations.{key}", f"must be {allowed}, not {word!r}")
    return words[default]
