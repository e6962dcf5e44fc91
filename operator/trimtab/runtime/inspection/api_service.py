"""Registers the inspection API with the API server, while this process can answer.

An APIService whose server does not respond makes discovery incomplete, and then the API server deletes no namespaces.
So the leader registers it only once it serves, and removes it at the shutdown. Its owner is an object of the chart, so
that an uninstallation removes it even if the operator could not.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import Struct

from trimtab.admission.certificate_maintenance import WRITE_AGAIN_AFTER, CertificateMaintenance
from trimtab.admission.certificates import Certificates, CertificateSecret, Lifetimes
from trimtab.kube import verbs
from trimtab.kube.api import Api, NotFound
from trimtab.kube.clock import Clock
from trimtab.kube.errors import InputError
from trimtab.kube.objects.meta import ClusterScoped
from trimtab.kube.resources import API_SERVICES, CLUSTER_ROLES
from trimtab.kube.watching.store import Store
from trimtab.runtime.inspection.questions import GROUP, VERSION

log = logging.getLogger(__name__)

API_SERVICE: Final = f"{VERSION}.{GROUP}"
FIELD_MANAGER: Final = "trimtab-inspection"
GROUP_PRIORITY: Final = 100
VERSION_PRIORITY: Final = 10


class RegistrationSettings(Struct, frozen=True, kw_only=True):
    """The settings of :class:`ApiServiceMaintenance`.

    Attributes:
        namespace: the operator's namespace, with the Secret and the Service.
        service: name of the Service.
        service_port: port of the Service.
        secret: name of the Secret with the certificate.
        owner: name of the ClusterRole that owns the APIService; empty for no owner.
        lifetimes: the lifetimes of certificates.
        issue: trimtab always issues the certificates.
    """

    namespace: str
    service: str
    service_port: int = 443
    secret: str
    owner: str = ""
    lifetimes: Lifetimes = Lifetimes()
    issue: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that the serving certificate must have. The API server uses the first one."""
        host = f"{self.service}.{self.namespace}"
        return f"{host}.svc", host


class ApiService(ClusterScoped, frozen=True):
    """A stored APIService, with its spec and its owners as plain data."""

    spec: Mapping[str, Any] = {}
    owners: tuple[str, ...] = ()

    @property
    def bundle(self) -> bytes:
        """Return the ``caBundle``; empty if it is invalid."""
        try:
            return base64.b64decode(self.spec.get("caBundle") or "", validate=True)
        except (binascii.Error, ValueError, TypeError):
            return b""


class _WireOwner(Struct, frozen=True):
    uid: str = ""


class _WireMetadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    owner_references: tuple[_WireOwner, ...] = ()


class _WireApiService(Struct, frozen=True):
    metadata: _WireMetadata
    spec: dict[str, Any] = {}


def decode_api_service(raw: Any) -> ApiService:
    """Decode an APIService from JSON.

    Raises:
        InputError: it is not an APIService.
    """
    try:
        found = msgspec.json.decode(raw, type=_WireApiService)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not an APIService: {error}") from error
    metadata = found.metadata
    owners = tuple(each.uid for each in metadata.owner_references)
    return ApiService(metadata.name, metadata.uid, metadata.resource_version, found.spec, owners)


class ApiServiceMaintenance(CertificateMaintenance):
    """The loop that maintains the certificate, and the APIService while this replica leads.

    Args:
        api: the API server.
        settings: the settings.
        secrets: the store with the Secret.
        api_services: the store with the APIService.
        serve: starts to serve a certificate and its private key, as PEM.
        is_serving: returns whether this process is the leader and accepts requests.
        clock: provides the time.
    """

    def __init__(
        self,
        api: Api,
        settings: RegistrationSettings,
        *,
        secrets: Store[CertificateSecret],
        api_services: Store[ApiService],
        serve: Callable[[bytes, bytes], None],
        is_serving: Callable[[], bool],
        clock: Clock,
    ) -> None:
        super().__init__("inspection API", "APIService", api, settings, secrets=secrets, serve=serve, clock=clock)
        self._settings = settings
        self._api_services = api_services
        self._is_serving = is_serving
        self._applied: tuple[dict[str, Any], float] | None = None
        self._owner: dict[str, Any] | None = None

    async def remove(self) -> None:
        """Remove the APIService, if this process maintains it. Requests in progress are still answered.

        Raises:
            ApiError: the API server refused it.
            Unreachable: there was no response.
        """
        self.close()
        if not self.registered:
            return
        self.registered = False
        with suppress(NotFound):
            await verbs.delete(self._api, API_SERVICES, API_SERVICE, timeout=5.0)
            log.info("Removed APIService %s", API_SERVICE)

    def _synced(self) -> bool:
        return self._api_services.synced

    def _bundles(self) -> tuple[bytes, ...]:
        stored = self._api_services.get(API_SERVICE)
        return () if stored is None else (stored.bundle,)

    async def _register(self, current: Certificates, registered: tuple[bytes, ...]) -> float | None:
        if self.closing or not self._is_serving():
            self.registered = False
            return 1.0
        wanted = self._wanted(self._bundle(current, registered))
        stored = self._api_services.get(API_SERVICE)
        owner = await self._owner_reference()
        owned = not owner or (stored is not None and owner["uid"] in stored.owners)
        if stored is not None and owned and {key: stored.spec.get(key) for key in wanted} == wanted:
            self.registered = True
            return None
        now = self._clock.monotonic()
        if self._applied is not None and self._applied[0] == wanted and now - self._applied[1] < WRITE_AGAIN_AFTER:
            return WRITE_AGAIN_AFTER  # the change has not arrived over the watch yet
        metadata = {"metadata": {"ownerReferences": [owner]}} if owner else {}
        await verbs.apply(
            self._api, API_SERVICES, API_SERVICE, {**metadata, "spec": wanted}, field_manager=FIELD_MANAGER
        )
        self._applied, self.registered = (wanted, now), True
        log.info("Registered APIService %s", API_SERVICE)
        return WRITE_AGAIN_AFTER

    def _wanted(self, bundle: bytes) -> dict[str, Any]:
        settings = self._settings
        return {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": GROUP_PRIORITY,
            "versionPriority": VERSION_PRIORITY,
            "caBundle": base64.b64encode(bundle).decode(),
            "service": {"namespace": settings.namespace, "name": settings.service, "port": settings.service_port},
        }

    async def _owner_reference(self) -> dict[str, Any]:
        """Return the owner reference to the chart's ClusterRole; empty if there is no owner."""
        if not self._settings.owner:
            return {}
        if self._owner is None:
            found = await verbs.get(self._api, CLUSTER_ROLES, self._settings.owner)
            self._owner = {
                "apiVersion": CLUSTER_ROLES.api_version,
                "kind": CLUSTER_ROLES.kind,
                "name": self._settings.owner,
                "uid": found["metadata"]["uid"],
            }
        return self._owner
