"""What clients can make the server of probes and metrics hold or do."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import uvloop
from aiohttp import web

from tests.fixtures.waiting import eventually_async
from trimtab.api import reasons
from trimtab.runtime.http.certificate import ServingCertificate
from trimtab.runtime.http.posts import LARGE_BODY, MAX_LARGE_BODIES, PostServer
from trimtab.runtime.http.server import HttpServer, Limits

GET = b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"
BODY = b"y" * 1000
OTHER = "127.0.0.2"


async def body(request: web.BaseRequest) -> web.Response:
    return web.Response(body=BODY)


class Running:
    """A server and what it refused."""

    def __init__(self, handler: Any, limits: Limits) -> None:
        self.refused: Counter[str] = Counter()
        self.writers: list[asyncio.StreamWriter] = []
        self.server = HttpServer("127.0.0.1", 0, {"/x": handler}, limits=limits, refused=self._count)

    def _count(self, reason: str) -> None:
        self.refused[reason] += 1

    async def connect(self, source: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connected = await asyncio.open_connection("127.0.0.1", self.server.port, local_addr=(source, 0))
        self.writers.append(connected[1])
        return connected

    async def refuses(self, source: str = "127.0.0.1", *, within: float = 5.0) -> bool:
        """Whether a connection is closed without an answer."""
        try:
            reader, _ = await self.connect(source)
            async with asyncio.timeout(within):
                return await reader.read() == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    async def get(self, request: bytes = GET, source: str = "127.0.0.1") -> int:
        reader, writer = await self.connect(source)
        writer.write(request)
        status = await answer(reader)
        writer.close()
        return status

    async def connections(self, number: int) -> None:
        async with asyncio.timeout(5):
            while self.server.connections != number:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def answer(reader: asyncio.StreamReader) -> int:
    """The status of the next answer on a connection, which is read to its end."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    [length] = [int(line.split(b":")[1]) for line in head.splitlines() if line.startswith(b"content-length")]
    await reader.readexactly(length)
    return int(head.split()[1])


async def closed(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(5):
            return await reader.read() == b""
    except ConnectionResetError:
        return True


@asynccontextmanager
async def running(handler: Any = body, **limits: Any) -> AsyncIterator[Running]:
    made = Running(handler, Limits(**limits))
    await made.server.start()
    try:
        yield made
    finally:
        await made.server.stop()
        for writer in made.writers:
            writer.close()
        assert not made.server._open
        assert made.server.connections == 0


async def test_paths_and_methods() -> None:
    async with running() as server:
        assert await server.get() == 200
        assert await server.get(GET.replace(b"/x", b"/y")) == 404
        assert await server.get(GET.replace(b"GET", b"DELETE")) == 405
        assert not server.refused


async def test_failing_handler_returns_500(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(request: web.BaseRequest) -> web.Response:
        raise ValueError("x")

    async with running(fail) as server:
        assert await server.get() == 500
    assert len(caplog.records) == 1


async def test_connections_beyond_the_limit_of_a_client_are_reset_at_once() -> None:
    async with running(connections_per_client=3) as server:
        kept = [await server.connect() for _ in range(3)]
        for _ in range(20):
            assert await server.refuses()
        assert server.server.connections == 3
        assert server.refused == {reasons.TOO_MANY_CONNECTIONS: 20}
        for reader, writer in kept:
            writer.write(GET)
            assert await answer(reader) == 200
            writer.close()
        await server.connections(0)


async def test_a_client_with_fewer_connections_gets_one_of_a_client_with_more() -> None:
    async with running(connections=4, connections_per_client=4) as server:
        flood = [await server.connect() for _ in range(4)]
        await server.connections(4)
        assert await server.get(source=OTHER) == 200
        assert await closed(flood[0][0]), "the oldest"
        await server.connections(3)
        for _, writer in flood:
            writer.close()


async def test_clients_with_one_connection_each_do_not_displace_each_other() -> None:
    async with running(connections=2) as server:
        await server.connect("127.0.0.1")
        await server.connect("127.0.0.2")
        await server.connections(2)
        assert await server.refuses("127.0.0.3")
        assert server.server.connections == 2


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.live), pytest.param(2, marks=pytest.mark.live)])
async def test_any_order_of_connections_keeps_to_the_limits_and_keeps_no_modest_client_out(seed: int) -> None:
    chance, most, of_one = random.Random(seed), 8, 4
    async with running(connections=most, connections_per_client=of_one, requests_per_second=1e4) as server:
        held: dict[str, list[asyncio.StreamWriter]] = {}
        for _ in range(80):
            client = f"127.0.0.{chance.randint(2, 12)}"
            mine = held.setdefault(client, [])
            if mine and chance.random() < 0.3:
                mine.pop(chance.randrange(len(mine))).close()
                continue
            numbers = {name: len(each) for name, each in server.server._clients.items()}
            full, own = sum(numbers.values()) >= most, numbers.get(client, 0)
            welcome = own < of_one and (not full or max(numbers.values()) > own + 1)
            refused = await server.refuses(client, within=0.02)
            assert not (welcome and refused)
            if not refused:
                mine.append(server.writers[-1])
            assert server.server.connections <= most
            assert all(len(each) <= of_one for each in server.server._clients.values())
            assert sum(map(len, server.server._clients.values())) == server.server.connections


async def test_connections_that_arrive_together_displace_one_each() -> None:
    """They are accepted in one go, before a displaced connection has reported its end."""
    async with running(connections=4, connections_per_client=4) as server:
        flood = [await server.connect() for _ in range(4)]
        await server.connections(4)
        late = []
        for number in range(2, 32):
            late.append(socket.socket())
            late[-1].bind((f"127.0.0.{number}", 0))
            late[-1].connect(("127.0.0.1", server.server.port))
        await asyncio.sleep(0.2)
        assert server.server.connections == 4
        assert [len(each) for each in server.server._clients.values()] == [1, 1, 1, 1]
        assert len(server.server._open) == 4
        assert [await closed(reader) for reader, _ in flood[:3]] == [True] * 3
        for each in late:
            each.close()


async def test_half_a_request_is_given_up_after_the_timeout() -> None:
    async with running(timeout=0.2) as server:
        reader, writer = await server.connect()
        writer.write(b"GET /x HTTP/1.1\r\nX: " + b"a" * 7000)
        assert await closed(reader)
        writer.close()
        assert server.refused == {reasons.INCOMPLETE_REQUEST: 1}


async def test_a_request_that_arrives_byte_by_byte_does_not_extend_its_timeout() -> None:
    async with running(timeout=0.5) as server:
        reader, writer = await server.connect()

        async def drip() -> None:
            for each in GET * 100:
                writer.write(bytes([each]))
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        assert await closed(reader)
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
        writer.close()


async def test_an_idle_connection_is_closed_without_a_refusal() -> None:
    async with running(timeout=0.2) as server:
        reader, writer = await server.connect()
        writer.write(GET)
        assert await answer(reader) == 200
        assert await closed(reader)
        writer.close()
        assert not server.refused


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /x HTTP/1.1\r\nX: " + b"a" * 200_000,
        b"GET /" + b"x" * 200_000,
        b"".join(b"X%d: %s\r\n" % (number, b"a" * 500) for number in range(300)),
        GET.replace(b"\r\n\r\n", b"\r\nContent-Length: 1000000\r\n\r\n") + b"a" * 1_000_000,
        GET * 10_000,
    ],
    ids=["header", "target", "headers", "body", "pipelined"],
)
async def test_request_size_is_limited(request_: bytes) -> None:
    async with running() as server:
        reader, writer = await server.connect()
        writer.write(request_)
        try:
            async with asyncio.timeout(5):
                while await reader.read(65536):
                    pass
        except ConnectionResetError:
            pass
        writer.close()
        await server.connections(0)
        if request_ == GET * 10_000:
            assert sum(server.refused.values())


async def test_malformed_requests_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as server:
        for request in (b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"GET /x HTTP/9.9\r\n\r\n"):
            reader, writer = await server.connect()
            writer.write(request + b"\r\n\r\n")
            await reader.read()
            writer.close()
    assert not caplog.records


async def test_requests_of_a_client_are_paced() -> None:
    async with running(requests_per_second=2.0, connections_per_client=50) as server:
        statuses = Counter([await server.get() for _ in range(20)])
        assert 4 <= statuses[200] <= 6
        assert statuses[429] == 20 - statuses[200]
        assert server.refused == {reasons.TOO_MANY_REQUESTS: statuses[429]}
        assert await server.get(source=OTHER) == 200, "of that client alone"


async def test_clients_that_use_up_the_requests_of_all_keep_no_client_out_that_sends_little() -> None:
    async with running(requests_per_second=5.0, requests_per_second_in_all=5.0) as server:
        statuses = Counter([await server.get(source=f"127.0.0.{2 + number % 8}") for number in range(72)])
        first, of_all = 8 * 2, 10
        assert first + of_all <= statuses[200] <= first + of_all + 15, "the bursts, and what a second or so adds"
        assert statuses[429] == 72 - statuses[200]
        assert await server.get(source="127.0.0.100") == 200


async def test_connection_is_closed_after_its_maximum_of_requests() -> None:
    async with running(requests_per_connection=3) as server:
        reader, writer = await server.connect()
        writer.write(GET * 5)
        assert [await answer(reader) for _ in range(3)] == [200, 200, 200]
        assert await closed(reader)
        writer.close()


async def test_a_client_that_does_not_read_is_cut_off() -> None:
    async def large(request: web.BaseRequest) -> web.Response:
        return web.Response(body=b"z" * 50_000_000)

    async with running(large, timeout=0.3) as server:
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(slow, ("127.0.0.1", server.server.port))
            await loop.sock_sendall(slow, GET)
            await server.connections(1)
            await server.connections(0)
        assert server.refused == {reasons.SLOW_CLIENT: 1}


async def test_client_that_reads_after_a_pause_keeps_its_connection() -> None:
    async def large(request: web.BaseRequest) -> web.Response:
        return web.Response(body=b"z" * 20_000_000)

    async with running(large, timeout=0.5, keepalive=30.0) as server:
        reader, writer = await server.connect()
        writer.write(GET)
        await server.connections(1)
        async with asyncio.timeout(5):
            while not any(each._unread for each in server.server._open.values()):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert await answer(reader) == 200
        await asyncio.sleep(0.7)  # longer than the timeout
        writer.write(GET)
        assert await answer(reader) == 200
        assert not server.refused


async def test_stopping_closes_connections_in_use() -> None:
    async def wait(request: web.BaseRequest) -> web.Response:
        await asyncio.sleep(60)
        raise AssertionError

    async with running(wait) as server:
        _, writer = await server.connect()
        writer.write(GET)
        await server.connections(1)
        port = server.server.port
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", port)
    writer.close()


async def test_address_in_use_is_an_error() -> None:
    async with running() as server:
        second = HttpServer("127.0.0.1", server.server.port, {})
        with pytest.raises(OSError):
            await second.start()


async def test_server_with_handlers_of_post_has_no_other_handlers() -> None:
    with pytest.raises(ValueError, match="POST"):
        HttpServer("127.0.0.1", 0, {"/x": body}, posts={"/p": echo})
    with pytest.raises(ValueError, match="POST"):
        HttpServer("127.0.0.1", 0, {}, posts={"/p": echo}, prefixes={"/x": body})


async def echo(content: bytes) -> tuple[int, bytes]:
    return 200, content


async def echo_in_the_next_turn(content: bytes) -> tuple[int, bytes]:
    await asyncio.sleep(0)
    return 200, content


async def echo_later(content: bytes) -> tuple[int, bytes]:
    await asyncio.sleep(0.05)
    return 200, content


async def fail(content: bytes) -> tuple[int, bytes]:
    raise ValueError(content)


def post(content: bytes, *, length: int | None = None, path: str = "/p") -> bytes:
    size = len(content) if length is None else length
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), size, content)


@asynccontextmanager
async def webhook_server(
    tls: Callable[[], ssl.SSLContext] | None = None, **limits: Any
) -> AsyncIterator[tuple[HttpServer, Counter[str]]]:
    refused: Counter[str] = Counter()
    given = {"requests_per_second": None, "requests_per_second_in_all": None, "requests_per_connection": None}
    server = HttpServer(
        "127.0.0.1",
        0,
        {},
        posts={"/p": echo, "/next": echo_in_the_next_turn, "/later": echo_later, "/fail": fail},
        limits=Limits(**{**given, "body_bytes": 100_000, "timeout": 0.5, **limits}),
        tls=tls,
        refused=lambda reason: refused.update([reason]),
    )
    await server.start()
    try:
        yield server, refused
    finally:
        await server.stop()


async def ask(server: HttpServer, request: bytes) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    content = await reader.read(100) if b"Content-Length: 0" not in head else b""
    writer.close()
    return int(head.split()[1]), content


async def test_post_gets_the_complete_body_up_to_its_limit() -> None:
    async with webhook_server() as (server, refused):
        assert await ask(server, post(b"hello")) == (200, b"hello")
        assert (await ask(server, post(b"y" * 100_000)))[0] == 200
        assert (await ask(server, post(b"", length=100_001)))[0] == 413
        assert refused == {reasons.REQUEST_TOO_LARGE: 1}


async def test_posts_to_other_paths_and_other_methods_get_an_error() -> None:
    async with webhook_server() as (server, refused):
        assert (await ask(server, post(b"", path="/y")))[0] == 404
        assert (await ask(server, GET.replace(b"/x", b"/p")))[0] == 405
        assert (await ask(server, post(b"abc", path="/p?timeout=5s")))[0] == 200
        assert (await ask(server, post(b"abc", path="/fail")))[0] == 500
        assert not refused


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /p HTTP/1.1\r\nContent-Length: 3\r\n\r\n", 200),
        (b"POST /p HTTP/1.1\r\ncontent-LENGTH:3\r\nX:\r\n\r\n", 200),
        (b"POST /p HTTP/1.0\r\nContent-Length: 3\r\n\r\n", 200),
        (b"POST /p HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST /p HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST /p HTTP/1.1\r\nHost: x\r\n\r\n", 411),
        (b"POST /p HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n", 417),
        (b"POST /p HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", 400),
        (b"POST /p HTTP/1.1\r\nContent-Length: -3\r\n\r\n", 400),
        (b"POST /p HTTP/1.1\r\nContent-Length: 3, 3\r\n\r\n", 400),
        (b"POST /p HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 400),
        (b"POST /p HTTP/1.1\r\nContent-Length : 3\r\n\r\n", 400),
        (b"POST /p HTTP/1.1\r\nX: a\r\n folded\r\nContent-Length: 3\r\n\r\n", 400),
        (b"POST /p HTTP/1.1\r\nX: a\nContent-Length: 3\r\n\r\n", 400),
        (b"POST /p HTTP/1.1\r\nX: " + b"a" * 40_000 + b"\r\nContent-Length: 3\r\n\r\n", 431),
        (b"POST /p HTTP/1.1\r\nX: " + b"a" * 40_000, 431),
        (b"POST /p\r\nContent-Length: 3\r\n\r\n", 400),
        (b"POST /p HTTP/2.0\r\nContent-Length: 3\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
    ],
)
async def test_only_well_formed_posts_with_a_content_length_are_handled(
    head: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with webhook_server() as (server, _):
        assert (await ask(server, head + b"abc"))[0] == status
    assert not caplog.records


async def test_pipelined_posts_are_answered_in_order() -> None:
    async with webhook_server(body_bytes=500_000) as (server, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        bodies = [b"%d" % number * 30_000 for number in range(8)]
        for number, content in enumerate(bodies):
            writer.write(post(content, path="/later" if number % 2 else "/p"))
        for content in bodies:
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(len(content)) == content
        writer.close()


async def test_post_that_arrives_in_any_pieces_is_handled_once() -> None:
    request = post(b"abc") * 3
    async with webhook_server(timeout=5.0) as (server, refused):
        for size in (1, 2, 7, 30, len(post(b"abc")) - 1):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            for at in range(0, len(request), size):
                writer.write(request[at : at + size])
                await asyncio.sleep(0.001)
            assert [await answer(reader) for _ in range(3)] == [200, 200, 200]
            writer.close()
        assert not refused


async def test_post_server_closes_connections_on_request_and_idle_ones() -> None:
    async with webhook_server(timeout=0.3) as (server, refused):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(post(b"abc").replace(b"Host: x", b"Connection: close"))
        assert await answer(reader) == 200
        assert await closed(reader)
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(post(b"abc"))
        assert await answer(reader) == 200
        assert await closed(reader)
        writer.close()
        assert not refused
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /p HT")
        assert await closed(reader)
        writer.close()
        assert refused == {reasons.INCOMPLETE_REQUEST: 1}


async def test_incomplete_post_on_a_connection_with_a_long_keepalive_times_out() -> None:
    async with webhook_server(timeout=0.3, keepalive=60.0) as (server, refused):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(post(b"abc"))
        assert await answer(reader) == 200
        writer.write(post(b"", length=1000))

        async def drip() -> None:  # this does not extend the timeout
            while True:
                writer.write(b"a")
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        async with asyncio.timeout(5):
            assert await answer(reader) == 408
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
        writer.close()
        assert refused == {reasons.INCOMPLETE_REQUEST: 1}


async def test_client_that_does_not_read_responses_gets_no_further_requests_handled() -> None:
    async with webhook_server(timeout=0.5) as (server, refused):
        handled = 0

        async def count(_content: bytes) -> tuple[int, bytes]:
            nonlocal handled
            handled += 1
            return 200, b"z" * 1_000_000

        assert isinstance(server._http, PostServer)
        server._http.handlers[b"/p"] = count
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(slow, ("127.0.0.1", server.port))
            await loop.sock_sendall(slow, post(b"abc") * 100)
            async with asyncio.timeout(5):
                while not refused:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        assert handled < 20
        assert refused == {reasons.SLOW_CLIENT: 1}


@pytest.mark.parametrize("path", ["/p", "/next"])
async def test_client_that_reads_its_responses_after_a_pause_gets_all_of_them(path: str) -> None:
    async with webhook_server(timeout=5.0, body_bytes=1_000_000) as (server, refused):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1000)
        writer.write(post(b"y" * 90_000, path=path) * 100)
        await asyncio.sleep(0.2)
        assert [await answer(reader) for _ in range(100)] == [200] * 100
        writer.close()
        assert not refused


async def test_stopping_waits_for_a_handler_that_responds_soon() -> None:
    async with webhook_server() as (server, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(post(b"abc", path="/later"))
        await asyncio.sleep(0.02)
        stopping = asyncio.create_task(server.stop())
        assert await answer(reader) == 200
        await stopping
        writer.close()


async def test_body_that_stays_incomplete_times_out() -> None:
    async with webhook_server() as (server, refused):
        assert (await ask(server, post(b"abc", length=10)))[0] == 408
        assert refused[reasons.INCOMPLETE_REQUEST] == 1


async def test_connection_without_limits_serves_many_requests_and_stays_open() -> None:
    async with webhook_server(timeout=0.3, keepalive=30.0) as (server, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for _ in range(300):
            writer.write(post(b"abc"))
            assert await answer(reader) == 200
        await asyncio.sleep(0.6)  # longer than the timeout of a request
        writer.write(post(b"abc"))
        assert await answer(reader) == 200
        writer.close()


async def test_draining_server_closes_connections_after_their_response() -> None:
    async with webhook_server() as (server, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(post(b"abc"))
        assert await answer(reader) == 200
        server.drain()
        writer.write(post(b"abc"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"connection: close" in head.lower()
        writer.close()
        assert (await ask(server, post(b"abc")))[0] == 200  # new connections are still served


async def test_few_large_bodies_are_in_memory_and_small_ones_do_not_wait_for_them() -> None:
    content = b"y" * (LARGE_BODY + 1)
    async with webhook_server(body_bytes=2 * LARGE_BODY) as (server, refused):
        slow = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(MAX_LARGE_BODIES)]
        for _, writer in slow:
            writer.write(post(b"", length=len(content)))
        await asyncio.sleep(0.1)
        assert await ask(server, post(b"small")) == (200, b"small")
        assert (await ask(server, post(content)))[0] in (200, 503)  # after the slow ones have timed out
        assert (await ask(server, post(content)))[0] == 200
        async with asyncio.timeout(30):
            while refused[reasons.INCOMPLETE_REQUEST] < MAX_LARGE_BODIES:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        for _, writer in slow:
            writer.close()


async def test_large_body_counts_until_its_handler_ends_even_if_the_client_disconnects() -> None:
    content = b"y" * (LARGE_BODY + 1)
    async with webhook_server(body_bytes=2 * LARGE_BODY) as (server, _):
        handled, released = 0, asyncio.Event()

        async def hold(_content: bytes) -> tuple[int, bytes]:
            nonlocal handled
            handled += 1
            await released.wait()
            return 200, b""

        assert isinstance(server._http, PostServer)
        server._http.handlers[b"/p"] = hold
        clients = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(MAX_LARGE_BODIES)]
        for _, writer in clients:
            writer.write(post(content))
        await eventually_async(lambda: handled == MAX_LARGE_BODIES, "all bodies are handled")
        for _, writer in clients:
            writer.close()
        await eventually_async(lambda: not server.connections, "all clients have disconnected")
        async with asyncio.timeout(5):
            assert (await ask(server, post(content)))[0] == 503
        assert handled == MAX_LARGE_BODIES
        released.set()
        assert (await ask(server, post(content)))[0] == 200


def fake_connection(server: HttpServer) -> tuple[Any, Mock]:
    """The protocol of a connection, and its transport, whose end is not reported."""
    assert isinstance(server._http, PostServer)
    protocol = server._http(SimpleNamespace(client="c", requests=0, pending_bytes=0, counted=False))
    transport = Mock(asyncio.Transport)
    protocol.connection_made(transport)
    return protocol, transport


async def test_partial_body_is_dropped_when_its_connection_ends() -> None:
    """The objects of a connection refer to each other, so they stay in memory until a garbage collection."""
    async with webhook_server() as (server, _):
        protocol, _ = fake_connection(server)
        protocol.data_received(post(b"y" * 1000, length=2000))
        assert len(protocol._received) == 1000
        protocol.connection_lost(None)
        assert not protocol._received


async def test_partial_body_is_dropped_when_it_times_out() -> None:
    """A TLS connection stays open until the client confirms the end."""
    async with webhook_server(timeout=0.05) as (server, refused):
        protocol, transport = fake_connection(server)
        protocol.data_received(post(b"y" * 1000, length=2000))
        await eventually_async(lambda: transport.close.called, "the request timed out", pause=0.01)
        assert refused == {reasons.INCOMPLETE_REQUEST: 1}
        assert not protocol._received


async def test_idle_connection_of_a_client_that_paused_reading_gets_the_timeout_of_idle_connections() -> None:
    """The connection continues once because of a pipelined request, and once because the client reads again."""
    async with webhook_server(timeout=0.05, keepalive=30.0) as (server, refused):
        protocol, transport = fake_connection(server)

        def pause_after_first_response(_response: bytes) -> None:
            if transport.write.call_count == 1:
                protocol.pause_writing()
                asyncio.get_running_loop().call_soon(protocol.resume_writing)

        transport.write.side_effect = pause_after_first_response
        protocol.data_received(post(b"a") * 2)
        await asyncio.sleep(0.2)
        assert transport.write.call_count == 2
        transport.close.assert_not_called()
        assert not refused


def test_posts_over_tls_on_the_event_loop_of_the_webhooks() -> None:
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE

    async def run() -> None:
        handled, released = 0, asyncio.Event()

        async def count(_content: bytes) -> tuple[int, bytes]:
            nonlocal handled
            handled += 1
            await released.wait()
            return 200, b""

        limits = {"body_bytes": 500_000, "timeout": 5.0}
        async with webhook_server(ServingCertificate().context, **limits) as (server, refused):

            async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
                return await asyncio.open_connection("127.0.0.1", server.port, ssl=client)

            # Pipelined requests, whose bodies are smaller or larger than a TLS record, and one of which is large.
            reader, writer = await connect()
            bodies = [b"%d" % (number % 10) * size for number, size in enumerate((0, 3, 70_000, 300_000, 70_000) * 4)]
            for number, content in enumerate(bodies):
                writer.write(post(content, path=("/p", "/later", "/next")[number % 3]))
            for content in bodies:
                await reader.readuntil(b"\r\n\r\n")
                assert await reader.readexactly(len(content)) == content
            writer.close()
            assert not refused

            # Clients that disconnect: while a handler runs and a further request waits, and within a body.
            posts = server._http
            assert isinstance(posts, PostServer)
            posts.handlers[b"/count"] = count
            _, writer = await connect()
            writer.write(post(b"abc", path="/count") * 2)
            await eventually_async(lambda: handled, "the first request is handled", pause=0.001)
            writer.transport.abort()
            _, writer = await connect()
            writer.write(post(b"y" * 300_000, length=400_000, path="/count"))
            await eventually_async(
                lambda: posts.large_bodies._value < MAX_LARGE_BODIES, "the body is received", pause=0.001
            )
            writer.transport.abort()
            await eventually_async(lambda: not server.connections, "the connections have ended")
            released.set()
            await eventually_async(lambda: not posts._tasks, "the handler has ended")
            assert handled == 1
            assert posts.large_bodies._value == MAX_LARGE_BODIES

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
