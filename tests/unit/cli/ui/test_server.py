"""The server of the live page: who is answered, and with which headers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.builders import node
from tests.unit.descheduling.planning import NOW, built
from trimtab.cli.ui.page import QUEUE, LivePage
from trimtab.cli.ui.server import ASSETS, PageServer
from trimtab.cli.ui.sources import FileSource, ReadOnly
from trimtab.cli.ui.view import View
from trimtab.cluster.snapshot import Snapshot
from trimtab.inspection.cluster import ClusterInput


@pytest.fixture
def page() -> LivePage:
    return LivePage(FileSource(ClusterInput(snapshot=Snapshot(built([node("n1")])), now=NOW, source="test")))


@pytest.fixture
async def server(page: LivePage) -> AsyncIterator[PageServer]:
    server = PageServer(page)
    await server.start()
    running = asyncio.create_task(page.run())
    yield server
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await server.stop()


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield session


def base(server: PageServer) -> str:
    return server.url.partition("/?")[0]


async def test_page_needs_the_token(server: PageServer, client: aiohttp.ClientSession) -> None:
    for path in ("/", "/events", "/search?q=a", "/explain?kind=node&name=n1", "/assets/app.js", "/?token=wrong"):
        async with client.get(base(server) + path) as response:
            assert response.status == 401, path
    async with client.get(server.url) as response:
        assert response.status == 200
        cookie = response.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert server.token not in cookie
    async with client.get(base(server) + "/") as response:
        assert response.status == 200
        policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


async def test_one_time_url_works_once(server: PageServer, client: aiohttp.ClientSession) -> None:
    url = server.one_time_url()
    for expected in (200, 401):
        async with client.get(url) as response:
            assert response.status == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example:80"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({}, 200),
    ],
)
async def test_requests_of_other_pages_are_refused(
    server: PageServer, client: aiohttp.ClientSession, headers: dict[str, str], expected: int
) -> None:
    async with client.get(server.url):
        pass
    async with client.get(f"{base(server)}/search?q=n1", headers=headers) as response:
        assert response.status == expected
        assert not [name for name in response.headers if name.startswith("Access-Control")]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_only_get_is_answered(server: PageServer, client: aiohttp.ClientSession, method: str) -> None:
    async with client.request(method, server.url) as response:
        assert response.status == 405


async def test_first_event_contains_the_complete_state(server: PageServer, client: aiohttp.ClientSession) -> None:
    async with client.get(server.url):
        pass
    async with client.get(f"{base(server)}/events") as response:
        while (line := await asyncio.wait_for(response.content.readline(), 10)) and b'"state"' not in line:
            pass
    event = json.loads(line.removeprefix(b"data: "))
    assert [row[0] for row in event["content"]["rows"]] == ["n1"]


async def test_page_that_reads_no_updates_is_disconnected(page: LivePage, server: PageServer) -> None:
    waiting = page.subscribe()
    await asyncio.wait_for(waiting.get(), 10)
    queue = page.subscribe()
    for number in range(QUEUE + 1):
        page._publish(View({}, {"head": str(number).encode()}))
    assert queue.get_nowait() is None


async def test_only_get_requests_reach_the_api_server() -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        with pytest.raises(PermissionError):
            await ReadOnly(None).request(method, "/api/v1/nodes")  # type: ignore[arg-type]


@pytest.fixture
async def signed_in(server: PageServer, client: aiohttp.ClientSession) -> aiohttp.ClientSession:
    async with client.get(server.url):
        return client


@pytest.mark.parametrize("name", list(ASSETS))
async def test_assets_have_their_media_type(server: PageServer, signed_in: aiohttp.ClientSession, name: str) -> None:
    async with signed_in.get(f"{base(server)}/assets/{name}") as response:
        assert (response.status, response.content_type) == (200, ASSETS[name])


@pytest.mark.parametrize("path", ["/assets/secret.js", "/nothing"])
async def test_unknown_paths_are_not_found(server: PageServer, signed_in: aiohttp.ClientSession, path: str) -> None:
    async with signed_in.get(base(server) + path) as response:
        assert response.status == 404
        assert response.headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize(("kind", "name", "status"), [("node", "n1", 200), ("node", "n9", 404), ("secret", "a", 404)])
async def test_objects_are_explained(
    server: PageServer, signed_in: aiohttp.ClientSession, kind: str, name: str, status: int
) -> None:
    async with signed_in.get(f"{base(server)}/explain", params={"kind": kind, "name": name}) as response:
        assert response.status == status
        document = await response.json()
    assert ("error" in document) == (status == 404)


async def test_number_of_open_pages_is_limited(
    server: PageServer, signed_in: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab.cli.ui.server.MAX_PAGES", 1)
    async with signed_in.get(f"{base(server)}/events") as first:
        await asyncio.wait_for(first.content.readline(), 10)
        async with signed_in.get(f"{base(server)}/events") as second:
            assert (first.status, second.status) == (200, 503)


async def test_idle_page_gets_a_comment(
    page: LivePage, server: PageServer, signed_in: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab.cli.ui.server.HEARTBEAT", 0.01)
    async with signed_in.get(f"{base(server)}/events") as response:
        while (await asyncio.wait_for(response.content.readline(), 10)) != b": no change\n":
            pass
