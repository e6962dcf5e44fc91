"""Planning on 5,000 nodes and 150,000 pods: from a badly balanced cluster, again after few changes, and mass moves."""

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
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.plan import Plan
from trimtab.cluster.live import LiveCluster
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planner import plan
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
    """The five strategies that the peer was measured with."""
    return _policy(_RULES | {"LowNodeUtilization": _utilization(threshold, target)})


def first(*, threshold: int = 20, target: int = 50, picky: int = 0) -> Result:
    """Plan on a cluster of which two fifths of the nodes are overfull."""
    return _planned(cluster(clusters.Shape(picky=picky)), five(threshold, target))


def spread() -> Result:
    """Plan on a cluster whose zones are filled unevenly, every owner of which wants its pods even over zones."""

    def even(spec: PodSpec, pod: Pod) -> PodSpec:
        constraint = TopologySpread(1, ZONE, "DoNotSchedule", LabelSelector(pod.labels))
        return replace(spec, topology_spread=(constraint,))

    uneven = _stating(_lopsided(clusters.Shape()), even)
    return _planned(uneven, _policy({"RemovePodsViolatingTopologySpreadConstraint": {}}))


def taints() -> Result:
    """Plan on an even cluster of which every tenth node has got a NoSchedule taint."""
    return _planned(_tainted(cluster(_even())), _policy({"RemovePodsViolatingNodeTaints": {}}))


def leaning() -> Result:
    """The same, with every pod stating pod affinity to its siblings by zone: no move may leave one behind."""

    def near(spec: PodSpec, pod: Pod) -> PodSpec:
        term = PodAffinityTerm(ZONE, LabelSelector(pod.labels))
        return replace(spec, affinity=Affinity(pod_required=(term,)))

    return _planned(_tainted(_stating(cluster(_even()), near)), _policy({"RemovePodsViolatingNodeTaints": {}}))


def empty() -> Result:
    """Plan on a cluster of which half the nodes hold a few pods each, to be emptied onto the others."""
    shape = clusters.Shape(crowded=0.5, weights=(9, 1))
    marks = {"thresholds": dict.fromkeys(_RESOURCES, 20)}
    policy = _policy({"HighNodeUtilization": {"params": {"nodeResourceUtilizationThresholds": marks}}})
    return _planned(cluster(shape), policy)


def steady(rounds: int = 5) -> Result:
    """Plan again after one in a hundred pods changed; the cluster had come to rest by the same policy before.

    As the controller does: the changes come as watches tell them, and the same snapshot is planned on. The median of
    the rounds counts, each with changes of its own, applying them included.
    """
    shape = clusters.Shape()
    live, policy = LiveCluster(), five(threshold=30)  # at 20 nobody would be left to take pods
    for each in cluster(shape):
        live.apply(None, each)
    done = _plan(live, policy)
    settled = 1
    while done.actions:
        for old, new in _carried_out(live, done):
            live.apply(old, None)
            live.apply(None, new)
        done, settled = _plan(live, policy), settled + 1
    applied, planned, moves = [], [], []
    for number in range(rounds):
        changes = list(_changes(live, shape.nodes, shape.pods // 100, random.Random(number)))
        started = time.perf_counter()
        for old, new in changes:
            live.apply(old, None)
            live.apply(None, new)
        applied.append(time.perf_counter() - started)
        started = time.perf_counter()
        done = _plan(live, policy)
        planned.append(time.perf_counter() - started)
        moves.append(len(done.actions))
        for old, new in _carried_out(live, done):
            live.apply(old, None)
            live.apply(None, new)
    params = {
        "nodes": shape.nodes,
        "pods": shape.pods,
        "changed": shape.pods // 100,
        "plans_to_rest": settled,
        "evictions": moves,
        "apply_ms": round(1000 * statistics.median(applied), 1),
        "plan_ms": round(1000 * statistics.median(planned), 1),
    }
    return {"seconds": statistics.median(map(sum, zip(applied, planned, strict=True))), "params": params}


def _planned(objects: Iterable[KubeObject], policy: DeschedulerPolicy) -> Result:
    snapshot = Snapshot(objects)
    started, worked = time.perf_counter(), time.process_time()
    made = plan(snapshot, [policy], now=NOW)
    seconds, cpu = time.perf_counter() - started, time.process_time() - worked
    by_strategy = dict(Counter(action.strategy for action in made.actions))
    params = {"nodes": len(snapshot.nodes), "pods": len(snapshot.pods), "evictions": by_strategy}
    return {"seconds": seconds, "params": {**params, "kept": len(made.kept), "cpu_s": round(cpu, 2)}}


def _plan(live: LiveCluster, policy: DeschedulerPolicy) -> Plan:
    return live.examine(lambda snapshot: plan(snapshot, [policy], now=NOW))


def _carried_out(live: LiveCluster, done: Plan) -> Iterator[tuple[Pod, Pod]]:
    """The pods of a plan, each with its successor where the plan wants it."""
    for action in done.actions:
        pod = live.pod(action.key)
        assert pod is not None
        yield pod, _successor(pod, action.target)


def _changes(live: LiveCluster, nodes: int, number: int, chance: random.Random) -> Iterator[tuple[Pod, Pod]]:
    """Pods that are replaced, as by rollouts: nine in ten of their successors on the emptier nodes, one anywhere."""
    pods = live.examine(lambda snapshot: sorted(snapshot.pods))
    load = live.examine(lambda snapshot: Counter(pod.node for pod in snapshot.pods.values()))
    names = [clusters.node(each).name for each in range(nodes)]
    emptier = sorted(names, key=lambda name: (load[name], name))[: nodes // 2]
    for place, key in enumerate(chance.sample(pods, number)):
        pod = live.pod(key)
        assert pod is not None
        yield pod, _successor(pod, chance.choice(names if place % 10 == 0 else emptier))


def _successor(pod: Pod, node: str) -> Pod:
    stem, _, number = pod.name.partition("~")
    name = f"{stem}~{int(number or 0) + 1}"
    return replace(pod, name=name, uid=f"uid-{name}", node=node)


def _even() -> clusters.Shape:
    return clusters.Shape(crowded=0.0, weights=(1, 1))


def _lopsided(shape: clusters.Shape) -> Iterator[KubeObject]:
    """The same nodes and pods, the nodes of one zone holding three for two of the others."""
    chance = random.Random(shape.seed)
    weights = [10 if number % 3 == 0 else 7 for number in range(shape.nodes)]
    for number in range(shape.nodes):
        yield clusters.node(number)
    for number, place in enumerate(chance.choices(range(shape.nodes), weights, k=shape.pods)):
        yield clusters.pod(number, number // shape.owner_size, place)


def _stating(objects: Iterable[KubeObject], make: Any) -> Iterator[KubeObject]:
    """The same with what ``make`` adds to the spec of each owner's pods."""
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
