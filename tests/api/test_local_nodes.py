"""Nodes of the local control plane that fail, and a control plane that leaves seeing to them to trimtab."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.fixtures.machine_sets import MERGE, eventually
from trimtab.kube.resources import LEASES, NODES, PODS
from trimtab.local.client import Client
from trimtab.local.cluster import LocalCluster
from trimtab.local.components import Settings
from trimtab.local.nodes import SILENT, ready, reported

MakeCluster = Callable[..., LocalCluster]
QUICK = ("--node-lease-duration-seconds=4",)
"""Leases are renewed each second."""


def test_a_node_falls_silent_and_comes_back(make_cluster: MakeCluster) -> None:
    client = make_cluster(Settings(kwok_args=QUICK, node_lifecycle=False), nodes=2).client
    for name in ("node-1", "node-2"):
        pod(client, f"on-{name}", name)
    eventually(lambda: phases(client) == {"Running"}, what="the pods run")

    label(client, "node-1", {SILENT: ""})
    time.sleep(1.0)
    before = renewed(client, "node-1"), renewed(client, "node-2")
    client.request("DELETE", PODS.path("on-node-1", namespace="default"))
    client.request("DELETE", PODS.path("on-node-2", namespace="default"))
    pod(client, "late", "node-1")
    time.sleep(3.0)

    assert renewed(client, "node-1") == before[0]
    assert renewed(client, "node-2") > before[1]
    assert {each["metadata"]["name"] for each in pods(client)} == {"on-node-1", "late"}
    assert phases(client) == {"Running", "Pending"}, "no pod ends there, and none begins"
    label(client, "node-1", {SILENT: None})
    eventually(lambda: renewed(client, "node-1") > before[0], what="it renews again")
    eventually(lambda: [each["metadata"]["name"] for each in pods(client)] == ["late"], what="what was deleted ends")
    eventually(lambda: phases(client) == {"Running"}, what="what came meanwhile runs")


def test_without_the_node_lifecycle_pods_are_admitted_and_new_nodes_stay_tainted(make_cluster: MakeCluster) -> None:
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

    cluster.up(Settings())
    eventually(lambda: ready(client.request("GET", NODES.path("node-1"))), what="the node is freed of its taint")
    eventually(lambda: phases(client) == {"Running"}, what="the other pod is placed")


def pod(client: Client, name: str, node: str) -> None:
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}], "terminationGracePeriodSeconds": 1}
    client.request("POST", PODS.path(namespace="default"), {"metadata": {"name": name}, "spec": spec})


def pods(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.request("GET", PODS.path(namespace="default"))["items"]
    return found


def phases(client: Client) -> set[str]:
    return {each["status"].get("phase", "") for each in pods(client)}


def label(client: Client, node: str, labels: dict[str, str | None]) -> None:
    client.request("PATCH", NODES.path(node), {"metadata": {"labels": labels}}, content_type=MERGE)


def renewed(client: Client, node: str) -> str:
    lease = client.request("GET", LEASES.path(node, namespace="kube-node-lease"))
    return str(lease["spec"]["renewTime"])
