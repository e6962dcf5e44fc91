"""Measures scale-down of 2,000 nodes with 40 pods each at 40 percent, of which 1,200 can be removed."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from benchmarks.clusters import CREATED, joined, node, pod
from benchmarks.expectations import expect
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec, ScaleDown
from trimtab.autoscaling.groups import build_groups
from trimtab.autoscaling.scale_down import UNNEEDED_SINCE, plan
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import KubeObject, Machine, MachineSet, OwnerReference

NODES: Final = 2000
PODS: Final = 40
OWNED: Final = 20
REMOVED: Final = 1200
"""The number of removed nodes. The remaining 800 nodes with 10 cpu are then full with 80,000 pods of 100m."""
NOW: Final = CREATED + 86_400
_AMOUNTS: Final = ResourceList({"cpu": 10_000, "memory": 12_800 << 20, "pods": 110})
_SINCE: Final = Labels({UNNEEDED_SINCE: "2026-11-18T00:00:00Z"})
_GROUPS: Final = 3
_API: Final = "machine.openshift.io"


def objects() -> Iterator[KubeObject]:
    """Yield three MachineSets, one per zone, with machines, nodes and 4,000 owners of twenty spread pods."""
    for number in range(_GROUPS):
        limits = {f"{_API}/cluster-api-autoscaler-node-group-{end}-size": size for end, size in _SIZES}
        yield MachineSet(
            "machines",
            f"set-{number}",
            uid=f"uid-set-{number}",
            api_version=f"{_API}/v1beta1",
            annotations=Labels(limits),
            replicas=len(range(number, NODES, _GROUPS)),
        )
    for number in range(NODES):
        made = replace(node(number), allocatable=_AMOUNTS, capacity=_AMOUNTS, annotations=_SINCE)
        name = f"set-{number % _GROUPS}"
        owner = OwnerReference("MachineSet", name, f"uid-{name}", f"{_API}/v1beta1", controller=True)
        yield from joined(Machine("machines", f"machine-{number:05}", owners=(owner,), created=CREATED), made)
    owners: tuple[OwnerReference, ...] = ()
    for number in range(NODES * PODS):
        made_pod = pod(number, number // OWNED, number % NODES)
        owners = made_pod.owners if number % OWNED == 0 else owners  # shared, as those of decoded pods are
        yield replace(made_pod, owners=owners)


_SIZES: Final = (("min", "0"), ("max", "1000"))


def remove() -> dict[str, Any]:
    """Plan three times on an existing snapshot. The median is reported."""
    snapshot = Snapshot(objects())
    spec = ClusterAutoscalerSpec(scale_down=ScaleDown(enabled=True))
    found = build_groups(snapshot)
    times, removed, moved = [], 0, 0
    for _ in range(3):
        gc.collect()
        started = time.perf_counter()
        made = plan(snapshot, found, spec, now=NOW)
        times.append(time.perf_counter() - started)
        removed, moved = len(made.actions), sum(len(action.moves) for action in made.actions)
    params = {"nodes": NODES, "pods": NODES * PODS, "removed": removed, "moved": moved}
    expect(params, removed=REMOVED, moved=REMOVED * PODS)
    return {"seconds": statistics.median(times), "params": params}
