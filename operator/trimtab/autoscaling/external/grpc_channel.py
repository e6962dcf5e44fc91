"""One gRPC connection: calls by their paths, with a time limit, failing in our terms.

gRPC is loaded by the first call: a process that asks nobody does without it.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from trimtab.autoscaling.external.settings import GrpcEndpoint

if TYPE_CHECKING:
    import grpc.aio

M = TypeVar("M", bound=Message)

CALL_SECONDS: Final = 5.0
"""For one call, as upstream."""

_MEBIBYTE: Final = 1 << 20
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 64 * _MEBIBYTE),
    # A provider that comes back is found within seconds; gRPC would wait two minutes in the end.
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 5000),
)

_LOST: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"})
"""The codes that do not say whether the server has done what it was asked."""

_log = logging.getLogger(__name__)


class CallFailed(Exception):
    """A call that did not go well.

    Attributes:
        code: gRPC's, e.g. ``UNAVAILABLE``.
    """

    def __init__(self, code: str, message: str, *, method: str = "") -> None:
        words = f"{message} ({code})" if message else code
        super().__init__(f"{method}: {words}" if method else words)
        self.code = code

    @property
    def lost(self) -> bool:
        """Whether nobody knows if the server has done it."""
        return self.code in _LOST

    @property
    def unimplemented(self) -> bool:
        """Whether the server does not know the call."""
        return self.code == "UNIMPLEMENTED"


class GrpcChannel:
    """Calls to one server.

    Args:
        endpoint: where it is.
        seconds: the time limit of a call.
    """

    def __init__(self, endpoint: GrpcEndpoint, *, seconds: float = CALL_SECONDS) -> None:
        self._endpoint = endpoint
        self._seconds = seconds
        self._channel: grpc.aio.Channel | None = None
        self._files: tuple[bytes | None, ...] = ()

    async def call(self, path: str, request: Message, answer: type[M]) -> M:
        """Call once.

        Args:
            path: ``/package.Service/Method``.
            request: what is sent.
            answer: the type of what comes back.

        Raises:
            CallFailed: also where no answer comes in time, or it is none of that type.
        """
        import grpc.aio

        if self._channel is None:
            await self.renew()
        assert self._channel is not None
        ask: Any = self._channel.unary_unary(path)
        try:
            raw = await ask(request.SerializeToString(), timeout=self._seconds)
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
        """Open the connection, or another one where the certificates have been renewed since.

        Raises:
            CallFailed: a file cannot be read, or does not hold what it should.
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
            _log.warning("the connection to %s is not encrypted: give it certificates", endpoint.address)
            self._channel = grpc.aio.insecure_channel(endpoint.address, options=_OPTIONS)
        self._files = files

    async def close(self) -> None:
        """Close the connection; calls under way fail."""
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
