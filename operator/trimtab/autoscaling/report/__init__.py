"""What the autoscaler tells: status, events, metrics and upstream's ConfigMap, all from one value a pass."""

from trimtab.autoscaling.report.compatible_metrics import CompatibleMetrics
from trimtab.autoscaling.report.config_map import StatusConfigMap
from trimtab.autoscaling.report.events import EventTeller
from trimtab.autoscaling.report.metrics import AutoscalerMetrics
from trimtab.autoscaling.report.pass_report import Grown, PassReport, Totals, Waiting
from trimtab.autoscaling.report.reporter import Reporter
from trimtab.autoscaling.report.status import build_status, materially_different, without_pass, worth_writing

__all__ = [
    "AutoscalerMetrics",
    "CompatibleMetrics",
    "EventTeller",
    "Grown",
    "PassReport",
    "Reporter",
    "StatusConfigMap",
    "Totals",
    "Waiting",
    "build_status",
    "materially_different",
    "without_pass",
    "worth_writing",
]
