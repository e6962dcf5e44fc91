"""The descheduler's metrics: names, help texts and labels."""

from __future__ import annotations

from collections import Counter as Tally
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trimtab.api import reasons
from trimtab.api.descheduler_status import EvictionMemory
from trimtab.api.plan import Evict, Plan
from trimtab.disruption.outcome import Outcome

WORKLOADS: Final = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController", "Job", "DaemonSet"})
"""Controller kinds that have their own value of the workload label.

All other kinds share one value, so that the number of series does not grow with the kinds that users define.
"""

OTHER: Final = "Other"
"""Value of the workload label for pods whose controller's kind is not in :data:`WORKLOADS`."""

BARE: Final = "None"
"""Value of the workload label for pods without a controller."""


class DeschedulerMetrics:
    """Metrics by policy, strategy, reason, workload kind and mode.

    Reasons are reason codes from :mod:`trimtab.api.reasons`. All label values except the policy's name come from fixed
    lists, which bounds the number of series per policy. Names of pods, nodes, namespaces and owners appear only in
    events and logs.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._modes: dict[str, str] = {}
        self.cycles = Counter(
            "trimtab_descheduler_cycles",
            "Cycles, by result: Completed, InvalidPolicy or Failed.",
            ["policy", "mode", "result"],
            registry=registry,
        )
        self.plan_seconds = Histogram(
            "trimtab_descheduler_plan_seconds",
            "Duration of planning a cycle in seconds.",
            ["policy"],
            buckets=(0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60),
            registry=registry,
        )
        self.planned = Gauge(
            "trimtab_descheduler_planned_evictions",
            "Evictions in the policy's last plan, by the kind of the pods' controllers (Other for other kinds, None "
            "for pods without one), and by method: Evict, or Surge for a rollout.",
            ["policy", "strategy", "reason", "workload", "how", "mode"],
            registry=registry,
        )
        self.kept = Gauge(
            "trimtab_descheduler_kept_pods",
            "Candidates that the policy's last plan does not evict, by reason.",
            ["policy", "strategy", "reason", "mode"],
            registry=registry,
        )
        self.evictions = Counter(
            "trimtab_descheduler_evictions",
            "Attempted evictions, by the kind of the pods' controllers, by method (Evict, Surge), and by result: "
            "Evicted, Started, Refused, Gone, Skipped or Failed.",
            ["policy", "strategy", "reason", "workload", "how", "mode", "result"],
            registry=registry,
        )
        self.waiting_runs = Gauge(
            "trimtab_descheduler_waiting_runs",
            "DeschedulingRuns of the policy that are pending approval.",
            ["policy"],
            registry=registry,
        )
        self.left_alone = Gauge(
            "trimtab_descheduler_owners_left_alone",
            "Owners whose pods a strategy does not evict because earlier evictions did not help, by reason: "
            "CoolingDown or GaveUp.",
            ["policy", "strategy", "reason"],
            registry=registry,
        )
        self.last_cycle = Gauge(
            "trimtab_descheduler_last_cycle_timestamp_seconds",
            "Unix time at which the policy's last cycle ended.",
            ["policy"],
            registry=registry,
        )

    def acts_as(self, policy: str, mode: str) -> None:
        """Set the mode of a policy's current cycle. The metrics of its evictions have the mode as a label."""
        self._modes[policy] = mode

    def planned_by(self, policy: str, mode: str, plan: Plan) -> None:
        """Export a policy's new plan, and remove the series of its previous plan that are not in the new one."""
        for gauge in (self.planned, self.kept):
            gauge.remove_by_labels({"policy": policy})
        actions = Tally((action.strategy, action.reason, workload(action), action.how) for action in plan.actions)
        for labels, number in actions.items():
            self.planned.labels(policy, *labels, mode).set(number)
        for (strategy, reason), number in Tally((kept.strategy, kept.reason) for kept in plan.kept).items():
            self.kept.labels(policy, strategy, reason, mode).set(number)

    def remembered(self, policy: str, memory: EvictionMemory, *, now: float) -> None:
        """Export the number of owners that are in a cooldown at ``now`` (seconds since the epoch).

        A cooldown starts after evictions that did not help. While it lasts, the policy evicts none of the owner's pods.
        """
        self.left_alone.remove_by_labels({"policy": policy})
        for each in memory.setbacks:
            if each.gave_up:
                self.left_alone.labels(policy, each.strategy, reasons.GAVE_UP).inc()
            elif now < each.until.timestamp():
                self.left_alone.labels(policy, each.strategy, reasons.COOLING_DOWN).inc()

    def ended(self, outcome: Outcome) -> None:
        """Count the outcome of an eviction. The executor calls this method as soon as the outcome is known."""
        action = outcome.action
        mode = self._modes.get(action.policy, "")
        self.evictions.labels(
            action.policy, action.strategy, action.reason, workload(action), action.how, mode, outcome.result
        ).inc()

    def forget(self, policy: str) -> None:
        """Remove the series of a deleted policy. Otherwise its next cycle would appear to be overdue."""
        self._modes.pop(policy, None)
        gauges = (self.planned, self.kept, self.waiting_runs, self.left_alone, self.last_cycle)
        for metric in (self.cycles, self.plan_seconds, self.evictions, *gauges):
            metric.remove_by_labels({"policy": policy})


def workload(action: Evict) -> str:
    """Return the value of the workload label: the kind of the pod's controller.

    It is one of :data:`WORKLOADS`, or :data:`OTHER` or :data:`BARE`.
    """
    kind = action.owner.partition("/")[0]
    if not kind:
        return BARE
    return kind if kind in WORKLOADS else OTHER
