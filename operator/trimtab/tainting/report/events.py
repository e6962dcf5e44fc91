"""What the taint manager tells in events, at a pace that leaves room for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trimtab.api import reasons
from trimtab.api.taint_manager import NAME, OBSERVE, TaintManagerSpec
from trimtab.api.taint_manager_status import TaintManagerStatus
from trimtab.kube.clock import Clock
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.events.token_bucket import TokenBucket
from trimtab.kube.reference import ObjectReference
from trimtab.kube.resources import TAINT_MANAGERS
from trimtab.tainting.conditions import TaintChange
from trimtab.tainting.deadlines import Deadline
from trimtab.tainting.ending.outcome import Ended
from trimtab.tainting.report.news import Backlog, due_in_words, note_on_node

RATE: Final = 25.0
"""Events a second after the burst: half of what the recorder sends for all controllers, and a thirtieth of the
deletions that an API server takes."""

BURST: Final = 100.0

DRAIN_EVERY: Final = 0.5
"""Seconds between two looks at what waits: what changes its mind within them is told once, as it is in the end."""

IMMINENT: Final = 2.0
"""A pod that goes within so many seconds is told that it went, not that it will."""

FRESH: Final = 60.0
"""A limit that was so many seconds old when we first saw it was told by an earlier process, or is in the status."""


class EventTeller:
    """Takes what happens, and tells it a little later.

    Args:
        recorder: posts the events.
        clock: the time.
        uid_of: the uid of a node by its name, ``""`` where it is not known.
    """

    def __init__(self, recorder: Recorder, clock: Clock, *, uid_of: Callable[[str], str]) -> None:
        self._recorder = recorder
        self._clock = clock
        self._uid_of = uid_of
        self._mode = TaintManagerSpec().mode
        self._manager = ObjectReference.to(TAINT_MANAGERS, NAME)
        self._pace = TokenBucket(rate=RATE, burst=BURST, now=clock.monotonic())
        self.backlog = Backlog()
        self._stuck: set[str] = set()

    def configure(self, spec: TaintManagerSpec, *, uid: str) -> None:
        """Go by this spec, of the TaintManager with this UID, from now on."""
        self._mode = spec.mode
        self._manager = ObjectReference.to(TAINT_MANAGERS, NAME, uid=uid)

    def deadline_set(self, deadline: Deadline, before: Deadline | None) -> None:
        """A pod's time is limited, or ends at another time; told where that is news."""
        now = self._clock.now()
        if before is None:
            if now - deadline.since > FRESH:
                return
        elif due_in_words(before) == due_in_words(deadline) and before.taint.key == deadline.taint.key:
            return
        if deadline.due - now > IMMINENT or self._mode == OBSERVE:
            self.backlog.deadline_set(deadline, before, now=now)

    def dropped(self, deadline: Deadline, *, stays: bool) -> None:
        """A pod's time is not limited any more."""
        self.backlog.dropped(deadline, stays=stays)

    def ended(self, ended: Ended) -> None:
        """What came of ending a pod."""
        self.backlog.ended(ended)

    def taint_changed(self, change: TaintChange, uid: str) -> None:
        """A taint was put on a node or taken off."""
        self.backlog.taint_changed(change, uid)

    def node(self, name: str, uid: str, reason: str, note: str, *, warning: bool) -> None:
        """Something else happened to a node."""
        self.backlog.node(note_on_node(name, uid, reason, note, warning=warning))

    def stuck(self, status: TaintManagerStatus) -> None:
        """Tell of dead nodes on which pods cannot end, once each, and when that is over.

        Args:
            status: as it is now; where it names only some of the nodes, none is told that it is over.
        """
        stuck = {each.name: each for each in status.stuck_nodes}
        for name in sorted(stuck.keys() - self._stuck):
            self.node(name, self._uid_of(name), reasons.PODS_STUCK, stuck[name].message, warning=True)
        if status.stuck_nodes_omitted:
            self._stuck |= stuck.keys()
            return
        for name in sorted(self._stuck - stuck.keys()):
            note = "no pod that cannot end is on the node any more"
            self.node(name, self._uid_of(name), reasons.PODS_STUCK, note, warning=False)
        self._stuck = set(stuck)

    def drain(self) -> None:
        """Tell what the pace allows now."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        while self.backlog and self._pace.wait(monotonic) <= 0:
            told = self.backlog.take(self._mode, self._uid_of, now=now)
            if told is None:
                return
            self._pace.take(monotonic)
            self._recorder.event(
                told.regarding,
                reason=told.reason,
                action=told.action,
                note=told.note,
                type=told.type,
                related=told.related or self._manager,
            )
