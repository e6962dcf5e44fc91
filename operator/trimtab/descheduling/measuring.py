"""Who is asked for real use, by what a policy says; and how measurements are smoothed from one to the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from trimtab.api.strategies import PROMETHEUS, MetricsUtilization
from trimtab.cluster.metrics_api import read_usage
from trimtab.cluster.prometheus import Prometheus, read_shares
from trimtab.cluster.usage import Usage, smooth
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock

FRESH: Final = 60.0
"""Seconds after which real use is read again while a plan is carried out: no source measures much more often."""


class UseReader:
    """Reads real use again and again, and smooths it (:func:`~trimtab.cluster.usage.smooth`).

    What came before is only in memory: after a restart the first measurement counts as it is, and so it does once
    something else is asked.

    Args:
        api: the API server, which passes on what metrics.k8s.io says.
        prometheus: ``None`` where nobody has said where it is.
    """

    def __init__(self, api: Api, prometheus: Prometheus | None) -> None:
        self._api = api
        self._prometheus = prometheus
        self._wanted: MetricsUtilization | None = None
        self._last: Usage | None = None

    async def read(self, wanted: MetricsUtilization, now: float) -> Usage:
        """What is used now (seconds since the epoch); never raises for what others say, see ``problem``."""
        if wanted.source == PROMETHEUS and wanted.prometheus is not None:
            found = await read_shares(self._prometheus, wanted.prometheus, now=now)
        else:
            found = await read_usage(self._api, now=now)
        before = self._last if wanted == self._wanted else None
        self._wanted = wanted
        self._last = smooth(before, found) if found.nodes else None
        return self._last or found

    @asynccontextmanager
    async def reading_on(
        self, wanted: MetricsUtilization | None, tell: Callable[[Usage], None], *, clock: Clock
    ) -> AsyncIterator[None]:
        """Inside the block, read again every :data:`FRESH` seconds: what a plan started from grows old.

        Args:
            wanted: what to ask; ``None`` to ask nothing.
            tell: is given each measurement.
            clock: where the time comes from.
        """

        async def read_on(wanted: MetricsUtilization) -> None:
            while True:
                await clock.sleep(FRESH)
                tell(await self.read(wanted, clock.now()))

        reading = None if wanted is None else asyncio.create_task(read_on(wanted), name="real use")
        try:
            yield
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
