"""Reporter: one place to tell of a pass: events, metrics, upstream's ConfigMap. The status is written apart from it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.actuation.removal import RemovalOutcome, RemovalState
from trimtab.autoscaling.report.compatible_metrics import CompatibleMetrics
from trimtab.autoscaling.report.config_map import StatusConfigMap
from trimtab.autoscaling.report.events import EventTeller
from trimtab.autoscaling.report.metrics import AutoscalerMetrics
from trimtab.autoscaling.report.pass_report import PassReport

log = logging.getLogger(__name__)


class Reporter:
    """Tells of passes, and of removals as they begin and end. Nothing of it raises, and no pass waits for it.

    Args:
        teller: posts events.
        metrics: counts.
        compatible: counts by upstream's names; ``None`` where nobody asked for it.
        config_map: writes upstream's status ConfigMap; ``None`` where nobody wants it.
    """

    def __init__(
        self,
        teller: EventTeller,
        metrics: AutoscalerMetrics,
        *,
        compatible: CompatibleMetrics | None = None,
        config_map: StatusConfigMap | None = None,
    ) -> None:
        self._teller = teller
        self._metrics = metrics
        self._compatible = compatible
        self._config_map = config_map
        self._newest: PassReport | None = None
        self._writing: asyncio.Task[None] | None = None

    def tell(self, report: PassReport, spec: ClusterAutoscalerSpec) -> None:
        """Tell of a pass; returns at once.

        Args:
            report: the pass.
            spec: of the ClusterAutoscaler that it went by.
        """
        _safely("events", partial(self._teller.tell, report))
        _safely("metrics", partial(self._metrics.observe, report))
        if self._compatible is not None:
            _safely("compatible metrics", partial(self._compatible.observe, report, spec))
        if self._config_map is None:
            return
        self._newest = report
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(self._config_map), name="write the status ConfigMap")

    def began(self, state: RemovalState) -> None:
        """A node has its taint."""
        _safely("events", partial(self._teller.began, state))

    def ended(self, outcome: RemovalOutcome) -> None:
        """A removal ended."""
        _safely("events", partial(self._teller.ended, outcome))

    async def stop(self) -> None:
        """Stop at the end of the process; the next one writes the ConfigMap anew."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    async def _write(self, config_map: StatusConfigMap) -> None:
        """Write the newest report, and again where a newer one has come meanwhile: passes may be faster than writes."""
        while self._newest is not None:
            report, self._newest = self._newest, None
            try:
                await config_map.write(report)
            except Exception:  # nobody waits for this task
                log.exception("the status ConfigMap could not be written")


def _safely(what: str, tell: Callable[[], None]) -> None:
    """Tell; a report must not stop what it reports on."""
    try:
        tell()
    except Exception:  # whatever it is
        log.exception("a pass could not be told of in %s", what)
