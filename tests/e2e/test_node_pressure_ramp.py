"""Memory leaks on 20 of 200 nodes: pods are evicted within their budgets and with their grace periods, none is killed.

The simulated kubelets kill a pod at each measurement (every second) below their hard threshold.
"""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec import Struct

from examples.demo.workloads import deployment
from tests.fixtures.audit import SCHEDULER, broken_budgets, require_none
from tests.fixtures.node_pressure import (
    INTERVAL,
    LATE,
    SCENARIO,
    PressureCluster,
    PressureStage,
    pressure_cluster,
    pressure_stage,
)
from tests.fixtures.tainting import at
from trimtab.kube.resources import BUDGETS, DEPLOYMENTS, NODES, PODS
from trimtab_local.nodes import ZONES, node, ready

LEAKING = 20
NODES_TOTAL = 200
APPS = 12
REPLICAS = 10
OWN_GRACE = 10
TERMINATION = 3
"""Seconds for which a pod terminates."""
KWOK = "trimtab:kwok"
CAPACITY, SYSTEM, USED, LEAKED, KUBELET_HARD = 4096, 512, 300, 700, 100
"""MiB: of a node, of its system, of a pod at first and at last, and below which a kubelet kills."""
SOFT = "soft/memory.available"


class Ended(Struct, frozen=True):
    """An evicted pod: its node, when its eviction was granted, and when its kubelet removed it."""

    pod: str
    node: str
    evicted: float
    removed: float


@pytest.fixture(scope="module")
def given(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PressureCluster:
    return pressure_cluster(request, tmp_path_factory.mktemp("pressure"), for_load=True)


@pytest.fixture
def stage(given: PressureCluster, tmp_path: Path) -> Iterator[PressureStage]:
    with pressure_stage(given, "ramp", tmp_path) as stage:
        yield stage


def create_nodes(stage: PressureStage, prefix: str, count: int) -> None:
    for number in range(1, count + 1):
        labels = {SCENARIO: stage.namespace, "pool": prefix}
        stage.client.request("POST", NODES.path(), node(f"{prefix}-{number}", zone=ZONES[number % 3], labels=labels))

    def registered() -> bool:
        found = [each for each in stage.client.request("GET", NODES.path())["items"] if ready(each)]
        ours = [each for each in found if each["metadata"]["labels"].get("pool") == prefix]
        return sum("daemonEndpoints" in each["status"] for each in ours) == count

    stage.until(registered, f"{count} nodes are ready and their kubelets listen", seconds=120)


def leak(stage: PressureStage, *, per_second: int) -> None:
    """Let pods on the leaking nodes use some MiB more per second, from now on."""
    ramp = {
        "start": f"{USED}Mi",
        "perSecond": f"{per_second}Mi",
        "max": f"{LEAKED}Mi",
        "since": datetime.now(UTC).isoformat(),
    }
    stage.usage.pods = [{"nodes": {"labels": {"pool": "leaking"}}, "memory": ramp}]
    stage.usage.write()


def ended(stage: PressureStage) -> dict[str, list[Ended]]:
    """The evicted pods by node, in the order of their evictions, from the audit log."""
    nodes = {
        each.key: each.request_object["target"]["name"]
        for each in stage.audit.of("pods/binding", user=SCHEDULER, granted=True)
    }
    removed = {each.key: at(each) for each in stage.audit.of("pods", user=KWOK, verbs=("delete",), granted=True)}
    found: dict[str, list[Ended]] = {}
    for each in stage.evictions():
        key = f"{stage.namespace}/{each.pod}"
        pod = Ended(each.pod, nodes[key], each.at, removed.get(key, float("inf")))
        found.setdefault(pod.node, []).append(pod)
    return found


def create_apps(stage: PressureStage, count: int, *, termination: int) -> None:
    """Create Deployments with budgets, whose pods are spread over the nodes."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"tier": "web"}},
    }
    for number in range(count):
        name = f"app-{number}"
        manifest = deployment(
            name,
            namespace=stage.namespace,
            replicas=REPLICAS,
            memory="100Mi",
            labels={"tier": "web"},
            pod={"terminationGracePeriodSeconds": OWN_GRACE, "topologySpreadConstraints": [spread]},
        )
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": termination}}}
        stage.client.request("POST", DEPLOYMENTS.path(namespace=stage.namespace), manifest)
        budget = {
            "metadata": {"name": name},
            "spec": {"maxUnavailable": 2, "selector": {"matchLabels": {"app": name}}},
        }
        stage.client.request("POST", BUDGETS.path(namespace=stage.namespace), budget)


def fill(stage: PressureStage, nodes: int, apps: int, *, termination: int) -> set[str]:
    """Create nodes that leak later, and the apps on them.

    Returns:
        the nodes whose kubelets would kill if nothing were evicted.
    """
    create_nodes(stage, "leaking", nodes)
    memory = {"capacity": f"{CAPACITY}Mi", "used": {"start": f"{SYSTEM}Mi"}}
    hard = {"memory.available": f"{KUBELET_HARD}Mi"}
    stage.usage.nodes = [{"memory": memory, "measureEvery": "1s", "evictionHard": hard}]
    stage.usage.pods = [{"memory": {"start": f"{USED}Mi"}}]
    stage.usage.write()
    create_apps(stage, apps, termination=termination)
    stage.until(lambda: len(stage.running()) == apps * REPLICAS, "all pods run", seconds=120)
    on_nodes = Counter(pod["spec"]["nodeName"] for pod in stage.pods().values())
    assert len(on_nodes) == nodes
    found = {name for name, count in on_nodes.items() if CAPACITY - SYSTEM - count * LEAKED < KUBELET_HARD}
    assert len(found) > nodes / 2
    return found


def until_relieved(stage: PressureStage, crowded: set[str], nodes: int) -> None:
    def each_node_has_lost_a_pod() -> bool:
        time.sleep(2)  # the audit log is long
        return crowded <= ended(stage).keys()

    def relieved() -> bool:
        time.sleep(1)
        return not any(stage.taints(f"leaking-{number}") for number in range(1, nodes + 1))

    stage.until(each_node_has_lost_a_pod, "each crowded node has lost a pod", seconds=120)
    stage.until(relieved, "no node is under pressure", seconds=240)


def require_gentle_evictions(stage: PressureStage, *, pods: int, termination: int) -> None:
    found = ended(stage)
    evictions = stage.evictions()
    longest = max(each.removed - each.evicted for pods in found.values() for each in pods)
    print(f"{len(evictions)} evictions from {len(found)} nodes; the longest termination took {longest:.1f} s")
    assert stage.kills() == []
    assert [name for name, pod in stage.pods().items() if pod["status"].get("phase") == "Failed"] == []
    assert {(each.how, each.grace) for each in evictions} <= {("evict", None), ("evict", OWN_GRACE)}
    assert all(name.startswith("leaking-") for name in found)
    require_none(broken_budgets(stage.audit, stage.namespace))
    for of_node in found.values():
        assert all(termination - 0.5 <= each.removed - each.evicted <= OWN_GRACE + LATE for each in of_node)
        # One at a time, and the next one only after a reading without the pod before it.
        assert all(before.removed <= after.evicted for before, after in pairwise(of_node))
    stage.until(lambda: len(stage.running()) == pods, "the pods run elsewhere")
    assert stage.condition("Ready")["status"] == "True"


def test_leaking_pods_are_evicted_before_the_kubelets_kill(stage: PressureStage) -> None:
    crowded = fill(stage, LEAKING, APPS, termination=TERMINATION)
    create_nodes(stage, "calm", NODES_TOTAL - LEAKING)
    stage.soft("1Gi")
    stage.operate()
    stage.until_read(NODES_TOTAL)

    leak(stage, per_second=6)
    until_relieved(stage, crowded, LEAKING)

    require_gentle_evictions(stage, pods=APPS * REPLICAS, termination=TERMINATION)
    assert len(stage.evictions()) >= LEAKING * 2


def test_kill_9_in_grace_periods_and_terminations_changes_no_eviction(stage: PressureStage) -> None:
    nodes, apps, grace, termination = 5, 3, 12.0, 6
    crowded = fill(stage, nodes, apps, termination=termination)
    create_nodes(stage, "calm", 2 * nodes)
    stage.soft("1Gi", grace=grace)
    operator = stage.operate()
    stage.until_read(3 * nodes)

    def first_met(name: str) -> str:
        text: str = stage.state(name).get("firstMet", {}).get(SOFT, "")
        return text

    def terminating() -> set[str]:
        listed = stage.client.request("GET", PODS.path(namespace=stage.namespace))["items"]
        return {each["metadata"]["name"] for each in listed if each["metadata"].get("deletionTimestamp")}

    leak(stage, per_second=3)
    stage.until(lambda: any(first_met(name) for name in crowded), "a node is in its grace period")
    operator.stop(signal.SIGKILL)
    before = {name: met for name in crowded if (met := first_met(name))}
    assert (len(before) > 0, stage.evictions()) == (True, [])
    operator = stage.operate()
    stage.until(terminating, "a pod is terminating")
    operator.stop(signal.SIGKILL)
    cut = terminating()
    assert cut, "the operator was killed while they terminate"
    stage.operate()
    until_relieved(stage, crowded, nodes)

    require_gentle_evictions(stage, pods=apps * REPLICAS, termination=termination)
    evictions = Counter(each.pod for each in stage.evictions())
    assert {evictions[name] for name in cut} == {1}
    for name, met in before.items():
        eviction = ended(stage)[name][0]
        states = [json.loads(each.state) for each in stage.writes(name) if each.state and each.at < eviction.evicted]
        assert {each["firstMet"][SOFT] for each in states if "firstMet" in each} == {met}
        waited = eviction.evicted - datetime.fromisoformat(met).timestamp()
        assert grace - 1.0 <= waited <= grace + INTERVAL + LATE
