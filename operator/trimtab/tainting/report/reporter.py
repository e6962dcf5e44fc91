"""The reporter of the taint manager. It converts changes into events, metrics and log lines."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trimtab.api.bounds import without_numbers
from trimtab.api.history_record import HistoryEntry
from trimtab.api.scalars import to_time
from trimtab.api.taint_manager import TaintManagerSpec, TaintManagerStatus, ZoneStatus
from trimtab.controller.history import History, NoHistory
from trimtab.controller.reporter import OTHER_REASON, LabeledGauge, pod_fields, reason_label, report_safely
from trimtab.kube.clock import Clock
from trimtab.kube.events.event import RecentlyReported
from trimtab.kube.rules.taints import format_taint
from trimtab.tainting.deadlines import Deadline
from trimtab.tainting.due_pods import DuePodOutcome, DuePodResult
from trimtab.tainting.lifecycle.node_health import NO_SCHEDULE_KEYS, TaintChange
from trimtab.tainting.report.events import DRAIN_EVERY, EventReporter, format_due

NONE_YET: Final = -1.0
"""The value of ``watch_age_seconds`` until the watches deliver their first event."""

_LATENESS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 900)


_GAUGES: Final[dict[str, tuple[str, Callable[[TaintManagerStatus], float]]]] = {
    "deadlines": (
        "Pods that are due for eviction at a deadline, because of NoExecute taints.",
        lambda status: status.counts.pods_with_deadline,
    ),
    "overdue_pods": ("Pods past their deadline that are still on their node.", lambda status: status.counts.overdue),
    "held_pods": ("Overdue pods that wait because of userTaintRates.", lambda status: status.counts.held),
    "refused_pods": (
        "Overdue pods whose eviction or deletion was refused.",
        lambda status: len(status.refused) + status.refused_omitted,
    ),
    "next_deadline_timestamp_seconds": (
        "Unix time of the earliest deadline; 0 if no pod has one.",
        lambda status: status.next_deadlines[0].due.timestamp() if status.next_deadlines else 0,
    ),
    "tainted_nodes": ("Nodes with a NoExecute taint.", lambda status: status.counts.tainted_nodes),
    "stuck_nodes": (
        "Unreachable nodes with pods that are past their grace period.",
        lambda status: len(status.stuck_nodes) + status.stuck_nodes_omitted,
    ),
}
"""The gauges that show the status, by name, with their help text and value."""

_ZONE_GAUGES: Final[dict[str, tuple[str, Callable[[ZoneStatus], float]]]] = {
    "nodes": ("Nodes in the zone.", lambda zone: zone.nodes),
    "not_ready_nodes": ("Nodes in the zone that are not ready.", lambda zone: zone.not_ready),
    "taints_per_second": (
        "Rate at which failed nodes of the zone are tainted, in nodes per second.",
        lambda zone: zone.nodes_per_second,
    ),
    "waiting_nodes": ("Failed nodes in the zone that are queued for tainting.", lambda zone: zone.waiting),
}


class TaintManagerMetrics:
    """The metrics of the taint manager."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._status = {name: _gauge(registry, name, help_) for name, (help_, _) in _GAUGES.items()}
        self._zones = {
            name: LabeledGauge(f"trimtab_tainting_zone_{name}", help_, ("zone",), registry)
            for name, (help_, _) in _ZONE_GAUGES.items()
        }
        self._zone_state = LabeledGauge(
            "trimtab_tainting_zone_state",
            "1 for the current state of the zone: Normal, PartialDisruption or FullDisruption.",
            ("zone", "state"),
            registry,
        )
        self._outcomes = Counter(
            "trimtab_tainting_ended_pods",
            "Attempts to evict due pods, by result: Deleted, Evicted, Gone (already deleted), NotDue (the deadline was "
            "cancelled), Refused and Failed (both are retried).",
            ["result", "reason"],
            registry=registry,
        )
        self._lateness = Histogram(
            "trimtab_tainting_lateness_seconds",
            "Seconds from a pod's deadline to its eviction or deletion, without the delay by userTaintRates.",
            ["result"],
            buckets=_LATENESS,
            registry=registry,
        )
        self._changes = Counter(
            "trimtab_tainting_taint_changes",
            "Taints added to nodes (Added) and removed (Removed), by key, effect and reason.",
            ["change", "key", "effect", "reason"],
            registry=registry,
        )
        self._omitted = _gauge(
            registry,
            "dropped_events",
            "Events that were dropped since the process started, because the queue was full.",
        )
        self._watch_age = _gauge(
            registry,
            "watch_age_seconds",
            "Seconds since the watch of nodes or the watch of Leases, whichever is older, last delivered something; "
            f"{NONE_YET:g} before the first time.",
        )

    def follow(self, watches_verified_at: Callable[[], float | None], now: Callable[[], float]) -> None:
        """Compute the age of the watches at each scrape, from the time at which they were last known up to date."""

        def age() -> float:
            at = watches_verified_at()
            return NONE_YET if at is None else max(0.0, now() - at)

        self._watch_age.set_function(age)

    def count(self, outcome: DuePodOutcome) -> None:
        """Count the outcome of an attempt to evict a pod."""
        self._outcomes.labels(outcome.result.value, reason_label(outcome.attempt.reason)).inc()
        if outcome.result in (DuePodResult.DELETED, DuePodResult.EVICTED):
            self._lateness.labels(outcome.result.value).observe(max(0.0, outcome.lateness - outcome.held))

    def count_taint(self, change: TaintChange) -> None:
        """Count a taint that was added or removed."""
        taint = change.taint
        key = taint.key if taint.key in NO_SCHEDULE_KEYS else OTHER_REASON
        self._changes.labels("Added" if change.add else "Removed", key, taint.effect, reason_label(change.reason)).inc()

    def observe(self, status: TaintManagerStatus, *, omitted: int) -> None:
        """Update the gauges from the current status and the number of dropped events."""
        self._omitted.set(omitted)
        for name, (_, value) in _GAUGES.items():
            self._status[name].set(value(status))
        for name, (_, of_zone) in _ZONE_GAUGES.items():
            self._zones[name].show({(zone.name,): of_zone(zone) for zone in status.zones})
        self._zone_state.show({(zone.name, zone.state): 1.0 for zone in status.zones})


def _gauge(registry: CollectorRegistry, name: str, help_: str) -> Gauge:
    return Gauge(f"trimtab_tainting_{name}", help_, registry=registry)


log = logging.getLogger(__name__)


class Reporter:
    """Reports the changes that the taint manager makes or observes, in events, metrics, the history and the log.

    Its methods neither block nor raise: errors in reporting are logged. A hundred failed nodes cause reports for 7,200
    pods at once, and a restart for up to 150,000. The rate of events is limited, so callers do not have to. :meth:`run`
    sends the events.

    Args:
        events: emits events.
        metrics: metrics of the taint manager.
        clock: the wall clock and the monotonic clock.
        history: records taints; ``None`` if no history is kept.
    """

    def __init__(
        self, events: EventReporter, metrics: TaintManagerMetrics, clock: Clock, *, history: History | None = None
    ) -> None:
        self._events = events
        self._metrics = metrics
        self._clock = clock
        self._history = history or NoHistory()
        self._trouble = RecentlyReported()

    async def run(self) -> None:
        """Send queued events until cancelled. The events that are still queued then are dropped."""
        while True:
            await self._clock.sleep(DRAIN_EVERY)
            report_safely("events", self._events.drain)

    def configure(self, spec: TaintManagerSpec, *, uid: str) -> None:
        """Apply the spec of the TaintManager with this UID, which is the related object of node events."""
        self._events.configure(spec, uid=uid)

    def deadline_set(self, deadline: Deadline, *, before: Deadline | None = None) -> None:
        """Report a new or changed deadline of a pod."""
        report_safely("events", partial(self._events.deadline_set, deadline, before))

    def deadline_cancelled(self, deadline: Deadline, *, pod_kept: bool) -> None:
        """Report that a pod no longer has a deadline.

        Args:
            deadline: the previous deadline.
            pod_kept: whether the pod continues to run on its node, so that its eviction is cancelled. If not, the pod
                or its node is being deleted. If the taint manager deleted the pod, :meth:`due_pod_outcome` reports
                that.
        """
        report_safely("events", partial(self._events.deadline_cancelled, deadline, pod_kept=pod_kept))

    def due_pod_outcome(self, outcome: DuePodOutcome) -> None:
        """Report the outcome of an attempt to evict or delete a pod. Callers may report the same refusal repeatedly.

        The same refusal is reported at most once in five minutes.
        """
        report_safely("metrics", partial(self._metrics.count, outcome))
        report_safely("events", partial(self._report_outcome, outcome))

    def _report_outcome(self, outcome: DuePodOutcome) -> None:
        if outcome.result in (DuePodResult.REFUSED, DuePodResult.FAILED):
            uid, now = outcome.deadline.uid, self._clock.now()
            same = without_numbers(f"{outcome.attempt.reason} {outcome.attempt.refuser} {outcome.attempt.message}")
            if not self._trouble.first(uid, same, now=now):
                return
        if outcome.result not in (DuePodResult.DELETED, DuePodResult.EVICTED):  # the evictor logs these
            _log(outcome)
        self._events.due_pod_outcome(outcome)

    def taint_changed(self, change: TaintChange, *, uid: str) -> None:
        """Report a taint that trimtab has added to or removed from the node with this UID."""
        report_safely("events", partial(self._events.taint_changed, change, uid))
        report_safely("metrics", partial(self._metrics.count_taint, change))
        report_safely("history", partial(self._record_taint, change, uid))

    def _record_taint(self, change: TaintChange, uid: str) -> None:
        self._history.add(
            HistoryEntry(
                time=to_time(self._clock.now()),
                controller="tainting",
                action="Taint" if change.add else "Untaint",
                reason=change.reason,
                message=change.message,
                node=change.node,
                uid=uid,
                taint=format_taint(change.taint),
            )
        )

    def node_event(self, name: str, *, uid: str, reason: str, note: str, warning: bool = False) -> None:
        """Emit an event on a node. ``reason`` is a code of :mod:`trimtab.api.reasons`."""
        report_safely("events", partial(self._events.node_event, name, uid, reason, note, warning=warning))

    def observe(self, status: TaintManagerStatus) -> None:
        """Update the metrics. It is called with every built status, including those that are not written."""
        report_safely("events", partial(self._events.stuck, status))
        report_safely("metrics", partial(self._metrics.observe, status, omitted=self._events.omitted))


def _log(outcome: DuePodOutcome) -> None:
    deadline = outcome.deadline
    where = deadline.key, deadline.node
    fields = {
        **pod_fields(deadline.key, deadline.uid, deadline.node),
        "due": format_due(deadline),
        "taint": format_taint(deadline.taint),
        "result": outcome.result.value,
        "reason": outcome.attempt.reason,
        "detail": outcome.attempt.message,
    }
    if outcome.result in (DuePodResult.REFUSED, DuePodResult.FAILED):
        log.warning("Failed to evict pod %s from node %s; retrying: %s", *where, outcome.attempt.message, extra=fields)
    else:
        log.debug("Did not evict pod %s from node %s: %s", *where, outcome.attempt.message, extra=fields)
