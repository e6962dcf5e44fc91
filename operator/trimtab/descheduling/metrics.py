"""The descheduler's metrics: names, help and labels in one place."""

from __future__ import annotations

from collections import Counter as Tally
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trimtab.api import reasons
from trimtab.api.eviction_memory import Memory
from trimtab.api.plan import Evict, Plan
from trimtab.disruption.outcome import Outcome

WORKLOADS: Final = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController", "Job", "DaemonSet"})
"""Kinds of controllers that are told apart; whatever else there is in a cluster must not be a series each."""

OTHER: Final = "Other"
"""The workload kind of pods that another controller owns."""

BARE: Final = "None"
"""The workload kind of pods that no controller owns."""


class DeschedulerMetrics:
    """What a policy does, by policy, strategy, reason, workload kind and mode.

    Reasons are those of :mod:`trimtab.api.reasons`. All labels but the policy's name are of lists that are known: so
    many series a policy at most. Names of pods, nodes, namespaces and owners are in events and the log.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._modes: dict[str, str] = {}
        self.cycles = Counter(
            "trimtab_descheduler_cycles",
            "Cycles that ended, by how: Completed, InvalidPolicy or Failed.",
            ["policy", "mode", "result"],
            registry=registry,
        )
        self.plan_seconds = Histogram(
            "trimtab_descheduler_plan_seconds",
            "Seconds that planning a cycle took.",
            ["policy"],
            buckets=(0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60),
            registry=registry,
        )
        self.planned = Gauge(
            "trimtab_descheduler_planned_evictions",
            "Evictions in the policy's last plan, by the kind of the pods' controllers (Other, None for none), and by "
            "how: Evict, or Surge for a rollout.",
            ["policy", "strategy", "reason", "workload", "how", "mode"],
            registry=registry,
        )
        self.kept = Gauge(
            "trimtab_descheduler_kept_pods",
            "Candidates that the policy's last plan left where they are.",
            ["policy", "strategy", "reason", "mode"],
            registry=registry,
        )
        self.evictions = Counter(
            "trimtab_descheduler_evictions",
            "Evictions attempted, by the kind of the pods' controllers, by how (Evict, Surge), and by result: Evicted, "
            "Started, Refused, Gone, Skipped or Failed.",
            ["policy", "strategy", "reason", "workload", "how", "mode", "result"],
            registry=registry,
        )
        self.waiting_runs = Gauge(
            "trimtab_descheduler_waiting_runs",
            "Runs of the policy that wait for their approval.",
            ["policy"],
            registry=registry,
        )
        self.left_alone = Gauge(
            "trimtab_descheduler_owners_left_alone",
            "Owners whose evictions by a strategy did not help, by reason: CoolingDown or GaveUp.",
            ["policy", "strategy", "reason"],
            registry=registry,
        )
        self.last_cycle = Gauge(
            "trimtab_descheduler_last_cycle_timestamp_seconds",
            "When the policy's last cycle ended.",
            ["policy"],
            registry=registry,
        )

    def acts_as(self, policy: str, mode: str) -> None:
        """Note the mode that a policy's cycle runs in; evictions are counted by it."""
        self._modes[policy] = mode

    def planned_by(self, policy: str, mode: str, plan: Plan) -> None:
        """Show the policy's last plan; what the one before had and this one has not goes to nothing."""
        for gauge in (self.planned, self.kept):
            gauge.remove_by_labels({"policy": policy})
        actions = Tally((action.strategy, action.reason, workload(action), action.how) for action in plan.actions)
        for labels, number in actions.items():
            self.planned.labels(policy, *labels, mode).set(number)
        for (strategy, reason), number in Tally((kept.strategy, kept.reason) for kept in plan.kept).items():
            self.kept.labels(policy, strategy, reason, mode).set(number)

    def remembered(self, policy: str, memory: Memory, *, now: float) -> None:
        """Show whom the policy leaves alone at this time (seconds since the epoch)."""
        self.left_alone.remove_by_labels({"policy": policy})
        for each in memory.setbacks:
            if each.gave_up:
                self.left_alone.labels(policy, each.strategy, reasons.GAVE_UP).inc()
            elif now < each.until.timestamp():
                self.left_alone.labels(policy, each.strategy, reasons.COOLING_DOWN).inc()

    def ended(self, outcome: Outcome) -> None:
        """Count how an eviction ended; what the executor calls as soon as it is known."""
        action = outcome.action
        mode = self._modes.get(action.policy, "")
        self.evictions.labels(
            action.policy, action.strategy, action.reason, workload(action), action.how, mode, outcome.result
        ).inc()

    def forget(self, policy: str) -> None:
        """Drop all that is told of a policy that is gone: its last cycle would look late for ever."""
        self._modes.pop(policy, None)
        gauges = (self.planned, self.kept, self.waiting_runs, self.left_alone, self.last_cycle)
        for metric in (self.cycles, self.plan_seconds, self.evictions, *gauges):
            metric.remove_by_labels({"policy": policy})


def workload(action: Evict) -> str:
    """The kind of the pod's controller as a label: one of :data:`WORKLOADS`, :data:`OTHER` or :data:`BARE`."""
    kind = action.owner.partition("/")[0]
    if not kind:
        return BARE
    return kind if kind in WORKLOADS else OTHER
