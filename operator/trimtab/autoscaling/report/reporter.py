"""Reports iterations and removals in events, metrics and upstream's status ConfigMap."""

from __future__ import annotations

from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.actuation.removal import RemovalOutcome, RemovalState
from trimtab.autoscaling.report.events import AutoscalerEventReporter
from trimtab.autoscaling.report.history import AutoscalerHistory
from trimtab.autoscaling.report.iteration_report import IterationReport
from trimtab.autoscaling.report.metrics import AutoscalerMetrics, CompatibleMetrics
from trimtab.autoscaling.report.status_config_map import StatusConfigMap
from trimtab.controller.history import History, NoHistory
from trimtab.controller.reporter import report_safely
from trimtab.disruption.outcome import Refusal


class AutoscalerReporter:
    """Reports iterations, and the start and end of removals. No method raises or blocks.

    Args:
        events: posts events.
        metrics: trimtab's own metrics.
        compatible: metrics with upstream's names; ``None`` if not configured.
        config_map: writes upstream's status ConfigMap; ``None`` if not configured.
        history: records actions; ``None`` if no history is kept.
    """

    def __init__(
        self,
        events: AutoscalerEventReporter,
        metrics: AutoscalerMetrics,
        *,
        compatible: CompatibleMetrics | None = None,
        config_map: StatusConfigMap | None = None,
        history: History | None = None,
    ) -> None:
        self._events = events
        self._metrics = metrics
        self._compatible = compatible
        self._config_map = config_map
        self._history = AutoscalerHistory(history or NoHistory())

    def report(self, report: IterationReport, spec: ClusterAutoscalerSpec) -> None:
        """Report an iteration.

        Args:
            report: the iteration's report.
            spec: spec of the ClusterAutoscaler that the iteration used.
        """
        with report_safely("events"):
            self._events.report(report)
        with report_safely("history"):
            self._history.report(report)
        with report_safely("metrics"):
            self._metrics.observe(report)
        if self._compatible is not None:
            with report_safely("compatible metrics"):
                self._compatible.observe(report, spec)
        if self._config_map is not None:
            self._config_map.put(report)

    def began(self, state: RemovalState) -> None:
        """Report that a node was tainted."""
        with report_safely("events"):
            self._events.began(state)
        with report_safely("history"):
            self._history.began(state)

    def ended(self, outcome: RemovalOutcome) -> None:
        """Report the outcome of a removal."""
        with report_safely("events"):
            self._events.ended(outcome)
        with report_safely("history"):
            self._history.ended(outcome)

    def uncordoned(self, node: str, uid: str, why: Refusal, *, at: float) -> None:
        """Report that a node that is kept was uncordoned."""
        with report_safely("history"):
            self._history.uncordoned(node, uid, why, at=at)

    async def stop(self) -> None:
        """Stop writing the ConfigMap when the process ends. The next process continues to write it."""
        if self._config_map is not None:
            await self._config_map.cancel()
