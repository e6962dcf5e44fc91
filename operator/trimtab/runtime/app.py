"""One operator process from start to end.

Start: transport, recorder, probes and watches (every replica, so that a standby is warm), then the lease, then Kopf
with the controllers. End: controllers finish what is in flight, Kopf stops, events are posted, the lease is released.
A lease that is lost ends the process at once: whoever holds it now must not meet us (client-go's convention).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from itertools import chain, repeat
from typing import Any, Final

import kopf
from prometheus_client import CollectorRegistry

from trimtab.cluster.live import LiveCluster
from trimtab.descheduling import handlers as descheduling
from trimtab.descheduling.cycle import Services
from trimtab.descheduling.metrics import DeschedulerMetrics
from trimtab.disruption.executor import Executor
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.config import load_config
from trimtab.kube.recorder import EventRecorder
from trimtab.kube.transport import Transport
from trimtab.runtime.leader_election import LeaderElector, unique_identity
from trimtab.runtime.metrics import RuntimeMetrics
from trimtab.runtime.probes import Heartbeat, ProbeServer
from trimtab.runtime.settings import Settings
from trimtab.runtime.watches import Watches

log = logging.getLogger(__name__)

CONTROLLER: Final = "trimtab.dev/trimtab"


class LeaseLost(Exception):
    """Another process may act now; this one must not."""


class App:
    """The parts of one process; :meth:`run` is its life."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._identity = settings.identity or unique_identity()
        self._registry = CollectorRegistry()
        self._metrics = RuntimeMetrics(self._registry)
        self._stop = asyncio.Event()
        self.probes: ProbeServer | None = None

    async def run(self) -> None:
        """Serve until a signal asks to stop.

        Raises:
            LeaseLost: the lease was lost while controllers ran.
            InputError: there is no cluster to talk to.
        """
        settings = self._settings
        config = await asyncio.to_thread(load_config, settings.kubeconfig or None, context=settings.context or None)
        self._catch_signals()
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(Transport(config, observe=self._metrics.observe))
            recorder = await stack.enter_async_context(
                EventRecorder(api, controller=CONTROLLER, instance=self._identity)
            )
            live = LiveCluster()
            watches = Watches(api, live)
            heartbeat = Heartbeat(self._metrics.loop_lag.set)
            self.probes = ProbeServer(
                settings.listen_host,
                settings.listen_port,
                metrics=self._registry,
                health={"event-loop": heartbeat.check},
                ready={"watches": watches.check},
            )
            await self.probes.start()
            stack.push_async_callback(self.probes.stop)
            _background(stack, heartbeat.run(), "heartbeat")
            _background(stack, self._count_objects(live), "object counts")
            stack.push_async_callback(watches.stop)
            watching = watches.start()
            log.info("watching %s", config.server, extra={"server": config.server, "identity": self._identity})
            services = Services(
                api=api,
                live=live,
                executor=Executor(api=api, recorder=recorder, clock=SYSTEM_CLOCK, view=live),
                recorder=recorder,
                clock=SYSTEM_CLOCK,
                metrics=DeschedulerMetrics(self._registry),
                turn=asyncio.Lock(),
                stale=watches.stale,
            )
            await self._lead(api, services, watching)

    async def _lead(self, api: Transport, services: Services, watching: list[asyncio.Task[None]]) -> None:
        """Hold the lease while the controllers run."""
        if not self._settings.leader_elect:
            self._metrics.leader.set(1)
            await self._operate(api, services, watching, lost=None)
            return
        elector = LeaderElector(
            api,
            name=self._settings.lease_name,
            namespace=self._settings.lease_namespace or api.default_namespace,
            identity=self._identity,
        )
        acquiring = asyncio.create_task(elector.acquire(), name="acquire the lease")
        stopping = asyncio.create_task(self._stop.wait(), name="wait for a signal")
        await asyncio.wait({acquiring, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._stop.is_set():
            acquiring.cancel()
            await asyncio.gather(acquiring, return_exceptions=True)
        else:
            await acquiring
        try:
            if not self._stop.is_set():
                self._metrics.leader.set(1)
                await self._operate(api, services, watching, lost=elector.lost)
        finally:
            self._metrics.leader.set(0)
            await elector.release()

    async def _operate(
        self,
        api: Transport,
        services: Services,
        watching: list[asyncio.Task[None]],
        *,
        lost: asyncio.Event | None,
    ) -> None:
        """Run Kopf until a signal, a lost lease or a failed part ends it."""
        registry = kopf.OperatorRegistry()
        _register_login(registry, api)
        descheduling.register(registry, services)
        stop_kopf, ready = asyncio.Event(), asyncio.Event()
        ends: dict[asyncio.Task[Any], str] = {asyncio.create_task(self._stop.wait()): "signal"}
        if lost is not None:
            ends[asyncio.create_task(lost.wait())] = "lost"
        operator = asyncio.create_task(
            kopf.operator(
                registry=registry, settings=_kopf_settings(), clusterwide=True, stop_flag=stop_kopf, ready_flag=ready
            ),
            name="kopf",
        )
        catching = asyncio.create_task(self._catch_again(ready))
        done, _ = await asyncio.wait({operator, *ends, *watching}, return_when=asyncio.FIRST_COMPLETED)
        if any(ends.get(task) == "lost" for task in done):
            raise LeaseLost(self._identity)
        for task in (catching, *ends):
            task.cancel()
        stop_kopf.set()
        await asyncio.gather(operator)
        for task in done & set(watching):
            task.result()

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)

    async def _catch_again(self, ready: asyncio.Event) -> None:
        """Kopf takes the signals for itself when it starts; its end would cut short what is in flight."""
        await ready.wait()
        self._catch_signals()

    async def _count_objects(self, live: LiveCluster) -> None:
        while True:
            for resource, number in live.sizes.items():
                self._metrics.objects.labels(resource).set(number)
            await asyncio.sleep(5.0)


def _kopf_settings() -> kopf.OperatorSettings:
    """Kopf for our own few resources: no peering (a Lease elects), no scanning, our own marks on objects."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.networking.error_backoffs = _Patience()
    settings.persistence.finalizer = "trimtab.dev/finalizer"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="trimtab.dev")
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="trimtab.dev")
    return settings


class _Patience:
    """Pauses between Kopf's attempts to reach the API server, without end: an outage must not end the process.

    With leader election it does all the same, since the lease is lost by then, and that is meant.
    """

    def __iter__(self) -> Iterator[float]:
        return chain((1, 1, 2, 3, 5, 8, 13), repeat(20))


def _register_login(registry: kopf.OperatorRegistry, api: Transport) -> None:
    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return kopf.AiohttpSession(
            aiohttp_session=api.borrowed_session(), server=api.server, default_namespace=api.default_namespace
        )


def _background(stack: AsyncExitStack, work: Any, name: str) -> None:
    task = asyncio.create_task(work, name=name)

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)


def run(settings: Settings, *, install_loop: Callable[[], None] | None = None) -> int:
    """Run one process to its end and return its exit status: 0 asked to stop, 1 the lease was lost."""
    del install_loop
    import uvloop

    async def life() -> None:
        await App(settings).run()

    try:
        uvloop.run(life())
    except LeaseLost as error:
        log.error("the lease was lost; %s ends so that nobody acts twice", error)  # noqa: TRY400
        logging.shutdown()
        os._exit(1)  # not a second longer: what is still in flight belongs to the next leader
    return 0
