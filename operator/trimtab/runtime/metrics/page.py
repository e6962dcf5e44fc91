"""The response of /metrics, rendered at most once per second for all clients together."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, gzip_accepted
from prometheus_client.openmetrics import exposition as open_metrics
from prometheus_client.registry import Collector

from trimtab.kube.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

MAX_AGE: Final = 1.0
"""Seconds for which a page is reused before the metrics are collected again."""

MAX_SAMPLES: Final = 5000
"""Maximum number of samples of one metric. ``trimtab_metrics_dropped_samples`` counts the omitted ones.

Labels are names of trimtab's objects and reasons, so the maximum is reached only with thousands of policies or node
groups. A histogram has a sample for each bucket.
"""

DROPPED_SAMPLES: Final = (
    "trimtab_metrics_dropped_samples",
    "Number of samples that this page omits because their metric has too many.",
)
"""Name and help text of the metric that counts omitted samples."""

_ATTEMPTS: Final = 3
_OPEN_METRICS: Final = "application/openmetrics-text"


class MetricsPage:
    """Serves GET /metrics from a cached page.

    A separate thread collects and renders the metrics, because that takes tens of milliseconds and the event loop that
    calls :meth:`answer` may be the one that renews the lease. Requests within the same second share the page. A request
    that arrives during rendering waits for the result.

    Args:
        registry: the Prometheus registry.
        clock: provides the time.

    Attributes:
        collections: number of times that the metrics were collected.
    """

    def __init__(self, registry: CollectorRegistry, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.collections = 0
        self._registry = registry
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "metrics-page")
        self._current: _Rendering | None = None

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """Return the response with the page, in the OpenMetrics format and compressed if the client accepts that.

        If rendering fails, the response has status 500.
        """
        accept = ",".join(request.headers.getall("Accept", ()))
        content_type = open_metrics.CONTENT_TYPE_LATEST if _OPEN_METRICS in accept else CONTENT_TYPE_PLAIN_0_0_4
        compressed = gzip_accepted(",".join(request.headers.getall("Accept-Encoding", ())))
        body = await self._body(content_type, compressed)
        if body is None:
            return web.Response(status=500)
        headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
        if compressed:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=body, headers=headers)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _body(self, content_type: str, compressed: bool) -> bytes | None:
        now, current = self._clock.monotonic(), self._current
        if current is None or (now - current.at >= MAX_AGE and current.done):
            self.collections += 1
            current = self._current = _Rendering(self._registry, now)
        key = content_type, compressed
        if key not in current.bodies:
            loop = asyncio.get_running_loop()
            current.bodies[key] = loop.run_in_executor(self._thread, current.body, content_type, compressed)
        return await asyncio.shield(current.bodies[key])


class _Rendering:
    """The metrics that were collected at one time, in the requested formats. The thread calls :meth:`body`.

    Attributes:
        at: the time at which the rendering started, on the monotonic clock.
        bodies: the responses, by content type and whether they are compressed.
    """

    def __init__(self, registry: CollectorRegistry, at: float) -> None:
        self.at = at
        self.bodies: dict[tuple[str, bool], asyncio.Future[bytes | None]] = {}
        self._registry = registry
        self._collected: _CollectedMetrics | None = None
        self._failed = False
        self._texts: dict[str, bytes] = {}

    @property
    def done(self) -> bool:
        return all(each.done() for each in self.bodies.values())

    def body(self, content_type: str, compressed: bool) -> bytes | None:
        """Return the rendered page; ``None`` if the metrics cannot be collected, which is logged once."""
        if self._failed:
            return None
        try:
            text = self._text(content_type)
            return gzip.compress(text, compresslevel=1, mtime=0) if compressed else text
        except Exception:
            self._failed = True
            log.exception("Failed to render the metrics")
            return None

    def _text(self, content_type: str) -> bytes:
        if self._collected is None:
            self._collected = _collect(self._registry)
        if content_type not in self._texts:
            openly = content_type == open_metrics.CONTENT_TYPE_LATEST
            write = open_metrics.generate_latest if openly else generate_latest
            self._texts[content_type] = write(self._collected)
        return self._texts[content_type]


class _CollectedMetrics(Collector):
    """Collected metrics, each truncated to :data:`MAX_SAMPLES`. It implements the interface of a registry."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)
        dropped = 0
        for family in self._families:
            dropped += max(0, len(family.samples) - MAX_SAMPLES)
            del family.samples[MAX_SAMPLES:]
        self._families.append(GaugeMetricFamily(*DROPPED_SAMPLES, value=dropped))

    def collect(self) -> Iterable[Metric]:
        return self._families


def _collect(registry: CollectorRegistry) -> _CollectedMetrics:
    """Collect the metrics.

    If another thread changes a dict while a gauge counts its entries, the metrics are collected again.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _CollectedMetrics(registry.collect())
        except RuntimeError:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")
