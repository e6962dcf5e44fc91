"""Authenticates requests that the API server forwards, as the API server's own extension servers do.

The aggregation layer of kube-apiserver sends the user of a request in header fields (``X-Remote-User``,
``X-Remote-Group``, ``X-Remote-Extra-…``). Any client can send such fields, so they count only on a TLS connection whose
client certificate is signed by the request-header CA and has an allowed common name. kube-apiserver publishes both in
the ConfigMap ``extension-apiserver-authentication`` in ``kube-system``, and they rotate.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import unquote
from weakref import WeakKeyDictionary

import msgspec
from aiohttp import web
from msgspec import Struct

from trimtab.controller.progress import current_component
from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.errors import InputError
from trimtab.kube.resources import CONFIG_MAPS
from trimtab.kube.verbs import get
from trimtab.runtime.http.authorizer import UserInfo
from trimtab.runtime.http.certificate import context_from_pem

log = logging.getLogger(__name__)

NAMESPACE: Final = "kube-system"
NAME: Final = "extension-apiserver-authentication"
READ_PERIOD: Final = 30.0
"""Seconds between two reads of the ConfigMap. A new CA is trusted, and an old one no longer, after at most this."""
RETRY_PERIOD: Final = 2.0
MAX_VALUES: Final = 256
"""Maximum number of groups and of extra values of a user."""


class FrontProxyConfig(Struct, frozen=True, kw_only=True):
    """How requests of the API server's aggregation layer are recognized.

    Attributes:
        authority: the request-header CA certificates, as PEM.
        names: the allowed common names of client certificates; empty for any name.
        user_headers: the header fields with the user name, the first one that is present counts.
        uid_headers: the header fields with the UID.
        group_headers: the header fields with groups.
        extra_prefixes: prefixes of the header fields with extra values.
    """

    authority: str
    names: frozenset[str] = frozenset()
    user_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()


class RequestHeaders(Protocol):
    """The header fields of a request; names are case-insensitive, and a field may occur several times."""

    def getall(self, key: str, default: Sequence[str]) -> Sequence[str]:
        """Return all values of a field."""
        ...

    def items(self) -> Any:
        """Return all fields."""
        ...


def front_proxy_config(data: Mapping[str, str]) -> FrontProxyConfig:
    """Return the configuration in the data of the ConfigMap.

    Raises:
        InputError: a field is missing or invalid, or the configuration would let any client with a certificate of the
            cluster impersonate users.
    """
    authority = data.get("requestheader-client-ca-file", "")
    if not authority.strip():
        raise InputError("is missing: the aggregation layer is not configured", field="requestheader-client-ca-file")
    names = frozenset(_strings(data, "requestheader-allowed-names"))
    if not names and authority.strip() == data.get("client-ca-file", "").strip():
        raise InputError(
            "is empty, and the request-header CA is also the CA of client certificates: every owner of a client "
            "certificate could act as any user",
            field="requestheader-allowed-names",
        )
    users = _strings(data, "requestheader-username-headers")
    if not users:
        raise InputError("is empty", field="requestheader-username-headers")
    return FrontProxyConfig(
        authority=authority,
        names=names,
        user_headers=users,
        uid_headers=_strings(data, "requestheader-uid-headers"),
        group_headers=_strings(data, "requestheader-group-headers"),
        extra_prefixes=tuple(each.lower() for each in _strings(data, "requestheader-extra-headers-prefix") if each),
    )


def _strings(data: Mapping[str, str], field: str) -> tuple[str, ...]:
    try:
        return msgspec.json.decode(data.get(field) or "[]", type=tuple[str, ...])
    except msgspec.DecodeError as error:
        raise InputError(f"is not a list of strings: {error}", field=field) from None


def user_of(headers: RequestHeaders, config: FrontProxyConfig) -> UserInfo | None:
    """Return the user in the header fields; ``None`` if they name no user, or have too many values.

    The caller must have verified the client certificate.
    """
    username = _first(headers, config.user_headers)
    if not username:
        return None
    groups = tuple(group for name in config.group_headers for group in headers.getall(name, ()))
    extra: dict[str, list[str]] = {}
    for name, value in headers.items():
        for prefix in config.extra_prefixes:
            if name.lower().startswith(prefix):
                extra.setdefault(unquote(name[len(prefix) :].lower()), []).append(value)
                break
    if len(groups) + sum(map(len, extra.values())) > MAX_VALUES:
        return None
    return UserInfo(
        username=username,
        uid=_first(headers, config.uid_headers),
        groups=groups,
        extra={key: tuple(values) for key, values in extra.items()},
    )


def _first(headers: RequestHeaders, names: Sequence[str]) -> str:
    return next((value for name in names for value in headers.getall(name, ()) if value), "")


class FrontProxy:
    """Keeps the TLS context of the server up to date, and returns the users of forwarded requests.

    Only :meth:`run` and :meth:`serve` run on the controllers' event loop; the server's thread calls the other methods.

    Args:
        api: the API server.
        clock: provides the time.

    Attributes:
        config: the configuration; ``None`` before the first read, or if the aggregation layer is not configured.
        problem: why :attr:`config` is unknown; empty if it is known.
    """

    def __init__(self, api: Api, clock: Clock) -> None:
        self.config: FrontProxyConfig | None = None
        self.problem = "the configuration of the aggregation layer has not been read yet"
        self._api = api
        self._clock = clock
        self._certificate: tuple[bytes, bytes] | None = None
        self._context: ssl.SSLContext | None = None
        self._config_of: WeakKeyDictionary[ssl.SSLContext, FrontProxyConfig] = WeakKeyDictionary()

    async def run(self) -> None:
        """Read the configuration periodically."""
        component = current_component()
        while True:
            component.begin()
            await self.read()
            period = READ_PERIOD if self.config is not None else RETRY_PERIOD
            component.succeed(period)
            await self._clock.sleep(period)

    async def read(self) -> None:
        """Read the configuration once. If that fails, the previous one remains in use unless it is no longer valid."""
        try:
            found = await get(self._api, CONFIG_MAPS, NAME, namespace=NAMESPACE)
            config = front_proxy_config(found.get("data") or {})
            if config != self.config:
                _trusting(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), config)
                self.config = config
                self._renew()
                log.info(
                    "Loaded the API server's front-proxy CA; accepting requests from the aggregation layer",
                    extra={"names": sorted(config.names)},
                )
            self.problem = ""
        except (ApiError, Unreachable) as error:
            self._report(f"cannot read ConfigMap {NAMESPACE}/{NAME}: {error}")
        except (InputError, ssl.SSLError) as error:
            self._report(f"ConfigMap {NAMESPACE}/{NAME}: {error}")
            self.config = None
            self._renew()

    def serve(self, certificate: bytes, key: bytes) -> None:
        """Use a serving certificate and its private key, as PEM, for new connections."""
        self._certificate = certificate, key
        self._renew()

    @property
    def ready(self) -> bool:
        """Return whether there is a serving certificate and a known front proxy."""
        return self._context is not None and self.config is not None

    @property
    def has_certificate(self) -> bool:
        """Return whether there is a serving certificate."""
        return self._context is not None

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of the next connection."""
        assert self._context is not None
        return self._context

    def user(self, request: web.BaseRequest) -> UserInfo | None:
        """Return the user in the header fields of a request; ``None`` unless the front proxy has sent it."""
        config, transport = self.config, request.transport
        if config is None or transport is None:
            return None
        verified = self._config_of.get(transport.get_extra_info("sslcontext"))
        if verified is None or (verified.authority, verified.names) != (config.authority, config.names):
            return None  # no TLS, or a connection from before a rotation
        certificate = transport.get_extra_info("peercert")  # empty unless it was verified
        if not certificate or not _is_allowed(certificate, config.names):
            return None
        return user_of(request.headers, config)

    def _renew(self) -> None:
        if self._certificate is None:
            return
        context = context_from_pem(*self._certificate)
        if self.config is not None:
            _trusting(context, self.config)
            self._config_of[context] = self.config
        self._context = context

    def _report(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("Cannot authenticate requests from the aggregation layer: %s", problem)
        self.problem = problem


def _trusting(context: ssl.SSLContext, config: FrontProxyConfig) -> None:
    """Let a context verify client certificates with the request-header CA. Clients need not have a certificate.

    Raises:
        ssl.SSLError: the CA is not a PEM certificate.
    """
    context.load_verify_locations(cadata=config.authority)
    context.verify_mode = ssl.CERT_OPTIONAL


def _is_allowed(certificate: Mapping[str, Any], names: frozenset[str]) -> bool:
    common = {value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"}
    return not names or bool(common & names)
