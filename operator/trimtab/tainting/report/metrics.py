"""The taint manager's metrics: names, help and labels in one place, in a bounded number of series.

Zones have series of their own, those that the status names; nodes, pods and users' taint keys have none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trimtab.api.series import OTHER, Series, code
from trimtab.api.taint_manager_status import TaintManagerStatus
from trimtab.tainting.conditions import NO_SCHEDULE_KEYS, TaintChange
from trimtab.tainting.ending.outcome import Ended, What

NONE_YET: Final = -1.0
"""What the age of watches is before they have told anything."""

_LATENESS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 900)


class TaintManagerMetrics:
    """What the taint manager sees and does."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._make_pods(registry)
        self._make_nodes(registry)
        self._make_zones(registry)

    def _make_pods(self, registry: CollectorRegistry) -> None:
        self.deadlines = _gauge(registry, "deadlines", "Pods whose time on their node is limited.")
        self.overdue = _gauge(registry, "overdue_pods", "Those of them whose time is over.")
        self.held = _gauge(registry, "held_pods", "Those of them that userTaintRates hold back.")
        self.refused = _gauge(registry, "refused_pods", "Those of them that somebody does not let go.")
        self.next_deadline = _gauge(
            registry, "next_deadline_timestamp_seconds", "When the next pod goes; 0 where none has a deadline."
        )
        self.ended = Counter(
            "trimtab_tainting_ended_pods",
            "Pods whose time was over, by what came of it: Deleted, Evicted, Gone, NotDue, or Refused and Failed, "
            "which are tried again.",
            ["result", "reason"],
            registry=registry,
        )
        self.lateness = Histogram(
            "trimtab_tainting_lateness_seconds",
            "Seconds from a pod's time to its deletion or eviction, without those for which userTaintRates held it "
            "back.",
            ["result"],
            buckets=_LATENESS,
            registry=registry,
        )
        self.untold = _gauge(
            registry, "untold_events", "Events for which there was no room since the start: so many happened at once."
        )

    def _make_nodes(self, registry: CollectorRegistry) -> None:
        self.tainted = _gauge(registry, "tainted_nodes", "Nodes with a NoExecute taint.")
        self.stuck = _gauge(registry, "stuck_nodes", "Dead nodes on which pods are terminating and cannot end.")
        self.changes = Counter(
            "trimtab_tainting_taint_changes",
            "Taints that were put on nodes (Added) and taken off (Removed), by key and effect, and why.",
            ["change", "key", "effect", "reason"],
            registry=registry,
        )
        self.watch_age = _gauge(
            registry,
            "watch_age_seconds",
            "Seconds since the watches of nodes and Leases last proved to work, of the older of the two; "
            f"{NONE_YET:g} before they have.",
        )

    def _make_zones(self, registry: CollectorRegistry) -> None:
        def of_zone(name: str, help_: str, *more: str) -> Series:
            return Series(f"trimtab_tainting_zone_{name}", help_, ("zone", *more), registry)

        self.zone_state = of_zone(
            "state", "1 for the zone's state: Normal, PartialDisruption or FullDisruption.", "state"
        )
        self.zone_nodes = of_zone("nodes", "Nodes of the zone.")
        self.zone_not_ready = of_zone("not_ready_nodes", "The zone's nodes that are not ready.")
        self.zone_rate = of_zone("taints_per_second", "Nodes a second that may be tainted in the zone.")
        self.zone_waiting = of_zone("waiting_nodes", "The zone's nodes that wait to be tainted.")

    def follow(self, heard: Callable[[], float | None], now: Callable[[], float]) -> None:
        """Show the age of the watches as it is when somebody asks.

        Args:
            heard: when they last proved to work, in seconds since the epoch; ``None`` for never.
            now: the same of now.
        """

        def age() -> float:
            at = heard()
            return NONE_YET if at is None else max(0.0, now() - at)

        self.watch_age.set_function(age)

    def count(self, ended: Ended) -> None:
        """Count what came of ending a pod."""
        self.ended.labels(ended.what.value, code(ended.reason)).inc()
        if ended.what in (What.DELETED, What.EVICTED):
            self.lateness.labels(ended.what.value).observe(max(0.0, ended.lateness - ended.held))

    def count_taint(self, change: TaintChange) -> None:
        """Count a taint that was put on a node or taken off."""
        taint = change.taint
        key = taint.key if taint.key in NO_SCHEDULE_KEYS else OTHER
        self.changes.labels("Added" if change.add else "Removed", key, taint.effect, code(change.reason)).inc()

    def observe(self, status: TaintManagerStatus, *, untold: int) -> None:
        """Show how things are.

        Args:
            status: of the TaintManager, written or not.
            untold: events for which there was no room since the start.
        """
        self.untold.set(untold)
        counts = status.counts
        self.deadlines.set(counts.pods_with_deadline)
        self.overdue.set(counts.overdue)
        self.held.set(counts.held)
        self.refused.set(len(status.refused) + status.refused_omitted)
        self.next_deadline.set(status.next_deadlines[0].due.timestamp() if status.next_deadlines else 0)
        self.tainted.set(counts.tainted_nodes)
        self.stuck.set(len(status.stuck_nodes) + status.stuck_nodes_omitted)
        zones = status.zones
        self.zone_state.show({(zone.name, zone.state): 1.0 for zone in zones})
        self.zone_nodes.show({(zone.name,): zone.nodes for zone in zones})
        self.zone_not_ready.show({(zone.name,): zone.not_ready for zone in zones})
        self.zone_rate.show({(zone.name,): zone.nodes_per_second for zone in zones})
        self.zone_waiting.show({(zone.name,): zone.waiting for zone in zones})


def _gauge(registry: CollectorRegistry, name: str, help_: str) -> Gauge:
    return Gauge(f"trimtab_tainting_{name}", help_, registry=registry)
