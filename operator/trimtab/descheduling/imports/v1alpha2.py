"""``descheduler/v1alpha2``: profiles of plugins, the descheduler project's format since v0.27.

A profile becomes a DeschedulerPolicy. Its enabled plugins are the strategies, the arguments of DefaultEvictor its
protections, and what stands at the top holds for all of them.

Fields: kubernetes-sigs/descheduler v0.36, pkg/api/v1alpha2 and the plugins' types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from trimtab.api.check import unknown_key
from trimtab.api.decode import InvalidObject, describe
from trimtab.api.descheduler_policy import KIND
from trimtab.api.strategies import STRATEGIES
from trimtab.descheduling.imports.catalogue import (
    ARGS,
    BALANCE,
    DESCHEDULE,
    EVICTOR,
    EVICTOR_SHAPE,
    PLUGINS,
    Places,
    WrongKind,
    own_params,
)
from trimtab.descheduling.imports.draft import Draft, Findings, Imported, object_name, of_format, without_nulls
from trimtab.descheduling.imports.evictor import take_evictor
from trimtab.descheduling.imports.fields import LIMITS, is_true, take_limit, take_node_selector
from trimtab.descheduling.imports.metrics import metrics_of, told_of_provider
from trimtab.descheduling.imports.strategies import Asked, drafts, finish, mapping

FOREIGN_VERSION: Final = "descheduler/v1alpha2"
DEFAULT_NAME: Final = "default"
"""What the policy of a profile without a name is called."""

_NEVER_CALLED: Final = ("presort", "sort")
_FILTERS: Final = ("filter", "preevictionfilter", "preEvictionFilter")
_POINTS: Final = (*_NEVER_CALLED, DESCHEDULE, BALANCE, *_FILTERS)
"""``preEvictionFilter`` is how the project's README writes it; its code knows ``preevictionfilter`` only."""

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
_SETTING: Final = "descheduler/v1alpha1's; here it is"
_PLACES: Final = Places(
    {
        "the top of the file": [key for key in _TOP if key not in ("apiVersion", "kind", "metadata")],
        "profiles[]": ("pluginConfig", "plugins"),
        f"podProtections in the args of {EVICTOR}": ("defaultDisabled", "extraEnabled", "config"),
        "profiles[].plugins": (DESCHEDULE, BALANCE, "filter", "preevictionfilter"),
    },
    owned={EVICTOR: EVICTOR_SHAPE, **ARGS},
    owned_at="the args of {} (profiles[].pluginConfig[])",
    renamed={
        "strategies": "it is descheduler/v1alpha1's: here a strategy is listed in profiles[].plugins and has its "
        "parameters in profiles[].pluginConfig[].args",
        "params": f"{_SETTING} profiles[].pluginConfig[].args",
        "thresholdPriority": f"{_SETTING} priorityThreshold.value in the args of {EVICTOR}",
        "thresholdPriorityClassName": f"{_SETTING} priorityThreshold.name in the args of {EVICTOR}",
        "podStatusPhases": f"{_SETTING} states in the args of PodLifeTime",
        "includeSoftConstraints": f"{_SETTING} constraints: [DoNotSchedule, ScheduleAnyway] in the args of "
        "RemovePodsViolatingTopologySpreadConstraint",
        "nodeResourceUtilizationThresholds": f"{_SETTING} left out, and what is under it stands in args itself",
        "podLifeTime": f"{_SETTING} left out, and what is under it stands in the args of PodLifeTime",
        "tracing": "the project's command line has it (--otel-…), its policy never had",
        "interval": "the project's command line has it (--descheduling-interval); set spec.interval after converting",
        "deschedulingInterval": "the project's command line has it; set spec.interval after converting",
        "dryRun": "the project's command line has it; what is converted has mode: Simulate",
    },
)


def import_policy(data: object, *, source: str = "") -> Imported:
    """A v1alpha2 policy as DeschedulerPolicies in mode Simulate, one for each profile or more.

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
    findings.errors += _PLACES.check(data, _TOP, "")
    if any(isinstance(error, WrongKind) for error in findings.errors):
        raise InvalidObject(tuple(findings.errors), source=source, object=described)
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
    """Names of profiles as names of objects, each once."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._given: set[str] = set()

    def take(self, name: object, place: str, findings: Findings) -> str:
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


def _top(data: Mapping[str, Any], findings: Findings) -> Draft:
    draft = Draft()
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
        findings.warn(key, "has no effect: evictions that fail are always told as events")
    for index, provider in enumerate(given.get("metricsProviders") or ()):
        if provider:
            told_of_provider(provider, f"metricsProviders[{index}]", findings)
    return draft


def _profile(
    profile: Mapping[str, Any], place: str, common: Draft, names: _Names, findings: Findings
) -> list[tuple[str, Draft]]:
    name = names.take(profile.get("name"), f"{place}.name", findings)
    enabled = _enabled(mapping(profile.get("plugins"), f"{place}.plugins", findings), f"{place}.plugins", findings)
    configs = _configs(profile.get("pluginConfig") or (), f"{place}.pluginConfig", findings)
    own = common.joined(Draft())
    if EVICTOR in configs:
        args, here = configs.pop(EVICTOR)
        errors = _PLACES.check(args, EVICTOR_SHAPE, here)
        findings.errors += errors
        if not errors:
            _mine(own)
            take_evictor(own, without_nulls(args), here, findings)
    for plugin, (args, here) in configs.items():
        if plugin not in enabled:
            _asked(plugin, args, here, findings)  # for what is wrong with it
            findings.warn(here.removesuffix(".args"), f"{plugin} is not enabled in {place}.plugins: it does not run")
    asked = [_asked(plugin, *configs.get(plugin, ({}, f"{place}.pluginConfig")), findings) for plugin in enabled]
    if not enabled:
        findings.warn(place, "enables no strategy: it is left out")
        return []
    return drafts(name, own, asked, place=place, findings=findings)


def _mine(draft: Draft) -> None:
    """Let a draft have sections of its own, so that one profile's protections are not another's."""
    draft.spec = {key: dict(value) if isinstance(value, Mapping) else value for key, value in draft.spec.items()}


def _enabled(plugins: Mapping[str, Any], place: str, findings: Findings) -> dict[str, str]:
    """The strategies that are enabled, and where; in the order of the document."""
    found: dict[str, str] = {}
    for point, given in plugins.items():
        if point not in _POINTS:
            continue  # it has been told
        here = f"{place}.{point}"
        lists = mapping(given, here, findings)
        running = _names(lists.get("enabled"), f"{here}.enabled", findings)
        stopped = _names(lists.get("disabled"), f"{here}.disabled", findings)
        for index, name in running.items():
            if name in stopped.values():
                findings.error(f"{here}.enabled[{index}]", f"{name} is disabled as well: say one of both")
            elif point in (DESCHEDULE, BALANCE):
                if _belongs(name, point, f"{here}.enabled[{index}]", findings):
                    found.setdefault(name, f"{here}.enabled[{index}]")
            elif point in _NEVER_CALLED:
                findings.warn(f"{here}.enabled[{index}]", "is left out: the descheduler project never calls it either")
            elif name != EVICTOR:
                findings.error(f"{here}.enabled[{index}]", f"{name} is not known, and what it protects would be lost")
        if stopped:
            what = f"{EVICTOR}'s protections always hold" if point in _FILTERS else "what is not enabled does not run"
            findings.warn(f"{here}.disabled", f"has no effect, as in the descheduler project: {what}")
    return found


def _names(value: Any, place: str, findings: Findings) -> dict[int, str]:
    """The names in a list, by their place in it."""
    if value is None:
        return {}
    if not isinstance(value, list):
        findings.error(place, "must be a list of plugins' names")
        return {}
    for index, name in enumerate(value):
        if not isinstance(name, str):  # kube-scheduler's configuration has mappings here
            findings.error(f"{place}[{index}]", "must be a plugin's name alone, without name: before it")
    return {index: name for index, name in enumerate(value) if isinstance(name, str)}


def _belongs(name: str, point: str, place: str, findings: Findings) -> bool:
    """Whether an enabled plugin is a strategy and stands where it belongs."""
    if name == EVICTOR:
        findings.error(place, f"{EVICTOR} is no strategy; it belongs to filter and preevictionfilter, and is always on")
        return False
    if name not in PLUGINS and name not in STRATEGIES:
        findings.error(place, unknown_key(name, tuple(PLUGINS), what="plugin"))
        return False
    if PLUGINS.get(name, point) != point:
        findings.error(place, f"{name} belongs to plugins.{PLUGINS[name]}.enabled")
        return False
    return True


def _configs(given: Sequence[Any], place: str, findings: Findings) -> dict[str, tuple[Mapping[str, Any], str]]:
    """The arguments of each plugin, and where they stand."""
    found: dict[str, tuple[Mapping[str, Any], str]] = {}
    for index, each in enumerate(given):
        here = f"{place}[{index}]"
        config = mapping(each, here, findings)
        name = config.get("name")
        known = (*PLUGINS, *(strategy for strategy in STRATEGIES if strategy not in PLUGINS), EVICTOR)
        if name not in known:
            told = "is required: a plugin's name" if name is None else unknown_key(str(name), known, what="plugin")
            findings.error(f"{here}.name", told)
        elif name in found:
            findings.error(f"{here}.name", f'must not be given twice: "{name}"')
        else:
            found[name] = (mapping(config.get("args"), f"{here}.args", findings), f"{here}.args")
    return found


def _asked(name: str, args: Mapping[str, Any], place: str, findings: Findings) -> Asked:
    """A strategy with its arguments, which are the project's and whatever else trimtab's type of it has."""
    asked = Asked(name=name, place=place)
    allowed = tuple(dict.fromkeys((*ARGS.get(name, ()), *own_params(name))))
    for key, value in args.items():
        if key in ("apiVersion", "kind"):  # arguments are objects to the project, and may say so
            continue
        if key in allowed:
            if key == "metricsUtilization":
                value = metrics_of(value, f"{place}.{key}", findings)
            asked.take(key, value, f"{place}.{key}", findings)
        else:
            findings.error(f"{place}.{key}", _PLACES.hint(key, allowed))
    return asked
