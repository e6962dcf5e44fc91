"""Maps strategies, DefaultEvictor and metrics of the upstream descheduler to a DeschedulerPolicy.

Upstream silently drops unknown and misplaced keys outside of ``args`` (its issues #1627 and #1704), so users notice
them only after pods have been evicted by mistake. Here every such key is a warning whose message names the correct
place. In ``args``, which upstream decodes strictly, it is an error. In upstream's
formats each strategy has its own namespaces and labels. A trimtab policy has one scope for all of its strategies, so
strategies with the same scope share a policy and others become separate policies. Protections that DefaultEvictor can
disable but trimtab cannot (critical pods, DaemonSet pods) cause a warning, because the effect is only that fewer pods
are evicted. Protections that DefaultEvictor adds are converted or cause an error.

Names: kubernetes-sigs/descheduler v0.36, pkg/api/v1alpha2 (including ``MetricsProvider``) and the plugins'
``types.go``; for v1alpha1, the releases v0.6 to v0.30. Queries of OpenShift's ``devActualUtilizationProfile``:
openshift/cluster-kube-descheduler-operator (2026-06, pkg/operator/target_config_reconciler.go).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from msgspec import Struct, field

from trimtab.api.decode import InvalidObject
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.differences import HIGH
from trimtab.api.schema import FieldError, join_path, structural_schema, unknown_key
from trimtab.api.strategies import KUBERNETES_METRICS, METRIC_RESOURCE, PROMETHEUS, Strategies
from trimtab.api.strategies.utilization import SOURCES
from trimtab.descheduling.imports.draft import (
    ImportFindings,
    ImportResult,
    PolicyDraft,
    all_of,
    duration_of_go,
    is_true,
    object_name,
    selector_of_text,
    take_scope,
    take_selector,
    without_nulls,
)

Names = tuple[str, ...]
Shape = Mapping[str, Any] | list[Any] | None
"""The expected shape of a value: a mapping of known keys, a list of items of one shape, or ``None`` for any value."""

EVICTOR: Final = "DefaultEvictor"
DESCHEDULE: Final = "deschedule"
BALANCE: Final = "balance"

PLUGINS: Final[Mapping[str, str]] = {
    "RemoveDuplicates": BALANCE,
    "LowNodeUtilization": BALANCE,
    "HighNodeUtilization": BALANCE,
    "RemovePodsViolatingInterPodAntiAffinity": DESCHEDULE,
    "RemovePodsViolatingNodeAffinity": DESCHEDULE,
    "RemovePodsViolatingNodeTaints": DESCHEDULE,
    "RemovePodsViolatingTopologySpreadConstraint": BALANCE,
    "RemovePodsHavingTooManyRestarts": DESCHEDULE,
    "PodLifeTime": DESCHEDULE,
    "RemoveFailedPods": DESCHEDULE,
}
"""Maps upstream's strategies to their extension points."""

SCOPE: Final = ("namespaces", "labelSelector")
"""Arguments of strategies that are converted to the policy's scope."""

_UTILIZATION: Final = ("thresholds", "numberOfNodes", "evictableNamespaces")
ARGS: Final[Mapping[str, Names]] = {
    "RemoveDuplicates": ("namespaces", "excludeOwnerKinds"),
    "LowNodeUtilization": (
        *_UTILIZATION,
        "useDeviationThresholds",
        "targetThresholds",
        "metricsUtilization",
        "evictionLimits",
    ),
    "HighNodeUtilization": (*_UTILIZATION, "evictionModes"),
    "RemovePodsViolatingInterPodAntiAffinity": SCOPE,
    "RemovePodsViolatingNodeAffinity": (*SCOPE, "nodeAffinityType"),
    "RemovePodsViolatingNodeTaints": (*SCOPE, "includePreferNoSchedule", "excludedTaints", "includedTaints"),
    "RemovePodsViolatingTopologySpreadConstraint": (*SCOPE, "constraints", "topologyBalanceNodeFit"),
    "RemovePodsHavingTooManyRestarts": (*SCOPE, "podRestartThreshold", "includingInitContainers", "states"),
    "PodLifeTime": (
        *SCOPE,
        "maxPodLifeTimeSeconds",
        "states",
        "conditions",
        "exitCodes",
        "ownerKinds",
        "includingInitContainers",
        "includingEphemeralContainers",
    ),
    "RemoveFailedPods": (
        *SCOPE,
        "reasons",
        "exitCodes",
        "minPodLifetimeSeconds",
        "excludeOwnerKinds",
        "includingInitContainers",
    ),
}
"""Maps each strategy to the names of its arguments in v1alpha2."""

EVICTOR_SHAPE: Final[Mapping[str, Shape]] = {
    "nodeSelector": None,
    "labelSelector": None,
    "namespaceLabelSelector": None,
    "priorityThreshold": {"value": None, "name": None},
    "nodeFit": None,
    "minReplicas": None,
    "minPodAge": None,
    "noEvictionPolicy": None,
    "podProtections": {
        "defaultDisabled": None,
        "extraEnabled": None,
        "config": {"PodsWithPVC": {"protectedStorageClasses": [{"name": None}]}},
    },
    "evictLocalStoragePods": None,
    "evictDaemonSetPods": None,
    "evictSystemCriticalPods": None,
    "evictFailedBarePods": None,
    "ignorePvcPods": None,
    "ignorePodsWithoutPDB": None,
}
"""The arguments of DefaultEvictor and their shapes."""


@cache
def own_params(strategy: str) -> dict[str, str]:
    """Return a mapping of the names of a strategy's parameters in trimtab to their paths under ``params``.

    For example, ``thresholds`` of LowNodeUtilization is at ``nodeResourceUtilizationThresholds.thresholds``. The
    mapping is derived from the API types, so imported policies may also use parameters that only trimtab has. It is
    cached, so callers must not change it.
    """
    schema = structural_schema(Strategies)["properties"].get(strategy)
    found: dict[str, str] = {}
    for name, value in (schema or {}).get("properties", {}).get("params", {}).get("properties", {}).items():
        inner = value.get("properties", {})
        if name in ARGS.get(strategy, ()) or not inner:
            found[name] = name
        else:  # v1alpha1 nests these parameters, v1alpha2 does not
            found |= {key: f"{name}.{key}" for key in inner}
    return found


class UnknownField(FieldError, frozen=True):
    """Marks a key that the format does not have in this place."""


class WrongType(FieldError, frozen=True):
    """Marks a value of the wrong type, whose contents cannot be checked."""


class KnownFields:
    """The known keys of a format and their places, for error messages.

    Args:
        places: maps the description of each place to the keys that are valid there.
        owned: maps each strategy or plugin to its keys.
        owned_at: description of the place of these keys, in which ``{}`` stands for the names of the strategies or
            plugins.
        renamed: maps keys of other versions of the format to their error messages.
    """

    def __init__(
        self,
        places: Mapping[str, Iterable[str]],
        *,
        owned: Mapping[str, Iterable[str]],
        owned_at: str,
        renamed: Mapping[str, str],
    ) -> None:
        self._of: dict[str, list[str]] = {}
        self._owners: dict[str, list[str]] = {}
        for found, named in ((self._of, places), (self._owners, owned)):
            for place, keys in named.items():
                for key in keys:
                    found.setdefault(key, []).append(place)
        self._owned_at = owned_at
        self._renamed = renamed

    def hint(self, key: str, allowed: Names) -> str:
        """Return the error message for a key that is not valid in its place."""
        if key in self._renamed:
            return f"unknown field; {self._renamed[key]}"
        if home := self._home(key):
            return f"unknown field here; {key} belongs to {home}"
        message = unknown_key(key, allowed)
        if "did you mean" in message:
            return message
        near = difflib.get_close_matches(key, [*self._of, *self._owners], n=1, cutoff=0.8)
        if near:
            return f"unknown field; did you mean {near[0]}, which belongs to {self._home(near[0])}?"
        return message

    def known_part(self, value: Any, shape: Shape, field: str, findings: ImportFindings) -> Any:
        """Return a value without unknown keys, which are recorded as dropped. Other invalid values stay as they are."""
        if isinstance(shape, list) and isinstance(value, list):
            return [self.known_part(item, shape[0], f"{field}[{index}]", findings) for index, item in enumerate(value)]
        if not isinstance(shape, Mapping) or not isinstance(value, Mapping):
            return value
        known = {}
        for key, item in value.items():
            place = join_path(field, str(key))
            if key in shape:
                known[key] = self.known_part(item, shape[key], place, findings)
            else:
                findings.drop(place, self.hint(str(key), tuple(shape)))
        return known

    def _home(self, key: str) -> str:
        owners = self._owners.get(key, [])
        owned = [self._owned_at.format(_one_of_places(owners))] if owners else []
        return _one_of_places([*self._of.get(key, ()), *owned])

    def check(self, value: Any, shape: Shape, field: str) -> list[FieldError]:
        """Return an error for every unknown key in a value and for every value of the wrong type."""
        if shape is None or value is None:
            return []
        if isinstance(shape, list):
            if not isinstance(value, list):
                return [WrongType(field, "must be a list")]
            return [
                each for index, item in enumerate(value) for each in self.check(item, shape[0], f"{field}[{index}]")
            ]
        if not isinstance(value, Mapping):
            return [WrongType(field, f"must be a mapping with {', '.join(shape)}")]
        errors: list[FieldError] = []
        for key, item in value.items():
            place = join_path(field, str(key))
            if key in shape:
                errors += self.check(item, shape[key], place)
            else:
                errors.append(UnknownField(place, self.hint(str(key), tuple(shape))))
        return errors


def _one_of_places(places: list[str]) -> str:
    shown = places if len(places) <= 4 else [*places[:3], f"{len(places) - 3} others"]
    return f"{', '.join(shown[:-1])} or {shown[-1]}" if len(shown) > 1 else "".join(shown)


class StrategyDraft(Struct, kw_only=True):
    """One strategy with the arguments that the document configures.

    Attributes:
        name: the strategy's name.
        place: the path of the strategy's arguments in the document.
        nest: the path in the document of the arguments that are nested one level deeper in trimtab.
        args: the arguments by their v1alpha2 names, not including those in :data:`SCOPE`.
        places: the path of each argument in the document.
        scope: the draft of a policy, which contains only the strategy's scope.
        enabled: whether the strategy is enabled.
    """

    name: str
    place: str
    nest: str = ""
    args: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    scope: PolicyDraft = field(default_factory=PolicyDraft)
    enabled: bool = True

    def take(self, key: str, value: Any, place: str, findings: ImportFindings) -> None:
        """Add an argument to the strategy or to its scope."""
        value = without_nulls(value)
        if key in SCOPE:
            take_scope(self.scope, key, value, place, findings)
        else:
            self.args[key] = value
            self.places[key] = place

    def put(self, draft: PolicyDraft) -> None:
        """Add the strategy and its arguments to a draft."""
        path = f"strategies.{self.name}"
        draft.put(f"{path}.enabled", self.enabled, f"{self.place}.enabled")
        draft.origins[f"spec.{path}.params"] = self.place
        own = own_params(self.name)
        for key, value in self.args.items():
            nest, dot, _ = own[key].rpartition(".")
            if dot:  # errors of the nested object are reported at the path of the arguments
                draft.origins[f"spec.{path}.params.{nest}"] = self.nest or self.place
            draft.put(f"{path}.params.{own[key]}", value, self.places[key])


def drafts(
    base: str, common: PolicyDraft, strategies: Sequence[StrategyDraft], *, place: str, findings: ImportFindings
) -> list[tuple[str, PolicyDraft]]:
    """Group strategies by scope, and return the name and the draft of one policy per scope.

    Args:
        base: the name of the policy; if there are several policies, the prefix of their names.
        common: the fields that all policies share.
        strategies: the strategies. Disabled ones are added to the first policy.
        place: the path of the strategies in the document, for the warning if there are several policies.
        findings: collects errors and warnings.
    """
    groups: dict[object, list[StrategyDraft]] = {}
    running = [each for each in strategies if each.enabled]
    for each in running:
        groups.setdefault(_comparable(each.scope.spec), []).append(each)
    members = list(groups.values()) or [[]]
    members[0] = [*members[0], *(each for each in strategies if not each.enabled)]
    made = []
    for group in members:
        name = base if len(members) == 1 else f"{base}-{object_name(group[0].name)}"
        draft = common.joined(group[0].scope) if running else common.joined(PolicyDraft())
        draft.origins["spec.strategies"] = place
        for each in group:
            each.put(draft)
        made.append((name, draft))
    if len(made) > 1:
        names = ", ".join(name for name, _ in made)
        findings.warn(
            place,
            "its strategies apply to different pods, and a policy has one scope: it becomes the "
            f"{len(made)} policies {names}",
        )
    return made


def _comparable(value: Any) -> object:
    """Convert a value of any type that YAML can represent to a hashable key."""
    if isinstance(value, Mapping):
        return frozenset((str(key), _comparable(item)) for key, item in value.items())
    if isinstance(value, list):
        return tuple(_comparable(item) for item in value)
    return repr(value)


def finish(
    made: Sequence[tuple[str, PolicyDraft]], findings: ImportFindings, *, source: str, described: str, total: str
) -> ImportResult:
    """Convert all drafts of a document to policies.

    Args:
        made: the name and the draft of each policy.
        findings: the errors and warnings found so far. More are added.
        source: name of the document's source, for messages.
        described: the document's kind and name, for messages.
        total: name of the document's field that limits all evictions of a cycle; ``""`` if it is unset.

    Raises:
        InvalidObject: the document is invalid.
    """
    done: list[tuple[DeschedulerPolicy, dict[str, Any]]] = []
    for name, draft in made:
        if len(made) > 1 and total:
            message = f"limited all strategies together; here each of the {len(made)} policies has this limit"
            findings.warn(total, message, HIGH)
        finished = draft.finish(name, findings)
        if finished is not None:
            done.append(finished)
    if findings.errors:
        raise InvalidObject(findings.all_errors(), source=source, object=described)
    policies, documents = zip(*done, strict=True) if done else ((), ())
    return ImportResult(tuple(policies), tuple(documents), tuple(findings.warnings))


def mapping(value: Any, place: str, findings: ImportFindings) -> Mapping[str, Any]:
    """Return a mapping with null values removed.

    The result is empty for null and for a value of another type, which is recorded as an error.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        findings.error(place, "must be a mapping")
        return {}
    return {str(key): item for key, item in value.items() if item is not None}


_STAY: Final = {
    "SystemCriticalPods": "system-critical pods are always protected, and a priority threshold also applies",
    "DaemonSetPods": "DaemonSets' pods stay protected: their replacements would run on the same node",
}
DISABLED: Final = ("PodsWithLocalStorage", "SystemCriticalPods", "FailedBarePods", "DaemonSetPods")
EXTRA: Final = ("PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims")
FLAGS: Final = {
    "evictLocalStoragePods": "PodsWithLocalStorage",
    "evictDaemonSetPods": "DaemonSetPods",
    "evictSystemCriticalPods": "SystemCriticalPods",
    "evictFailedBarePods": "FailedBarePods",
    "ignorePvcPods": "PodsWithPVC",
    "ignorePodsWithoutPDB": "PodsWithoutPDB",
}
"""Maps older boolean fields to the protections that they disable (``evict…``) or add (``ignore…``)."""

PLACE_FIRST: Final = "trimtab always finds a node that can run a pod before it evicts the pod"


def take_evictor(draft: PolicyDraft, args: Mapping[str, Any], place: str, findings: ImportFindings) -> None:
    """Convert DefaultEvictor's arguments and add them to the draft. Their keys must have been checked."""
    flags = [key for key in FLAGS if args.get(key) is True]
    protections = args.get("podProtections", {})
    if flags and any(protections.get(key) for key in ("extraEnabled", "defaultDisabled")):
        findings.error(f"{place}.{flags[0]}", "cannot be given together with podProtections, which takes its place")
    for key in FLAGS:
        if key in args:
            take_flag(draft, key, args[key], f"{place}.{key}", findings)
    _protections(draft, protections, f"{place}.podProtections", findings)
    _numbers(draft, args, place, findings)
    _selectors(draft, args, place, findings)
    if "nodeFit" in args and not is_true(args["nodeFit"], f"{place}.nodeFit", findings):
        findings.warn(f"{place}.nodeFit", f"has no effect: {PLACE_FIRST}")


def take_flag(draft: PolicyDraft, key: str, value: Any, place: str, findings: ImportFindings) -> None:
    """Convert a boolean field whose key is in :data:`FLAGS`."""
    if is_true(value, place, findings):
        _protection(draft, FLAGS[key], place, findings)


def take_threshold(draft: PolicyDraft, value: Any, place: str) -> None:
    """Convert a priority threshold. It is ignored if it has neither a name nor a value."""
    if isinstance(value, Mapping):
        value = {key: part for key, part in value.items() if part != ""}
    if value != {}:
        draft.put("priorityThreshold", value, place)


def _protection(draft: PolicyDraft, name: str, place: str, findings: ImportFindings) -> None:
    if name in _STAY:
        findings.warn(place, _STAY[name])
    else:
        draft.add("protections.disabled" if name in DISABLED else "protections.extra", name, place)


def _protections(draft: PolicyDraft, given: Mapping[str, Any], place: str, findings: ImportFindings) -> None:
    for key, known in (("defaultDisabled", DISABLED), ("extraEnabled", EXTRA)):
        names = given.get(key, [])
        if not isinstance(names, list):
            findings.error(f"{place}.{key}", "must be a list")
            continue
        for index, name in enumerate(names):
            here = f"{place}.{key}[{index}]"
            if name not in known:
                findings.error(
                    here, _unknown_protection(str(name), known, other=EXTRA if known is DISABLED else DISABLED)
                )
            elif name in names[:index]:
                findings.error(here, f'must not be given twice: "{name}"')
            else:
                _protection(draft, name, here, findings)
    classes = given.get("config", {}).get("PodsWithPVC", {}).get("protectedStorageClasses")
    if classes:
        here = f"{place}.config.PodsWithPVC.protectedStorageClasses"
        if "PodsWithPVC" not in draft.spec.get("protections", {}).get("extra", ()):
            findings.error(here, "narrows PodsWithPVC, which must be in extraEnabled: nothing is protected without it")
        draft.put("protections.protectedStorageClasses", [(each or {}).get("name", "") for each in classes], here)


def _unknown_protection(name: str, known: tuple[str, ...], *, other: tuple[str, ...]) -> str:
    if name in other:
        listed = "extraEnabled" if name in EXTRA else "defaultDisabled"
        return f"unknown protection here; {name} belongs to podProtections.{listed}"
    return unknown_key(name, known, what="protection")


def _numbers(draft: PolicyDraft, args: Mapping[str, Any], place: str, findings: ImportFindings) -> None:
    replicas = args.get("minReplicas", 0)
    if replicas not in (0, 1) or isinstance(replicas, bool):  # upstream ignores values below 2
        draft.put("protections.minReplicas", replicas, f"{place}.minReplicas")
    if "minPodAge" in args:
        age = duration_of_go(args["minPodAge"], f"{place}.minPodAge", findings)
        if age is not None:
            draft.put("protections.minPodAge", age, f"{place}.minPodAge")
    if args.get("noEvictionPolicy", "") != "":
        draft.put("protections.noEvictionPolicy", args["noEvictionPolicy"], f"{place}.noEvictionPolicy")
    if "priorityThreshold" in args:
        take_threshold(draft, args["priorityThreshold"], f"{place}.priorityThreshold")


def _selectors(draft: PolicyDraft, args: Mapping[str, Any], place: str, findings: ImportFindings) -> None:
    for key, part in (("labelSelector", "podSelector"), ("namespaceLabelSelector", "namespaceSelector")):
        take_selector(draft, part, without_nulls(args.get(key, {})), f"{place}.{key}", findings)
    here = f"{place}.nodeSelector"
    own = selector_of_text(args["nodeSelector"], here, findings) if "nodeSelector" in args else {}
    if own:
        whole = draft.spec.get("nodeSelector")
        if own != whole:
            findings.warn(here, "also limits the nodes that pods are evicted from, not only the target nodes")
        draft.put("nodeSelector", own if whole is None else all_of(whole, own), here)


def warn_about_provider(provider: Mapping[str, Any], place: str, findings: ImportFindings) -> None:
    """Add a warning that a metrics provider is configured in the operator and not in a policy."""
    source = provider.get("source")
    if source not in (None, *SOURCES):
        findings.warn(place, f"is ignored: utilization is read from {', '.join(SOURCES)} only", HIGH)
    elif source == PROMETHEUS:
        where = provider.get("prometheus") or {}
        url = f"={where['url']}" if where.get("url") else ""
        whose = "of that Secret" if where.get("authToken") else "of the service account, where it wants one"
        findings.warn(
            place,
            f"is for the operator's settings: --prometheus-url{url} and a --prometheus-token-file with the token "
            f"{whose} (the chart's prometheus.url and prometheus.tokenFile); without them nodes are not measured",
            HIGH,
        )


def metrics_of(value: Any, place: str, findings: ImportFindings) -> Any:
    """Convert ``metricsUtilization``. Its former field ``metricsServer`` becomes the source KubernetesMetrics."""
    if not isinstance(value, Mapping) or "metricsServer" not in value:
        return value
    rest = {key: item for key, item in value.items() if key != "metricsServer"}
    if value["metricsServer"] is None or not is_true(value["metricsServer"], f"{place}.metricsServer", findings):
        return rest
    if rest.get("source"):
        findings.error(f"{place}.metricsServer", "and source cannot be given together")
    return {"source": KUBERNETES_METRICS} | rest


FREE: Final = "query:"
"""Prefix of a profile name that contains a Prometheus query. OpenShift does not document it."""

COMBINED: Final = "PrometheusCPUMemoryCombinedProfile"

_PRESSURE: Final = "rate(node_pressure_{}_waiting_seconds_total[1m])"
_CPU: Final = f"avg by (instance) ({_PRESSURE.format('cpu')})"
QUERIES: Final[Mapping[str, str]] = {
    "PrometheusCPUUsage": "instance:node_cpu:rate:sum",
    "PrometheusCPUPSIPressure": _PRESSURE.format("cpu"),
    "PrometheusCPUPSIPressureByUtilization": (
        f'{_CPU} and (1 - avg by (instance) (rate(node_cpu_seconds_total{{mode="idle"}}[1m]))) > 0.7 or {_CPU} * 0'
    ),
    "PrometheusMemoryPSIPressure": _PRESSURE.format("memory"),
    "PrometheusIOPSIPressure": _PRESSURE.format("io"),
    "PrometheusCPUCombined": "descheduler:combined_utilization_and_pressure:avg1m",
    COMBINED: "descheduler:node:linear_amplified_ideal_point_positive_distance:k3:avg1m",
}
"""Maps the names of profiles to Prometheus queries."""


def queried(profile: Any, place: str, findings: ImportFindings) -> dict[str, Any]:
    """Return the ``metricsUtilization`` of LowNodeUtilization for a profile of ``devActualUtilizationProfile``.

    The result is empty for an invalid profile, which is recorded as an error.

    Args:
        profile: the name of a query, or ``query:`` followed by a query.
        place: the profile's path in the document.
        findings: collects errors and warnings.
    """
    query = profile.removeprefix(FREE) if isinstance(profile, str) and profile.startswith(FREE) else None
    if query is None and isinstance(profile, str):
        query = QUERIES.get(profile)
    if not query:
        findings.error(place, f"must be {', '.join(QUERIES)} or {FREE} and PromQL, not {profile!r}")
        return {}
    message = "the address and a token are the operator's settings: --prometheus-url, --prometheus-token-file"
    if query.startswith("descheduler:"):
        message += "; the query is a recording rule of OpenShift's operator: keep its PrometheusRule descheduler-rules"
    elif profile == "PrometheusCPUUsage":
        message += "; the query gives cores, and values above 1 are not valid: nodes that use more are ignored"
    findings.warn(place, message, HIGH)
    return {"source": PROMETHEUS, "prometheus": {"query": query}}


RESOURCES: Final = (METRIC_RESOURCE,)
"""The resources for which thresholds can be set if a Prometheus query is used."""
