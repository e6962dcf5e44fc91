"""``descheduler/v1alpha1``: the file of OpenShift 3.11's descheduler and of the descheduler project up to v0.30.

Its ``strategies`` are taken as they stand: trimtab's kind has them from there. What differs: a strategy without
``enabled`` is off; what every strategy may narrow down for itself (namespaces, labels, priority) trimtab has once for a
policy, so that strategies that differ in it become several policies; ``weight`` never had an effect.

Fields: kubernetes-sigs/descheduler, pkg/api/v1alpha1, v0.6 to v0.30; what the nested parameters are called in v1alpha2
is from strategymigration.go of v0.29.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trimtab.api.check import unknown_key
from trimtab.api.decode import describe
from trimtab.api.descheduler_policy import KIND
from trimtab.api.strategies import STRATEGIES
from trimtab.descheduling.imports.catalogue import PLUGINS, SCOPE, Places
from trimtab.descheduling.imports.draft import Draft, Findings, Imported, object_name, of_format
from trimtab.descheduling.imports.evictor import FLAGS, PLACE_FIRST, take_flag
from trimtab.descheduling.imports.fields import LIMITS, is_true, take_limit, take_node_selector
from trimtab.descheduling.imports.strategies import Asked, drafts, finish, mapping

FOREIGN_VERSION: Final = "descheduler/v1alpha1"
DEFAULT_NAME: Final = "default"
"""What an imported policy is called: the format knows no names."""

_THRESHOLDS: Final = "nodeResourceUtilizationThresholds"
_PRIORITY: Final = {"thresholdPriority": "value", "thresholdPriorityClassName": "name"}
_COMMON: Final = (*SCOPE, *_PRIORITY, "nodeFit")
_FLAGS: Final = ("evictLocalStoragePods", "evictSystemCriticalPods", "evictFailedBarePods", "ignorePvcPods")
_TOP: Final = ("apiVersion", "kind", "strategies", "nodeSelector", *_FLAGS, *LIMITS)

_FLAT: Final[Mapping[str, tuple[str, ...]]] = {
    "RemovePodsViolatingNodeAffinity": ("nodeAffinityType",),
    "RemovePodsViolatingNodeTaints": ("includePreferNoSchedule", "excludedTaints"),
    "RemovePodsViolatingTopologySpreadConstraint": ("includeSoftConstraints",),
}
"""Parameters that stand in ``params`` itself."""

_NESTED: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "LowNodeUtilization": (
        _THRESHOLDS,
        ("useDeviationThresholds", "thresholds", "targetThresholds", "numberOfNodes"),
    ),
    "HighNodeUtilization": (_THRESHOLDS, ("thresholds", "numberOfNodes")),
    "RemoveDuplicates": ("removeDuplicates", ("excludeOwnerKinds",)),
    "RemovePodsHavingTooManyRestarts": (
        "podsHavingTooManyRestarts",
        ("podRestartThreshold", "includingInitContainers"),
    ),
    "PodLifeTime": ("podLifeTime", ("maxPodLifeTimeSeconds", "states", "podStatusPhases")),
    "RemoveFailedPods": (
        "failedPods",
        ("excludeOwnerKinds", "minPodLifetimeSeconds", "reasons", "includingInitContainers"),
    ),
}
"""Parameters that stand one deeper, and where."""

_PLACES: Final = Places(
    {
        "the top of the file": _TOP[3:],
        "the params of a strategy": _COMMON,
        **{f"params.{nest} of {name}": keys for name, (nest, keys) in _NESTED.items()},
    },
    owned={**_FLAT, **{name: (nest,) for name, (nest, _) in _NESTED.items()}},
    owned_at="the params of {}",
    renamed={
        "profiles": "it is descheduler/v1alpha2's: change apiVersion, or list the strategies under strategies",
        "priorityThreshold": "it is descheduler/v1alpha2's; here it is thresholdPriority or "
        "thresholdPriorityClassName in the params of a strategy",
        "minReplicas": "it is descheduler/v1alpha2's; add protections: {minReplicas: …} after converting",
        "minPodAge": "it is descheduler/v1alpha2's; add protections: {minPodAge: …} after converting",
        "constraints": "it is descheduler/v1alpha2's; here it is includeSoftConstraints: true",
    },
)


def import_policy(data: object, *, source: str = "") -> Imported:
    """A v1alpha1 policy as a DeschedulerPolicy in mode Simulate, or several where its strategies differ in scope.

    Args:
        data: what JSON or YAML gave.
        source: where it came from, for messages.

    Raises:
        InvalidObject: with everything that is wrong, or that trimtab cannot do and must not leave out, under the
            document's own names.
    """
    data = of_format(data, KIND, FOREIGN_VERSION, source=source)
    described = describe(data)
    findings = Findings()
    common = _top(data, findings)
    strategies = data.get("strategies")
    asked = []
    if isinstance(strategies, Mapping):
        for name, strategy in strategies.items():
            asked += _strategy(str(name), strategy, f"strategies.{name}", findings)
        if not asked and not findings.errors:
            findings.error("strategies", f"must have at least one of {', '.join(STRATEGIES)}")
    else:
        findings.error("strategies", "must be a mapping of strategies")
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    base = (object_name(name) if isinstance(name, str) else "") or DEFAULT_NAME
    made = drafts(base, common, asked, place="strategies", findings=findings)
    total = "maxNoOfPodsToEvictTotal" if data.get("maxNoOfPodsToEvictTotal") else ""
    return finish(made if asked else (), findings, source=source, described=described, total=total)


def _top(data: Mapping[Any, Any], findings: Findings) -> Draft:
    draft = Draft()
    for key, value in data.items():
        if key in ("apiVersion", "kind", "metadata", "strategies") or (value is None and key in _TOP):
            continue
        if key in LIMITS:
            take_limit(draft, key, value, key, findings)
        elif key == "nodeSelector":
            take_node_selector(draft, value, key, findings)
        elif key in _FLAGS:
            take_flag(draft, key, value, key, findings)
        elif key in FLAGS:
            findings.error(key, "unknown field; it is descheduler/v1alpha2's, in the args of DefaultEvictor")
        else:
            findings.error(str(key), _PLACES.hint(str(key), _TOP))
    return draft


def _strategy(name: str, given: Any, place: str, findings: Findings) -> list[Asked]:
    if name not in PLUGINS and name not in STRATEGIES:
        findings.error(place, unknown_key(name, tuple(PLUGINS), what="strategy"))
        return []
    strategy = mapping(given, place, findings)
    enabled = "enabled" in strategy and is_true(strategy["enabled"], f"{place}.enabled", findings)
    for key in strategy:
        if key not in ("enabled", "weight", "params"):
            findings.error(f"{place}.{key}", _PLACES.hint(key, ("enabled", "weight", "params")))
    if strategy.get("weight"):
        findings.warn(f"{place}.weight", "has no effect, nor had it ever one")
    here = f"{place}.params"
    asked = Asked(name=name, place=here, enabled=enabled)
    for key, value in mapping(strategy.get("params"), here, findings).items():
        _param(asked, key, value, f"{here}.{key}", findings)
    return [asked]


def _param(asked: Asked, key: str, value: Any, place: str, findings: Findings) -> None:
    nest, inner = _NESTED.get(asked.name, ("", ()))
    if key == nest:
        asked.nest = place
        for name, item in mapping(value, place, findings).items():
            if name in inner:
                _take(asked, name, item, f"{place}.{name}", findings)
            else:
                findings.error(f"{place}.{name}", _PLACES.hint(name, inner))
    elif key in SCOPE or key in _FLAT.get(asked.name, ()):
        _take(asked, key, value, place, findings)
    elif key in _PRIORITY:
        if value != "":
            asked.scope.put(f"priorityThreshold.{_PRIORITY[key]}", value, place)
            asked.scope.origins["spec.priorityThreshold"] = place
    elif key == "nodeFit":
        if not is_true(value, place, findings):
            findings.warn(place, f"has no effect: {PLACE_FIRST}")
    elif value or key not in _ALL_PARAMS:  # what Go writes out for parameters that nobody gave says nothing
        allowed = (*((nest,) if nest else ()), *_FLAT.get(asked.name, ()), *_COMMON)
        findings.error(place, _PLACES.hint(key, allowed))


_ALL_PARAMS: Final = {key for keys in _FLAT.values() for key in keys} | {nest for nest, _ in _NESTED.values()}


def _take(asked: Asked, key: str, value: Any, place: str, findings: Findings) -> None:
    """Take a parameter, under the name that it has in v1alpha2."""
    if key == "includeSoftConstraints":
        if is_true(value, place, findings):
            asked.take("constraints", ["DoNotSchedule", "ScheduleAnyway"], place, findings)
    elif key == "podStatusPhases" and isinstance(value, list):
        asked.take("states", [*value, *asked.args.get("states", ())], place, findings)
    elif key == "states" and isinstance(value, list):
        asked.take("states", [*asked.args.get("states", ()), *value], place, findings)
    else:
        asked.take("states" if key == "podStatusPhases" else key, value, place, findings)
