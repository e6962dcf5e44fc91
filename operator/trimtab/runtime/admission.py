"""Runs the role ``admission``: the webhooks of placement admission instead of the controllers.

Every replica answers requests and maintains the certificate and the webhook configurations; there is no leader. The
replica is ready when it knows the rules and the namespaces and serves a certificate that the API server trusts.

Shutdown: on SIGTERM the replica is no longer ready but continues to answer, because the API server uses the endpoint of
the Service for some more seconds. It closes each connection after its next response, so that the API
server opens new ones to other replicas. After ``--webhook-shutdown-delay`` it stops listening and finishes the requests
in progress.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

from msgspec import Struct
from prometheus_client import CollectorRegistry

from trimtab.admission.access import BindingAccess
from trimtab.admission.active_rules import ActiveRules, decode_stored_admission
from trimtab.admission.certificates import Lifetimes, decode_secret
from trimtab.admission.maintenance import MaintenanceSettings, WebhookMaintenance
from trimtab.admission.own_resources import OwnResourceReviewer, PolicyConflict, ThresholdConflict
from trimtab.admission.permissions import required_permissions
from trimtab.admission.report import KEY, AdmissionReporter, Health
from trimtab.admission.reviewer import Reviewer
from trimtab.admission.server import AdmissionMetrics, AdmissionServer
from trimtab.admission.webhooks import CONFIGURATIONS, Endpoint, decode_configuration
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.node_pressure_policy import NodePressurePolicy
from trimtab.api.placement_admission import NAME
from trimtab.controller.loop import NOT_READY_DELAY, TaskSupervisor, end_tasks
from trimtab.controller.permissions import PERMISSIONS, PermissionChecker, PermissionRegistry
from trimtab.controller.progress import PROGRESS_REGISTRY, Progress, register_component
from trimtab.controller.reporter import report_safely
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.connection.config import ServerConfig
from trimtab.kube.connection.transport import Transport
from trimtab.kube.errors import InputError
from trimtab.kube.events.recorder import EventRecorder
from trimtab.kube.resources import NAMESPACES, PLACEMENT_ADMISSIONS, SECRETS, Resource
from trimtab.kube.watching.informer import Informer, ServerAbilities
from trimtab.kube.watching.store import Store
from trimtab.runtime.health.probes import Check, Heartbeat
from trimtab.runtime.health.watches import report_progress
from trimtab.runtime.http.certificate import context_from_pem
from trimtab.runtime.http.server import HttpServer, Limits
from trimtab.runtime.memory import COLLECTION_CHECK_PERIOD, FullCollections
from trimtab.runtime.metrics.process import RuntimeMetrics
from trimtab.runtime.settings import Settings

log = logging.getLogger(__name__)

KEEPALIVE: Final = 120.0
"""Seconds after which an idle connection is closed. The API server closes it after 90 s, so that no request is lost."""
MAX_BODY: Final = 8 * 1024 * 1024
"""Maximum size of an AdmissionReview. The API server accepts objects of 3 MiB; a review of an update contains two."""
LIMITS: Final = Limits(
    connections=1024,
    connections_per_client=1024,  # the API servers may share one address, behind a proxy
    requests_per_second=None,
    requests_per_second_in_all=None,
    requests_per_connection=None,
    body_bytes=MAX_BODY,
    timeout=10.0,
    keepalive=KEEPALIVE,
)
REVIEW_CONNECTIONS: Final = 64
EXPORT_PERIOD: Final = 5.0
START_POLL: Final = 0.02
STARTUP: Final = 30.0
"""Seconds after which a replica that does not serve yet reports why."""
FINAL_STATUS_TIMEOUT: Final = 5.0


class AdmissionSettings(Struct, frozen=True, kw_only=True):
    """The settings of the role ``admission``.

    Attributes:
        host: the address of the webhooks; ``""`` for all IPv4 and IPv6 addresses.
        port: the port of the webhooks.
        url: base URL of the webhooks for an API server outside the cluster; ``""`` for the Service.
        service: name of the Service.
        configuration: name of both webhook configurations.
        secret: name of the Secret with the certificate.
        issue_certificates: whether trimtab issues the certificates in the Secret.
        certificate_lifetime: lifetime of an issued certificate in seconds.
        shutdown_delay: seconds after SIGTERM for which the webhooks respond.
    """

    host: str = ""
    port: int = 9443
    url: str = ""
    service: str = "trimtab-admission"
    configuration: str = "trimtab-admission"
    secret: str = "trimtab-admission-certificate"
    issue_certificates: bool = True
    certificate_lifetime: float = Lifetimes().certificate
    shutdown_delay: float = 10.0


class AdmissionApp:
    """The part of the process that runs on the event loop of the controllers' thread. :meth:`run` is its main task.

    It has the interface of :class:`~trimtab.runtime.app.App`, whose arguments and attributes it shares.
    """

    def __init__(
        self,
        settings: Settings,
        config: ServerConfig,
        *,
        identity: str,
        registry: CollectorRegistry,
        metrics: RuntimeMetrics,
        leading: Callable[[], bool],
        failing: Callable[[], None] = lambda: None,
    ) -> None:
        del leading, failing  # every replica acts; an informer that fails ends `run`
        assert settings.admission is not None
        self._settings = settings
        self._admission = settings.admission
        self._config = config
        self._identity = identity
        self._registry = registry
        self._metrics = metrics
        self.progress = Progress()
        self._permissions = PermissionRegistry()
        self._heartbeat = Heartbeat(metrics.loop_lag.observe)
        self._stop = asyncio.Event()
        self._stores: dict[Resource, Store[Any]] = {}
        self._policy: ActiveRules[Reviewer] | None = None
        self._maintenance: WebhookMaintenance | None = None
        self._reporter: AdmissionReporter | None = None
        self._generation: tuple[str, int] | None = None
        self._unregistered_since: float | None = None
        self._context: ssl.SSLContext | None = None
        self._listening = False
        self.health: dict[str, Check] = {"event-loop": self._heartbeat.check, "progress": self.problem}
        self.ready: dict[str, Check] = {
            "shutdown": lambda: "shutting down" if self._stop.is_set() else None,
            "watches": self._check_watches,
            "policy": self._check_policy,
            "webhooks": self._check_serving,
        }

    def problem(self) -> str | None:
        """Return a description of the components that have been inactive or failing for too long; ``None`` if none."""
        settings = self._settings
        return self.progress.problem(max_inactivity=settings.max_inactivity, max_failing_time=settings.max_failing_time)

    def lead(self) -> None:
        """Do nothing, because there is no leader."""

    def stop(self) -> None:
        """Shut down gracefully, which ends :meth:`run`."""
        self._stop.set()

    async def run(self) -> None:
        """Answer requests until stopped.

        Raises:
            InputError: the address of the webhooks is already in use.
            Exception: an informer has failed.
        """
        PROGRESS_REGISTRY.set(self.progress)
        PERMISSIONS.set(self._permissions)
        admission, metrics = self._admission, AdmissionMetrics(self._registry)
        async with AsyncExitStack() as stack:
            background = TaskSupervisor("process", SYSTEM_CLOCK)
            stack.push_async_callback(background.cancel)
            background.start("heartbeat", self._heartbeat.run)
            collections = FullCollections(SYSTEM_CLOCK)
            background.start_periodic("collect garbage", collections.collect_if_due, COLLECTION_CHECK_PERIOD)
            api = await stack.enter_async_context(Transport(self._config, observe=self._observe_response))
            checker = PermissionChecker(self._permissions, api, SYSTEM_CLOCK, namespace=self._namespace)
            background.start("check permissions", checker.run)
            # Reviews have their own connections, so that they never wait for a watch or a write.
            asking = await stack.enter_async_context(
                Transport(self._config, connections=REVIEW_CONNECTIONS, observe=self._observe_response)
            )
            access = BindingAccess(asking, observe=lambda result: metrics.access_reviews.labels(result).inc())
            stack.push_async_callback(access.close)
            informers = self._informers(api)
            policy = self._policy = ActiveRules(partial(Reviewer, own_namespace=self._namespace), changed=self._wake)
            self._stores[PLACEMENT_ADMISSIONS].subscribe(policy.observe)
            maintenance = self._maintenance = self._webhook_maintenance(api, metrics)
            recorder = EventRecorder(api, instance=self._replica, progress=register_component("event recorder"))
            background.start("write events", recorder.run)
            stack.push_async_callback(recorder.stop)
            reporter = AdmissionReporter(
                api, recorder, SYSTEM_CLOCK, replica=self._replica, health=partial(self._report_health, maintenance)
            )
            for resource in (SECRETS, *CONFIGURATIONS):
                self._stores[resource].subscribe(lambda _old, _new: maintenance.wake())
            handlers = AdmissionServer(
                api=asking,
                namespaces=self._stores[NAMESPACES],
                access=access,
                reviewer=lambda: policy.rules,
                warn_only=lambda: policy.spec is not None and policy.spec.mode == "Warn",
                review_resource=OwnResourceReviewer(asking, _conflicts, _threshold_conflicts).review,
                metrics=metrics,
                report=reporter.record,
            )
            server = HttpServer(
                admission.host,
                admission.port,
                {},
                posts=handlers.posts,
                limits=LIMITS,
                tls=self._tls,
                refused=self._metrics.refused("webhooks"),
            )
            watching = [asyncio.create_task(each.run(), name=f"watch {each.resource.name}") for each in informers]
            stack.push_async_callback(end_tasks, watching)
            background.start("progress of watches", partial(report_progress, informers))
            background.start("maintain webhooks", maintenance.run)
            background.start_periodic("export metrics", partial(self._export_metrics, metrics), EXPORT_PERIOD)
            background.start("report the status", partial(self._report_status, reporter))
            stack.push_async_callback(self._end_report, background, reporter)
            await self._serve(stack, server, watching)

    async def _serve(self, stack: AsyncExitStack, server: HttpServer, watching: list[asyncio.Task[None]]) -> None:
        """Listen as soon as requests can be answered, until the process stops. Then drain."""
        stopping = asyncio.create_task(self._stop.wait(), name="wait for the end")
        stack.push_async_callback(end_tasks, [stopping])
        parts: set[asyncio.Task[Any]] = {stopping, *watching}
        while not self._can_serve() and not any(each.done() for each in parts):
            await asyncio.wait(parts, timeout=START_POLL, return_when=asyncio.FIRST_COMPLETED)
        if not any(each.done() for each in parts):
            gc.freeze()  # traversing all modules in the first full collection would delay requests by 30 ms
            try:
                await server.start()
            except OSError as error:
                where = f"{self._admission.host}:{self._admission.port}"
                raise InputError(f"--webhook-listen {where}: {error.strerror or error}") from error
            stack.push_async_callback(server.stop)
            self._listening = True
            self._wake()
            log.info("Serving webhooks on port %d", server.port, extra={"port": server.port})
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        for failed in watching:
            if failed.done():
                failed.result()
        if self._listening:
            log.info("Shutting down; answering admission requests for another %g s", self._admission.shutdown_delay)
            server.drain()
            await asyncio.sleep(self._admission.shutdown_delay)

    # --- parts --------------------------------------------------------------------------------------------------------

    def _informers(self, api: Transport) -> list[Informer[Any]]:
        """Create the informers and their stores. Each but that of the namespaces watches a single object."""
        abilities = ServerAbilities()
        name = f"metadata.name={self._admission.configuration}"
        self._stores = {resource: Store() for resource in (PLACEMENT_ADMISSIONS, NAMESPACES, SECRETS, *CONFIGURATIONS)}

        def informer(resource: Resource, **options: Any) -> Informer[Any]:
            return Informer(api, resource, self._stores[resource], abilities=abilities, **options)

        return [
            informer(NAMESPACES),
            informer(PLACEMENT_ADMISSIONS, field_selector=f"metadata.name={NAME}", decode=decode_stored_admission),
            informer(
                SECRETS,
                namespace=self._namespace,
                field_selector=f"metadata.name={self._admission.secret}",
                decode=decode_secret,
            ),
            *(informer(each, field_selector=name, decode=decode_configuration) for each in CONFIGURATIONS),
        ]

    def _webhook_maintenance(self, api: Transport, metrics: AdmissionMetrics) -> WebhookMaintenance:
        admission = self._admission
        endpoint = (
            Endpoint(url=admission.url)
            if admission.url
            else Endpoint(service=admission.service, namespace=self._namespace)
        )
        settings = MaintenanceSettings(
            endpoint=endpoint,
            namespace=self._namespace,
            secret=admission.secret,
            issue=admission.issue_certificates,
            configuration=admission.configuration,
            lifetimes=Lifetimes(admission.certificate_lifetime),
        )
        return WebhookMaintenance(
            api,
            settings,
            secrets=self._stores[SECRETS],
            configurations={each: self._stores[each] for each in CONFIGURATIONS},
            policy=lambda: None if self._policy is None else self._policy.spec,
            serve=self._use_certificate,
            is_serving=lambda: self._listening and not self._stop.is_set() and self._check_policy() is None,
            clock=SYSTEM_CLOCK,
            expiry=metrics.certificate_expiry.set,
        )

    @property
    def _namespace(self) -> str:
        return self._settings.lease_namespace or self._config.namespace

    def _use_certificate(self, certificate: bytes, key: bytes) -> None:
        self._context = context_from_pem(certificate, key)

    def _tls(self) -> ssl.SSLContext:
        assert self._context is not None
        return self._context

    def _observe_response(self, method: str, status: int, seconds: float) -> None:
        self._metrics.observe(method, status, seconds)
        self._permissions.observe_response(status)

    def _wake(self) -> None:
        admission = self._admission
        wanted = required_permissions(
            None if self._policy is None else self._policy.spec,
            namespace=self._namespace,
            secret=admission.secret,
            configuration=admission.configuration,
            issues_certificates=admission.issue_certificates,
        )
        self._permissions.require(KEY, wanted)
        if self._maintenance is not None:
            self._maintenance.wake()
        latest = None if self._policy is None else self._policy.latest
        generation = None if latest is None else (latest.uid, latest.generation)
        if self._reporter is not None and generation != self._generation:
            self._reporter.wake()  # not after each change of the object, because its own writes change it
        self._generation = generation

    # --- checks, called from any thread -------------------------------------------------------------------------------

    def _can_serve(self) -> bool:
        return self._check_watches() is None and self._check_policy() is None and self._context is not None

    def _check_watches(self) -> str | None:
        waiting = [resource.plural for resource, store in list(self._stores.items()) if not store.synced]
        if not self._stores:
            return "starting"
        return f"waiting for {', '.join(waiting)}" if waiting else None

    def _check_policy(self) -> str | None:
        return None if self._policy is None else self._policy.check()

    def _check_serving(self) -> str | None:
        if not self._listening or self._maintenance is None:
            return (self._maintenance.certificate_check() if self._maintenance is not None else None) or "starting"
        return self._maintenance.certificate_check()

    @property
    def _replica(self) -> str:
        """Return the name of the pod. Outside a cluster, replicas may share a host name, so it is the identity."""
        in_cluster = bool(self._config.token_file and not self._config.kubeconfig)
        return socket.gethostname() if in_cluster else self._identity

    async def _report_status(self, reporter: AdmissionReporter) -> None:
        """Report the status once this replica serves, or if it does not serve soon."""
        deadline = SYSTEM_CLOCK.monotonic() + STARTUP
        while not (self._listening and self._maintenance is not None and self._maintenance.registered):
            if SYSTEM_CLOCK.monotonic() >= deadline:
                break
            await asyncio.sleep(1.0)
        self._reporter = reporter
        await reporter.run()

    def _report_health(self, maintenance: WebhookMaintenance) -> Health:
        """Return the state of this replica. Registering changed webhooks takes a second and is not reported."""
        now = SYSTEM_CLOCK.monotonic()
        if maintenance.registered:
            self._unregistered_since = None
        elif self._unregistered_since is None:
            self._unregistered_since = now
        missing = self._unregistered_since is not None and now - self._unregistered_since >= NOT_READY_DELAY
        problems = (self._check_watches(), self._check_policy(), self._check_serving(), maintenance.problem)
        return Health(
            registered=not missing,
            not_registered=maintenance.problem,
            problem=next(filter(None, problems), ""),
            certificate_expires=maintenance.certificate_expires,
        )

    async def _end_report(self, background: TaskSupervisor, reporter: AdmissionReporter) -> None:
        async def close() -> None:
            reporter.close()

        await background.end("report the status", close, seconds=FINAL_STATUS_TIMEOUT)
        try:
            async with asyncio.timeout(FINAL_STATUS_TIMEOUT):
                await reporter.stop()
        except TimeoutError:
            log.warning(
                "Failed to write the status of PlacementAdmission default during shutdown: timed out after %g s",
                FINAL_STATUS_TIMEOUT,
            )

    async def _export_metrics(self, metrics: AdmissionMetrics) -> None:
        with report_safely("metrics of placement admission"):
            self._export_metrics_once(metrics)

    def _export_metrics_once(self, metrics: AdmissionMetrics) -> None:
        for resource, store in self._stores.items():
            self._metrics.objects.labels(resource.plural).set(len(store))
        metrics.policy_valid.set(0 if self._policy is not None and self._policy.problem else 1)
        metrics.registered.set(1 if self._maintenance is not None and self._maintenance.registered else 0)


def _conflicts(policies: Sequence[DeschedulerPolicy]) -> Iterable[PolicyConflict]:
    from trimtab.descheduling.policy_conflicts import conflicts  # it loads the planner, which the webhooks do not need

    return conflicts(policies)


def _threshold_conflicts(policy: NodePressurePolicy) -> Iterable[ThresholdConflict]:
    from trimtab.pressure.assignment import threshold_conflicts  # likewise

    return threshold_conflicts(policy)
