"""Nodes of the local control plane that fail, and a control plane without kube-controller-manager's node lifecycle."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.fixtures.machine_sets import MERGE
from tests.fixtures.waiting import eventually
from trimtab.kube.resources import LEASES, NODES, PODS
from trimtab_local.client import Client
from trimtab_local.cluster import LocalCluster
from trimtab_local.components import Settings
from trimtab_local.nodes import SILENT, addresses, ready, reported

pytestmark = pytest.mark.live

MakeCluster = Callable[..., LocalCluster]
QUICK = ("--node-lease-duration-seconds=4",)
"""Leases are renewed each second."""


def test_node_stops_and_resumes_heartbeats(make_cluster: MakeCluster) -> None:
    client = make_cluster(Settings(kwok_args=QUICK, node_lifecycle=False), nodes=2).client
    for name in ("node-1", "node-2"):
        pod(client, f"on-{name}", name)
    eventually(lambda: phases(client) == {"Running"}, what="the pods run")

    label(client, "node-1", {SILENT: ""})
    until_silent(client, "node-1")
    before = renewed(client, "node-1"), renewed(client, "node-2")
    client.request("DELETE", PODS.path("on-node-1", namespace="default"))
    client.request("DELETE", PODS.path("on-node-2", namespace="default"))
    pod(client, "late", "node-1")
    eventually(lambda: names(client) == {"on-node-1", "late"}, what="the pod of the other node ends")
    eventually(lambda: renewed(client, "node-2") > before[1], what="the other node renews its Lease")
    time.sleep(2.0)

    assert renewed(client, "node-1") == before[0]
    assert names(client) == {"on-node-1", "late"}
    assert phases(client) == {"Running", "Pending"}, "no pod ends there, and none begins"
    label(client, "node-1", {SILENT: None})
    eventually(lambda: renewed(client, "node-1") > before[0], what="it renews again")
    eventually(lambda: [each["metadata"]["name"] for each in pods(client)] == ["late"], what="what was deleted ends")
    eventually(lambda: phases(client) == {"Running"}, what="what came meanwhile runs")


def test_recovered_node_reports_its_pods_as_ready_again(make_cluster: MakeCluster) -> None:
    client = make_cluster(Settings(kwok_args=QUICK, node_lifecycle=False), nodes=1).client
    for name in ("marked", "failing-probe"):
        pod(client, name, "node-1")
    pod(client, "gated", "node-1", readinessGates=[{"conditionType": "example.com/gate"}])
    eventually(lambda: phases(client) == {"Running"}, what="the pods run")
    label(client, "node-1", {SILENT: ""})
    until_silent(client, "node-1")
    set_conditions(client, "marked", Ready="False")  # as the node lifecycle does on nodes that are not ready
    set_conditions(client, "failing-probe", Ready="False", ContainersReady="False")
    set_conditions(client, "gated", **{"Ready": "False", "example.com/gate": "False"})
    time.sleep(2.0)
    assert ready_pods(client) == set()

    label(client, "node-1", {SILENT: None})
    eventually(lambda: ready_pods(client) == {"marked"}, what="the pod is ready")
    time.sleep(2.0)
    assert ready_pods(client) == {"marked"}
    set_conditions(client, "gated", **{"example.com/gate": "True"})
    eventually(lambda: ready_pods(client) == {"marked", "gated"}, what="the pod with a gate is ready")


def test_without_node_lifecycle_new_nodes_keep_their_taint(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(Settings(node_lifecycle=False), nodes=1)
    client = cluster.client
    pod(client, "by-itself", "node-1")
    eventually(lambda: phases(client) == {"Running"}, what="a pod runs that nobody schedules")
    pod(client, "to-be-placed", "")
    node = client.request("GET", NODES.path("node-1"))

    assert reported(node)
    assert not ready(node)
    assert node["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    assert phases(client) == {"Running", "Pending"}

    cluster.up(replace(cluster.record().settings, node_lifecycle=True))
    eventually(lambda: ready(client.request("GET", NODES.path("node-1"))), what="the node is freed of its taint")
    eventually(lambda: phases(client) == {"Running"}, what="the other pod is placed")


def test_nodes_report_what_a_kubelet_reports(make_cluster: MakeCluster) -> None:
    client = make_cluster(Settings(), nodes=2).client

    def status(name: str = "node-1") -> dict[str, Any]:
        return client.request("GET", NODES.path(name))["status"]

    def capacity(amount: str | None) -> None:
        patch = {"status": {"capacity": {"example.com/dongle": amount}}}
        client.request("PATCH", NODES.path("node-1", subresource="status"), patch, content_type=MERGE)

    assert status()["addresses"] == addresses("node-1")
    assert status()["addresses"] != status("node-2")["addresses"]
    before = status()["allocatable"]
    capacity("4")
    eventually(lambda: status()["allocatable"] == before | {"example.com/dongle": "4"}, what="a new resource")
    capacity(None)
    eventually(lambda: status()["allocatable"] == before, what="a resource that is no longer there")


def test_pod_with_a_pre_stop_hook_terminates_after_it(make_cluster: MakeCluster) -> None:
    client = make_cluster(Settings(), nodes=1).client
    hook = {"preStop": {"sleep": {"seconds": 60}}}
    pod(client, "at-once", "node-1", grace=120)
    pod(client, "short-grace", "node-1", grace=120, lifecycle=hook)
    pod(client, "after-the-hook", "node-1", grace=120, lifecycle=hook)
    eventually(lambda: phases(client) == {"Running"}, what="the pods run")

    began = time.monotonic()
    for name, seconds in {"at-once": 120, "short-grace": 8, "after-the-hook": 120}.items():
        delete(client, name, seconds)
    eventually(lambda: names(client) == {"short-grace", "after-the-hook"}, what="the pod without a hook ends")
    eventually(lambda: names(client) == {"after-the-hook"}, what="the pod whose grace period is short ends")
    assert time.monotonic() - began > 7.5
    delete(client, "after-the-hook", 0)
    assert names(client) == set()


def until_silent(client: Client, name: str) -> None:
    """Wait until the Lease of a node is not renewed for two of its periods, which are one second each."""
    last, since = renewed(client, name), time.monotonic()

    def silent() -> bool:
        nonlocal last, since
        if (now := renewed(client, name)) != last:
            last, since = now, time.monotonic()
        return time.monotonic() - since > 2.5

    eventually(silent, what=f"{name} renews its Lease no more")


def delete(client: Client, name: str, grace: int) -> None:
    client.request("DELETE", PODS.path(name, namespace="default"), params={"gracePeriodSeconds": str(grace)})


def pod(
    client: Client, name: str, node: str, *, grace: int = 1, lifecycle: dict[str, Any] | None = None, **spec_fields: Any
) -> None:
    container = {"name": "main", "image": "none"} | ({"lifecycle": lifecycle} if lifecycle else {})
    spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": grace, **spec_fields}
    client.request("POST", PODS.path(namespace="default"), {"metadata": {"name": name}, "spec": spec})


def pods(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.request("GET", PODS.path(namespace="default"))["items"]
    return found


def names(client: Client) -> set[str]:
    return {each["metadata"]["name"] for each in pods(client)}


def phases(client: Client) -> set[str]:
    return {each["status"].get("phase", "") for each in pods(client)}


def set_conditions(client: Client, name: str, **statuses: str) -> None:
    body = {"status": {"conditions": [{"type": type_, "status": status} for type_, status in statuses.items()]}}
    path = PODS.path(name, namespace="default", subresource="status")
    client.request("PATCH", path, body, content_type="application/strategic-merge-patch+json")


def ready_pods(client: Client) -> set[str]:
    return {
        each["metadata"]["name"]
        for each in pods(client)
        if any((c["type"], c["status"]) == ("Ready", "True") for c in each["status"].get("conditions", ()))
    }


def label(client: Client, node: str, labels: dict[str, str | None]) -> None:
    client.request("PATCH", NODES.path(node), {"metadata": {"labels": labels}}, content_type=MERGE)


def renewed(client: Client, node: str) -> str:
    lease = client.request("GET", LEASES.path(node, namespace="kube-node-lease"))
    return str(lease["spec"]["renewTime"])
