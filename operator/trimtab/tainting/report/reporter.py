"""Reporter: the teller that a process has. What cannot be told never stops what it is about."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from trimtab.api import reasons
from trimtab.api.taint_manager import TaintManagerSpec
from trimtab.api.taint_manager_status import TaintManagerStatus
from trimtab.tainting.conditions import TaintChange
from trimtab.tainting.deadlines import Deadline
from trimtab.tainting.ending.outcome import Ended
from trimtab.tainting.report.events import EventTeller
from trimtab.tainting.report.metrics import TaintManagerMetrics

log = logging.getLogger(__name__)


class Reporter:
    """A :class:`~trimtab.tainting.report.teller.Teller` for events and metrics.

    Events are handed on in :meth:`observe`, which comes with each look: nothing need run for it.

    Args:
        events: tells them.
        metrics: counts.
    """

    def __init__(self, events: EventTeller, metrics: TaintManagerMetrics) -> None:
        self._events = events
        self._metrics = metrics

    def configure(self, spec: TaintManagerSpec, *, uid: str) -> None:  # noqa: ARG002  named in the protocol
        """See :meth:`Teller.configure`."""
        self._events.configure(spec)

    def deadline_set(self, deadline: Deadline, *, before: Deadline | None = None) -> None:
        """See :meth:`Teller.deadline_set`."""
        _safely(partial(self._events.deadline_set, deadline, before))

    def deadline_dropped(self, deadline: Deadline, *, stays: bool) -> None:
        """See :meth:`Teller.deadline_dropped`."""
        _safely(partial(self._events.dropped, deadline, stays=stays))

    def ended(self, ended: Ended) -> None:
        """See :meth:`Teller.ended`."""
        _safely(partial(self._events.ended, ended))
        _safely(partial(self._metrics.count, ended))

    def taint_changed(self, change: TaintChange, *, uid: str) -> None:
        """See :meth:`Teller.taint_changed`."""
        _safely(partial(self._events.taint_changed, change, uid))
        _safely(partial(self._metrics.count_taint, change))

    def node(self, name: str, *, uid: str, reason: str, note: str, warning: bool = False) -> None:
        """See :meth:`Teller.node`."""
        _safely(partial(self._events.node, name, uid, reason, note, warning=warning))

    def stuck(self, name: str, *, uid: str, terminating: int, note: str) -> None:
        """See :meth:`Teller.stuck`."""
        self.node(name, uid=uid, reason=reasons.PODS_STUCK, note=note, warning=terminating > 0)

    def observe(self, status: TaintManagerStatus) -> None:
        """See :meth:`Teller.observe`."""
        _safely(self._events.drain)
        _safely(partial(self._metrics.observe, status, untold=self._events.backlog.untold))


def _safely(tell: Callable[[], None]) -> None:
    """Tell; a report must not stop what it reports on."""
    try:
        tell()
    except Exception:  # whatever it is
        log.exception("something could not be told")
