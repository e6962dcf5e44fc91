"""Dedicated nodes and nodes with GPUs, from the PlacementAdmission to where the scheduler puts the pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from tests.conftest import MakeCluster
from tests.fixtures.machine_sets import MERGE
from tests.fixtures.placement_admission import AdmissionCluster, deploy, pod, workload
from tests.fixtures.users import denial
from tests.fixtures.waiting import eventually, wait_for
from trimtab.kube.api import Forbidden
from trimtab.kube.resources import DEPLOYMENTS, NODES, PLACEMENT_ADMISSIONS, PODS
from trimtab_local.nodes import node, ready

pytestmark = pytest.mark.core

TAINT = {"key": "dedicated", "value": "team-a", "effect": "NoSchedule"}
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "", "effect": "NoSchedule"}
GPU = {"requests": {"cpu": "100m", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}

SMALL = {"cpu": "2", "memory": "4Gi", "pods": "110"}
POOL = frozenset({"team-1", "team-2"})
OPEN = frozenset({"open-1", "open-2"})

DEDICATED: dict[str, Any] = {
    "dedicatedNodes": {"pools": [{"name": "team-a", "groups": ["team-a"], "taint": TAINT}]},
}
HARDWARE: dict[str, Any] = {
    "specialHardware": {
        "classes": [
            {
                "name": "gpu",
                "resources": ["nvidia.com/gpu"],
                "taint": {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
                "nodeLabel": {"key": "accelerator", "value": "nvidia"},
                "exclusive": True,
            }
        ]
    },
}


@pytest.fixture(scope="module")
def nodes(
    make_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[AdmissionCluster]:
    """Two nodes of team-a, a node with GPUs, and two open ones, of two cores each; and a replica of the role."""
    if request.config.getoption("--cluster") != "local":
        pytest.skip("these tests run the admission role as a process next to a local control plane")
    cluster = make_cluster(nodes=0)
    given: list[dict[str, Any]] = [
        *(node(name, zone="a", capacity=SMALL) for name in OPEN),
        *(node(name, zone="a", capacity=SMALL, labels={"dedicated": "team-a"}, taints=[TAINT]) for name in POOL),
        node(
            "gpu-1",
            zone="a",
            capacity={**SMALL, "nvidia.com/gpu": "4"},
            labels={"accelerator": "nvidia"},
            taints=[GPU_TAINT],
        ),
    ]
    for manifest in given:
        cluster.client.request("POST", NODES.path(), manifest)

    def all_ready() -> bool:
        found = cluster.client.request("GET", NODES.path())["items"]
        return all(
            each["status"].get("conditions") and (ready(each) or len(each["spec"].get("taints", ())) == 1)
            for each in found
        )

    wait_for(all_ready, "the nodes")
    with ExitStack() as stack:
        found = AdmissionCluster(cluster, tmp_path_factory.mktemp("stories"), stack)
        found.start()
        yield found
    cluster.down()


def pods(cluster: AdmissionCluster, namespace: str, app: str) -> list[dict[str, Any]]:
    params = {"labelSelector": f"app={app}"}
    found = cluster.client.request("GET", PODS.path(namespace=namespace), params=params)["items"]
    return [each for each in found if not each["metadata"].get("deletionTimestamp")]


def where(cluster: AdmissionCluster, namespace: str, app: str) -> Counter[str]:
    """Return the number of pods by node; the node of pending pods is empty."""
    return Counter(each["spec"].get("nodeName", "") for each in pods(cluster, namespace, app))


def bound(cluster: AdmissionCluster, namespace: str, app: str) -> int:
    """Return the number of pods that have a node."""
    return sum(bool(each["spec"].get("nodeName")) for each in pods(cluster, namespace, app))


def unschedulable(cluster: AdmissionCluster, namespace: str, app: str) -> int:
    """Return the number of pods for which the scheduler has found no node."""
    return sum(
        condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable"
        for each in pods(cluster, namespace, app)
        if not each["spec"].get("nodeName")
        for condition in each["status"].get("conditions", ())
    )


def set_taints(cluster: AdmissionCluster, names: frozenset[str], *taints: Mapping[str, str]) -> None:
    for name in names:
        body = {"spec": {"taints": list(taints) or None}}
        cluster.client.request("PATCH", NODES.path(name), body, content_type=MERGE)


def remove(cluster: AdmissionCluster, namespace: str) -> None:
    """Delete the workloads and pods of a namespace, and wait until the nodes are empty."""
    for resource in (DEPLOYMENTS, PODS):
        cluster.client.request("DELETE", resource.path(namespace=namespace), {"gracePeriodSeconds": 0})
    path = PODS.path(namespace=namespace)
    eventually(lambda: not cluster.client.request("GET", path)["items"], what="the pods to be deleted")


def test_dedicated_nodes_run_the_pods_of_their_group_and_no_others(nodes: AdmissionCluster) -> None:
    nodes.enforce(**DEDICATED)
    name = nodes.namespace()

    # 1. The pods of the group run on its nodes, those that it creates and those that controllers create for it.
    deploy(nodes.member, name, "team", 3)
    nodes.member.create(PODS, pod("bare", labels={"app": "bare"}), namespace=name)
    eventually(lambda: bound(nodes, name, "team") == 3 and bound(nodes, name, "bare") == 1, what="the group's pods")
    assert set(where(nodes, name, "team")) | set(where(nodes, name, "bare")) <= POOL

    # 2. The pods of others fill the open nodes and then stay pending; the dedicated nodes have room.
    deploy(nodes.dev, name, "others", 10)
    eventually(lambda: unschedulable(nodes, name, "others") == 2, what="two pods that fit nowhere")
    assert set(where(nodes, name, "others")) == OPEN | {""}

    # 3. Others cannot get onto the nodes by any means.
    toleration = {"key": "dedicated", "operator": "Exists"}
    for spec in (
        {"tolerations": [toleration]},
        {"tolerations": [{"operator": "Exists"}]},
        {"nodeName": "team-1"},
    ):
        with pytest.raises(Forbidden) as refused:
            nodes.dev.create(PODS, pod("intruder", **spec), namespace=name)
        assert denial(refused.value)
        with pytest.raises(Forbidden):
            nodes.dev.create(DEPLOYMENTS, workload(DEPLOYMENTS, "intruder", **spec), namespace=name)
    nodes.dev.create(
        PODS, pod("hopeful", labels={"app": "hopeful"}, nodeSelector={"dedicated": "team-a"}), namespace=name
    )
    eventually(lambda: unschedulable(nodes, name, "hopeful") == 1, what="a pod that only its selector places")

    # 4. Without the taint, the nodes are open to all again.
    set_taints(nodes, POOL)
    eventually(lambda: bound(nodes, name, "others") == 10, what="the pending pods to run")
    assert set(where(nodes, name, "others")) & POOL
    remove(nodes, name)
    set_taints(nodes, POOL, TAINT)


def test_deleted_placement_admission_leaves_pods_as_they_are_written(nodes: AdmissionCluster) -> None:
    nodes.enforce(**DEDICATED)
    name = nodes.namespace()
    nodes.client.request("DELETE", PLACEMENT_ADMISSIONS.path("default"))

    def unchanged() -> bool:
        made = nodes.member.create(PODS, pod(), namespace=name, dry_run=True).object
        return "affinity" not in made["spec"]

    eventually(unchanged, what="the rules to end", seconds=20)
    tolerant = pod("tolerant", labels={"app": "tolerant"}, tolerations=[{"key": "dedicated", "operator": "Exists"}])
    tolerant["spec"]["nodeSelector"] = {"dedicated": "team-a"}
    nodes.dev.create(PODS, tolerant, namespace=name)
    eventually(lambda: bound(nodes, name, "tolerant") == 1, what="the pod to run")
    assert set(where(nodes, name, "tolerant")) <= POOL
    deploy(nodes.member, name, "team", 2)
    eventually(lambda: bound(nodes, name, "team") == 2, what="the group's pods")
    assert set(where(nodes, name, "team")) <= OPEN
    remove(nodes, name)


def test_gpu_nodes_run_pods_that_request_gpus_and_no_others(nodes: AdmissionCluster) -> None:
    nodes.enforce(**HARDWARE)
    name = nodes.namespace()

    deploy(nodes.dev, name, "training", 3, resources=GPU)
    eventually(lambda: where(nodes, name, "training") == {"gpu-1": 3}, what="the pods that request GPUs")
    deploy(nodes.dev, name, "training-too", 2, resources=GPU)
    eventually(lambda: unschedulable(nodes, name, "training-too") == 1, what="no fifth GPU")

    deploy(nodes.dev, name, "others", 10)
    eventually(lambda: unschedulable(nodes, name, "others") == 2, what="two pods that fit nowhere")
    assert set(where(nodes, name, "others")) == OPEN | {""}
    for toleration in ({"key": "nvidia.com/gpu", "operator": "Exists"}, {"operator": "Exists"}):
        with pytest.raises(Forbidden) as refused:
            nodes.dev.create(PODS, pod("intruder", tolerations=[toleration]), namespace=name)
        assert denial(refused.value)

    set_taints(nodes, frozenset({"gpu-1"}))
    eventually(lambda: bound(nodes, name, "others") == 10, what="the pending pods to run")
    assert "gpu-1" in where(nodes, name, "others")
    remove(nodes, name)
    set_taints(nodes, frozenset({"gpu-1"}), GPU_TAINT)
