"""Reports what the taint manager does, in events, metrics, the history and log lines.

Events are queued and sent at a limited rate, which leaves capacity for those of other controllers. The queue is
limited.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trimtab.api import reasons
from trimtab.api.bounds import named, plural, without_numbers
from trimtab.api.history_record import HistoryEntry
from trimtab.api.plan import rfc3339
from trimtab.api.scalars import to_time
from trimtab.api.taint_manager import NAME, OBSERVE, Mode, TaintManagerSpec, TaintManagerStatus, ZoneStatus
from trimtab.controller.history import History, NoHistory
from trimtab.controller.reporter import OTHER_REASON, LabeledGauge, pod_fields, reason_label, report_safely
from trimtab.kube.clock import Clock
from trimtab.kube.events.event import NORMAL, WARNING, Occurrence, RecentlyReported
from trimtab.kube.events.paced import PacedEvents
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.resources import TAINT_MANAGERS, ObjectReference, node_reference, pod_reference
from trimtab.kube.rules.taints import NO_EXECUTE, format_taint
from trimtab.tainting.deadlines import Deadline, DeadlineChange, describe_deadline
from trimtab.tainting.due_pods import DuePodReport, DuePodResult
from trimtab.tainting.lifecycle.planner import NO_SCHEDULE_KEYS, TaintChange

log = logging.getLogger(__name__)

_ENDED: Final = (DuePodResult.DELETED, DuePodResult.EVICTED)
_RETRIED: Final = (DuePodResult.REFUSED, DuePodResult.FAILED)

# --- metrics --------------------------------------------------------------------------------------------------------

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
        dropped = "Events that were dropped since the process started, because the queue was full."
        self._omitted = _gauge(registry, "dropped_events", dropped)
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

    @report_safely("metrics")
    def count(self, report: DuePodReport) -> None:
        """Count the outcome of an attempt to evict a pod."""
        self._outcomes.labels(report.result.value, reason_label(report.outcome.reason)).inc()
        if report.result in _ENDED:
            self._lateness.labels(report.result.value).observe(max(0.0, report.lateness - report.held))

    @report_safely("metrics")
    def count_taint(self, change: TaintChange) -> None:
        """Count an added or removed taint; the keys of other controllers share a label."""
        taint = change.taint
        key = taint.key if taint.key in NO_SCHEDULE_KEYS else OTHER_REASON
        self._changes.labels("Added" if change.add else "Removed", key, taint.effect, reason_label(change.reason)).inc()

    @report_safely("metrics")
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


# --- events ---------------------------------------------------------------------------------------------------------

PODS: Final = 10_000
REFUSALS: Final = 2_000
NODES: Final = 10_000
"""Maximum numbers of queued events of pods, refused pods and nodes. The summary event of a node counts further pods."""

SUMMARY_EVERY: Final = 60.0
"""Minimum seconds between two summary events of a node, which report the number of its pods with a deadline."""

_OF_EVICTIONS: Final = frozenset({reasons.DISRUPTION_BUDGET, reasons.EVICTION_IN_BACKGROUND})
"""Reasons for which only evictions are refused. All other reasons also apply to deletions."""

DRAIN_EVERY: Final = 0.5
"""Seconds between two batches of events. A deadline that changes several times between two batches is reported once."""

IMMINENT: Final = 2.0
"""Seconds before its deadline within which a pod gets no deadline event, because an event for its deletion follows."""

FRESH: Final = 60.0
"""Maximum age in seconds of a taint whose deadlines are reported. An earlier process has reported older ones."""


class Reporter:
    """Reports the changes that the taint manager makes or observes.

    Its methods neither block nor raise. A hundred failed nodes cause reports for 7,200 pods at once, and a restart for
    up to 150,000. :meth:`run` sends the events. ``omitted`` is the number of events that were dropped because the queue
    was full.

    Args:
        recorder: sends the events.
        clock: the wall clock and the monotonic clock.
        metrics: metrics of the taint manager.
        uid_of: returns the UID of a node by its name; ``""`` if it is unknown.
        history: records taints; ``None`` if no history is kept.
    """

    def __init__(
        self,
        recorder: Recorder,
        clock: Clock,
        metrics: TaintManagerMetrics,
        *,
        uid_of: Callable[[str], str],
        history: History | None = None,
    ) -> None:
        self.omitted = 0
        self._clock = clock
        self._metrics = metrics
        self._uid_of = uid_of
        self._history = history or NoHistory()
        self._trouble = RecentlyReported()
        self._mode = TaintManagerSpec().mode
        self._manager = ObjectReference.to(TAINT_MANAGERS, NAME)
        self._paced = PacedEvents(recorder, clock, self._next_event)
        self._stuck: set[str] = set()
        self._refusals: OrderedDict[str, DuePodReport] = OrderedDict()  # by pod UID
        self._nodes: deque[Occurrence] = deque()
        self._summaries: dict[str, dict[str, Deadline]] = {}  # by node name and pod UID
        self._turns: list[tuple[float, str]] = []
        self._summed = RecentlyReported(window=SUMMARY_EVERY, most=NODES)
        self._pods: OrderedDict[str, DeadlineChange | DuePodReport | Occurrence] = OrderedDict()  # by pod UID

    async def run(self) -> None:
        """Send queued events until cancelled. The events that are still queued then are dropped."""
        while True:
            await self._clock.sleep(DRAIN_EVERY)
            self.drain()

    @report_safely("events")
    def drain(self) -> None:
        """Send as many queued events as the rate limit allows now."""
        self._paced.send()

    def configure(self, spec: TaintManagerSpec, *, uid: str) -> None:
        """Apply the spec of the TaintManager with this UID. Event messages are different in Observe mode."""
        self._mode = spec.mode
        self._manager = ObjectReference.to(TAINT_MANAGERS, NAME, uid=uid)

    # --- pods ---------------------------------------------------------------------------------------------------------

    @report_safely("events")
    def deadline_set(self, deadline: Deadline, before: Deadline | None = None) -> None:
        """Report a new or changed deadline unless its event would be redundant.

        The event replaces a queued deadline event for the same pod.
        """
        now = self._clock.now()
        if before is None:
            if now - deadline.since > FRESH:
                return
        elif format_due(before) == format_due(deadline) and before.taint.key == deadline.taint.key:
            return
        if deadline.due - now <= IMMINENT and self._mode != OBSERVE:
            return
        pending = self._pods.get(deadline.uid)
        if isinstance(pending, DuePodReport):
            return  # the watch has not delivered the deletion yet
        if isinstance(pending, DeadlineChange):
            before = pending.before
        self._put(deadline.uid, DeadlineChange(deadline.key, before, deadline))
        summary = self._summaries.get(deadline.node)
        if summary is None:
            if len(self._summaries) >= NODES:
                return
            summary = self._summaries[deadline.node] = {}
            heapq.heappush(self._turns, (max(now, self._summed.last(deadline.node) + SUMMARY_EVERY), deadline.node))
        summary[deadline.uid] = deadline

    @report_safely("events")
    def deadline_cancelled(self, deadline: Deadline, *, pod_kept: bool) -> None:
        """Report a cancelled deadline if the deadline itself was reported.

        ``pod_kept`` is false if the pod or its node is being deleted. If the taint manager deleted the pod,
        :meth:`due_pod_outcome` reports that.
        """
        pending = self._pods.pop(deadline.uid, None)
        self._refusals.pop(deadline.uid, None)
        self._summaries.get(deadline.node, {}).pop(deadline.uid, None)
        if isinstance(pending, DuePodReport):
            self._put(deadline.uid, pending)
        elif pod_kept and not (isinstance(pending, DeadlineChange) and pending.before is None):
            note = (
                f"Cancelling deletion of Pod {deadline.key}: "
                f"no NoExecute taint of node {deadline.node} sets a deadline any more"
            )
            self._put(deadline.uid, _on_pod(deadline, reasons.DEADLINE_CANCELLED, "Cancel", note))

    @report_safely("events")
    def due_pod_outcome(self, report: DuePodReport) -> None:
        """Report the outcome of an attempt to evict or delete a pod. Callers may report the same refusal repeatedly.

        The same refusal is reported at most once in five minutes.
        """
        self._metrics.count(report)
        uid, outcome = report.deadline.uid, report.outcome
        if report.result in _ENDED:  # the evictor logs these
            self._refusals.pop(uid, None)
            self._put(uid, report)
            return
        if report.result in _RETRIED:
            same = without_numbers(f"{outcome.reason} {outcome.refuser} {outcome.message}")
            if not self._trouble.first(uid, same, now=self._clock.now()):
                return
        _log(report)
        if report.result is not DuePodResult.REFUSED:
            return
        if uid in self._refusals or len(self._refusals) < REFUSALS:
            self._refusals[uid] = report
        else:
            self.omitted += 1

    # --- nodes --------------------------------------------------------------------------------------------------------

    def taint_changed(self, change: TaintChange, uid: str) -> None:
        """Report a taint that trimtab has added to or removed from the node with this UID."""
        taint, add = format_taint(change.taint), change.add
        self.node_event(
            change.node,
            uid,
            change.reason,
            f"{'added' if add else 'removed'} taint {taint}: {change.message}",
            warning=add and change.taint.effect == NO_EXECUTE,
            action="Taint" if add else "Untaint",
        )
        self._metrics.count_taint(change)
        with report_safely("history"):
            self._history.add(
                HistoryEntry(
                    time=to_time(self._clock.now()),
                    controller="tainting",
                    action="Taint" if add else "Untaint",
                    reason=change.reason,
                    message=change.message,
                    node=change.node,
                    uid=uid,
                    taint=taint,
                )
            )
        fields = {"node": change.node, "taint": taint, "reason": change.reason, "detail": change.message}
        done = "Added taint %s to node %s: %s" if add else "Removed taint %s from node %s: %s"
        log.info(done, taint, change.node, change.message, extra=fields)

    @report_safely("events")
    def node_event(
        self, name: str, uid: str, reason: str, note: str, *, warning: bool = False, action: str = "Note"
    ) -> None:
        """Emit another event on a node. ``reason`` is a code of :mod:`trimtab.api.reasons`."""
        if len(self._nodes) >= NODES:
            self.omitted += 1
            return
        type_, about = WARNING if warning else NORMAL, node_reference(name, uid)
        self._nodes.append(Occurrence(regarding=about, reason=reason, action=action, note=note, type=type_))

    def observe(self, status: TaintManagerStatus) -> None:
        """Update the metrics. It is called with every built status, including those that are not written.

        Each node is reported once when its pods are stuck terminating, and once when they no longer are. If the list of
        stuck nodes is truncated, the recovery of a node is not reported.
        """
        self._report_stuck(status)
        self._metrics.observe(status, omitted=self.omitted)

    @report_safely("events")
    def _report_stuck(self, status: TaintManagerStatus) -> None:
        stuck = {each.name: each for each in status.stuck_nodes}
        for name in sorted(stuck.keys() - self._stuck):
            self.node_event(name, self._uid_of(name), reasons.PODS_STUCK, stuck[name].message, warning=True)
        if status.stuck_nodes_omitted:
            self._stuck |= stuck.keys()
            return
        for name in sorted(self._stuck - stuck.keys()):
            note = "no pods on the node are stuck terminating any more"
            self.node_event(name, self._uid_of(name), reasons.PODS_NO_LONGER_STUCK, note)
        self._stuck = set(stuck)

    # --- the queue of events ------------------------------------------------------------------------------------------

    def _put(self, uid: str, event: DeadlineChange | DuePodReport | Occurrence) -> None:
        if uid in self._pods or len(self._pods) < PODS:
            self._pods[uid] = event
        else:
            self.omitted += 1

    def _next_event(self) -> Occurrence | None:
        event = self._take()
        return event if event is None or event.related is not None else replace(event, related=self._manager)

    def _take(self) -> Occurrence | None:
        """Remove and return the next event: refusals first, then node events, then pod events, the oldest first."""
        if self._refusals:
            return _refusal(self._refusals.popitem(last=False)[1])
        if self._nodes:
            return self._nodes.popleft()
        now = self._clock.now()
        while self._turns and self._turns[0][0] <= now:
            node = heapq.heappop(self._turns)[1]
            if summary := self._summaries.pop(node):
                self._summed.note(node, "", now=now)
                return _summary(summary, node_reference(node, self._uid_of(node)))
        if not self._pods:
            return None
        event = self._pods.popitem(last=False)[1]
        if isinstance(event, Occurrence):
            return event
        return _end_of_pod(event) if isinstance(event, DuePodReport) else _deadline_set(event, self._mode)


def format_due(deadline: Deadline) -> str:
    """Format the due time of a deadline, rounded up to the next second so that it is never too early."""
    return rfc3339(math.ceil(deadline.due))


def _deadline_set(change: DeadlineChange, mode: Mode) -> Occurrence:
    deadline = change.after
    assert deadline is not None  # a cancelled deadline is queued as an event
    note = f"due for eviction from node {deadline.node} at {format_due(deadline)}: {describe_deadline(deadline)}"
    if change.before is not None:
        note += f"; was due at {format_due(change.before)}"
    if mode == OBSERVE:
        note += "; in Observe mode, trimtab leaves the eviction to other controllers"
    return _on_pod(deadline, reasons.DEADLINE_SET, "Wait", note)


def _refusal(report: DuePodReport) -> Occurrence:
    deadline, outcome = report.deadline, report.outcome
    note = f"not evicted from node {deadline.node} by its deadline {format_due(deadline)}: {outcome.message}"
    if outcome.refuser and outcome.refuser not in outcome.message:
        note += f" ({outcome.refuser})"
    note += f"; {plural(report.attempts, 'attempt')} so far, retrying"
    action = "Evict" if outcome.reason in _OF_EVICTIONS else "Delete"
    return _on_pod(deadline, outcome.reason, action, note, type=WARNING)


def _end_of_pod(report: DuePodReport) -> Occurrence:
    deadline, outcome = report.deadline, report.outcome
    evicted = report.result is DuePodResult.EVICTED
    note = f"Marking for deletion Pod {deadline.key}: {describe_deadline(deadline)}"
    if deadline.toleration is not None:
        note += f" until {format_due(deadline)}"
    if report.lateness >= 1.0:
        held = f", of which {report.held:.1f}s because of userTaintRates" if report.held >= 0.1 else ""
        note += f"; {'evicted' if evicted else 'deleted'} {report.lateness:.1f}s late{held}"
    if outcome.reason == reasons.MAXIMUM_WAIT_OVER:
        note += f"; {outcome.message}"
    return _on_pod(deadline, reasons.TAINT_MANAGER_EVICTION, "Evict" if evicted else "Delete", note)


def _summary(deadlines: Mapping[str, Deadline], node: ObjectReference) -> Occurrence:
    """Return the event on a node that reports its pods with a deadline."""
    taints = list(dict.fromkeys(format_taint(each.taint) for each in deadlines.values()))
    first, last = (format_due(end(deadlines.values(), key=lambda each: each.due)) for end in (min, max))
    when = f"at {first}" if first == last else f"between {first} and {last}"
    because = f"because of {'taint' if len(taints) == 1 else 'taints'} {named(taints)}"
    note = f"{plural(len(deadlines), 'pod')} due for eviction {when} {because}"
    return Occurrence(regarding=node, reason=reasons.DEADLINE_SET, action="Wait", note=note)


def _on_pod(deadline: Deadline, reason: str, action: str, note: str, *, type: str = NORMAL) -> Occurrence:  # noqa: A002
    return Occurrence(
        regarding=pod_reference(deadline.key, deadline.uid),
        reason=reason,
        action=action,
        note=note,
        type=type,
        related=node_reference(deadline.node, ""),
    )


def _log(report: DuePodReport) -> None:
    deadline, outcome = report.deadline, report.outcome
    fields = {
        **pod_fields(deadline.key, deadline.uid, deadline.node),
        "due": format_due(deadline),
        "taint": format_taint(deadline.taint),
        "result": report.result.value,
        "reason": outcome.reason,
        "detail": outcome.message,
    }
    level, text = logging.DEBUG, "Did not evict pod %s from node %s: %s"
    if report.result in _RETRIED:
        level, text = logging.WARNING, "Failed to evict pod %s from node %s; retrying: %s"
    log.log(level, text, deadline.key, deadline.node, outcome.message, extra=fields)
