"""Reads measured utilization from metrics.k8s.io or Prometheus and smooths successive measurements."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from trimtab.api.strategies import PROMETHEUS, MetricsUtilization
from trimtab.cluster.usage.measurement import Usage, read_usage, smooth
from trimtab.cluster.usage.prometheus import Prometheus, read_prometheus_usage
from trimtab.controller.loop import end_tasks
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock

REFRESH_PERIOD: Final = 60.0
"""Seconds between two readings while a plan is executed. No source measures much more often."""


class UsageReader:
    """Reads measured utilization repeatedly and smooths it (:func:`~trimtab.cluster.usage.measurement.smooth`).

    Earlier measurements are not persisted. Therefore the first measurement after a restart, or after a change of the
    policy's source or query, is not smoothed.

    Args:
        api: the API server, which proxies metrics.k8s.io.
        prometheus: client of the Prometheus server; ``None`` if no server is configured.
    """

    def __init__(self, api: Api, prometheus: Prometheus | None) -> None:
        self._api = api
        self._prometheus = prometheus
        self._wanted: MetricsUtilization | None = None
        self._last: Usage | None = None

    async def read(self, wanted: MetricsUtilization, now: float) -> Usage:
        """Read the current utilization (``now`` in seconds since the epoch).

        Failures are not raised but reported in the attribute ``problem`` of the result.
        """
        if wanted.source == PROMETHEUS and wanted.prometheus is not None:
            found = await read_prometheus_usage(self._prometheus, wanted.prometheus, now=now)
        else:
            found = await read_usage(self._api, now=now)
        before = self._last if wanted == self._wanted else None
        self._wanted = wanted
        self._last = smooth(before, found) if found.nodes else None
        return self._last or found

    @asynccontextmanager
    async def refreshing(
        self, wanted: MetricsUtilization | None, callback: Callable[[Usage], None], *, clock: Clock
    ) -> AsyncIterator[None]:
        """Read the utilization again every :data:`REFRESH_PERIOD` seconds inside the ``async with`` block.

        Args:
            wanted: the source of measurements; ``None`` to read nothing.
            callback: called with each measurement.
            clock: clock for the period and the time of each measurement.
        """

        async def read_on(wanted: MetricsUtilization) -> None:
            while True:
                await clock.sleep(REFRESH_PERIOD)
                callback(await self.read(wanted, clock.now()))

        reading = None if wanted is None else asyncio.create_task(read_on(wanted), name="real use")
        try:
            yield
        finally:
            if reading is not None:
                await end_tasks([reading])
