"""The probes /healthz and /readyz. Every replica serves them, whether it is the leader or not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry

from trimtab.controller.progress import register_component
from trimtab.runtime.http.server import Handler, HttpServer, Limits, OnRefused
from trimtab.runtime.metrics.page import MetricsPage

Check = Callable[[], str | None]
"""A health check that is called on each probe. It returns ``None`` if it passes, and otherwise the problem."""

HEARTBEAT_PERIOD: Final = 0.02
"""Seconds between two heartbeats, each of which measures how late the event loop runs it."""

MAX_SILENCE: Final = 30.0


class Heartbeat:
    """Measures the lag of an event loop with a task that is due every :data:`HEARTBEAT_PERIOD` seconds.

    Args:
        on_lag: called for each heartbeat with its lag in seconds. After a pause of the event loop, it is called once
            for each heartbeat that was due in the meantime, as events at that time would have waited.
    """

    def __init__(self, on_lag: Callable[[float], None]) -> None:
        self._on_lag = on_lag
        self._last = time.monotonic()

    async def run(self) -> None:
        """Record heartbeats until cancelled, and report them as progress."""
        component = register_component("event loop of the controllers")
        component.begin()
        due = time.monotonic() + HEARTBEAT_PERIOD
        while True:
            component.advance()
            await asyncio.sleep(due - time.monotonic())
            self._last = now = time.monotonic()
            while due <= now:
                self._on_lag(now - due)
                due += HEARTBEAT_PERIOD

    def check(self) -> str | None:
        """Return a problem if there was no heartbeat for :data:`MAX_SILENCE` seconds."""
        silence = time.monotonic() - self._last
        return f"the event loop has hung for {silence:.0f} s" if silence > MAX_SILENCE else None


class ProbeServer:
    """Serves /healthz and /readyz, and also /metrics unless it has its own port.

    Args:
        host: the address to listen on; ``""`` for all IPv4 and IPv6 addresses.
        port: the port; 0 for any free port, which :attr:`port` returns.
        metrics: the Prometheus registry for /metrics; ``None`` if another server serves it.
        health: the checks of /healthz. If one fails, the kubelet restarts the container.
        ready: the checks of /readyz.
        limits: the limits for clients; ``None`` for the defaults.
        refused: called with the reason code of each refused connection or request.

    Attributes:
        server: the HTTP server.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        metrics: CollectorRegistry | None,
        health: Mapping[str, Check],
        ready: Mapping[str, Check],
        limits: Limits | None = None,
        refused: OnRefused = lambda _reason: None,
    ) -> None:
        routes = {"/healthz": _probe(health), "/readyz": _probe(ready)}
        self._page = None if metrics is None else MetricsPage(metrics)
        if self._page is not None:
            routes["/metrics"] = self._page.answer
        self.server = HttpServer(host, port, routes, limits=limits, refused=refused)

    @property
    def port(self) -> int:
        """Return the port on which the server listens after :meth:`start`."""
        return self.server.port

    async def start(self) -> None:
        """Start listening.

        Raises:
            OSError: the address is already in use.
        """
        await self.server.start()

    async def stop(self) -> None:
        """Stop listening and close the connections."""
        await self.server.stop()
        if self._page is not None:
            self._page.close()


def _probe(checks: Mapping[str, Check]) -> Handler:
    async def answer(request: web.BaseRequest) -> web.Response:
        del request
        lines, good = [], True
        for name, check in checks.items():
            wrong = check()
            good &= wrong is None
            lines.append(f"[+]{name} ok" if wrong is None else f"[-]{name} failed: {wrong}")
        return web.Response(text="\n".join([*lines, ""]), status=200 if good else 503)

    return answer
