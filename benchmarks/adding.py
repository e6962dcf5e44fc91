"""Measures scale-up in the shapes of cluster-autoscaler's own benchmarks, with the same numbers of pods and nodes."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.clusters import CREATED, HOSTNAME, ZONE, joined
from benchmarks.expectations import expect
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.scale_up import PlanInputs, ScaleUpPlan, scale_up
from trimtab.autoscaling.scale_up.binpacking import PodDemand, pack
from trimtab.autoscaling.scale_up.pod_classes import build_pod_classes, find_conflicts, group_equal_pods
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
    """Plan for 50,000 pods without owners and one MachineSet without nodes, with 50 pods per node."""
    spec = _spec(200, 200)
    pods = [_waiting(f"pod-{number}", spec) for number in range(50_000)]
    return _plan([_set("workers", cpu="10", memory="10000"), *pods], added=1000, helped=50_000)


def estimate_51k() -> dict[str, Any]:
    """Estimate the number of new nodes: group pods into classes and pack them, without building a plan."""
    specs = (_spec(50, 100), _spec(95, 190))
    labels = Labels({"app": "estimatee"})
    pods = [_waiting(f"pod-{number}", specs[number >= 50_000], labels) for number in range(51_000)]
    snapshot = Snapshot(pods)
    free = snapshot.nodes.axis.row(ResourceList({"cpu": 1000, "memory": 5000, "pods": 100}))
    gc.collect()
    started = time.perf_counter()
    found = build_pod_classes(group_equal_pods(pods), snapshot)
    asks = [PodDemand(each.number, len(each.pods), snapshot.row(each.first.spec)) for each in found]
    packing = pack(asks, free, max_nodes=3000, conflicts=find_conflicts(found, snapshot))
    seconds = time.perf_counter() - started
    params = {"pods": packing.pods, "nodes": packing.nodes}
    expect(params, pods=51_000, nodes=2595)
    return {"seconds": seconds, "params": params}


def affinity_surge(key: str = HOSTNAME) -> dict[str, Any]:
    """Plan for 100 pending pods that each need their own node, in a cluster with 100 groups of 50 full nodes.

    Args:
        key: the topology key of the pods' anti-affinity: hostname or zone.
    """
    return _plan(list(_surge(key)), added=_SURGE, helped=_SURGE)


def groups_500() -> dict[str, Any]:
    """Plan for 5,000 pending pods of 250 owners with 500 MachineSets of ten sizes in three zones."""
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
    return _plan([*sets, *pods], helped=5000)


def _plan(objects: list[KubeObject], **wanted: int) -> dict[str, Any]:
    """Plan twice on an existing snapshot. The first time is reported, because nothing is cached then."""
    snapshot = Snapshot(objects)
    inputs = PlanInputs(ClusterAutoscalerSpec(), NOW)
    times, made = [], ScaleUpPlan()
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
    expect(params, **wanted)
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
            made = Node(
                name=host,
                uid=f"uid-{host}",
                labels=Labels({**labels, HOSTNAME: host}),
                created=CREATED,
                allocatable=_NODE,
                capacity=_NODE,
                conditions=_READY,
            )
            yield from joined(Machine("machines", host, owners=(owner,), created=CREATED), made)
            for _ in range(_PODS):
                yield _apart(next(early), 10_000 // _PODS, key, node=host)
    for number in sorted(late):
        yield _apart(number, 10_000, key)


_pairs: dict[int, Labels] = {}


def _apart(number: int, amount: int, key: str, node: str = "") -> Pod:
    """Return a pod with anti-affinity to the one other pod that has the same labels.

    The pods are in ten namespaces, because the number of terms per namespace is limited.
    """
    labels = _pairs.setdefault(number // 2, Labels({"app": f"app-{number // 2}"}))
    spec = _spec(amount, amount, Affinity(anti_required=(PodAffinityTerm(key, LabelSelector(labels)),)))
    namespace = f"team-{number // 2 % 10}"
    if not node:
        return _waiting(f"pod-{number}", spec, labels, namespace)
    return Pod(namespace, f"pod-{number}", labels=labels, spec=spec, node=node, phase="Running", created=CREATED)


def _waiting(name: str, spec: PodSpec, labels: Labels = NO_LABELS, namespace: str = "default") -> Pod:
    return Pod(
        namespace,
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
    """Return a MachineSet whose nodes reserve no resources."""
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
