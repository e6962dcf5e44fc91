"""/metrics at an address of its own: its thread, its certificate, its readers."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from prometheus_client import CollectorRegistry
from prometheus_client import Counter as Metric

from tests.fakes.clock import SetClock
from tests.fakes.server import FakeServer, fake_server, json
from tests.fixtures.waiting import eventually_async
from trimtab.api import reasons
from trimtab.controller.progress import PROGRESS_REGISTRY, Progress
from trimtab.kube.connection.config import ServerConfig
from trimtab.kube.errors import InputError
from trimtab.runtime.http.certificate import LIFETIME, RENEW_BEFORE_EXPIRY, ServingCertificate, _write_self_signed
from trimtab.runtime.http.server import Limits
from trimtab.runtime.metrics.server import MetricsServer, MetricsSettings


@asynccontextmanager
async def serving(
    server: str = "http://127.0.0.1:1", **settings: Any
) -> AsyncIterator[tuple[MetricsServer, Counter[str]]]:
    registry, refused = CollectorRegistry(), Counter[str]()
    Metric("seen", "x", registry=registry)
    made = MetricsServer(
        registry,
        ServerConfig(server=server),
        MetricsSettings(host="127.0.0.1", port=0, **settings),
        refused=lambda reason: refused.update([reason]),
    )
    await made.start()
    try:
        yield made, refused
    finally:
        await made.stop()
        assert not made._thread.is_alive()


async def get(
    server: MetricsServer, *, scheme: str = "http", path: str = "/metrics", token: str = ""
) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{scheme}://127.0.0.1:{server.port}{path}", ssl=False) as response,
    ):
        return response.status, await response.text()


async def counted(refused: Counter[str], reason: str) -> None:
    """Wait until the thread has counted what the client has noticed already."""
    async with asyncio.timeout(5):
        while not refused[reason]:  # noqa: ASYNC110 (the thread sets no event of this loop)
            await asyncio.sleep(0.01)


async def test_metrics_are_served_by_a_thread_of_their_own() -> None:
    async with serving() as (server, _):
        status, text = await get(server)
        assert (status, "seen_total" in text) == (200, True)
        assert (await get(server, path="/healthz"))[0] == 404
        assert server._thread is not threading.current_thread()


async def test_they_are_served_while_this_loop_hangs() -> None:
    async with serving() as (server, _):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            client.settimeout(2)
            assert client.recv(12) == b"HTTP/1.1 200"


async def test_server_that_ends_or_hangs_is_a_lack_of_progress() -> None:
    progress = Progress()
    PROGRESS_REGISTRY.set(progress)
    async with serving() as (server, _):
        [component] = progress.components
        assert (component.name, component.inactive_seconds()) == ("metrics server", 0.0)
        assert server._loop is not None
        [beating] = [each for each in asyncio.all_tasks(server._loop) if "heartbeat" in each.get_name()]
        server._loop.call_soon_threadsafe(beating.cancel)
        await eventually_async(lambda: component.inactive_seconds() > 0.1, "the hang is noticed")
        [main] = [each for each in asyncio.all_tasks(server._loop) if "heartbeat" not in each.get_name()]
        server._loop.call_soon_threadsafe(main.cancel)
        await eventually_async(lambda: component.dead, "the end is noticed")
    PROGRESS_REGISTRY.set(None)


async def test_error_for_an_address_in_use_names_the_option() -> None:
    async with serving() as (server, _):
        second = MetricsServer(
            CollectorRegistry(),
            ServerConfig(server="http://127.0.0.1:1"),
            MetricsSettings(host="127.0.0.1", port=server.port),
        )
        with pytest.raises(InputError, match="--metrics-listen"):
            await second.start()
        await second.stop()


async def test_limits_hold_in_the_thread() -> None:
    async with serving(limits=Limits(requests_per_second=1.0)) as (server, refused):
        statuses = Counter([(await get(server))[0] for _ in range(10)])
        assert statuses[429] >= 7
        assert refused[reasons.TOO_MANY_REQUESTS] == statuses[429]


def knows(api: FakeServer, *tokens: str) -> None:
    async def review(request: Any) -> Any:
        spec = (await request.json())["spec"]
        if "token" in spec:
            response = {"authenticated": spec["token"] in tokens, "user": {"username": spec["token"]}}
        else:
            response = {"allowed": spec["user"] == tokens[0]}
        return await json({"status": response})(request)

    api.answer(review)


async def test_secure_metrics_need_a_token_that_may_read_them() -> None:
    async with fake_server() as api:
        knows(api, "reader", "other")
        async with serving(api.url, secure=True) as (server, refused):
            assert (await get(server, scheme="https", token="reader"))[0] == 200
            assert (await get(server, scheme="https", token="other"))[0] == 403
            assert (await get(server, scheme="https", token="invented"))[0] == 401
            assert (await get(server, scheme="https"))[0] == 401
            with pytest.raises(aiohttp.ClientError):
                await get(server)
            await counted(refused, reasons.INCOMPLETE_REQUEST)
            assert refused.pop(reasons.INCOMPLETE_REQUEST) >= 1, "aiohttp's client tries more than once"
            assert refused == {reasons.UNAUTHENTICATED: 2, reasons.UNAUTHORIZED: 1}


async def test_connection_with_an_incomplete_handshake_is_closed() -> None:
    async with serving(secure=True, limits=Limits(timeout=0.2)) as (server, refused):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
        await counted(refused, reasons.INCOMPLETE_REQUEST)
        assert refused == {reasons.INCOMPLETE_REQUEST: 1}


# ── The certificate ─────────────────────────────────────────────────────────────────────────────────────────────────


def write(directory: Path, begins: float = time.time()) -> tuple[Path, Path]:
    certificate, key = directory / "tls.crt", directory / "tls.key"
    _write_self_signed(certificate, key, dt.datetime.fromtimestamp(begins, dt.UTC))
    return certificate, key


async def shown(context: ssl.SSLContext) -> x509.Certificate:
    """The certificate that a client is shown."""

    async def close(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    async with await asyncio.start_server(close, "127.0.0.1", 0, ssl=context) as server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=client)
        encoded = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
    return x509.load_der_x509_certificate(encoded)


async def test_changed_certificate_files_are_reloaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = SetClock()
    certificate, key = write(tmp_path)
    served = ServingCertificate(str(certificate), str(key), clock=clock)
    first = await shown(served.context())
    write(tmp_path)
    assert (await shown(served.context())) == first, "not at each connection"
    clock.time += 10
    second = await shown(served.context())
    assert second != first

    certificate.write_text("nonsense")
    clock.time += 10
    assert await shown(served.context()) == second, "the last good one stays"
    clock.time += 10
    served.context()
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    certificate.unlink()
    clock.time += 10
    assert await shown(served.context()) == second


def test_files_that_are_no_certificate_and_key_are_refused(tmp_path: Path) -> None:
    certificate, key = write(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    for pair in ((certificate, write(other)[1]), (key, certificate), (tmp_path / "none", key)):
        with pytest.raises(InputError):
            ServingCertificate(str(pair[0]), str(pair[1]))


async def test_self_signed_certificate_is_replaced_before_it_expires() -> None:
    clock = SetClock()
    served = ServingCertificate(clock=clock)
    first = await shown(served.context())
    assert first.not_valid_after_utc.timestamp() == pytest.approx(clock.time + LIFETIME.total_seconds(), abs=1)
    assert first.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    clock.time += (LIFETIME - RENEW_BEFORE_EXPIRY).total_seconds() - 60
    assert await shown(served.context()) == first
    clock.time += 120
    assert await shown(served.context()) != first


def test_a_key_is_never_left_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ServingCertificate()
    assert not os.listdir(tmp_path)  # noqa: PTH208
