"""Converts scheduler configurations of other programs to SchedulerPolicies.

- The legacy Policy of kube-scheduler and OpenShift 3.11 (``scheduler.json``). Common mistakes are accepted: ``version``
  instead of ``apiVersion``, and a list with one label instead of a label.
- KubeSchedulerConfiguration: each profile becomes a SchedulerPolicy.

Settings without an equivalent are reported as warnings, with their effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from trimtab.api.base import API_VERSION
from trimtab.api.decode import decode_scheduler_policy
from trimtab.api.scheduler_policy import (
    DEFAULT_SCHEDULER,
    KIND,
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    REQUESTED_TO_CAPACITY_RATIO,
    SchedulerPolicy,
)
from trimtab.api.schema import FieldError
from trimtab.kube.errors import InputError
from trimtab.scheduling.profiles import (
    DEFAULT_WEIGHTS,
    FILTER_PLUGINS,
    PREDICATES,
    PRIORITIES,
    SCORE_PLUGINS,
)

LEGACY_KIND: Final = "Policy"
CONFIGURATION: Final = "KubeSchedulerConfiguration"
CONFIGURATION_VERSIONS: Final = tuple(
    f"kubescheduler.config.k8s.io/{version}" for version in ("v1", "v1beta3", "v1beta2", "v1beta1")
)

_NAMES_POLICY: Final = re.compile(r"""\bkind["']?\s*:\s*["']?Policy\b""")
_NAME: Final = "default"


class ImportedScheduler(Struct, frozen=True):
    """The SchedulerPolicies that were read from one document.

    Attributes:
        policies: the decoded and validated policies.
        documents: the same policies as plain data, for ``trimtab convert``.
        warnings: one message for each field that was corrected or ignored.
    """

    policies: tuple[SchedulerPolicy, ...]
    documents: tuple[dict[str, Any], ...]
    warnings: tuple[FieldError, ...] = ()


def configures_scheduler(text: str) -> bool:
    """Return whether a text, which may be invalid, seems to contain a configuration of kube-scheduler."""
    return CONFIGURATION in text or _NAMES_POLICY.search(text) is not None


def read_scheduler(manifest: Mapping[str, Any], *, source: str = "") -> ImportedScheduler | None:
    """Read a scheduler configuration; return ``None`` if the document has another kind.

    Raises:
        InputError: the configuration is invalid or not supported. The message names the field and the allowed values.
    """
    kind, version = manifest.get("kind"), manifest.get("apiVersion")
    if kind == KIND and version == API_VERSION:
        plain = {key: value for key, value in manifest.items() if key != "status"}
        policy = decode_scheduler_policy(manifest, source=source)
        return ImportedScheduler((policy,), (plain,))
    if kind == LEGACY_KIND and version in ("v1", None):
        return _read_legacy(manifest, source)
    if kind == CONFIGURATION and version in CONFIGURATION_VERSIONS:
        return _read_configuration(manifest, source)
    return None


def _made(name: str, spec: dict[str, Any], warnings: Sequence[FieldError], source: str) -> ImportedScheduler:
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}
    policy = decode_scheduler_policy(document, source=source)
    return ImportedScheduler((policy,), (document,), tuple(warnings))


# --- text ---------------------------------------------------------------------------------------------------------

_IS_POLICY: Final = re.compile(r"""^\W*kind["']?\s*:\s*["']?Policy["']?\s*,?\s*$""", re.MULTILINE)
_FRAGMENT: Final = re.compile(r"""\A\s*["']?(?:predicates|priorities)["']?\s*:""")
_KIND_LINE: Final = re.compile(r"""(?m)^\W*kind["']?\s*:""")
_CALLOUT: Final = re.compile(
    r"""(?m)(["'],?|:\s*\d+,?|\b(?:true|false),?|\b(?:serviceAffinity|serviceAntiAffinity|labels):) +\d+ *$"""
)
_MISSING_COMMA: Final = re.compile(r"""("weight"\s*:\s*\d+)(\s*\n\s*")""")
_SCALAR_LINE: Final = re.compile(r"""(?m)^\s*["']?(kind|version|apiVersion)["']?\s*:\s*["']?([\w./]+)["']? *$""")
_JSON_LIST: Final = re.compile(r"""(?m)^\s*"(?:predicates|priorities)"\s*:\s*\[""")


def repair_policy_text(text: str) -> tuple[str, tuple[str, ...]]:
    """Correct a legacy Policy as printed in OpenShift's documentation; return the text and the changes.

    A text that begins with predicates or priorities and has no kind is part of a Policy. Text without a legacy Policy
    is returned unchanged.
    """
    changes = []
    if _FRAGMENT.match(text) and not _KIND_LINE.search(text):
        text = f"kind: Policy\n{text}"
        changes.append("kind is missing; read as Policy")
    if not _IS_POLICY.search(text):
        return text, ()
    if "\u00a0" in text:
        text = text.replace("\u00a0", " ")
        changes.append("non-breaking spaces are read as spaces")
    lines = text.splitlines()
    if any(line.strip() == "..." for line in lines):
        text = "\n".join(line for line in lines if line.strip() != "...")
        changes.append("'...' is ignored: only the rules that are written are used")
    if _CALLOUT.search(text):
        text = _CALLOUT.sub(r"\1", text)
        changes.append("numbers that refer to footnotes are ignored")
    if _JSON_LIST.search(text) and not text.lstrip().startswith("{"):
        text = "{" + _MISSING_COMMA.sub(r"\1,\2", _SCALAR_LINE.sub(r'"\1": "\2",', text)) + "}"
        changes.append("braces and commas are missing and were added")
    return text, tuple(changes)


# --- legacy Policy ------------------------------------------------------------------------------------------------

_POLICY_KEYS: Final = (
    "predicates",
    "priorities",
    "hardPodAffinitySymmetricWeight",
    "alwaysCheckAllPredicates",
)


def _read_legacy(manifest: Mapping[str, Any], source: str) -> ImportedScheduler:
    warnings: list[FieldError] = []
    if "version" in manifest:
        warnings.append(FieldError("version", "read as apiVersion"))
    elif "apiVersion" not in manifest:
        warnings.append(FieldError("apiVersion", "is missing; read as v1"))
    policy: dict[str, Any] = {}
    for key, value in manifest.items():
        if key in ("kind", "apiVersion", "version", "metadata"):
            continue
        if key == "extenders":
            continue
        if key not in _POLICY_KEYS:
            allowed = ", ".join((*_POLICY_KEYS, "extenders"))
            raise InputError(f"is unknown; allowed are {allowed}", source=source, object=LEGACY_KIND, field=str(key))
        policy[key] = value
    for key, known in (("predicates", PREDICATES), ("priorities", PRIORITIES)):
        if isinstance(policy.get(key), list):
            policy[key] = [_rule(rule, f"{key}[{number}]", known, warnings) for number, rule in enumerate(policy[key])]
    spec = {"schedulerName": DEFAULT_SCHEDULER, "policy": policy, **_extenders(manifest, warnings, source)}
    return _made(_NAME, spec, warnings, source)


def _rule(rule: object, place: str, known: Mapping[str, object], warnings: list[FieldError]) -> object:
    """Return a predicate or priority with common mistakes corrected, and add a warning for each correction."""
    if not isinstance(rule, Mapping):
        return rule
    found = dict(rule)
    name, argument = found.get("name"), found.get("argument")
    if argument is None:
        exact = next((each for each in known if isinstance(name, str) and each.lower() == name.lower()), None)
        if exact is not None and exact != name:
            warnings.append(FieldError(f"{place}.name", f"{name} is read as {exact}"))
            found["name"] = exact
        if exact in ("CheckNodeLabelPresence", "CheckServiceAffinity"):
            warnings.append(FieldError(place, f"{exact} without an argument has no labels and lets every node pass"))
    elif isinstance(argument, Mapping):
        anti = argument.get("serviceAntiAffinity")
        label = anti.get("label") if isinstance(anti, Mapping) else None
        if isinstance(label, list) and len(label) == 1:
            warnings.append(
                FieldError(f"{place}.argument.serviceAntiAffinity.label", "a list with one entry is read as a label")
            )
            found["argument"] = {**argument, "serviceAntiAffinity": {"label": label[0]}}
    return found


# --- extenders ----------------------------------------------------------------------------------------------------


def _extenders(manifest: Mapping[str, Any], warnings: list[FieldError], source: str) -> dict[str, Any]:
    """Return the extenders of a document as the field ``extenders`` of a spec; empty if there are none."""
    listed = manifest.get("extenders")
    if not listed:
        return {}
    kind = str(manifest.get("kind"))
    if not isinstance(listed, list):
        raise InputError("must be a list", source=source, object=kind, field="extenders")
    found = []
    for number, extender in enumerate(listed):
        place = f"extenders[{number}]"
        if not isinstance(extender, Mapping):
            raise InputError("must be a mapping", source=source, object=kind, field=place)
        found.append(
            _extender(
                extender,
                place,
                warnings,
                lambda error: InputError(error.message, source=source, object=kind, field=error.field),
            )
        )
    return {"extenders": found}


def _extender(
    extender: Mapping[str, Any], place: str, warnings: list[FieldError], refused: Callable[[FieldError], InputError]
) -> dict[str, Any]:
    """Return an extender with its timeout and TLS settings in the form of a SchedulerPolicy."""
    found = {key: value for key, value in extender.items() if key not in ("enableHttps", "enableHTTPS", "httpTimeout")}
    timeout = extender.get("httpTimeout")
    if isinstance(timeout, int):  # the legacy Policy has nanoseconds
        timeout = f"{max(timeout // 10**6, 1)}ms" if timeout > 0 else None
    if timeout not in (None, "0s", "0"):
        found["httpTimeout"] = timeout
    tls = extender.get("tlsConfig")
    if isinstance(tls, Mapping):
        for key in ("certData", "keyData"):
            if tls.get(key):
                message = "is not supported: put it into a file below /etc/trimtab, and set certFile and keyFile"
                raise refused(FieldError(f"{place}.tlsConfig.{key}", message))
        found["tlsConfig"] = {key: value for key, value in tls.items() if value}
    secure = str(extender.get("urlPrefix", "")).startswith("https://")
    if not secure:
        found.pop("tlsConfig", None)
    elif (extender.get("enableHttps") or extender.get("enableHTTPS")) and not _has_authority(tls):
        message = "without certificate authorities, kube-scheduler does not verify the extender; neither does trimtab"
        warnings.append(FieldError(f"{place}.tlsConfig.insecure", message))
        found["tlsConfig"] = {**found.get("tlsConfig", {}), "insecure": True}
    return found


def _has_authority(tls: object) -> bool:
    return isinstance(tls, Mapping) and bool(tls.get("caData") or tls.get("caFile"))


# --- KubeSchedulerConfiguration -------------------------------------------------------------------------------------

_FILTERS: Final = frozenset(FILTER_PLUGINS)
_SCORES: Final = frozenset(SCORE_PLUGINS)
_ALWAYS_ON: Final = frozenset(
    (
        "DefaultBinder",
        "DefaultPreemption",
        "DynamicResources",
        "GangScheduling",
        "PodGroupPodsCount",
        "PrioritySort",
        "TopologyPlacementGenerator",
    )
)
"""Plugins of kube-scheduler v1.36 that are neither a filter nor a score of a SchedulerPolicy."""
_PLUGINS: Final = _FILTERS | _SCORES | _ALWAYS_ON
_POINTS: Final = ("filter", "score", "multiPoint", "postFilter")
_FIT: Final = "NodeResourcesFit"
_STRATEGIES: Final = {
    "NodeResourcesLeastAllocated": LEAST_ALLOCATED,
    "NodeResourcesMostAllocated": MOST_ALLOCATED,
    "RequestedToCapacityRatio": REQUESTED_TO_CAPACITY_RATIO,
}
"""The ``scoringStrategy`` of NodeResourcesFit that replaces each score plugin of v1beta1 and v1beta2."""
_FORMER: Final = {
    "SelectorSpread": "PodTopologySpread spreads the pods of a service over nodes and zones by default",
    "NodePreferAvoidPods": "use taints with the effect PreferNoSchedule",
    "NodeLabel": "use addedAffinity",
    "ServiceAffinity": "use a SchedulerPolicy with a serviceAffinity predicate",
    **dict.fromkeys(
        ("EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits"),
        "NodeVolumeLimits evaluates the limits of the CSI drivers",
    ),
}
"""Former plugins of kube-scheduler without an equivalent, and what to use instead."""
_OLDER_WEIGHTS: Final = {"InterPodAffinity": 1, "NodeAffinity": 1, "TaintToleration": 1}
"""Default weights of v1beta1 and v1beta2 that later versions changed."""
_WITHOUT_EFFECT: Final = (
    "parallelism",
    "leaderElection",
    "clientConnection",
    "enableProfiling",
    "enableContentionProfiling",
    "podInitialBackoffSeconds",
    "podMaxBackoffSeconds",
    "healthzBindAddress",
    "metricsBindAddress",
    "delayCacheUntilActive",
)
"""Settings of kube-scheduler's process, which are ignored. trimtab has command-line options for some of them."""


def _read_configuration(manifest: Mapping[str, Any], source: str) -> ImportedScheduler:
    warnings: list[FieldError] = []
    for key in manifest:
        if key in _WITHOUT_EFFECT:
            warnings.append(FieldError(key, "is ignored: it configures kube-scheduler's process"))
        elif key not in ("kind", "apiVersion", "profiles", "extenders", "percentageOfNodesToScore"):
            raise InputError("is unknown", source=source, object=CONFIGURATION, field=str(key))
    profiles = manifest.get("profiles") or [{}]
    if not isinstance(profiles, list):
        raise InputError("must be a list", source=source, object=CONFIGURATION, field="profiles")
    policies: list[SchedulerPolicy] = []
    documents: list[dict[str, Any]] = []
    version = manifest["apiVersion"].rpartition("/")[2]
    extenders = _extenders(manifest, warnings, source)
    for number, profile in enumerate(profiles):
        place = f"profiles[{number}]"
        if not isinstance(profile, Mapping):
            raise InputError("must be a mapping", source=source, object=CONFIGURATION, field=place)
        name = str(profile.get("schedulerName") or DEFAULT_SCHEDULER)
        if name in (policy.spec.scheduler_name for policy in policies):
            message = f"must not be given twice: {name}"
            raise InputError(message, source=source, object=CONFIGURATION, field=f"{place}.schedulerName")
        share = profile.get("percentageOfNodesToScore", manifest.get("percentageOfNodesToScore"))
        spec = _Profile(place, source, warnings, version=version).read(profile, share)
        document = {"schedulerName": name, **spec, **extenders}
        made = _made(_NAME if name == DEFAULT_SCHEDULER else name, document, (), source)
        policies += made.policies
        documents += made.documents
    return ImportedScheduler(tuple(policies), tuple(documents), tuple(warnings))


_Lists = tuple[set[str], dict[str, int]]
"""The plugins that an extension point disables, and the weights of those that it enables."""


class _Profile:
    """Converts one profile of a KubeSchedulerConfiguration; settings that are ignored are added to ``warnings``."""

    def __init__(self, place: str, source: str, warnings: list[FieldError], *, version: str) -> None:
        self._place = place
        self._source = source
        self._warnings = warnings
        self._version = version
        self._older = version in ("v1beta1", "v1beta2")
        self._known = _PLUGINS | _STRATEGIES.keys() if self._older else _PLUGINS
        self._scored_by = _FIT  # the plugin that scores the resources of nodes

    def read(self, profile: Mapping[str, Any], share: object) -> dict[str, Any]:
        """Return the fields of the policy's spec.

        Args:
            profile: the profile.
            share: ``percentageOfNodesToScore``, or ``None``.
        """
        spec: dict[str, Any] = {}
        found: dict[str, Any] = {}
        points = self._points(self._section(profile.get("plugins"), f"{self._place}.plugins"))
        self._disable_preemption(points, spec)
        weights, disabled = self._plugins(points)
        if weights:
            found["scores"] = [{"name": name, "weight": weight} for name, weight in sorted(weights.items())]
        if disabled:
            found["disabledFilters"] = sorted(disabled)
        readers: Mapping[str, Callable[[str, Mapping[str, Any], dict[str, Any]], None]] = {
            _FIT: self._resources_fit,
            "InterPodAffinity": self._inter_pod_affinity,
            "PodTopologySpread": self._topology_spread,
            "NodeAffinity": self._node_affinity,
            "NodeResourcesBalancedAllocation": self._balanced_allocation,
        }
        seen = set()
        for number, config in enumerate(self._sections(profile.get("pluginConfig"), f"{self._place}.pluginConfig")):
            place = f"{self._place}.pluginConfig[{number}]"
            name = str(config.get("name"))
            arguments = self._section(config.get("args"), f"{place}.args")
            if name in seen:
                raise self._error(f"{place}.name", f"must not be given twice: {name}")
            seen.add(name)
            if name in readers:
                readers[name](f"{place}.args", arguments, found)
            elif name == self._scored_by and name in _STRATEGIES:
                found["scoringStrategy"] = self._strategy(_STRATEGIES[name], arguments, arguments, f"{place}.args")
            else:
                self._warn(place, f"arguments of {name} are ignored")
        if _STRATEGIES.get(self._scored_by, LEAST_ALLOCATED) != LEAST_ALLOCATED:
            found.setdefault("scoringStrategy", {"type": _STRATEGIES[self._scored_by]})
        if share is not None:
            found["percentageOfNodesToScore"] = share
        return {"profile": found, **spec}

    def _section(self, value: object, place: str) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self._error(place, "must be a mapping")
        return value

    def _sections(self, value: object, place: str) -> list[Mapping[str, Any]]:
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._error(place, "must be a list")
        for number, each in enumerate(value):
            if not isinstance(each, Mapping):
                raise self._error(f"{place}[{number}]", "must be a mapping")
        return value

    def _error(self, place: str, message: str) -> InputError:
        return InputError(message, source=self._source, object=CONFIGURATION, field=place)

    # --- plugins --------------------------------------------------------------------------------------------------

    def _points(self, plugins: Mapping[str, Any]) -> dict[str, _Lists]:
        for point in plugins:
            if point not in _POINTS:
                self._warn(f"{self._place}.plugins.{point}", "is ignored")
        return {point: self._lists(plugins, point) for point in _POINTS}

    def _plugins(self, points: Mapping[str, _Lists]) -> tuple[dict[str, int], set[str]]:
        """Return the non-default weights of score plugins (0 for disabled plugins), and the disabled filters.

        ``multiPoint`` applies first. At a single extension point, ``disabled`` removes what ``multiPoint`` enables, and
        ``enabled`` overrides its weight (``mergePluginSet`` and ``expandMultiPointPlugins``, v1.36).
        """
        multi_off, multi_on = points["multiPoint"]
        defaults = {name: self._default_weight(name) for name in _PLUGINS if not multi_off & {"*", name}} | multi_on
        score_off, score_on = points["score"]
        filter_off, filter_on = points["filter"]
        scores = defaults
        if self._version == "v1beta1":  # where NodeResourcesFit is no score
            scores = {"NodeResourcesLeastAllocated" if name == _FIT else name: defaults[name] for name in defaults}
        at_score = {name: weight for name, weight in scores.items() if not score_off & {"*", name}} | score_on
        at_filter = {name for name in defaults if not filter_off & {"*", name}} | filter_on.keys()
        scored_by = [name for name in at_score if name in (_FIT, *_STRATEGIES)]
        if len(scored_by) > 1:
            message = f"must contain at most one of {', '.join(sorted(scored_by))}: disable the others"
            raise self._error(f"{self._place}.plugins.score.enabled", message)
        for name in scored_by:
            self._scored_by = name
            at_score[_FIT] = at_score[name]
        weights = {name: at_score.get(name, 0) for name in _SCORES}
        changed = {name: weight for name, weight in weights.items() if weight != DEFAULT_WEIGHTS[name]}
        return changed, set(_FILTERS - at_filter)

    def _default_weight(self, name: str) -> int:
        return (self._older and _OLDER_WEIGHTS.get(name)) or DEFAULT_WEIGHTS.get(name, 1)

    def _lists(self, plugins: Mapping[str, Any], point: str) -> _Lists:
        """Return the names that an extension point disables, and the weight of each plugin that it enables.

        A missing weight means 1, and not the plugin's default weight (``getValidScoreWeights``).
        """
        place = f"{self._place}.plugins.{point}"
        section = self._section(plugins.get(point), place)
        disabled: set[str] = set()
        for number, plugin in enumerate(self._sections(section.get("disabled"), f"{place}.disabled")):
            name = str(plugin.get("name"))
            disabled.add(name)
            if name not in {"*", *self._known, *_FORMER}:
                self._warn(f"{place}.disabled[{number}].name", f"{name} is ignored: kube-scheduler has no such plugin")
        enabled: dict[str, int] = {}
        for number, plugin in enumerate(self._sections(section.get("enabled"), f"{place}.enabled")):
            name, where = str(plugin.get("name")), f"{place}.enabled[{number}].name"
            if name in _FORMER:
                self._warn(where, f"{name} is ignored: {_FORMER[name]}")
                continue
            if name not in self._known:
                supported = ", ".join(sorted(self._known))
                raise self._error(where, f"{name} is not a plugin of kube-scheduler; supported are {supported}")
            if name in enabled:
                raise self._error(where, f"must not be given twice: {name}")
            enabled[name] = plugin.get("weight") or 1
        return disabled, enabled

    def _disable_preemption(self, points: Mapping[str, _Lists], spec: dict[str, Any]) -> None:
        multi_off, multi_on = points["multiPoint"]
        own_off, own_on = points["postFilter"]
        everywhere = "DefaultPreemption" in multi_on or not multi_off & {"*", "DefaultPreemption"}
        if "DefaultPreemption" not in own_on and (not everywhere or own_off & {"*", "DefaultPreemption"}):
            spec["disablePreemption"] = True

    # --- arguments ------------------------------------------------------------------------------------------------

    def _ignore_others(self, place: str, arguments: Mapping[str, Any], known: Collection[str]) -> None:
        for key in arguments:
            if key not in (*known, "apiVersion", "kind"):
                self._warn(f"{place}.{key}", "is ignored")

    def _resources_fit(self, place: str, arguments: Mapping[str, Any], found: dict[str, Any]) -> None:
        copied = ("ignoredResources", "ignoredResourceGroups")
        self._ignore_others(place, arguments, (*copied, "scoringStrategy"))
        found |= {key: arguments[key] for key in copied if arguments.get(key)}
        strategy = self._section(arguments.get("scoringStrategy"), f"{place}.scoringStrategy")
        where = f"{place}.scoringStrategy"
        if not strategy:
            return
        if self._scored_by != _FIT:
            self._warn(where, f"is ignored: {self._scored_by} scores the nodes")
            return
        ratio = self._section(strategy.get("requestedToCapacityRatio"), f"{where}.requestedToCapacityRatio")
        found["scoringStrategy"] = self._strategy(strategy.get("type", LEAST_ALLOCATED), strategy, ratio, where)

    def _strategy(self, kind: Any, strategy: Mapping[str, Any], ratio: Mapping[str, Any], place: str) -> dict[str, Any]:
        """Return a ``scoringStrategy``; ``ratio`` may contain the shape of RequestedToCapacityRatio."""
        made: dict[str, Any] = {"type": kind}
        resources = self._sections(strategy.get("resources"), f"{place}.resources")
        if resources:
            made["resources"] = [{"name": each.get("name"), "weight": each.get("weight") or 1} for each in resources]
        if "shape" in ratio:
            made["shape"] = ratio["shape"] or []
        return made

    def _inter_pod_affinity(self, place: str, arguments: Mapping[str, Any], found: dict[str, Any]) -> None:
        copied = ("hardPodAffinityWeight", "ignorePreferredTermsOfExistingPods")
        self._ignore_others(place, arguments, copied)
        found |= {key: arguments[key] for key in copied if key in arguments}

    def _topology_spread(self, place: str, arguments: Mapping[str, Any], found: dict[str, Any]) -> None:
        self._ignore_others(place, arguments, ("defaultingType", "defaultConstraints"))
        made: dict[str, Any] = {}
        if arguments.get("defaultingType"):
            made["defaultingType"] = arguments["defaultingType"]
        constraints = self._sections(arguments.get("defaultConstraints"), f"{place}.defaultConstraints")
        for number, constraint in enumerate(constraints):
            where = f"{place}.defaultConstraints[{number}]"
            if constraint.get("labelSelector") is not None:
                message = "must not be given: it is deduced from the services and the controller of each pod"
                raise self._error(f"{where}.labelSelector", message)
            if constraint.get("matchLabelKeys"):
                self._warn(f"{where}.matchLabelKeys", "is ignored, as kube-scheduler does in default constraints")
        if constraints:
            made["defaultConstraints"] = [
                {key: value for key, value in each.items() if key != "matchLabelKeys"} for each in constraints
            ]
        if made:
            found["podTopologySpread"] = made

    def _node_affinity(self, place: str, arguments: Mapping[str, Any], found: dict[str, Any]) -> None:
        self._ignore_others(place, arguments, ("addedAffinity",))
        if arguments.get("addedAffinity"):
            found["addedAffinity"] = arguments["addedAffinity"]

    def _balanced_allocation(self, place: str, arguments: Mapping[str, Any], found: dict[str, Any]) -> None:
        self._ignore_others(place, arguments, ("resources",))
        names = []
        for number, resource in enumerate(self._sections(arguments.get("resources"), f"{place}.resources")):
            if (resource.get("weight") or 1) != 1:
                raise self._error(f"{place}.resources[{number}].weight", "must be 1")
            names.append(resource.get("name"))
        if names:
            found["balancedResources"] = names

    def _warn(self, place: str, message: str) -> None:
        self._warnings.append(FieldError(place, message))
