"""Validation of custom resources beyond their schemas: the CEL rules in Python, and rules that CEL cannot express."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from trimtab.api import (
    cluster_autoscaler,
    node_pressure_policy,
    placement_admission,
    scheduler_extenders,
    scheduler_plugins,
    scheduler_policy,
    taint_manager,
)
from trimtab.api.base import Rule
from trimtab.api.cluster_autoscaler import (
    THRESHOLD_HELP,
    THRESHOLD_PATTERN,
    ClusterAutoscaler,
    GPULimit,
    ResourceRange,
    ScaleDown,
)
from trimtab.api.cron import check_cron
from trimtab.api.descheduler_policy import DeschedulerPolicy, DeschedulerPolicySpec, Selector
from trimtab.api.machine_autoscaler import (
    CLUSTER_API_KINDS,
    CLUSTER_API_PREFIX,
    MACHINE_API_VERSION,
    TARGETS_HELP,
    MachineAutoscaler,
    ScaleTargetRef,
)
from trimtab.api.node_pressure_policy import NodePressurePolicy, NodePressurePolicySpec, parse_reclaim, parse_threshold
from trimtab.api.placement_admission import (
    DedicatedPool,
    HardwareClass,
    PlacementAdmission,
    PodNodeConstraints,
    PodNodeSelector,
    PodToleration,
    parse_node_selector,
)
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
    ZERO_RULE,
    parse_duration,
    parse_go_duration,
    parse_time_zone,
)
from trimtab.api.scheduler_extenders import Extender
from trimtab.api.scheduler_plugins import AddedAffinity, NodeTerm, PodTopologySpreadArgs
from trimtab.api.scheduler_policy import Policy, SchedulerPolicy, SchedulerPolicySpec, UtilizationPoint
from trimtab.api.scheduler_policy import Profile as SchedulerProfile
from trimtab.api.schema import FieldError, join_path, parse_errors
from trimtab.api.strategies import (
    METRIC_RESOURCE,
    PROMETHEUS,
    STRATEGIES,
    LowNodeUtilization,
    PodConditionFilter,
    PodLifeTime,
    Strategy,
)
from trimtab.api.strategies.utilization import PROMETHEUS_RULE
from trimtab.api.taint_manager import (
    AT_LEAST_A_SECOND,
    AT_MOST_A_WEEK,
    EVICT,
    GRACE_ABOVE_PERIOD,
    ONE_FOR_ALL,
    WAIT_WITH_EVICT,
    KeyPolicy,
    NodeLifecycle,
    TaintManager,
)
from trimtab.kube.rules.quantity import cpu_millis
from trimtab.kube.rules.selectors import label_selector_errors

Errors = Iterator[FieldError]


def check_descheduler_policy(policy: DeschedulerPolicy) -> tuple[FieldError, ...]:
    """Return the errors of a DeschedulerPolicy that its schema does not detect."""
    return tuple(error for check in CHECKS for error in check(policy.spec))


def _in_range(rule: Rule, shortest: int) -> Callable[[str], None]:
    """Return a function that raises ValueError with the message of ``rule`` if a duration is out of range."""

    def parse(text: str) -> None:
        if not shortest <= parse_duration(text) <= LONGEST_INTERVAL:
            raise ValueError(f"{rule.message}; not {text}")

    return parse


def _timing(spec: DeschedulerPolicySpec) -> Errors:
    if spec.interval is not None and spec.schedule is not None:
        yield FieldError("spec.schedule", "interval and schedule cannot be given together")
    if spec.interval is not None:
        yield from parse_errors("spec.interval", _in_range(INTERVAL_RULE, SHORTEST_INTERVAL), spec.interval)
    if spec.schedule is not None:
        yield from parse_errors("spec.schedule.cron", check_cron, spec.schedule.cron)
        yield from parse_errors("spec.schedule.timeZone", parse_time_zone, spec.schedule.time_zone)


def _windows(spec: DeschedulerPolicySpec) -> Errors:
    for index, window in enumerate(spec.windows):
        place = f"spec.windows[{index}]"
        yield from parse_errors(f"{place}.schedule", check_cron, window.schedule)
        yield from parse_errors(f"{place}.duration", _in_range(WINDOW_RULE, SHORTEST_WINDOW), window.duration)
        yield from parse_errors(f"{place}.timeZone", parse_time_zone, window.time_zone)


def _runs(spec: DeschedulerPolicySpec) -> Errors:
    yield from parse_errors(
        "spec.approvalDeadline", _in_range(APPROVAL_RULE, SHORTEST_APPROVAL), spec.approval_deadline
    )
    if spec.mode == "Approve" and spec.runs_history_limit < 1:
        yield FieldError("spec.runsHistoryLimit", "must be at least 1 in Approve mode")


def _cooldown(spec: DeschedulerPolicySpec) -> Errors:
    cooldown = spec.cooldown
    for name, text in (
        ("initial", cooldown.initial),
        ("maximum", cooldown.maximum),
        ("pendingDeadline", cooldown.pending_deadline),
    ):
        yield from parse_errors(f"spec.cooldown.{name}", _in_range(COOLDOWN_RULE, SHORTEST_COOLDOWN), text)


def _protections(spec: DeschedulerPolicySpec) -> Errors:
    if spec.protections.min_pod_age is not None:
        yield from parse_errors("spec.protections.minPodAge", parse_duration, spec.protections.min_pod_age)
    if spec.protections.protected_storage_classes and "PodsWithPVC" not in spec.protections.extra:
        message = "requires PodsWithPVC in protections.extra"
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
    """Check the parameters of LowNodeUtilization and HighNodeUtilization, and that not both are enabled."""
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
    yield from _check_metrics_source(low)
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


def _check_metrics_source(low: LowNodeUtilization | None) -> Errors:
    """Check that queries match the metrics source, and that thresholds use the resources that it measures."""
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
                else f"is only valid if metricsUtilization.source is {PROMETHEUS}",
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
    given = msgspec.to_builtins(strategy).get("params", {})  # to_builtins omits defaults
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
"""All checks of a DeschedulerPolicy's spec. Each function yields errors."""


def check_cluster_autoscaler(autoscaler: ClusterAutoscaler) -> tuple[FieldError, ...]:
    """Return the errors of a ClusterAutoscaler that its schema does not detect."""
    return tuple(_cluster_autoscaler(autoscaler))


def check_machine_autoscaler(autoscaler: MachineAutoscaler) -> tuple[FieldError, ...]:
    """Return the errors of a MachineAutoscaler that its schema does not detect. Its target is not looked up."""
    return tuple(_machine_autoscaler(autoscaler))


def _cluster_autoscaler(autoscaler: ClusterAutoscaler) -> Errors:
    if autoscaler.metadata.name != cluster_autoscaler.NAME:
        message = f"must be {cluster_autoscaler.NAME}: there is one ClusterAutoscaler for the whole cluster"
        yield FieldError("metadata.name", f"{message}; not {autoscaler.metadata.name or 'empty'}")
    spec = autoscaler.spec
    limits = spec.resource_limits
    yield from _range("spec.resourceLimits.cores", limits.cores)
    yield from _range("spec.resourceLimits.memory", limits.memory)
    seen: set[str] = set()
    for index, gpu in enumerate(limits.gpus):
        place = f"spec.resourceLimits.gpus[{index}]"
        yield from _range(place, gpu)
        if gpu.type in seen:
            yield FieldError(f"{place}.type", f"must not be given twice: {gpu.type}")
        seen.add(gpu.type)
    yield from parse_errors("spec.scaleUp.newPodScaleUpDelay", parse_go_duration, spec.scale_up.new_pod_scale_up_delay)
    yield from parse_errors("spec.maxNodeProvisionTime", parse_go_duration, spec.max_node_provision_time)
    if spec.scale_down is not None:
        yield from _scale_down(spec.scale_down)


def _range(place: str, limit: ResourceRange | GPULimit | None) -> Errors:
    if limit is not None and limit.max < limit.min:
        yield FieldError(f"{place}.max", f"must be at least min: {limit.max} is less than {limit.min}")


def _scale_down(spec: ScaleDown) -> Errors:
    for name, text in (
        ("delayAfterAdd", spec.delay_after_add),
        ("delayAfterDelete", spec.delay_after_delete),
        ("delayAfterFailure", spec.delay_after_failure),
        ("unneededTime", spec.unneeded_time),
        ("unreadyTime", spec.unready_time),
    ):
        yield from parse_errors(f"spec.scaleDown.{name}", parse_go_duration, text)
    for name, text in (
        ("utilizationThreshold", spec.utilization_threshold),
        ("gpuUtilizationThreshold", spec.gpu_utilization_threshold),
    ):
        yield from parse_errors(f"spec.scaleDown.{name}", _threshold, text)


def _threshold(text: str) -> None:
    if not re.fullmatch(THRESHOLD_PATTERN[1:-1], text) or float(text) <= 0:
        raise ValueError(f"must be {THRESHOLD_HELP}; not {text!r}")


def _machine_autoscaler(autoscaler: MachineAutoscaler) -> Errors:
    spec = autoscaler.spec
    if spec.max_replicas < spec.min_replicas:
        message = f"must be at least minReplicas: {spec.max_replicas} is less than {spec.min_replicas}"
        yield FieldError("spec.maxReplicas", message)
    if not can_be_scaled(spec.scale_target_ref):
        target = spec.scale_target_ref
        yield FieldError("spec.scaleTargetRef", f"{TARGETS_HELP}; not a {target.kind} of {target.api_version or 'v1'}")


def can_be_scaled(target: ScaleTargetRef) -> bool:
    """Return whether trimtab can scale targets of this API version and kind."""
    if target.api_version == MACHINE_API_VERSION:
        return target.kind == "MachineSet"
    versions = (f"{CLUSTER_API_PREFIX}v1beta1", f"{CLUSTER_API_PREFIX}v1beta2")
    return target.api_version in versions and target.kind in CLUSTER_API_KINDS


def check_taint_manager(manager: TaintManager) -> tuple[FieldError, ...]:
    """Return the errors of a TaintManager that its schema does not detect."""
    return tuple(_taint_manager(manager))


def _taint_manager(manager: TaintManager) -> Errors:
    if manager.name != taint_manager.NAME:
        yield FieldError("metadata.name", f"{ONE_FOR_ALL}; not {manager.name or 'empty'}")
    seen: set[str] = set()
    for index, policy in enumerate(manager.spec.taints):
        place = f"spec.taints[{index}]"
        if policy.key in seen:
            yield FieldError(f"{place}.key", f"must not be given twice: {policy.key}")
        seen.add(policy.key)
        yield from _taint_policy(place, policy)
    yield from _node_lifecycle("spec.nodeLifecycle", manager.spec.node_lifecycle)


def _taint_policy(place: str, policy: KeyPolicy) -> Errors:
    if policy.maximum_wait is None:
        return
    if policy.policy != EVICT:
        yield FieldError(f"{place}.maximumWait", WAIT_WITH_EVICT)
    yield from parse_errors(f"{place}.maximumWait", _in_range(AT_MOST_A_WEEK, 0), policy.maximum_wait)


def _node_lifecycle(place: str, lifecycle: NodeLifecycle) -> Errors:
    wrong = [
        error
        for name, text in (
            ("nodeMonitorPeriod", lifecycle.node_monitor_period),
            ("nodeMonitorGracePeriod", lifecycle.node_monitor_grace_period),
            ("nodeStartupGracePeriod", lifecycle.node_startup_grace_period),
        )
        for error in parse_errors(f"{place}.{name}", _in_range(AT_LEAST_A_SECOND, 1), text)
    ]
    yield from wrong
    if not wrong and lifecycle.monitor_grace_seconds <= lifecycle.monitor_period_seconds:
        message = (
            f"{GRACE_ABOVE_PERIOD}: {lifecycle.node_monitor_grace_period} is not longer than "
            f"{lifecycle.node_monitor_period}"
        )
        yield FieldError(f"{place}.nodeMonitorGracePeriod", message)


_PREDICATES: Final = frozenset(name.lower() for name in scheduler_policy.PREDICATES)
_PRIORITIES: Final = frozenset(name.lower() for name in scheduler_policy.PRIORITIES)


def check_node_pressure_policy(policy: NodePressurePolicy) -> tuple[FieldError, ...]:
    """Return the errors of a NodePressurePolicy that its schema does not detect."""
    return tuple(_node_pressure_policy(policy.spec))


def _node_pressure_policy(spec: NodePressurePolicySpec) -> Errors:
    if not (spec.eviction_soft or spec.eviction_hard or spec.memory_stall):
        yield FieldError("spec", node_pressure_policy.SOME_THRESHOLD)
    if spec.eviction_forecast is not None and not spec.eviction_soft:
        yield FieldError("spec.evictionForecast", node_pressure_policy.FORECAST_NEEDS_SOFT)
    yield from _selector("spec.nodeSelector", spec.node_selector)
    yield from _values_by_signal("spec.evictionHard", spec.eviction_hard, parse_threshold)
    yield from _values_by_signal("spec.evictionSoft", spec.eviction_soft, parse_threshold)
    yield from _values_by_signal("spec.evictionMinimumReclaim", spec.eviction_minimum_reclaim, parse_reclaim)
    yield from _values_by_signal("spec.evictionSoftGracePeriod", spec.eviction_soft_grace_period, _soft_grace_period)
    yield from _values_by_signal("spec.kubeletEvictionHard", spec.kubelet_eviction_hard, parse_threshold)
    for signal in sorted(set(spec.eviction_soft) - set(spec.eviction_soft_grace_period)):
        yield FieldError("spec.evictionSoftGracePeriod", f"{node_pressure_policy.SOFT_NEEDS_GRACE}; not for {signal}")
    for signal in sorted(set(spec.eviction_soft_grace_period) - set(spec.eviction_soft)):
        yield FieldError(join_path("spec.evictionSoftGracePeriod", signal), node_pressure_policy.GRACE_NEEDS_SOFT)
    for signal in sorted(set(spec.eviction_soft) & set(spec.eviction_hard)):
        if not soft_above_hard(spec.eviction_soft[signal], spec.eviction_hard[signal]):
            yield FieldError(join_path("spec.evictionSoft", signal), node_pressure_policy.SOFT_ABOVE_HARD)
    yield from _node_pressure_durations(spec)


def _node_pressure_durations(spec: NodePressurePolicySpec) -> Errors:
    durations = (
        ("evictionPressureTransitionPeriod", spec.eviction_pressure_transition_period, ZERO_RULE, 0),
        ("monitoringInterval", spec.monitoring_interval, INTERVAL_RULE, SHORTEST_INTERVAL),
        ("evictionForecast", spec.eviction_forecast, COOLDOWN_RULE, SHORTEST_COOLDOWN),
        ("deleteAfter", spec.delete_after, ZERO_RULE, 0),
        ("memoryStall.gracePeriod", spec.memory_stall.grace_period if spec.memory_stall else None, ZERO_RULE, 0),
        ("failedPods.after", spec.failed_pods.after if spec.failed_pods else None, ZERO_RULE, 0),
    )
    for field, text, rule, shortest in durations:
        if text is not None:
            yield from parse_errors(f"spec.{field}", _in_range(rule, shortest), text)


def _values_by_signal(place: str, values: Mapping[str, str], parse: Callable[[str], object]) -> Errors:
    for signal, text in values.items():
        if signal not in node_pressure_policy.SIGNALS:
            yield FieldError(join_path(place, signal), node_pressure_policy.KNOWN_SIGNALS)
        yield from parse_errors(join_path(place, signal), parse, text)


def _soft_grace_period(text: str) -> None:
    if parse_duration(text) > LONGEST_INTERVAL:
        raise ValueError(f"{node_pressure_policy.GRACE_AT_MOST_A_WEEK}; not {text}")


def soft_above_hard(soft_text: str, hard_text: str) -> bool:
    """Return whether a soft threshold is above a hard one.

    It is also true if this depends on the node, because one is a quantity and the other a percentage, if the kubelet
    ignores one of them, and if one is invalid, which is another error.
    """
    try:
        soft, hard = parse_threshold(soft_text), parse_threshold(hard_text)
    except ValueError:
        return True
    if soft is None or hard is None:
        return True
    if soft.share is not None and hard.share is not None:
        return soft.share > hard.share
    return soft.quantity is None or hard.quantity is None or cpu_millis(soft_text) > cpu_millis(hard_text)


def check_scheduler_policy(policy: SchedulerPolicy) -> tuple[FieldError, ...]:
    """Return the errors of a SchedulerPolicy that its schema does not detect."""
    return tuple(_scheduler_policy(policy.spec))


def _scheduler_policy(spec: SchedulerPolicySpec) -> Errors:
    if sum(form is not None for form in (spec.provider, spec.policy, spec.profile)) > 1:
        yield FieldError("spec", scheduler_policy.ONE_FORM)
    yield from _extenders("spec.extenders", spec.extenders)
    if spec.policy is not None:
        yield from _legacy_policy("spec.policy", spec.policy)
    if spec.profile is not None:
        yield from _unique_names("spec.profile.scores", [each.name for each in spec.profile.scores])
        strategy, place = spec.profile.scoring_strategy, "spec.profile.scoringStrategy"
        if (strategy.shape is not None) != (strategy.type == scheduler_policy.REQUESTED_TO_CAPACITY_RATIO):
            yield FieldError(f"{place}.shape", scheduler_policy.SHAPE_OF_TYPE)
        yield from _ascending(f"{place}.shape", strategy.shape or ())
        yield from _unique_names(f"{place}.resources", [each.name for each in strategy.resources])
        yield from _plugin_arguments("spec.profile", spec.profile)


def _extenders(place: str, extenders: Sequence[Extender]) -> Errors:
    if sum(bool(extender.bind_verb) for extender in extenders) > 1:
        yield FieldError(place, scheduler_extenders.ONE_BINDER)
    managed = [each.name for extender in extenders for each in extender.managed_resources]
    if len(set(managed)) < len(managed):
        yield FieldError(place, scheduler_extenders.MANAGED_ONCE)
    for number, extender in enumerate(extenders):
        where, tls = f"{place}[{number}]", extender.tls_config
        if extender.prioritize_verb and not extender.weight:
            yield FieldError(f"{where}.weight", scheduler_extenders.WEIGHT_OF_PRIORITIES)
        yield from parse_errors(f"{where}.httpTimeout", _extender_timeout, extender.http_timeout)
        if tls is not None and not extender.url_prefix.startswith("https://"):
            yield FieldError(f"{where}.tlsConfig", scheduler_extenders.TLS_OF_HTTPS)
        if tls is not None and bool(tls.cert_file) != bool(tls.key_file):
            yield FieldError(f"{where}.tlsConfig", scheduler_extenders.KEY_OF_CERTIFICATE)


def _extender_timeout(text: str) -> None:
    if not 0 < parse_go_duration(text) <= scheduler_extenders.LONGEST_TIMEOUT:
        raise ValueError(f"{scheduler_extenders.TIMEOUT_RANGE}; not {text}")


def _plugin_arguments(place: str, profile: SchedulerProfile) -> Errors:
    for name, listed in (
        ("balancedResources", profile.balanced_resources),
        ("ignoredResources", profile.ignored_resources),
        ("ignoredResourceGroups", profile.ignored_resource_groups),
    ):
        for number, each in enumerate(listed):
            if each in listed[:number]:
                yield FieldError(f"{place}.{name}[{number}]", f"must not be given twice: {each}")
    yield from _default_constraints(f"{place}.podTopologySpread.defaultConstraints", profile.pod_topology_spread)
    if profile.added_affinity is not None:
        yield from _added_affinity(f"{place}.addedAffinity", profile.added_affinity)


def _default_constraints(where: str, spread: PodTopologySpreadArgs) -> Errors:
    if spread.default_constraints and spread.defaulting_type != scheduler_plugins.LIST:
        yield FieldError(where, scheduler_plugins.LIST_OF_TYPE)
    seen: set[tuple[str, str]] = set()
    for number, constraint in enumerate(spread.default_constraints):
        key = constraint.topology_key, constraint.when_unsatisfiable
        if key in seen:
            yield FieldError(f"{where}[{number}]", f"must not be given twice: {', '.join(key)}")
        seen.add(key)
        if constraint.min_domains is not None and constraint.when_unsatisfiable != "DoNotSchedule":
            yield FieldError(f"{where}[{number}].minDomains", scheduler_plugins.MIN_DOMAINS_OF_HARD)


def _added_affinity(place: str, added: AddedAffinity) -> Errors:
    required = added.required_during_scheduling_ignored_during_execution
    where = f"{place}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    for number, term in enumerate(required.node_selector_terms if required is not None else ()):
        yield from _node_term(f"{where}[{number}]", term)
    where = f"{place}.preferredDuringSchedulingIgnoredDuringExecution"
    for number, preferred in enumerate(added.preferred_during_scheduling_ignored_during_execution):
        yield from _node_term(f"{where}[{number}].preference", preferred.preference)


_INTEGER: Final = re.compile("-?[0-9]{1,18}")


def _node_term(place: str, term: NodeTerm) -> Errors:
    if not term.match_expressions and not term.match_fields:
        yield FieldError(place, scheduler_plugins.SOME_REQUIREMENT)
    for number, each in enumerate(term.match_expressions):
        match each.operator:
            case "Exists" | "DoesNotExist":
                valid = not each.values
            case "Gt" | "Lt":
                valid = len(each.values) == 1 and _INTEGER.fullmatch(each.values[0]) is not None
            case _:
                valid = bool(each.values)
        if not valid:
            yield FieldError(f"{place}.matchExpressions[{number}].values", scheduler_plugins.VALUES_OF_OPERATOR)


def _legacy_policy(place: str, policy: Policy) -> Errors:
    yield from _unique_names(f"{place}.predicates", [each.name for each in policy.predicates or ()])
    yield from _unique_names(f"{place}.priorities", [each.name for each in policy.priorities or ()])
    for number, predicate in enumerate(policy.predicates or ()):
        argument = predicate.argument
        if argument is None and predicate.name.lower() not in _PREDICATES:
            message = f"{predicate.name}: {scheduler_policy.UNKNOWN_PREDICATE}"
            yield FieldError(f"{place}.predicates[{number}].name", message)
        if argument and (argument.service_affinity is None) == (argument.labels_presence is None):
            yield FieldError(f"{place}.predicates[{number}].argument", scheduler_policy.ONE_PREDICATE_ARGUMENT)
    for number, priority in enumerate(policy.priorities or ()):
        where, given = f"{place}.priorities[{number}].argument", priority.argument
        if given is None:
            if priority.name.lower() not in _PRIORITIES:
                message = f"{priority.name}: {scheduler_policy.UNKNOWN_PRIORITY}"
                yield FieldError(f"{place}.priorities[{number}].name", message)
            continue
        ratio = given.requested_to_capacity_ratio_arguments
        if sum(each is not None for each in (given.service_anti_affinity, given.label_preference, ratio)) != 1:
            yield FieldError(where, scheduler_policy.ONE_PRIORITY_ARGUMENT)
        if ratio is not None:
            yield from _ascending(f"{where}.requestedToCapacityRatioArguments.shape", ratio.shape)


def _ascending(place: str, shape: Sequence[UtilizationPoint]) -> Errors:
    if any(after.utilization <= before.utilization for before, after in pairwise(shape)):
        yield FieldError(place, scheduler_policy.SHAPE_ASCENDS)


def _unique_names(place: str, names: Sequence[str]) -> Errors:
    for number, name in enumerate(names):
        if name in names[:number]:
            yield FieldError(f"{place}[{number}].name", f"must not be given twice: {name}")


def check_placement_admission(admission: PlacementAdmission) -> tuple[FieldError, ...]:
    """Return the errors of a PlacementAdmission that its schema does not detect."""
    return tuple(_placement_admission(admission))


def _placement_admission(admission: PlacementAdmission) -> Errors:
    spec = admission.spec
    if admission.name != placement_admission.NAME:
        yield FieldError("metadata.name", f"{placement_admission.ONE_FOR_ALL}; not {admission.name or 'empty'}")
    if spec.pod_node_constraints is not None:
        yield from _node_constraints("spec.podNodeConstraints", spec.pod_node_constraints)
    if spec.pod_node_selector is not None:
        yield from _node_selectors("spec.podNodeSelector", spec.pod_node_selector)
    if spec.pod_toleration_restriction is not None:
        restriction, place = spec.pod_toleration_restriction, "spec.podTolerationRestriction"
        yield from _tolerations(f"{place}.defaultTolerations", restriction.default_tolerations)
        yield from _tolerations(f"{place}.tolerationsWhitelist", restriction.tolerations_whitelist)
    if spec.dedicated_nodes is not None:
        yield from _pools("spec.dedicatedNodes.pools", spec.dedicated_nodes.pools)
    if spec.special_hardware is not None:
        yield from _hardware("spec.specialHardware.classes", spec.special_hardware.classes)


def _node_selectors(place: str, rule: PodNodeSelector) -> Errors:
    default = rule.cluster_default_node_selector
    yield from parse_errors(f"{place}.clusterDefaultNodeSelector", parse_node_selector, default)
    for namespace, text in rule.namespace_whitelists.items():
        yield from parse_errors(f"{place}.namespaceWhitelists.{namespace}", parse_node_selector, text)


def _pools(place: str, pools: Sequence[DedicatedPool]) -> Errors:
    yield from _unique_taints(place, pools, placement_admission.ONE_POOL_PER_TAINT)
    for index, pool in enumerate(pools):
        if not (pool.groups or pool.namespaces):
            yield FieldError(f"{place}[{index}]", placement_admission.SOME_SUBJECT)


def _hardware(place: str, classes: Sequence[HardwareClass]) -> Errors:
    yield from _unique_taints(place, classes, placement_admission.ONE_CLASS_PER_TAINT)
    for index, each in enumerate(classes):
        if not (each.resources or each.pod_labels):
            yield FieldError(f"{place}[{index}]", placement_admission.SOME_CHARACTERISTIC)


def _node_constraints(place: str, rule: PodNodeConstraints) -> Errors:
    if bool(rule.protected_taints) != (placement_admission.TOLERATIONS in rule.additional_checks):
        yield FieldError(f"{place}.protectedTaints", placement_admission.PROTECTED_TAINTS_OF_CHECK)


def _tolerations(place: str, tolerations: Sequence[PodToleration]) -> Errors:
    for index, toleration in enumerate(tolerations):
        yield from _toleration(f"{place}[{index}]", toleration)


def _toleration(place: str, toleration: PodToleration) -> Errors:
    if toleration.operator == "Exists" and toleration.value:
        yield FieldError(f"{place}.value", placement_admission.VALUE_OF_EQUAL)
    if toleration.operator != "Exists" and not toleration.key:
        yield FieldError(f"{place}.operator", placement_admission.KEY_OF_EXISTS)
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        yield FieldError(f"{place}.effect", placement_admission.SECONDS_OF_NO_EXECUTE)


def _unique_taints(place: str, items: Sequence[DedicatedPool | HardwareClass], message: str) -> Errors:
    """Yield the errors of a list whose items must have different names and different taints."""
    names = [item.name for item in items]
    taints = [item.taint for item in items]
    for index, item in enumerate(items):
        if item.name in names[:index]:
            yield FieldError(f"{place}[{index}].name", f"must not be given twice: {item.name}")
        if item.taint in taints[:index]:
            yield FieldError(f"{place}[{index}].taint", message)
