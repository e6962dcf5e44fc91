"""Whole passes of the autoscaler in one process: look, plan, act, and tell; only the API server is made up.

5,000 nodes of 500 MachineSets with 150,000 pods. What counts is CPU: that of a pass, and the longest that the event
loop is held, while probes, the lease and watches have to wait.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop
from msgspec import Struct
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from benchmarks.clusters import CREATED, ZONE, node, pod
from trimtab.api.cluster_autoscaler import ClusterAutoscaler
from trimtab.api.decode import decode_cluster_autoscaler
from trimtab.autoscaling.external import Sources
from trimtab.autoscaling.one_pass import Passes
from trimtab.autoscaling.providers import providers
from trimtab.autoscaling.report import AutoscalerMetrics, CompatibleMetrics, EventTeller, Reporter, StatusConfigMap
from trimtab.autoscaling.scale_down import UNNEEDED_SINCE
from trimtab.autoscaling.services import Services
from trimtab.autoscaling.status_keeper import StatusKeeper
from trimtab.autoscaling.trigger import Trigger
from trimtab.cluster.live import LiveCluster
from trimtab.kube.api import NotFound
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.events.recorder import EventRecorder
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.guarded import Guarded
from trimtab.kube.objects import (
    Container,
    KubeObject,
    Machine,
    MachineSet,
    NodeCondition,
    OwnerReference,
    PodCondition,
    PodSpec,
)

SETS: Final = 500
PASSES: Final = 6
_OF_SET: Final = 10
_PODS: Final = 30
_OWNED: Final = 20
_API: Final = "machine.openshift.io"
_SIZE: Final = f"{_API}/cluster-api-autoscaler-node-group"
_UNSCHEDULABLE: Final = (PodCondition("PodScheduled", "False", "Unschedulable", since=CREATED),)
_READY: Final = (NodeCondition("Ready", "True", since=CREATED + 60),)
_BEAT: Final = 0.002
"""Seconds between two looks at how much CPU the loop's thread has used."""


class Cluster(Struct, frozen=True):
    """What there is to see.

    Attributes:
        cores: of each node: with 4 its pods request 75 percent of it, with 8 less than half.
        pending: pods of 250 owners that wait.
        unneeded: whether nodes are recorded as unneeded.
    """

    cores: int = 4
    pending: int = 0
    unneeded: bool = False


def idle() -> dict[str, Any]:
    """Nothing is to be done: every node is used well."""
    return measured(Cluster())


def unneeded() -> dict[str, Any]:
    """2,900 of the nodes could go and wait for their time to come, as they do for ten minutes."""
    return measured(Cluster(cores=8, unneeded=True))


def surge() -> dict[str, Any]:
    """5,000 pods wait; the first pass asks for their nodes, the next ones wait for these."""
    return measured(Cluster(pending=5000))


def objects(shape: Cluster) -> Iterator[KubeObject]:
    """Sets with machines and nodes; pods evenly over nodes; pods that wait."""
    amounts = ResourceList({"cpu": 1000 * shape.cores, "memory": 32 << 30, "pods": 110, "ephemeral-storage": 100 << 30})
    limits = Labels({f"{_SIZE}-min-size": "1", f"{_SIZE}-max-size": "20"})
    since = Labels({UNNEEDED_SINCE: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())} if shape.unneeded else {})
    for place in range(SETS):
        name = f"set-{place:03}"
        labels = {ZONE: f"zone-{place % 3}", "pool": f"pool-{place % 50}"}
        uid, version = f"uid-{name}", f"{_API}/v1beta1"
        yield MachineSet(
            "machines",
            name,
            uid=uid,
            api_version=version,
            annotations=limits,
            replicas=_OF_SET,
            node_labels=Labels(labels),
        )
        owner = OwnerReference("MachineSet", name, uid, version, controller=True)
        for number in range(place * _OF_SET, (place + 1) * _OF_SET):
            made = node(number)
            yield Machine(
                "machines", f"machine-{number:05}", owners=(owner,), created=CREATED, node=made.name, phase="Running"
            )
            yield replace(
                made,
                labels=Labels({**made.labels, **labels}),
                annotations=since,
                allocatable=amounts,
                capacity=amounts,
                conditions=_READY,
            )
    owners: tuple[OwnerReference, ...] = ()
    for number in range(SETS * _OF_SET * _PODS):
        running = pod(number, number // _OWNED, number % (SETS * _OF_SET))
        owners = running.owners if number % _OWNED == 0 else owners  # shared, as those of decoded pods are
        yield replace(running, owners=owners)
    yield from _waiting(shape.pending)


def _waiting(pods: int) -> Iterator[KubeObject]:
    specs = []
    for owner in range(250):
        requests = ResourceList({"cpu": 500 + 100 * (owner % 20), "memory": (512 + 64 * (owner % 25)) << 20})
        specs.append(PodSpec(containers=(Container("main", "app:1", requests),), requests=requests))
    for number in range(pods):
        app = f"late-{number % 250}"
        template = pod(number, 10_000 + number % 250, 0)
        yield replace(
            template,
            name=f"{app}-{number:05}",
            uid=f"uid-{app}-{number:05}",
            spec=specs[number % 250],
            node="",
            phase="Pending",
            ready=False,
            started=None,
            conditions=_UNSCHEDULABLE,
        )


class Server:
    """An API server that takes everything and keeps nothing; what is sent is encoded as it would be."""

    def __init__(self) -> None:
        self.calls = 0
        self.bytes = 0

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> Any:
        """Answer one request."""
        self.calls += 1
        await asyncio.sleep(0)
        if body is not None:
            self.bytes += len(msgspec.json.encode(body))
        if method == "GET" and "/configmaps/" in path:
            raise NotFound("there is none", status=404)
        return {"metadata": {"name": path.rpartition("/")[2]}, "spec": {}, "status": {}}

    @asynccontextmanager
    async def stream(self, path: str, **_: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        """Nobody watches here."""
        raise AssertionError(path)
        yield


class Loop:
    """How long the event loop is held: the most CPU that its thread uses between two looks at it."""

    def __init__(self) -> None:
        self.held = 0.0

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            before = time.thread_time()
            await asyncio.sleep(_BEAT)
            self.held = max(self.held, time.thread_time() - before)


def measured(shape: Cluster) -> dict[str, Any]:
    """Passes one after the other; the median of all but the first counts."""
    logging.disable(logging.INFO)
    live = LiveCluster()
    for each in objects(shape):
        live.apply(None, each)
    gc.collect()
    gc.freeze()
    return uvloop.run(_passes(live))


async def _passes(live: LiveCluster) -> dict[str, Any]:
    server, loop = Server(), Loop()
    watching = asyncio.create_task(loop.watch())
    before, recorder = _resident(), EventRecorder(server, instance="benchmark")
    async with recorder:
        passes, autoscaler = _autoscaler(live, server, recorder)
        cpu, held, grown, late = [], [], [], []
        for _ in range(PASSES):
            loop.held, started = 0.0, time.process_time()
            await asyncio.sleep(5 * _BEAT)
            waiting = asyncio.create_task(_wait_for(live))
            await passes.run(autoscaler)
            late.append(await waiting)
            await asyncio.sleep(0.3)  # what is told beside the pass belongs to it
            cpu.append(time.process_time() - started)
            held.append(loop.held)
            grown.append(_resident() - before)
        watching.cancel()
        await passes.stop()
    params = {
        "first_s": round(cpu[0], 3),
        "held_s": round(max(held[1:]), 4),
        "first_held_s": round(held[0], 4),
        "borrowed_s": round(statistics.median(late[1:]), 3),
        "first_borrowed_s": round(late[0], 3),
        "grown_mb": [round(each, 1) for each in grown],
        "peak_grown_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before, 1),
        "calls": server.calls,
        "sent_kb": server.bytes // 1024,
    }
    return {"seconds": statistics.median(cpu[1:]), "params": params}


async def _wait_for(live: LiveCluster) -> float:
    """How long somebody waits for the picture who asks for it when a pass has just begun."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    started = time.perf_counter()
    async with live.borrow():
        return time.perf_counter() - started


def _autoscaler(live: LiveCluster, server: Server, recorder: EventRecorder) -> tuple[Passes, ClusterAutoscaler]:
    registry = CollectorRegistry()
    guarded = Guarded(server, lambda: True)
    services = Services(
        api=server,
        live=live,
        clock=SYSTEM_CLOCK,
        turn=asyncio.Lock(),
        stale=lambda: None,
        leading=lambda: True,
        trigger=Trigger(SYSTEM_CLOCK),
        providers=providers(guarded),
        sources=Sources(),
        machine_autoscalers=tuple,
        invalid_machine_autoscalers=dict[str, Any],
        reporter=Reporter(
            EventTeller(recorder),
            AutoscalerMetrics(registry),
            compatible=CompatibleMetrics(registry),
            config_map=StatusConfigMap(server, namespace="trimtab-system"),
        ),
    )
    body: Mapping[str, Any] = {
        "apiVersion": "autoscaling.openshift.io/v1",
        "kind": "ClusterAutoscaler",
        "metadata": {"name": "default", "uid": "ca", "generation": 1},
        "spec": {"scaleDown": {"enabled": True}, "mode": "Act"},
    }
    return Passes(services, StatusKeeper(server, SYSTEM_CLOCK)), decode_cluster_autoscaler(dict(body))


def _resident() -> float:
    """What the process holds of memory now, in MB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
