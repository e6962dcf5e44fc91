"""Logins that end: the kubelet rotates tokens every hour, exec plugins give out short-lived ones.

All follow one rule: renew in time if an end is known, and once more when the server refuses with 401, for clocks differ
and tokens are revoked.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.connection.config import Login, ServerConfig
from trimtab.kube.errors import InputError

logger = logging.getLogger(__name__)

TOKEN_CHECK: Final = 60.0
"""Seconds between looks at a token's file. The kubelet renews at 80 % of the life, so a minute is early enough."""

EXPIRY_SKEW: Final = 60.0
"""Seconds before its end that a login is renewed."""

PLUGIN_PAUSE: Final = 5.0
"""Seconds between two runs of a plugin: a cluster that refuses every request must not start a process for each."""


class Credentials(Protocol):
    """Where requests get their login from."""

    async def login(self) -> Login:
        """The login to use now, renewed if it is due."""
        ...

    async def renew(self, refused: Login) -> Login | None:
        """Another login after the server refused this one with 401, or ``None`` where there is none."""
        ...


class FixedCredentials:
    """A login that never changes."""

    def __init__(self, login: Login) -> None:
        self._login = login

    async def login(self) -> Login:
        """The one login."""
        return self._login

    async def renew(self, refused: Login) -> Login | None:  # noqa: ARG002
        """None other is to be had."""
        return None


class TokenFileCredentials:
    """A bearer token in a file that somebody else rewrites: a pod's service account, or a user's ``tokenFile``."""

    def __init__(self, login: Login, file: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._login = login
        self._file = Path(file)
        self._clock = clock
        self._checked = clock.monotonic()

    async def login(self) -> Login:
        """The token, read again if the last look is a minute old."""
        if self._clock.monotonic() - self._checked >= TOKEN_CHECK:
            self._read()
        return self._login

    async def renew(self, refused: Login) -> Login | None:
        """The file's token if it is another than the refused one."""
        self._read()
        return self._login if self._login != refused else None

    def _read(self) -> None:
        self._checked = self._clock.monotonic()
        try:
            token = self._file.read_bytes().decode("utf-8", "replace").strip()
        except OSError as error:  # the old token may well live on: its rotation is retried in a minute
            logger.warning("Cannot read the token %s, keeping the last one: %s", self._file, error)
            return
        if token and token.isprintable() and "\ufffd" not in token:  # else no request could carry it
            self._login = msgspec.structs.replace(self._login, authorization=f"Bearer {token}")


class ReloadedCredentials:
    """A kubeconfig's login, loaded again in a thread when it ends or is refused: exec plugins, OIDC, renewed files."""

    def __init__(self, login: Login, load: Callable[[], Login], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._login = login
        self._load = load
        self._clock = clock
        self._loaded = clock.monotonic() - PLUGIN_PAUSE
        self._lock = asyncio.Lock()

    async def login(self) -> Login:
        """The login, loaded again in the last minute before its end."""
        if self._due():
            async with self._lock:
                if self._due():  # else another request has renewed it meanwhile
                    await self._reload()
        return self._login

    async def renew(self, refused: Login) -> Login | None:
        """What the kubeconfig gives now, if it is another login than the refused one."""
        async with self._lock:
            if self._login == refused and self._rested():
                await self._reload()
        return self._login if self._login != refused else None

    def _due(self) -> bool:
        expires = self._login.expires
        return expires is not None and self._clock.now() >= expires - EXPIRY_SKEW and self._rested()

    def _rested(self) -> bool:
        return self._clock.monotonic() - self._loaded >= PLUGIN_PAUSE

    async def _reload(self) -> None:
        try:
            self._login = await asyncio.to_thread(self._load)
        except InputError as error:  # the login at hand may still be good; if not, the server's 401 says so
            logger.warning("Cannot renew the login: %s", error)
        self._loaded = self._clock.monotonic()


def credentials_for(config: ServerConfig, *, clock: Clock = SYSTEM_CLOCK) -> Credentials:
    """The credentials that renew what a configuration logged in with."""
    if config.token_file:
        return TokenFileCredentials(config.login, config.token_file, clock=clock)
    if not config.kubeconfig:
        return FixedCredentials(config.login)

    def load() -> Login:
        from trimtab.kube.connection.kubeconfig import load_kubeconfig

        files = [Path(path) for path in config.kubeconfig.split(os.pathsep)]
        return load_kubeconfig(files, context=config.context).login

    return ReloadedCredentials(config.login, load, clock=clock)
