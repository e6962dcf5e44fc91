"""/healthz, /readyz and /metrics."""

from __future__ import annotations

import aiohttp
from prometheus_client import CollectorRegistry

from trimtab.runtime.metrics import RuntimeMetrics
from trimtab.runtime.probes import Heartbeat, ProbeServer


async def answers(server: ProbeServer, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{server.port}{path}") as answer:
        return answer.status, await answer.text()


async def test_probes_name_what_is_wrong() -> None:
    state: dict[str, str | None] = {"ready": "waiting for pods"}
    registry = CollectorRegistry()
    RuntimeMetrics(registry).observe("GET", 200, 0.01)
    server = ProbeServer(
        "127.0.0.1",
        0,
        metrics=registry,
        health={"event-loop": Heartbeat(lambda _lag: None).check},
        ready={"watches": lambda: state["ready"]},
    )
    await server.start()
    try:
        assert await answers(server, "/healthz") == (200, "[+]event-loop ok\n")
        assert await answers(server, "/readyz") == (503, "[-]watches failed: waiting for pods\n")
        state["ready"] = None
        assert await answers(server, "/readyz") == (200, "[+]watches ok\n")
        status, text = await answers(server, "/metrics")
        assert status == 200
        assert 'trimtab_api_requests_total{method="GET",status="200"} 1.0' in text
        assert "trimtab_build_info" in text
    finally:
        await server.stop()


def test_a_loop_that_stands_still_is_not_healthy() -> None:
    heartbeat = Heartbeat(lambda _lag: None)
    assert heartbeat.check() is None
    heartbeat._last -= 31
    assert "31 s" in (heartbeat.check() or "")
