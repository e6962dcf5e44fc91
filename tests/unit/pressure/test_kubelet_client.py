"""Kubelets over real TLS sockets: kept connections, tokens, and kubelets that hang, lie or serve garbage."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.server import Handler, fake_server
from tests.fakes.server import json as json_response
from tests.fakes.server import status as error_response
from tests.unit.kube.test_tls import CA, certify
from trimtab.kube.api import Forbidden
from trimtab.kube.connection.config import Login, ServerConfig
from trimtab.kube.connection.transport import Transport
from trimtab.kube.errors import InputError
from trimtab.kube.objects.node import Node
from trimtab.pressure import kubelet_client, kubelet_connections
from trimtab.pressure.kubelet_client import (
    DirectKubelets,
    KubeletClientSettings,
    ProxiedKubelets,
    StatsToken,
    kubelet_reader,
)
from trimtab.pressure.measurement import NodeMeasurement, SignalValue
from trimtab.pressure.readings import ReadError

SUMMARY = json.dumps(
    {"node": {"nodeName": "n1", "memory": {"availableBytes": 3, "workingSetBytes": 7}}, "pods": []}
).encode()
MEMORY = {"memory.available": SignalValue(3, 10)}
TOKEN = "stats-token"

Answer = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def ok(body: bytes = SUMMARY, *, status: str = "200 OK", head: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def chunked(*chunks: bytes) -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"


def sends(data: bytes, *, close: bool = False) -> Answer:
    async def answer(_request: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        if close:
            writer.close()

    return answer


class FakeKubelet:
    """A TLS server. ``answer`` handles each request; ``requests`` and ``connections`` count what arrived."""

    def __init__(self) -> None:
        self.answer: Answer = sends(ok())
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while not writer.is_closing():
                request = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(request)
                await self.answer(request, reader, writer)
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            transport = writer.transport
            assert isinstance(transport, asyncio.Transport)
            transport.abort()

    async def stop(self, server: asyncio.Server) -> None:
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def node(self) -> Node:
        return Node(name="n1", addresses=("127.0.0.1",), kubelet_port=self.port)


def tls(tmp_path: Path, *hosts: str) -> ssl.SSLContext:
    pair = certify("system:node:n1", by=CA, hosts=hosts)
    (tmp_path / "kubelet.pem").write_bytes(pair.pem + pair.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "kubelet.pem")
    return context


async def running(context: ssl.SSLContext) -> AsyncIterator[FakeKubelet]:
    kubelet = FakeKubelet()
    server = await asyncio.start_server(kubelet.serve, "127.0.0.1", 0, ssl=context)
    kubelet.port = server.sockets[0].getsockname()[1]
    yield kubelet
    await kubelet.stop(server)


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[FakeKubelet]:
    async for each in running(tls(tmp_path, "127.0.0.1", "localhost")):
        yield each


class TokenApi:
    """Issues ``stats-token``, ``stats-token-2`` and so on; ``error`` is raised instead."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Any]] = []
        self.error: Exception | None = None
        self.takes = 0.01

    async def request(self, method: str, path: str, **options: Any) -> Any:
        self.requests.append((method, path, options["body"]))
        await asyncio.sleep(self.takes)
        if self.error is not None:
            raise self.error
        number = len(self.requests)
        token = TOKEN if number == 1 else f"{TOKEN}-{number}"
        return {
            "spec": {"expirationSeconds": 600},
            "status": {"token": token, "expirationTimestamp": "2001-01-01T00:00:00Z"},
        }

    def stream(self, path: str, **_options: Any) -> Any:
        raise AssertionError(path)


class MovingClock:
    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return 1_800_000_000.0 + self.time

    def monotonic(self) -> float:
        return self.time

    def cpu(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


CONFIG = ServerConfig(server="https://127.0.0.1:6443", ca=CA.pem, login=Login(authorization="Bearer operator"))


@pytest.fixture
def tokens() -> TokenApi:
    return TokenApi()


@pytest.fixture
def clock() -> MovingClock:
    return MovingClock()


def direct(tokens: TokenApi, clock: MovingClock, config: ServerConfig = CONFIG, **settings: Any) -> DirectKubelets:
    token = StatsToken(tokens, namespace="trimtab", service_account="kubelet-stats", clock=clock)
    return DirectKubelets(KubeletClientSettings(**settings), config, token, clock=clock)


@pytest.fixture
async def client(tokens: TokenApi, clock: MovingClock) -> AsyncIterator[DirectKubelets]:
    found = direct(tokens, clock)
    yield found
    await found.close()


async def failure(client: Any, node: Node) -> str:
    with pytest.raises(ReadError) as caught:
        await client.read(node, only_memory=False)
    return caught.value.reason


# ── Requests ──


async def test_request_has_the_stats_token_and_names_the_kubelet(
    client: DirectKubelets, kubelet: FakeKubelet, tokens: TokenApi
) -> None:
    found = await client.read(kubelet.node, only_memory=False)
    assert isinstance(found, NodeMeasurement)
    assert (found.signals, found.read_at) == (MEMORY, 1_800_001_000.0)
    first, *headers = kubelet.requests[0].decode().split("\r\n")
    assert first == "GET /stats/summary HTTP/1.1"
    assert {"Authorization: Bearer stats-token", f"Host: 127.0.0.1:{kubelet.port}"} <= set(headers)
    assert b"operator" not in kubelet.requests[0]
    assert tokens.requests == [
        (
            "POST",
            "/api/v1/namespaces/trimtab/serviceaccounts/kubelet-stats/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": 600},
            },
        )
    ]


async def test_only_memory_is_requested_if_nothing_else_is_needed(client: DirectKubelets, kubelet: FakeKubelet) -> None:
    await client.read(kubelet.node, only_memory=True)
    assert kubelet.requests[0].startswith(b"GET /stats/summary?only_cpu_and_memory=true HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(ok(), id="Content-Length"),
        pytest.param(chunked(SUMMARY), id="one chunk"),
        pytest.param(chunked(*(SUMMARY[at : at + 7] for at in range(0, len(SUMMARY), 7))), id="many chunks"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n%X ;a=b\r\n%b\r\n00\r\nTrailer: 1\r\n\r\n"
            % (len(SUMMARY), SUMMARY),
            id="extensions and trailers",
        ),
    ],
)
async def test_connection_is_kept(client: DirectKubelets, kubelet: FakeKubelet, response: bytes) -> None:
    kubelet.answer = sends(response)
    for _ in range(3):
        assert (await client.read(kubelet.node, only_memory=False)).signals == MEMORY
    assert (len(kubelet.requests), kubelet.connections) == (3, 1)


@pytest.mark.parametrize(
    ("response", "close"),
    [
        pytest.param(ok(head="Connection: close\r\n"), False, id="Connection: close"),
        pytest.param(
            b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(SUMMARY), SUMMARY), False, id="HTTP/1.0"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n" + SUMMARY, True, id="until the end"),
        pytest.param(ok() + b"more", False, id="more than a response"),
    ],
)
async def test_connection_is_not_kept(
    client: DirectKubelets, kubelet: FakeKubelet, response: bytes, close: bool
) -> None:
    kubelet.answer = sends(response, close=close)
    for _ in range(2):
        assert (await client.read(kubelet.node, only_memory=False)).signals == MEMORY
    assert kubelet.connections == 2


async def test_response_that_arrives_in_pieces_is_read(client: DirectKubelets, kubelet: FakeKubelet) -> None:
    async def drip(_request: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in chunked(SUMMARY[:40], SUMMARY[40:]):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    kubelet.answer = drip
    assert (await client.read(kubelet.node, only_memory=False)).signals == MEMORY


async def test_connection_that_was_closed_while_idle_is_replaced(client: DirectKubelets, kubelet: FakeKubelet) -> None:
    kubelet.answer = sends(ok(), close=True)
    for number in (1, 2):
        assert (await client.read(kubelet.node, only_memory=False)).signals == MEMORY
        assert kubelet.connections == number
        await asyncio.sleep(0.05)


async def test_idle_connections_are_limited_and_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.create_default_context(cadata=CA.pem.decode())
    connections = kubelet_connections.KubeletConnections(context, user_agent="t", loopback=True)
    connections._max_idle = 2
    servers = [running(tls(tmp_path, "127.0.0.1")) for _ in range(3)]
    kubelets = [await anext(each) for each in servers]
    for _ in range(3):
        for each in kubelets:
            await connections.get("127.0.0.1", each.port, "/", authorization="a")
    assert len(connections) == 2
    assert [each.connections for each in kubelets] == [1, 1, 3]  # the oldest one is needed next
    monkeypatch.setattr(kubelet_connections, "IDLE_TIMEOUT", 0.05)
    await asyncio.sleep(0.1)
    await connections.get("127.0.0.1", kubelets[0].port, "/", authorization="a")
    assert len(connections) == 1
    connections.close()
    for server in servers:
        await anext(server, None)


async def test_idle_connection_expires_without_further_requests(
    kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example after the last policy was deleted."""
    monkeypatch.setattr(kubelet_connections, "IDLE_TIMEOUT", 0.05)
    context = ssl.create_default_context(cadata=CA.pem.decode())
    connections = kubelet_connections.KubeletConnections(context, user_agent="t", loopback=True)
    await connections.get("127.0.0.1", kubelet.port, "/", authorization="a")
    assert len(connections) == 1
    await asyncio.sleep(0.1)
    assert len(connections) == 0


async def test_many_reads_share_the_slots(client: DirectKubelets, kubelet: FakeKubelet) -> None:
    number = kubelet_client.SLOTS + 20
    await asyncio.gather(*(client.read(kubelet.node, only_memory=False) for _ in range(number)))
    assert len(kubelet.requests) == number


# ── Kubelets that hang ──


@pytest.fixture
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubelet_client, "TIMEOUT", 0.3)


async def hang(_request: bytes, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def hang_after_head(_request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
    await reader.read()


async def drip_slowly(_request: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for byte in ok():
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.05)


@pytest.mark.usefixtures("short_timeout")
@pytest.mark.parametrize("answer", [hang, hang_after_head, drip_slowly])
async def test_kubelet_that_hangs_is_unreachable(client: DirectKubelets, kubelet: FakeKubelet, answer: Answer) -> None:
    kubelet.answer = answer
    assert await failure(client, kubelet.node) == "StatsUnreachable"
    kubelet.answer = sends(ok())
    assert (await client.read(kubelet.node, only_memory=False)).signals == MEMORY


@pytest.mark.usefixtures("short_timeout")
async def test_kubelet_that_hangs_after_connect_is_unreachable(client: DirectKubelets) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    node = Node(name="n1", addresses=("127.0.0.1",), kubelet_port=server.sockets[0].getsockname()[1])
    assert await failure(client, node) == "StatsUnreachable"
    server.close()
    await asyncio.sleep(0.05)


@pytest.mark.usefixtures("short_timeout")
async def test_hanging_kubelets_do_not_keep_the_slots(
    client: DirectKubelets, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubelet_client, "SLOT_TIME", 0.01)
    monkeypatch.setattr(kubelet_client, "TIMEOUT", 1.0)

    async def some_hang(request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await (hang if b"only_cpu_and_memory" in request else sends(ok()))(request, reader, writer)

    kubelet.answer = some_hang
    hanging = [asyncio.create_task(client.read(kubelet.node, only_memory=True)) for _ in range(kubelet_client.SLOTS)]
    await asyncio.sleep(0.3)
    async with asyncio.timeout(0.5):
        assert (await client.read(kubelet.node, only_memory=False)).signals == MEMORY
    assert all(isinstance(each, ReadError) for each in await asyncio.gather(*hanging, return_exceptions=True))


async def test_refused_connection_is_unreachable(client: DirectKubelets) -> None:
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    node = Node(name="n1", addresses=("127.0.0.1",), kubelet_port=port)
    assert await failure(client, node) == "StatsUnreachable"


# ── Kubelets that send too much ──


async def endless(_request: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b" " * 65536)
        await writer.drain()


async def endless_chunks(_request: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1\r\n \r\n" * 1000)
        await writer.drain()


async def endless_head(_request: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X: y\r\n" * 1000)
        await writer.drain()


async def endless_trailer(_request: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
    while True:
        writer.write(b"X: y\r\n" * 1000)
        await writer.drain()


async def endless_pieces(_request: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b" ")  # one TLS record each
        await writer.drain()


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(endless, id="endless body"),
        pytest.param(endless_chunks, id="endless chunks"),
        pytest.param(endless_head, id="endless head"),
        pytest.param(endless_trailer, id="endless trailer"),
        pytest.param(endless_pieces, id="endless pieces"),
        pytest.param(sends(b"HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n"), id="100 MB announced"),
        pytest.param(
            sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6400000\r\n"), id="a chunk of 100 MB"
        ),
        pytest.param(sends(ok(b"[" * 2**20 + b"]" * 2**20)), id="deep JSON"),
        pytest.param(sends(ok(b'{"node":' * 2**18)), id="deep JSON objects"),
    ],
)
async def test_response_that_exceeds_a_limit_is_invalid(
    client: DirectKubelets, kubelet: FakeKubelet, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[int] = []
    receive = kubelet_connections._Connection.receive

    async def counted(connection: kubelet_connections._Connection, buffer: memoryview) -> int:
        received.append(await receive(connection, buffer))
        return received[-1]

    monkeypatch.setattr(kubelet_connections._Connection, "receive", counted)
    kubelet.answer = answer
    assert await failure(client, kubelet.node) == "StatsInvalid"
    assert len(received) <= kubelet_connections.MAX_READS + 1
    assert sum(received) <= kubelet_connections.MAX_BODY + 2**20


async def test_large_responses_are_limited_together(
    client: DirectKubelets, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubelet_connections, "MAX_LARGE", 2)
    large = SUMMARY + b" " * (kubelet_connections.LARGE_BODY * 2)
    release = asyncio.Event()

    async def slow(_request: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        response = ok(large)
        writer.write(response[:-1])
        await release.wait()
        writer.write(response[-1:])

    kubelet.answer = slow
    reads = [asyncio.create_task(client.read(kubelet.node, only_memory=False)) for _ in range(3)]
    done, _ = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
    assert [type(each.exception()) for each in done] == [ReadError]
    release.set()
    results = await asyncio.gather(*reads, return_exceptions=True)
    assert sum(isinstance(each, NodeMeasurement) for each in results) == 2
    assert (await client.read(kubelet.node, only_memory=False)).signals == MEMORY


# ── Kubelets that lie ──


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(os.urandom(200) + b"\r\n\r\n", id="garbage"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n\r\n", id="another protocol"),
        pytest.param(b"HTTP/2 200 OK\r\n\r\n", id="HTTP/2"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n", id="an interim response"),
        pytest.param(ok(b"<html>"), id="HTML"),
        pytest.param(ok(b'{"node": {"nodeName": "n2"}}'), id="the summary of another node"),
        pytest.param(ok(b"{}", status="404 Not Found"), id="404"),
        pytest.param(ok(b"{}", status="500 Internal Server Error"), id="500"),
        pytest.param(ok(b"", status="204 No Content"), id="204"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", id="negative length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", id="two lengths"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", id="length and chunks"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", id="compressed"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n", id="a negative chunk"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n", id="a longer chunk"),
    ],
)
async def test_malformed_responses_are_invalid(client: DirectKubelets, kubelet: FakeKubelet, response: bytes) -> None:
    kubelet.answer = sends(response)
    assert await failure(client, kubelet.node) == "StatsInvalid"


@pytest.mark.parametrize("response", [ok()[:-1], b"HTTP/1.1 200 OK\r\n", chunked(SUMMARY)[:-3]])
async def test_incomplete_response_is_invalid(client: DirectKubelets, kubelet: FakeKubelet, response: bytes) -> None:
    kubelet.answer = sends(response, close=True)
    assert await failure(client, kubelet.node) == "StatsInvalid"


async def test_connection_closed_without_a_response_is_unreachable(
    client: DirectKubelets, kubelet: FakeKubelet
) -> None:
    kubelet.answer = sends(b"", close=True)
    assert await failure(client, kubelet.node) == "StatsUnreachable"
    assert len(kubelet.requests) == 1  # not sent again over the new connection


async def test_redirect_is_not_followed(client: DirectKubelets, kubelet: FakeKubelet, tmp_path: Path) -> None:
    async for other in running(tls(tmp_path, "127.0.0.1")):
        for status in ("301 Moved Permanently", "302 Found", "307 Temporary Redirect"):
            location = f"Location: https://127.0.0.1:{other.port}/stats/summary\r\n"
            kubelet.answer = sends(ok(b"", status=status, head=location))
            assert await failure(client, kubelet.node) == "StatsInvalid"
        assert other.connections == 0


@pytest.mark.parametrize("hosts", [("127.0.0.2",), ("kubelet.example.com",)])
async def test_certificate_for_another_address_is_refused_before_the_token_is_sent(
    client: DirectKubelets, tmp_path: Path, hosts: tuple[str, ...]
) -> None:
    async for each in running(tls(tmp_path, *hosts)):
        assert await failure(client, each.node) == "StatsUnreachable"
        assert each.requests == []


async def test_certificate_of_another_authority_is_refused(
    tokens: TokenApi, clock: MovingClock, kubelet: FakeKubelet
) -> None:
    client = direct(tokens, clock, ServerConfig(server=CONFIG.server, ca=certify("other").pem))
    assert await failure(client, kubelet.node) == "StatsUnreachable"
    assert kubelet.requests == []


async def test_any_certificate_is_accepted_if_verification_is_skipped(
    tokens: TokenApi, clock: MovingClock, tmp_path: Path
) -> None:
    client = direct(tokens, clock, insecure_skip_tls_verify=True)
    async for each in running(tls(tmp_path, "kubelet.example.com")):
        assert (await client.read(each.node, only_memory=False)).signals == MEMORY
    await client.close()


async def test_ca_file_is_used_and_reloaded(
    tokens: TokenApi, clock: MovingClock, kubelet: FakeKubelet, tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(certify("other").pem)
    client = direct(tokens, clock, ca_file=str(file))
    assert await failure(client, kubelet.node) == "StatsUnreachable"
    file.write_text("half a cert")
    os.utime(file, (1, 1))
    clock.time += kubelet_client.CA_CHECK
    assert await failure(client, kubelet.node) == "StatsUnreachable"
    file.write_bytes(CA.pem)
    clock.time += kubelet_client.CA_CHECK
    assert (await client.read(kubelet.node, only_memory=False)).signals == MEMORY
    file.write_bytes(certify("other").pem)
    os.utime(file, (2, 2))
    clock.time += kubelet_client.CA_CHECK
    assert await failure(client, kubelet.node) == "StatsUnreachable", "not over the connection that was kept"
    await client.close()


def test_ca_file_that_cannot_be_read_is_an_input_error(tokens: TokenApi, clock: MovingClock, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--kubelet-ca-file"):
        direct(tokens, clock, ca_file=str(tmp_path / "none.pem"))
    (tmp_path / "bad.pem").write_text("no certificate")
    with pytest.raises(InputError, match="--kubelet-ca-file"):
        direct(tokens, clock, ca_file=str(tmp_path / "bad.pem"))


# ── Addresses that a compromised node reports ──


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "::1",
        "::ffff:127.0.0.1",
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "fe80::1",
        "fe80::1%lo",
        "0.0.0.0",
        "224.0.0.1",
        "a b",
        "x\r\nHost: y",
        "",
        "-",
    ],
)
async def test_requests_to_this_machine_or_to_a_metadata_server_are_refused(
    tokens: TokenApi, clock: MovingClock, kubelet: FakeKubelet, address: str
) -> None:
    config = ServerConfig(server="https://10.96.0.1", ca=CA.pem)
    client = direct(tokens, clock, config, insecure_skip_tls_verify=True)
    node = Node(name="n1", addresses=(address,), kubelet_port=kubelet.port)
    assert await failure(client, node) == "StatsUnreachable"
    assert kubelet.connections == 0


@pytest.mark.parametrize(
    "node",
    [
        Node(name="n1", kubelet_port=10250),
        Node(name="n1", addresses=("10.0.0.1",)),
        Node(name="n1", addresses=("10.0.0.1",), kubelet_port=65536),
        Node(name="n1", addresses=("10.0.0.1",), kubelet_port=-1),
    ],
    ids=["no address", "no port", "too large a port", "a negative port"],
)
async def test_node_without_address_or_port_is_unreachable(client: DirectKubelets, node: Node) -> None:
    assert await failure(client, node) == "StatsUnreachable"


async def test_host_name_is_resolved(client: DirectKubelets, kubelet: FakeKubelet) -> None:
    node = Node(name="n1", addresses=("localhost",), kubelet_port=kubelet.port)
    assert (await client.read(node, only_memory=False)).signals == MEMORY


# ── Tokens ──


async def test_token_is_shared_and_renewed_after_half_of_its_lifetime(
    client: DirectKubelets, kubelet: FakeKubelet, tokens: TokenApi, clock: MovingClock
) -> None:
    await asyncio.gather(*(client.read(kubelet.node, only_memory=False) for _ in range(20)))
    clock.time += 299
    await client.read(kubelet.node, only_memory=False)
    assert len(tokens.requests) == 1
    clock.time += 1
    await client.read(kubelet.node, only_memory=False)
    assert len(tokens.requests) == 2
    assert b"Bearer stats-token-2\r\n" in kubelet.requests[-1]


async def test_reads_do_not_wait_while_a_valid_token_is_renewed(
    client: DirectKubelets, kubelet: FakeKubelet, tokens: TokenApi, clock: MovingClock
) -> None:
    await client.read(kubelet.node, only_memory=False)
    clock.time += 300
    tokens.takes = 0.5
    first = asyncio.create_task(client.read(kubelet.node, only_memory=False))
    await asyncio.sleep(0.01)
    async with asyncio.timeout(0.3):
        await client.read(kubelet.node, only_memory=False)
    await first
    assert len(tokens.requests) == 2


async def test_token_is_used_until_it_expires_if_it_cannot_be_renewed(
    client: DirectKubelets, kubelet: FakeKubelet, tokens: TokenApi, clock: MovingClock
) -> None:
    await client.read(kubelet.node, only_memory=False)
    tokens.error = Forbidden("serviceaccounts/token is forbidden", status=403)
    clock.time += 599
    await client.read(kubelet.node, only_memory=False)
    clock.time += 1
    assert await failure(client, kubelet.node) == "StatsForbidden"
    assert len(tokens.requests) == 2  # not one for each node
    clock.time += kubelet_client.TOKEN_RETRY
    tokens.error = None
    await client.read(kubelet.node, only_memory=False)


async def test_refused_token_is_replaced_once(
    client: DirectKubelets, kubelet: FakeKubelet, tokens: TokenApi, clock: MovingClock
) -> None:
    async def picky(request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        refused = b"Bearer stats-token\r\n" in request
        await sends(ok(b"", status="401 Unauthorized") if refused else ok())(request, reader, writer)

    kubelet.answer = picky
    assert await failure(client, kubelet.node) == "StatsForbidden"  # requested a moment ago
    clock.time += kubelet_client.TOKEN_RETRY
    assert (await client.read(kubelet.node, only_memory=False)).signals == MEMORY
    assert len(tokens.requests) == 2


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
async def test_denied_access_is_forbidden(
    client: DirectKubelets, kubelet: FakeKubelet, tokens: TokenApi, status: str
) -> None:
    body = b"Forbidden (user=system:serviceaccount:trimtab:kubelet-stats, verb=get, resource=nodes)"
    kubelet.answer = sends(ok(body, status=status))
    with pytest.raises(ReadError, match="system:serviceaccount:trimtab:kubelet-stats") as caught:
        await client.read(kubelet.node, only_memory=False)
    assert caught.value.reason == "StatsForbidden"
    assert len(tokens.requests) == 1


# ── Through the API server ──


def raw(body: bytes, content_type: str = "application/json") -> Handler:
    from aiohttp import web

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type=content_type)

    return answer


async def test_proxy_requests_go_to_the_api_server_with_the_operators_identity(tokens: TokenApi) -> None:
    async with fake_server() as api:
        api.answer(raw(SUMMARY))
        config = ServerConfig(server=api.url, login=Login(authorization="Bearer operator"))
        reader = kubelet_reader(KubeletClientSettings(access="Proxy"), tokens, config, namespace="trimtab")
        found = await reader.read(Node(name="n1"), only_memory=False)
        await reader.read(Node(name="n1"), only_memory=True)
        await reader.close()
    assert found.signals == MEMORY
    assert [path for _, path, _, _ in api.requests] == [
        "/api/v1/nodes/n1/proxy/stats/summary",
        "/api/v1/nodes/n1/proxy/stats/summary?only_cpu_and_memory=true",
    ]
    assert {headers["Authorization"] for _, _, headers, _ in api.requests} == {"Bearer operator"}
    assert tokens.requests == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(error_response(403, message="cannot get nodes/proxy"), "StatsForbidden", id="403"),
        pytest.param(error_response(404, message="node not found"), "StatsInvalid", id="404"),
        pytest.param(error_response(503, message="dial tcp: i/o timeout"), "StatsUnreachable", id="503"),
        pytest.param(json_response({"node": {"nodeName": "n2"}}), "StatsInvalid", id="another node"),
        pytest.param(raw(b" " * (kubelet_connections.MAX_BODY + 1)), "StatsInvalid", id="too large"),
    ],
)
async def test_proxy_failures_have_the_same_reasons(answer: Handler, reason: str) -> None:
    async with fake_server() as api:
        api.answer(answer)
        reader = ProxiedKubelets(Transport(ServerConfig(server=api.url)))
        assert await failure(reader, Node(name="n1")) == reason
        await reader.close()


async def test_proxy_that_hangs_is_unreachable(short_timeout: None) -> None:
    from aiohttp import web

    async def answer(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(1)
        return web.Response()

    async with fake_server() as api:
        api.answer(answer)
        reader = ProxiedKubelets(Transport(ServerConfig(server=api.url)))
        assert await failure(reader, Node(name="n1")) == "StatsUnreachable"
        await reader.close()
