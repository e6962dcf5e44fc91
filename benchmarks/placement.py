"""Placing pods one after the other, each reserving its place: 10,000 pods of 50 classes beside 150,000 that run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from benchmarks.clusters import CREATED, HOSTNAME, ZONE, Shape, cluster
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import (
    Affinity,
    Container,
    KubeObject,
    LabelSelector,
    OwnerReference,
    Pod,
    PodAffinityTerm,
    PodSpec,
    ReplicaSet,
    Toleration,
    TopologySpread,
)
from trimtab.placement.placer import Placer

NAMESPACE: Final = "new"
CLASSES: Final = 50
PODS: Final = 10_000
_TOLERATIONS: Final = tuple(
    Toleration(key=f"node.kubernetes.io/{key}", operator="Exists", effect="NoExecute", seconds=300)
    for key in ("not-ready", "unreachable")
)

Extra = dict[str, Any]
Result = dict[str, Any]


def plain(number: int) -> Extra:
    """Nothing but requests."""
    del number
    return {}


def spread(number: int) -> Extra:
    """Even over zones, every other class over hosts as well."""
    selector = LabelSelector(_labels(number))
    constraints = [TopologySpread(1, ZONE, "DoNotSchedule", selector)]
    if number % 2:
        constraints.append(TopologySpread(1, HOSTNAME, "DoNotSchedule", selector))
    return {"topology_spread": tuple(constraints)}


def affinity(number: int) -> Extra:
    """In a zone with others of the class, or, every other class, on a host with pods of an application that runs."""
    if number % 2:
        there = LabelSelector(Labels({"app": f"app-{number:05}"}))
        term = PodAffinityTerm(HOSTNAME, there, namespaces=(f"team-{number % 50:02}",))
    else:
        term = PodAffinityTerm(ZONE, LabelSelector(_labels(number)))
    return {"affinity": Affinity(pod_required=(term,))}


def anti_affinity(number: int) -> Extra:
    """One of the class a host, or, every other class, not in the zone where its guards are."""
    if number % 2:
        term = PodAffinityTerm(HOSTNAME, LabelSelector(_labels(number)))
    else:
        term = PodAffinityTerm(ZONE, LabelSelector(Labels({"guards": str(number)})))
    return {"affinity": Affinity(anti_required=(term,))}


def pods(extra: Callable[[int], Extra]) -> list[Pod]:
    """The pending pods, class after class in turn."""
    specs = [_spec(number, extra(number)) for number in range(CLASSES)]
    labels = [_labels(number) for number in range(CLASSES)]
    owners = [(_owner(number),) for number in range(CLASSES)]
    return [
        Pod(
            namespace=NAMESPACE,
            name=f"new-{number:05}",
            uid=f"uid-new-{number:05}",
            labels=labels[number % CLASSES],
            owners=owners[number % CLASSES],
            created=CREATED,
            spec=specs[number % CLASSES],
            phase="Pending",
        )
        for number in range(PODS)
    ]


def guards() -> Iterator[Pod]:
    """A pod in zone-0 for each class that keeps away from it."""
    for number in range(0, CLASSES, 2):
        yield Pod(
            namespace=NAMESPACE,
            name=f"guard-{number}",
            labels=Labels({"guards": str(number)}),
            node=f"node-{3 * number:05}",
            spec=_spec(number, {}),
            phase="Running",
        )


def replica_sets() -> Iterator[KubeObject]:
    """The pods' owners: with them, the scheduler spreads the pods without being asked."""
    for number in range(CLASSES):
        yield ReplicaSet(NAMESPACE, _owner(number).name, selector=LabelSelector(_labels(number)))


def place(extra: Callable[[int], Extra], *, owned: bool = False) -> Result:
    """Place all pods on the cluster of 5,000 nodes and 150,000 pods, in three forks: the median counts."""
    shape = Shape()
    snapshot = Snapshot(cluster(shape))
    for each in (*guards(), *(replica_sets() if owned else ())):
        snapshot.put(each)
    pending = pods(extra)
    times, placed = [], 0
    for _ in range(3):
        placer = Placer(snapshot)
        with snapshot.fork():
            started = time.perf_counter()
            made = placer.place(pending)
            times.append(time.perf_counter() - started)
            placed = sum(bool(each.pod.node) for each in made)
    seconds = statistics.median(times)
    params = {"nodes": shape.nodes, "running": shape.pods, "pods": PODS, "classes": CLASSES, "placed": placed}
    return {"seconds": seconds, "decisions_per_s": round(PODS / seconds), "params": params}


def _spec(number: int, extra: Extra) -> PodSpec:
    requests = ResourceList({"cpu": 20 + number, "memory": (32 + number) << 20})
    return PodSpec(
        containers=(Container("main", f"registry.example/new-{number}:1", requests),),
        requests=requests,
        nonzero_requests=requests,
        qos="Burstable",
        tolerations=_TOLERATIONS,
        **extra,
    )


def _labels(number: int) -> Labels:
    return Labels({"app": f"new-{number}"})


def _owner(number: int) -> OwnerReference:
    return OwnerReference("ReplicaSet", f"new-{number}", f"uid-new-{number}", "apps/v1", controller=True)
