"""Converts ``descheduler/v1alpha1``, the format of OpenShift 3.11 and of the upstream descheduler up to v0.30.

trimtab's strategies and parameters have the same names as in this format. A strategy without ``enabled`` is disabled.
Namespaces, labels and priority are set per strategy in this format and per policy in trimtab, so strategies that differ
in them become several policies. ``weight`` is ignored, because it never had an effect.

Upstream decodes the whole file without strictness, so unknown keys are warnings. Unknown strategies prevent its start.

Fields: kubernetes-sigs/descheduler, pkg/api/v1alpha1, v0.6 to v0.30; the v1alpha2 names of nested parameters are those
of strategymigration.go of v0.29.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trimtab.api.decode import describe
from trimtab.api.descheduler_policy import KIND
from trimtab.api.differences import LOW
from trimtab.api.schema import unknown_key
from trimtab.api.strategies import STRATEGIES
from trimtab.descheduling.imports.draft import (
    LIMITS,
    ImportFindings,
    ImportResult,
    PolicyDraft,
    is_true,
    object_name,
    of_format,
    take_limit,
    take_node_selector,
)
from trimtab.descheduling.imports.strategy_mapping import (
    FLAGS,
    PLACE_FIRST,
    PLUGINS,
    SCOPE,
    KnownFields,
    Shape,
    StrategyDraft,
    drafts,
    finish,
    mapping,
    take_flag,
)

FOREIGN_VERSION: Final = "descheduler/v1alpha1"
DEFAULT_NAME: Final = "default"
"""Name of a converted policy, because documents in this format have no name."""

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
"""Maps strategies to their parameters that are directly under ``params``."""

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
"""Maps strategies to the key of a nested object under ``params`` and the parameters that it contains."""

_SHAPES: Final[Mapping[str, Shape]] = {
    "namespaces": {"include": None, "exclude": None},
    "labelSelector": {"matchLabels": None, "matchExpressions": [{"key": None, "operator": None, "values": None}]},
}
"""The shapes of the parameters in :data:`SCOPE`."""

_PLACES: Final = KnownFields(
    {
        "the top of the file": _TOP[3:],
        "the params of a strategy": _COMMON,
        **{f"params.{nest} of {name}": keys for name, (nest, keys) in _NESTED.items()},
    },
    owned={**_FLAT, **{name: (nest,) for name, (nest, _) in _NESTED.items()}},
    owned_at="the params of {}",
    renamed={
        "profiles": "it belongs to descheduler/v1alpha2: change apiVersion, or list the strategies under strategies",
        "priorityThreshold": "it belongs to descheduler/v1alpha2; here it is thresholdPriority or "
        "thresholdPriorityClassName in the params of a strategy",
        "minReplicas": "it belongs to descheduler/v1alpha2; add protections: {minReplicas: …} after converting",
        "minPodAge": "it belongs to descheduler/v1alpha2; add protections: {minPodAge: …} after converting",
        "evictableNamespaces": "it belongs to descheduler/v1alpha2; here it is namespaces in the params of the "
        "strategy",
        "spec": "a policy has no spec: move its fields to the top of the file",
        "constraints": "it belongs to descheduler/v1alpha2; here it is includeSoftConstraints: true",
    },
)


def import_policy(data: object, *, source: str = "") -> ImportResult:
    """Convert a v1alpha1 policy to DeschedulerPolicies in Simulate mode, one per scope of its strategies.

    Args:
        data: the document as plain data.
        source: name of the document's source, for messages.

    Raises:
        InvalidObject: the document is invalid, or has fields that have no equivalent and must not be ignored. Errors
            use the document's own field names.
    """
    data = of_format(data, KIND, FOREIGN_VERSION, source=source)
    described = describe(data)
    findings = ImportFindings()
    common = _top(data, findings)
    strategies = data.get("strategies")
    strategy_drafts = []
    if isinstance(strategies, Mapping):
        for name, strategy in strategies.items():
            strategy_drafts += _strategy(str(name), strategy, f"strategies.{name}", findings)
        if not strategy_drafts and not findings.errors:
            findings.error("strategies", f"must have at least one of {', '.join(STRATEGIES)}")
    else:
        findings.error("strategies", "must be a mapping of strategies")
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    base = (object_name(name) if isinstance(name, str) else "") or DEFAULT_NAME
    made = drafts(base, common, strategy_drafts, place="strategies", findings=findings)
    total = "maxNoOfPodsToEvictTotal" if data.get("maxNoOfPodsToEvictTotal") else ""
    return finish(made if strategy_drafts else (), findings, source=source, described=described, total=total)


def _top(data: Mapping[Any, Any], findings: ImportFindings) -> PolicyDraft:
    draft = PolicyDraft()
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
            findings.drop(key, "unknown field; it belongs to descheduler/v1alpha2, in the args of DefaultEvictor")
        else:
            findings.drop(str(key), _PLACES.hint(str(key), _TOP))
    return draft


def _strategy(name: str, given: Any, place: str, findings: ImportFindings) -> list[StrategyDraft]:
    if name not in PLUGINS and name not in STRATEGIES:
        findings.error(place, unknown_key(name, tuple(PLUGINS), what="strategy"))
        return []
    strategy = mapping(given, place, findings)
    enabled = "enabled" in strategy and is_true(strategy["enabled"], f"{place}.enabled", findings)
    for key in strategy:
        if key not in ("enabled", "weight", "params"):
            findings.drop(f"{place}.{key}", _PLACES.hint(key, ("enabled", "weight", "params")))
    if strategy.get("weight"):
        findings.warn(f"{place}.weight", "has no effect, as in the descheduler project", LOW)
    here = f"{place}.params"
    strategy_draft = StrategyDraft(name=name, place=here, enabled=enabled)
    for key, value in mapping(strategy.get("params"), here, findings).items():
        _param(strategy_draft, key, value, f"{here}.{key}", findings)
    return [strategy_draft]


def _param(strategy_draft: StrategyDraft, key: str, value: Any, place: str, findings: ImportFindings) -> None:
    nest, inner = _NESTED.get(strategy_draft.name, ("", ()))
    if key == nest:
        strategy_draft.nest = place
        given = _PLACES.known_part(mapping(value, place, findings), dict.fromkeys(inner), place, findings)
        for name, item in given.items():
            _take(strategy_draft, name, item, f"{place}.{name}", findings)
    elif key in SCOPE or key in _FLAT.get(strategy_draft.name, ()):
        _take(strategy_draft, key, _PLACES.known_part(value, _SHAPES.get(key), place, findings), place, findings)
    elif key in _PRIORITY:
        if value != "":
            strategy_draft.scope.put(f"priorityThreshold.{_PRIORITY[key]}", value, place)
            strategy_draft.scope.origins["spec.priorityThreshold"] = place
    elif key == "nodeFit":
        if not is_true(value, place, findings):
            findings.warn(place, f"has no effect: {PLACE_FIRST}")
    elif value or key not in _ALL_PARAMS:  # Go writes empty values for unset parameters
        allowed = (*((nest,) if nest else ()), *_FLAT.get(strategy_draft.name, ()), *_COMMON)
        findings.drop(place, _PLACES.hint(key, allowed))


_ALL_PARAMS: Final = {key for keys in _FLAT.values() for key in keys} | {nest for nest, _ in _NESTED.values()}


def _take(strategy_draft: StrategyDraft, key: str, value: Any, place: str, findings: ImportFindings) -> None:
    """Add a parameter to the strategy under its v1alpha2 name."""
    if key == "includeSoftConstraints":
        if is_true(value, place, findings):
            strategy_draft.take("constraints", ["DoNotSchedule", "ScheduleAnyway"], place, findings)
    elif key == "podStatusPhases" and isinstance(value, list):
        strategy_draft.take("states", [*value, *strategy_draft.args.get("states", ())], place, findings)
    elif key == "states" and isinstance(value, list):
        strategy_draft.take("states", [*strategy_draft.args.get("states", ()), *value], place, findings)
    else:
        strategy_draft.take("states" if key == "podStatusPhases" else key, value, place, findings)
