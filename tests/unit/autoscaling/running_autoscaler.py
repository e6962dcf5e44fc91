"""The autoscaler's loop on an in-memory cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import CollectorRegistry

from tests.builders import machine_set, node, pod
from tests.fakes.daemon import Stopped
from tests.fakes.fleet import MACHINES, NODES, PODS, SETS, Fleet
from trimtab.api.descheduler_status import TRY_AGAIN
from trimtab.api.machine_autoscaler import MachineAutoscaler
from trimtab.api.plan import rfc3339
from trimtab.autoscaling.controller import AutoscalerController
from trimtab.autoscaling.dependencies import AutoscalerDependencies
from trimtab.autoscaling.external import ExternalSources
from trimtab.autoscaling.providers import Provider, providers
from trimtab.autoscaling.report import AutoscalerEventReporter, AutoscalerMetrics, AutoscalerReporter, StatusConfigMap
from trimtab.autoscaling.trigger import Trigger
from trimtab.disruption.evictor import Evictor
from trimtab.kube.api import LeaderOnlyApi
from trimtab.kube.objects import Pod
from trimtab.kube.resources import CLUSTER_AUTOSCALERS
from trimtab.kube.wire.decode import decode_object

__all__ = ["MACHINES", "NODES", "PATH", "PODS", "SETS", "Desk", "Stopped"]

PATH = CLUSTER_AUTOSCALERS.path("default")
SHORT: Mapping[str, Any] = {
    "enabled": True,
    "delayAfterAdd": "1s",
    "delayAfterDelete": "0s",
    "delayAfterFailure": "1m",
    "unneededTime": "30s",
}


class Recorder:
    """Records events."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def event(self, regarding: Any, **fields: Any) -> None:
        self.events.append({"on": f"{regarding.kind}/{regarding.name}", **fields})

    def reasons(self) -> set[str]:
        return {each["reason"] for each in self.events}


class Desk:
    """One process with a ClusterAutoscaler, in a cluster whose machines register as nodes."""

    def __init__(self, fleet: Fleet | None = None, *, boot: float = 1.0, provider: Provider | None = None) -> None:
        self.fleet = fleet or Fleet()
        self.clock = self.fleet.clock
        self.boot = boot
        self.makes = True
        self.recorder, self.registry = Recorder(), CollectorRegistry()
        self.trigger = Trigger(self.clock)
        self.wrong: str | None = None
        self.leads = True
        self.disruption_lock = asyncio.Lock()
        self.machine_autoscalers: tuple[MachineAutoscaler, ...] = ()
        guarded = LeaderOnlyApi(self.fleet, lambda: self.leads)
        acting = providers(guarded)
        if provider is not None:
            acting = dict.fromkeys(acting, provider)
        self.dependencies = AutoscalerDependencies(
            api=self.fleet,
            shared=self.fleet.caches.shared,
            lister=self.fleet.caches.lister,
            clock=self.clock,
            disruption_lock=self.disruption_lock,
            stale=lambda: self.wrong,
            leading=lambda: self.leads,
            trigger=self.trigger,
            providers=acting,
            sources=ExternalSources(),
            machine_autoscalers=lambda: self.machine_autoscalers,
            invalid_machine_autoscalers=dict,
            reporter=AutoscalerReporter(
                AutoscalerEventReporter(self.recorder),  # type: ignore[arg-type]
                AutoscalerMetrics(self.registry),
                config_map=StatusConfigMap(self.fleet, namespace="trimtab-system"),
            ),
            evictor=Evictor(clock=self.clock, view=self.fleet.caches.lister),
            namespace="trimtab-system",
        )
        self.controller = AutoscalerController(self.dependencies)
        self.stopped = Stopped()
        self._made = 0

    # --- actions of users ----------------------------------------------------------------------------------------

    def write(self, *, generation: int = 1, name: str = "default", status: Any = None, **spec: Any) -> None:
        """Apply the ClusterAutoscaler, as a watch event would."""
        body = {
            "apiVersion": "autoscaling.openshift.io/v1",
            "kind": "ClusterAutoscaler",
            "metadata": {"name": name, "uid": "ca-1", "generation": generation},
            "spec": {"scaleDown": dict(SHORT), **spec},
        }
        found = self.fleet.objects.get(PATH, {}).get("status") if status is None else status
        if found:
            body["status"] = found
        if PATH not in self.fleet.objects:
            self.fleet.put(PATH, body)
        self.controller.observe(body)

    def try_again(self, value: str) -> None:
        """Set the annotation ``trimtab.dev/try-again`` of the ClusterAutoscaler, as a watch event would."""
        body = self.fleet.objects[PATH]
        metadata = {**body["metadata"], "generation": 1, "annotations": {TRY_AGAIN: value}}
        self.controller.observe({**body, "metadata": metadata})

    def wants(self, number: int, *, cpu: str = "1", prefix: str = "wait") -> None:
        """Add unschedulable pods."""
        for index in range(number):
            made = pod(f"{prefix}-{index}").cpu(cpu).memory("1Gi").labels(app="web").owned_by("ReplicaSet", "web")
            self.fleet.add(made.grace_period(1).unschedulable(since=rfc3339(self.clock.now())))
            self.trigger.pod_changed(None, self.pod(f"{prefix}-{index}"))

    def pod(self, name: str) -> Pod:
        found = decode_object(self.fleet.objects[f"{PODS}/{name}"])
        assert isinstance(found, Pod)
        return found

    # --- observations --------------------------------------------------------------------------------------------

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.fleet.objects[PATH].get("status", {})
        return found

    def condition(self, type_: str) -> tuple[str, str]:
        for each in self.status.get("conditions", ()):
            if each["type"] == type_:
                return each["status"], each["reason"]
        return "", ""

    def scales(self) -> int:
        """The requests that set a size."""
        return len([call for call in self.fleet.sent("PATCH") if call.path.endswith("/scale")])

    async def until(self, holds: Callable[[], bool], *, seconds: float = 300.0) -> None:
        end = self.clock.monotonic() + seconds
        while not holds():
            assert self.clock.monotonic() < end, f"not within {seconds} s: {self.status}"
            await asyncio.sleep(0.1)

    # --- simulation ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        """Run the cluster and the loop; on exit cancel all tasks, as a kill would."""
        before = asyncio.all_tasks()
        loop = asyncio.create_task(self.controller.run(self.stopped), name="loop")
        living = [asyncio.create_task(self.fleet.live_on()), asyncio.create_task(self._machines())]
        try:
            yield loop
        finally:
            failed = [task.exception() for task in (*living, loop) if task.done()]
            await kill(asyncio.all_tasks() - before)
            assert not any(failed)

    async def _machines(self) -> None:
        """Create the machines that MachineSets want, and their nodes."""
        while True:
            await asyncio.sleep(0.2)
            for path in [each for each in self.fleet.objects if each.startswith(f"{SETS}/")] if self.makes else ():
                name = path.rpartition("/")[2]
                missing = self.fleet.replicas(name) - len(self.fleet._of(name))
                for _ in range(max(0, missing)):
                    self._made += 1
                    asyncio.create_task(self._boot(name, f"{name}-x{self._made}"))  # noqa: RUF006

    async def _boot(self, group: str, name: str) -> None:
        owner = machine_set(group)
        self.fleet.add(owner.machine(f"m-{name}"))
        await asyncio.sleep(self.boot)
        if f"{MACHINES}/m-{name}" in self.fleet.objects:
            self.fleet.add(node(name).annotations({"kept": "yes"}))
            reference = {"name": name, "uid": f"node--{name}"}
            self.fleet.edit(f"{MACHINES}/m-{name}", status={"nodeRef": reference, "phase": "Running"})


async def kill(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel a task without cleanup, as kill -9 would."""
    tasks.discard(asyncio.current_task())  # type: ignore[arg-type]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
