"""Memory leaks on 20 of 200 nodes: pods are evicted within their budgets and with their grace periods, none is killed.

The simulated kubelets kill a pod at each measurement (every second) below their hard threshold.
"""

from __future__ import annotations

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
    LATE,
    SCENARIO,
    PressureCluster,
    PressureStage,
    pressure_cluster,
    pressure_stage,
)
from tests.fixtures.tainting import at
from trimtab.kube.resources import BUDGETS, DEPLOYMENTS, NODES
from trimtab_local.nodes import ZONES, node, ready

LEAKING = 20
NODES_TOTAL = 200
APPS = 12
REPLICAS = 10
OWN_GRACE = 10
TERMINATION = 3
"""Seconds for which a pod terminates."""
KWOK = "trimtab:kwok"


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


def leak(stage: PressureStage) -> None:
    """Let pods on the leaking nodes use 6 MiB more per second, from now on."""
    ramp = {"start": "300Mi", "perSecond": "6Mi", "max": "700Mi", "since": datetime.now(UTC).isoformat()}
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


def test_leaking_pods_are_evicted_before_the_kubelets_kill(stage: PressureStage) -> None:
    create_nodes(stage, "leaking", LEAKING)
    memory = {"capacity": "4Gi", "used": {"start": "512Mi"}}
    stage.usage.nodes = [{"memory": memory, "measureEvery": "1s", "evictionHard": {"memory.available": "100Mi"}}]
    stage.usage.pods = [{"memory": {"start": "300Mi"}}]
    stage.usage.write()
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"tier": "web"}},
    }
    for number in range(APPS):
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
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": TERMINATION}}}
        stage.client.request("POST", DEPLOYMENTS.path(namespace=stage.namespace), manifest)
        budget = {
            "metadata": {"name": name},
            "spec": {"maxUnavailable": 2, "selector": {"matchLabels": {"app": name}}},
        }
        stage.client.request("POST", BUDGETS.path(namespace=stage.namespace), budget)
    stage.until(lambda: len(stage.running()) == APPS * REPLICAS, "all pods run", seconds=120)
    on_nodes = Counter(pod["spec"]["nodeName"] for pod in stage.pods().values())
    assert len(on_nodes) == LEAKING
    create_nodes(stage, "calm", NODES_TOTAL - LEAKING)
    stage.soft("1Gi")
    stage.operate()
    stage.until_read(NODES_TOTAL)

    leak(stage)
    crowded = {name for name, count in on_nodes.items() if count > 4}

    def each_node_has_lost_a_pod() -> bool:
        time.sleep(2)  # the audit log is long
        return crowded <= ended(stage).keys()

    def relieved() -> bool:
        time.sleep(1)
        return not any(stage.taints(f"leaking-{number}") for number in range(1, LEAKING + 1))

    stage.until(each_node_has_lost_a_pod, "each crowded node has lost a pod", seconds=120)
    stage.until(relieved, "no node is under pressure", seconds=240)

    found = ended(stage)
    evictions = stage.evictions()
    longest = max(each.removed - each.evicted for pods in found.values() for each in pods)
    print(f"{len(evictions)} evictions from {len(found)} nodes; the longest termination took {longest:.1f} s")
    assert stage.kills() == []
    assert [name for name, pod in stage.pods().items() if pod["status"].get("phase") == "Failed"] == []
    assert {(each.how, each.grace) for each in evictions} <= {("evict", None), ("evict", OWN_GRACE)}
    assert all(name.startswith("leaking-") for name in found)
    require_none(broken_budgets(stage.audit, stage.namespace))
    for pods in found.values():
        assert all(TERMINATION - 0.5 <= each.removed - each.evicted <= OWN_GRACE + LATE for each in pods)
        # One at a time, and the next one only after a reading without the pod before it.
        assert all(before.removed <= after.evicted for before, after in pairwise(pods))
    assert len(stage.running()) == APPS * REPLICAS
    assert len(evictions) >= LEAKING * 2
    assert stage.condition("Ready")["status"] == "True"
