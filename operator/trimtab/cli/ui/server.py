"""Serves the live page on loopback, to the user who started it only.

What protects the page, and against whom:

- Other machines: the server listens on loopback addresses only.
- Other users of this machine: a random token in the URL, which becomes a cookie (HttpOnly, SameSite=Strict).
- Other web pages in the same browser: the cookie is not sent by them, a request with another Origin is refused, no
  CORS header is sent, and no page may frame this one.
- DNS rebinding: a request for another host name than a loopback one is refused.
- Names and messages in the cluster, which tenants choose: the page builds text nodes only, and its content security
  policy permits no inline script or style and requires trusted types.
- The server only reads, and only answers GET.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.resources import files
from typing import Any, Final

import msgspec
from aiohttp import web
from msgspec.structs import replace

from trimtab.cli.ui.answers import explain, search
from trimtab.cli.ui.page import LivePage
from trimtab.cluster.shared_snapshot import in_thread
from trimtab.kube.errors import InputError

LOOPBACK: Final = frozenset(("127.0.0.1", "localhost", "[::1]"))
"""The host names by which a browser may address the page."""

ASSETS: Final = {
    "style.css": "text/css",
    "inspector.css": "text/css",
    "app.js": "text/javascript",
    "dom.js": "text/javascript",
    "heatmap.js": "text/javascript",
    "inspector.js": "text/javascript",
    "table.js": "text/javascript",
    "tabs.js": "text/javascript",
    "theme.js": "text/javascript",
}
"""The files that the page loads, with their media types."""

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

MAX_PAGES: Final = 16
"""Maximum number of open pages."""

MAX_QUERY: Final = 1024
"""Maximum length of a search text or a name."""

HEARTBEAT: Final = 10.0
"""Seconds without a change after which a comment is sent, so that both sides notice a broken connection."""

SEND_TIMEOUT: Final = 10.0
"""Seconds that a page has to read one update."""

_LOGIN: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta http-equiv="refresh" content="0;url=/"><link rel="icon" href="data:,"><title>trimtab</title></head>
<body><p><a href="/">Continue</a></p></body>
</html>"""
"""The response to the URL with the token.

It is a page rather than a redirect: browsers do not send SameSite=Strict cookies after redirects from other sites, as
when the URL was opened from a web terminal. The page also replaces the URL with the token in the browser's history.
Like all pages here it has an empty icon: browsers ask for ``/favicon.ico`` otherwise.
"""

_NO_TOKEN: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"><title>trimtab</title></head>
<body><h1>Not signed in</h1><p>Open the URL that <code>trimtab ui</code> printed. It contains a token.</p></body></html>
"""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PageServer:
    """Serves a page on 127.0.0.1.

    Args:
        page: the page.
        port: the port; 0 for a free one.

    Attributes:
        token: the secret in the URL.
    """

    def __init__(self, page: LivePage, *, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(32)
        self._page = page
        self._port = port
        self._cookie = secrets.token_urlsafe(32)
        self._tickets: set[str] = set()
        self._pages = 0
        self._runner: web.AppRunner | None = None
        self._assets = {name: files("trimtab.cli.ui").joinpath("assets", name).read_bytes() for name in ASSETS}
        self._html = files("trimtab.cli.ui").joinpath("assets", "index.html").read_bytes()

    @property
    def url(self) -> str:
        """Return the URL for the user. Everybody who knows it can read what the user can read."""
        return f"http://127.0.0.1:{self._port}/?token={self.token}"

    def one_time_url(self) -> str:
        """Return a URL that works once, because other users can read the command line of a browser that is started."""
        ticket = secrets.token_urlsafe(32)
        self._tickets.add(ticket)
        return f"http://127.0.0.1:{self._port}/?token={ticket}"

    async def start(self) -> None:
        """Start listening.

        Raises:
            OSError: the port is in use.
        """

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._guard(request, handler)

        app = web.Application(middlewares=[guard])
        app.router.add_get("/", self._index)
        app.router.add_get("/assets/{name}", self._asset)
        app.router.add_get("/events", self._events)
        app.router.add_get("/explain", self._explain)
        app.router.add_get("/search", self._search)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening, and close the open pages."""
        if self._runner is not None:
            await self._runner.cleanup()

    # --- protection -----------------------------------------------------------------------------------------------

    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        refused = self._refusal(request)
        response: web.StreamResponse
        try:
            response = await handler(request) if refused is None else refused
        except web.HTTPException as error:
            response = web.Response(status=error.status, text=error.reason)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def _refusal(self, request: web.Request) -> web.Response | None:
        """Return the response if the request must be refused; ``None`` if it is admitted."""
        host = request.headers.get("Host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name not in LOOPBACK:
            return web.Response(status=421, text="This server only answers requests for a loopback address.")
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, text="The page only reads.", headers={"Allow": "GET, HEAD"})
        origin = request.headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            return web.Response(status=403, text="Requests of other web pages are refused.")
        if request.path == "/" and "token" in request.query:
            return None
        if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
            return web.Response(status=403, text="Requests of other web pages are refused.")
        if not _equal(request.cookies.get(self._cookie_name, ""), self._cookie):
            return web.Response(status=401, text=_NO_TOKEN, content_type="text/html")
        return None

    @property
    def _cookie_name(self) -> str:
        return f"trimtab-ui-{self._port}"  # browsers share cookies among all ports of a host

    # --- handlers -------------------------------------------------------------------------------------------------

    async def _index(self, request: web.Request) -> web.Response:
        given = request.query.get("token")
        if given is None:
            return web.Response(body=self._html, content_type="text/html", charset="utf-8")
        ticket = next((each for each in self._tickets if _equal(given, each)), None)
        if ticket is not None:
            self._tickets.discard(ticket)
        elif not _equal(given, self.token):
            return web.Response(status=401, text=_NO_TOKEN, content_type="text/html")
        response = web.Response(text=_LOGIN, content_type="text/html")
        response.set_cookie(self._cookie_name, self._cookie, httponly=True, samesite="Strict", path="/")
        return response

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in ASSETS:
            raise web.HTTPNotFound
        return web.Response(body=self._assets[name], content_type=ASSETS[name], charset="utf-8")

    async def _search(self, request: web.Request) -> web.Response:
        text = request.query.get("q", "")[:MAX_QUERY]
        async with self._page.source.borrow() as cluster:
            found = await in_thread(lambda: search(cluster, text))
        return _json(found)

    async def _explain(self, request: web.Request) -> web.Response:
        kind, name = request.query.get("kind", ""), request.query.get("name", "")[:MAX_QUERY]
        source = self._page.source
        fields = await source.managed_fields(name) if kind == "node" and name else ()
        async with source.borrow() as cluster:
            known = replace(cluster, managed_fields={("Node", name): fields}) if fields else cluster
            try:
                document = await in_thread(lambda: explain(known, kind, name, plan=self._page.plan))
            except InputError as error:
                return _json({"error": str(error)}, status=404)
        return _json(document)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send the state and then its changes as server-sent events, until the page is closed or too slow."""
        if self._pages >= MAX_PAGES:
            return web.Response(status=503, text=f"{MAX_PAGES} pages are open already.")
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        self._pages += 1
        queue = self._page.subscribe()
        try:
            while (message := await _next(queue)) is not None:
                async with asyncio.timeout(SEND_TIMEOUT):
                    await response.write(message)
        except (TimeoutError, ConnectionError):
            pass
        finally:
            self._pages -= 1
            self._page.unsubscribe(queue)
            if request.transport is not None:
                request.transport.abort()  # a page that does not read would keep the connection open
        return response


async def _next(queue: asyncio.Queue[bytes | None]) -> bytes | None:
    """Return the next event, a comment if there is none for a while, or ``None`` if the page is to be closed."""
    with suppress(TimeoutError):
        async with asyncio.timeout(HEARTBEAT):
            message = await queue.get()
        return None if message is None else b"data: " + message + b"\n\n"
    return b": no change\n\n"


def _equal(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), secret.encode())


def _json(content: Any, *, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(content), content_type="application/json", status=status)
