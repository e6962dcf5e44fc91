"""Scale-up, in the shapes that cluster-autoscaler's own benchmarks have: pods and nodes of the same amounts."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.clusters import CREATED, HOSTNAME, ZONE
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.scale_up import Inputs, ScalingUp, scale_up
from trimtab.autoscaling.scale_up.classes import alike, clashes, classes
from trimtab.autoscaling.scale_up.packing import Ask, pack
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import NO_LABELS, Labels, ResourceList
from trimtab.kube.objects import (
    Affinity,
    Container,
    KubeObject,
    LabelSelector,
    Machine,
    MachineSet,
    Node,
    NodeCondition,
    OwnerReference,
    Pod,
    PodAffinityTerm,
    PodCondition,
    PodSpec,
)

NOW: Final = CREATED + 86_400
_API: Final = "machine.openshift.io"
_SIZE: Final = f"{_API}/cluster-api-autoscaler-node-group"
_CAPACITY: Final = "capacity.cluster-autoscaler.kubernetes.io"
_UNSCHEDULABLE: Final = (PodCondition("PodScheduled", "False", "Unschedulable"),)
_READY: Final = (NodeCondition("Ready", "True"),)
_NODE: Final = ResourceList({"cpu": 10_000, "memory": 10_000, "pods": 110})
_SURGE: Final = 100
_NODES: Final = 5000
_PODS: Final = 10
_OF_GROUP: Final = 50


def scale_up_1000() -> dict[str, Any]:
    """One set without nodes, 50,000 pods without owners, 50 to a node."""
    spec = _spec(200, 200)
    pods = [_waiting(f"pod-{number}", spec) for number in range(50_000)]
    return _plan([_set("workers", cpu="10", memory="10000"), *pods])


def estimate_51k() -> dict[str, Any]:
    """From pods to nodes: classes, then the packing; without asking who waits, and without a plan's text."""
    specs = (_spec(50, 100), _spec(95, 190))
    labels = Labels({"app": "estimatee"})
    pods = [_waiting(f"pod-{number}", specs[number >= 50_000], labels) for number in range(51_000)]
    snapshot = Snapshot(pods)
    free = snapshot.nodes.axis.row(ResourceList({"cpu": 1000, "memory": 5000, "pods": 100}))
    gc.collect()
    started = time.perf_counter()
    found = classes(alike(pods), snapshot)
    asks = [Ask(each.number, len(each.pods), snapshot.row(each.first.spec)) for each in found]
    packing = pack(asks, free, most=3000, clashes=clashes(found, snapshot))
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "params": {"pods": packing.pods, "nodes": packing.nodes}}


def affinity_surge(key: str = HOSTNAME) -> dict[str, Any]:
    """100 groups of 50 full nodes; every pod keeps away from one other pod, and 100 more wait, a node each.

    Args:
        key: what pods that keep apart must not share: the host, or the zone.
    """
    return _plan(list(_surge(key)))


def groups_500() -> dict[str, Any]:
    """500 sets of machines of ten sizes in three zones, and 5,000 pods of 250 owners that wait."""
    sets = [
        _set(
            f"set-{number:03}",
            cpu=str(2 + number % 10),
            memory=f"{8 + 4 * (number % 7)}Gi",
            labels=Labels({ZONE: f"zone-{number % 3}", "pool": f"pool-{number % 50}"}),
        )
        for number in range(500)
    ]
    specs = [_spec(100 + 10 * (owner % 40), (128 + 16 * (owner % 25)) << 20) for owner in range(250)]
    labels = [Labels({"app": f"app-{owner}"}) for owner in range(250)]
    pods = [_waiting(f"pod-{number}", specs[number % 250], labels[number % 250]) for number in range(5000)]
    return _plan([*sets, *pods])


def _plan(objects: list[KubeObject]) -> dict[str, Any]:
    """Plan twice on a snapshot that is there; the first time counts, when nothing has been computed yet."""
    snapshot = Snapshot(objects)
    inputs = Inputs(ClusterAutoscalerSpec(), NOW)
    times, made = [], ScalingUp()
    for _ in range(2):
        gc.collect()
        started = time.perf_counter()
        made = scale_up(snapshot, inputs)
        times.append(time.perf_counter() - started)
    params = {
        "nodes": len(snapshot.nodes),
        "pods": len(snapshot.pods),
        "groups": len(made.actions),
        "added": len(made.nodes),
        "helped": sum(len(action.pods) for action in made.actions),
        "again_s": round(times[1], 4),
    }
    return {"seconds": times[0], "params": params}


def _surge(key: str) -> Iterator[KubeObject]:
    numbers = list(range(_NODES * _PODS + _SURGE))
    random.Random(42).shuffle(numbers)
    late = frozenset(numbers[:_SURGE])
    early = iter(number for number in range(len(numbers)) if number not in late)
    for place in range(_NODES // _OF_GROUP):
        labels = {ZONE: f"zone-{place % 3}", "node.kubernetes.io/instance-type": f"type-{place // 3}"}
        name = f"set-{place:03}"
        yield _set(name, cpu="10", memory="10000", labels=Labels(labels), size=_OF_GROUP)
        for number in range(_OF_GROUP):
            host = f"{name}-{number:02}"
            owner = OwnerReference("MachineSet", name, f"uid-{name}", f"{_API}/v1beta1", controller=True)
            yield Machine("machines", host, owners=(owner,), created=CREATED, node=host, phase="Running")
            yield Node(
                name=host,
                labels=Labels({**labels, HOSTNAME: host}),
                created=CREATED,
                allocatable=_NODE,
                capacity=_NODE,
                conditions=_READY,
            )
            for _ in range(_PODS):
                yield _apart(next(early), 10_000 // _PODS, key, node=host)
    for number in sorted(late):
        yield _apart(number, 10_000, key)


_pairs: dict[int, Labels] = {}


def _apart(number: int, amount: int, key: str, node: str = "") -> Pod:
    """A pod that shares its labels with one other, and must not be together with it."""
    labels = _pairs.setdefault(number // 2, Labels({"app": f"app-{number // 2}"}))
    spec = _spec(amount, amount, Affinity(anti_required=(PodAffinityTerm(key, LabelSelector(labels)),)))
    if not node:
        return _waiting(f"pod-{number}", spec, labels)
    return Pod("default", f"pod-{number}", labels=labels, spec=spec, node=node, phase="Running", created=CREATED)


def _waiting(name: str, spec: PodSpec, labels: Labels = NO_LABELS) -> Pod:
    return Pod(
        "default",
        name,
        uid=f"uid-{name}",
        labels=labels,
        spec=spec,
        phase="Pending",
        created=CREATED,
        conditions=_UNSCHEDULABLE,
    )


def _spec(cpu: int, memory: int, affinity: Affinity | None = None) -> PodSpec:
    requests = ResourceList({"cpu": cpu, "memory": memory})
    return PodSpec(
        containers=(Container("main", "app:1", requests),), requests=requests, affinity=affinity or Affinity()
    )


def _set(name: str, *, cpu: str, memory: str, labels: Labels = NO_LABELS, size: int = 0) -> MachineSet:
    """A MachineSet whose nodes have nothing reserved."""
    said = {
        f"{_SIZE}-min-size": "0",
        f"{_SIZE}-max-size": "10000",
        f"{_CAPACITY}/cpu": cpu,
        f"{_CAPACITY}/memory": memory,
        "trimtab.dev/reserved": "cpu=0,memory=0",
    }
    return MachineSet(
        "machines",
        name,
        uid=f"uid-{name}",
        api_version=f"{_API}/v1beta1",
        annotations=Labels(said),
        replicas=size,
        node_labels=labels,
    )
