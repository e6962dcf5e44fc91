"""What a pass tells in the log; events, metrics and the status are made by :mod:`trimtab.autoscaling.report`."""

from __future__ import annotations

import logging

from trimtab.autoscaling.report import PassReport

log = logging.getLogger(__name__)


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
