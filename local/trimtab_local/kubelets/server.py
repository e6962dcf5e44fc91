"""Serves ``/stats/summary`` of each node over HTTPS at the node's own loopback address.

Requests are authenticated and authorized as by a kubelet with webhook authentication: the API server reviews the
bearer token (TokenReview) and whether its user may ``get nodes/stats`` of the node (SubjectAccessReview). Results are
cached as long as the kubelet caches them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from trimtab_local.certificates import Keys, kubelet_certificate
from trimtab_local.kubelets.scenario import Fault

AUTHENTICATED: Final = 120.0
ALLOWED: Final = 300.0
DENIED: Final = 30.0
"""Seconds for which results are cached: the defaults of the kubelet (``authentication.webhook.cacheTTL`` and so on)."""

_HUGE: Final = 64 * 1024 * 1024


class Reviewer:
    """Authenticates and authorizes requests by reviews of the API server, and caches the results."""

    def __init__(self, api: Api, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._api = api
        self._clock = clock
        self._users: dict[str, tuple[float, dict[str, Any]]] = {}
        self._access: dict[tuple[str, str], tuple[float, bool]] = {}

    async def status(self, authorization: str, node: str) -> int:
        """Return 200, 401 or 403 for a request for the stats of a node.

        Args:
            authorization: the request's header.
            node: the name of the node.

        Raises:
            ApiError: the API server rejected the review.
            Unreachable: there was no response.
        """
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not token:
            return 401
        user = await self._user(token.strip())
        if user is None:
            return 401
        return 200 if await self._may_read(user, node) else 403

    async def _user(self, token: str) -> dict[str, Any] | None:
        expiry, user = self._users.get(token, (0.0, {}))
        if self._clock.monotonic() < expiry:
            return user
        status = await self._review(TOKEN_REVIEWS, {"token": token})
        if not status.get("authenticated"):
            return None
        user = status.get("user") or {}
        self._users[token] = self._clock.monotonic() + AUTHENTICATED, user
        return user

    async def _may_read(self, user: dict[str, Any], node: str) -> bool:
        key = str(user.get("uid") or "") + str(user.get("username")), node
        expiry, allowed = self._access.get(key, (0.0, False))
        if self._clock.monotonic() < expiry:
            return allowed
        attributes = {"verb": "get", "version": "v1", "resource": "nodes", "subresource": "stats", "name": node}
        spec = {
            "user": user.get("username"),
            "uid": user.get("uid", ""),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
            "resourceAttributes": attributes,
        }
        allowed = bool((await self._review(SUBJECT_ACCESS_REVIEWS, spec)).get("allowed"))
        self._access[key] = self._clock.monotonic() + (ALLOWED if allowed else DENIED), allowed
        return allowed

    async def _review(self, resource: Any, spec: dict[str, Any]) -> dict[str, Any]:
        created = await verbs.create(self._api, resource, {"metadata": {}, "spec": spec})
        found: dict[str, Any] = created.get("status") or {}
        return found


class Kubelet:
    """A kubelet that the server simulates. The controller updates the attributes.

    Attributes:
        node: the name of the node.
        address: the loopback address of the node.
        fault: how the kubelet fails, or ``None``.
        silent: whether the node is simulated as failed. Its kubelet accepts connections and never responds.
    """

    def __init__(self, node: str, address: str, summary: Callable[[bool], dict[str, Any]]) -> None:
        """Initialize a kubelet.

        Args:
            node: the name of the node.
            address: the loopback address of the node.
            summary: returns the Summary, given whether only CPU and memory are requested.
        """
        self.node = node
        self.address = address
        self.summary = summary
        self.fault: Fault | None = None
        self.silent = False


class Server:
    """Listens on the addresses of all nodes."""

    def __init__(self, reviewer: Reviewer, keys: Keys, port: int) -> None:
        """Initialize the server.

        Args:
            reviewer: authenticates and authorizes the requests.
            keys: the CA that signs a serving certificate for each node.
            port: the port on each address.
        """
        self._reviewer = reviewer
        self._keys = keys
        self._port = port
        self._kubelets: dict[str, Kubelet] = {}
        self._sites: dict[str, web.TCPSite] = {}
        app = web.Application()
        app.router.add_get("/healthz", self._healthy)
        app.router.add_get("/stats/summary", self._respond)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    async def start(self) -> None:
        """Prepare the server. It listens nowhere before the first :meth:`add`."""
        await self._runner.setup()

    async def stop(self) -> None:
        """Close all listeners and connections."""
        await self._runner.cleanup()

    async def add(self, kubelet: Kubelet) -> None:
        """Listen on the address of a kubelet."""
        names = {"node": kubelet.node, "address": kubelet.address}
        if kubelet.fault == "OtherCertificate":
            names = {"node": "other", "address": "127.0.0.2"}
        self._kubelets[kubelet.address] = kubelet
        context = _context(kubelet_certificate(self._keys, **names), self._keys.directory)
        site = web.TCPSite(self._runner, kubelet.address, self._port, ssl_context=context)
        await site.start()
        self._sites[kubelet.address] = site

    async def remove(self, kubelet: Kubelet) -> None:
        """Stop listening on the address of a kubelet."""
        site = self._sites.pop(kubelet.address, None)
        self._kubelets.pop(kubelet.address, None)
        if site is not None:
            await site.stop()

    def _kubelet(self, request: web.Request) -> Kubelet:
        assert request.transport is not None
        found = self._kubelets.get(request.transport.get_extra_info("sockname")[0])
        if found is None:
            raise web.HTTPServiceUnavailable(text="the node was deleted")
        return found

    async def _healthy(self, request: web.Request) -> web.Response:
        self._kubelet(request)
        return web.Response(text="ok")

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        kubelet = self._kubelet(request)
        fault = kubelet.fault
        if kubelet.silent or fault == "Hang":
            await asyncio.Event().wait()  # until the client disconnects
        if fault == "Reset":
            assert request.transport is not None
            request.transport.abort()
        if fault in _STATUS:
            return web.Response(status=_STATUS[fault], text=fault)
        try:
            status = await self._reviewer.status(request.headers.get("Authorization", ""), kubelet.node)
        except (ApiError, Unreachable) as error:
            return web.Response(status=500, text=str(error))
        if status != 200:
            return web.Response(status=status, text="Unauthorized" if status == 401 else "Forbidden")
        only = request.query.get("only_cpu_and_memory") == "true"
        body = distorted(kubelet.summary(only), fault)
        if fault == "Drip":
            return await _drip(request, body)
        return web.Response(body=body, content_type="application/json")


_STATUS: Final[dict[str | None, int]] = {"Unauthorized": 401, "Forbidden": 403, "ServerError": 500}


def distorted(summary: dict[str, Any], fault: Fault | None) -> bytes:
    """Encode a Summary as a kubelet with this fault does."""
    node = summary["node"]
    if fault == "Garbage":
        return bytes(range(256)) * 4
    if fault == "Nested":
        return b'{"node":' + b"[" * 100_000
    if fault == "Negative":
        _overwrite(node, availableBytes=-1, inodesFree=-1)
    elif fault == "Absurd":
        _overwrite(node, availableBytes=2**63 - 1, inodesFree=2**63 - 1)
        for pod in summary["pods"]:
            _overwrite(pod, usageBytes=2**63 + 1, workingSetBytes=2**63 + 1, usedBytes=2**63 + 1)
    elif fault == "NoMemory":
        del node["memory"]
        node["systemContainers"] = []
    elif fault == "OtherNode":
        node["nodeName"] = "other-" + node["nodeName"]
    encoded = msgspec.json.encode(summary)
    if fault == "Truncated":
        return encoded[: len(encoded) // 2]
    return encoded + b" " * _HUGE if fault == "Huge" else encoded


def _overwrite(value: Any, **fields: int) -> None:
    """Replace fields wherever they occur."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in fields:
                value[key] = fields[key]
            else:
                _overwrite(inner, **fields)
    elif isinstance(value, list):
        for inner in value:
            _overwrite(inner, **fields)


async def _drip(request: web.Request, body: bytes) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        for index in range(len(body)):
            await response.write(body[index : index + 1])
            await asyncio.sleep(1.0)
    return response


def _context(certificate: bytes, directory: Path) -> ssl.SSLContext:
    """Return a TLS context; :mod:`ssl` reads certificates and keys only from files."""
    path = directory / "kubelet.pem"
    path.touch(mode=0o600)
    path.write_bytes(certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(path)
    finally:
        path.unlink()
    return context
