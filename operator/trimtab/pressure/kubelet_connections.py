"""Keeps connections to many kubelets, and sends GET requests over them.

asyncio's TLS needs 256 KiB for each connection, which is 1.3 GB for 5,000 kubelets. A new connection for each request
needs little memory, but five times the CPU time, even if TLS sessions are resumed. So connections are kept as
non-blocking TLS sockets, which need about 20 KiB each, and all of them receive into the same buffer.

A node may be compromised. So the time, the size, the number of chunks and the number of reads of each response are
limited, redirects are not followed, and a request is sent to no other address than the caller's.
"""

from __future__ import annotations

import asyncio
import re
import resource
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, TypeVar

from msgspec import Struct

T = TypeVar("T")
_SocketAddress = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]

MAX_BODY: Final = 4 * 2**20
"""Maximum size of a response in bytes. The summary of a node with 500 pods has about 1 MB."""

LARGE_BODY: Final = 512 * 2**10
MAX_LARGE: Final = 16
"""Maximum number of responses above :data:`LARGE_BODY` that are received at the same time, which limits the memory."""

MAX_HEAD: Final = 16 * 2**10
MAX_LINE: Final = 256
MAX_CHUNKS: Final = 4096
MAX_READS: Final = 4096
"""Limits of one response. Without them, a node that sends single bytes could keep this process busy."""

IDLE_TIMEOUT: Final = 85.0
"""Seconds after which an unused connection is closed. Kubelets close it after 90 seconds."""

MAX_IDLE: Final = 3072
"""Maximum number of connections that are kept, which limits their memory to 60 MiB. Connections to further kubelets are
closed after each response, and each new one needs 0.6 ms of CPU time."""

MAX_FILES: Final = 65536
"""Maximum number of open files to ask the kernel for. Often only 1,024 are allowed at first."""

RESERVED_FILES: Final = 256
"""Number of open files that are left to the rest of the process."""

_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [^\r\n]*)?")
_DIGITS: Final = re.compile(rb"[0-9]{1,15}")
_CHUNK: Final = re.compile(rb"([0-9a-fA-F]{1,12})[ \t]*(?:;.*)?", re.DOTALL)


class ConnectionFailed(Exception):
    """The server did not respond: no connection, no valid certificate, or the connection was lost."""


class InvalidResponse(Exception):
    """The response is not HTTP, or exceeds a limit."""


class Response(Struct, frozen=True):
    """An HTTP response."""

    status: int
    body: bytes


class KubeletConnections:
    """Sends requests to kubelets over TLS, and keeps the connections.

    Args:
        context: the TLS settings of new connections.
        user_agent: the ``User-Agent`` header.
        loopback: whether loopback addresses are allowed, because the whole cluster is on this machine.
    """

    def __init__(self, context: ssl.SSLContext, *, user_agent: str, loopback: bool = False) -> None:
        self.context = context
        self._user_agent = user_agent
        self._loopback = loopback
        self._buffer = memoryview(bytearray(64 * 2**10))
        self._idle: OrderedDict[tuple[str, int], tuple[_Connection, float]] = OrderedDict()
        self._max_idle = min(MAX_IDLE, max(0, _raise_file_limit() - RESERVED_FILES))
        self._large = 0
        self._expiry: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of idle connections."""
        return len(self._idle)

    async def get(self, host: str, port: int, path: str, *, authorization: str) -> Response:
        """Send a GET request and return the response, whatever its status. The caller sets the timeout.

        Args:
            host: an IP address or a host name. The server's certificate must be for it.
            port: the port.
            path: the path with its query.
            authorization: the ``Authorization`` header.

        Raises:
            ConnectionFailed: there is no response, or the address is not allowed.
            InvalidResponse: the response is not HTTP, or exceeds a limit.
        """
        if not _is_host(host):
            raise ConnectionFailed("the address of the node is neither an IP address nor a host name")
        name = f"[{host}]" if ":" in host else host
        request = (
            f"GET {path} HTTP/1.1\r\nHost: {name}:{port}\r\nUser-Agent: {self._user_agent}\r\n"
            f"Accept: application/json\r\nAuthorization: {authorization}\r\n\r\n"
        ).encode("ascii")
        kept = self._idle.pop((host, port), None)
        if kept is not None:
            try:
                return await self._exchange(kept[0], (host, port), request)
            except _ClosedByServer:
                pass  # while the connection was idle
        connection = await self._connect(host, port)
        try:
            return await self._exchange(connection, (host, port), request)
        except _ClosedByServer as error:
            raise ConnectionFailed("the server closed the connection without a response") from error

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.popitem()[1][0].close()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    async def _connect(self, host: str, port: int) -> _Connection:
        loop = asyncio.get_running_loop()
        connection: _Connection | None = None
        try:
            family, address = await self._resolve(host, port)
            connection = _Connection(socket.socket(family, socket.SOCK_STREAM), loop)
            await connection.open(address, self.context, host)
        except ssl.SSLCertVerificationError as error:
            raise ConnectionFailed(f"the certificate is not valid: {error.verify_message}") from error
        except (OSError, ValueError) as error:  # ValueError: the host name is not valid in TLS or DNS
            raise ConnectionFailed(_text(error)) from error
        else:
            opened, connection = connection, None
            return opened
        finally:
            if connection is not None:
                connection.close()

    async def _resolve(self, host: str, port: int) -> tuple[socket.AddressFamily, _SocketAddress]:
        """Return the address family and the socket address of a host.

        Raises:
            ConnectionFailed: the address is not allowed. Nodes report their addresses themselves, so a compromised node
                could direct requests to servers on this machine or to a cloud's metadata server. The API server's
                proxy refuses the same addresses (``IsProxyableIP``).
        """
        found: IPv4Address | IPv6Address
        try:
            found = ip_address(host)
            family = socket.AF_INET if found.version == 4 else socket.AF_INET6
            address: _SocketAddress = (host, port)
        except ValueError:
            resolved = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            family, _, _, _, address = resolved[0]
            found = ip_address(str(address[0]).partition("%")[0])
        if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        refused = found.is_link_local or found.is_multicast or found.is_unspecified
        if refused or (found.is_loopback and not self._loopback):
            raise ConnectionFailed(f"the address {found} of the node is not allowed")
        return family, address

    async def _exchange(self, connection: _Connection, key: tuple[str, int], request: bytes) -> Response:
        """Send a request over a connection, and read the response. Then keep or close the connection.

        Raises:
            _ClosedByServer: the server closed the connection before the first byte of the response.
        """
        parser = _ResponseParser()
        keep = large = False
        try:
            await connection.send(request)
            for _ in range(MAX_READS):
                size = await connection.receive(self._buffer)
                if size:
                    parser.feed(self._buffer[:size])
                else:
                    parser.end()
                if parser.done:
                    break
                if not large and len(parser.body) > LARGE_BODY:
                    if self._large >= MAX_LARGE:
                        raise InvalidResponse(f"{MAX_LARGE} other responses have more than {LARGE_BODY} bytes as well")
                    large, self._large = True, self._large + 1
            else:
                raise InvalidResponse(f"the response has more than {MAX_READS} pieces")
            keep = parser.keep_alive
            return Response(parser.status, bytes(parser.body))
        except OSError as error:
            if parser.begun:
                raise ConnectionFailed(_text(error)) from error
            raise _ClosedByServer from error
        finally:
            self._large -= large
            if keep:
                connection.release_buffer()
                self._keep(key, connection)
            else:
                connection.close()

    def _keep(self, key: tuple[str, int], connection: _Connection) -> None:
        before = self._idle.pop(key, None)
        if before is not None:
            before[0].close()
        self._close_old()
        if len(self._idle) >= self._max_idle:
            # Kubelets are read in turn, so the oldest connection is the one that is needed next.
            connection.close()
            return
        self._idle[key] = connection, asyncio.get_running_loop().time()
        if self._expiry is None:
            self._close_old()

    def _close_old(self) -> None:
        """Close connections that are idle for too long; and again later, even without requests."""
        loop = asyncio.get_running_loop()
        while self._idle:
            oldest, since = next(iter(self._idle.values()))
            left = since + IDLE_TIMEOUT - loop.time()
            if left > 0.0:
                if self._expiry is None:
                    self._expiry = loop.call_later(left, self._expire)
                return
            self._idle.popitem(last=False)
            oldest.close()

    def _expire(self) -> None:
        self._expiry = None
        self._close_old()


class _ClosedByServer(Exception):
    """The server closed the connection before the first byte of a response."""


class _Connection:
    """A non-blocking TLS socket."""

    __slots__ = ("_loop", "_socket")

    def __init__(self, raw: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._socket = raw
        self._loop = loop
        raw.setblocking(False)

    async def open(self, address: _SocketAddress, context: ssl.SSLContext, host: str) -> None:
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await self._loop.sock_connect(self._socket, address)
        tls = context.wrap_socket(self._socket, server_hostname=host, do_handshake_on_connect=False)
        self._socket = tls
        await self._when_possible(tls.do_handshake)

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[await self._when_possible(partial(self._socket.send, view)) :]

    async def receive(self, buffer: memoryview) -> int:
        """Receive into the buffer, and return the number of bytes; 0 at the end. The buffer is shared."""
        return await self._when_possible(partial(self._socket.recv_into, buffer))

    def release_buffer(self) -> None:
        """Free the write buffer of 16 KiB that OpenSSL 3.0 allocates when it receives a session ticket.

        OpenSSL frees it only after the next write, which is a whole interval later. Nothing is sent.
        """
        with suppress(OSError):
            self._socket.send(b"")

    def close(self) -> None:
        self._socket.close()

    async def _when_possible(self, operation: Callable[[], T]) -> T:
        while True:
            try:
                return operation()
            except ssl.SSLWantReadError:
                add, remove = self._loop.add_reader, self._loop.remove_reader
            except ssl.SSLWantWriteError:
                add, remove = self._loop.add_writer, self._loop.remove_writer
            ready = self._loop.create_future()
            number = self._socket.fileno()
            add(number, _set, ready)
            try:
                await ready
            finally:
                remove(number)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


class _ResponseParser:
    """Parses one HTTP/1.1 response to a GET request (RFC 9112) while it arrives.

    Attributes:
        status: the status, once the head has arrived.
        body: the body as far as it has arrived.
        begun: whether anything has arrived.
        done: whether the response is complete.
        keep_alive: whether the connection may be used again.
    """

    _step: Callable[[_ResponseParser], bool]  # the next step; a bound method would be a reference cycle

    __slots__ = ("_chunks", "_left", "_pending", "_step", "_until_end", "begun", "body", "done", "keep_alive", "status")

    def __init__(self) -> None:
        self.status = 0
        self.body = bytearray()
        self.begun = self.done = self.keep_alive = False
        self._pending = bytearray()
        self._step = _ResponseParser._parse_head
        self._left = 0
        self._chunks = 0
        self._until_end = False

    def feed(self, data: memoryview) -> None:
        """Parse more of the response.

        Raises:
            InvalidResponse: it is not HTTP, or exceeds a limit.
        """
        self.begun = True
        self._pending += data
        while not self.done and self._step(self):
            pass
        if self.done and self._pending:
            self.keep_alive = False  # the server has sent more than a response

    def end(self) -> None:
        """Handle the end of the connection.

        Raises:
            InvalidResponse: the response is incomplete.
            _ClosedByServer: nothing has arrived.
        """
        if not self.begun:
            raise _ClosedByServer
        if not self._until_end:
            raise InvalidResponse("the response is incomplete")
        self.done, self.keep_alive = True, False

    def _line(self, limit: int, terminator: bytes = b"\r\n") -> bytes | None:
        end = self._pending.find(terminator, 0, limit + len(terminator))
        if end < 0:
            if len(self._pending) >= limit + len(terminator):
                raise InvalidResponse("the response is not HTTP, or its head is too long")
            return None
        line = bytes(self._pending[:end])
        del self._pending[: end + len(terminator)]
        return line

    def _parse_head(self) -> bool:
        head = self._line(MAX_HEAD, b"\r\n\r\n")
        if head is None:
            return False
        first, *lines = head.split(b"\r\n")
        status = _STATUS.fullmatch(first)
        if status is None:
            raise InvalidResponse("the response is not HTTP")
        self.status = int(status[2])
        headers = _headers(lines)
        self.keep_alive = status[1] == b"1" and b"close" not in headers.get(b"connection", b"").lower()
        coding, length = headers.get(b"transfer-encoding"), headers.get(b"content-length")
        if self.status < 200:
            raise InvalidResponse(f"HTTP status {self.status} instead of a response")
        if self.status in (204, 304):
            self.done = True
        elif coding is not None:
            if coding.lower() != b"chunked" or length is not None:
                raise InvalidResponse("the length of the response is ambiguous")
            self._step = _ResponseParser._parse_chunk_size
        elif length is not None:
            if _DIGITS.fullmatch(length) is None:
                raise InvalidResponse("the length of the response is not a number")
            self._left = int(length)
            self._check_size(self._left)
            self._step = _ResponseParser._take_body
        else:
            self._until_end, self._step = True, _ResponseParser._take_all
        return True

    def _take(self) -> bool:
        """Move bytes of the body or chunk, and return whether it is complete."""
        pending = self._pending
        if len(pending) <= self._left:
            self._left -= len(pending)
            self.body += pending
            pending.clear()
        else:
            self.body += memoryview(pending)[: self._left]
            del pending[: self._left]
            self._left = 0
        return not self._left

    def _take_body(self) -> bool:
        self.done = self._take()
        return False

    def _take_all(self) -> bool:
        self._check_size(len(self.body) + len(self._pending))
        self.body += self._pending
        self._pending.clear()
        return False

    def _parse_chunk_size(self) -> bool:
        line = self._line(MAX_LINE)
        if line is None:
            return False
        size = _CHUNK.fullmatch(line)
        self._chunks += 1
        if size is None or self._chunks > MAX_CHUNKS:
            raise InvalidResponse("the chunks of the response are invalid, or too many")
        self._left = int(size[1], 16)
        self._check_size(len(self.body) + self._left)
        self._step = _ResponseParser._take_chunk if self._left else _ResponseParser._skip_trailer
        return True

    def _take_chunk(self) -> bool:
        if not self._take():
            return False
        self._step = _ResponseParser._parse_chunk_end
        return True

    def _parse_chunk_end(self) -> bool:
        line = self._line(0)
        if line is not None:
            self._step = _ResponseParser._parse_chunk_size
        return line is not None

    def _skip_trailer(self) -> bool:
        line = self._line(MAX_LINE)
        if line is None:
            return False
        self._chunks += 1
        if self._chunks > MAX_CHUNKS:
            raise InvalidResponse("the trailer of the response is too long")
        self.done = not line
        return True

    def _check_size(self, size: int) -> None:
        if size > MAX_BODY:
            raise InvalidResponse(f"the response has more than {MAX_BODY >> 20} MiB")


def _headers(lines: Iterable[bytes]) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        before = headers.get(name.lower())
        headers[name.lower()] = value.strip() if before is None else before + b"," + value.strip()
    return headers


def _is_host(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return _HOST.fullmatch(host) is not None
    return "%" not in host


def _text(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _raise_file_limit() -> int:
    """Raise the limit of open files to the maximum that this process may set, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard or hard == resource.RLIM_INFINITY:
        wanted = min(hard, MAX_FILES) if hard != resource.RLIM_INFINITY else MAX_FILES
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return soft
