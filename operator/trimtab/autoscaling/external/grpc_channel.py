"""A gRPC connection: sends calls by path with a timeout, and converts errors to :class:`CallFailed`.

The first call imports gRPC, so a process without external providers does not load it.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message
from msgspec import Struct

if TYPE_CHECKING:
    import grpc.aio


class GrpcEndpoint(Struct, frozen=True):
    """Address of a gRPC server, and the TLS files of its connection.

    Attributes:
        address: ``host:port``, or another gRPC target, e.g. ``unix:/run/provider.sock``.
        ca_file: PEM file with the CA certificates of the server. If only ``cert_file`` is set, the system's CA
            certificates are used.
        cert_file: PEM file with the client certificate, if the server requires one.
        key_file: PEM file with the key of the client certificate.

    If no file is set, the connection is not encrypted, and every client that can reach the server can remove nodes.
    """

    address: str
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    @property
    def encrypted(self) -> bool:
        """Return whether the connection uses TLS."""
        return bool(self.ca_file or self.cert_file)


M = TypeVar("M", bound=Message)

CALL_SECONDS: Final = 5.0
"""Timeout of one call in seconds, as in upstream."""

_MEBIBYTE: Final = 1 << 20
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 64 * _MEBIBYTE),
    # Reconnect within seconds after an outage; gRPC's default backoff grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 5000),
)

_LOST: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"})
"""Status codes after which it is unknown whether the server has executed the call."""

_log = logging.getLogger(__name__)


class CallFailed(Exception):
    """A gRPC call failed.

    Attributes:
        code: gRPC status code, e.g. ``UNAVAILABLE``.
    """

    def __init__(self, code: str, message: str, *, method: str = "") -> None:
        text = f"{message} ({code})" if message else code
        super().__init__(f"{method}: {text}" if method else text)
        self.code = code

    @property
    def lost(self) -> bool:
        """Return whether the server may have executed the call despite the failure."""
        return self.code in _LOST

    @property
    def unimplemented(self) -> bool:
        """Return whether the server does not implement the call."""
        return self.code == "UNIMPLEMENTED"


class GrpcChannel:
    """A connection to one server.

    Args:
        endpoint: address and TLS files.
        seconds: timeout of a call.
    """

    def __init__(self, endpoint: GrpcEndpoint, *, seconds: float = CALL_SECONDS) -> None:
        self._endpoint = endpoint
        self._seconds = seconds
        self._channel: grpc.aio.Channel | None = None
        self._files: tuple[bytes | None, ...] = ()

    async def call(self, path: str, request: Message, answer: type[M]) -> M:
        """Send one request, and return the response.

        Args:
            path: ``/package.Service/Method``.
            request: the request message.
            answer: the type of the response message.

        Raises:
            CallFailed: the call failed, timed out, or returned an invalid message.
        """
        import grpc.aio

        if self._channel is None:
            await self.renew()
        assert self._channel is not None
        rpc: Any = self._channel.unary_unary(path)
        try:
            raw = await rpc(request.SerializeToString(), timeout=self._seconds)
        except grpc.aio.AioRpcError as error:
            method = path.rpartition("/")[2]
            raise CallFailed(error.code().name, error.details() or "", method=method) from None
        found = answer()
        try:
            found.MergeFromString(raw)
        except DecodeError as error:
            raise CallFailed("INTERNAL", f"the answer of {path} cannot be read: {error}") from None
        return found

    async def renew(self) -> None:
        """Open the connection, or reopen it if the certificate files have changed.

        Raises:
            CallFailed: a file cannot be read.
        """
        import grpc.aio

        endpoint = self._endpoint
        files = tuple(map(_content, (endpoint.ca_file, endpoint.key_file, endpoint.cert_file)))
        if self._channel is not None and files == self._files:
            return
        await self.close()
        if endpoint.encrypted:
            authorities, key, certificate = files
            credentials = grpc.ssl_channel_credentials(authorities, key, certificate)
            self._channel = grpc.aio.secure_channel(endpoint.address, credentials, options=_OPTIONS)
        else:
            _log.warning(
                "Connection to gRPC server %s is not encrypted; configure TLS certificates for the server",
                endpoint.address,
            )
            self._channel = grpc.aio.insecure_channel(endpoint.address, options=_OPTIONS)
        self._files = files

    async def close(self) -> None:
        """Close the connection. Calls in flight fail."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


def _content(file: str) -> bytes | None:
    if not file:
        return None
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise CallFailed("UNAVAILABLE", f"{file} cannot be read: {error.strerror}") from None
