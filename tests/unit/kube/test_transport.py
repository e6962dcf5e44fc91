import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.http_writer import StreamWriter

from tests.fakes import server as answers
from tests.fakes.server import FakeServer, fake_server
from tests.fixtures.garbage import unreachable_objects, without_collections
from tests.fixtures.golden import Golden
from trimtab import __version__
from trimtab.kube import api as kube_api
from trimtab.kube.connection.config import Login, ServerConfig
from trimtab.kube.connection.credentials import TokenFileCredentials
from trimtab.kube.connection.transport import BODY_SLICE, IterationLimiter, Transport
from trimtab.kube.retry import Backoff
from trimtab.kube.verbs import METADATA_ONLY

QUICK = Backoff(initial=0.0, jitter=0.0, attempts=3)
NODES = "/api/v1/nodes"


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with fake_server() as fake:
        yield fake


@pytest.fixture
async def transport(server: FakeServer) -> AsyncIterator[Transport]:
    async with Transport(ServerConfig(server=server.url), retries=QUICK) as each:
        yield each


async def test_a_request_sends_method_parameters_and_body_and_decodes_the_answer(server, transport):
    server.answer(answers.json({"kind": "Node"}))
    response = await transport.request(
        "PATCH",
        f"{NODES}/n1",
        params={"fieldManager": "trimtab"},
        body={"a": "ä"},
        content_type="application/merge-patch+json",
    )
    [(method, path, headers, body)] = server.requests
    assert response == {"kind": "Node"}
    assert (method, path, body.decode()) == ("PATCH", "/api/v1/nodes/n1?fieldManager=trimtab", '{"a":"ä"}')
    assert headers["Content-Type"] == "application/merge-patch+json"
    assert headers["User-Agent"] == f"trimtab/{__version__}"


async def test_a_large_body_is_written_in_slices(server, transport, monkeypatch):
    written: list[int] = []
    write = StreamWriter.write

    async def record(self: StreamWriter, chunk: bytes, **options: Any) -> None:
        written.append(len(chunk))
        await write(self, chunk, **options)

    monkeypatch.setattr(StreamWriter, "write", record)
    body = {"outcomes": ["x" * 1000] * 50}
    await transport.request("PATCH", f"{NODES}/n1", body=body)
    [(*_, sent)] = server.requests
    assert msgspec.json.decode(sent) == body
    assert sum(written) == len(sent)
    assert max(written) == BODY_SLICE


async def test_selectors_survive_the_way_through_the_url(server, transport):
    observed = []

    async def handle(request: web.Request) -> web.Response:
        observed.append(request.query["labelSelector"])
        return web.json_response({})

    server.answer(handle)
    selector = "a in (b,c),!d,e!=f+g%2F h"
    await transport.request("GET", NODES, params={"labelSelector": selector})
    assert observed == [selector]


async def test_a_server_with_a_path_keeps_it(server):
    async with Transport(ServerConfig(server=f"{server.url}/k8s/clusters/c-1")) as transport:
        await transport.request("GET", NODES)
    assert server.requests[0][1] == "/k8s/clusters/c-1/api/v1/nodes"


async def test_plain_text_and_empty_answers_are_no_errors(server, transport):
    server.answer(answers.text("ok"), answers.text(""))
    assert await transport.request("GET", "/readyz") == "ok"
    assert await transport.request("GET", "/readyz") is None


async def test_protobuf_response_is_returned_as_bytes(server, transport):
    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=b"k8s\0\xff", content_type="application/vnd.kubernetes.protobuf")

    server.answer(handle)
    assert await transport.request("DELETE", f"{NODES}/n1", body={}, accept=METADATA_ONLY) == b"k8s\0\xff"
    [(_, _, headers, _)] = server.requests
    assert headers["Accept"] == METADATA_ONLY


async def test_json_is_requested_by_default(server, transport):
    await transport.request("DELETE", f"{NODES}/n1")
    assert server.requests[0][2]["Accept"] == "application/json"


async def test_error_contains_the_beginning_of_a_response_that_is_not_json(server, transport, golden: Golden):
    server.answer(answers.text("<html>Please log in</html>", content_type="text/html"))
    with pytest.raises(kube_api.ApiError) as raised:
        await transport.request("GET", NODES)
    golden(str(raised.value))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, kube_api.Invalid),
        (401, kube_api.Unauthorized),
        (403, kube_api.Forbidden),
        (404, kube_api.NotFound),
        (409, kube_api.Conflict),
        (410, kube_api.Gone),
        (415, kube_api.ApiError),
        (422, kube_api.Invalid),
        (429, kube_api.TooManyRequests),
        (500, kube_api.ServerError),
        (503, kube_api.ServerError),
    ],
)
async def test_each_status_of_failure_has_its_exception(server, transport, code, kind):
    server.answer(answers.status(code, reason="Because", message="so it is"))
    with pytest.raises(kind) as caught:
        await transport.request("POST", NODES, body={})
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.reason, str(caught.value)) == (code, "Because", "so it is")


async def test_causes_and_the_wait_of_a_refused_eviction_are_kept(server, transport):
    cause = {"reason": "DisruptionBudget", "message": "needs 2 healthy pods"}
    details = {"causes": [cause], "retryAfterSeconds": 10}
    server.answer(answers.status(429, reason="TooManyRequests", message="Cannot evict", details=details))
    with pytest.raises(kube_api.TooManyRequests) as caught:
        await transport.request("POST", "/api/v1/namespaces/a/pods/b/eviction", body={})
    assert caught.value.disruption_budget
    assert caught.value.causes == (cause,)
    assert caught.value.retry_after == 10
    assert len(server.requests) == 1


async def test_the_retry_after_header_wins_over_the_body(server, transport):
    server.answer(answers.status(429, details={"retryAfterSeconds": 10}, Retry_After="1"))
    with pytest.raises(kube_api.TooManyRequests) as caught:
        await transport.request("POST", NODES, body={})
    assert caught.value.retry_after == 1
    assert not caught.value.disruption_budget


async def test_a_proxys_page_becomes_a_short_message(server, transport, golden: Golden):
    server.answer(answers.text("<html>\n<h1>Bad Gateway</h1>" + " x" * 1000, status=502, content_type="text/html"))
    with pytest.raises(kube_api.ServerError) as caught:
        await transport.request("POST", NODES, body={})
    golden(str(caught.value))
    assert len(str(caught.value)) < 400


async def test_a_redirect_is_not_followed(server, transport):
    async def handle(_request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "http://elsewhere.invalid/"})

    server.answer(handle)
    with pytest.raises(kube_api.ApiError, match="HTTP status 302"):
        await transport.request("GET", NODES)


@pytest.mark.parametrize("failure", [answers.status(503), answers.status(429), answers.cut], ids=["503", "429", "cut"])
async def test_get_is_retried(server, transport, failure):
    server.answer(failure, failure, answers.json({"kind": "NodeList"}))
    assert await transport.request("GET", NODES) == {"kind": "NodeList"}


async def test_a_get_is_given_up_after_so_many_tries(server, transport):
    server.answer(answers.status(500, message="broken"))
    with pytest.raises(kube_api.ServerError, match="broken"):
        await transport.request("GET", NODES)
    assert len(server.requests) == QUICK.attempts


@pytest.mark.parametrize("code", [400, 403, 404, 410])
async def test_get_with_a_final_response_is_not_retried(server, transport, code):
    server.answer(answers.status(code))
    with pytest.raises(kube_api.ApiError):
        await transport.request("GET", NODES)
    assert len(server.requests) == 1


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_write_without_a_response_is_never_repeated(server, transport, method):
    server.answer(answers.cut)
    with pytest.raises(kube_api.Unreachable, match=f"{method} http://127.0.0.1:"):
        await transport.request(method, NODES, body={})
    assert len(server.requests) == 1


async def test_a_get_does_not_wait_past_its_timeout(server, transport):
    server.answer(answers.status(429, Retry_After="3600"))
    with pytest.raises(kube_api.TooManyRequests):
        await transport.request("GET", NODES)
    assert len(server.requests) == 1


async def test_a_server_that_hangs_is_unreachable(server, transport):
    released = asyncio.Event()

    async def hang(_request: web.Request) -> web.Response:
        await released.wait()
        return web.Response()

    server.answer(hang)
    with pytest.raises(kube_api.Unreachable):
        await transport.request("GET", NODES, timeout=0.05)
    released.set()


async def test_a_closed_port_is_unreachable(server):
    async with Transport(ServerConfig(server="http://127.0.0.1:1"), retries=QUICK) as transport:
        with pytest.raises(kube_api.Unreachable, match=r"GET http://127.0.0.1:1/api/v1/nodes: .*Connect call failed"):
            await transport.request("GET", NODES)
        with pytest.raises(kube_api.Unreachable):
            async with transport.stream(NODES):
                pass


async def test_requests_are_observed_with_status_and_duration(server):
    observed = []
    config = ServerConfig(server=server.url)
    async with Transport(config, retries=QUICK, observe=lambda *each: observed.append(each)) as transport:
        server.answer(answers.cut, answers.status(500), answers.json({}))
        with pytest.raises(kube_api.Unreachable):
            await transport.request("POST", NODES, body={})
        await transport.request("GET", NODES)
    assert [(method, status) for method, status, _ in observed] == [("POST", 0), ("GET", 500), ("GET", 200)]
    assert all(seconds >= 0 for *_, seconds in observed)


async def test_close_is_idempotent_and_closes_borrowed_sessions(server):
    transport = Transport(ServerConfig(server=server.url))
    lent = transport.borrowed_session()
    await transport.request("GET", NODES)
    await transport.close()
    await transport.close()
    assert lent.closed


async def test_connections_that_no_request_needs_expire(server, monkeypatch):
    """A burst of requests opens five connections. Single requests then use one, so that the others expire."""
    now = 0.0
    monkeypatch.setattr(aiohttp.connector, "monotonic", lambda: now)
    used: list[int] = []
    together = asyncio.Barrier(5)

    async def handle(request: web.Request) -> web.Response:
        assert request.transport is not None
        used.append(request.transport.get_extra_info("peername")[1])
        if len(used) <= 5:
            await together.wait()
        return web.json_response({})

    server.answer(handle)
    async with Transport(ServerConfig(server=server.url)) as transport:
        await asyncio.gather(*(transport.request("GET", NODES) for _ in range(5)))
        for _ in range(10):
            now += 10.0
            await transport.request("GET", NODES)
        transport._connector._cleanup()
        open_connections = sum(map(len, transport._connector._conns.values()))
    assert len(set(used[:5])) == 5
    assert len(set(used[5:])) == 1
    assert open_connections == 1


async def test_retry_uses_another_connection_than_the_failed_request(server):
    """Of three API servers behind one address, the one that answers first after the burst fails each request."""
    used: list[int] = []
    together = asyncio.Barrier(3)

    async def handle(request: web.Request) -> web.Response:
        assert request.transport is not None
        used.append(request.transport.get_extra_info("peername")[1])
        if len(used) <= 3:
            await together.wait()
        return web.json_response({}, status=503 if used[-1] in used[3:4] else 200)

    server.answer(handle)
    async with Transport(ServerConfig(server=server.url), retries=QUICK) as transport:
        await asyncio.gather(*(transport.request("GET", NODES) for _ in range(3)))
        for _ in range(6):
            await transport.request("GET", NODES)
    assert used.count(used[3]) > 1


# ── Streams ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_close_ends_connections_whose_server_is_slow_to_close_them(transport):
    transport.borrowed_session()
    ours, theirs = socket.socketpair()
    transport._sockets.add(ours)
    await transport.close()
    with ours, theirs:
        theirs.setblocking(False)
        assert theirs.recv(1) == b""


def streamed(*chunks: bytes, then: asyncio.Event | None = None, abort: bool = False) -> answers.Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if then is not None:
            await then.wait()
        if abort and request.transport is not None:
            request.transport.abort()
        return response

    return handle


async def drained(transport: Transport, **options) -> bytes:
    async with transport.stream(NODES, **options) as chunks:
        return b"".join([chunk async for chunk in chunks])


async def test_stream_yields_all_bytes(server, transport):
    big = b"x" * 3_000_000  # one object far above aiohttp's limit for a line
    server.answer(streamed(b"a\n", big, b"\n"))
    received = await drained(transport, params={"watch": "1"}, accept="application/x")
    assert received == b"a\n" + big + b"\n"
    _, path, headers, _ = server.requests[0]
    assert path == "/api/v1/nodes?watch=1"
    assert headers["Accept"] == "application/x"
    assert headers["Accept-Encoding"] == "identity"


async def test_chunk_is_yielded_before_the_next_arrives(server, transport):
    go_on = asyncio.Event()
    server.answer(streamed(b"first", then=go_on))
    async with transport.stream(NODES) as chunks:
        assert await anext(chunks) == b"first"
        go_on.set()
        assert [chunk async for chunk in chunks] == []


@pytest.mark.parametrize(("code", "kind"), [(410, kube_api.Gone), (429, kube_api.TooManyRequests)])
async def test_a_refused_stream_raises_on_entering(server, transport, code, kind, golden: Golden):
    server.answer(answers.status(code, message="too old resource version"))
    with pytest.raises(kind) as raised:
        async with transport.stream(NODES):
            pytest.fail("the block must not run")
    golden(str(raised.value))


async def test_a_stream_cut_off_midway_is_unreachable(server, transport):
    server.answer(streamed(b"first", abort=True))
    with pytest.raises(kube_api.Unreachable):
        await drained(transport)


async def test_a_silent_stream_is_unreachable_after_the_idle_timeout(server, transport):
    go_on = asyncio.Event()
    server.answer(streamed(b"first", then=go_on))
    with pytest.raises(kube_api.IdleTimeout):
        await drained(transport, idle_timeout=0.05)
    go_on.set()


async def truncated(request: web.Request) -> web.Response:
    assert request.transport is not None
    asyncio.get_running_loop().call_later(0.02, request.transport.abort)
    return web.Response(body=b"{", headers={"Content-Length": "100"})


@pytest.mark.parametrize("failure", ["timeout", "reset", "truncated"])
async def test_a_failed_response_is_freed_without_a_garbage_collection(server, transport, failure):
    go_on = asyncio.Event()
    match failure:
        case "timeout":
            server.answer(streamed(b"first", then=go_on))
        case "reset":
            server.answer(streamed(b"first", abort=True))
        case _:
            server.answer(truncated)
    with without_collections():
        with suppress(kube_api.Unreachable):
            await (transport.request("PUT", NODES) if failure == "truncated" else drained(transport, idle_timeout=0.05))
        await asyncio.sleep(0.01)  # the event loop forgets the connection
        found = [type(each).__name__ for each in unreachable_objects()]
    go_on.set()
    assert "ClientResponse" not in found


async def test_leaving_a_stream_closes_its_connection(server, transport):
    closed = asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while not closed.is_set():
                await response.write(b"tick")
                await asyncio.sleep(0.01)
        except (ConnectionError, asyncio.CancelledError):
            closed.set()
            raise
        return response

    server.answer(handle)

    async def follow() -> None:
        async with transport.stream(NODES) as chunks:
            async for _ in chunks:
                started.set()

    started = asyncio.Event()
    task = asyncio.create_task(follow())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(closed.wait(), timeout=10)


@pytest.mark.parametrize("error", [KeyError("mine"), OSError("mine"), TimeoutError("mine")])
async def test_errors_of_the_block_itself_pass_through(server, transport, error):
    server.answer(streamed(b"first"))
    with pytest.raises(type(error), match="mine"):
        async with transport.stream(NODES):
            raise error


# ── Login ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def token_file(tmp_path):
    file = tmp_path / "token"
    file.write_text("old\n")
    return file


@pytest.fixture
async def rotating(server: FakeServer, token_file) -> AsyncIterator[Transport]:
    login = Login(authorization="Bearer old")
    config = ServerConfig(server=server.url, login=login, token_file=str(token_file))
    async with Transport(config, credentials=TokenFileCredentials(login, str(token_file)), retries=QUICK) as each:
        yield each


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_rotated_token_is_read_again_after_a_401(server, rotating, token_file, method):
    token_file.write_text("new\n")
    server.answer(answers.needs_token("new"))
    body = {"kind": "Node"} if method == "POST" else None
    assert await rotating.request(method, NODES, body=body) == {"token": "Bearer new"}
    assert [request[3] for request in server.requests] == ([b'{"kind":"Node"}'] * 2 if body else [b"", b""])


async def test_a_refused_token_without_a_successor_is_unauthorized_at_once(server, rotating):
    server.answer(answers.needs_token("new"))
    with pytest.raises(kube_api.Unauthorized):
        await rotating.request("GET", NODES)
    assert len(server.requests) == 1


async def test_a_stream_renews_the_token_too(server, rotating, token_file):
    token_file.write_text("new")
    server.answer(answers.needs_token("new"))
    assert await drained(rotating) == b'{"token": "Bearer new"}'


async def test_borrowed_session_logs_in_and_renews_credentials(server, rotating, token_file):
    server.answer(answers.needs_token("old"))
    session = rotating.borrowed_session()
    async with session.get(f"{server.url}{NODES}") as response:
        assert await response.json() == {"token": "Bearer old"}
    token_file.write_text("new")
    server.answer(answers.needs_token("new"))
    async with session.get(f"{server.url}{NODES}") as response:
        assert await response.json() == {"token": "Bearer new"}
    await session.close()
    assert await rotating.request("GET", NODES) == {"token": "Bearer new"}  # closing it did not close the connector


async def test_a_token_is_never_sent_to_another_server(server, rotating):
    async with fake_server() as other:

        async def away(_request: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": f"{other.url}/stolen"})

        server.answer(away)
        session = rotating.borrowed_session()
        async with session.get(f"{server.url}{NODES}") as response:
            assert response.status == 200
        assert "Authorization" not in other.requests[0][2]


async def iterations_of(limiter: IterationLimiter, *, calls: int, cancel: tuple[int, ...] = ()) -> dict[int, int]:
    """Call concurrently, and return for each call that was not cancelled the iteration in which it continued."""
    continued: dict[int, int] = {}
    iteration = 0

    async def call(number: int) -> None:
        await limiter.take()
        continued[number] = iteration

    tasks = [asyncio.create_task(call(number)) for number in range(calls)]
    while not all(each.done() for each in tasks):
        await asyncio.sleep(0)
        iteration += 1
        if iteration == 1:
            for number in cancel:
                tasks[number].cancel()
    return continued


async def test_few_responses_are_handled_in_an_iteration_of_the_event_loop():
    continued = await iterations_of(IterationLimiter(4), calls=19)
    assert list(continued) == list(range(19))
    assert max(Counter(continued.values()).values()) == 4


async def test_a_caller_that_is_cancelled_takes_no_turn():
    limiter = IterationLimiter(2)
    continued = await iterations_of(limiter, calls=9, cancel=(3, 4, 8))
    assert list(continued) == [0, 1, 2, 5, 6, 7]
    assert list((await iterations_of(limiter, calls=2)).values()) == [0, 0], "no call is left waiting"


async def test_responses_that_arrive_together_are_all_returned(server, transport):
    together = asyncio.Barrier(20)

    async def handle(request: web.Request) -> web.Response:
        await together.wait()
        return web.json_response({"path": request.path})

    server.answer(*[handle] * 20)
    paths = [f"{NODES}/n{number}" for number in range(20)]
    answered = await asyncio.gather(*(transport.request("GET", path) for path in paths))
    assert [each["path"] for each in answered] == paths


async def test_request_that_waits_for_a_connection_is_not_sent_after_the_lease_is_lost(server):
    waiting, go_on, leads = asyncio.Event(), asyncio.Event(), True

    async def hold(_request: web.Request) -> web.Response:
        waiting.set()
        await go_on.wait()
        return web.json_response({})

    server.answer(hold, answers.json({}))
    async with Transport(ServerConfig(server=server.url), connections=1) as transport:
        first = asyncio.create_task(transport.request("GET", NODES))
        await waiting.wait()
        second = asyncio.create_task(transport.request("DELETE", f"{NODES}/n1", leading=lambda: leads))
        await asyncio.sleep(0.05)
        leads = False
        go_on.set()
        with pytest.raises(kube_api.NotLeading):
            await second
        await first
        await transport.request("GET", NODES)
    assert [method for method, *_ in server.requests] == ["GET", "GET"]


@pytest.mark.parametrize("method", ["GET", "DELETE", "PATCH"])
@pytest.mark.parametrize("last", range(3))
async def test_leadership_is_checked_until_the_request_is_written(server, transport, method, last):
    """A request with a body is written by a task that aiohttp starts, so that the process may be stopped before it."""
    asked: list[bool] = []

    def leading() -> bool:
        asked.append(len(asked) < last)
        return asked[-1]

    body = None if method == "GET" else {"uid": "1"}
    refused = last < 1 or (last < 2 and body is not None)
    try:
        await transport.request(method, f"{NODES}/n1", body=body, leading=leading)
        assert not refused
    except kube_api.NotLeading:
        assert refused
    await transport.request("GET", NODES)  # the connection pool is usable
    assert [each[0] for each in server.requests] == [*([] if refused else [method]), "GET"]
    assert asked.count(False) <= 1, "a refused request is not retried"
