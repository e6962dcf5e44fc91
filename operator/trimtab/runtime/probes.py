"""/healthz, /readyz and /metrics: served in every replica, leader or not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

Check = Callable[[], str | None]
"""Asked on each probe: ``None`` when all is well, else what is wrong."""

BEAT: Final = 1.0
LONGEST_SILENCE: Final = 30.0


class Heartbeat:
    """Whether the event loop still turns: a task that beats every second, and how long ago it last did."""

    def __init__(self, on_lag: Callable[[float], None]) -> None:
        self._on_lag = on_lag
        self._last = time.monotonic()

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(BEAT)
            self._last = time.monotonic()
            self._on_lag(max(0.0, self._last - before - BEAT))

    def check(self) -> str | None:
        """Wrong once it has been silent for longer than :data:`LONGEST_SILENCE`."""
        silence = time.monotonic() - self._last
        return f"the event loop has been silent for {silence:.0f} s" if silence > LONGEST_SILENCE else None


class ProbeServer:
    """A small HTTP server beside the controllers.

    Args:
        host: the address to listen on; ``""`` for all, of IPv4 and IPv6: a cluster may have only one of them.
        port: 0 to choose a free one; :attr:`port` then says which.
        metrics: what /metrics shows.
        health: checks of /healthz: wrong means that a restart would help.
        ready: checks of /readyz: wrong means not yet, or not now.
    """

    def __init__(
        self, host: str, port: int, *, metrics: CollectorRegistry, health: dict[str, Check], ready: dict[str, Check]
    ) -> None:
        self._host = host
        self.port = port
        app = web.Application()
        app.router.add_get("/healthz", _probe(health))
        app.router.add_get("/readyz", _probe(ready))
        app.router.add_get("/metrics", make_aiohttp_handler(registry=metrics))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address is taken.
        """
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host or None, self.port)
        await site.start()
        for address in self._runner.addresses:
            self.port = int(address[1])

    async def stop(self) -> None:
        """Close the connections."""
        await self._runner.cleanup()


def _probe(checks: dict[str, Check]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        del request
        lines, good = [], True
        for name, check in checks.items():
            wrong = check()
            good &= wrong is None
            lines.append(f"[+]{name} ok" if wrong is None else f"[-]{name} failed: {wrong}")
        return web.Response(text="\n".join([*lines, ""]), status=200 if good else 503)

    return answer
