"""Reads ``/stats/summary`` of kubelets, directly or through the API server.

Direct requests have a short-lived token of a ServiceAccount that may only read stats (``get nodes/stats``), because a
compromised node receives the token. The operator's own token never leaves this process. The API server's proxy needs
no token for the kubelet, but the permission ``nodes/proxy``, with which commands can be run in each container.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, Protocol
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from trimtab.api.reasons import STATS_FORBIDDEN, STATS_INVALID, STATS_UNREACHABLE
from trimtab.kube.api import Api, ApiError, Unreachable, error_from_response
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.connection.config import ANONYMOUS, ServerConfig, is_loopback
from trimtab.kube.connection.credentials import tls_context
from trimtab.kube.connection.transport import USER_AGENT, Transport
from trimtab.kube.errors import InputError
from trimtab.kube.objects.node import Node
from trimtab.pressure.kubelet_connections import MAX_BODY, ConnectionFailed, InvalidResponse, KubeletConnections
from trimtab.pressure.measurement import NodeMeasurement
from trimtab.pressure.readings import ReadError
from trimtab.pressure.summary import InvalidSummary, read_summary

Access = Literal["Direct", "Proxy"]

TIMEOUT: Final = 5.0
"""Timeout of one read in seconds: connection, TLS handshake and response together."""

SLOTS: Final = 128
SLOT_TIME: Final = 0.2
"""At most :data:`SLOTS` reads are active. A read that takes longer than :data:`SLOT_TIME` seconds makes room for
others, so 640 reads can begin each second even if no kubelet responds."""

PATH: Final = "/stats/summary"
ONLY_MEMORY: Final = "only_cpu_and_memory"

TOKEN_LIFETIME: Final = 600
"""Requested lifetime of a token in seconds. It is the minimum that the API server issues."""

TOKEN_RENEWAL: Final = 0.5
"""Share of its lifetime after which a token is renewed."""

TOKEN_RETRY: Final = 10.0
"""Seconds between two requests for a token after a failure."""

CA_CHECK: Final = 60.0
"""Seconds between two checks whether the CA file has changed."""


class KubeletClientSettings(Struct, frozen=True, kw_only=True):
    """The operator's settings for reading kubelets.

    Attributes:
        access: ``Direct`` for requests to the kubelets, ``Proxy`` for requests through the API server.
        ca_file: the PEM file with the CA certificates of the kubelets, or ``""`` for those of the API server.
        insecure_skip_tls_verify: whether the kubelets' certificates are not verified.
        service_account: the name of the ServiceAccount, in the operator's namespace, whose tokens kubelets receive.
    """

    access: Access = "Direct"
    ca_file: str = ""
    insecure_skip_tls_verify: bool = False
    service_account: str = "trimtab-kubelet-stats"


class KubeletReader(Protocol):
    """A :class:`~trimtab.pressure.readings.NodeReader` that must be closed."""

    async def read(self, node: Node, *, only_memory: bool) -> NodeMeasurement:
        """See :class:`~trimtab.pressure.readings.NodeReader`."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


def kubelet_reader(
    settings: KubeletClientSettings, api: Api, config: ServerConfig, *, namespace: str, clock: Clock = SYSTEM_CLOCK
) -> KubeletReader:
    """Create a reader of kubelets.

    Args:
        settings: how kubelets are read.
        api: the API server, for tokens.
        config: the connection settings of the API server.
        namespace: the operator's namespace.
        clock: the clock.

    Raises:
        InputError: the CA file is invalid.
    """
    if settings.access == "Proxy":
        return ProxiedKubelets(Transport(config, connections=SLOTS), clock=clock)
    token = StatsToken(api, namespace=namespace, service_account=settings.service_account, clock=clock)
    return DirectKubelets(settings, config, token, clock=clock)


class _Slots:
    """Limits the number of active reads. A slow read does not keep its slot."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(SLOTS)

    async def take(self) -> Callable[[], None]:
        """Wait for a slot, and return a function that releases it, which may be called twice."""
        await self._free.acquire()
        timer: asyncio.TimerHandle | None = None

        def release() -> None:
            nonlocal timer
            if timer is not None:
                timer.cancel()
                timer = None
                self._free.release()

        timer = asyncio.get_running_loop().call_later(SLOT_TIME, release)
        return release


class DirectKubelets:
    """Reads kubelets at their own addresses.

    Args:
        settings: how kubelets are read.
        config: the connection settings of the API server, with the default CA.
        token: supplies the token.
        clock: the clock.

    Raises:
        InputError: the CA file is invalid.
    """

    def __init__(
        self, settings: KubeletClientSettings, config: ServerConfig, token: StatsToken, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._settings = settings
        self._config = config
        self._token = token
        self._clock = clock
        self._slots = _Slots()
        self._ca_checked = clock.monotonic()
        self._ca_changed = _changed(settings.ca_file)
        self._connections = KubeletConnections(
            self._context(), user_agent=USER_AGENT, loopback=is_loopback(urlsplit(config.server).hostname or "")
        )

    async def read(self, node: Node, *, only_memory: bool) -> NodeMeasurement:
        """See :class:`~trimtab.pressure.readings.NodeReader`."""
        if not node.addresses or not 0 < node.kubelet_port < 65536:
            raise ReadError(STATS_UNREACHABLE, "the status of the node has no valid address and port of its kubelet")
        self._reload_ca()
        path = f"{PATH}?{ONLY_MEMORY}=true" if only_memory else PATH
        token = await self._token.get()
        release = await self._slots.take()
        try:
            status, body = await self._get(node, path, token)
            if status == 401:
                renewed = await self._token.renew(token)
                if renewed != token:
                    status, body = await self._get(node, path, renewed)
        finally:
            release()
        if status != 200:
            error = error_from_response(status, body[: 2**12])
            reason = STATS_FORBIDDEN if status in (401, 403) else STATS_INVALID
            raise ReadError(reason, f"{_address(node)}: {error.message}")
        return _measurement(body, node, self._clock)

    async def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    async def _get(self, node: Node, path: str, token: str) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(TIMEOUT):
                response = await self._connections.get(
                    node.addresses[0], node.kubelet_port, path, authorization=f"Bearer {token}"
                )
        except TimeoutError as error:
            raise ReadError(STATS_UNREACHABLE, f"{_address(node)}: no response within {TIMEOUT:g}s") from error
        except ConnectionFailed as error:
            raise ReadError(STATS_UNREACHABLE, f"{_address(node)}: {error}") from error
        except InvalidResponse as error:
            raise ReadError(STATS_INVALID, f"{_address(node)}: {error}") from error
        return response.status, response.body

    def _context(self) -> ssl.SSLContext:
        settings = self._settings
        authorities = self._config.ca
        if settings.ca_file:
            try:
                authorities = Path(settings.ca_file).read_bytes()
            except OSError as error:
                raise InputError(f"{settings.ca_file}: {error.strerror}", source="--kubelet-ca-file") from error
        context = tls_context(
            ServerConfig(
                server="https://kubelet",
                source="--kubelet-ca-file",
                ca=authorities,
                insecure=settings.insecure_skip_tls_verify,
                login=ANONYMOUS,
            )
        )
        assert context is not None
        return context

    def _reload_ca(self) -> None:
        """Use the CA file if it has changed, and close idle connections that were verified with the previous one."""
        now = self._clock.monotonic()
        if not self._settings.ca_file or now - self._ca_checked < CA_CHECK:
            return
        self._ca_checked = now
        changed = _changed(self._settings.ca_file)
        if changed == self._ca_changed:
            return
        try:
            self._connections.context = self._context()
        except InputError:
            return  # it is being written; it is read again in a minute
        self._ca_changed = changed
        self._connections.close()


class ProxiedKubelets:
    """Reads kubelets through the API server (``nodes/proxy``).

    Args:
        api: the API server. Its connections should not be shared, because each kubelet that hangs occupies one.
        clock: the clock.
    """

    def __init__(self, api: Transport, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._api = api
        self._clock = clock
        self._slots = _Slots()

    async def read(self, node: Node, *, only_memory: bool) -> NodeMeasurement:
        """See :class:`~trimtab.pressure.readings.NodeReader`."""
        release = await self._slots.take()
        try:
            body = await read_through_proxy(self._api, node.name, only_memory=only_memory)
        finally:
            release()
        return _measurement(body, node, self._clock)

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()


async def read_through_proxy(api: Api, name: str, *, only_memory: bool = False) -> bytes:
    """Return the summary of a node as its kubelet sent it to the API server.

    Args:
        api: the API server.
        name: the name of the node.
        only_memory: whether disks and PIDs are not needed.

    Raises:
        ReadError: the node cannot be read.
    """
    path = f"/api/v1/nodes/{quote(name, safe='')}/proxy{PATH}"
    body = bytearray()
    try:
        async with (
            asyncio.timeout(TIMEOUT),
            api.stream(path, params={ONLY_MEMORY: "true"} if only_memory else None) as chunks,
        ):
            async for chunk in chunks:
                body += chunk
                if len(body) > MAX_BODY:
                    raise ReadError(STATS_INVALID, f"the response has more than {MAX_BODY >> 20} MiB")
    except ApiError as error:
        reason = STATS_INVALID
        if error.status in (401, 403):
            reason = STATS_FORBIDDEN
        elif error.status >= 500:  # of the API server, if it cannot reach the kubelet
            reason = STATS_UNREACHABLE
        raise ReadError(reason, f"API server: {error.message}") from error
    except TimeoutError as error:
        raise ReadError(STATS_UNREACHABLE, f"API server: no response within {TIMEOUT:g}s") from error
    except Unreachable as error:
        raise ReadError(STATS_UNREACHABLE, str(error)) from error
    return bytes(body)


class StatsToken:
    """Supplies a token of the ServiceAccount that may read stats, and renews it (TokenRequest).

    Args:
        api: the API server.
        namespace: the namespace of the ServiceAccount.
        service_account: the name of the ServiceAccount.
        clock: the clock.
    """

    def __init__(self, api: Api, *, namespace: str, service_account: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._api = api
        self._name = f"{namespace}/{service_account}"
        self._path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        self._clock = clock
        self._token = ""
        self._renew_at = 0.0
        self._expires_at = 0.0
        self._retry_at = 0.0
        self._problem = ""
        self._lock = asyncio.Lock()

    async def get(self) -> str:
        """Return a valid token.

        Raises:
            ReadError: the API server issues none.
        """
        if self._is_due() and not (self._lock.locked() and self._is_valid()):
            async with self._lock:
                if self._is_due():  # otherwise another read has renewed it
                    await self._request()
        if not self._is_valid():
            raise ReadError(STATS_FORBIDDEN, f"no token of ServiceAccount {self._name}: {self._problem}")
        return self._token

    async def renew(self, refused: str) -> str:
        """Return another token after a kubelet refused one, unless a token was requested a moment ago.

        Raises:
            ReadError: the API server issues none.
        """
        if self._token == refused:
            self._renew_at = 0.0
        return await self.get()

    def _is_due(self) -> bool:
        now = self._clock.monotonic()
        return now >= self._renew_at and now >= self._retry_at

    def _is_valid(self) -> bool:
        return self._clock.monotonic() < self._expires_at

    async def _request(self) -> None:
        now = self._clock.monotonic()
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_LIFETIME},
        }
        try:
            answer = await self._api.request("POST", self._path, body=body, timeout=10.0)
            issued = msgspec.convert(answer, _TokenRequest)
        except (ApiError, Unreachable, msgspec.ValidationError) as error:
            self._problem = str(error)
            return
        finally:
            self._retry_at = self._clock.monotonic() + TOKEN_RETRY
        lifetime = issued.spec.expiration_seconds  # expirationTimestamp is a time by another clock
        self._token = issued.status.token
        self._renew_at, self._expires_at = now + TOKEN_RENEWAL * lifetime, now + lifetime


class _TokenSpec(Struct, frozen=True, rename="camel"):
    expiration_seconds: int


class _TokenStatus(Struct, frozen=True):
    token: str


class _TokenRequest(Struct, frozen=True):
    spec: _TokenSpec
    status: _TokenStatus


def _measurement(body: bytes, node: Node, clock: Clock) -> NodeMeasurement:
    try:
        return read_summary(body, node=node.name, read_at=clock.now())
    except InvalidSummary as error:
        raise ReadError(STATS_INVALID, str(error)) from error


def _address(node: Node) -> str:
    host = node.addresses[0]
    return f"https://[{host}]:{node.kubelet_port}" if ":" in host else f"https://{host}:{node.kubelet_port}"


def _changed(file: str) -> int:
    try:
        return Path(file).stat().st_mtime_ns if file else 0
    except OSError:
        return 0
