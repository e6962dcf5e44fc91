"""Runs the API connection, the event recorder, the informers, and Kopf with all controllers in the controllers' thread.

At the start, every replica starts the connection, the recorder and the informers, so that a follower is ready to take
over. Kopf and the controllers start once this process is the leader. During the shutdown, the controllers finish their
in-flight requests, Kopf stops, and the recorder posts the remaining events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry

from trimtab.api.history_record import HistoryEntry
from trimtab.api.scalars import TIME_RESOLUTION
from trimtab.cluster.kinds import SNAPSHOT_KINDS
from trimtab.cluster.own_writes import RecordingApi
from trimtab.cluster.usage.prometheus import Prometheus
from trimtab.controller.history import HistoryLimits, HistoryMetrics, HistoryWriter
from trimtab.controller.loop import TaskSupervisor, end_tasks
from trimtab.controller.metrics import WorkQueueMetrics
from trimtab.controller.other_operators import OTHER_OPERATORS, OtherOperators
from trimtab.controller.permissions import PERMISSIONS, PermissionChecker, PermissionRegistry
from trimtab.controller.progress import PROGRESS_REGISTRY, Progress, register_component
from trimtab.controller.reporter import report_safely
from trimtab.disruption.evictor import Evictor
from trimtab.disruption.evictor.metrics import EvictorMetrics
from trimtab.disruption.evictor.owner_events import OwnerEvents
from trimtab.disruption.limits import MINUTE, EvictionLimits
from trimtab.kube.api import ApiError, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.connection.config import ServerConfig
from trimtab.kube.connection.transport import Transport
from trimtab.kube.events.recorder import EventRecorder
from trimtab.kube.resources import Resource
from trimtab.kube.wire.limits import ComplexityLimits
from trimtab.pressure.readings import PublishedReadings
from trimtab.runtime.controllers import (
    RegisterHandlers,
    SharedDependencies,
    build_controllers,
    lister_resources,
    required_custom_resources,
    snapshot_resources,
)
from trimtab.runtime.health.kopf_watch import KopfWatchCheck
from trimtab.runtime.health.probes import Check, Heartbeat
from trimtab.runtime.informers import Informers
from trimtab.runtime.kopf_operator import KopfOperator
from trimtab.runtime.leader_election.duplicate_operators import DuplicateOperatorDetector
from trimtab.runtime.leader_election.permissions import lease_permissions
from trimtab.runtime.memory import COLLECTION_CHECK_PERIOD, RECLAIM_PERIOD, FullCollections, MemoryReclaimer
from trimtab.runtime.metrics.process import RuntimeMetrics
from trimtab.runtime.served_resources import ServedResources
from trimtab.runtime.settings import Settings

if TYPE_CHECKING:
    from trimtab.cluster.shared_snapshot import SharedSnapshot
    from trimtab.runtime.inspection.service import InspectionSettings

log = logging.getLogger(__name__)

RESTORE_TIMEOUT: Final = 10.0
"""Maximum seconds for which a new leader reads the evictions of the last minute before its controllers start."""

COUNT_PERIOD: Final = 5.0
"""Seconds between two updates of the metrics about caches and custom resources."""


class App:
    """The part of the process that runs on the event loop of the controllers' thread. :meth:`run` is its main task.

    Call :meth:`lead` and :meth:`stop` on that loop. The checks may be called from any thread.

    Args:
        settings: settings of the process.
        config: the configuration of the connection to the API server.
        identity: identity of this process, for events.
        registry: the Prometheus registry.
        metrics: metrics of the process.
        leading: returns whether this process is the leader. It is called from the controllers' thread.
        failing: called when an informer or Kopf has failed, before the other tasks are stopped.

    Attributes:
        progress: the registry of this process's components.
        health: the checks of /healthz, by name.
        ready: the checks of /readyz, by name.
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
        self._settings = settings
        self._config = config
        self._identity = identity
        self._registry = registry
        self._metrics = metrics
        self._leading = leading
        self._failing = failing
        self.progress = Progress()
        self._other_operators = OtherOperators()
        self._permissions = PermissionRegistry()
        self._heartbeat = Heartbeat(metrics.loop_lag.observe)
        self._watches: Informers | None = None
        self._definitions: ServedResources | None = None
        self._lead = asyncio.Event()
        self._stop = asyncio.Event()
        self.health: dict[str, Check] = {"event-loop": self._heartbeat.check, "progress": self.problem}
        self.ready: dict[str, Check] = {"watches": self._check_watches, "definitions": self._check_definitions}

    def problem(self) -> str | None:
        """Return a description of the components that have been inactive or failing for too long; ``None`` if none."""
        settings = self._settings
        return self.progress.problem(max_inactivity=settings.max_inactivity, max_failing_time=settings.max_failing_time)

    def lead(self) -> None:
        """Start the controllers because this process has become the leader."""
        self._lead.set()

    def stop(self) -> None:
        """Shut down gracefully, which ends :meth:`run`."""
        self._stop.set()

    async def run(self) -> None:
        """Run the informers until stopped, and after :meth:`lead` also the controllers.

        Raises:
            Exception: an informer or Kopf has failed.
        """
        settings = self._settings
        PROGRESS_REGISTRY.set(self.progress)
        OTHER_OPERATORS.set(self._other_operators)
        PERMISSIONS.set(self._permissions)
        async with AsyncExitStack() as stack:
            background = TaskSupervisor("process", SYSTEM_CLOCK)
            stack.push_async_callback(background.cancel)
            background.start("heartbeat", self._heartbeat.run)
            api = await stack.enter_async_context(Transport(self._config, observe=self._observe_response))
            prometheus = None
            if settings.prometheus is not None:
                prometheus = await stack.enter_async_context(Prometheus(settings.prometheus.server()))
            recorder = EventRecorder(
                api,
                instance=self._identity,
                progress=register_component("event recorder"),
                urgent=lambda: evictor.busy(),
            )
            background.start("write events", recorder.run)
            stack.push_async_callback(recorder.stop)
            kinds = SNAPSHOT_KINDS if settings.inspection else snapshot_resources(settings.controllers)
            limits = settings.complexity
            shared = _shared_snapshot(kinds, limits)
            others = [each for each in lister_resources(settings.controllers) if each not in kinds]
            watches = self._watches = Informers(api, shared, kinds, outside_snapshot=others, limits=limits)
            definitions = ServedResources(api, required_custom_resources(settings.controllers), clock=SYSTEM_CLOCK)
            self._definitions = definitions
            history = HistoryWriter(
                api,
                clock=SYSTEM_CLOCK,
                writer=settings.lease_name,
                limits=HistoryLimits(records=settings.history_records, max_age=settings.history_max_age),
                metrics=HistoryMetrics(self._registry),
            )
            evictor = Evictor(
                clock=SYSTEM_CLOCK,
                view=watches.lister,
                limits=settings.eviction_limits,
                metrics=EvictorMetrics(self._registry),
                history=history,
                owner_events=OwnerEvents(recorder, clock=SYSTEM_CLOCK),
            )
            published = PublishedReadings()
            handlers = build_controllers(
                SharedDependencies(
                    settings=settings,
                    api=api if shared is None else RecordingApi(api, shared.record, SYSTEM_CLOCK),
                    shared_snapshot=shared,
                    informers=watches,
                    recorder=recorder,
                    registry=self._registry,
                    evictor=evictor,
                    history=history,
                    leading=self._leading,
                    namespace=settings.lease_namespace or api.default_namespace,
                    prometheus=prometheus,
                    disruption_lock=asyncio.Lock(),
                    queue_metrics=WorkQueueMetrics(self._registry),
                    is_served=definitions.is_served,
                    config=self._config,
                    published_readings=published,
                )
            )
            export = partial(self._export_metrics, shared, watches, definitions)
            background.start_periodic("export metrics", export, COUNT_PERIOD)
            stack.push_async_callback(background.cancel, "export metrics")
            reclaimer = MemoryReclaimer(watches, shared)
            background.start_periodic("reclaim memory", reclaimer.reclaim_after_removals, RECLAIM_PERIOD)
            stack.push_async_callback(background.cancel, "reclaim memory")
            idle: Callable[[], AbstractAsyncContextManager[object]] = nullcontext
            if shared is not None:
                idle = partial(shared.borrow, short=True)
            collections = FullCollections(SYSTEM_CLOCK, idle=idle)
            background.start_periodic("collect garbage", collections.collect_if_due, COLLECTION_CHECK_PERIOD)
            stack.push_async_callback(background.cancel, "collect garbage")
            stack.push_async_callback(watches.stop)
            watching = watches.start()
            server = self._config.server
            log.info(
                "Started the watches on API server %s", server, extra={"server": server, "identity": self._identity}
            )
            watching.append(asyncio.create_task(definitions.run(), name="definitions"))
            stack.push_async_callback(end_tasks, watching[-1:])  # a later request would find the transport closed
            if settings.inspection is not None and shared is not None:
                watching.append(self._inspect(stack, settings.inspection, api, shared, watches, published))
            if await self._wait_until_leading(watching):
                async with AsyncExitStack() as acting:
                    background.start("detect duplicate operators", self._duplicate_detector(api, recorder).run)
                    acting.push_async_callback(background.cancel, "detect duplicate operators")
                    background.start("check permissions", self._permission_checker(api).run)
                    acting.push_async_callback(background.cancel, "check permissions")
                    acting.push_async_callback(history.stop)
                    background.start("write the history", history.run)
                    acting.push_async_callback(background.cancel, "write the history")
                    await self._restore_evictions(evictor, history, watches)
                    await self._run_controllers(api, handlers, definitions, watching)

    def _inspect(
        self,
        stack: AsyncExitStack,
        settings: InspectionSettings,
        api: Transport,
        shared: SharedSnapshot,
        watches: Informers,
        published: PublishedReadings,
    ) -> asyncio.Task[None]:
        """Start the inspection API, and let the stack wait for its end."""
        from trimtab.runtime.inspection.service import InspectionService  # it and what it loads need 5 MB

        service = InspectionService(
            settings,
            api=api,
            config=self._config,
            shared=shared,
            kinds=SNAPSHOT_KINDS,
            not_ready=lambda: watches.check() or watches.stale_reason(),
            leading=lambda: self._lead.is_set() and self._leading(),
            namespace=self._settings.lease_namespace or api.default_namespace,
            registry=self._registry,
            scoring=self._settings.scoring,
            node_readings=published.of_nodes,
            refused=self._metrics.refused("inspection"),
            observe=self._metrics.observe,
        )
        task = asyncio.create_task(service.run(self._stop), name="inspection API")

        async def end() -> None:
            if not self._stop.is_set():  # another task has failed
                task.cancel()
            await asyncio.wait({task})

        stack.push_async_callback(end)
        return task

    def _observe_response(self, method: str, status: int, seconds: float) -> None:
        self._metrics.observe(method, status, seconds)
        self._permissions.observe_response(status)

    def _permission_checker(self, api: Transport) -> PermissionChecker:
        settings = self._settings
        namespace = settings.lease_namespace or api.default_namespace
        elected = settings.leader_elect
        wanted = lease_permissions(namespace=namespace, lease_name=settings.lease_name, leader_elect=elected)
        self._permissions.require_for_all(wanted)
        return PermissionChecker(self._permissions, api, SYSTEM_CLOCK, namespace=namespace)

    def _check_watches(self) -> str | None:
        return "starting" if self._watches is None else self._watches.check()

    def _check_definitions(self) -> str | None:
        return None if self._definitions is None else self._definitions.check()

    async def _wait_until_leading(self, watching: list[asyncio.Task[None]]) -> bool:
        """Wait until this process is the leader. Return ``False`` if it is stopped before that.

        Raises:
            Exception: an informer has failed.
        """
        leading = asyncio.create_task(self._lead.wait(), name="wait for the lease")
        stopping = asyncio.create_task(self._stop.wait(), name="wait for the end")
        waited: set[asyncio.Task[Any]] = {leading, stopping, *watching}
        done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        await end_tasks([leading, stopping])
        for failed in done & set(watching):
            failed.result()
        return not self._stop.is_set()

    async def _restore_evictions(self, evictor: Evictor, history: HistoryWriter, watches: Informers) -> None:
        """Count the evictions that the previous leader made in the last minute toward the limits."""
        if evictor.limits == EvictionLimits():
            return
        entries: list[HistoryEntry] = []
        try:
            async with asyncio.timeout(RESTORE_TIMEOUT):
                await watches.synced()
                entries = await history.recent(since=SYSTEM_CLOCK.now() - MINUTE - TIME_RESOLUTION)
        except (ApiError, Unreachable, TimeoutError) as error:
            log.warning("Failed to restore the eviction limits from the HistoryRecords: %s", error)
        counted = evictor.restore(entries, (pod for _, pod in watches.lister.items()))
        if counted:
            log.info(
                "Read the evictions of the last minute from the HistoryRecords: %d count toward the eviction limits",
                counted,
            )

    def _duplicate_detector(self, api: Transport, recorder: EventRecorder) -> DuplicateOperatorDetector:
        settings = self._settings
        return DuplicateOperatorDetector(
            api,
            namespace=settings.lease_namespace or api.default_namespace,
            lease_name=settings.lease_name,
            identity=self._identity,
            controllers=settings.controllers,
            recorder=recorder,
            observe=self._metrics.other_operators.set,
            describe=self._other_operators.report,
        )

    async def _run_controllers(
        self,
        api: Transport,
        handlers: Mapping[Resource, RegisterHandlers],
        definitions: ServedResources,
        watching: list[asyncio.Task[None]],
    ) -> None:
        """Run the controllers until the process stops.

        Raises:
            Exception: an informer or a root task of Kopf has failed.
        """
        self._metrics.leader.set(1)
        stopping = asyncio.create_task(self._stop.wait(), name="wait for the end")
        running = [
            asyncio.create_task(
                self._run_while_served(resource, api, register, definitions), name=f"Kopf of {resource.plural}"
            )
            for resource, register in handlers.items()
        ]
        parts: set[asyncio.Task[Any]] = {stopping, *running, *watching}
        done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        if not self._stop.is_set():
            names = ", ".join(sorted(task.get_name() for task in done))
            log.error("Task %s failed; shutting down", names)
            self._failing()
            self._stop.set()
        await asyncio.wait(running)
        await asyncio.gather(stopping)
        self._metrics.leader.set(0)
        for task in (*running, *(done & set(watching))):
            task.result()

    async def _run_while_served(
        self, resource: Resource, api: Transport, register: RegisterHandlers, definitions: ServedResources
    ) -> None:
        """Run Kopf for a custom resource whenever the API server serves it, until the process stops.

        Raises:
            Exception: a root task of Kopf has failed.
        """
        stopping = asyncio.create_task(self._stop.wait(), name=f"end of {resource.plural}")
        while not self._stop.is_set():
            await _wait_for_first(stopping, definitions.wait_until_served(resource))
            if self._stop.is_set():
                return
            operator = KopfOperator(
                api, (resource,), missing=definitions.recheck, failed=self._failing, leading=self._leading
            )
            register(operator.registry)
            check = KopfWatchCheck(api, resource, SYSTEM_CLOCK)
            check.register(operator.registry)
            running = operator.start()
            checking = asyncio.create_task(check.run(), name=f"check Kopf's watch of {resource.plural}")
            try:
                await _wait_for_first(stopping, running, checking, definitions.wait_until_removed(resource))
                if checking.done():
                    checking.result()
                if not (self._stop.is_set() or running.done()):
                    message = "CRD %s.%s was removed; the controller waits until the CRD is installed again"
                    log.warning(message, resource.plural, resource.group)
            finally:  # if this task is cancelled, the controllers must still finish their requests
                await end_tasks([checking])
                operator.stop()
                await asyncio.wait({running})
            running.result()

    async def _export_metrics(
        self, shared: SharedSnapshot | None, watches: Informers, definitions: ServedResources
    ) -> None:
        with report_safely("metrics of caches"):
            self._export_metrics_once(shared, watches, definitions)

    def _export_metrics_once(
        self, shared: SharedSnapshot | None, watches: Informers, definitions: ServedResources
    ) -> None:
        for name, wait_until_served in definitions.resources.items():
            self._metrics.definitions.labels(name).set(wait_until_served)
        sizes = {} if shared is None else shared.sizes
        for resource, number in {**sizes, **watches.outside_snapshot}.items():
            self._metrics.objects.labels(resource).set(number)
        for reason, number in ({} if shared is None else shared.too_complex).items():
            self._metrics.too_complex.labels(reason).set(number)


def _shared_snapshot(kinds: Sequence[Resource], limits: ComplexityLimits) -> SharedSnapshot | None:
    """Return a snapshot of these kinds; ``None`` if there are none."""
    if not kinds:
        return None
    from trimtab.cluster.shared_snapshot import SharedSnapshot  # it loads NumPy, which not all processes need

    return SharedSnapshot(kinds, limits=limits)


async def _wait_for_first(*awaited: asyncio.Task[Any] | Coroutine[Any, Any, None]) -> None:
    """Wait until the first of several tasks and coroutines ends, then cancel the other coroutines but not the tasks."""
    tasks = [asyncio.ensure_future(each) for each in awaited]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(task for task, given in zip(tasks, awaited, strict=True) if task is not given)
