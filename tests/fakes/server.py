"""A real HTTP server on loopback that answers what a test tells it to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class FakeServer:
    """`answers` are given in turn, the last one for ever; `requests` are (method, path with query, headers, body)."""

    url: str = ""
    answers: list[Handler] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)

    def answer(self, *handlers: Handler) -> None:
        self.answers[:] = handlers

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs, dict(request.headers), await request.read()))
        handler = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await handler(request)


@asynccontextmanager
async def fake_server(**options: Any) -> AsyncIterator[FakeServer]:
    """Run a server; `options` go to aiohttp's TestServer.start_server (`ssl=`)."""
    fake = FakeServer(answers=[json({})])
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", fake._handle)
    server = TestServer(app, scheme="https" if options.get("ssl") else "http")
    await server.start_server(**options)
    fake.url = str(server.make_url("")).rstrip("/")
    try:
        yield fake
    finally:
        await server.close()


def json(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Handler:
    async def handle(_request: web.Request) -> web.StreamResponse:
        return web.json_response(value, status=status, headers=headers)

    return handle


def text(value: str, *, status: int = 200, content_type: str = "text/plain") -> Handler:
    async def handle(_request: web.Request) -> web.StreamResponse:
        return web.Response(text=value, status=status, content_type=content_type)

    return handle


def status(code: int, *, reason: str = "", message: str = "", details: Any = None, **headers: str) -> Handler:
    """A metav1.Status of failure."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    body |= {"message": message} | ({"details": details} if details else {})
    return json(body, status=code, headers={key.replace("_", "-"): value for key, value in headers.items()})


async def cut(request: web.Request) -> web.StreamResponse:
    """Drop the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def needs_token(*tokens: str) -> Handler:
    """401 unless the bearer token is one of these."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") in [f"Bearer {token}" for token in tokens]:
            return web.json_response({"token": request.headers["Authorization"]})
        return await status(401, reason="Unauthorized", message="Unauthorized")(request)

    return handle
