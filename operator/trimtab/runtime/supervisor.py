"""Runs the main thread, which handles signals, leader election, probes and the shutdown deadline on its own event loop.

Start: load the configuration, serve probes, start the controllers' thread (:class:`~trimtab.runtime.app.App`, or
:class:`~trimtab.runtime.admission.AdmissionApp` in the role ``admission``, which has no Lease), then acquire the Lease.
Informers fill their caches in every replica, so that a follower is ready to take over. Controllers start once this
process is the leader.

Shutdown: on SIGTERM or SIGINT the controllers finish their in-flight requests, then the Lease is released. If they have
not finished :data:`LEASE_RELEASE_TIME` seconds before ``--shutdown-timeout`` expires, the supervisor releases the Lease
and exits without waiting for them.

If the Lease is lost, the process exits immediately, because only the new leader may send requests (client-go's
convention).

This event loop renews the Lease, so long-running work must not run on it.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, Final, NoReturn, Protocol

from prometheus_client import CollectorRegistry

from trimtab.controller.loop import TaskSupervisor, end_tasks
from trimtab.controller.progress import PROGRESS_REGISTRY, Progress
from trimtab.controller.reporter import report_safely
from trimtab.kube.api import LeaderOnlyApi
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.collector import disable_automatic_full_collections
from trimtab.kube.connection.config import ServerConfig, load_config
from trimtab.kube.connection.transport import Transport
from trimtab.runtime.controller_thread import ControllerThread
from trimtab.runtime.health.probes import Check, ProbeServer
from trimtab.runtime.health.staleness import PERIOD as STALENESS_PERIOD
from trimtab.runtime.health.staleness import StalenessReporter
from trimtab.runtime.health.watchdog import Watchdog
from trimtab.runtime.leader_election.elector import LeaderElector, unique_identity
from trimtab.runtime.memory import tune_allocator
from trimtab.runtime.metrics.process import RuntimeMetrics
from trimtab.runtime.metrics.server import MetricsServer, MetricsSettings
from trimtab.runtime.settings import Settings

log = logging.getLogger(__name__)

LEASE_RELEASE_TIME: Final = 3.0
"""Seconds of the shutdown timeout that are reserved for releasing the Lease."""


PROGRESS_CHECK_PERIOD: Final = 1.0
"""Seconds between two checks of the components' progress."""


class Application(Protocol):
    """The part of a process that runs in the controllers' thread."""

    @property
    def progress(self) -> Progress:
        """Return the registry of its components."""
        ...

    @property
    def health(self) -> Mapping[str, Check]:
        """Return the checks of /healthz, by name."""
        ...

    @property
    def ready(self) -> Mapping[str, Check]:
        """Return the checks of /readyz, by name."""
        ...

    def problem(self) -> str | None:
        """Return a description of the components that have been inactive or failing for too long, else ``None``."""
        ...

    def lead(self) -> None:
        """Start acting, because this process has become the leader, or needs no leader."""
        ...

    def stop(self) -> None:
        """Shut down gracefully, which ends :meth:`run`."""
        ...

    async def run(self) -> None:
        """Run until stopped."""
        ...


class Supervisor:
    """Runs one operator process.

    Args:
        settings: settings of the process.
        exit_process: exits the process immediately with a status. Tests replace it.
        watchdog: ends the process if this event loop hangs.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        exit_process: Callable[[int], NoReturn] = os._exit,
        watchdog: Watchdog | None = None,
    ) -> None:
        self._settings = settings
        self._identity = settings.identity or unique_identity()
        self._registry = CollectorRegistry()
        self._metrics = RuntimeMetrics(self._registry)
        self._watchdog = watchdog or Watchdog()
        self._exit_process = exit_process
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT.

        Raises:
            InputError: no cluster is configured.
            OSError: the address of the probes is already in use.
            Exception: the controllers' thread has failed.
        """
        settings = self._settings
        self._catch_signals()
        config = await asyncio.to_thread(load_config, settings.kubeconfig or None, context=settings.context or None)
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(Transport(config, observe=self._metrics.observe))
            elector = self._elector(api) if settings.leader_elect else None

            def leading() -> bool:
                return elector is None or elector.leading

            application = await asyncio.to_thread(_application, settings)  # its imports take half a second
            app = application(
                settings,
                config,
                identity=self._identity,
                registry=self._registry,
                metrics=self._metrics,
                leading=leading,
                failing=partial(_call, asyncio.get_running_loop(), self._stop.set),
            )
            PROGRESS_REGISTRY.set(app.progress)
            probes = ProbeServer(
                settings.listen_host,
                settings.listen_port,
                metrics=self._registry if settings.metrics is None else None,
                health=app.health,
                ready=app.ready,
                limits=settings.http_limits,
                refused=self._metrics.refused("probes"),
            )
            await probes.start()
            stack.push_async_callback(probes.stop)
            if settings.metrics is not None:
                await self._serve_metrics(stack, config, settings.metrics)
            background = TaskSupervisor("supervisor", SYSTEM_CLOCK)
            stack.push_async_callback(background.cancel)
            stale = StalenessReporter(LeaderOnlyApi(api, leading), lambda: app.progress.components, SYSTEM_CLOCK)
            background.start_periodic("report stale plans and statuses", stale.check, STALENESS_PERIOD)
            thread = ControllerThread(app.run)
            thread.start()
            await self._supervise(thread, app, elector)

    async def _serve_metrics(self, stack: AsyncExitStack, config: ServerConfig, settings: MetricsSettings) -> None:
        refused, observe = self._metrics.refused("metrics"), self._metrics.observe
        server = MetricsServer(self._registry, config, settings, refused=refused, observe=observe)
        await server.start()
        stack.push_async_callback(server.stop)

    def _elector(self, api: Transport) -> LeaderElector:
        settings = self._settings
        namespace = settings.lease_namespace or api.default_namespace
        return LeaderElector(api, name=settings.lease_name, namespace=namespace, identity=self._identity)

    async def _supervise(self, thread: ControllerThread, app: Application, elector: LeaderElector | None) -> None:
        """Run until a signal arrives, the Lease is lost, or the controllers end. Then shut down."""
        stopping = asyncio.create_task(self._stop.wait(), name="wait for a signal")
        leading = asyncio.create_task(self._lead(thread, app, elector), name="lead")
        watching = asyncio.create_task(self._watch(app), name="watch progress")
        parts: set[asyncio.Future[Any]] = {thread.ended, stopping, leading, watching}
        await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        if not (self._stop.is_set() or thread.ended.done()):
            if elector is not None and elector.lost.is_set():
                self._exit_after_lost_lease(elector)
            await self._abandon_controllers(elector, _problem_of(watching, leading, stopping))
        watching.cancel()
        if self._stop.is_set():
            self._watchdog.exit_within(self._settings.shutdown_timeout)
        thread.call(app.stop)
        ended: set[asyncio.Future[Any]] = {thread.ended}
        if elector is None or not (elector.lost.is_set() or elector.holder == elector.identity):
            leading.cancel()  # do not acquire the Lease during shutdown
        else:
            ended.add(leading)
        seconds = max(0.0, self._settings.shutdown_timeout - LEASE_RELEASE_TIME)
        await asyncio.wait(ended, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not thread.ended.done():
            if elector is not None and elector.lost.is_set():
                self._exit_after_lost_lease(elector)
            await self._abandon_controllers(elector, f"the controllers have not ended within {seconds:g} s")
        await end_tasks([stopping, leading])
        if elector is not None:
            await elector.release()
        thread.ended.result()

    async def _lead(self, thread: ControllerThread, app: Application, elector: LeaderElector | None) -> None:
        """Acquire the Lease, start the controllers, and return when the Lease is lost."""
        if elector is not None:
            await elector.acquire()
        thread.call(app.lead)
        await (elector.until_lost() if elector is not None else asyncio.Event().wait())

    async def _watch(self, app: Application) -> str:
        """Return the problem as soon as a component has been inactive or failing for too long.

        The watchdog ends the process if this task hangs, because nothing else would notice that.
        """
        while (problem := app.problem()) is None:
            self._watchdog.rearm()
            with report_safely("metrics of progress"):
                self._metrics.count_progress(app.progress.components)
            await asyncio.sleep(PROGRESS_CHECK_PERIOD)
        return problem

    def _exit_after_lost_lease(self, elector: LeaderElector | None) -> NoReturn:
        """Exit immediately, because another process may already be the leader."""
        because = "" if elector is None else elector.lost_reason
        log.error("Lost the Lease; exiting so that only the new leader acts: %s", because)
        self._exit()

    async def _abandon_controllers(self, elector: LeaderElector | None, because: str) -> NoReturn:
        """Release the Lease although controllers may still be running, and exit.

        ``leading`` is false from then on, which prevents the controllers from sending requests.
        """
        log.error("Exiting (%s); the stack traces of all threads follow", because)
        with suppress(Exception):
            faulthandler.dump_traceback(file=sys.__stderr__ or sys.stderr, all_threads=True)
        if elector is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LEASE_RELEASE_TIME - 0.5):
                    await elector.release()
        self._exit()

    def _exit(self) -> NoReturn:
        logging.shutdown()
        self._exit_process(1)

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)


def _problem_of(watching: asyncio.Task[str], *others: asyncio.Task[Any]) -> str:
    """Return why the process must end: the problem that was found, or the task that ended unexpectedly."""
    for task in (watching, *others):
        if not task.done():
            continue
        if task.cancelled():
            return f"task {task.get_name()} was cancelled"
        if (error := task.exception()) is not None:
            return f"task {task.get_name()} failed: {error!r}"
    return watching.result()


def _application(settings: Settings) -> Callable[..., Application]:
    """Import the application of a role. The webhooks must not wait for imports of the controllers."""
    if settings.admission is not None:
        from trimtab.runtime.admission import AdmissionApp

        return AdmissionApp
    from trimtab.runtime.app import App

    return App


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Call a function on an event loop from another thread."""
    loop.call_soon_threadsafe(function)


def run(settings: Settings) -> None:
    """Run the operator process until it ends.

    Raises:
        InputError: no cluster is configured.
        OSError: the address of the probes is already in use.
    """
    tune_allocator()
    disable_automatic_full_collections()
    asyncio.run(Supervisor(settings).run())
