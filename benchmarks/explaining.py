"""Measures explaining one pod against all nodes, with the same output as ``trimtab explain pod -o json``."""

from __future__ import annotations

import statistics
import time
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from benchmarks.clusters import HOSTNAME, ZONE, Shape, cluster
from benchmarks.placement import replica_sets
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import Affinity, LabelSelector, Pod, PodAffinityTerm, PodSpec, TopologySpread
from trimtab.placement.explanation import explanation
from trimtab.placement.placer import Placer

_TIMES: Final = 9

Result = dict[str, Any]


def explain() -> Result:
    """Explain pods that fit and pods that fit on no node, each several times on a warm snapshot.

    The maximum is reported.

    ``params`` contains the median of each kind in milliseconds.
    """
    shape = Shape()
    snapshot = Snapshot([*cluster(shape), *replica_sets()])
    placer = Placer(snapshot)
    pods = kinds(next(iter(snapshot.pods.values())))
    for pod in pods.values():
        snapshot.put(pod)
    taken = {name: _median(placer, pod) for name, pod in pods.items()}
    found = {name: round(1000 * seconds, 1) for name, seconds in taken.items()}
    params = {"nodes": shape.nodes, "pods": shape.pods, "milliseconds": found}
    return {"seconds": max(taken.values()), "params": params}


def kinds(like: Pod) -> dict[str, Pod]:
    """Return pending pods by the kind of explanation, derived from a running pod."""
    own = LabelSelector(like.labels)
    spread = (TopologySpread(1, ZONE, "DoNotSchedule", own), TopologySpread(1, HOSTNAME, "DoNotSchedule", own))
    apart = Affinity(anti_required=(PodAffinityTerm(HOSTNAME, LabelSelector(), namespace_selector=LabelSelector()),))
    specs: dict[str, PodSpec] = {
        "fits": like.spec,
        "fits spread": replace(like.spec, topology_spread=spread),
        "too large by little": replace(like.spec, requests=ResourceList({"cpu": 7900, "memory": 1 << 30})),
        "too large by far": replace(like.spec, requests=ResourceList({"cpu": 64_000, "memory": 1 << 30})),
        "selects no node": replace(like.spec, node_selector=Labels({"disk": "ssd"})),
        "wants to be alone": replace(like.spec, affinity=apart),
    }
    named = {name: replace(like, name=name.replace(" ", "-"), node="", spec=spec) for name, spec in specs.items()}
    return named | {"is on a node": like}


def _median(placer: Placer, pod: Pod) -> float:
    taken = []
    for _ in range(_TIMES + 1):
        started = time.perf_counter()
        msgspec.json.encode(explanation(placer, pod))
        taken.append(time.perf_counter() - started)
    return statistics.median(taken[1:])
