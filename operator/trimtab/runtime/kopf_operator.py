"""Kopf as trimtab uses it: for our own few resources, on our transport's session, without what we do ourselves.

No peering, since a Lease elects; no scanning of kinds and namespaces, since we know ours; no handlers on pods or nodes,
since Kopf puts a finalizer or an annotation on every object it minds (research: 0.4 ms and 10 KiB an object).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any, Final

import kopf

from trimtab.kube.connection.transport import Transport

MARK = "trimtab.dev"
"""Prefix of Kopf's finalizer and annotations on our resources."""

QUICK_END: Final = 5.0
"""Seconds that Kopf stays beside a daemon that was asked to stop.

By default it looks ten turns of the event loop long and then once more when the daemon's whole time to stop is over,
unless something is written to the object meanwhile: a loop that ends a request later, with nothing to write, would hold
the deletion of its policy up for 20 seconds."""


class KopfOperator:
    """One Kopf operator; there can be only one in an event loop, because its end cancels every task younger than it.

    Args:
        api: whose session it borrows.
    """

    def __init__(self, api: Transport) -> None:
        self.registry = kopf.OperatorRegistry()
        self._api = api
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()

        @kopf.on.login(registry=self.registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            return kopf.AiohttpSession(
                aiohttp_session=api.borrowed_session(), server=api.server, default_namespace=api.default_namespace
            )

    def start(self) -> asyncio.Task[None]:
        """Start it; a task that ends unasked has failed."""
        return asyncio.create_task(
            kopf.operator(
                registry=self.registry,
                settings=_settings(),
                clusterwide=True,
                stop_flag=self._stop,
                ready_flag=self._ready,
            ),
            name="kopf",
        )

    async def started(self) -> None:
        """Wait until its handlers run. By then it has taken SIGTERM and SIGINT for itself."""
        await self._ready.wait()

    def stop(self) -> None:
        """Let daemons end in their own time, then end."""
        self._stop.set()


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.networking.error_backoffs = _Patience()
    settings.background.instant_exit_timeout = QUICK_END
    settings.persistence.finalizer = f"{MARK}/finalizer"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=MARK)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=MARK)
    return settings


class _Patience:
    """Pauses between attempts to reach the API server, without end: an outage must not end the process.

    With leader election it does all the same, since the lease is lost by then, and that is meant.
    """

    def __iter__(self) -> Iterator[float]:
        return chain((1, 1, 2, 3, 5, 8, 13), repeat(20))
