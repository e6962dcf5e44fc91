"""Upstream's metrics under upstream's names, for dashboards and alerts that exist: OpenShift's among them.

They are shown only where ``--autoscaler-compatible-metrics`` asks for it: beside another autoscaler they would be
counted twice. Names, labels and units are upstream's; reasons of nodes that stay are trimtab's codes, most of which are
upstream's as well. Where upstream counts under a name without ``_total``, the type is a gauge that only grows, for the
Prometheus client gives every counter that ending; ``increase()`` does not mind.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.cluster_limits import GIB, ResourceRange
from trimtab.api.series import Series, code
from trimtab.autoscaling.memory.readiness import Readiness
from trimtab.autoscaling.report.metrics import backs_off, shown_groups
from trimtab.autoscaling.report.pass_report import PassReport
from trimtab.autoscaling.report.pending import kept_nodes, kept_pods, waiting

NO_CORES_LIMIT: Final = 320_000
NO_MEMORY_LIMIT: Final = 6_400_000
"""Upstream's largest cores and GiB, which it shows where nobody sets a limit."""

_FUNCTIONS: Final = {"observe": "cloudProviderRefresh", "plan": "scaleUp", "act": "scaleDown"}
"""Upstream's functions by the parts of a pass; planning up and down is one part here."""
_COOLDOWN: Final = frozenset({reasons.DELAY_AFTER_ADD, reasons.DELAY_AFTER_DELETE, reasons.DELAY_AFTER_FAILURE})
_SKIPPED_UP: Final = {
    reasons.MAX_CORES_REACHED: "CpuResourceLimit",
    reasons.MAX_MEMORY_REACHED: "MemoryResourceLimit",
}
_SKIPPED_DOWN: Final = {" of cores,": "CpuResourceLimit", " of memory (GiB),": "MemoryResourceLimit"}
"""How the message of MinimalResourceLimitExceeded names what there would be too little of."""

_FAILED: Final = {reasons.SCALE_UP_TIMED_OUT: "timeout", reasons.NODE_NOT_STARTED: "timeout"}
_BUCKETS: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 15, 20, 30, 60, 120, 300, 600)


class CompatibleMetrics:
    """The ``cluster_autoscaler_*`` metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.safe = self._gauge("cluster_safe_to_autoscale", "1 where the cluster is well enough to be scaled.")
        self.last_activity = self._series("last_activity", "When a part of the autoscaler last ran.", "activity")
        self.durations = Histogram(
            "cluster_autoscaler_function_duration_seconds",
            "Seconds that parts of a pass took: main (all of it), cloudProviderRefresh, scaleUp (planning), scaleDown.",
            ["function"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self.errors = self._counter("errors", "Passes that ended with an error.", "type")
        self._make_cluster()
        self._make_groups()
        self._make_acting()

    def _make_cluster(self) -> None:
        self.nodes = self._series("nodes_count", "Nodes by state.", "state")
        self.pods = self._series("unschedulable_pods_count", "Pods that find no node.", "type")
        self.max_nodes = self._gauge("max_nodes_count", "maxNodesTotal; 0 where there is no limit.")
        self.cores = self._gauge("cluster_cpu_current_cores", "Cores of all nodes.")
        self.core_limits = self._series("cpu_limits_cores", "Limits of the cluster's cores.", "direction")
        self.memory = self._gauge("cluster_memory_current_bytes", "Memory of all nodes, in whole GiB.")
        self.memory_limits = self._series("memory_limits_bytes", "Limits of the cluster's memory.", "direction")

    def _make_groups(self) -> None:
        self.group_count = self._series("node_groups_count", "Groups of nodes.", "node_group_type")
        self.group_min = self._series("node_group_min_count", "The group's smallest size.", "node_group")
        self.group_max = self._series("node_group_max_count", "The group's largest size.", "node_group")
        self.group_target = self._series("node_group_target_count", "The size that is asked for.", "node_group")
        self.group_health = self._series("node_group_healthiness", "1 where the group is well.", "node_group")
        self.group_backoff = self._series(
            "node_group_backoff_status", "1 while nothing is added to the group.", "node_group", "reason"
        )

    def _make_acting(self) -> None:
        self.scaled_up = self._counter("scaled_up_nodes", "Nodes that were asked for.")
        self.failed_ups = self._counter("failed_scale_ups", "Scale-ups that failed.", "reason")
        self.scaled_down = self._counter("scaled_down_nodes", "Nodes that were removed.", "reason")
        self.evicted = self._counter("evicted_pods", "Pods evicted from nodes that were to go.", "eviction_result")
        self.unneeded = self._gauge("unneeded_nodes_count", "Nodes that nobody needs.")
        self.unremovable = self._series("unremovable_nodes_count", "Nodes that stay, by why.", "reason")
        self.cooldown = self._gauge("scale_down_in_cooldown", "1 while no node is removed for a while.")
        self.deletions = self._gauge("pending_node_deletions", "Nodes that are being removed.")
        self.skipped = Gauge(
            "cluster_autoscaler_skipped_scale_events_count",
            "Passes in which a limit of the whole cluster kept nodes from being added (up) or removed (down).",
            ["direction", "reason"],
            registry=self._registry,
        )
        for direction in ("up", "down"):
            for reason in sorted(_SKIPPED_UP.values()):
                self.skipped.labels(direction, reason)  # at 0, so that the first one is an increase for alerts
        self.unregistered = self._gauge(
            "old_unregistered_nodes_removed_count", "Machines taken away that never became nodes."
        )

    def observe(self, report: PassReport, spec: ClusterAutoscalerSpec) -> None:
        """Show a pass, and count what ended with it.

        Args:
            report: the pass.
            spec: that it went by: its limits are shown.
        """
        well = not report.health.cluster and not report.error
        self.safe.set(well)
        activities = ("main", "scaleUp", "scaleDown") if well else ("main",)
        self.last_activity.set({(activity,): report.finished for activity in activities})
        if not report.error:  # such a pass has seen nothing, or not all: what the last good one saw stays
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

    def _show_cluster(self, report: PassReport, spec: ClusterAutoscalerSpec) -> None:
        self.pods.show({("unschedulable",): waiting(report.plan)})
        limits = spec.resource_limits
        self.max_nodes.set(limits.max_nodes_total or 0)
        self.cores.set(report.totals.cores)
        self.memory.set(report.totals.memory_gib * GIB)
        self.core_limits.show(_range(limits.cores, NO_CORES_LIMIT, 1))
        self.memory_limits.show(_range(limits.memory, NO_MEMORY_LIMIT, GIB))

    def _show_groups(self, report: PassReport) -> None:
        shown = shown_groups(report)
        self.group_count.show({("autoscaled",): len(report.groups.by_id)})
        self.group_min.show({(each.id,): each.minimum for each in shown})
        self.group_max.show({(each.id,): each.maximum for each in shown})
        self.group_target.show({(each.id,): each.target for each in shown})
        self.group_health.show({(each.id,): float(each.id not in report.health.groups) for each in shown})
        self.group_backoff.show({(each.id, _why(report, each.id)): 1.0 for each in shown if backs_off(report, each)})

    def _show_nodes(self, report: PassReport) -> None:
        states = Tally(report.readiness.values())
        self.nodes.show(
            {
                ("ready",): states[Readiness.READY],
                ("unready",): states[Readiness.UNREADY],
                ("notStarted",): states[Readiness.STARTING],
                ("unregistered",): sum(group.upcoming for group in report.groups.all),
                ("longUnregistered",): sum(record.given_up for record in report.memory.groups.values()),
            }
        )
        kept = Tally(code(each.reason) for each in kept_nodes(report.plan))
        self.unneeded.set(len(report.memory.unneeded))
        self.unremovable.show({(reason,): number for reason, number in kept.items()})
        self.cooldown.set(any(reason in _COOLDOWN for reason in kept))
        self.deletions.set(len(report.going))

    def _count(self, report: PassReport) -> None:
        for grown in report.grown:
            if grown.scaled.done:
                self.scaled_up.inc(max(0, grown.scaled.after - grown.scaled.before))
            else:
                self.failed_ups.labels("apiCallError").inc()
        for finding in report.told:
            if finding.failure:
                self.failed_ups.labels(_FAILED.get(finding.reason, "cloudProviderError")).inc()
            if finding.reason == reasons.DELETE_UNREGISTERED:
                self.unregistered.inc(finding.count)
        for outcome in report.ended:
            self.evicted.labels("succeeded").inc(len(outcome.evicted))
            if outcome.done:
                self.scaled_down.labels(outcome.why.lower()).inc()
        for direction, reason in set(_skipped(report)):
            self.skipped.labels(direction, reason).inc()

    def _gauge(self, name: str, help_: str) -> Gauge:
        return Gauge(f"cluster_autoscaler_{name}", help_, registry=self._registry)

    def _counter(self, name: str, help_: str, *labels: str) -> Counter:
        return Counter(f"cluster_autoscaler_{name}", help_, labels, registry=self._registry)

    def _series(self, name: str, help_: str, *labels: str) -> Series:
        return Series(f"cluster_autoscaler_{name}", help_, labels, self._registry)


def _skipped(report: PassReport) -> Iterator[tuple[str, str]]:
    """Which limits of the cluster kept the pass from what it would have done."""
    for kept in kept_pods(report.plan):
        if kept.reason in _SKIPPED_UP:
            yield "up", _SKIPPED_UP[kept.reason]
    for kept in kept_nodes(report.plan):
        if kept.reason == reasons.MINIMAL_RESOURCE_LIMIT_EXCEEDED:
            yield from (("down", reason) for words, reason in _SKIPPED_DOWN.items() if words in kept.message)


def _range(limits: ResourceRange | None, unlimited: int, unit: int) -> dict[tuple[str, ...], float]:
    least, most = (0, unlimited) if limits is None else (limits.min, limits.max)
    return {("minimum",): least * unit, ("maximum",): most * unit}


def _why(report: PassReport, id_: str) -> str:
    error = report.memory.record(id_).last_error
    return "" if error is None else code(error.reason)
