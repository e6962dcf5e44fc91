"""Reports the autoscaler's iterations as status, events, metrics and a status ConfigMap.

All of them are built from one value per iteration.
"""

from trimtab.autoscaling.report.events import AutoscalerEventReporter
from trimtab.autoscaling.report.iteration_report import ClusterTotals, IterationReport, PendingPod, ScaleUpOutcome
from trimtab.autoscaling.report.metrics import AutoscalerMetrics, CompatibleMetrics
from trimtab.autoscaling.report.reporter import AutoscalerReporter
from trimtab.autoscaling.report.status import (
    build_status,
    status_writer,
    worth_writing,
)
from trimtab.autoscaling.report.status_config_map import StatusConfigMap

__all__ = [
    "AutoscalerEventReporter",
    "AutoscalerMetrics",
    "AutoscalerReporter",
    "ClusterTotals",
    "CompatibleMetrics",
    "IterationReport",
    "PendingPod",
    "ScaleUpOutcome",
    "StatusConfigMap",
    "build_status",
    "status_writer",
    "worth_writing",
]
