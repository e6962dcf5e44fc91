"""The login on every request: below our own calls and Kopf's alike, as an aiohttp client middleware."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import Final

import aiohttp
from yarl import URL

from trimtab.kube.connection.config import Login, ServerConfig
from trimtab.kube.connection.credentials import Credentials
from trimtab.kube.connection.tls import load_certificate

_Send = Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]


class LoginMiddleware:
    """Puts the login on every request to our server, and once more after a 401."""

    CERTIFICATE_TRIES: Final[int] = 16
    """Connections tried after a certificate was renewed: pooled ones still stand for the old one until they close."""

    def __init__(self, config: ServerConfig, credentials: Credentials, tls: ssl.SSLContext | None) -> None:
        self._config = config
        self._origin = URL(config.server).origin()
        self._credentials = credentials
        self._tls = tls
        self._presented = config.login

    async def __call__(self, request: aiohttp.ClientRequest, send: _Send) -> aiohttp.ClientResponse:
        """Send with the login of the moment; after a 401 with a renewed one, if there is one."""
        if request.url.origin() != self._origin:  # a redirect elsewhere must not get our token
            return await send(request)
        if self._config.tls_server_name:
            request.server_hostname = self._config.tls_server_name
        login = await self._credentials.login()
        self._present(request, login)
        response = await send(request)
        if response.status != 401:
            return response
        renewed = await self._credentials.renew(login)
        if renewed is None:
            return response
        for _ in range(self.CERTIFICATE_TRIES if renewed.certificate else 1):
            response.close()
            self._present(request, renewed)
            if renewed.certificate:
                request.headers["Connection"] = "close"
            response = await send(request)
            if response.status != 401:
                break
        return response

    def _present(self, request: aiohttp.ClientRequest, login: Login) -> None:
        request.headers.pop("Authorization", None)
        if login.authorization:
            request.headers["Authorization"] = login.authorization
        changed = (login.certificate, login.key) != (self._presented.certificate, self._presented.key)
        if changed and self._tls is not None:
            load_certificate(self._tls, login, source=self._config.source)
        self._presented = login
