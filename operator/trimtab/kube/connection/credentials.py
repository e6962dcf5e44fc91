"""Renews the credentials of requests, adds them to requests, and creates the TLS context.

The kubelet rotates tokens every hour, and exec plugins issue short-lived ones. All credentials are renewed before they
expire, if the expiry is known. They are also renewed after a 401 response, because clocks differ and tokens may be
revoked.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol

import aiohttp
import msgspec
from yarl import URL

from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.connection.config import Login, ServerConfig
from trimtab.kube.errors import InputError

logger = logging.getLogger(__name__)

TOKEN_CHECK: Final = 60.0
"""Minimum seconds between two reads of a token file.

This is often enough, because the kubelet renews tokens when 80 % of their lifetime has passed.
"""

EXPIRY_SKEW: Final = 60.0
"""Credentials are renewed this many seconds before they expire."""

PLUGIN_MIN_INTERVAL: Final = 5.0
"""Minimum seconds between two runs of an exec plugin, so that not every rejected request starts a process."""


class Credentials(Protocol):
    """Supplies the credentials of each request."""

    async def login(self) -> Login:
        """Return the current credentials, renewed first if they are about to expire."""
        ...

    async def renew(self, refused: Login) -> Login | None:
        """Return other credentials after the server rejected some with 401, or ``None`` if there are no others.

        Args:
            refused: the rejected credentials.
        """
        ...


class FixedCredentials:
    """Credentials that never change."""

    def __init__(self, login: Login) -> None:
        self._login = login

    async def login(self) -> Login:
        """Return the credentials."""
        return self._login

    async def renew(self, refused: Login) -> Login | None:  # noqa: ARG002
        """Return ``None``, because there are no other credentials."""
        return None


class TokenFileCredentials:
    """A bearer token in a file that another process updates: a pod's service account, or a user's ``tokenFile``."""

    def __init__(self, login: Login, file: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._login = login
        self._file = Path(file)
        self._clock = clock
        self._checked = clock.monotonic()

    async def login(self) -> Login:
        """Return the token. The file is read again if the last read was more than a minute ago."""
        if self._clock.monotonic() - self._checked >= TOKEN_CHECK:
            self._read()
        return self._login

    async def renew(self, refused: Login) -> Login | None:
        """Return the token in the file if it differs from the rejected one, otherwise ``None``."""
        self._read()
        return self._login if self._login != refused else None

    def _read(self) -> None:
        self._checked = self._clock.monotonic()
        try:
            token = self._file.read_bytes().decode("utf-8", "replace").strip()
        except OSError as error:  # the previous token may still be valid, and the file is read again in a minute
            logger.warning("Failed to read the token file %s; keeping the previous token: %s", self._file, error)
            return
        if token and token.isprintable() and "\ufffd" not in token:  # otherwise it is not a valid header value
            self._login = msgspec.structs.replace(self._login, authorization=f"Bearer {token}")


class ReloadedCredentials:
    """The credentials of a kubeconfig (exec plugins, OIDC, files), reloaded when they expire or are rejected."""

    def __init__(self, login: Login, load: Callable[[], Login], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._login = login
        self._load = load
        self._clock = clock
        self._loaded = clock.monotonic() - PLUGIN_MIN_INTERVAL
        self._lock = asyncio.Lock()

    async def login(self) -> Login:
        """Return the credentials. They are reloaded in the last minute before their expiry."""
        if self._due():
            async with self._lock:
                if self._due():  # otherwise another request has renewed them
                    await self._reload()
        return self._login

    async def renew(self, refused: Login) -> Login | None:
        """Return the current credentials of the kubeconfig if they differ from the rejected ones, or else ``None``."""
        async with self._lock:
            if self._login == refused and self._may_rerun_plugin():
                await self._reload()
        return self._login if self._login != refused else None

    def _due(self) -> bool:
        expires = self._login.expires
        return expires is not None and self._clock.now() >= expires - EXPIRY_SKEW and self._may_rerun_plugin()

    def _may_rerun_plugin(self) -> bool:
        return self._clock.monotonic() - self._loaded >= PLUGIN_MIN_INTERVAL

    async def _reload(self) -> None:
        try:
            self._login = await asyncio.to_thread(self._load)
        except InputError as error:  # the current credentials may still be valid; otherwise the server responds 401
            logger.warning("Failed to renew the API server credentials; keeping the previous ones: %s", error)
        self._loaded = self._clock.monotonic()


def credentials_for(config: ServerConfig, *, clock: Clock = SYSTEM_CLOCK) -> Credentials:
    """Create self-renewing credentials for a server configuration."""
    if config.token_file:
        return TokenFileCredentials(config.login, config.token_file, clock=clock)
    if not config.kubeconfig:
        return FixedCredentials(config.login)

    def load() -> Login:
        from trimtab.kube.connection.kubeconfig import load_kubeconfig

        files = [Path(path) for path in config.kubeconfig.split(os.pathsep)]
        return load_kubeconfig(files, context=config.context).login

    return ReloadedCredentials(config.login, load, clock=clock)


_Send = Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]


class LoginMiddleware:
    """Adds the credentials to every request to the configured server. After a 401 it retries with renewed credentials.

    After a 401 it retries with renewed credentials.
    """

    CERTIFICATE_TRIES: Final[int] = 16
    """Maximum number of attempts after a client certificate was renewed.

    Pooled connections use the old certificate until they are closed, so the first attempts may be rejected again.
    """

    def __init__(self, config: ServerConfig, credentials: Credentials, tls: ssl.SSLContext | None) -> None:
        self._config = config
        self._origin = URL(config.server).origin()
        self._credentials = credentials
        self._tls = tls
        self._presented = config.login

    async def __call__(self, request: aiohttp.ClientRequest, send: _Send) -> aiohttp.ClientResponse:
        """Send a request with the current credentials.

        After a 401, retry it with renewed credentials if there are any.
        """
        if request.url.origin() != self._origin:  # a redirect to another server must not get our token
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


def tls_context(config: ServerConfig) -> ssl.SSLContext | None:
    """Create the TLS context for a server, with the client certificate.

    Return ``None`` for plain HTTP.

    Raises:
        InputError: a certificate or key is not usable.
    """
    if not config.server.startswith("https://"):
        return None
    try:
        context = ssl.create_default_context(cadata=config.ca.decode("ascii") if config.ca else None)
    except (ssl.SSLError, ValueError) as error:
        raise InputError(f"the certificate authority is not a PEM file: {error}", source=config.source) from error
    # Python 3.13 and later reject authorities without key usage, which many clusters have; Go accepts them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    load_certificate(context, config.login, source=config.source)
    return context


def load_certificate(context: ssl.SSLContext, login: Login, *, source: str = "") -> None:
    """Use the client certificate for every new connection. Does nothing if there is no certificate.

    Python's ssl module can only load files, so the key is written to a temporary file that only this user can read.

    Raises:
        InputError: the certificate or key is not usable, or they do not match.
    """
    if not login.certificate:
        return
    with tempfile.TemporaryDirectory(prefix="trimtab-") as private:  # 0700
        file = Path(private, "login.pem")
        file.touch(mode=0o600)
        file.write_bytes(login.certificate.rstrip() + b"\n" + login.key)
        try:
            context.load_cert_chain(file, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            raise InputError(f"the client certificate or its key is not usable: {error}", source=source) from error


def _no_password() -> str:
    """Reject encrypted keys, for which OpenSSL would otherwise prompt at the terminal."""
    raise ValueError("the key is encrypted")
