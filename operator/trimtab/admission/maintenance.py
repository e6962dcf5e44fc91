"""Keeps the certificate and the registered webhooks of placement admission up to date.

:mod:`trimtab.admission.certificate_maintenance` maintains the certificate. This module registers the webhooks
(:mod:`trimtab.admission.webhooks`) that the PlacementAdmission needs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from trimtab.admission.certificate_maintenance import CHECK_PERIOD, WRITE_AGAIN_AFTER, CertificateMaintenance
from trimtab.admission.certificates import Certificates, CertificateSecret, Lifetimes
from trimtab.admission.webhooks import (
    CONFIGURATIONS,
    Endpoint,
    WebhookConfiguration,
    Webhooks,
    apply_webhooks,
    differs,
    webhooks,
    with_additions,
)
from trimtab.api.placement_admission import PlacementAdmissionSpec
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.resources import Resource
from trimtab.kube.retry import Backoff
from trimtab.kube.watching.store import Store

log = logging.getLogger(__name__)

FIRST_REGISTRATION_DELAY: Final = 10.0
"""Seconds for which a replica must be ready before it registers the first webhooks that use a Service.

Until then the Service may have no endpoint: the kubelet probes every five seconds."""
REWRITES: Final = Backoff(initial=WRITE_AGAIN_AFTER, maximum=CHECK_PERIOD, jitter=0.0)
"""Backoff for writes of the same webhooks: their change has not arrived yet, or another program changes them again."""


class _Write(Struct, frozen=True):
    """The last write of a webhook configuration, and how many of the same webhooks it was in a short time."""

    items: Sequence[Mapping[str, Any]]
    at: float
    number: int


class MaintenanceSettings(Struct, frozen=True, kw_only=True):
    """The settings of :class:`WebhookMaintenance`.

    Attributes:
        endpoint: where the API server reaches the webhooks.
        namespace: the operator's namespace, with the Secret and the Service.
        secret: name of the Secret with the certificate.
        issue: whether trimtab issues the certificates; false if the Secret has another owner.
        configuration: name of both webhook configurations.
        lifetimes: the lifetimes of certificates.
    """

    endpoint: Endpoint
    namespace: str
    secret: str
    issue: bool = True
    configuration: str
    lifetimes: Lifetimes = Lifetimes()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that the serving certificate must have."""
        endpoint = self.endpoint
        if endpoint.url:
            return (urlsplit(endpoint.url).hostname or "localhost",)
        host = f"{endpoint.service}.{endpoint.namespace}.svc"
        return host, f"{endpoint.service}.{endpoint.namespace}"


class WebhookMaintenance(CertificateMaintenance):
    """The loop that maintains the certificate and the webhooks.

    Args:
        api: the API server.
        settings: the settings.
        secrets: the store with the Secret.
        configurations: the stores with the webhook configurations, by resource.
        policy: returns the valid rules; ``None`` if there is no PlacementAdmission.
        serve: starts to serve a certificate and its private key, as PEM.
        is_serving: returns whether this replica accepts requests and knows everything that it needs to answer them.
        clock: provides the time.
        expiry: called with the expiry of the served certificate in seconds since the epoch.

    Attributes:
        problem: why certificates or webhooks are not up to date; empty if they are.
        certificate_problem: why this replica serves no certificate that the API server trusts; empty if it does.
        registered: whether the registered webhooks are the wanted ones.
    """

    def __init__(
        self,
        api: Api,
        settings: MaintenanceSettings,
        *,
        secrets: Store[CertificateSecret],
        configurations: Mapping[Resource, Store[WebhookConfiguration]],
        policy: Callable[[], PlacementAdmissionSpec | None],
        serve: Callable[[bytes, bytes], None],
        is_serving: Callable[[], bool],
        clock: Clock,
        expiry: Callable[[float], None] = lambda _at: None,
    ) -> None:
        super().__init__(
            "webhooks and certificates",
            "webhooks",
            api,
            settings,
            secrets=secrets,
            serve=serve,
            clock=clock,
            expiry=expiry,
        )
        self._settings = settings
        self._configurations = configurations
        self._policy = policy
        self._is_serving = is_serving
        self._serving_since: float | None = None
        self._written: dict[Resource, _Write] = {}

    def _synced(self) -> bool:
        return all(store.synced for store in self._configurations.values())

    async def _register(self, current: Certificates, registered: tuple[bytes, ...]) -> float | None:
        """Register the wanted webhooks if they differ.

        Returns:
            Seconds after which to call this again; ``None`` if the webhooks are registered.

        Raises:
            ApiError: the API server refused it.
            Unreachable: there was no response.
        """
        now = self._clock.monotonic()
        if not self._is_serving():
            self._serving_since = None
            return 1.0
        self._serving_since = now if self._serving_since is None else self._serving_since
        wanted = self._wanted(current, registered)
        first = not registered and (wanted.mutating or wanted.validating)
        if first and not self._settings.endpoint.url:
            wait = self._serving_since + FIRST_REGISTRATION_DELAY - now
            if wait > 0:
                return wait
        self.registered = True
        for resource, found in zip(CONFIGURATIONS, (wanted.mutating, wanted.validating), strict=True):
            name = self._settings.configuration
            stored = self._configurations[resource].get(name)
            items = with_additions(stored, found)
            if not differs(stored, items):
                continue
            self.registered = False
            number, before = 0, self._written.get(resource)
            if before is not None and before.items == items and now - before.at < 2 * REWRITES.maximum:
                number = before.number
                if now - before.at < REWRITES.delay(number - 1):
                    continue
            await apply_webhooks(self._api, resource, name, items)
            self._written[resource] = _Write(items, now, number + 1)
            log.info("Registered %d webhooks in %s %s", len(items), resource.kind, name)
        return None if self.registered else WRITE_AGAIN_AFTER

    def _wanted(self, current: Certificates, registered: tuple[bytes, ...]) -> Webhooks:
        settings, bundle = self._settings, self._bundle(current, registered)
        return webhooks(self._policy(), settings.endpoint, bundle, own_namespace=settings.namespace)

    def _bundles(self) -> tuple[bytes, ...]:
        name = self._settings.configuration
        stored = (store.get(name) for store in self._configurations.values())
        return tuple(bundle for each in stored if each is not None for bundle in each.bundles)
