"""Reporter: the teller that a process has. What cannot be told never stops what it is about."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from trimtab.api.taint_manager import TaintManagerSpec
from trimtab.api.taint_manager_status import TaintManagerStatus
from trimtab.kube.clock import Clock
from trimtab.tainting.conditions import TaintChange
from trimtab.tainting.deadlines import Deadline
from trimtab.tainting.ending.outcome import Ended
from trimtab.tainting.report.events import DRAIN_EVERY, EventTeller
from trimtab.tainting.report.metrics import TaintManagerMetrics

log = logging.getLogger(__name__)


class Reporter:
    """A :class:`~trimtab.tainting.report.teller.Teller` for events and metrics; :meth:`run` sends the events.

    Args:
        events: tells them.
        metrics: counts.
        clock: waits.
    """

    def __init__(self, events: EventTeller, metrics: TaintManagerMetrics, clock: Clock) -> None:
        self._events = events
        self._metrics = metrics
        self._clock = clock

    async def run(self) -> None:
        """Send events until cancelled; what waits then is dropped, for it is news and no state."""
        while True:
            await self._clock.sleep(DRAIN_EVERY)
            _safely(self._events.drain)

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

    def observe(self, status: TaintManagerStatus) -> None:
        """See :meth:`Teller.observe`."""
        _safely(partial(self._events.stuck, status))
        _safely(partial(self._metrics.observe, status, untold=self._events.backlog.untold))


def _safely(tell: Callable[[], None]) -> None:
    """Tell; a report must not stop what it reports on."""
    try:
        tell()
    except Exception:  # whatever it is
        log.exception("something could not be told")
