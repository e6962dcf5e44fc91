"""News of pods and nodes that wait to be told as events: bounded, told at a pace, and never of what is outdated.

A taint on 100 nodes concerns 7,200 pods in one moment, and each of them has up to three things to tell. All of it at
once would fill the recorder's queue, which other controllers share, and take the API server's time when pods are to
go. So a pod has one place here, in which later news takes that of earlier: who is deleted before it was told that it
will be is only told the end.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.bounds import plural
from trimtab.api.plan import rfc3339
from trimtab.api.taint_manager import OBSERVE, Mode
from trimtab.kube.events.event import NORMAL, WARNING
from trimtab.kube.events.lately import Lately
from trimtab.kube.reference import ObjectReference, node_reference, pod_reference
from trimtab.kube.rules.taints import NO_EXECUTE, taint_in_words
from trimtab.tainting.conditions import TaintChange
from trimtab.tainting.deadlines import Deadline, deadline_in_words
from trimtab.tainting.ending.outcome import Ended, What

PODS: Final = 10_000
"""Pods with news that waits; what comes on top is counted and told of the node alone."""

REFUSALS: Final = 2_000
NODES: Final = 10_000
"""Refused pods, and news of nodes, that wait; likewise."""

SUMMARY_EVERY: Final = 60.0
"""Seconds between two events on one node that tell how many of its pods go."""

_WAIT: Final = "Wait"
_CANCEL: Final = "Cancel"
_DELETE: Final = "Delete"
_EVICT: Final = "Evict"
_TAINT: Final = "Taint"
_UNTAINT: Final = "Untaint"
_NOTE: Final = "Note"
"""``action`` of events."""


_OF_EVICTIONS: Final = frozenset({reasons.DISRUPTION_BUDGET, reasons.EVICTION_IN_BACKGROUND})
"""Refusals of evictions; all others are of deletions, or of either."""


class Told(Struct, frozen=True, kw_only=True):
    """An event as it is told."""

    regarding: ObjectReference
    reason: str
    action: str
    note: str
    type: str = NORMAL
    related: ObjectReference | None = None


class _Set(Struct, frozen=True, gc=False):
    deadline: Deadline
    before: Deadline | None

    def told(self, mode: Mode) -> Told:
        deadline = self.deadline
        note = f"due at {due_in_words(deadline)} on {deadline.node}: {deadline_in_words(deadline)}"
        if self.before is not None:
            note += f"; was due at {due_in_words(self.before)}"
        if mode == OBSERVE:
            note += "; in mode Observe trimtab does nothing about it"
        return _on_pod(deadline, reasons.DEADLINE_SET, _WAIT, note)


class _Cancelled(Struct, frozen=True, gc=False):
    deadline: Deadline

    def told(self, mode: Mode) -> Told:  # noqa: ARG002  the same in every mode
        key, node = self.deadline.key, self.deadline.node
        note = f"Cancelling deletion of Pod {key}: taints of {node} do not limit its time any more"
        return _on_pod(self.deadline, reasons.DEADLINE_CANCELLED, _CANCEL, note)


class _Ended(Struct, frozen=True, gc=False):
    ended: Ended

    def told(self, mode: Mode) -> Told:  # noqa: ARG002
        ended, deadline = self.ended, self.ended.deadline
        if ended.what is What.REFUSED:
            note = f"due at {due_in_words(deadline)} on {deadline.node} and still there: {ended.message}"
            if ended.refuser and ended.refuser not in ended.message:
                note += f" ({ended.refuser})"
            note += f"; tried {plural(ended.attempts, 'time')}, will be tried again"
            action = _EVICT if ended.reason in _OF_EVICTIONS else _DELETE
            return _on_pod(deadline, ended.reason, action, note, type=WARNING)
        evicted = ended.what is What.EVICTED
        held = f", {ended.held:.1f}s of it held back by userTaintRates" if ended.held >= 0.1 else ""
        note = (
            f"Marking for deletion Pod {deadline.key}: {'evicted' if evicted else 'deleted'} at {rfc3339(ended.at)}, "
            f"{ended.lateness:.1f}s after its time{held}; {deadline_in_words(deadline)}"
        )
        if ended.reason == reasons.MAXIMUM_WAIT_OVER:
            note += f"; {ended.message}"
        return _on_pod(deadline, reasons.TAINT_MANAGER_EVICTION, _EVICT if evicted else _DELETE, note)


class _Summary:
    """Which of a node's pods go, and when."""

    __slots__ = ("due", "taint")

    def __init__(self) -> None:
        self.due: dict[str, float] = {}
        self.taint = ""

    def add(self, deadline: Deadline) -> None:
        self.due[deadline.uid] = deadline.due
        self.taint = taint_in_words(deadline.taint)

    def told(self, node: str, uid: str) -> Told:
        first, last = (rfc3339(math.ceil(end(self.due.values()))) for end in (min, max))
        when = f"due at {first}" if first == last else f"due from {first} to {last}"
        note = f"{plural(len(self.due), 'pod')} {when} because of NoExecute taints, {self.taint} among them"
        return Told(regarding=node_reference(node, uid), reason=reasons.DEADLINE_SET, action=_WAIT, note=note)


class Backlog:
    """What is still to be told.

    Attributes:
        untold: news for which there was no room.
    """

    def __init__(self) -> None:
        self.untold = 0
        self._refusals: OrderedDict[str, _Ended] = OrderedDict()
        self._nodes: deque[Told] = deque()
        self._summaries: dict[str, _Summary] = {}
        self._turns: list[tuple[float, str]] = []
        self._summed = Lately(window=SUMMARY_EVERY, most=NODES)
        self._pods: OrderedDict[str, _Set | _Cancelled | _Ended] = OrderedDict()

    def __len__(self) -> int:
        return len(self._refusals) + len(self._nodes) + len(self._summaries) + len(self._pods)

    def deadline_set(self, deadline: Deadline, before: Deadline | None, *, now: float) -> None:
        """A pod's time is limited; of one that was not told of an earlier limit only the last one counts.

        Args:
            deadline: that it has.
            before: that it had.
            now: seconds since the epoch.
        """
        pending = self._pods.get(deadline.uid)
        if isinstance(pending, _Ended):
            return  # the watch does not show yet that it goes
        if isinstance(pending, _Set):
            before = pending.before
        self._put(deadline.uid, _Set(deadline, before))
        summary = self._summaries.get(deadline.node)
        if summary is None:
            if len(self._summaries) >= NODES:
                return
            summary = self._summaries[deadline.node] = _Summary()
            heapq.heappush(self._turns, (max(now, self._summed.last(deadline.node) + SUMMARY_EVERY), deadline.node))
        summary.add(deadline)

    def dropped(self, deadline: Deadline, *, stays: bool) -> None:
        """A pod's time is not limited any more; nothing is told of one that was not told that it was."""
        pending = self._pods.pop(deadline.uid, None)
        self._refusals.pop(deadline.uid, None)
        summary = self._summaries.get(deadline.node)
        if summary is not None:
            summary.due.pop(deadline.uid, None)
        if isinstance(pending, _Ended):
            self._put(deadline.uid, pending)
        elif stays and not (isinstance(pending, _Set) and pending.before is None):
            self._put(deadline.uid, _Cancelled(deadline))

    def ended(self, ended: Ended) -> None:
        """A pod was deleted, evicted or refused; other outcomes are no news."""
        uid = ended.deadline.uid
        if ended.what is What.REFUSED:
            if uid in self._refusals or len(self._refusals) < REFUSALS:
                self._refusals[uid] = _Ended(ended)
            else:
                self.untold += 1
        elif ended.what in (What.DELETED, What.EVICTED):
            self._refusals.pop(uid, None)
            self._put(uid, _Ended(ended))

    def taint_changed(self, change: TaintChange, uid: str) -> None:
        """A taint was put on a node or taken off."""
        taint = taint_in_words(change.taint)
        note = f"taint {taint} {'put on' if change.add else 'taken off'}: {change.message}"
        failed = change.add and change.taint.effect == NO_EXECUTE
        self.node(
            Told(
                regarding=node_reference(change.node, uid),
                reason=change.reason,
                action=_TAINT if change.add else _UNTAINT,
                note=note,
                type=WARNING if failed else NORMAL,
            )
        )

    def node(self, told: Told) -> None:
        """Something happened to a node."""
        if len(self._nodes) >= NODES:
            self.untold += 1
        else:
            self._nodes.append(told)

    def take(self, mode: Mode, uid_of: Callable[[str], str], *, now: float) -> Told | None:
        """Take out what is told next, ``None`` for nothing: refusals, then nodes, then pods, each in their order.

        Args:
            mode: of the TaintManager.
            uid_of: the uid of a node by its name.
            now: seconds since the epoch.
        """
        if self._refusals:
            return self._refusals.popitem(last=False)[1].told(mode)
        if self._nodes:
            return self._nodes.popleft()
        while self._turns and self._turns[0][0] <= now:
            node = heapq.heappop(self._turns)[1]
            summary = self._summaries.pop(node)
            if summary.due:
                self._summed.note(node, "", now=now)
                return summary.told(node, uid_of(node))
        if self._pods:
            return self._pods.popitem(last=False)[1].told(mode)
        return None

    def _put(self, uid: str, news: _Set | _Cancelled | _Ended) -> None:
        if uid in self._pods or len(self._pods) < PODS:
            self._pods[uid] = news
        else:
            self.untold += 1


def note_on_node(name: str, uid: str, reason: str, note: str, *, warning: bool) -> Told:
    """An event on a node."""
    return Told(
        regarding=node_reference(name, uid),
        reason=reason,
        action=_NOTE,
        note=note,
        type=WARNING if warning else NORMAL,
    )


def due_in_words(deadline: Deadline) -> str:
    """To the second, and never told too early."""
    return rfc3339(math.ceil(deadline.due))


def _on_pod(deadline: Deadline, reason: str, action: str, note: str, *, type: str = NORMAL) -> Told:  # noqa: A002
    return Told(
        regarding=pod_reference(deadline.key, deadline.uid),
        reason=reason,
        action=action,
        note=note,
        type=type,
        related=node_reference(deadline.node, ""),
    )
