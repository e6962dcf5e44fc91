"""Measures forecasts: the failure of a zone, and the capacity for further pods."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.clusters import CREATED, Shape, _labels, cluster
from trimtab.cluster.snapshot import Snapshot
from trimtab.inspection.applied_objects import pod_of
from trimtab.inspection.capacity import capacity
from trimtab.inspection.cluster import ClusterInput
from trimtab.inspection.forecast import what_if
from trimtab.inspection.scenario import Scenario, parse_selection
from trimtab.kube.objects import LabelSelector, ReplicaSet

NOW = CREATED + 200_000
SHAPE = Shape(weights=(1, 1))


def zone(*, owned: bool = False) -> dict[str, Any]:
    """Forecast the failure of one of three zones.

    Args:
        owned: whether the snapshot contains the ReplicaSets.
    """
    objects = list(cluster(SHAPE))
    if owned:
        objects += [
            ReplicaSet(
                f"team-{owner % 50:02}",
                f"app-{owner:05}",
                f"uid-app-{owner:05}",
                selector=LabelSelector(_labels(f"app-{owner:05}")),
            )
            for owner in range(SHAPE.pods // SHAPE.owner_size)
        ]
    made = ClusterInput(snapshot=Snapshot(objects), now=NOW)
    scenario = Scenario(without=(parse_selection("zone=zone-0"),))
    started = time.perf_counter()
    summary = what_if(made, scenario)["summary"]
    seconds = time.perf_counter() - started
    params = {key: summary[key] for key in ("nodes", "rescheduled", "pending", "lost")}
    return {"seconds": seconds, "params": params}


def capacity_of_cluster() -> dict[str, Any]:
    """Count the further instances of a pod of 500m."""
    made = ClusterInput(snapshot=Snapshot(cluster(SHAPE)), now=NOW)
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "more", "namespace": "team-00"},
        "spec": {"containers": [container]},
    }
    pod = pod_of(made.snapshot, manifest, now=NOW)
    started = time.perf_counter()
    found = capacity(made, pod)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "params": {"instances": found["instances"], "nodes": len(found["nodes"])}}
