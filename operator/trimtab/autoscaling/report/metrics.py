"""The autoscaler's metrics: names, help and labels in one place, in a bounded number of series."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trimtab.api import reasons
from trimtab.api.series import OTHER, Series, code
from trimtab.autoscaling.actuation.removal import RemovalOutcome
from trimtab.autoscaling.groups import NodeGroup
from trimtab.autoscaling.memory.readiness import Readiness
from trimtab.autoscaling.report.pass_report import Grown, PassReport
from trimtab.autoscaling.report.pending import kept_nodes, kept_pods, raised

COMPLETED: Final = "Completed"
"""The result of passes that went well; the others are reasons: PassFailed, ClusterUnhealthy."""

PHASES: Final = ("observe", "plan", "act")
"""Parts of a pass that are told apart by time: what is asked of providers, judging and planning, and acting; any other
counts as Other."""

MAX_GROUPS: Final = 500
"""Groups that have series of their own; more of them are left out, the last by their ids."""

_TIMES: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60)
_WAITS: Final = (0.25, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 900)


class AutoscalerMetrics:
    """What the autoscaler sees and does.

    Reasons are those of :mod:`trimtab.api.reasons`. Groups have series of their own, 500 of them at most; names of
    nodes and pods are in events and in the status.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._passes(registry)
        self._picture(registry)
        self._groups(registry)
        self._acting(registry)

    def _passes(self, registry: CollectorRegistry) -> None:
        self.passes = Counter(
            "trimtab_autoscaler_passes",
            "Passes that ended, by how: Completed, PassFailed or ClusterUnhealthy.",
            ["mode", "result"],
            registry=registry,
        )
        self.pass_seconds = Histogram(
            "trimtab_autoscaler_pass_seconds", "Seconds that a pass took.", buckets=_TIMES, registry=registry
        )
        self.plan_seconds = Histogram(
            "trimtab_autoscaler_plan_seconds",
            f"Seconds that parts of a pass took: {', '.join(PHASES)}.",
            ["phase"],
            buckets=_TIMES,
            registry=registry,
        )
        self.last_pass = Gauge(
            "trimtab_autoscaler_last_pass_timestamp_seconds", "When the last pass ended.", registry=registry
        )
        self.healthy = Gauge(
            "trimtab_autoscaler_cluster_healthy",
            "1 where enough nodes are ready for anything to be scaled, else 0.",
            registry=registry,
        )

    def _picture(self, registry: CollectorRegistry) -> None:
        self.pending = Series(
            "trimtab_autoscaler_pending_pods",
            "Pods without a node: PendingPods for those that get new nodes, else why no node is added for them.",
            ("reason",),
            registry,
        )
        self.nodes = Series(
            "trimtab_autoscaler_nodes", "Nodes by state: Ready, Unready, Starting or Going.", ("state",), registry
        )
        self.unneeded = Gauge("trimtab_autoscaler_unneeded_nodes", "Nodes that nobody needs.", registry=registry)
        self.removing = Gauge("trimtab_autoscaler_removing_nodes", "Nodes that are being removed.", registry=registry)
        self.kept = Series("trimtab_autoscaler_kept_nodes", "Nodes that stay, by why.", ("reason",), registry)
        self.problems = Series(
            "trimtab_autoscaler_invalid_objects",
            "Objects that cannot be used, by what is wrong.",
            ("reason",),
            registry,
        )

    def _groups(self, registry: CollectorRegistry) -> None:
        def of_group(name: str, help_: str) -> Series:
            return Series(f"trimtab_autoscaler_group_{name}", help_, ("group",), registry)

        self.groups = Gauge("trimtab_autoscaler_groups", "Groups of nodes.", registry=registry)
        self.minimum = of_group("min_nodes", "The fewest nodes that scaling down leaves the group.")
        self.maximum = of_group("max_nodes", "The most nodes that scaling up gives the group.")
        self.target = of_group("target_nodes", "The size that is asked for at present.")
        self.ready = of_group("ready_nodes", "The group's nodes that are ready.")
        self.backoff = of_group("backoff", "1 while nothing is added to the group because that failed, else 0.")
        self.group_healthy = of_group("healthy", "1 where the group is well enough to be scaled, else 0.")

    def _acting(self, registry: CollectorRegistry) -> None:
        self.scaled_up = Counter(
            "trimtab_autoscaler_scaled_up_nodes", "Nodes that were asked for, by why.", ["reason"], registry=registry
        )
        self.failed_ups = Counter(
            "trimtab_autoscaler_failed_scale_ups",
            "Groups that could not be asked for nodes, and increases whose nodes did not come, by why.",
            ["reason"],
            registry=registry,
        )
        self.scaled_down = Counter(
            "trimtab_autoscaler_scaled_down_nodes",
            "Nodes that were removed, by why: Underutilized, Empty or Unready.",
            ["reason"],
            registry=registry,
        )
        self.stayed = Counter(
            "trimtab_autoscaler_failed_scale_downs",
            "Removals that ended with the node still there, by how (Failed, Aborted) and why.",
            ["result", "reason"],
            registry=registry,
        )
        self.removal_seconds = Histogram(
            "trimtab_autoscaler_removal_seconds",
            "Seconds from a node's taint to the end of its removal, of nodes that went.",
            buckets=(5, 10, 30, 60, 120, 300, 600, 1200, 3600),
            registry=registry,
        )
        self.evicted = Counter(
            "trimtab_autoscaler_evicted_pods", "Pods that were evicted from nodes that were to go.", registry=registry
        )
        self.requests = Counter(
            "trimtab_autoscaler_scaling_requests",
            "Requests that were sent to add nodes (up) and to remove them (down), reading the picture aside: divided "
            "by the nodes added or removed, what a node costs.",
            ["direction"],
            registry=registry,
        )
        self.pending_to_request = Histogram(
            "trimtab_autoscaler_pending_to_request_seconds",
            "Seconds from a pod's Unschedulable condition to the request for nodes that are for it among others.",
            buckets=_WAITS,
            registry=registry,
        )

    def observe(self, report: PassReport) -> None:
        """Show a pass, and count what ended with it."""
        self._observe_pass(report)
        if not report.error:  # such a pass has seen nothing, or not all: what the last good one saw stays
            self._observe_picture(report)
            self._observe_groups(report)
        for grown in report.grown:
            self._count_growth(grown, report)
        for finding in report.told:
            if finding.failure:
                self.failed_ups.labels(code(finding.reason)).inc()
        for corrected in report.corrected:
            self.requests.labels("up").inc(corrected.calls)
        for outcome in report.ended:
            self._count_removal(outcome)

    def _observe_pass(self, report: PassReport) -> None:
        result = reasons.PASS_FAILED if report.error else COMPLETED
        if report.health.cluster and not report.error:
            result = reasons.CLUSTER_UNHEALTHY
        self.passes.labels(report.mode, result).inc()
        self.pass_seconds.observe(max(0.0, report.finished - report.started))
        for phase, seconds in report.phases.items():
            self.plan_seconds.labels(phase if phase in PHASES else OTHER).observe(seconds)
        self.last_pass.set(report.finished)
        self.healthy.set(not report.health.cluster)

    def _observe_picture(self, report: PassReport) -> None:
        waiting = Tally(code(kept.reason) for kept in kept_pods(report.plan))
        waiting[reasons.PENDING_PODS] += sum(len(action.pods) for action in raised(report.plan))
        self.pending.show(_by(waiting))
        states = Tally(readiness.value for readiness in report.readiness.values())
        self.nodes.show({(state.value,): states[state.value] for state in Readiness})
        self.unneeded.set(len(report.memory.unneeded))
        self.removing.set(len(report.going))
        self.kept.show(_by(Tally(code(kept.reason) for kept in kept_nodes(report.plan))))
        wrong = (*report.groups.problems, *report.problems)
        self.problems.show(_by(Tally(code(problem.reason) for problem in wrong)))

    def _observe_groups(self, report: PassReport) -> None:
        shown = shown_groups(report)
        self.groups.set(len(report.groups.by_id))
        ready = Tally(
            id_ for node, id_ in report.groups.of_node.items() if report.readiness.get(node) is Readiness.READY
        )
        self.minimum.show({(each.id,): each.minimum for each in shown})
        self.maximum.show({(each.id,): each.maximum for each in shown})
        self.target.show({(each.id,): each.target for each in shown})
        self.ready.show({(each.id,): ready[each.id] for each in shown})
        self.backoff.show({(each.id,): float(backs_off(report, each)) for each in shown})
        self.group_healthy.show({(each.id,): float(each.id not in report.health.groups) for each in shown})

    def _count_growth(self, grown: Grown, report: PassReport) -> None:
        self.requests.labels("up").inc(grown.scaled.calls)
        if not grown.scaled.done:
            self.failed_ups.labels(code(str(grown.scaled.failure))).inc()
            return
        self.scaled_up.labels(code(grown.action.reason)).inc(max(0, grown.scaled.after - grown.scaled.before))
        for since in asked_since(grown, report):
            self.pending_to_request.observe(max(0.0, grown.at - since))

    def _count_removal(self, outcome: RemovalOutcome) -> None:
        self.requests.labels("down").inc(outcome.calls)
        self.evicted.inc(len(outcome.evicted))
        if outcome.done:
            self.scaled_down.labels(code(outcome.why)).inc()
            self.removal_seconds.observe(max(0.0, outcome.finished - outcome.started))
        else:
            self.stayed.labels(outcome.result.value, code(outcome.reason)).inc()


def asked_since(grown: Grown, report: PassReport) -> Iterable[float]:
    """Since when each of the pods waits that a group was asked for; pods that the scheduler said nothing of do not."""
    for pod in grown.action.pods:
        found = report.waiting.get(pod)
        if found is not None and found.since is not None:
            yield found.since


def shown_groups(report: PassReport) -> tuple[NodeGroup, ...]:
    """The groups that have series of their own."""
    return report.groups.all[:MAX_GROUPS]


def backs_off(report: PassReport, group: NodeGroup) -> bool:
    """Whether nothing is added to the group at the end of the pass."""
    until = report.memory.record(group.id).backoff_until
    return until is not None and report.finished < until


def _by(tally: Tally[str]) -> dict[tuple[str, ...], float]:
    return {(label,): number for label, number in tally.items()}
