"""Assembles the inspection API of a process: its server, its certificate, and its APIService.

Every replica serves, because each keeps the cluster in memory. Only the leader registers the APIService.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from msgspec import Struct
from prometheus_client import CollectorRegistry, Histogram

from trimtab.admission.certificates import Lifetimes, decode_secret
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.controller.loop import TaskSupervisor, end_tasks
from trimtab.descheduling.policy_conflicts import Scoring
from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.connection.config import ServerConfig
from trimtab.kube.resources import API_SERVICES, SECRETS, Resource
from trimtab.kube.watching.informer import Informer, ServerAbilities
from trimtab.kube.watching.store import Store
from trimtab.pressure.measurement import NodeReadings
from trimtab.runtime.http.server import OnRefused
from trimtab.runtime.inspection.api_service import (
    API_SERVICE,
    ApiServiceMaintenance,
    RegistrationSettings,
    decode_api_service,
)
from trimtab.runtime.inspection.front_proxy import FrontProxy
from trimtab.runtime.inspection.inspector import Inspector
from trimtab.runtime.inspection.server import InspectionServer, Observe

log = logging.getLogger(__name__)

START_POLL: Final = 0.1
"""Seconds between two checks whether there is a certificate, so that the server can start."""


class InspectionSettings(Struct, frozen=True, kw_only=True):
    """The settings of the inspection API.

    Attributes:
        host: the address to listen on; ``""`` for all IPv4 and IPv6 addresses.
        port: the port.
        service: name of the Service in the operator's namespace.
        service_port: port of the Service.
        secret: name of the Secret with the certificate.
        owner: name of the ClusterRole that owns the APIService; empty for no owner.
        certificate_lifetime: lifetime of an issued certificate in seconds.
    """

    host: str = ""
    port: int = 8443
    service: str = "trimtab-inspection"
    service_port: int = 443
    secret: str = "trimtab-inspection-certificate"
    owner: str = ""
    certificate_lifetime: float = Lifetimes().certificate


class InspectionMetrics:
    """The metrics of the inspection API.

    Args:
        registry: the Prometheus registry.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.seconds = Histogram(
            "trimtab_inspection_seconds",
            "Seconds for which a request to the inspection API used the snapshot, by resource.",
            ["resource"],
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
            registry=registry,
        )


class InspectionService:
    """Runs the inspection API on the controllers' event loop, and its server in a thread.

    Args:
        settings: the settings.
        api: the API client of the process.
        config: the configuration of the connection to the API server.
        shared: the snapshot.
        kinds: the kinds in the snapshot.
        not_ready: returns why the snapshot is not up to date; ``None`` if it is.
        leading: returns whether this process is the leader.
        namespace: the operator's namespace.
        registry: the Prometheus registry.
        scoring: the scheduler's scoring strategy.
        node_readings: returns what this process has read from nodes; see :class:`.Inspector`.
        refused: called with the reason code of each refusal.
        observe: called for each request of the server to the API server.
    """

    def __init__(
        self,
        settings: InspectionSettings,
        *,
        api: Api,
        config: ServerConfig,
        shared: SharedSnapshot,
        kinds: Sequence[Resource],
        not_ready: Callable[[], str | None],
        leading: Callable[[], bool],
        namespace: str,
        registry: CollectorRegistry,
        scoring: Scoring | None = None,
        node_readings: Callable[[], Mapping[str, NodeReadings] | None] = lambda: None,
        refused: OnRefused = lambda _reason: None,
        observe: Observe | None = None,
    ) -> None:
        metrics = InspectionMetrics(registry)
        self._leading = leading
        self._listening = False
        self._front_proxy = FrontProxy(api, SYSTEM_CLOCK)
        self._inspector = Inspector(
            api,
            shared,
            not_ready=not_ready,
            source=config.server,
            scoring=scoring,
            node_readings=node_readings,
            observe=lambda resource, seconds: metrics.seconds.labels(resource).observe(seconds),
        )
        self._server = InspectionServer(
            settings.host,
            settings.port,
            config=config,
            front_proxy=self._front_proxy,
            answer=self._inspector.answer,
            kinds=kinds,
            refused=refused,
            observe=observe,
        )
        secrets, api_services = Store[Any](), Store[Any]()
        self._maintenance = ApiServiceMaintenance(
            api,
            RegistrationSettings(
                namespace=namespace,
                service=settings.service,
                service_port=settings.service_port,
                secret=settings.secret,
                owner=settings.owner,
                lifetimes=Lifetimes(settings.certificate_lifetime),
            ),
            secrets=secrets,
            api_services=api_services,
            serve=self._front_proxy.serve,
            is_serving=self._is_serving,
            clock=SYSTEM_CLOCK,
        )
        abilities = ServerAbilities()
        self._informers: list[Informer[Any]] = [
            Informer(
                api,
                SECRETS,
                secrets,
                namespace=namespace,
                field_selector=f"metadata.name={settings.secret}",
                decode=decode_secret,
                abilities=abilities,
            ),
            Informer(
                api,
                API_SERVICES,
                api_services,
                field_selector=f"metadata.name={API_SERVICE}",
                decode=decode_api_service,
                abilities=abilities,
            ),
        ]
        for store in (secrets, api_services):
            store.subscribe(lambda _old, _new: self._maintenance.wake())

    @property
    def port(self) -> int:
        """Return the port on which the server listens."""
        return self._server.port

    async def run(self, stopping: asyncio.Event) -> None:
        """Serve until the process stops. Then remove the APIService, and stop the server.

        Args:
            stopping: set when the process stops.

        Raises:
            InputError: the address is already in use.
        """
        async with AsyncExitStack() as stack:
            background = TaskSupervisor("inspection API", SYSTEM_CLOCK)
            watching = [asyncio.create_task(each.run(), name=f"watch {each.resource.name}") for each in self._informers]
            stack.push_async_callback(end_tasks, watching)
            stack.push_async_callback(background.cancel)
            stack.push_async_callback(self._inspector.close)
            background.start("read the front proxy's CA", self._front_proxy.run)
            background.start("maintain the inspection API", self._maintenance.run)
            while not self._front_proxy.has_certificate:
                if stopping.is_set():
                    return
                await asyncio.sleep(START_POLL)
            await self._server.start()
            stack.push_async_callback(self._server.stop)
            self._listening = True
            stack.push_async_callback(self._unregister)
            log.info("Serving the inspection API on port %d", self.port, extra={"port": self.port})
            self._maintenance.wake()
            await stopping.wait()

    def _is_serving(self) -> bool:
        """Return whether the APIService may be registered by this process."""
        return self._listening and self._leading() and self._front_proxy.ready

    async def _unregister(self) -> None:
        self._listening = False
        if not self._leading():
            return
        try:
            await self._maintenance.remove()
        except (ApiError, Unreachable) as error:
            log.warning("Failed to remove APIService %s: %s", API_SERVICE, error)
