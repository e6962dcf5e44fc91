"""Exports the autoscaler's metrics: trimtab's own, and upstream's for existing dashboards.

The number of time series is bounded.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import GIB, ClusterAutoscalerSpec, ResourceRange
from trimtab.autoscaling.actuation.removal import RemovalOutcome
from trimtab.autoscaling.cluster_state.readiness import Readiness, count_by_readiness
from trimtab.autoscaling.groups import NodeGroup
from trimtab.autoscaling.report.iteration_report import (
    IterationReport,
    ScaleUpOutcome,
    count_pending_pods,
    kept_daemon_sets,
    kept_nodes,
    kept_pods,
    planned_scale_ups,
)
from trimtab.controller.reporter import OTHER_REASON, LabeledGauge, reason_label

COMPLETED: Final = "Completed"
"""The ``result`` label of successful iterations. Failed iterations have a reason code."""

PHASES: Final = ("observe", "plan", "act")
"""Phases of an iteration whose durations have their own label values. All other phases have the label value Other."""

MAX_GROUPS: Final = 500
"""Maximum number of node groups with their own series.

Groups beyond that number, in the order of their ids, have none.
"""

_TIMES: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60)
_WAITS: Final = (0.25, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 900)


class AutoscalerMetrics:
    """The autoscaler's metrics under trimtab's names.

    Reason labels are codes of :mod:`trimtab.api.reasons`. At most 500 node groups have their own series. Names of nodes
    and pods occur only in events and in the status.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._make_iterations(registry)
        self._make_cluster(registry)
        self._make_groups(registry)
        self._make_actions(registry)

    def _make_iterations(self, registry: CollectorRegistry) -> None:
        self.iterations = Counter(
            "trimtab_autoscaler_passes",
            "Iterations by result: Completed, IterationFailed or ClusterUnhealthy.",
            ["mode", "result"],
            registry=registry,
        )
        self.iteration_seconds = Histogram(
            "trimtab_autoscaler_pass_seconds", "Duration of iterations in seconds.", buckets=_TIMES, registry=registry
        )
        self.plan_seconds = Histogram(
            "trimtab_autoscaler_plan_seconds",
            f"Duration of the phases of an iteration in seconds: {', '.join(PHASES)}.",
            ["phase"],
            buckets=_TIMES,
            registry=registry,
        )
        self.last_iteration = Gauge(
            "trimtab_autoscaler_last_iteration_timestamp_seconds",
            "Unix time at which the last iteration ended.",
            registry=registry,
        )
        self.healthy = Gauge(
            "trimtab_autoscaler_cluster_healthy",
            "1 if enough nodes are ready for the cluster to be scaled, else 0.",
            registry=registry,
        )

    def _make_cluster(self, registry: CollectorRegistry) -> None:
        self.pending = LabeledGauge(
            "trimtab_autoscaler_pending_pods",
            "Pods without a node, by reason: PendingPods if nodes are added for them, otherwise why no node is added.",
            ("reason",),
            registry,
        )
        self.nodes = LabeledGauge(
            "trimtab_autoscaler_nodes",
            "Number of nodes by state: Ready, Unready, Starting, or Going (being removed).",
            ("state",),
            registry,
        )
        self.unneeded = Gauge("trimtab_autoscaler_unneeded_nodes", "Unneeded nodes.", registry=registry)
        self.removing = Gauge("trimtab_autoscaler_removing_nodes", "Nodes that are being removed.", registry=registry)
        self.kept = LabeledGauge(
            "trimtab_autoscaler_kept_nodes", "Nodes that are not removed, by reason.", ("reason",), registry
        )
        self.daemon_sets = LabeledGauge(
            "trimtab_autoscaler_daemon_sets",
            "DaemonSets that are not expected on new nodes, or that take up capacity of pending pods, by reason.",
            ("reason",),
            registry,
        )
        self.problems = LabeledGauge(
            "trimtab_autoscaler_invalid_objects",
            "Invalid objects that the autoscaler ignores, by reason.",
            ("reason",),
            registry,
        )

    def _make_groups(self, registry: CollectorRegistry) -> None:
        def of_group(name: str, help_: str) -> LabeledGauge:
            return LabeledGauge(f"trimtab_autoscaler_group_{name}", help_, ("group",), registry)

        self.groups = Gauge("trimtab_autoscaler_groups", "Node groups.", registry=registry)
        self.minimum = of_group("min_nodes", "The minimum size of the node group.")
        self.maximum = of_group("max_nodes", "The maximum size of the node group.")
        self.target = of_group("target_nodes", "The target size of the node group.")
        self.ready = of_group("ready_nodes", "Ready nodes of the node group.")
        self.backoff = of_group(
            "backoff", "1 while scale-ups of the node group are in backoff after a failure, else 0."
        )
        self.group_healthy = of_group("healthy", "1 if the node group is healthy enough to be scaled, else 0.")

    def _make_actions(self, registry: CollectorRegistry) -> None:
        self.scaled_up = Counter(
            "trimtab_autoscaler_scaled_up_nodes",
            "Nodes requested by scale-ups, by reason.",
            ["reason"],
            registry=registry,
        )
        self.failed_ups = Counter(
            "trimtab_autoscaler_failed_scale_ups",
            "Scale-ups that failed or whose nodes did not register in time, by reason.",
            ["reason"],
            registry=registry,
        )
        self.scaled_down = Counter(
            "trimtab_autoscaler_scaled_down_nodes",
            "Removed nodes by reason: Underutilized, Empty or Unready.",
            ["reason"],
            registry=registry,
        )
        self.failed_downs = Counter(
            "trimtab_autoscaler_failed_scale_downs",
            "Node removals that did not complete, by result (Failed, Aborted) and reason.",
            ["result", "reason"],
            registry=registry,
        )
        self.removal_seconds = Histogram(
            "trimtab_autoscaler_removal_seconds",
            "Seconds from the taint to the deletion of removed nodes.",
            buckets=(5, 10, 30, 60, 120, 300, 600, 1200, 3600),
            registry=registry,
        )
        self.evicted = Counter(
            "trimtab_autoscaler_evicted_pods", "Pods evicted from nodes that were being removed.", registry=registry
        )
        self.requests = Counter(
            "trimtab_autoscaler_scaling_requests",
            "API requests sent to add nodes (up) or to remove nodes (down), except lists and watches.",
            ["direction"],
            registry=registry,
        )
        self.pending_to_request = Histogram(
            "trimtab_autoscaler_pending_to_request_seconds",
            "Seconds from a pod's condition Unschedulable to the scale-up request for it.",
            buckets=_WAITS,
            registry=registry,
        )

    def observe(self, report: IterationReport) -> None:
        """Update the metrics from an iteration report."""
        self._observe_iteration(report)
        if not report.error:  # the report of a failed iteration is incomplete: the metrics keep their values
            self._observe_cluster(report)
            self._observe_groups(report)
        for scale_up in report.scale_up_outcomes:
            self._count_scale_up(scale_up, report)
        for finding in report.findings:
            if finding.failure:
                self.failed_ups.labels(reason_label(finding.reason)).inc()
        for corrected in report.size_corrections:
            self.requests.labels("up").inc(corrected.calls)
        for outcome in report.removal_outcomes:
            self._count_removal(outcome)

    def _observe_iteration(self, report: IterationReport) -> None:
        result = reasons.ITERATION_FAILED if report.error else COMPLETED
        if report.health.cluster and not report.error:
            result = reasons.CLUSTER_UNHEALTHY
        self.iterations.labels(report.mode, result).inc()
        self.iteration_seconds.observe(max(0.0, report.finished - report.started))
        for phase, seconds in report.phases.items():
            self.plan_seconds.labels(phase if phase in PHASES else OTHER_REASON).observe(seconds)
        self.last_iteration.set(report.finished)
        self.healthy.set(not report.health.cluster)

    def _observe_cluster(self, report: IterationReport) -> None:
        count_pending_pods = Tally(reason_label(kept.reason) for kept in kept_pods(report.plan))
        count_pending_pods[reasons.PENDING_PODS] += sum(len(action.pods) for action in planned_scale_ups(report.plan))
        self.pending.show(_labelled(count_pending_pods))
        states = Tally(readiness.value for readiness in report.readiness.values())
        self.nodes.show({(state.value,): states[state.value] for state in Readiness})
        self.unneeded.set(len(report.state.unneeded))
        self.removing.set(len(report.removals))
        self.kept.show(_labelled(Tally(reason_label(kept.reason) for kept in kept_nodes(report.plan))))
        self.daemon_sets.show(_labelled(Tally(reason_label(kept.reason) for kept in kept_daemon_sets(report.plan))))
        wrong = (*report.groups.problems, *report.problems)
        self.problems.show(_labelled(Tally(reason_label(problem.reason) for problem in wrong)))

    def _observe_groups(self, report: IterationReport) -> None:
        shown = shown_groups(report)
        self.groups.set(len(report.groups.by_id))
        counts = count_by_readiness(report.groups, report.readiness)
        self.minimum.show({(each.id,): each.minimum for each in shown})
        self.maximum.show({(each.id,): each.maximum for each in shown})
        self.target.show({(each.id,): each.target for each in shown})
        self.ready.show({(each.id,): counts[each.id][Readiness.READY] for each in shown})
        self.backoff.show({(each.id,): float(backs_off(report, each)) for each in shown})
        self.group_healthy.show({(each.id,): float(each.id not in report.health.groups) for each in shown})

    def _count_scale_up(self, scale_up: ScaleUpOutcome, report: IterationReport) -> None:
        self.requests.labels("up").inc(scale_up.scaled.calls)
        if not scale_up.scaled.done:
            self.failed_ups.labels(reason_label(str(scale_up.scaled.failure))).inc()
            return
        self.scaled_up.labels(reason_label(scale_up.action.reason)).inc(
            max(0, scale_up.scaled.after - scale_up.scaled.before)
        )
        for since in pending_since(scale_up, report):
            self.pending_to_request.observe(max(0.0, scale_up.at - since))

    def _count_removal(self, outcome: RemovalOutcome) -> None:
        self.requests.labels("down").inc(outcome.calls)
        self.evicted.inc(len(outcome.evicted))
        if outcome.done:
            self.scaled_down.labels(reason_label(outcome.why)).inc()
            self.removal_seconds.observe(max(0.0, outcome.finished - outcome.started))
        else:
            self.failed_downs.labels(outcome.result.value, reason_label(outcome.reason)).inc()


def pending_since(scale_up: ScaleUpOutcome, report: IterationReport) -> Iterable[float]:
    """Yield the times at which the pods of a scale-up became unschedulable.

    Pods that the scheduler has not reported as unschedulable are skipped.
    """
    for pod in scale_up.action.pods:
        found = report.pending_pods.get(pod)
        if found is not None and found.since is not None:
            yield found.since


def shown_groups(report: IterationReport) -> tuple[NodeGroup, ...]:
    """Return the node groups that have their own series."""
    return report.groups.all[:MAX_GROUPS]


def backs_off(report: IterationReport, group: NodeGroup) -> bool:
    """Return whether scale-ups of the node group were in backoff at the end of the iteration."""
    until = report.state.record(group.id).backoff_until
    return until is not None and report.finished < until


def _labelled(tally: Tally[str]) -> dict[tuple[str, ...], float]:
    return {(label,): number for label, number in tally.items()}


NO_CORES_LIMIT: Final = 320_000
NO_MEMORY_LIMIT: Final = 6_400_000
"""Upstream's default limits in cores and GiB, which upstream exports if no limits are configured."""

_FUNCTIONS: Final = {"observe": "cloudProviderRefresh", "plan": "scaleUp", "act": "scaleDown"}
"""Upstream's function labels by iteration phase. Trimtab plans scale-up and scale-down in one phase."""
_COOLDOWN_REASONS: Final = frozenset({reasons.DELAY_AFTER_ADD, reasons.DELAY_AFTER_DELETE, reasons.DELAY_AFTER_FAILURE})
_SKIPPED_UP_REASONS: Final = {
    reasons.MAX_CORES_REACHED: "CpuResourceLimit",
    reasons.MAX_MEMORY_REACHED: "MemoryResourceLimit",
}
_SKIPPED_DOWN_PHRASES: Final = {" of cores,": "CpuResourceLimit", " of memory (GiB),": "MemoryResourceLimit"}
"""Upstream's reason labels by the resource phrase in messages of MinimalResourceLimitExceeded."""

_FAILURE_LABELS: Final = {reasons.SCALE_UP_TIMED_OUT: "timeout", reasons.NODE_NOT_STARTED: "timeout"}
_BUCKETS: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 15, 20, 30, 60, 120, 300, 600)


class CompatibleMetrics:
    """Upstream's metrics ``cluster_autoscaler_*``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.safe = self._gauge("cluster_safe_to_autoscale", "1 if the cluster is healthy enough to be scaled.")
        self.last_activity = self._series(
            "last_activity", "Unix time at which an activity of the autoscaler last ran.", "activity"
        )
        self.durations = Histogram(
            "cluster_autoscaler_function_duration_seconds",
            "Seconds that functions took: main (the iteration), cloudProviderRefresh, scaleUp (planning), scaleDown.",
            ["function"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self.errors = self._counter("errors", "Iterations that ended with an error.", "type")
        self._make_cluster()
        self._make_groups()
        self._make_actions()

    def _make_cluster(self) -> None:
        self.nodes = self._series("nodes_count", "Nodes by state.", "state")
        self.pods = self._series("unschedulable_pods_count", "Unschedulable pods.", "type")
        self.max_nodes = self._gauge("max_nodes_count", "maxNodesTotal; 0 if there is no limit.")
        self.cores = self._gauge("cluster_cpu_current_cores", "Cores of all nodes.")
        self.core_limits = self._series("cpu_limits_cores", "Limits of the cluster's cores.", "direction")
        self.memory = self._gauge("cluster_memory_current_bytes", "Memory of all nodes, in whole GiB.")
        self.memory_limits = self._series("memory_limits_bytes", "Limits of the cluster's memory.", "direction")

    def _make_groups(self) -> None:
        self.group_count = self._series("node_groups_count", "Node groups.", "node_group_type")
        self.group_min = self._series("node_group_min_count", "The minimum size of the node group.", "node_group")
        self.group_max = self._series("node_group_max_count", "The maximum size of the node group.", "node_group")
        self.group_target = self._series("node_group_target_count", "The target size of the node group.", "node_group")
        self.group_health = self._series("node_group_healthiness", "1 if the node group is healthy.", "node_group")
        self.group_backoff = self._series(
            "node_group_backoff_status", "1 while scale-ups of the node group are in backoff.", "node_group", "reason"
        )

    def _make_actions(self) -> None:
        self.scaled_up = self._counter("scaled_up_nodes", "Nodes requested by scale-ups.")
        self.failed_ups = self._counter("failed_scale_ups", "Scale-ups that failed.", "reason")
        self.scaled_down = self._counter("scaled_down_nodes", "Removed nodes.", "reason")
        self.evicted = self._counter(
            "evicted_pods", "Pods evicted from nodes that were being removed.", "eviction_result"
        )
        self.unneeded = self._gauge("unneeded_nodes_count", "Unneeded nodes.")
        self.unremovable = self._series("unremovable_nodes_count", "Nodes that are not removed, by reason.", "reason")
        self.cooldown = self._gauge(
            "scale_down_in_cooldown", "1 while a delay after the last action prevents removals."
        )
        self.deletions = self._gauge("pending_node_deletions", "Nodes that are being removed.")
        self.skipped = Gauge(
            "cluster_autoscaler_skipped_scale_events_count",
            "Iterations in which a limit of the whole cluster prevented scaling up or down.",
            ["direction", "reason"],
            registry=self._registry,
        )
        for direction in ("up", "down"):
            for reason in sorted(_SKIPPED_UP_REASONS.values()):
                self.skipped.labels(direction, reason)  # 0, so that alerts see the first increase
        self.unregistered = self._gauge(
            "old_unregistered_nodes_removed_count", "Removed machines that never registered as nodes."
        )

    def observe(self, report: IterationReport, spec: ClusterAutoscalerSpec) -> None:
        """Update the metrics from an iteration report.

        Args:
            report: the iteration's report.
            spec: spec of the ClusterAutoscaler that the iteration used, with the limits.
        """
        well = not report.health.cluster and not report.error
        self.safe.set(well)
        activities = ("main", "scaleUp", "scaleDown") if well else ("main",)
        self.last_activity.set({(activity,): report.finished for activity in activities})
        if not report.error:  # the report of a failed iteration is incomplete: the metrics keep their values
            self._show_cluster(report, spec)
            self._show_groups(report)
            self._show_nodes(report)
        self.durations.labels("main").observe(max(0.0, report.finished - report.started))
        for phase, seconds in report.phases.items():
            if phase in _FUNCTIONS:
                self.durations.labels(_FUNCTIONS[phase]).observe(seconds)
        if report.error:
            self.errors.labels("internalError").inc()
        self._count(report)

    def _show_cluster(self, report: IterationReport, spec: ClusterAutoscalerSpec) -> None:
        self.pods.show({("unschedulable",): count_pending_pods(report.plan)})
        limits = spec.resource_limits
        self.max_nodes.set(limits.max_nodes_total or 0)
        self.cores.set(report.totals.cores)
        self.memory.set(report.totals.memory_gib * GIB)
        self.core_limits.show(_range(limits.cores, NO_CORES_LIMIT, 1))
        self.memory_limits.show(_range(limits.memory, NO_MEMORY_LIMIT, GIB))

    def _show_groups(self, report: IterationReport) -> None:
        shown = shown_groups(report)
        self.group_count.show({("autoscaled",): len(report.groups.by_id)})
        self.group_min.show({(each.id,): each.minimum for each in shown})
        self.group_max.show({(each.id,): each.maximum for each in shown})
        self.group_target.show({(each.id,): each.target for each in shown})
        self.group_health.show({(each.id,): float(each.id not in report.health.groups) for each in shown})
        self.group_backoff.show(
            {(each.id, _backoff_reason(report, each.id)): 1.0 for each in shown if backs_off(report, each)}
        )

    def _show_nodes(self, report: IterationReport) -> None:
        states = Tally(report.readiness.values())
        self.nodes.show(
            {
                ("ready",): states[Readiness.READY],
                ("unready",): states[Readiness.UNREADY],
                ("notStarted",): states[Readiness.STARTING],
                ("unregistered",): sum(group.upcoming for group in report.groups.all),
                ("longUnregistered",): sum(record.given_up for record in report.state.groups.values()),
            }
        )
        kept = Tally(reason_label(each.reason) for each in kept_nodes(report.plan))
        self.unneeded.set(len(report.state.unneeded))
        self.unremovable.show({(reason,): number for reason, number in kept.items()})
        self.cooldown.set(any(reason in _COOLDOWN_REASONS for reason in kept))
        self.deletions.set(len(report.removals))

    def _count(self, report: IterationReport) -> None:
        for scale_up in report.scale_up_outcomes:
            if scale_up.scaled.done:
                self.scaled_up.inc(max(0, scale_up.scaled.after - scale_up.scaled.before))
            else:
                self.failed_ups.labels("apiCallError").inc()
        for finding in report.findings:
            if finding.failure:
                self.failed_ups.labels(_FAILURE_LABELS.get(finding.reason, "cloudProviderError")).inc()
            if finding.reason == reasons.DELETE_UNREGISTERED:
                self.unregistered.inc(finding.count)
        for outcome in report.removal_outcomes:
            self.evicted.labels("succeeded").inc(len(outcome.evicted))
            if outcome.done:
                self.scaled_down.labels(outcome.why.lower()).inc()
        for direction, reason in set(_skipped(report)):
            self.skipped.labels(direction, reason).inc()

    def _gauge(self, name: str, help_: str) -> Gauge:
        return Gauge(f"cluster_autoscaler_{name}", help_, registry=self._registry)

    def _counter(self, name: str, help_: str, *labels: str) -> Counter:
        return Counter(f"cluster_autoscaler_{name}", help_, labels, registry=self._registry)

    def _series(self, name: str, help_: str, *labels: str) -> LabeledGauge:
        return LabeledGauge(f"cluster_autoscaler_{name}", help_, labels, self._registry)


def _skipped(report: IterationReport) -> Iterator[tuple[str, str]]:
    """Yield direction and upstream's reason label of each cluster-wide limit that prevented a scale-up or removal."""
    for kept in kept_pods(report.plan):
        if kept.reason in _SKIPPED_UP_REASONS:
            yield "up", _SKIPPED_UP_REASONS[kept.reason]
    for kept in kept_nodes(report.plan):
        if kept.reason == reasons.MINIMAL_RESOURCE_LIMIT_EXCEEDED:
            yield from (("down", reason) for words, reason in _SKIPPED_DOWN_PHRASES.items() if words in kept.message)


def _range(limits: ResourceRange | None, unlimited: int, unit: int) -> dict[tuple[str, ...], float]:
    least, most = (0, unlimited) if limits is None else (limits.min, limits.max)
    return {("minimum",): least * unit, ("maximum",): most * unit}


def _backoff_reason(report: IterationReport, id_: str) -> str:
    error = report.state.record(id_).last_error
    return "" if error is None else reason_label(error.reason)
