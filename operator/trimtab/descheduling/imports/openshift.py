"""``KubeDescheduler`` of OpenShift (``operator.openshift.io/v1``): profiles by name, with a few numbers to set.

All its profiles share their namespaces, priorities and protections, so that they become one policy. What each profile
enables, and the numbers behind words such as Medium, are those of openshift/cluster-kube-descheduler-operator (2026-06,
pkg/operator/target_config_reconciler.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trimtab.api.check import unknown_key
from trimtab.api.decode import InvalidObject, describe
from trimtab.api.scalars import format_duration, parse_duration
from trimtab.api.strategies import REQUIRED
from trimtab.descheduling.imports.actual_utilization import COMBINED, queried
from trimtab.descheduling.imports.actual_utilization import RESOURCES as MEASURED
from trimtab.descheduling.imports.catalogue import Names, Places, Shape, WrongKind
from trimtab.descheduling.imports.draft import Draft, Findings, Imported, object_name, of_format
from trimtab.descheduling.imports.fields import duration_of_go, is_true
from trimtab.descheduling.imports.strategies import Asked, drafts, finish, mapping
from trimtab.disruption.protections.system_namespace import NAMES, PREFIXES

KIND: Final = "KubeDescheduler"
FOREIGN_VERSION: Final = "operator.openshift.io/v1"
DEFAULT_NAME: Final = "cluster"
"""What the only object of this kind is called."""

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
"""For virtual machines, with protections, limits and nodes of its own; the second is its earlier name."""
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
_PLACES: Final = Places(
    {
        "spec": _SHAPE,
        "spec.profileCustomizations": _CUSTOM,
        "spec.profileCustomizations.namespaces": ("included", "excluded"),
        "spec.evictionLimits": ("total", "node"),
    },
    owned={},
    owned_at="",
    renamed={"strategies": "it is v1beta1's: here spec.profiles enables strategies"},
)


def import_policy(data: object, *, source: str = "") -> Imported:
    """A KubeDescheduler as a DeschedulerPolicy; ``mode: Automatic`` becomes Act, all else Simulate.

    Args:
        data: what JSON or YAML gave.
        source: where it came from, for messages.

    Raises:
        InvalidObject: with everything that is wrong, or that trimtab cannot do and must not leave out.
    """
    data = of_format(data, KIND, FOREIGN_VERSION, source=source)
    described = describe(data)
    findings = Findings()
    findings.errors += _PLACES.check(data.get("spec"), _SHAPE, "spec")
    if any(isinstance(error, WrongKind) for error in findings.errors):
        raise InvalidObject(tuple(findings.errors), source=source, object=described)
    spec = mapping(data.get("spec"), "spec", findings)
    custom = mapping(spec.get("profileCustomizations"), "spec.profileCustomizations", findings)
    profiles = _profiles(spec.get("profiles"), findings)
    draft = Draft()
    _timing(draft, spec, findings)
    _evictions(draft, spec, profiles)
    _customized(draft, custom, findings)
    asked = [_asked(name, profiles, custom, findings) for profile in profiles for name in _PROFILES[profile]]
    if not asked and not findings.errors:
        findings.error("spec.profiles", "enables no strategy: there is nothing to do")
    name = mapping(data.get("metadata"), "metadata", findings).get("name")
    base = (object_name(name) if isinstance(name, str) else "") or DEFAULT_NAME
    made = drafts(base, draft, asked, place="spec.profiles", findings=findings) if asked else ()
    return finish(made, findings, source=source, described=described, total="")


def _profiles(given: Any, findings: Findings) -> list[str]:
    """The profiles that are known, each once."""
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
        told = f"{virtual} has protections and nodes of its own: convert it apart from {', '.join(others)}"
        findings.error("spec.profiles", told)
    return known


def _virtual(profiles: list[str]) -> str:
    """The profile for virtual machines, ``""`` where it is not among them."""
    return next((name for name in profiles if name in _VIRTUAL), "")


def _timing(draft: Draft, spec: Mapping[str, Any], findings: Findings) -> None:
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
        findings.warn(place, "is missing, and OpenShift runs nothing without it; here a cycle starts every 5m")
    elif isinstance(seconds, int) and not isinstance(seconds, bool) and seconds > 0:
        draft.put("interval", format_duration(seconds), place)
    else:
        findings.error(place, "must be a whole number of seconds, at least 1")
    for key in _OF_THE_OPERATOR[:3]:  # the last one is the operator's own
        if spec.get(key) not in (None, "", "Normal", {}):
            findings.warn(f"spec.{key}", "is left out: it is about OpenShift's operator")


def _evictions(draft: Draft, spec: Mapping[str, Any], profiles: list[str]) -> None:
    virtual = bool(_virtual(profiles))
    limits = {"total": 5, "node": 2} if virtual else {}
    limits |= {key: value for key, value in (spec.get("evictionLimits") or {}).items() if value is not None}
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


def _customized(draft: Draft, custom: Mapping[str, Any], findings: Findings) -> None:
    place = "spec.profileCustomizations"
    for key, ours in (("thresholdPriority", "value"), ("thresholdPriorityClassName", "name")):
        if custom.get(key) not in (None, ""):
            draft.put(f"priorityThreshold.{ours}", custom[key], f"{place}.{key}")
            draft.origins["spec.priorityThreshold"] = f"{place}.{key}"
    _namespaces(draft, custom.get("namespaces") or {}, f"{place}.namespaces", findings)
    if "devEnableEvictionsInBackground" in custom:
        # Nothing to switch on: an eviction that a webhook takes over is always watched to its end.
        is_true(custom["devEnableEvictionsInBackground"], f"{place}.devEnableEvictionsInBackground", findings)
    for key in ("devMigrationCooldown", "devMaxMigrationCooldown", "devMigrationHistoryWindow"):
        if key in custom:
            findings.warn(f"{place}.{key}", "is left out: spec.cooldown says how long owners are left alone")


def _namespaces(draft: Draft, given: Mapping[str, Any], place: str, findings: Findings) -> None:
    included, excluded = given.get("included") or [], given.get("excluded") or []
    for key, names in (("included", included), ("excluded", excluded)):
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            findings.error(f"{place}.{key}", "must be a list of namespaces")
            return
    if included:
        own = [name for name in included if name.startswith(PREFIXES) or name in {*NAMES, "hypershift"}]
        if own:
            findings.error(f"{place}.included", f"{', '.join(own)}: the cluster's own namespaces are protected")
        draft.put("namespaces.include", included, f"{place}.included")
    if excluded or not included:
        everywhere = ["hypershift"] if not included else []  # kube-* and openshift-* are protected in any case
        draft.put("namespaces.exclude", list(dict.fromkeys((*excluded, *everywhere))), f"{place}.excluded")


def _asked(name: str, profiles: list[str], custom: Mapping[str, Any], findings: Findings) -> Asked:
    """A strategy as its profile has it."""
    place = "spec.profileCustomizations"
    asked = Asked(name=name, place="spec.profiles")
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
            args = _low(custom, bool(_virtual(profiles)), findings)
        case "HighNodeUtilization":
            key = "devHighNodeUtilizationThresholds"
            share = _word(custom, key, _HIGH, "", findings)
            args = {"thresholds": dict.fromkeys(_RESOURCES, share)}
    for key, value in args.items():
        asked.take(key, value, "spec.profiles", findings)
    return asked


def _low(custom: Mapping[str, Any], virtual: bool, findings: Findings) -> dict[str, Any]:
    if virtual:  # by deviation and by a query, unless it is said otherwise
        marks = ("devDeviationThresholds", "devLowNodeUtilizationThresholds")
        default = {} if any(custom.get(key) for key in marks) else {marks[0]: "AsymmetricLow"}
        given = {key: value for key, value in custom.items() if value not in (None, "")}
        custom = {"devActualUtilizationProfile": COMBINED, **default, **given}
    deviation = custom.get("devDeviationThresholds") not in (None, "")
    key = "devDeviationThresholds" if deviation else "devLowNodeUtilizationThresholds"
    low, high = _word(custom, key, _DEVIATION if deviation else _LOW, "Medium", findings)
    metrics: dict[str, Any] = {}
    resources: tuple[str, ...] = _RESOURCES
    if custom.get("devActualUtilizationProfile"):
        place = "spec.profileCustomizations.devActualUtilizationProfile"
        metrics, resources = queried(custom["devActualUtilizationProfile"], place, findings), MEASURED
    args: dict[str, Any] = {"metricsUtilization": metrics} if metrics else {}
    args |= {"thresholds": dict.fromkeys(resources, low), "targetThresholds": dict.fromkeys(resources, high)}
    return {**args, "useDeviationThresholds": True} if deviation else args


def _word(custom: Mapping[str, Any], key: str, words: Mapping[str, Any], default: str, findings: Findings) -> Any:
    """What a word stands for; that of ``default`` where none is given, and for an error, which is noted."""
    word = custom.get(key)
    if isinstance(word, str) and word in words:
        return words[word]
    if word is not None:
        allowed = " or ".join(each for each in words if each)
        findings.error(f"spec.profileCustomizations.{key}", f"must be {allowed}, not {word!r}")
    return words[default]
