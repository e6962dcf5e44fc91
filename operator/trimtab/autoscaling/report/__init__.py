"""What the autoscaler tells: status, events, metrics and upstream's ConfigMap, all from one value a pass."""

from trimtab.autoscaling.report.pass_report import (
    Grown,
    Health,
    PassReport,
    Readiness,
    Removed,
    Totals,
    Waiting,
)

__all__ = ["Grown", "Health", "PassReport", "Readiness", "Removed", "Totals", "Waiting"]
