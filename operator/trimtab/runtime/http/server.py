"""The HTTP server of probes, metrics and webhooks, which limits the memory and CPU that its clients can use.

Any client that reaches the port may open connections, send incomplete requests, or flood it with requests. The server
admits or refuses a connection when it accepts it, before it creates a parser, a TLS session or a task::

    accept -> admit (total, per client) -> TLS handshake -> parse -> admit the request (rate) -> route -> send
                 |                             |               |            |                             |
               reset                        timeout         size, timeout    429, close                  timeout

A refused connection costs one ``accept`` and one ``close``, and the server accepts at most :data:`ACCEPT_BATCH`
connections before the event loop runs other tasks. If all connections are in use and a client with few connections
opens another one, the server closes the oldest connection of the client that has the most connections. A flood from one
address therefore cannot lock out the kubelet or Prometheus.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, cast

from aiohttp import web
from msgspec import Struct

from trimtab.api import reasons
from trimtab.kube.token_bucket import KeyedTokenBuckets, TokenBucket
from trimtab.runtime.http.posts import ConnectionCounts, PostHandler, PostServer

log = logging.getLogger(__name__)

Handler = Callable[[web.BaseRequest], Awaitable[web.Response]]
"""Handles the requests for one path."""

OnRefused = Callable[[str], None]
"""Called with the reason code of each refused connection or request."""

ACCEPT_BATCH: Final = 64
ACCEPT_PAUSE: Final = 0.01
"""Seconds between two batches of :data:`ACCEPT_BATCH` accepted connections. The pause limits connections to 6,400 per
second, whether they are admitted or refused.

A refused connection costs about 20 microseconds. With a lower limit, a flood would fill the kernel's queue, and a probe
would wait there for seconds.
"""
NO_DESCRIPTOR_PAUSE: Final = 1.0
"""Seconds for which the server accepts no connections after it ran out of file descriptors or memory (asyncio's
value)."""

_BACKLOG: Final = 1024
_STOP_TIMEOUT: Final = 1.0
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with a timeout of 0: the kernel resets a refused connection instead of keeping it in TIME_WAIT."""
_QUIET: Final = logging.getLogger(f"{__name__}.aiohttp")
_QUIET.setLevel(logging.CRITICAL + 1)  # aiohttp logs a traceback for each malformed request


class Limits(Struct, frozen=True, kw_only=True):
    """The limits for the clients of one server.

    Attributes:
        connections: maximum number of open connections.
        connections_per_client: maximum number of open connections of one client address.
        requests_per_second: maximum rate of requests of one client address, over all its connections; the same limit
            applies to its new connections. ``None`` for no limit, for clients behind a network policy.
        requests_per_second_in_all: maximum rate of requests of all clients together. It does not count the first
            request of each client within a second, so that many busy clients cannot lock out a client that sends few
            requests. ``None`` for no limit.
        requests_per_connection: number of requests after which the server closes a connection; ``None`` for no limit.
        request_bytes: maximum size of a request line, its header fields and pipelined data.
        body_bytes: maximum size of the body of a POST request.
        timeout: seconds for a TLS handshake, for receiving the next complete request, and for sending a response.
        keepalive: seconds after which the server closes an idle connection; ``None`` for ``timeout``. A client may send
            a request at the moment at which the server closes the connection. Clients that must not lose a request
            should therefore close idle connections earlier than the server.
    """

    connections: int = 64
    connections_per_client: int = 16
    requests_per_second: float | None = 10.0
    requests_per_second_in_all: float | None = 50.0
    requests_per_connection: int | None = 100
    request_bytes: int = 32768
    body_bytes: int = 0
    timeout: float = 10.0
    keepalive: float | None = None


class HttpServer:
    """Serves a fixed set of paths and prefixes on the event loop on which :meth:`start` is called.

    Args:
        host: the address to listen on; ``""`` for all IPv4 and IPv6 addresses.
        port: the port; 0 for any free port, which :attr:`port` returns.
        routes: the handlers of GET and HEAD, by path.
        posts: the handlers of POST, by path. A server that has some has neither ``routes`` nor ``prefixes``.
        prefixes: the handlers of GET and HEAD for paths that have no handler in ``routes``, by their first segment,
            such as ``/apis``.
        limits: the limits for clients; ``None`` for the defaults.
        tls: returns the TLS context of the next connection; ``None`` for plain HTTP.
        refused: called with the reason code of each refusal.

    Raises:
        ValueError: the server has handlers of POST and of other methods.

    Attributes:
        port: the port on which the server listens.
        addresses: host and port of each listening socket.
    """

    def __init__(
        self,
        host: str,
        port: int,
        routes: Mapping[str, Handler],
        *,
        posts: Mapping[str, PostHandler] | None = None,
        prefixes: Mapping[str, Handler] | None = None,
        limits: Limits | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
        refused: OnRefused = lambda _reason: None,
    ) -> None:
        if posts and (routes or prefixes):
            raise ValueError("a server with handlers of POST cannot have handlers of other methods")
        self.port = port
        self.addresses: list[tuple[str, int]] = []
        self._host = host
        self._routes = routes
        self._posts = posts or {}
        self._prefixes = prefixes or {}
        self._draining = False
        self._limits = limits or Limits()
        self._tls = tls
        self._refused = refused
        self._listeners: list[socket.socket] = []
        self._clients: dict[str, dict[_Connection, None]] = {}
        self._open: dict[asyncio.BaseTransport, _Connection] = {}
        self._number = 0
        self._http: web.Server | PostServer | None = None

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return self._number

    async def start(self) -> None:
        """Start listening.

        Raises:
            OSError: the address is already in use.
        """
        limits, self._loop = self._limits, asyncio.get_running_loop()
        now, rate, total = self._loop.time(), limits.requests_per_second, limits.requests_per_second_in_all
        self._requests = None if total is None else TokenBucket(rate=total, burst=2 * total, now=now)
        self._requests_of: KeyedTokenBuckets[str] = KeyedTokenBuckets(rate, burst=2 * (rate or 1.0))
        self._first_of: KeyedTokenBuckets[str] = KeyedTokenBuckets(min(rate or 1.0, 1.0), burst=2.0)
        self._arrivals_of: KeyedTokenBuckets[str] = KeyedTokenBuckets(
            rate, burst=2 * max(rate or 1.0, limits.connections_per_client)
        )
        self._http = self._post_server() if self._posts else self._web_server()
        infos = await self._loop.getaddrinfo(
            self._host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for listener in _listeners(dict.fromkeys((family, address) for family, *_, address in infos)):
                self._listeners.append(listener)
                self._loop.add_reader(listener, self._accept, listener)
        except OSError:
            self._stop_listening()
            raise
        self.addresses = [listener.getsockname()[:2] for listener in self._listeners]
        self.port = self.addresses[0][1]

    def _web_server(self) -> web.Server:
        limits = self._limits
        return web.Server(
            self._answer,
            access_log=None,
            logger=_QUIET,
            keepalive_timeout=limits.timeout if limits.keepalive is None else limits.keepalive,
            lingering_time=0.0,
            auto_decompress=False,
            tcp_keepalive=False,
            max_headers=64,
            max_field_size=16384,  # a token in a header field; request_bytes bounds their sum
        )

    def _post_server(self) -> PostServer:
        return PostServer(
            self._posts,
            self._limits,
            within_rate=self._within_rate,
            closes=self._closes,
            refused=self._refused,
        )

    def drain(self) -> None:
        """Close each connection after its next response, so that clients open new ones to other replicas.

        New connections are still accepted, because clients learn only later that they should use other replicas.
        """
        self._draining = True

    async def stop(self) -> None:
        """Stop listening and close the connections. In-flight requests have a second to end."""
        self._stop_listening()
        if self._http is not None:
            await self._http.shutdown(_STOP_TIMEOUT)
        for connection in [each for connections in self._clients.values() for each in connections]:
            connection.abort()
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_TIMEOUT):
                while self._number:  # noqa: ASYNC110 (there is no event for the last one)
                    await asyncio.sleep(0.001)

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        self._listeners = []

    # ── Connections ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _accept(self, listener: socket.socket) -> None:
        """Accept waiting connections, at most one batch before other tasks of the event loop run."""
        for _ in range(ACCEPT_BATCH):
            try:
                accepted, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("Failed to accept a connection on port %d: %s", self.port, error)
                self._pause(listener, NO_DESCRIPTOR_PAUSE)
                return
            client = str(address[0])
            reason = self._refusal_reason(client)
            if reason is not None:
                self._refused(reason)
                _reset(accepted)
                continue
            accepted.setblocking(False)
            self._connect(accepted, client)
        self._pause(listener, ACCEPT_PAUSE)

    def _pause(self, listener: socket.socket, seconds: float) -> None:
        self._loop.remove_reader(listener)
        self._loop.call_later(seconds, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)

    def _refusal_reason(self, client: str) -> str | None:
        """Return the reason code if a client's connection must be refused; ``None`` if it is admitted."""
        count = len(self._clients.get(client, ()))
        if count >= self._limits.connections_per_client:
            return reasons.TOO_MANY_CONNECTIONS
        if not self._arrivals_of.take(client, self._loop.time()):
            return reasons.TOO_MANY_REQUESTS
        if self._number >= self._limits.connections:
            largest = max(self._clients.values(), key=len)
            if len(largest) <= count + 1:
                return reasons.TOO_MANY_CONNECTIONS
            oldest = next(iter(largest))
            self._ended(oldest, None)  # immediately, because its transport reports the end only after this batch
            oldest.abort()
            self._refused(reasons.TOO_MANY_CONNECTIONS)
        return None

    def _connect(self, accepted: socket.socket, client: str) -> None:
        connection = _Connection(client, accepted, self._connected, self._ended, self._refused)
        self._clients.setdefault(client, {})[connection] = None
        self._number += 1
        assert self._http is not None
        connection.start(self._loop, self._http, self._tls, self._limits)

    def _connected(self, connection: _Connection, transport: asyncio.BaseTransport) -> None:
        self._open[transport] = connection

    def _ended(self, connection: _Connection, transport: asyncio.BaseTransport | None) -> None:
        if transport is not None:
            self._open.pop(transport, None)
        connections = self._clients.get(connection.client, {})
        if connection not in connections:  # the connection was displaced earlier
            return
        del connections[connection]
        self._number -= 1
        if not connections:
            del self._clients[connection.client]

    # ── Requests ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = None if request.transport is None else self._open.get(request.transport)
        if connection is None:
            raise ConnectionResetError("the client has disconnected")
        connection.requests += 1
        connection.pending_bytes = 0
        response = await self._route(request, connection.client)
        if response.status >= 400 or self._closes(connection):
            response.force_close()
        await response.prepare(request)
        await response.write_eof()
        return response

    async def _route(self, request: web.BaseRequest, client: str) -> web.Response:
        if not self._within_rate(client):
            self._refused(reasons.TOO_MANY_REQUESTS)
            return web.Response(status=429, headers={"Retry-After": "1"})
        try:
            handler = self._routes.get(request.path) or self._prefixes.get(_first_segment(request.path))
            if handler is None:
                return web.Response(status=404)
            if request.method not in ("GET", "HEAD"):
                return web.Response(status=405, headers={"Allow": "GET, HEAD"})
            return await handler(request)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception:
            log.exception("Failed to process the HTTP request %s: unexpected error", request.path)
            return web.Response(status=500)

    def _closes(self, connection: ConnectionCounts) -> bool:
        """Return whether a connection must be closed after its current response."""
        most = self._limits.requests_per_connection
        return self._draining or (most is not None and connection.requests >= most)

    def _within_rate(self, client: str) -> bool:
        now = self._loop.time()
        if not self._requests_of.take(client, now):
            return False
        return self._requests is None or self._first_of.take(client, now) or self._requests.take(now)


def _first_segment(path: str) -> str:
    """Return the first segment of a path with its slash: ``/apis`` for ``/apis/apps/v1``."""
    return "/".join(path.split("/", 2)[:2])


class _Connection(asyncio.Protocol):
    """Passes data from the transport to the parser, counts bytes, and reports the end of the connection once.

    Attributes:
        client: the address of the client.
        requests: number of served and refused requests.
        pending_bytes: bytes received since the handling of the last request started.
        counted: whether the client closed the connection, or a refusal has been counted already.
    """

    def __init__(
        self,
        client: str,
        accepted: socket.socket,
        connected: Callable[[_Connection, asyncio.BaseTransport], None],
        ended: Callable[[_Connection, asyncio.BaseTransport | None], None],
        refused: OnRefused,
    ) -> None:
        self.client = client
        self.requests = 0
        self.pending_bytes = 0
        self.counted = False
        self._socket = accepted
        self._connected = connected
        self._ended = ended
        self._refused = refused
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._unread: asyncio.TimerHandle | None = None

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        http: web.Server | PostServer,
        tls: Callable[[], ssl.SSLContext] | None,
        limits: Limits,
    ) -> None:
        """Attach the accepted socket. If TLS is used, this happens after the handshake."""
        self._loop, self._timeout = loop, limits.timeout
        self._most = limits.request_bytes + limits.body_bytes
        self._http = http(self) if isinstance(http, PostServer) else http()
        self._task = loop.create_task(self._connect(loop, tls, limits.timeout), name="http connection")
        self._task.add_done_callback(self._connecting_ended)

    async def _connect(
        self, loop: asyncio.AbstractEventLoop, tls: Callable[[], ssl.SSLContext] | None, timeout: float
    ) -> None:
        try:
            if tls is None:
                await loop.connect_accepted_socket(lambda: self, self._socket)
            else:
                await loop.connect_accepted_socket(
                    lambda: self, self._socket, ssl=tls(), ssl_handshake_timeout=timeout, ssl_shutdown_timeout=timeout
                )
        except OSError:  # the handshake failed or timed out
            self._refused(reasons.INCOMPLETE_REQUEST)

    def _connecting_ended(self, task: asyncio.Task[None]) -> None:
        """Clean up if there is no transport: the handshake failed, or the connection was displaced earlier."""
        self._task = None
        if self._transport is None:
            self._socket.close()
            self._ended(self, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("Failed to serve an HTTP connection: %r", error)

    def abort(self) -> None:
        """Close the connection without sending buffered data."""
        self.counted = True
        if self._transport is not None:
            self._transport.abort()
        elif self._task is not None:
            self._task.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport is not a subclass
        self._connected(self, transport)
        self._http.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.pending_bytes += len(data)
        if self.pending_bytes > self._most:
            self._refused(reasons.REQUEST_TOO_LARGE)
            self.abort()
            return
        self._http.data_received(data)

    def eof_received(self) -> bool | None:
        self.counted = True
        self._http.eof_received()
        return None

    def pause_writing(self) -> None:
        """Give the client a limited time to read the response. A timer for each response would take longer to set."""
        self._unread = self._loop.call_later(self._timeout, self._abort_slow_client)
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._stop_waiting_for_client()
        self._http.resume_writing()

    def _stop_waiting_for_client(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _abort_slow_client(self) -> None:
        self._refused(reasons.SLOW_CLIENT)
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting_for_client()
        if exc is None and self.pending_bytes and not self.counted:
            self._refused(reasons.INCOMPLETE_REQUEST)
        self._ended(self, self._transport)
        self._http.connection_lost(exc)


def _listeners(places: Iterable[tuple[int, tuple[Any, ...]]]) -> Iterable[socket.socket]:
    """Open a listening socket for each address. If the port is 0, all of them use the free port of the first one."""
    port = 0
    for family, address in places:
        try:
            listener = socket.socket(family, socket.SOCK_STREAM)
        except OSError:  # the system does not support this address family
            continue
        try:
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((address[0], address[1] or port, *address[2:]))
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        port = listener.getsockname()[1]
        yield listener


def _reset(accepted: socket.socket) -> None:
    try:
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    finally:
        accepted.close()
