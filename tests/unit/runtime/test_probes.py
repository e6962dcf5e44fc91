"""/healthz, /readyz and /metrics."""

from __future__ import annotations

import asyncio
import socket
import time

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from trimtab.cli.run import run
from trimtab.runtime.health.probes import HEARTBEAT_PERIOD, Heartbeat, ProbeServer
from trimtab.runtime.metrics.process import RuntimeMetrics


async def answers(server: ProbeServer, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{server.port}{path}") as response:
        return response.status, await response.text()


async def test_probes_report_failed_checks() -> None:
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
        assert await answers(server, "/readyz") == (503, f"[-]watches failed: {state['ready']}\n")
        state["ready"] = None
        assert await answers(server, "/readyz") == (200, "[+]watches ok\n")
        status, text = await answers(server, "/metrics")
        assert status == 200
        assert 'trimtab_api_requests_total{method="GET",status="200"} 1.0' in text
        assert "trimtab_build_info" in text
    finally:
        await server.stop()


def test_hung_event_loop_is_unhealthy() -> None:
    heartbeat = Heartbeat(lambda _lag: None)
    assert heartbeat.check() is None
    heartbeat._last -= 31
    assert "31 s" in (heartbeat.check() or "")


async def test_pause_of_the_event_loop_counts_for_each_heartbeat_that_was_due() -> None:
    lags: list[float] = []
    running = asyncio.create_task(Heartbeat(lags.append).run())
    await asyncio.sleep(HEARTBEAT_PERIOD * 2)
    lags.clear()
    time.sleep(HEARTBEAT_PERIOD * 10)  # noqa: ASYNC251 (it blocks the event loop on purpose)
    await asyncio.sleep(0)
    await asyncio.sleep(HEARTBEAT_PERIOD)
    running.cancel()
    assert max(lags) > HEARTBEAT_PERIOD * 8
    assert len(lags) >= 9
    assert lags[:9] == sorted(lags[:9], reverse=True)


async def test_without_host_it_listens_on_ipv4_and_ipv6() -> None:
    server = ProbeServer("", 0, metrics=CollectorRegistry(), health={}, ready={})
    await server.start()
    try:
        families = {":" in str(address[0]) for address in server.server.addresses}
        assert families >= {False}
        assert (True in families) == ipv6()
    finally:
        await server.stop()


def ipv6() -> bool:
    try:
        with socket.create_server(("::", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.parametrize(
    ("given", "host", "port"),
    [(":8080", "", 8080), ("127.0.0.1:0", "127.0.0.1", 0), ("[::1]:9", "::1", 9), ("[::]:9", "::", 9)],
)
def test_an_address_may_be_of_ipv6(given: str, host: str, port: int) -> None:
    parsed = run.make_context("run", [f"--listen={given}"]).params
    assert parsed["listen"] == (host, port)


async def test_metrics_with_an_address_of_their_own_are_not_served_with_the_probes() -> None:
    server = ProbeServer("127.0.0.1", 0, metrics=None, health={}, ready={})
    await server.start()
    try:
        assert (await answers(server, "/metrics"))[0] == 404
        assert (await answers(server, "/healthz"))[0] == 200
    finally:
        await server.stop()
