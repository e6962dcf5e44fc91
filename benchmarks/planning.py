"""Measures planning on 5,000 nodes and 150,000 pods: an unbalanced cluster, repeated planning, and mass moves."""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from benchmarks import clusters
from benchmarks.clusters import ZONE, cluster
from benchmarks.expectations import expect
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.plan import Plan
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planning.planner import plan_evictions
from trimtab.kube.objects import (
    Affinity,
    KubeObject,
    LabelSelector,
    Node,
    Pod,
    PodAffinityTerm,
    PodSpec,
    Taint,
    TopologySpread,
)

NOW: Final = 1_795_176_000.0
_RESOURCES: Final = ("cpu", "memory", "pods")
_RULES: Final[dict[str, Any]] = {
    "RemoveDuplicates": {},
    "RemovePodsViolatingInterPodAntiAffinity": {},
    "RemovePodsViolatingNodeAffinity": {
        "params": {"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]}
    },
    "RemovePodsViolatingNodeTaints": {},
}

Result = dict[str, Any]


def five(threshold: int = 20, target: int = 50) -> DeschedulerPolicy:
    """Return a policy with the five strategies that the descheduler was measured with."""
    return _policy(_RULES | {"LowNodeUtilization": _utilization(threshold, target)})


def first(*, threshold: int = 20, target: int = 50, picky: int = 0) -> Result:
    """Plan for a cluster in which two fifths of the nodes are overutilized."""
    return _planned(cluster(clusters.Shape(picky=picky)), five(threshold, target), evictions=bool)


def spread() -> Result:
    """Plan for a cluster with unevenly filled zones, in which every owner spreads its pods over zones."""

    def even(spec: PodSpec, pod: Pod) -> PodSpec:
        constraint = TopologySpread(1, ZONE, "DoNotSchedule", LabelSelector(pod.labels))
        return replace(spec, topology_spread=(constraint,))

    uneven = _stating(_lopsided(clusters.Shape()), even)
    return _planned(uneven, _policy({"RemovePodsViolatingTopologySpreadConstraint": {}}), evictions=bool)


def taints() -> Result:
    """Plan for a balanced cluster in which every tenth node has a new NoSchedule taint."""
    return _planned(_tainted(cluster(_even())), _policy({"RemovePodsViolatingNodeTaints": {}}), evictions=bool)


def leaning() -> Result:
    """Plan for the same cluster, in which every pod has pod affinity to its siblings by zone.

    No move may violate the affinity of a pod that was moved before.
    """

    def near(spec: PodSpec, pod: Pod) -> PodSpec:
        term = PodAffinityTerm(ZONE, LabelSelector(pod.labels))
        return replace(spec, affinity=Affinity(pod_required=(term,)))

    leaning = _tainted(_stating(cluster(_even()), near))
    return _planned(leaning, _policy({"RemovePodsViolatingNodeTaints": {}}), evictions=bool)


def empty() -> Result:
    """Plan for a cluster in which half the nodes run only a few pods that can move to other nodes."""
    shape = clusters.Shape(crowded=0.5, weights=(9, 1))
    marks = {"thresholds": dict.fromkeys(_RESOURCES, 20)}
    policy = _policy({"HighNodeUtilization": {"params": {"nodeResourceUtilizationThresholds": marks}}})
    return _planned(cluster(shape), policy, evictions=bool)


def steady(rounds: int = 5) -> Result:
    """Plan again after one percent of the pods changed, in a cluster that the same policy has balanced before.

    As in the controller, the changes arrive like watch events, and the same snapshot is planned on. The result is the
    median of the rounds. Each round has other changes, and includes the time for applying them.
    """
    shape = clusters.Shape()
    snapshot, policy = Snapshot(), five(threshold=30)  # at 20 no node would be left to take pods
    for each in cluster(shape):
        snapshot.put(each)
    done = plan_evictions(snapshot, [policy], now=NOW)
    settled = 1
    while done.actions:
        for old, new in _carried_out(snapshot, done):
            snapshot.remove(old)
            snapshot.put(new)
        done, settled = plan_evictions(snapshot, [policy], now=NOW), settled + 1
    applied, planned, moves = [], [], []
    for number in range(rounds):
        changes = list(_changes(snapshot, shape.nodes, shape.pods // 100, random.Random(number)))
        started = time.perf_counter()
        for old, new in changes:
            snapshot.remove(old)
            snapshot.put(new)
        applied.append(time.perf_counter() - started)
        started = time.perf_counter()
        done = plan_evictions(snapshot, [policy], now=NOW)
        planned.append(time.perf_counter() - started)
        moves.append(len(done.actions))
        for old, new in _carried_out(snapshot, done):
            snapshot.remove(old)
            snapshot.put(new)
    params = {
        "nodes": shape.nodes,
        "pods": shape.pods,
        "changed": shape.pods // 100,
        "plans_to_rest": settled,
        "evictions": moves,
        "apply_ms": round(1000 * statistics.median(applied), 1),
        "plan_ms": round(1000 * statistics.median(planned), 1),
    }
    expect(params, evictions=any)
    return {"seconds": statistics.median(map(sum, zip(applied, planned, strict=True))), "params": params}


def _planned(objects: Iterable[KubeObject], policy: DeschedulerPolicy, **wanted: Any) -> Result:
    snapshot = Snapshot(objects)
    started, worked = time.perf_counter(), time.process_time()
    made = plan_evictions(snapshot, [policy], now=NOW)
    seconds, cpu = time.perf_counter() - started, time.process_time() - worked
    by_strategy = dict(Counter(action.strategy for action in made.actions))
    params = {"nodes": len(snapshot.nodes), "pods": len(snapshot.pods), "evictions": by_strategy}
    params |= {"kept": len(made.kept), "cpu_s": round(cpu, 2)}
    expect(params, **wanted)
    return {"seconds": seconds, "params": params}


def _carried_out(snapshot: Snapshot, done: Plan) -> Iterator[tuple[Pod, Pod]]:
    """Yield the pods of a plan, each with its replacement on the planned node."""
    for action in done.actions:
        pod = snapshot.pods.get(action.key)
        assert pod is not None
        yield pod, _successor(pod, action.target)


def _changes(snapshot: Snapshot, nodes: int, number: int, chance: random.Random) -> Iterator[tuple[Pod, Pod]]:
    """Yield pods that are replaced as in rollouts. Nine in ten replacements are on less utilized nodes."""
    pods = sorted(snapshot.pods)
    load = Counter(pod.node for pod in snapshot.pods.values())
    names = [clusters.node(each).name for each in range(nodes)]
    emptier = sorted(names, key=lambda name: (load[name], name))[: nodes // 2]
    for place, key in enumerate(chance.sample(pods, number)):
        pod = snapshot.pods.get(key)
        assert pod is not None
        yield pod, _successor(pod, chance.choice(names if place % 10 == 0 else emptier))


def _successor(pod: Pod, node: str) -> Pod:
    stem, _, number = pod.name.partition("~")
    name = f"{stem}~{int(number or 0) + 1}"
    return replace(pod, name=name, uid=f"uid-{name}", node=node)


def _even() -> clusters.Shape:
    return clusters.Shape(crowded=0.0, weights=(1, 1))


def _lopsided(shape: clusters.Shape) -> Iterator[KubeObject]:
    """Yield the same nodes and pods, with one and a half times as many pods in one of the zones."""
    chance = random.Random(shape.seed)
    weights = [10 if number % 3 == 0 else 7 for number in range(shape.nodes)]
    for number in range(shape.nodes):
        yield clusters.node(number)
    for number, place in enumerate(chance.choices(range(shape.nodes), weights, k=shape.pods)):
        yield clusters.pod(number, number // shape.owner_size, place)


def _stating(objects: Iterable[KubeObject], make: Any) -> Iterator[KubeObject]:
    """Yield the same objects, with the result of ``make`` added to the spec of each owner's pods."""
    known: dict[str, PodSpec] = {}
    for each in objects:
        if isinstance(each, Pod):
            app = each.labels["app"]
            if app not in known:
                known[app] = make(each.spec, each)
            yield replace(each, spec=known[app])
        else:
            yield each


def _tainted(objects: Iterable[KubeObject]) -> Iterator[KubeObject]:
    for each in objects:
        if isinstance(each, Node) and each.name.endswith("0"):
            yield replace(each, taints=(Taint(key="reserved", effect="NoSchedule"),))
        else:
            yield each


def _utilization(threshold: int, target: int) -> dict[str, Any]:
    marks = {
        "thresholds": dict.fromkeys(_RESOURCES, threshold),
        "targetThresholds": dict.fromkeys(_RESOURCES, target),
    }
    return {"params": {"nodeResourceUtilizationThresholds": marks}}


def _policy(strategies: dict[str, Any]) -> DeschedulerPolicy:
    enabled = {name: {"enabled": True, **each} for name, each in strategies.items()}
    return msgspec.convert({"metadata": {"name": "default"}, "spec": {"strategies": enabled}}, DeschedulerPolicy)
