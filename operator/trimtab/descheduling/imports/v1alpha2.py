"""Converts ``descheduler/v1alpha2``, the upstream descheduler's format since v0.27.

Each profile becomes a DeschedulerPolicy. Its enabled plugins become strategies, and the arguments of DefaultEvictor
become protections. Top-level fields apply to all policies. Upstream decodes ``args`` strictly and the rest of the file
not, so unknown keys are errors in ``args`` and warnings elsewhere.

Fields: kubernetes-sigs/descheduler v0.36, pkg/api/v1alpha2 and the plugins' types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from trimtab.api.decode import InvalidObject, describe
from trimtab.api.descheduler_policy import KIND
from trimtab.api.differences import LOW, MEDIUM
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
    without_nulls,
)
from trimtab.descheduling.imports.strategy_mapping import (
    ARGS,
    BALANCE,
    DESCHEDULE,
    EVICTOR,
    EVICTOR_SHAPE,
    PLUGINS,
    KnownFields,
    StrategyDraft,
    UnknownField,
    drafts,
    finish,
    mapping,
    metrics_of,
    own_params,
    take_evictor,
    warn_about_provider,
)

FOREIGN_VERSION: Final = "descheduler/v1alpha2"
DEFAULT_NAME: Final = "default"
"""Name of the policy that an unnamed profile is converted to."""

_NEVER_CALLED: Final = ("presort", "sort")
_FILTERS: Final = ("filter", "preevictionfilter", "preEvictionFilter")
_POINTS: Final = (*_NEVER_CALLED, DESCHEDULE, BALANCE, *_FILTERS)
"""The known extension points.

Upstream's README spells one ``preEvictionFilter``, but upstream's code accepts only ``preevictionfilter``.
"""

_TOP: Final = {
    "apiVersion": None,
    "kind": None,
    "metadata": None,
    "nodeSelector": None,
    **dict.fromkeys(LIMITS),
    "evictionFailureEventNotification": None,
    "gracePeriodSeconds": None,
    "metricsCollector": {"enabled": None},
    "metricsProviders": [
        {
            "source": None,
            "prometheus": {"url": None, "authToken": {"secretReference": {"namespace": None, "name": None}}},
        }
    ],
    "profiles": [
        {
            "name": None,
            "pluginConfig": [{"name": None, "args": None}],
            "plugins": {point: {"enabled": None, "disabled": None} for point in _POINTS},
        }
    ],
}
_SETTING: Final = "it belongs to descheduler/v1alpha1; here it is"
_PLACES: Final = KnownFields(
    {
        "the top of the file": [key for key in _TOP if key not in ("apiVersion", "kind", "metadata")],
        "profiles[]": ("pluginConfig", "plugins"),
        f"podProtections in the args of {EVICTOR}": ("defaultDisabled", "extraEnabled", "config"),
        "profiles[].plugins": (DESCHEDULE, BALANCE, "filter", "preevictionfilter"),
    },
    owned={EVICTOR: EVICTOR_SHAPE, **ARGS},
    owned_at="the args of {} (profiles[].pluginConfig[])",
    renamed={
        "strategies": "it belongs to descheduler/v1alpha1: here a strategy is listed in profiles[].plugins and has its "
        "parameters in profiles[].pluginConfig[].args",
        "params": f"{_SETTING} profiles[].pluginConfig[].args",
        "thresholdPriority": f"{_SETTING} priorityThreshold.value in the args of {EVICTOR}",
        "thresholdPriorityClassName": f"{_SETTING} priorityThreshold.name in the args of {EVICTOR}",
        "podStatusPhases": f"{_SETTING} states in the args of PodLifeTime",
        "includeSoftConstraints": f"{_SETTING} constraints: [DoNotSchedule, ScheduleAnyway] in the args of "
        "RemovePodsViolatingTopologySpreadConstraint",
        "nodeResourceUtilizationThresholds": f"{_SETTING} omitted, and its fields are directly in args",
        "evict": f"{EVICTOR} is always enabled; omit this extension point",
        "podLifeTime": f"{_SETTING} omitted, and its fields are directly in the args of PodLifeTime",
        "tracing": "it is a flag of the descheduler (--otel-…), not a field of its policy",
        "interval": "it is a flag of the descheduler (--descheduling-interval); set spec.interval after converting",
        "deschedulingInterval": "it is a flag of the descheduler; set spec.interval after converting",
        "dryRun": "it is a flag of the descheduler; converted policies have mode: Simulate",
    },
)


def import_policy(data: object, *, source: str = "") -> ImportResult:
    """Convert a v1alpha2 policy to DeschedulerPolicies in Simulate mode, at least one per profile.

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
    for error in _PLACES.check(data, _TOP, ""):
        if isinstance(error, UnknownField):
            findings.drop(error.field, error.message)
        else:
            findings.errors.append(error)
    if findings.errors:
        raise InvalidObject(findings.all_errors(), source=source, object=described)
    common = _top(data, findings)
    names = _Names()
    made = []
    for index, profile in enumerate(data.get("profiles") or ()):
        made += _profile(
            mapping(profile, f"profiles[{index}]", findings), f"profiles[{index}]", common, names, findings
        )
    if not made and not findings.errors:
        findings.error("profiles", "no profile enables a strategy: there is nothing to do")
    total = "maxNoOfPodsToEvictTotal" if data.get("maxNoOfPodsToEvictTotal") else ""
    return finish(made, findings, source=source, described=described, total=total)


class _Names:
    """Assigns unique object names to profiles."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._given: set[str] = set()

    def take(self, name: object, place: str, findings: ImportFindings) -> str:
        text = name if isinstance(name, str) else ""
        if name is not None and not isinstance(name, str):
            findings.error(place, "must be a text")
        if text and text in self._said:
            findings.error(place, f'must not be given twice: "{text}"')
        self._said.add(text)
        base = object_name(text) or DEFAULT_NAME
        found, number = base, 2
        while found in self._given:
            found, number = f"{base}-{number}", number + 1
        self._given.add(found)
        return found


def _top(data: Mapping[str, Any], findings: ImportFindings) -> PolicyDraft:
    draft = PolicyDraft()
    given = {key: value for key, value in data.items() if value is not None}
    for key in LIMITS:
        if key in given:
            take_limit(draft, key, given[key], key, findings)
    if "nodeSelector" in given:
        take_node_selector(draft, given["nodeSelector"], "nodeSelector", findings)
    if "gracePeriodSeconds" in given:
        draft.put("gracePeriodSeconds", given["gracePeriodSeconds"], "gracePeriodSeconds")
    key = "evictionFailureEventNotification"
    if key in given and not is_true(given[key], key, findings):
        findings.warn(key, "has no effect: failed evictions are always reported as events", LOW)
    for index, provider in enumerate(given.get("metricsProviders") or ()):
        if provider:
            warn_about_provider(provider, f"metricsProviders[{index}]", findings)
    return draft


def _profile(
    profile: Mapping[str, Any], place: str, common: PolicyDraft, names: _Names, findings: ImportFindings
) -> list[tuple[str, PolicyDraft]]:
    name = names.take(profile.get("name"), f"{place}.name", findings)
    enabled = _enabled(mapping(profile.get("plugins"), f"{place}.plugins", findings), f"{place}.plugins", findings)
    configs = _configs(profile.get("pluginConfig") or (), f"{place}.pluginConfig", findings)
    own = common.joined(PolicyDraft())
    if EVICTOR in configs:
        args, here = configs.pop(EVICTOR)
        errors = _PLACES.check(args, EVICTOR_SHAPE, here)
        findings.errors += errors
        if not errors:
            _copy_sections(own)
            take_evictor(own, without_nulls(args), here, findings)
    for plugin, (args, here) in configs.items():
        if plugin not in enabled:
            _strategy_draft(plugin, args, here, findings)  # to report errors only
            findings.warn(
                here.removesuffix(".args"), f"{plugin} is not enabled in {place}.plugins: it does not run", LOW
            )
    strategies = [
        _strategy_draft(plugin, *configs.get(plugin, ({}, f"{place}.pluginConfig")), findings) for plugin in enabled
    ]
    for each in strategies:
        _require_thresholds(each, findings)
    if not enabled:
        findings.warn(place, "enables no strategy and is ignored", LOW)
        return []
    return drafts(name, own, strategies, place=place, findings=findings)


def _require_thresholds(strategy: StrategyDraft, findings: ImportFindings) -> None:
    """Report missing thresholds under the names that they have in this format, where they are not nested."""
    wanted = {"LowNodeUtilization": ("thresholds", "targetThresholds"), "HighNodeUtilization": ("thresholds",)}
    missing = [key for key in wanted.get(strategy.name, ()) if key not in strategy.args]
    if missing:
        required = " and ".join(missing)
        findings.error(strategy.place, f"{required}: required in the args of {strategy.name}, which is enabled")


def _copy_sections(draft: PolicyDraft) -> None:
    """Copy the sections of a draft, so that changes for one profile do not affect another."""
    draft.spec = {key: dict(value) if isinstance(value, Mapping) else value for key, value in draft.spec.items()}


def _enabled(plugins: Mapping[str, Any], place: str, findings: ImportFindings) -> dict[str, str]:
    """Return a mapping of each enabled strategy to the path where it is enabled, in the order of the document."""
    found: dict[str, str] = {}
    for point, given in plugins.items():
        if point not in _POINTS:
            continue  # the warning was recorded before
        here = f"{place}.{point}"
        lists = mapping(given, here, findings)
        running = _names(lists.get("enabled"), f"{here}.enabled", findings)
        stopped = _names(lists.get("disabled"), f"{here}.disabled", findings)
        for index, name in running.items():
            if name in stopped.values():
                findings.error(f"{here}.enabled[{index}]", f"{name} is both enabled and disabled")
            elif point in (DESCHEDULE, BALANCE):
                if _belongs(name, point, f"{here}.enabled[{index}]", findings):
                    found.setdefault(name, f"{here}.enabled[{index}]")
            elif point in _NEVER_CALLED:
                findings.warn(
                    f"{here}.enabled[{index}]", "is ignored: the descheduler project never calls it either", LOW
                )
            elif name != EVICTOR:
                findings.error(f"{here}.enabled[{index}]", f"{name} is unknown, and its protections would be lost")
        if stopped:
            always = f"{EVICTOR}'s protections always apply"
            what = always if point in _FILTERS else "plugins that are not enabled do not run"
            findings.warn(f"{here}.disabled", f"has no effect, as in the descheduler project: {what}", LOW)
    return found


def _names(value: Any, place: str, findings: ImportFindings) -> dict[int, str]:
    """Return a mapping of indexes to the plugin names in a list. Invalid items are omitted and recorded as errors."""
    if value is None:
        return {}
    if not isinstance(value, list):
        findings.error(place, "must be a list of plugins' names")
        return {}
    for index, name in enumerate(value):
        if not isinstance(name, str):  # kube-scheduler's configuration has mappings here
            findings.error(f"{place}[{index}]", "must be a plugin's name alone, without name: before it")
    return {index: name for index, name in enumerate(value) if isinstance(name, str)}


def _belongs(name: str, point: str, place: str, findings: ImportFindings) -> bool:
    """Return whether an enabled plugin is a strategy that is listed at its own extension point."""
    if name == EVICTOR:
        findings.error(
            place, f"{EVICTOR} is not a strategy; it belongs to filter and preevictionfilter, and is always enabled"
        )
        return False
    if name not in PLUGINS and name not in STRATEGIES:
        findings.error(place, unknown_key(name, tuple(PLUGINS), what="plugin"))
        return False
    if PLUGINS.get(name, point) != point:
        findings.error(place, f"{name} belongs to plugins.{PLUGINS[name]}.enabled")
        return False
    return True


def _configs(given: Sequence[Any], place: str, findings: ImportFindings) -> dict[str, tuple[Mapping[str, Any], str]]:
    """Return a mapping of each plugin to its arguments and their path in the document."""
    found: dict[str, tuple[Mapping[str, Any], str]] = {}
    for index, each in enumerate(given):
        here = f"{place}[{index}]"
        config = mapping(each, here, findings)
        name = config.get("name")
        known = (*PLUGINS, *(strategy for strategy in STRATEGIES if strategy not in PLUGINS), EVICTOR)
        if name not in known:
            message = "is required: a plugin's name" if name is None else unknown_key(str(name), known, what="plugin")
            findings.error(f"{here}.name", message)
        elif name in found:
            same = (config.get("args") or {}) == found[name][0]
            message = f"{name} is listed twice: the first entry is used, as in the descheduler project"
            findings.warn(f"{here}.name", message, LOW if same else MEDIUM)
        else:
            found[name] = (mapping(config.get("args"), f"{here}.args", findings), f"{here}.args")
    return found


def _strategy_draft(name: str, args: Mapping[str, Any], place: str, findings: ImportFindings) -> StrategyDraft:
    """Return a strategy with upstream's arguments and those that only trimtab has."""
    strategy = StrategyDraft(name=name, place=place)
    allowed = tuple(dict.fromkeys((*ARGS.get(name, ()), *own_params(name))))
    for key, value in args.items():
        if key in ("apiVersion", "kind"):  # upstream allows both keys in arguments
            continue
        if key in allowed:
            if key == "metricsUtilization":
                value = metrics_of(value, f"{place}.{key}", findings)
            if key == "evictableNamespaces" and isinstance(value, Mapping) and value.get("include"):
                findings.error(
                    f"{place}.{key}.include",
                    "is not supported, as in the descheduler project; to evict from these namespaces only, remove it "
                    "and set spec.namespaces.include after converting",
                )
                value = {name: names for name, names in value.items() if name != "include"}
            strategy.take(key, value, f"{place}.{key}", findings)
        else:
            findings.error(f"{place}.{key}", _PLACES.hint(key, allowed))
    return strategy
