"""What a DeschedulerPolicy must satisfy beyond its schema: the CEL rules in Python, and what CEL cannot say.

Files are checked with it before they are used, and policies from the API server as well: the cluster's definition may
be older than this program, and whether a cron expression is ever due only a program can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from trimtab.api.check import FieldError, attempt, join_path
from trimtab.api.descheduler_policy import DeschedulerPolicy, DeschedulerPolicySpec
from trimtab.api.scalars import (
    APPROVAL_RULE,
    COOLDOWN_RULE,
    INTERVAL_RULE,
    LONGEST_INTERVAL,
    SHORTEST_APPROVAL,
    SHORTEST_COOLDOWN,
    SHORTEST_INTERVAL,
    SHORTEST_WINDOW,
    WINDOW_RULE,
    check_cron,
    parse_duration,
    parse_time_zone,
)
from trimtab.api.selector import Selector
from trimtab.api.strategies import (
    METRIC_RESOURCE,
    PROMETHEUS,
    STRATEGIES,
    LowNodeUtilization,
    PodConditionFilter,
    PodLifeTime,
    Strategy,
)
from trimtab.api.strategies.low_node_utilization import PROMETHEUS_RULE
from trimtab.kube.rules.selectors import label_selector_errors

Errors = Iterator[FieldError]


def validate(policy: DeschedulerPolicy) -> tuple[FieldError, ...]:
    """Everything about a policy that does not make sense; empty for one that can be carried out."""
    return tuple(error for check in CHECKS for error in check(policy.spec))


def _timing(spec: DeschedulerPolicySpec) -> Errors:
    if spec.interval is not None and spec.schedule is not None:
        yield FieldError("spec.schedule", "interval and schedule cannot be given together")
    if spec.interval is not None:
        yield from attempt("spec.interval", _interval, spec.interval)
    if spec.schedule is not None:
        yield from attempt("spec.schedule.cron", check_cron, spec.schedule.cron)
        yield from attempt("spec.schedule.timeZone", parse_time_zone, spec.schedule.time_zone)


def _windows(spec: DeschedulerPolicySpec) -> Errors:
    for index, window in enumerate(spec.windows):
        place = f"spec.windows[{index}]"
        yield from attempt(f"{place}.schedule", check_cron, window.schedule)
        yield from attempt(f"{place}.duration", _window_duration, window.duration)
        yield from attempt(f"{place}.timeZone", parse_time_zone, window.time_zone)


def _window_duration(text: str) -> None:
    if not SHORTEST_WINDOW <= parse_duration(text) <= LONGEST_INTERVAL:
        raise ValueError(f"{WINDOW_RULE.message}; not {text}")


def _interval(text: str) -> None:
    if not SHORTEST_INTERVAL <= parse_duration(text) <= LONGEST_INTERVAL:
        raise ValueError(f"{INTERVAL_RULE.message}; not {text}")


def _runs(spec: DeschedulerPolicySpec) -> Errors:
    yield from attempt("spec.approvalDeadline", _approval, spec.approval_deadline)
    if spec.mode == "Approve" and spec.runs_history_limit < 1:
        yield FieldError("spec.runsHistoryLimit", "mode Approve needs runs to approve: must be at least 1")


def _cooldown(spec: DeschedulerPolicySpec) -> Errors:
    cooldown = spec.cooldown
    for name, text in (
        ("initial", cooldown.initial),
        ("maximum", cooldown.maximum),
        ("pendingDeadline", cooldown.pending_deadline),
    ):
        yield from attempt(f"spec.cooldown.{name}", _cooldown_duration, text)


def _cooldown_duration(text: str) -> None:
    if not SHORTEST_COOLDOWN <= parse_duration(text) <= LONGEST_INTERVAL:
        raise ValueError(f"{COOLDOWN_RULE.message}; not {text}")


def _approval(text: str) -> None:
    if not SHORTEST_APPROVAL <= parse_duration(text) <= LONGEST_INTERVAL:
        raise ValueError(f"{APPROVAL_RULE.message}; not {text}")


def _protections(spec: DeschedulerPolicySpec) -> Errors:
    if spec.protections.min_pod_age is not None:
        yield from attempt("spec.protections.minPodAge", parse_duration, spec.protections.min_pod_age)
    if spec.protections.protected_storage_classes and "PodsWithPVC" not in spec.protections.extra:
        message = "narrows PodsWithPVC, which must be in extra"
        yield FieldError("spec.protections.protectedStorageClasses", message)


def _scope(spec: DeschedulerPolicySpec) -> Errors:
    if spec.namespaces.include and spec.namespaces.exclude:
        yield FieldError("spec.namespaces.exclude", "include and exclude cannot be given together")
    yield from _selector("spec.namespaceSelector", spec.namespace_selector)
    yield from _selector("spec.podSelector", spec.pod_selector)
    yield from _selector("spec.nodeSelector", spec.node_selector)
    threshold = spec.priority_threshold
    if threshold is not None and (threshold.name is None) == (threshold.value is None):
        yield FieldError("spec.priorityThreshold", "give exactly one of name and value")


def _selector(field: str, selector: Selector | None) -> Errors:
    if selector is None:
        return
    for error in label_selector_errors(selector.compile()):
        part, _, message = error.partition(": ")
        yield FieldError(f"{field}.{part}", message)


def _strategies(spec: DeschedulerPolicySpec) -> Errors:
    if not tuple(spec.strategies):
        yield FieldError("spec.strategies", f"must have at least one of {', '.join(STRATEGIES)}")
    for name, strategy in spec.strategies:
        yield from _excludes(name, strategy)
    for name, strategy in spec.strategies.enabled():
        yield from _needs(name, strategy)
    yield from _utilization(spec)
    yield from _life_time(spec.strategies.pod_life_time)


def _utilization(spec: DeschedulerPolicySpec) -> Errors:
    """What the two strategies that read how full nodes are must not say, alone or together."""
    low, high = spec.strategies.low_node_utilization, spec.strategies.high_node_utilization
    if low and high and low.enabled and high.enabled:
        message = "LowNodeUtilization and HighNodeUtilization would undo each other: enable one of them"
        yield FieldError("spec.strategies", message)
    place = "spec.strategies.{}.params.nodeResourceUtilizationThresholds.{}"
    packing = high.params.node_resource_utilization_thresholds if high else None
    if packing is not None:
        given = {
            "targetThresholds": packing.target_thresholds,
            "useDeviationThresholds": packing.use_deviation_thresholds,
        }
        for name in (name for name, value in given.items() if value):
            yield FieldError(place.format("HighNodeUtilization", name), "belongs to LowNodeUtilization")
    yield from _real_use(low)
    limits = low.params.node_resource_utilization_thresholds if low else None
    if limits is None:
        return
    if limits.target_thresholds is None:
        yield FieldError(place.format("LowNodeUtilization", "targetThresholds"), "is required")
    elif not limits.use_deviation_thresholds:
        for resource, share in sorted(limits.thresholds.items()):
            target = limits.target_thresholds.get(resource, 100.0)
            if share > target:
                yield FieldError(
                    join_path(place.format("LowNodeUtilization", "thresholds"), resource),
                    f"must not exceed targetThresholds: {share:g} is more than {target:g}",
                )


def _real_use(low: LowNodeUtilization | None) -> Errors:
    """That queries go with their source, and thresholds with what is measured."""
    if low is None:
        return
    place, metrics = "spec.strategies.LowNodeUtilization.params", low.params.metrics_utilization
    queried = metrics is not None and metrics.source == PROMETHEUS
    if metrics is not None and queried is (metrics.prometheus is None):
        yield FieldError(f"{place}.metricsUtilization.prometheus", PROMETHEUS_RULE.message)
    limits = low.params.node_resource_utilization_thresholds
    given = {} if limits is None else {"thresholds": limits.thresholds, "targetThresholds": limits.target_thresholds}
    for name, shares in given.items():
        for resource in sorted(shares or ()):
            if (resource == METRIC_RESOURCE) is queried:
                continue
            yield FieldError(
                join_path(f"{place}.nodeResourceUtilizationThresholds.{name}", resource),
                f"the source {PROMETHEUS} measures {METRIC_RESOURCE} and nothing else"
                if queried
                else f"is what metricsUtilization measures with the source {PROMETHEUS}",
            )


def _life_time(strategy: PodLifeTime | None) -> Errors:
    if strategy is None:
        return
    place, params = "spec.strategies.PodLifeTime.params", strategy.params
    if params.owner_kinds.include and params.owner_kinds.exclude:
        yield FieldError(f"{place}.ownerKinds.exclude", "include and exclude cannot be given together")
    for index, condition in enumerate(params.conditions):
        if condition == PodConditionFilter():
            message = "give at least one of type, status, reason and minTimeSinceLastTransitionSeconds"
            yield FieldError(f"{place}.conditions[{index}]", message)


def _needs(name: str, strategy: Strategy) -> Errors:
    given = msgspec.to_builtins(strategy).get("params", {})  # defaults are left out: what is there was given
    for param in strategy.needs:
        if param not in given:
            yield FieldError(f"spec.strategies.{name}.params.{param}", f"is required where {name} is enabled")
    if strategy.needs_one_of and not given.keys() & set(strategy.needs_one_of):
        wanted = ", ".join(strategy.needs_one_of)
        yield FieldError(f"spec.strategies.{name}.params", f"needs at least one of {wanted} where {name} is enabled")


def _excludes(name: str, strategy: Strategy) -> Errors:
    given = msgspec.to_builtins(strategy).get("params", {})
    both = [param for param in strategy.at_most_one_of if param in given]
    if len(both) > 1:
        yield FieldError(f"spec.strategies.{name}.params.{both[-1]}", f"{' and '.join(both)} cannot be given together")


CHECKS: Final[tuple[Callable[[DeschedulerPolicySpec], Errors], ...]] = (
    _timing,
    _windows,
    _runs,
    _cooldown,
    _protections,
    _scope,
    _strategies,
)
"""Every check; each takes the spec and yields what is wrong."""
