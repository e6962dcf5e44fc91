"""The HTTP transport to the API server: one aiohttp connector, TLS context and identity for the whole process.

Kopf shares the connector. It closes its session when it stops or when credentials are rejected, so it uses separate
sessions of the same connector (:meth:`Transport.borrowed_session`). A client middleware adds and renews credentials, so
that Kopf's requests renew tokens in the same way as trimtab's.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakSet

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from trimtab import __version__
from trimtab.kube.api import (
    ApiError,
    IdleTimeout,
    NotLeading,
    ServerError,
    TooManyRequests,
    Unreachable,
    error_from_response,
)
from trimtab.kube.connection.config import ServerConfig
from trimtab.kube.connection.credentials import Credentials, LoginMiddleware, credentials_for, tls_context
from trimtab.kube.retry import READS, Backoff

logger = logging.getLogger(__name__)

USER_AGENT: Final = f"trimtab/{__version__}"
CONNECT_TIMEOUT: Final = 10.0
"""Timeout of a TCP connection in seconds. It allows for one or two lost packets."""
DEAD_PEER_TIMEOUT: Final = 30.0
"""The kernel closes a connection if the peer acknowledges no data for this number of seconds."""
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
MAX_ERROR_BYTES: Final = 2**16
"""Maximum number of bytes read from the error response of a stream."""
RESPONSES_PER_ITERATION: Final = 2
"""Maximum number of responses that are returned to their callers in one iteration of the event loop.

The event loop sends the requests of an iteration at its end. An API server that has many requests of the same kind
answers most of them at once. If all callers continued in one iteration, the server would be idle until the last of them
had handled its response and prepared its next request.
"""
BODY_SLICE: Final = 2**12
"""Maximum number of bytes of a request's body that are written at once."""
TLS_CLOSE_TIMEOUT: Final = 0.5
"""Maximum seconds that :meth:`Transport.close` waits for TLS connections to shut down, before it ends them."""

Observe = Callable[[str, int, float], None]
"""Callback for each request, with the method, the HTTP status (0 for no response) and the duration in seconds.

The duration of a stream is the time until its body begins.
"""


class Transport:
    """Implements :class:`trimtab.kube.api.Api` over HTTP. Use it as an async context manager, or call :meth:`close`.

    It retries GET requests within their timeout if there is no response, or if the server is overloaded (429) or fails
    (5xx). It does not retry other requests, because only the caller knows whether a write may be repeated. (aiohttp
    itself repeats a PUT or DELETE if a pooled connection turns out to be closed. All PUT and DELETE requests of trimtab
    have a resourceVersion or a UID, so that a repetition can at worst report ``Conflict`` or ``NotFound`` for a request
    that succeeded.)
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        credentials: Credentials | None = None,
        retries: Backoff = READS,
        connections: int = 64,
        observe: Observe | None = None,
    ) -> None:
        """Create a transport. It needs no event loop before the first request.

        Args:
            config: the server and the identity.
            credentials: supplies and renews the credentials; by default those of the configuration.
            retries: the backoff of GET requests.
            connections: maximum number of connections. Each watch occupies one.
            observe: called for each request, for metrics.

        Raises:
            InputError: a certificate of the configuration is not usable.
        """
        self.config = config
        self._credentials = credentials or credentials_for(config)
        self._retries = retries
        self._connections = connections
        self._observe = observe or (lambda _method, _status, _seconds: None)
        self._tls = tls_context(config)
        self._login = LoginMiddleware(config, self._credentials, self._tls)
        self._connector: Connector | None = None
        self._sessions: list[aiohttp.ClientSession] = []
        self._own: aiohttp.ClientSession | None = None
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._iterations = IterationLimiter(RESPONSES_PER_ITERATION)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def server(self) -> str:
        """Return the base URL of the API server, for Kopf's ``AiohttpSession(server=)``."""
        return self.config.server

    @property
    def default_namespace(self) -> str:
        """Return the default namespace, which is that of the kubeconfig context or of the pod."""
        return self.config.namespace

    async def close(self) -> None:
        """Close all sessions, including borrowed ones, and all connections. This method may be called twice."""
        sessions, self._sessions, self._own = self._sessions, [], None
        for session in sessions:
            await session.close()
        connector, self._connector = self._connector, None
        if connector is not None:
            await connector.close()
            await self._close_sockets()

    async def _close_sockets(self) -> None:
        """Wait until the connections of cancelled requests have shut down TLS, and end those whose server is slow.

        A connection that is still open when the event loop closes would never be closed.
        """
        await self._wait_for_closed_sockets()
        for each in [each for each in self._sockets if each.fileno() >= 0]:
            with suppress(OSError):  # it was never connected, or the server has just closed it
                each.shutdown(socket.SHUT_RDWR)
        await self._wait_for_closed_sockets()

    async def _wait_for_closed_sockets(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TLS_CLOSE_TIMEOUT
        while any(each.fileno() >= 0 for each in self._sockets) and loop.time() < deadline:  # noqa: ASYNC110 (no event)
            await asyncio.sleep(0.002)

    def borrowed_session(self, *middlewares: aiohttp.ClientMiddlewareType) -> aiohttp.ClientSession:
        """Create a session with the same connector, credentials and User-Agent, which the caller may close.

        Use it for ``kopf.AiohttpSession(aiohttp_session=transport.borrowed_session(), server=transport.server,
        default_namespace=transport.default_namespace)``, and create a new session for each login of Kopf. :meth:`close`
        closes sessions that are still open. Call this method on the event loop.

        Args:
            middlewares: the middlewares that wrap each request before the credentials are added.
        """
        if self._connector is None:
            self._connector = Connector(
                limit=self._connections,
                ssl=self._tls if self._tls is not None else True,
                keepalive_timeout=60.0,
                socket_factory=self._socket,
            )
        session = aiohttp.ClientSession(
            connector=self._connector,
            connector_owner=False,
            headers={"User-Agent": USER_AGENT, "Accept": "application/json"},
            request_class=Request,
            middlewares=(*middlewares, self._login),
            proxy=self.config.proxy or None,
            read_bufsize=2**20,  # pages of lists have megabytes; the default of 64 KiB causes many wake-ups
        )
        self._sessions = [*(each for each in self._sessions if not each.closed), session]
        return session

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "",
        timeout: float = 30.0,
        leading: Callable[[], bool] | None = None,
    ) -> Any:
        """See :meth:`trimtab.kube.api.Api.request`. ``timeout`` covers all attempts of a GET request together.

        A ``text/plain`` response (``/readyz``) is returned as ``str``, an empty one as ``None``, and protobuf as
        ``bytes``.
        """
        data = None if body is None else Body(msgspec.json.encode(body))
        headers = {} if data is None else {"Content-Type": content_type}
        if accept:
            headers["Accept"] = accept
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        retry = 0
        while True:
            try:
                return await self._send(
                    method,
                    path,
                    params=params,
                    data=data,
                    headers=headers,
                    timeout=deadline - loop.time(),
                    leading=leading,
                )
            except NotLeading:
                raise
            except (Unreachable, TooManyRequests, ServerError) as error:
                wait = max(self._retries.delay(retry, random=random.random), _retry_after(error))
                if method != "GET" or self._retries.exhausted(retry) or loop.time() + wait >= deadline:
                    raise
                logger.debug("GET %s failed; retrying in %.1f s: %s", path, wait, error)
            await asyncio.sleep(wait)
            retry += 1

    async def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        data: Body | None,
        headers: Mapping[str, str],
        timeout: float,
        leading: Callable[[], bool] | None,
    ) -> Any:
        """Send a request once, without retries."""
        limits = aiohttp.ClientTimeout(total=max(timeout, 0.001), sock_connect=CONNECT_TIMEOUT)
        url = self.config.server + path
        loop = asyncio.get_running_loop()
        began, status = loop.time(), 0
        middlewares = None if leading is None else (_only_while(leading), self._login)
        try:
            with _reaching(method, url):
                async with self._session().request(
                    method,
                    url,
                    params=params,
                    data=data,
                    headers=headers,
                    timeout=limits,
                    allow_redirects=False,
                    middlewares=middlewares,
                ) as response:
                    body = await response.read()
                    status = response.status
            if self._connector is not None:
                self._connector.reuse_newest = status < 500 and status != 429
        finally:
            self._observe(method, status, loop.time() - began)
        await self._iterations.take()
        if status >= 300:
            raise _error(response, body)
        return _decoded(body, response)

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = "application/json",
        idle_timeout: float = 60.0,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """See :meth:`trimtab.kube.api.Api.stream`. Leaving the context early closes the connection.

        The request does not allow compression, because the server would flush its compressor for each event.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=idle_timeout)
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        url = self.config.server + path
        loop = asyncio.get_running_loop()
        began, status = loop.time(), 0
        try:
            with _reaching("GET", url):
                response = await self._session().get(
                    url, params=params, headers=headers, timeout=limits, allow_redirects=False
                )
            status = response.status
        finally:
            self._observe("GET", status, loop.time() - began)
        try:
            if status >= 300:
                with _reaching("GET", url):
                    body = await _read_error_body(response)
                raise _error(response, body)
            yield _chunks(response, url)
        finally:
            connection = response.connection
            if connection is not None and connection.transport is not None:
                connection.transport.abort()  # a TLS shutdown might outlive the event loop
            response.close()

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        made = _socket(address)
        self._sockets.add(made)
        return made

    def _session(self) -> aiohttp.ClientSession:
        if self._own is None or self._own.closed:
            self._own = self.borrowed_session()
        return self._own


class Connector(aiohttp.TCPConnector):
    """Reuses the connection that was released last, so that connections that only a burst of requests needs expire.

    aiohttp reuses the one that was released first. A few requests per second then keep all connections open, and each
    of them has buffers for the largest request and response that it ever transferred. A method of aiohttp is extended,
    because its connector has no option for this.

    Attributes:
        reuse_newest: whether the last connection is reused. After a response that justifies a retry, the first one is
            used, so that the retry reaches another API server behind the same load balancer.
    """

    reuse_newest = True

    async def _get(self, key: ConnectionKey, traces: list[Trace]) -> Connection | None:
        """Return an idle connection, or ``None``."""
        if self.reuse_newest and key in self._conns:
            self._conns[key].rotate()
        return await super()._get(key, traces)


class Body(aiohttp.BytesPayload):
    """The body of a request, which is written in slices.

    OpenSSL encrypts a write into a buffer, whose size remains that of the largest write as long as the connection is
    open.
    """

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write at most ``content_length`` bytes; ``None`` for all."""
        body = self._value[:content_length]
        for begin in range(0, len(body), BODY_SLICE):
            await writer.write(body[begin : begin + BODY_SLICE])


class Request(aiohttp.ClientRequest):
    """A request that may be sent only while this process is the leader.

    It asks in the last steps before the bytes are written to the connection. Until then it may have waited for a
    connection of the pool, or the process may have been stopped for longer than the Lease lasts.

    Attributes:
        leading: returns whether this process is the leader; ``None`` if any process may send the request.
    """

    leading: Callable[[], bool] | None = None

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """Start sending the headers and the body.

        Raises:
            NotLeading: this process is not the leader, so nothing was sent.
        """
        if self._refused:
            raise NotLeading(self.method, self.url.path)
        return await super().send(conn)

    async def write_bytes(
        self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
    ) -> None:
        """Send the headers and the body, or let the response raise :class:`NotLeading`."""
        if not self._refused:
            await super().write_bytes(writer, conn, content_length)
            return
        if conn.protocol is not None:  # aiohttp then closes the connection
            conn.protocol.set_exception(NotLeading(self.method, self.url.path))

    @property
    def _refused(self) -> bool:
        return self.leading is not None and not self.leading()


def _only_while(leading: Callable[[], bool]) -> aiohttp.ClientMiddlewareType:
    async def middleware(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        assert isinstance(request, Request)
        request.leading = leading
        return await send(request)

    return middleware


class IterationLimiter:
    """Lets a limited number of callers continue in each iteration of the event loop, in the order of their calls.

    Args:
        limit: the number of callers.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = limit
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._scheduled = False

    async def take(self) -> None:
        """Wait until the caller may continue."""
        loop = asyncio.get_running_loop()
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._begin_iteration, loop)
        if self._left:
            self._left -= 1
            return
        waiter = loop.create_future()
        self._waiting.append(waiter)
        await waiter

    def _begin_iteration(self, loop: asyncio.AbstractEventLoop) -> None:
        self._left = self._limit
        while self._waiting and self._left:
            waiter = self._waiting.popleft()
            if not waiter.done():  # it was cancelled
                waiter.set_result(None)
                self._left -= 1
        self._scheduled = self._left < self._limit
        if self._scheduled:
            loop.call_soon(self._begin_iteration, loop)


async def _chunks(response: aiohttp.ClientResponse, url: str) -> AsyncIterator[bytes]:
    """Read the body in chunks. aiohttp's line reader cannot be used, because it fails on objects above 128 KiB."""
    with _reaching("GET", url):
        try:
            async for chunk in response.content.iter_any():
                yield chunk
        except aiohttp.SocketTimeoutError as error:
            raise IdleTimeout(f"GET {url}: {error}") from error.with_traceback(None)  # see _reaching


async def _read_error_body(response: aiohttp.ClientResponse) -> bytes:
    """Read the first bytes of an error response."""
    body = b""
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) >= MAX_ERROR_BYTES:
            break
    return body


@contextmanager
def _reaching(method: str, url: str) -> Iterator[None]:
    """Convert connection errors to :class:`Unreachable`."""
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:  # aiohttp's timeouts are OSErrors, too
        words = str(error) or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)
        # aiohttp's response keeps the error, and its traceback refers to the response: a reference cycle.
        raise Unreachable(f"{method} {url}: {words}") from error.with_traceback(None)


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Create a socket whose connection the kernel closes soon after the peer becomes unreachable.

    By default, the kernel closes a connection with unacknowledged data only after a quarter of an hour. Until then it
    would remain in the pool, and each request that uses it would run into its timeout.
    """
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(DEAD_PEER_TIMEOUT * 1000))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, int(DEAD_PEER_TIMEOUT / 2))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, int(DEAD_PEER_TIMEOUT / 6))
    return made


def _retry_after(error: Unreachable | ApiError) -> float:
    return (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0


def _error(response: aiohttp.ClientResponse, body: bytes) -> ApiError:
    return error_from_response(
        response.status, body, phrase=response.reason or "", retry_after=response.headers.get("Retry-After")
    )


def _decoded(body: bytes, response: aiohttp.ClientResponse) -> Any:
    if not body:
        return None
    if response.content_type == PROTOBUF:
        return body
    if response.content_type == "text/plain":
        return body.decode("utf-8", "replace")
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        shown = " ".join(body[:200].decode("utf-8", "replace").split())
        raise ApiError(
            f"the response is not JSON but {response.content_type}: {shown}", status=response.status
        ) from error
