"""The examples of the scheduler on a real API server, next to kube-scheduler, and what their policies report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.generate import ROOT

from examples.demo.workloads import deployment
from tests.conftest import MakeCluster
from tests.fixtures.custom_resources import served
from tests.fixtures.waiting import wait_for
from trimtab.api.decode import decode_scheduler_policy
from trimtab.api.scheduler_policy import SchedulerPolicy
from trimtab.kube.resources import EVENTS, NODES, PODS, SCHEDULER_POLICIES
from trimtab_local.client import Client
from trimtab_local.components import Settings
from trimtab_local.install import OperatorProcess, install
from trimtab_local.nodes import ready
from trimtab_local.versions import SCHEDULER

pytestmark = pytest.mark.live

EXAMPLES = ROOT / "examples" / "scheduling"
PLACES = {"Node": "/api/v1/nodes", "Namespace": "/api/v1/namespaces", "Service": "/api/v1/namespaces/shop/services"}
ONLY = (
    "controllers.descheduler.enabled=false",
    "controllers.clusterAutoscaler.enabled=false",
    "controllers.taintManager.enabled=false",
    "controllers.scheduler.enabled=true",
)


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def client(make_lasting_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The example cluster with its bound pods, and the operator that runs the scheduler under the chart's RBAC."""
    cluster = make_lasting_cluster(Settings(), nodes=0)
    client = cluster.client
    install(cluster, *ONLY)
    wait_for(lambda: served(client, SCHEDULER_POLICIES.path()), "the SchedulerPolicy's kind to be served")
    for each in documents("cluster.yaml"):
        if each["kind"] in PLACES:
            client.request("POST", PLACES[each["kind"]], each)
    wait_for(lambda: all(map(ready, client.request("GET", NODES.path())["items"])), "the nodes")
    path = "/api/v1/namespaces/shop/serviceaccounts/default"
    wait_for(lambda: served(client, path), "the default service account")
    for each in documents("cluster.yaml"):
        if each["kind"] == "Pod" and "nodeName" in each["spec"]:
            create_pod(client, each)
    process = OperatorProcess(cluster, tmp_path_factory.mktemp("operator"), "--controllers=scheduler")
    process.start()
    yield client
    assert process.stop() == 0


def create_pod(client: Client, manifest: dict[str, Any]) -> None:
    body = {key: value for key, value in manifest.items() if key != "status"}
    client.request("POST", PODS.path(namespace="shop"), body)


def policy(client: Client, name: str) -> SchedulerPolicy:
    return decode_scheduler_policy(client.request("GET", SCHEDULER_POLICIES.path(name)))


def conditions(client: Client, name: str) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in policy(client, name).status.conditions}


def node_of(client: Client, name: str) -> str:
    found: str = client.request("GET", PODS.path(name, namespace="shop"))["spec"].get("nodeName", "")
    return found


def events(client: Client, name: str) -> dict[str, str]:
    """The notes of the events on a pod, by reason."""
    found = client.request("GET", EVENTS.path(namespace="shop"))["items"]
    return {each["reason"]: each["note"] for each in found if each["regarding"]["name"] == name}


@pytest.mark.parametrize(
    ("file", "app", "expected"),
    [
        ("region-zone.yaml", "web", {"web-1": "north-b", "web-2": "north-a"}),
        ("bin-packing.yaml", "batch", {"batch-1": "south-a", "batch-2": "north-a"}),
        ("gpu-spread.yaml", "train", {"train-1": "south-b", "train-2": "south-b"}),
    ],
)
def test_policies_place_pods_as_planned(client: Client, file: str, app: str, expected: dict[str, str]) -> None:
    [manifest] = documents(file)
    name = manifest["metadata"]["name"]
    client.request("POST", SCHEDULER_POLICIES.path(), manifest)
    wait_for(lambda: conditions(client, name).get("Ready") == ("True", "Scheduling"), "the policy to be ready")
    for each in documents("cluster.yaml"):
        if each["kind"] == "Pod" and each["metadata"]["labels"]["app"] == app and "nodeName" not in each["spec"]:
            create_pod(client, each)
            pod = each["metadata"]["name"]
            wait_for(lambda pod=pod: node_of(client, pod), f"{pod} to be bound")  # type: ignore[misc]

    assert {pod: node_of(client, pod) for pod in expected} == expected
    for pod, node in expected.items():
        wait_for(lambda pod=pod: "Scheduled" in events(client, pod), "the event")  # type: ignore[misc]
        assert events(client, pod)["Scheduled"] == f"Successfully assigned shop/{pod} to {node}"
    wait_for(lambda: policy(client, name).status.counts.scheduled == 2, "the totals")


def test_unschedulable_pod_is_reported_and_bound_after_a_change(client: Client) -> None:
    [large] = [each for each in documents("cluster.yaml") if each["metadata"]["name"] == "batch-1"]
    large["metadata"]["name"] = "huge"
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "6"
    create_pod(client, large)

    def condition() -> dict[str, Any]:
        status = client.request("GET", PODS.path("huge", namespace="shop"))["status"]
        return next((each for each in status.get("conditions", ()) if each["type"] == "PodScheduled"), {})

    wait_for(lambda: condition().get("reason") == "Unschedulable", "the condition")
    assert condition()["status"] == "False"
    assert condition()["message"].startswith("0/4 nodes are available: 4 Insufficient cpu.")
    wait_for(lambda: "FailedScheduling" in events(client, "huge"), "the event")
    wait_for(lambda: policy(client, "packing").status.queue.unschedulable == 1, "the status")
    [reason] = policy(client, "packing").status.unschedulable
    assert (reason.pods, reason.example) == (1, "shop/huge")

    [node] = [each for each in documents("cluster.yaml") if each["metadata"]["name"] == "north-a"]
    node["metadata"]["name"] = node["metadata"]["labels"]["kubernetes.io/hostname"] = "large"
    node["status"]["allocatable"]["cpu"] = node["status"]["capacity"]["cpu"] = "16"
    client.request("POST", NODES.path(), node)
    wait_for(lambda: node_of(client, "huge") == "large", "the pod to be bound to the new node")
    wait_for(lambda: condition().get("status") == "True", "the API server's condition")
    wait_for(lambda: not policy(client, "packing").status.unschedulable, "the status without the pod", timeout=30)


def test_younger_policy_of_the_same_name_is_not_used(client: Client) -> None:
    [manifest] = documents("bin-packing.yaml")
    manifest["metadata"]["name"] = "second"
    client.request("POST", SCHEDULER_POLICIES.path(), manifest)

    conflict = ("True", "SchedulerNameConflict")
    wait_for(lambda: conditions(client, "second").get("Conflicting") == conflict, "the younger policy")
    assert conditions(client, "second")["Ready"] == ("False", "SchedulerNameConflict")
    wait_for(lambda: conditions(client, "packing").get("Conflicting") == conflict, "the older policy")
    assert conditions(client, "packing")["Ready"] == ("True", "Scheduling")

    client.request("DELETE", SCHEDULER_POLICIES.path("packing"))
    wait_for(lambda: conditions(client, "second").get("Ready") == ("True", "Scheduling"), "the takeover")
    assert conditions(client, "second")["Conflicting"] == ("False", "NoConflict")


def test_pods_of_other_schedulers_are_ignored(client: Client) -> None:
    [manifest] = [each for each in documents("cluster.yaml") if each["metadata"]["name"] == "batch-1"]
    for name, scheduler in (("default", "default-scheduler"), ("unserved", "unserved")):
        manifest["metadata"]["name"], manifest["spec"]["schedulerName"] = name, scheduler
        create_pod(client, manifest)

    wait_for(lambda: node_of(client, "default"), "kube-scheduler to bind its pod")
    assert node_of(client, "unserved") == ""
    assert events(client, "unserved") == {}


def test_policy_in_place_of_kube_scheduler_places_all_pods(make_cluster: MakeCluster, tmp_path: Path) -> None:
    components = tuple(each for each in Settings().components if each != SCHEDULER)
    cluster = make_cluster(Settings(components=components), nodes=3)
    client = cluster.client
    install(cluster, *ONLY)
    wait_for(lambda: served(client, SCHEDULER_POLICIES.path()), "the SchedulerPolicy's kind to be served")
    client.request(
        "POST", "/apis/apps/v1/namespaces/default/deployments", deployment("web", namespace="default", replicas=6)
    )
    process = OperatorProcess(cluster, tmp_path, "--controllers=scheduler")
    process.start()
    try:
        [manifest] = documents("in-place-of-kube-scheduler.yaml")
        client.request("POST", SCHEDULER_POLICIES.path(), manifest)
        path = "/apis/apps/v1/namespaces/default/deployments/web"
        wait_for(lambda: client.request("GET", path)["status"].get("readyReplicas") == 6, "the Deployment")
        nodes = Counter(
            each["spec"]["nodeName"] for each in client.request("GET", PODS.path(namespace="default"))["items"]
        )
        assert sorted(nodes.values()) == [2, 2, 2]
        attempts = 'trimtab_scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 6.0'
        assert attempts in (process.get("/metrics") or "").splitlines()
    finally:
        assert process.stop() == 0
