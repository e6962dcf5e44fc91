"""Single replicas and virtual machines with the chart's RBAC: moved without downtime."""

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

from examples.demo.workloads import budget, deployment
from tests.e2e.conftest import NODES, Stage, Start
from tests.fixtures.clusters import create_nodes, require_local_cluster
from tests.fixtures.evacuations import evacuations
from tests.fixtures.waiting import patiently, wait_for
from trimtab.disruption.background_evictions import IN_PROGRESS, REQUEST_EVICT_ONLY
from trimtab.kube.api import ApiError
from trimtab_local.client import Client
from trimtab_local.cluster import LocalCluster
from trimtab_local.install import NAMESPACE, RELEASE, install
from trimtab_local.nodes import node

MERGE = "application/merge-patch+json"
TAINTS: dict[str, Any] = {"RemovePodsViolatingNodeTaints": {"enabled": True}}
TAINT = {"key": "example.com/leave", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def stage_cluster(request: pytest.FixtureRequest) -> LocalCluster:
    """Three nodes, and the chart with the permission to restart Deployments."""
    require_local_cluster(request)
    cluster: LocalCluster = request.getfixturevalue("make_cluster")(nodes=0)
    create_nodes(cluster.client, (node(name, zone=f"zone-{index}") for index, name in enumerate(NODES)))
    install(cluster, "controllers.descheduler.surge=true")
    return cluster


def taint(stage: Stage, name: str, *taints: dict[str, str]) -> None:
    """Set the taints of a node."""
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
    """The number of Ready pods of a Deployment after every watch event."""
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
        thread.join(patiently(10))
        stream.close()


def held(stage: Stage, app: str) -> None:
    """A budget that allows no eviction of a single pod."""
    path = f"/apis/policy/v1/namespaces/{stage.namespace}/poddisruptionbudgets"
    stage.client.request("POST", path, budget(app, namespace=stage.namespace, app=app, min_available=1))

    def counted() -> bool:
        status = stage.client.request("GET", f"{path}/{app}").get("status") or {}
        return bool(status.get("currentHealthy") == 1 and status.get("observedGeneration"))

    wait_for(counted, "the budget to be counted")


def restarts(stage: Stage) -> list[dict[str, Any]]:
    """The events of restarts of the pods of the test."""
    found = [each for each in stage.events("Pod") if each["action"] == "Restart"]
    return [each for each in found if each["regarding"].get("namespace") == stage.namespace]


def test_single_replica_moves_without_downtime(stage: Stage, start: Start) -> None:
    stage.deploy_on("web", 1, on="a")
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
    wait_for(lambda: restarts(stage), "the event of the restart")
    [reported] = restarts(stage)
    assert "Deployment web" in reported["note"]
    before = stage.running("web")
    status = stage.status("single")
    wait_for(lambda: stage.status("single")["lastRun"]["time"] > status["lastRun"]["time"], "another cycle")
    assert stage.running("web") == before


def test_single_replica_with_recreate_is_kept_and_reported(stage: Stage, start: Start) -> None:
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
    [kept] = [each for each in stage.status("single")["kept"] if each.get("pod", "").startswith("web")]
    assert kept["reason"] == "CannotSurge"
    assert "Recreate" in kept["message"]
    assert stage.running("web") == running
    taint(stage, "b")


def test_kill_during_a_surge_restart_does_not_repeat_it(stage: Stage, start: Start) -> None:
    stage.deploy_on("web", 1, on="c")
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


def test_patch_permission_allows_only_the_restart_annotation(stage: Stage) -> None:
    stage.deploy_on("web", 1, on="a")
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


def test_background_eviction_of_a_virtual_machine_is_requested_once(stage: Stage, start: Start) -> None:
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

    def reasons() -> set[str]:
        return {each["reason"] for each in stage.events("Pod") if each["regarding"]["name"] == "virt-launcher-vm"}

    wait_for(reasons, "the event of the eviction")
    assert reasons() == {"EvictionInBackground"}
