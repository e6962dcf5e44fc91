"""/healthz, /readyz and /metrics."""

from __future__ import annotations

import socket

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from trimtab.cli.run import run
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


async def test_without_a_host_it_listens_to_ipv4_and_where_there_is_one_ipv6() -> None:
    server = ProbeServer("", 0, metrics=CollectorRegistry(), health={}, ready={})
    await server.start()
    try:
        families = {":" in str(address[0]) for address in server._runner.addresses}
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
