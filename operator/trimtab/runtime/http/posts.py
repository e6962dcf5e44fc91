"""Reads POST requests, calls their handlers, and sends each response in one piece.

    data -> head (method, path, Content-Length) -> complete body -> handler -> response

aiohttp's server uses as much CPU time for a request and its response as a webhook uses for the review of a pod. This
server reads only what API servers send: POST requests of HTTP/1 with a Content-Length. It answers all other requests
with an error and closes the connection, for example with 411 if the Content-Length is missing (also because the body is
chunked), and with 417 if the request has an ``Expect`` field. The handler starts when the last byte arrives. Unless the
handler waits, its response is sent before the event loop runs other tasks.

A parser library would save little: this module parses a request of an API server in 2.7 microseconds, httptools in 1.3,
which would be one more compiled dependency, and aiohttp's parser in 4.0. A whole server with httptools needs more:
uvicorn 0.54 (ASGI, uvloop, TLS, without access log) used 133 to 167 microseconds of CPU time for a request to the
webhooks' handlers at 1,000 requests per second, and this module 102 to 113, by turns in one run. uvicorn also limits
neither the size of bodies nor what a single client may use.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from email.utils import formatdate
from functools import lru_cache
from http.client import responses
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from msgspec import Struct

from trimtab.api import reasons

if TYPE_CHECKING:
    from trimtab.runtime.http.server import Limits

log = logging.getLogger(__name__)

PostHandler = Callable[[bytes], Awaitable[tuple[int, bytes]]]
"""Handles the POST requests for one path: from the complete body to the status and the body of the response. The latter
is JSON if the status is 200, otherwise text."""

LARGE_BODY: Final = 256 * 1024
"""Minimum size in bytes of a body that counts as large, and of which few are in memory at a time."""
MAX_LARGE_BODIES: Final = 8

_HEAD_END: Final = b"\r\n\r\n"
_HEAD: Final = re.compile(rb"([A-Z]+) ([!-~]+) HTTP/1\.([01])((?:\r\n[!#$%&'*+\-.^_`|~0-9A-Za-z]++:[^\r\n\0]*+)*+)")
_FIELDS: Final = re.compile(rb"(?i)\r\n(content-length|transfer-encoding|connection|expect):[ \t]*([^\r\n]*)")
_LENGTH: Final = re.compile(rb"([0-9]{1,15})[ \t]*")
_NEVER: Final = float("inf")


class ConnectionCounts(Protocol):
    """What the server counts for a connection.

    Attributes:
        client: the address of the client.
        requests: number of requests.
        pending_bytes: bytes received since the handling of the last request started.
        counted: whether the end of the connection is not an incomplete request.
    """

    client: str
    requests: int
    pending_bytes: int
    counted: bool


class _Invalid(Exception):
    """A request that gets an error before its body has been received."""

    def __init__(self, status: int, message: str = "", fields: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.fields = fields


class _Head(Struct, frozen=True):
    """What the head of a request says.

    Attributes:
        method: the method.
        path: the path without the query.
        length: size of the body in bytes.
        closes: whether the client wants the connection to be closed after the response.
    """

    method: bytes
    path: bytes
    length: int
    closes: bool


def _parse(head: bytes) -> _Head:
    """Parse the request line and the header fields.

    Raises:
        _Invalid: they are malformed, a body has no Content-Length, or the client expects an interim response.
    """
    found = _HEAD.fullmatch(head)
    if found is None:
        raise _Invalid(400, "malformed request")
    method, target, minor, rest = found.groups()
    length, closes = None, minor == b"0"
    for name, value in _FIELDS.findall(rest):
        match name.lower():
            case b"transfer-encoding":
                raise _Invalid(411, "the request has no Content-Length")
            case b"expect":
                raise _Invalid(417, "the server sends no interim responses")
            case b"connection":
                closes = closes or b"close" in value.lower()
            case _:
                size = _LENGTH.fullmatch(value)
                if size is None or length is not None:
                    raise _Invalid(400, "malformed Content-Length")
                length = int(size[1])
    if length is None and method == b"POST":
        raise _Invalid(411, "the request has no Content-Length")
    return _Head(method, target.partition(b"?")[0], length or 0, closes)


class PostServer:
    """Answers POST requests. Call it to get the protocol of a connection, as ``aiohttp.web.Server``.

    Args:
        handlers: the handlers by path.
        limits: the limits for clients.
        within_rate: whether a client may send one more request now.
        closes: whether a connection must be closed after a response.
        refused: called with the reason code of each refused request.
    """

    def __init__(
        self,
        handlers: Mapping[str, PostHandler],
        limits: Limits,
        *,
        within_rate: Callable[[str], bool],
        closes: Callable[[ConnectionCounts], bool],
        refused: Callable[[str], None],
    ) -> None:
        self.handlers = {path.encode(): handler for path, handler in handlers.items()}
        self.limits = limits
        self.keepalive = limits.timeout if limits.keepalive is None else limits.keepalive
        self.within_rate = within_rate
        self.closes = closes
        self.refused = refused
        self.large_bodies = asyncio.Semaphore(MAX_LARGE_BODIES)
        self.loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, connection: ConnectionCounts) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return _PostProtocol(self, connection)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine at once until it waits, and the rest of it as a task."""
        if sys.version_info >= (3, 12):
            task = asyncio.Task(work, loop=self.loop, eager_start=True)
            if task.done():
                return
        else:
            task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def shutdown(self, seconds: float) -> None:
        """Give in-flight requests some seconds to end, then cancel them."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()


class _PostProtocol(asyncio.Protocol):
    """The requests of one connection, one at a time.

    Args:
        server: the server.
        connection: counts the requests and the received bytes.
    """

    def __init__(self, server: PostServer, connection: ConnectionCounts) -> None:
        self._server = server
        self._connection = connection
        self._received = bytearray()  # since the end of the last complete head or body
        self._head: _Head | None = None
        self._partial = False  # a part of a request was received, and the rest is due
        self._busy = False  # a handler runs, or a large body waits for a slot
        self._has_slot = False
        self._paused = False  # reading is paused
        self._unread = False  # the client does not read its responses
        self._closed = False
        self._deadline = _NEVER
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = _NEVER

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport is not a subclass
        self._expire_after(self._server.keepalive)

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        self._received += data
        if self._busy or self._unread or self._paused:
            self._pause_reading()
        else:
            self._advance()

    def pause_writing(self) -> None:
        self._unread = True

    def resume_writing(self) -> None:
        self._unread = False
        if not self._closed:
            self._continue()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._closed = True
        self._received = bytearray()  # the protocol is part of a reference cycle, so it is not deleted soon
        if not self._busy:  # otherwise the handler still has the body
            self._release_slot()
        if self._timer is not None:
            self._timer.cancel()

    def _advance(self) -> None:
        """Handle the next request if all of it has been received."""
        if self._closed or self._busy or self._unread:
            return
        try:
            if self._head is None:
                self._head = self._next_head()
        except _Invalid as invalid:
            self._respond(invalid.status, str(invalid).encode(), invalid.fields)
            return
        head = self._head
        if head is not None and head.length > LARGE_BODY and not self._has_slot:
            self._busy, self._deadline = True, _NEVER
            self._server.run(self._wait_for_slot())
        elif head is None or len(self._received) < head.length:
            self._resume_reading()
            if not self._partial and (head is not None or self._received):
                self._partial = True
                self._expire_after(self._server.limits.timeout)
        else:
            body = bytes(self._received[: head.length])
            del self._received[: head.length]
            self._connection.pending_bytes = len(self._received)
            self._busy, self._deadline = True, _NEVER
            self._server.run(self._handle(head.path, body))

    def _next_head(self) -> _Head | None:
        """Return the head of the next request; ``None`` if it is not complete.

        Raises:
            _Invalid: the request is malformed, exceeds a limit, or has no handler.
        """
        limits, refused = self._server.limits, self._server.refused
        end = self._received.find(_HEAD_END)
        if (len(self._received) if end < 0 else end) > limits.request_bytes:
            refused(reasons.REQUEST_TOO_LARGE)
            raise _Invalid(431, f"the head exceeds {limits.request_bytes} bytes")
        if end < 0:
            return None
        head = _parse(bytes(self._received[:end]))
        del self._received[: end + len(_HEAD_END)]
        self._connection.requests += 1
        if not self._server.within_rate(self._connection.client):
            refused(reasons.TOO_MANY_REQUESTS)
            raise _Invalid(429, fields=b"Retry-After: 1\r\n")
        if head.path not in self._server.handlers:
            raise _Invalid(404)
        if head.method != b"POST":
            raise _Invalid(405, fields=b"Allow: POST\r\n")
        if head.length > limits.body_bytes:
            refused(reasons.REQUEST_TOO_LARGE)
            raise _Invalid(413, f"the body exceeds {limits.body_bytes} bytes")
        return head

    async def _wait_for_slot(self) -> None:
        """Receive a large body only once few others are in memory."""
        try:
            async with asyncio.timeout(self._server.limits.timeout):
                await self._server.large_bodies.acquire()
        except TimeoutError:
            self._server.refused(reasons.TOO_MANY_REQUESTS)
            self._respond(503, b"too many large requests are in progress")
            return
        self._has_slot = True
        if self._closed:
            self._release_slot()
            return
        self._busy = self._partial = False
        self._continue()

    def _release_slot(self) -> None:
        if self._has_slot:
            self._has_slot = False
            self._server.large_bodies.release()

    def _continue(self) -> None:
        """Handle the next request, after other connections have had their turn. Until then nothing more is read."""
        if self._received or self._head is not None:
            self._pause_reading()
            self._server.loop.call_soon(self._advance)
        elif not self._unread:
            self._resume_reading()

    def _pause_reading(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    async def _handle(self, path: bytes, body: bytes) -> None:
        try:
            status, content = await self._server.handlers[path](body)
        except Exception:
            log.exception("Failed to process the HTTP request %s: unexpected error", path.decode())
            status, content = 500, b""
        self._respond(status, content)

    def _respond(self, status: int, content: bytes, fields: bytes = b"") -> None:
        """Send a response in one piece, and close the connection or wait for the next request."""
        self._release_slot()
        if self._closed:
            return
        closes = status >= 400 or (self._head is not None and self._head.closes)
        closes = closes or self._server.closes(self._connection)
        if closes:
            fields += b"Connection: close\r\n"
        kind = b"application/json" if status == 200 else b"text/plain; charset=utf-8"
        self._transport.write(
            b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\nContent-Length: %d\r\nDate: %b\r\n%b\r\n%b"
            % (status, responses[status].encode(), kind, len(content), _date(int(time.time())), fields, content)
        )
        if closes:
            self._connection.counted = True
            self._close()
            return
        self._head, self._partial, self._busy = None, False, False
        self._expire_after(self._server.keepalive)
        self._continue()

    def _close(self) -> None:
        self._closed = True
        self._received = bytearray()  # TLS connections stay open until the client confirms the end
        self._transport.close()

    # --- Timeouts -----------------------------------------------------------------------------------------------------

    def _expire_after(self, seconds: float) -> None:
        """Set the deadline. A timer is only set if the present one fires later, so few requests set one."""
        self._deadline = self._server.loop.time() + seconds
        if self._deadline < self._fires_at:
            if self._timer is not None:
                self._timer.cancel()
            self._fires_at = self._deadline
            self._timer = self._server.loop.call_at(self._deadline, self._expire)

    def _expire(self) -> None:
        self._fires_at, remaining = _NEVER, self._deadline - self._server.loop.time()
        if remaining > 0:
            if self._deadline != _NEVER:
                self._expire_after(remaining)
        elif self._head is not None:
            self._server.refused(reasons.INCOMPLETE_REQUEST)
            self._respond(408, b"")
        else:  # the connection is idle, or the head is incomplete, which the connection counts
            self._close()


@lru_cache(maxsize=1)
def _date(now: int) -> bytes:
    return formatdate(now, usegmt=True).encode()
