"""What a pass tells in the log, and removals the loop; all else is told by :mod:`trimtab.autoscaling.report`."""

from __future__ import annotations

import logging

from trimtab.autoscaling.actuation import RemovalOutcome, RemovalState, Teller
from trimtab.autoscaling.report import PassReport
from trimtab.autoscaling.trigger import Trigger

log = logging.getLogger(__name__)


class Waking:
    """Tells of removals as somebody else does, and wakes the loop when one has ended: the next may begin.

    Args:
        teller: tells.
        trigger: of the loop.
    """

    def __init__(self, teller: Teller, trigger: Trigger) -> None:
        self._teller = teller
        self._trigger = trigger

    def began(self, state: RemovalState) -> None:
        """A node has its taint."""
        self._teller.began(state)

    def ended(self, outcome: RemovalOutcome) -> None:
        """A removal ended."""
        self._teller.ended(outcome)
        self._trigger.wake()


def log_pass(report: PassReport) -> None:
    """Log what a pass did; one that did nothing is no news."""
    for grown in report.grown:
        scaled = grown.scaled
        if scaled.done:
            log.info(
                "%s: asked for %d instead of %d: %s", scaled.group, scaled.after, scaled.before, grown.action.message
            )
        else:
            log.warning(
                "%s: could not be asked for %d: %s: %s", scaled.group, scaled.after, scaled.failure, scaled.message
            )
    for corrected in report.corrected:
        level = logging.INFO if corrected.done else logging.WARNING
        log.log(
            level,
            "%s: set to %d instead of %d %s",
            corrected.group,
            corrected.after,
            corrected.before,
            corrected.message,
        )
    for finding in report.told:
        log.log(logging.WARNING if finding.failure else logging.INFO, "%s: %s", finding.group, finding.message)
