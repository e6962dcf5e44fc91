"""Single replicas and machines under the operator with the chart's rights: renewed or moved, and never missing."""

from __future__ import annotations

import json
import signal
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from ssl import create_default_context
from typing import Any

import pytest

from examples.demo.install import NAMESPACE, RELEASE, install, wait_for
from examples.demo.workloads import budget, deployment
from tests.e2e.conftest import NODES, Stage, Start
from tests.fixtures.evacuations import evacuations
from trimtab.disruption.background import IN_PROGRESS, REQUEST_EVICT_ONLY
from trimtab.kube.api import ApiError
from trimtab.local.client import Client
from trimtab.local.cluster import LocalCluster
from trimtab.local.nodes import node, ready

MERGE = "application/merge-patch+json"
TAINTS: dict[str, Any] = {"RemovePodsViolatingNodeTaints": {"enabled": True}}
TAINT = {"key": "example.com/leave", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def stage_cluster(request: pytest.FixtureRequest) -> LocalCluster:
    """Three nodes, and the chart's definitions and rights, the one to restart Deployments among them."""
    if request.config.getoption("--cluster") != "local":
        pytest.skip("these tests run the operator as a process beside a local control plane")
    cluster: LocalCluster = request.getfixturevalue("make_cluster")(nodes=0)
    for index, name in enumerate(NODES):
        cluster.client.request("POST", "/api/v1/nodes", node(name, zone=f"zone-{index}"))
    wait_for(lambda: all(map(ready, cluster.client.request("GET", "/api/v1/nodes")["items"])), "the nodes")
    install(cluster, "controllers.descheduler.surge=true")
    return cluster


def taint(stage: Stage, name: str, *taints: dict[str, str]) -> None:
    """Let a node have these taints and no others."""
    stage.client.request("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": list(taints)}}, content_type=MERGE)


def pods(stage: Stage, app: str) -> list[dict[str, Any]]:
    path = f"/api/v1/namespaces/{stage.namespace}/pods"
    found: list[dict[str, Any]] = stage.client.request("GET", path, params={"labelSelector": f"app={app}"})["items"]
    return found


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions") or ()
    going = pod["metadata"].get("deletionTimestamp")
    return not going and any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


@contextmanager
def watched(stage: Stage, app: str) -> Iterator[list[int]]:
    """How many pods of a Deployment are Ready, after every change that a watch tells."""
    cluster, known = stage.cluster, {pod["metadata"]["uid"]: is_ready(pod) for pod in pods(stage, app)}
    counts = [sum(known.values())]
    query = f"watch=true&labelSelector=app%3D{app}"
    request = urllib.request.Request(
        f"{cluster.server}/api/v1/namespaces/{stage.namespace}/pods?{query}",
        headers={"Authorization": f"Bearer {cluster.layout.keys.token('admin')}"},
    )
    stream = urllib.request.urlopen(request, context=create_default_context(cafile=str(cluster.ca)))

    def follow() -> None:
        for line in stream:
            event = json.loads(line)
            known[event["object"]["metadata"]["uid"]] = event["type"] != "DELETED" and is_ready(event["object"])
            counts.append(sum(known.values()))

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield counts
    finally:
        stream.fp.raw._sock.shutdown(2)
        thread.join(10)
        stream.close()


def held(stage: Stage, app: str) -> None:
    """A budget that allows nothing as long as there is one pod."""
    path = f"/apis/policy/v1/namespaces/{stage.namespace}/poddisruptionbudgets"
    stage.client.request("POST", path, budget(app, namespace=stage.namespace, app=app, min_available=1))

    def counted() -> bool:
        status = stage.client.request("GET", f"{path}/{app}").get("status") or {}
        return bool(status.get("currentHealthy") == 1 and status.get("observedGeneration"))

    wait_for(counted, "the budget to be counted")


def test_a_single_replica_leaves_its_node_and_is_never_missing(stage: Stage, start: Start) -> None:
    stage.crowd("web", 1, on="a")
    held(stage, "web")
    [old] = stage.running("web")
    with watched(stage, "web") as counts:
        taint(stage, "a", TAINT)
        start()
        stage.write_policy("single", mode="Act", singleReplica="Surge", strategies=TAINTS)
        wait_for(lambda: stage.status("single").get("evicted") == 1, "the rollout")
        wait_for(lambda: len(stage.running("web")) == 1 and old not in stage.running("web"), "the new pod to be alone")
    assert (min(counts), max(counts)) == (1, 2)
    assert set(stage.running("web").values()) <= {"b", "c"}
    taint(stage, "a")
    [moved] = stage.status("single")["lastEvictions"]
    assert (moved["reason"], moved["node"]) == ("NodeTaintsViolated", "a")
    [told] = [each for each in stage.events("Pod") if each["action"] == "Restart"]
    assert told["note"].startswith("renewed by a rollout of Deployment web, from a, expected on ")
    before = stage.running("web")
    status = stage.status("single")
    wait_for(lambda: stage.status("single")["lastRun"]["time"] > status["lastRun"]["time"], "another cycle")
    assert stage.running("web") == before


def test_one_that_recreates_stays_and_the_status_says_why(stage: Stage, start: Start) -> None:
    stage.open_only("b")
    manifest = deployment("web", namespace=stage.namespace)
    manifest["spec"]["strategy"] = {"type": "Recreate"}
    stage.client.request("POST", f"/apis/apps/v1/namespaces/{stage.namespace}/deployments", manifest)
    wait_for(lambda: len(stage.running("web")) == 1, "the pod")
    stage.open_only(*NODES)
    running = stage.running("web")
    taint(stage, "b", TAINT)
    start()
    stage.write_policy("single", mode="Act", singleReplica="Surge", strategies=TAINTS)
    wait_for(lambda: stage.status("single").get("kept"), "a report")
    [kept] = [each for each in stage.status("single")["kept"] if each["pod"].startswith("web")]
    assert kept["reason"] == "CannotSurge"
    assert "Recreate" in kept["message"]
    assert stage.running("web") == running
    taint(stage, "b")


def test_an_operator_that_is_killed_in_the_middle_does_not_restart_twice(stage: Stage, start: Start) -> None:
    stage.crowd("web", 1, on="c")
    path = f"/apis/apps/v1/namespaces/{stage.namespace}/deployments/web"
    # A new pod is available only after a while, so that the rollout outlasts the operator.
    stage.client.request("PATCH", path, {"spec": {"minReadySeconds": 20}}, content_type=MERGE)
    wait_for(lambda: stage.client.request("GET", path)["status"].get("availableReplicas") == 1, "the pod", timeout=60)
    taint(stage, "c", TAINT)
    first = start()
    stage.write_policy("single", mode="Act", singleReplica="Surge", strategies=TAINTS)

    def restarted() -> str:
        template = stage.client.request("GET", path)["spec"]["template"]["metadata"]
        return str((template.get("annotations") or {}).get("kubectl.kubernetes.io/restartedAt", ""))

    wait_for(restarted, "the restart")
    mark = restarted()
    first.stop(signal.SIGKILL)
    start()
    wait_for(lambda: set(stage.running("web").values()) <= {"a", "b"}, "the old pod to go", timeout=90)
    assert restarted() == mark
    taint(stage, "c")


def test_the_right_to_patch_is_the_right_to_restart_and_no_more(stage: Stage) -> None:
    stage.crowd("web", 1, on="a")
    token = stage.cluster.service_account_token(NAMESPACE, RELEASE)
    client = Client(server=stage.cluster.server, token=token, ca=stage.cluster.ca)
    path = f"/apis/apps/v1/namespaces/{stage.namespace}/deployments/web"

    def patch(**spec: Any) -> dict[str, Any]:
        answer: dict[str, Any] = client.request("PATCH", path, {"spec": spec}, content_type=MERGE)
        return answer

    evil = {"containers": [{"name": "main", "image": "evil"}]}
    for spec in (
        {"replicas": 0},
        {"paused": True},
        {"template": {"spec": evil}},
        {"template": {"spec": {"serviceAccountName": "admin"}}},
        {"template": {"metadata": {"annotations": {"example.com/other": "1"}}}},
        {"template": {"metadata": {"labels": {"more": "1"}}}},
        {"template": {"metadata": {"finalizers": ["example.com/for-ever"]}}},
        {"strategy": {"type": "Recreate", "rollingUpdate": None}},
    ):
        with pytest.raises(ApiError, match="trimtab may only"):
            patch(**spec)
    with pytest.raises(ApiError, match="trimtab may only"):
        client.request("PATCH", path, {"metadata": {"labels": {"more": "1"}}}, content_type=MERGE)
    restart = {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-11-20T12:00:00Z"}}}}
    assert patch(**restart)["metadata"]["generation"] == 2
    others = {"template": {"metadata": {"annotations": {"example.com/other": "1"}}}}
    stage.client.request("PATCH", path, {"spec": others}, content_type=MERGE)
    assert patch(**restart)["metadata"]["generation"] == 3


def test_a_machine_is_moved_by_who_takes_its_eviction_over_and_asked_for_once(stage: Stage, start: Start) -> None:
    stage.open_only("a")
    path = f"/api/v1/namespaces/{stage.namespace}/pods"
    owner = stage.client.request(
        "POST", f"/api/v1/namespaces/{stage.namespace}/configmaps", {"metadata": {"name": "vm"}}
    )  # stands for the VirtualMachineInstance, whose kind is not served here
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "vm", "controller": True}
    metadata = {
        "name": "virt-launcher-vm",
        "labels": {"app": "vm"},
        "annotations": {REQUEST_EVICT_ONLY: ""},
        "ownerReferences": [{**reference, "uid": owner["metadata"]["uid"]}],
    }
    spec = {"containers": [{"name": "compute", "image": "none"}]}
    stage.client.request("POST", path, {"metadata": metadata, "spec": spec})
    wait_for(lambda: len(stage.running("vm")) == 1, "the machine")
    stage.open_only(*NODES)
    held(stage, "vm")
    taint(stage, "a", TAINT)
    with evacuations(stage.client, ca=stage.cluster.ca, namespace=stage.namespace) as webhook:
        first = start()
        stage.write_policy("machines", mode="Act", strategies=TAINTS)
        wait_for(lambda: webhook.asked, "the webhook to be asked")
        mark = {"metadata": {"annotations": {IN_PROGRESS: "true"}}}
        stage.client.request("PATCH", f"{path}/virt-launcher-vm", mark, content_type=MERGE)
        assert first.stop() == 0
        status = stage.status("machines")
        assert status["lastRun"]["started"] == 1
        assert status.get("evicted", 0) == 0
        start()
        wait_for(lambda: stage.status("machines")["lastRun"]["time"] > status["lastRun"]["time"], "another cycle")
        assert webhook.asked == ["virt-launcher-vm"]
        stage.client.request("DELETE", f"{path}/virt-launcher-vm")
    taint(stage, "a")
    warnings = [each for each in stage.events("Pod") if each["regarding"]["name"] == "virt-launcher-vm"]
    assert {each["reason"] for each in warnings} == {"EvictionInBackground"}
