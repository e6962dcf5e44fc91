"""The events, metrics and status of the taint manager.

The tasks of the taint manager report each change to the :class:`Reporter`. Every :data:`RECONCILE_PERIOD` seconds
the controller collects an :class:`Observation`, from which :func:`build_status` builds the status.
"""

from trimtab.tainting.report.reporter import Reporter, TaintManagerMetrics
from trimtab.tainting.report.status import RECONCILE_PERIOD, Observation, build_status, status_writer

__all__ = ["RECONCILE_PERIOD", "Observation", "Reporter", "TaintManagerMetrics", "build_status", "status_writer"]
