"""Serves /metrics on its own port, in a thread separate from the Lease, the probes and the controllers.

Example::

    server = MetricsServer(registry, config, MetricsSettings(port=8080, secure=True), refused=...)
    await server.start()
    ...
    await server.stop()
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from aiohttp import web
from msgspec import Struct
from prometheus_client import CollectorRegistry

from trimtab.kube.connection.config import ServerConfig
from trimtab.kube.connection.transport import Transport
from trimtab.runtime.http.authorizer import STATUS
from trimtab.runtime.http.certificate import ServingCertificate
from trimtab.runtime.http.server import Handler, HttpServer, Limits, OnRefused
from trimtab.runtime.http.server_thread import ServerThread
from trimtab.runtime.metrics.authorizer import MetricsAuthorizer
from trimtab.runtime.metrics.page import MetricsPage

Observe = Callable[[str, int, float], None]


class MetricsSettings(Struct, frozen=True, kw_only=True):
    """The settings of the metrics server.

    Attributes:
        host: the address to listen on; ``""`` for all IPv4 and IPv6 addresses.
        port: the port; 0 for any free port.
        secure: whether to use TLS, and serve only clients that the API server authenticates and authorizes.
        cert_file: PEM file with the certificate; ``""`` for a self-signed one.
        key_file: PEM file with the private key of the certificate.
        limits: the limits for clients; ``None`` for the defaults.
    """

    host: str = ""
    port: int = 8080
    secure: bool = False
    cert_file: str = ""
    key_file: str = ""
    limits: Limits | None = None


class MetricsServer(ServerThread):
    """Serves /metrics from its own thread.

    Args:
        registry: the Prometheus registry.
        config: the configuration of the connection to the API server, which reviews tokens if ``settings.secure`` is
            set.
        settings: settings of the server.
        refused: called in the thread with the reason code of each refusal.
        observe: called in the thread for each request to the API server.

    Raises:
        InputError: the certificate files are not usable.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        config: ServerConfig,
        settings: MetricsSettings,
        *,
        refused: OnRefused = lambda _reason: None,
        observe: Observe | None = None,
    ) -> None:
        self._registry = registry
        self._config = config
        self._settings = settings
        self._refused = refused
        self._observe = observe
        encrypted = settings.secure or bool(settings.cert_file)
        self._certificate = ServingCertificate(settings.cert_file, settings.key_file) if encrypted else None
        super().__init__("metrics", option="--metrics-listen", host=settings.host, port=settings.port)

    async def _serve(self, stopping: asyncio.Event) -> None:
        settings = self._settings
        async with AsyncExitStack() as stack:
            page = MetricsPage(self._registry)
            stack.callback(page.close)
            answer: Handler = page.answer
            if settings.secure:
                api = await stack.enter_async_context(Transport(self._config, connections=8, observe=self._observe))
                authorizer = MetricsAuthorizer(api)
                stack.push_async_callback(authorizer.close)
                answer = require_authorization(answer, authorizer, self._refused)
            server = HttpServer(
                settings.host,
                settings.port,
                {"/metrics": answer},
                limits=settings.limits,
                tls=None if self._certificate is None else self._certificate.context,
                refused=self._refused,
            )
            await server.start()
            stack.push_async_callback(server.stop)
            self._listens(server.port)
            await stopping.wait()


def require_authorization(answer: Handler, authorizer: MetricsAuthorizer, refused: OnRefused) -> Handler:
    """Wrap a handler so that it responds only to authorized clients."""

    async def answer_or_refuse(request: web.BaseRequest) -> web.Response:
        reason = await authorizer.refusal_reason(request.headers.get("Authorization", ""), request.remote or "")
        if reason is None:
            return await answer(request)
        refused(reason)
        status = STATUS[reason]
        headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}}.get(status, {})
        return web.Response(status=status, headers=headers)

    return answer_or_refuse
