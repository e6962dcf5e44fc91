"""The events of the taint manager and their rate limit, which leaves capacity for the events of other controllers."""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.bounds import named, plural
from trimtab.api.plan import rfc3339
from trimtab.api.taint_manager import NAME, OBSERVE, Mode, TaintManagerSpec, TaintManagerStatus
from trimtab.kube.clock import Clock
from trimtab.kube.events.event import NORMAL, WARNING, Occurrence, RecentlyReported
from trimtab.kube.events.paced import PacedEvents
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.resources import TAINT_MANAGERS, ObjectReference, node_reference, pod_reference
from trimtab.kube.rules.taints import NO_EXECUTE, format_taint
from trimtab.tainting.deadlines import Deadline, DeadlineChange, describe_deadline
from trimtab.tainting.due_pods import DuePodOutcome, DuePodResult
from trimtab.tainting.lifecycle.node_health import TaintChange

PODS: Final = 10_000
"""Maximum number of pods with queued events. The summary event of their node includes the count of further pods."""

REFUSALS: Final = 2_000
NODES: Final = 10_000
"""Maximum number of queued events of refused pods, and maximum number of queued events of nodes."""

SUMMARY_EVERY: Final = 60.0
"""Minimum seconds between two summary events of a node. A summary event reports the number of its pods with a deadline.
"""

_WAIT: Final = "Wait"
_CANCEL: Final = "Cancel"
_DELETE: Final = "Delete"
_EVICT: Final = "Evict"
_TAINT: Final = "Taint"
_UNTAINT: Final = "Untaint"
_NOTE: Final = "Note"
"""The value of the field ``action`` of events."""


_OF_EVICTIONS: Final = frozenset({reasons.DISRUPTION_BUDGET, reasons.EVICTION_IN_BACKGROUND})
"""Reasons for which only evictions are refused. All other reasons also apply to deletions."""


DRAIN_EVERY: Final = 0.5
"""Seconds between two batches of events. A deadline that changes several times between two batches is reported once."""

IMMINENT: Final = 2.0
"""Seconds before its deadline within which a pod gets no deadline event, because an event for its deletion follows."""

FRESH: Final = 60.0
"""Maximum age in seconds of a taint whose deadlines are reported. An earlier process has reported older ones."""


class EventReporter:
    """Queues the events of the taint manager, and emits them in rate-limited batches. The queue is limited.

    Args:
        recorder: sends the events.
        clock: the wall clock and the monotonic clock.
        uid_of: returns the UID of a node by its name; ``""`` if it is unknown.

    Attributes:
        omitted: number of events that were dropped because the queue was full.
    """

    def __init__(self, recorder: Recorder, clock: Clock, *, uid_of: Callable[[str], str]) -> None:
        self.omitted = 0
        self._clock = clock
        self._uid_of = uid_of
        self._mode = TaintManagerSpec().mode
        self._manager = ObjectReference.to(TAINT_MANAGERS, NAME)
        self._paced = PacedEvents(recorder, clock, self._next_event)
        self._stuck: set[str] = set()
        self._refusals: OrderedDict[str, DuePodOutcome] = OrderedDict()  # by pod UID
        self._nodes: deque[Occurrence] = deque()
        self._summaries: dict[str, dict[str, Deadline]] = {}  # by node name and pod UID
        self._turns: list[tuple[float, str]] = []
        self._summed = RecentlyReported(window=SUMMARY_EVERY, most=NODES)
        self._pods: OrderedDict[str, DeadlineChange | DuePodOutcome | Occurrence] = OrderedDict()  # by pod UID

    def __len__(self) -> int:
        return len(self._refusals) + len(self._nodes) + len(self._summaries) + len(self._pods)

    def configure(self, spec: TaintManagerSpec, *, uid: str) -> None:
        """Apply the spec of the TaintManager with this UID. Event messages are different in Observe mode."""
        self._mode = spec.mode
        self._manager = ObjectReference.to(TAINT_MANAGERS, NAME, uid=uid)

    def deadline_set(self, deadline: Deadline, before: Deadline | None) -> None:
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
        if isinstance(pending, DuePodOutcome):
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

    def deadline_cancelled(self, deadline: Deadline, *, pod_kept: bool) -> None:
        """Report a cancelled deadline if the deadline itself was reported."""
        pending = self._pods.pop(deadline.uid, None)
        self._refusals.pop(deadline.uid, None)
        self._summaries.get(deadline.node, {}).pop(deadline.uid, None)
        if isinstance(pending, DuePodOutcome):
            self._put(deadline.uid, pending)
        elif pod_kept and not (isinstance(pending, DeadlineChange) and pending.before is None):
            note = (
                f"Cancelling deletion of Pod {deadline.key}: "
                f"no NoExecute taint of node {deadline.node} sets a deadline any more"
            )
            self._put(deadline.uid, _on_pod(deadline, reasons.DEADLINE_CANCELLED, _CANCEL, note))

    def due_pod_outcome(self, outcome: DuePodOutcome) -> None:
        """Report a deleted, evicted or refused pod. Other outcomes have no event."""
        uid = outcome.deadline.uid
        if outcome.result is DuePodResult.REFUSED:
            if uid in self._refusals or len(self._refusals) < REFUSALS:
                self._refusals[uid] = outcome
            else:
                self.omitted += 1
        elif outcome.result in (DuePodResult.DELETED, DuePodResult.EVICTED):
            self._refusals.pop(uid, None)
            self._put(uid, outcome)

    def taint_changed(self, change: TaintChange, uid: str) -> None:
        """Report a taint that was added to or removed from the node with this UID."""
        note = f"{'added' if change.add else 'removed'} taint {format_taint(change.taint)}: {change.message}"
        failed = change.add and change.taint.effect == NO_EXECUTE
        action = _TAINT if change.add else _UNTAINT
        self.node_event(change.node, uid, change.reason, note, warning=failed, action=action)

    def node_event(self, name: str, uid: str, reason: str, note: str, *, warning: bool, action: str = _NOTE) -> None:
        """Report another event on a node."""
        if len(self._nodes) >= NODES:
            self.omitted += 1
            return
        type_, about = WARNING if warning else NORMAL, node_reference(name, uid)
        self._nodes.append(Occurrence(regarding=about, reason=reason, action=action, note=note, type=type_))

    def stuck(self, status: TaintManagerStatus) -> None:
        """Report each node once when its pods are stuck terminating, and once when they no longer are.

        Args:
            status: the current status. If its list of stuck nodes is truncated, the recovery of a node is not reported.
        """
        stuck = {each.name: each for each in status.stuck_nodes}
        for name in sorted(stuck.keys() - self._stuck):
            self.node_event(name, self._uid_of(name), reasons.PODS_STUCK, stuck[name].message, warning=True)
        if status.stuck_nodes_omitted:
            self._stuck |= stuck.keys()
            return
        for name in sorted(self._stuck - stuck.keys()):
            note = "no pods on the node are stuck terminating any more"
            self.node_event(name, self._uid_of(name), reasons.PODS_NO_LONGER_STUCK, note, warning=False)
        self._stuck = set(stuck)

    def drain(self) -> None:
        """Send as many queued events as the rate limit allows now."""
        self._paced.send()

    def _put(self, uid: str, event: DeadlineChange | DuePodOutcome | Occurrence) -> None:
        if uid in self._pods or len(self._pods) < PODS:
            self._pods[uid] = event
        else:
            self.omitted += 1

    def _next_event(self) -> Occurrence | None:
        event = self._take()
        return event if event is None or event.related is not None else replace(event, related=self._manager)

    def _take(self) -> Occurrence | None:
        """Remove and return the next event: refusals first, then node events, then pod events.

        Events of the same kind are returned in the order in which they were queued.
        """
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
        return _end_of_pod(event) if isinstance(event, DuePodOutcome) else _deadline_set(event, self._mode)


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
    return _on_pod(deadline, reasons.DEADLINE_SET, _WAIT, note)


def _refusal(outcome: DuePodOutcome) -> Occurrence:
    deadline, attempt = outcome.deadline, outcome.attempt
    note = f"not evicted from node {deadline.node} by its deadline {format_due(deadline)}: {attempt.message}"
    if attempt.refuser and attempt.refuser not in attempt.message:
        note += f" ({attempt.refuser})"
    note += f"; {plural(outcome.attempts, 'attempt')} so far, retrying"
    action = _EVICT if attempt.reason in _OF_EVICTIONS else _DELETE
    return _on_pod(deadline, attempt.reason, action, note, type=WARNING)


def _end_of_pod(outcome: DuePodOutcome) -> Occurrence:
    deadline, attempt = outcome.deadline, outcome.attempt
    evicted = outcome.result is DuePodResult.EVICTED
    note = f"Marking for deletion Pod {deadline.key}: {describe_deadline(deadline)}"
    if deadline.toleration is not None:
        note += f" until {format_due(deadline)}"
    if outcome.lateness >= 1.0:
        held = f", of which {outcome.held:.1f}s because of userTaintRates" if outcome.held >= 0.1 else ""
        note += f"; {'evicted' if evicted else 'deleted'} {outcome.lateness:.1f}s late{held}"
    if attempt.reason == reasons.MAXIMUM_WAIT_OVER:
        note += f"; {attempt.message}"
    return _on_pod(deadline, reasons.TAINT_MANAGER_EVICTION, _EVICT if evicted else _DELETE, note)


def _summary(deadlines: Mapping[str, Deadline], node: ObjectReference) -> Occurrence:
    """Return the event on a node that reports its pods with a deadline."""
    times = [each.due for each in deadlines.values()]
    taints = list(dict.fromkeys(format_taint(each.taint) for each in deadlines.values()))
    first, last = (rfc3339(math.ceil(end(times))) for end in (min, max))
    when = f"at {first}" if first == last else f"between {first} and {last}"
    because = f"because of {'taint' if len(taints) == 1 else 'taints'} {named(taints)}"
    note = f"{plural(len(deadlines), 'pod')} due for eviction {when} {because}"
    return Occurrence(regarding=node, reason=reasons.DEADLINE_SET, action=_WAIT, note=note)


def _on_pod(deadline: Deadline, reason: str, action: str, note: str, *, type: str = NORMAL) -> Occurrence:  # noqa: A002
    return Occurrence(
        regarding=pod_reference(deadline.key, deadline.uid),
        reason=reason,
        action=action,
        note=note,
        type=type,
        related=node_reference(deadline.node, ""),
    )
