"""Reporter: the teller that a process has. What cannot be told never stops what it is about."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from trimtab.api.bounds import story
from trimtab.api.taint_manager import TaintManagerSpec
from trimtab.api.taint_manager_status import TaintManagerStatus
from trimtab.kube.clock import Clock
from trimtab.kube.events.lately import Lately
from trimtab.kube.rules.taints import taint_in_words
from trimtab.tainting.conditions import TaintChange
from trimtab.tainting.deadlines import Deadline
from trimtab.tainting.ending.outcome import Ended, What
from trimtab.tainting.report.events import DRAIN_EVERY, EventTeller
from trimtab.tainting.report.metrics import TaintManagerMetrics
from trimtab.tainting.report.news import due_in_words

log = logging.getLogger(__name__)


class Reporter:
    """A :class:`~trimtab.tainting.report.teller.Teller` for events, metrics and the log; :meth:`run` sends the events.

    Args:
        events: tells them.
        metrics: counts.
        clock: waits.
    """

    def __init__(self, events: EventTeller, metrics: TaintManagerMetrics, clock: Clock) -> None:
        self._events = events
        self._metrics = metrics
        self._clock = clock
        self._trouble = Lately()

    async def run(self) -> None:
        """Send events until cancelled; what waits then is dropped, for it is news and no state."""
        while True:
            await self._clock.sleep(DRAIN_EVERY)
            _safely(self._events.drain)

    def configure(self, spec: TaintManagerSpec, *, uid: str) -> None:
        """See :meth:`Teller.configure`."""
        self._events.configure(spec, uid=uid)

    def deadline_set(self, deadline: Deadline, *, before: Deadline | None = None) -> None:
        """See :meth:`Teller.deadline_set`."""
        _safely(partial(self._events.deadline_set, deadline, before))

    def deadline_dropped(self, deadline: Deadline, *, stays: bool) -> None:
        """See :meth:`Teller.deadline_dropped`."""
        _safely(partial(self._events.dropped, deadline, stays=stays))

    def ended(self, ended: Ended) -> None:
        """See :meth:`Teller.ended`; each try counts, and the same refusal is told once in five minutes."""
        _safely(partial(self._metrics.count, ended))
        _safely(partial(self._tell, ended))

    def _tell(self, ended: Ended) -> None:
        if ended.what in (What.REFUSED, What.FAILED):
            uid, now = ended.deadline.uid, self._clock.now()
            same = story(f"{ended.reason} {ended.refuser} {ended.message}")
            if not self._trouble.is_news(uid, same, now=now):
                return
            self._trouble.note(uid, same, now=now)
        _log(ended)
        self._events.ended(ended)

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


def _log(ended: Ended) -> None:
    """One line, with what a search needs as fields of its own."""
    deadline = ended.deadline
    namespace, _, name = deadline.key.partition("/")
    fields = {
        "namespace": namespace,
        "pod": name,
        "uid": deadline.uid,
        "node": deadline.node,
        "due": due_in_words(deadline),
        "taint": taint_in_words(deadline.taint),
        "result": ended.what.value,
        "reason": ended.reason,
        "detail": ended.message,
    }
    if ended.what in (What.DELETED, What.EVICTED):
        how, late = ended.what.value.lower(), ended.lateness
        log.info("%s %s from %s, %.1fs after its time", deadline.key, how, deadline.node, late, extra=fields)
    elif ended.what in (What.REFUSED, What.FAILED):
        log.warning("%s is still on %s: %s", deadline.key, deadline.node, ended.message, extra=fields)
    else:
        log.debug("%s was not ended: %s", deadline.key, ended.message, extra=fields)


def _safely(tell: Callable[[], None]) -> None:
    """Tell; a report must not stop what it reports on."""
    try:
        tell()
    except Exception:  # whatever it is
        log.exception("something could not be told")
