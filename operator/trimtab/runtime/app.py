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
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, NoReturn

from prometheus_client import CollectorRegistry

from trimtab.cluster.live import LiveCluster
from trimtab.cluster.prometheus import Prometheus
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.kube.events.recorder import EventRecorder
from trimtab.runtime.controllers import Parts, Register, apart_of, controllers, definitions_of, kinds_of
from trimtab.runtime.definitions import Definitions
from trimtab.runtime.kopf_operator import KopfOperator
from trimtab.runtime.leader_election import LeaderElector, unique_identity
from trimtab.runtime.metrics import RuntimeMetrics
from trimtab.runtime.probes import Heartbeat, ProbeServer
from trimtab.runtime.settings import Settings
from trimtab.runtime.watches import Watches

log = logging.getLogger(__name__)

COUNT_EVERY = 5.0


class App:
    """The parts of one process; :meth:`run` is its life."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._identity = settings.identity or unique_identity()
        self._registry = CollectorRegistry()
        self._metrics = RuntimeMetrics(self._registry)
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Serve until a signal asks to stop.

        Raises:
            InputError: there is no cluster to talk to.
            OSError: the address of the probes is taken.
        """
        settings = self._settings
        self._catch_signals()
        config = await asyncio.to_thread(load_config, settings.kubeconfig or None, context=settings.context or None)
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(Transport(config, observe=self._metrics.observe))
            elector = self._elector(api) if settings.leader_elect else None
            prometheus = None
            if settings.prometheus is not None:
                prometheus = await stack.enter_async_context(Prometheus(settings.prometheus.server()))
            recorder = await stack.enter_async_context(EventRecorder(api, instance=self._identity))
            kinds = kinds_of(settings.controllers)
            live = LiveCluster(kinds)
            watches = Watches(api, live, kinds, apart=apart_of(settings.controllers))
            definitions = Definitions(api, definitions_of(settings.controllers), clock=SYSTEM_CLOCK)
            registers = controllers(
                Parts(
                    settings=settings,
                    api=api,
                    live=live,
                    watches=watches,
                    recorder=recorder,
                    registry=self._registry,
                    leading=lambda: elector is None or elector.leading,
                    namespace=settings.lease_namespace or api.default_namespace,
                    prometheus=prometheus,
                    turn=asyncio.Lock(),
                )
            )
            await self._serve_probes(stack, watches, definitions)
            _background(stack, self._count_objects(live, watches), "object counts")
            stack.push_async_callback(watches.stop)
            watching = watches.start()
            log.info("watching %s", config.server, extra={"server": config.server, "identity": self._identity})
            if not await self._unless_stopped(definitions.served(), watching):
                return
            if elector is None:
                await self._operate(api, registers, watching, elector)
            else:
                await self._lead(api, registers, watching, elector)

    def _elector(self, api: Transport) -> LeaderElector:
        settings = self._settings
        namespace = settings.lease_namespace or api.default_namespace
        return LeaderElector(api, name=settings.lease_name, namespace=namespace, identity=self._identity)

    async def _serve_probes(self, stack: AsyncExitStack, watches: Watches, definitions: Definitions) -> None:
        heartbeat = Heartbeat(self._metrics.loop_lag.set)
        probes = ProbeServer(
            self._settings.listen_host,
            self._settings.listen_port,
            metrics=self._registry,
            health={"event-loop": heartbeat.check},
            ready={"watches": watches.check, "definitions": definitions.check},
        )
        await probes.start()
        stack.push_async_callback(probes.stop)
        _background(stack, heartbeat.run(), "heartbeat")

    async def _lead(
        self, api: Transport, registers: list[Register], watching: list[asyncio.Task[None]], elector: LeaderElector
    ) -> None:
        """Wait for the lease, and hold it while the controllers run."""
        try:
            if await self._unless_stopped(elector.acquire(), watching):
                await self._operate(api, registers, watching, elector)
        finally:
            await elector.release()

    async def _unless_stopped(self, work: Coroutine[Any, Any, None], watching: list[asyncio.Task[None]]) -> bool:
        """Wait for something; ``False`` where a signal came first, and what a watch raised where one failed."""
        working = asyncio.create_task(work, name="wait before the controllers start")
        stopping = asyncio.create_task(self._stop.wait(), name="wait for a signal")
        done, _ = await asyncio.wait({working, stopping, *watching}, return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
        for failed in done & {working, *watching}:
            failed.result()
        return working in done and not self._stop.is_set()

    async def _operate(
        self,
        api: Transport,
        registers: list[Register],
        watching: list[asyncio.Task[None]],
        elector: LeaderElector | None,
    ) -> None:
        """Run the controllers until a signal, a lost lease or a failed part ends it."""
        operator = KopfOperator(api)
        for register in registers:
            register(operator.registry)
        stopping = asyncio.create_task(self._stop.wait(), name="wait for a signal")
        losing = asyncio.create_task(elector.lost.wait(), name="watch the lease") if elector else None
        running = operator.start()
        catching = asyncio.create_task(self._catch_again(operator), name="catch signals again")
        self._metrics.leader.set(1)
        parts = {running, stopping, *watching, *((losing,) if losing else ())}
        done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        if elector is not None and losing in done:
            _die(elector.lost_because)
        for task in (catching, stopping, losing):
            if task is not None:
                task.cancel()
        operator.stop()
        await running
        self._metrics.leader.set(0)
        for failed in done & set(watching):
            failed.result()

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)

    async def _catch_again(self, operator: KopfOperator) -> None:
        """Kopf's own end on a signal would cut short what is in flight."""
        await operator.started()
        self._catch_signals()

    async def _count_objects(self, live: LiveCluster, watches: Watches) -> None:
        while True:
            for resource, number in {**live.sizes, **watches.apart}.items():
                self._metrics.objects.labels(resource).set(number)
            await asyncio.sleep(COUNT_EVERY)


def _die(because: str) -> NoReturn:
    """End without a second's delay: what is still in flight belongs to the next leader."""
    log.error("%s: this process ends, so that nobody acts twice", because)
    logging.shutdown()
    os._exit(1)


def _background(stack: AsyncExitStack, work: Coroutine[Any, Any, None], name: str) -> None:
    task = asyncio.create_task(work, name=name)

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)


def run(settings: Settings) -> None:
    """Run one process to its end.

    Raises:
        InputError: there is no cluster to talk to.
        OSError: the address of the probes is taken.
    """
    import uvloop

    async def life() -> None:
        await App(settings).run()

    uvloop.run(life())
