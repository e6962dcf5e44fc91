"""The connection to a real API server: one aiohttp connector, one TLS context, one identity for all of trimtab.

The session is shared with Kopf rather than given to it. Kopf closes the session it was handed when it stops or when a
login is refused, so it gets sessions of its own that borrow the connector (:meth:`Transport.borrowed_session`). Login
and its renewal sit below both, in a client middleware, so Kopf's requests renew tokens exactly as ours do.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakSet

import aiohttp
import msgspec

from trimtab import __version__
from trimtab.kube.api import ApiError, ServerError, TooManyRequests, Unreachable
from trimtab.kube.connection.config import ServerConfig
from trimtab.kube.connection.credentials import Credentials, credentials_for
from trimtab.kube.connection.login import LoginMiddleware
from trimtab.kube.connection.tls import tls_context
from trimtab.kube.retry import READS, Backoff
from trimtab.kube.status import error_from_answer

logger = logging.getLogger(__name__)

USER_AGENT: Final = f"trimtab/{__version__}"
CONNECT_TIMEOUT: Final = 10.0
"""Seconds to a TCP connection; a server that is up answers in far less, and a lost packet or two are allowed for."""
DEAD_AFTER: Final = 30.0
"""Seconds without any sign of the peer until the kernel gives a connection up."""
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
MOST_OF_AN_ERROR: Final = 2**16
"""Bytes that are read of a failed stream's answer."""
GOODBYE: Final = 0.5
"""Seconds that closing waits at most for the peer to take leave."""

Observe = Callable[[str, int, float], None]
"""Called with method, HTTP status (0 for no answer) and seconds of each request; of a stream, until it began."""


class Transport:
    """:class:`trimtab.kube.api.Api` over HTTP. Use it as an async context manager, or call :meth:`close`.

    GETs are tried again when no answer came, the server is overloaded (429) or failed (5xx), within the request's
    timeout. Nothing else is: whether a write that got no answer may be repeated only its caller can know. (aiohttp
    itself sends a PUT or DELETE once more when a kept connection turns out to be closed; with a resourceVersion or a
    UID in it, as all of ours have, the worst of that is a ``Conflict`` or ``NotFound`` for one's own success.)
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
        """Prepare; nothing is sent and no loop is needed before the first request.

        Args:
            config: which server, and who we are there.
            credentials: what renews the login; by default what suits the configuration.
            retries: of GETs.
            connections: at most so many at once. Every watch holds one.
            observe: told of every answered or failed request, for metrics.

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
        self._connector: aiohttp.TCPConnector | None = None
        self._sessions: list[aiohttp.ClientSession] = []
        self._own: aiohttp.ClientSession | None = None
        self._sockets: WeakSet[socket.socket] = WeakSet()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def server(self) -> str:
        """The base URL, as Kopf's ``AiohttpSession(server=)`` wants it."""
        return self.config.server

    @property
    def default_namespace(self) -> str:
        """The context's or the pod's namespace."""
        return self.config.namespace

    async def close(self) -> None:
        """Close every session, borrowed ones too, and all connections. Closing twice is no error."""
        sessions, self._sessions, self._own = self._sessions, [], None
        for session in sessions:
            await session.close()
        connector, self._connector = self._connector, None
        if connector is not None:
            await connector.close()
            await self._goodbyes()

    async def _goodbyes(self) -> None:
        """Wait for the TLS goodbyes of requests that were cancelled: one that outlives the loop is an error of its own.

        A server that does not answer them is not waited for long.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + GOODBYE
        while any(each.fileno() >= 0 for each in self._sockets) and loop.time() < deadline:  # noqa: ASYNC110 (no event)
            await asyncio.sleep(0.002)

    def borrowed_session(self) -> aiohttp.ClientSession:
        """A session of the same connector, login and User-Agent that others may use and close as theirs.

        For ``kopf.AiohttpSession(aiohttp_session=transport.borrowed_session(), server=transport.server,
        default_namespace=transport.default_namespace)``; make a new one each time Kopf asks to log in. What is not
        closed by its user is closed by :meth:`close`. Call it inside the loop.
        """
        if self._connector is None:
            self._connector = aiohttp.TCPConnector(
                limit=self._connections,
                ssl=self._tls if self._tls is not None else True,
                keepalive_timeout=60.0,
                socket_factory=self._socket,
            )
        session = aiohttp.ClientSession(
            connector=self._connector,
            connector_owner=False,
            headers={"User-Agent": USER_AGENT, "Accept": "application/json"},
            middlewares=(self._login,),
            proxy=self.config.proxy or None,
            read_bufsize=2**20,  # a list's page arrives in megabytes; the default of 64 KiB means a wake-up for each
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
    ) -> Any:
        """See :meth:`trimtab.kube.api.Api.request`. ``timeout`` covers all tries of a GET together.

        An answer of ``text/plain`` (``/readyz``) is returned as ``str``, an empty one as ``None``, one in protobuf as
        ``bytes``.
        """
        data = None if body is None else msgspec.json.encode(body)
        headers = {} if data is None else {"Content-Type": content_type}
        if accept:
            headers["Accept"] = accept
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        retry = 0
        while True:
            try:
                return await self._send(
                    method, path, params=params, data=data, headers=headers, timeout=deadline - loop.time()
                )
            except (Unreachable, TooManyRequests, ServerError) as error:
                wait = max(self._retries.delay(retry, random=random.random), _retry_after(error))
                if method != "GET" or self._retries.exhausted(retry) or loop.time() + wait >= deadline:
                    raise
                logger.debug("Trying again in %.1f s: GET %s: %s", wait, path, error)
            await asyncio.sleep(wait)
            retry += 1

    async def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        data: bytes | None,
        headers: Mapping[str, str],
        timeout: float,
    ) -> Any:
        """One try."""
        limits = aiohttp.ClientTimeout(total=max(timeout, 0.001), sock_connect=CONNECT_TIMEOUT)
        url = self.config.server + path
        loop = asyncio.get_running_loop()
        began, status = loop.time(), 0
        try:
            with _reaching(method, url):
                async with self._session().request(
                    method, url, params=params, data=data, headers=headers, timeout=limits, allow_redirects=False
                ) as response:
                    body = await response.read()
                    status = response.status
        finally:
            self._observe(method, status, loop.time() - began)
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
        """See :meth:`trimtab.kube.api.Api.stream`. Leaving the block early closes the connection.

        The stream is asked for uncompressed: the server would flush its compressor for every event.
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
                    body = await _beginning(response)
                raise _error(response, body)
            yield _chunks(response, url)
        finally:
            connection = response.connection
            if connection is not None and connection.transport is not None:
                connection.transport.abort()  # a TLS goodbye would outlive the loop of a command that ends now
            response.close()

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        made = _socket(address)
        self._sockets.add(made)
        return made

    def _session(self) -> aiohttp.ClientSession:
        if self._own is None or self._own.closed:
            self._own = self.borrowed_session()
        return self._own


async def _chunks(response: aiohttp.ClientResponse, url: str) -> AsyncIterator[bytes]:
    """The body as it comes: not by lines, for aiohttp's line reader fails on objects above 128 KiB."""
    with _reaching("GET", url):
        async for chunk in response.content.iter_any():
            yield chunk


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """As much of an error's body as anybody will look at."""
    body = b""
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) >= MOST_OF_AN_ERROR:
            break
    return body


@contextmanager
def _reaching(method: str, url: str) -> Iterator[None]:
    """Turn what goes wrong on the wire into :class:`Unreachable`."""
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:  # aiohttp's timeouts are OSErrors, too
        words = str(error) or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)
        raise Unreachable(f"{method} {url}: {words}") from error


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket whose connection dies with its peer.

    Else what was sent into a cut network keeps the connection in the pool for a quarter of an hour, and each request
    that is given to it waits until its own timeout.
    """
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(DEAD_AFTER * 1000))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, int(DEAD_AFTER / 2))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, int(DEAD_AFTER / 6))
    return made


def _retry_after(error: Unreachable | ApiError) -> float:
    return (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0


def _error(response: aiohttp.ClientResponse, body: bytes) -> ApiError:
    return error_from_answer(
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
            f"the answer is not JSON but {response.content_type}: {shown}", status=response.status
        ) from error
