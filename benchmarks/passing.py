"""Measures iterations of the autoscaler in one process: observe, plan, act and report.

Only the API server is simulated.

The cluster has 5,000 nodes in 500 MachineSets and 150,000 pods. The result is the CPU time of an iteration, and the
longest time for which the event loop is blocked, because probes, lease renewals and watches must wait in that time.
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

from benchmarks.clusters import CREATED, ZONE, joined, node, pod
from benchmarks.expectations import expect
from trimtab.api.cluster_autoscaler import ClusterAutoscaler
from trimtab.api.decode import decode_cluster_autoscaler
from trimtab.autoscaling.dependencies import AutoscalerDependencies
from trimtab.autoscaling.external import ExternalSources
from trimtab.autoscaling.providers import providers
from trimtab.autoscaling.reconciler import Reconciler
from trimtab.autoscaling.report import (
    AutoscalerEventReporter,
    AutoscalerMetrics,
    AutoscalerReporter,
    CompatibleMetrics,
    StatusConfigMap,
    status_writer,
)
from trimtab.autoscaling.scale_down import UNNEEDED_SINCE
from trimtab.autoscaling.trigger import Trigger
from trimtab.cluster.lister import Lister
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.disruption.evictor import Evictor
from trimtab.kube.api import LeaderOnlyApi, NotFound
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.events.recorder import EventRecorder
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import (
    Container,
    KubeObject,
    Machine,
    MachineSet,
    Node,
    NodeCondition,
    OwnerReference,
    Pod,
    PodCondition,
    PodSpec,
)
from trimtab.kube.watching.store import Store

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
"""Seconds between two readings of the CPU time of the event loop's thread."""


class Cluster(Struct, frozen=True):
    """The cluster.

    Attributes:
        cores: the cores of each node. With 4, pods request 75 percent of a node; with 8, less than half.
        pending: the number of pending pods of 250 owners.
        unneeded: whether nodes are recorded as unneeded.
    """

    cores: int = 4
    pending: int = 0
    unneeded: bool = False


def idle() -> dict[str, Any]:
    """Measure iterations that do nothing, because every node is well utilized."""
    return measured(Cluster(), resized=0, unneeded=0)


def unneeded() -> dict[str, Any]:
    """Measure iterations in which 2,900 nodes are unneeded and wait until ``unneededTime`` has passed."""
    return measured(Cluster(cores=8, unneeded=True), resized=0, unneeded=lambda number: number > 2500)


def surge() -> dict[str, Any]:
    """Measure iterations with 5,000 pending pods.

    The first requests nodes for them, and the next ones wait for the nodes.
    """
    return measured(Cluster(pending=5000), resized=lambda number: number > 100, unneeded=0)


def objects(shape: Cluster) -> Iterator[KubeObject]:
    """Yield MachineSets with machines and nodes, evenly distributed pods, and pending pods."""
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
            made = replace(
                made,
                labels=Labels({**made.labels, **labels}),
                annotations=since,
                allocatable=amounts,
                capacity=amounts,
                conditions=_READY,
            )
            yield from joined(Machine("machines", f"machine-{number:05}", owners=(owner,), created=CREATED), made)
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
    """An API server that accepts all requests and stores nothing. It encodes requests as a real client does."""

    def __init__(self) -> None:
        self.calls = 0
        self.bytes = 0
        self.resized: set[str] = set()
        self.status: dict[str, Any] = {}

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> Any:
        """Respond to one request."""
        self.calls += 1
        await asyncio.sleep(0)
        if body is not None:
            sent = msgspec.json.encode(body)
            self.bytes += len(sent)
            if "/machinesets/" in path and b"replicas" in sent:
                self.resized.add(path)
            elif "/clusterautoscalers/" in path:
                self.status = msgspec.json.decode(sent)["status"]
        if method == "GET" and "/configmaps/" in path:
            raise NotFound("there is none", status=404)
        return {"metadata": {"name": path.rpartition("/")[2]}, "spec": {}, "status": {}}

    @asynccontextmanager
    async def stream(self, path: str, **_: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        """Raise an error, because no benchmark watches."""
        raise AssertionError(path)
        yield


class Loop:
    """Measures how long the event loop is blocked: the maximum CPU time of its thread between two readings."""

    def __init__(self) -> None:
        self.held = 0.0

    async def watch(self) -> None:
        """Read the CPU time until cancelled."""
        while True:
            before = time.thread_time()
            await asyncio.sleep(_BEAT)
            self.held = max(self.held, time.thread_time() - before)


def measured(shape: Cluster, **wanted: Any) -> dict[str, Any]:
    """Run several iterations, and return the median of all but the first.

    Args:
        shape: the cluster.
        wanted: the expected work of the iterations (:func:`~benchmarks.expectations.expect`).
    """
    logging.disable(logging.INFO)
    shared, nodes, pods = SharedSnapshot(), Store[Node](), Store[Pod]()
    lister = Lister(nodes, pods, Store())
    for each in objects(shape):
        if isinstance(each, Node):
            nodes.apply(each)
        elif isinstance(each, Pod):
            pods.apply(each)
        shared.apply(None, each)
    gc.collect()
    gc.freeze()
    result = uvloop.run(_passes(shared, lister))
    expect(result["params"], **wanted)
    return result


async def _passes(shared: SharedSnapshot, lister: Lister) -> dict[str, Any]:
    server, loop = Server(), Loop()
    watching = asyncio.create_task(loop.watch())
    before, recorder = _resident(), EventRecorder(server, instance="benchmark")
    async with recorder:
        passes, autoscaler = make_autoscaler(shared, lister, server, recorder)
        cpu, held, grown, late = [], [], [], []
        for _ in range(PASSES):
            loop.held, started = 0.0, time.process_time()
            await asyncio.sleep(5 * _BEAT)
            waiting = asyncio.create_task(_wait_for(shared))
            await passes.reconcile(autoscaler)
            late.append(await waiting)
            await asyncio.sleep(0.3)  # the time of the reports belongs to the iteration
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
        "resized": len(server.resized),
        "unneeded": len(server.status["unneeded"] or ()) + (server.status["unneededOmitted"] or 0),
        "calls": server.calls,
        "sent_kb": server.bytes // 1024,
    }
    return {"seconds": statistics.median(cpu[1:]), "params": params}


async def _wait_for(shared: SharedSnapshot) -> float:
    """Return the seconds that another planner waits for the snapshot if an iteration has just started."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    started = time.perf_counter()
    async with shared.borrow():
        return time.perf_counter() - started


def make_autoscaler(
    shared: SharedSnapshot, lister: Lister, server: Server, recorder: EventRecorder
) -> tuple[Reconciler, ClusterAutoscaler]:
    """Make an autoscaler that acts on a made-up API server."""
    registry = CollectorRegistry()
    guarded = LeaderOnlyApi(server, lambda: True)
    services = AutoscalerDependencies(
        api=server,
        shared=shared,
        lister=lister,
        clock=SYSTEM_CLOCK,
        disruption_lock=asyncio.Lock(),
        stale=lambda: None,
        leading=lambda: True,
        trigger=Trigger(SYSTEM_CLOCK),
        providers=providers(guarded),
        sources=ExternalSources(),
        machine_autoscalers=tuple,
        invalid_machine_autoscalers=dict[str, Any],
        reporter=AutoscalerReporter(
            AutoscalerEventReporter(recorder),
            AutoscalerMetrics(registry),
            compatible=CompatibleMetrics(registry),
            config_map=StatusConfigMap(server, namespace="trimtab-system"),
        ),
        evictor=Evictor(clock=SYSTEM_CLOCK, view=lister),
    )
    body: Mapping[str, Any] = {
        "apiVersion": "autoscaling.openshift.io/v1",
        "kind": "ClusterAutoscaler",
        "metadata": {"name": "default", "uid": "ca", "generation": 1},
        "spec": {"scaleDown": {"enabled": True}, "mode": "Act"},
    }
    return Reconciler(services, status_writer(server, SYSTEM_CLOCK)), decode_cluster_autoscaler(dict(body))


def _resident() -> float:
    """Return the resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
