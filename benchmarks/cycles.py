"""Scheduling cycles in memory on 5,000 nodes and 150,000 pods: planning and assuming, without an API server."""

from __future__ import annotations

import time
from typing import Any, Final

from msgspec.structs import replace

from benchmarks.clusters import CREATED, HOSTNAME, ZONE, Shape, cluster
from benchmarks.expectations import expect
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import Affinity, Container, LabelSelector, Pod, PodAffinityTerm, PodSpec, TopologySpread
from trimtab.placement.placer import Placer
from trimtab.scheduling.planner import Bind, CyclePlanner

BATCH: Final = 256
"""Pods of a cycle."""
_SELECTOR: Final = LabelSelector(Labels({"color": "blue"}))

Result = dict[str, Any]


def plain() -> Result:
    """Place pods that only have requests."""
    return _scheduled(5000, _spec())


def zone_spread() -> Result:
    """Place pods with topology spread over zones."""
    return _scheduled(5000, _spec(topology_spread=(TopologySpread(5, ZONE, "DoNotSchedule", _SELECTOR),)))


def zone_affinity() -> Result:
    """Place pods with required affinity to each other by zone."""
    return _scheduled(5000, _spec(affinity=Affinity(pod_required=(PodAffinityTerm(ZONE, _SELECTOR),))))


def host_anti_affinity() -> Result:
    """Place pods with required anti-affinity to each other by host."""
    return _scheduled(4000, _spec(affinity=Affinity(anti_required=(PodAffinityTerm(HOSTNAME, _SELECTOR),))))


def preemption() -> Result:
    """Preempt for pods of high priority: all nodes are full of pods of low priority."""
    return _scheduled(1000, _spec(cpu=3000), full=True)


def _scheduled(number: int, spec: PodSpec, *, full: bool = False) -> Result:
    """Plan cycles until each pod has a node, and assume its pods; victims end before the next cycle."""
    snapshot = Snapshot(cluster(Shape()))
    if full:
        for filler in _fillers(snapshot):
            snapshot.put(filler)
    labels = Labels({"color": "blue"})
    waiting = [
        Pod("new", f"p-{each}", uid=f"u-{each}", labels=labels, created=CREATED, spec=spec, phase="Pending")
        for each in range(number)
    ]
    planner = CyclePlanner(snapshot, {"default-scheduler": Placer(snapshot)})
    cycles, bound, victims, cpu = [], 0, 0, 0.0
    while waiting:
        batch, waiting = waiting[:BATCH], waiting[BATCH:]
        nominated = [pod for pod in waiting if pod.nominated_node]
        started, worked = time.perf_counter(), time.process_time()
        with snapshot.fork():
            decisions = planner.plan(batch, nominated)
        for decision in decisions:
            if isinstance(decision, Bind):
                snapshot.put(replace(decision.pod, node=decision.node))
                bound += 1
        cycles.append(time.perf_counter() - started)
        cpu += time.process_time() - worked
        for rejected in decisions:
            if not isinstance(rejected, Bind) and rejected.preemption is not None:
                for victim in rejected.preemption.victims:
                    snapshot.remove(victim)
                    victims += 1
                waiting.append(replace(rejected.pod, nominated_node=rejected.preemption.node))
    seconds = sum(cycles)
    params: Result = {"nodes": len(snapshot.nodes), "pods": number, "bound": bound, "victims": victims}
    params |= {
        "cycles": len(cycles),
        "cpu_s": round(cpu, 2),
        "first_ms": round(1000 * cycles[0], 1),
        "longest_ms": round(1000 * max(cycles), 1),
    }
    expect(params, bound=lambda count: count == number)
    return {"seconds": seconds, "decisions_per_s": round(number / seconds), "params": params}


def _fillers(snapshot: Snapshot) -> list[Pod]:
    """Return pods of low priority that leave less than 900m on each node."""
    spec = replace(_spec(cpu=900), priority=-10)
    found = []
    for slot in snapshot.nodes.order().tolist():
        name = snapshot.nodes.node(slot).name
        free = int(snapshot.nodes.allocatable[slot, 0] - snapshot.nodes.requested[slot, 0])
        for each in range(free // 900):
            key = f"low-{name}-{each}"
            found.append(Pod("low", key, uid=key, node=name, created=CREATED, spec=spec, phase="Running"))
    return found


def _spec(cpu: int = 100, **more: Any) -> PodSpec:
    requests = ResourceList({"cpu": cpu, "memory": 500 << 20})
    containers = (Container("main", "registry.example/new:1", requests),)
    return PodSpec(containers=containers, requests=requests, nonzero_requests=requests, qos="Guaranteed", **more)
