"""A tenant blocks no scale-up of others: neither by DaemonSets without pods, nor by hundreds of pending pods.

All objects of the tenant are created with the tenant's permissions: ClusterRole ``edit`` in one namespace that enforces
Pod Security ``restricted``. The operator runs every controller with the chart's permissions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.joint import JointCluster, own_joint_cluster
from tests.fixtures.tainting import make_namespace
from tests.fixtures.tenant import Tenant, restricted_pod
from trimtab.api import reasons
from trimtab.kube.resources import DAEMON_SETS, PODS

WITHIN = 10.0
"""Seconds within which nodes are asked for."""

PENDING = 200


@pytest.fixture
def joint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JointCluster]:
    """One node of four cores, a node group of up to 40 nodes, and all controllers."""
    with own_joint_cluster(request, tmp_path) as joint:
        joint.manage_taints()
        joint.autoscale(scaleDown={"enabled": False})
        joint.operate()
        joint.group("workers", replicas=1, minimum=1, maximum=40)
        make_namespace(joint.client, "bank")
        joint.pods_namespace = "bank"
        yield joint


def quota(joint: JointCluster, tenant: Tenant, **hard: str) -> None:
    """A ResourceQuota of the tenant's namespace, which its administrator writes."""
    limits = {name.replace("_", "."): amount for name, amount in hard.items()}
    manifest = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": limits}}
    joint.client.request("POST", f"/api/v1/namespaces/{tenant.namespace}/resourcequotas", manifest)


def create_daemon_set(tenant: Tenant, name: str, cpu: str) -> None:
    """a3-ds.yaml with another request."""
    template = restricted_pod(name, labels={"app": name}, resources={"requests": {"cpu": cpu, "memory": "1Mi"}})
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": template["spec"]},
        },
    }
    tenant.client.request("POST", DAEMON_SETS.path(namespace=tenant.namespace), manifest)


def daemon_set_status(tenant: Tenant, name: str) -> dict[str, Any]:
    found = tenant.client.request("GET", DAEMON_SETS.path(name, namespace=tenant.namespace))
    return dict(found.get("status") or {})


def metric(joint: JointCluster, line: str) -> str:
    """The value of a series."""
    assert joint.operator is not None
    text = joint.operator.get("/metrics") or ""
    return next((each.rpartition(" ")[2] for each in text.splitlines() if each.startswith(line)), "")


def helped(joint: JointCluster, namespace: str) -> set[str]:
    """The pods whose events name a scale-up."""
    listed = joint.client.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    return {each["regarding"]["name"] for each in listed if each["reason"] == reasons.TRIGGERED_SCALE_UP}


def unhelped(joint: JointCluster, namespace: str, reason: str) -> set[str]:
    """The pods whose events name that reason for no scale-up."""
    listed = joint.client.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    found = (each for each in listed if each["reason"] == reasons.NOT_TRIGGER_SCALE_UP)
    return {each["regarding"]["name"] for each in found if each["note"].startswith(reason)}


def pending(joint: JointCluster) -> dict[tuple[str, str], int]:
    """The number of pods without a scale-up, by namespace and reason, in the status."""
    return {(each["namespace"], each["reason"]): each["count"] for each in joint.status().get("pending", ())}


def test_daemon_set_without_pods_blocks_no_scale_up(joint: JointCluster) -> None:
    """a3-ds.yaml and quota.yaml: 1000 CPUs, which no node has, and three of the four cores of each."""
    tenant = Tenant(joint.cluster)
    quota(joint, tenant, requests_cpu="1", requests_memory="1Gi", pods="10")
    for name, cpu in (("hog", "1000"), ("large", "3")):
        create_daemon_set(tenant, name, cpu)
        joint.until(lambda name=name: daemon_set_status(tenant, name).get("desiredNumberScheduled"), f"{name} is seen")

    began = time.monotonic()
    joint.deploy("burst", 4, cpu="3", memory="64Mi")  # burst.yaml
    joint.until(lambda: joint.size("workers") == 4, "three more nodes are asked for", seconds=WITHIN)
    print(f"asked for after {time.monotonic() - began:.1f} s")

    joint.until_running("burst", 4)
    assert joint.sizes("workers") == {"workers": 4}, "each pod costs one node"
    assert tenant.client.request("GET", PODS.path(namespace=tenant.namespace))["items"] == []
    series = 'trimtab_autoscaler_daemon_sets{reason="DaemonSetNotCreated"}'
    joint.until(lambda: metric(joint, series) == "2.0", "the metric counts both")
    assert joint.condition("Degraded")["status"] == "False"


def test_daemon_set_that_blocks_scale_up_is_reported(joint: JointCluster) -> None:
    """Without a quota its pods run, so that new nodes have room for no pod of three cores."""
    tenant = Tenant(joint.cluster)
    create_daemon_set(tenant, "large", "3")
    joint.until(lambda: daemon_set_status(tenant, "large").get("numberReady"), "its pod runs")

    joint.deploy("burst", 1, cpu="3", memory="64Mi")

    joint.until(lambda: joint.condition("Degraded").get("reason") == reasons.DAEMON_SETS_TAKE_ROOM, "the condition")
    assert "tenant/large" in joint.condition("Degraded")["message"]
    assert joint.size("workers") == 1


def test_200_pending_pods_of_a_tenant_block_no_scale_up_of_others(joint: JointCluster) -> None:
    tenant = Tenant(joint.cluster)
    quota(joint, tenant, pods=str(PENDING))
    joint.change(resourceLimits={"maxNodesPerNamespace": 4})
    for number in range(PENDING):
        tenant.create_pod(f"p-{number:03}", resources={"requests": {"cpu": "3", "memory": "64Mi"}})
    joint.until_sizes(workers=4)  # the one that was there, and three more
    limit = reasons.MAX_NODES_PER_NAMESPACE_REACHED
    waiting = {(tenant.namespace, limit): PENDING - 4}
    joint.until(lambda: pending(joint) == waiting, "the status says why the others wait")
    joint.until(lambda: len(unhelped(joint, tenant.namespace, limit)) >= PENDING - 4, "events say the same")

    began = time.monotonic()
    joint.deploy("burst", 4, cpu="3", memory="64Mi")
    joint.until(lambda: joint.size("workers") >= 8, "four more nodes are asked for", seconds=WITHIN)
    print(f"asked for after {time.monotonic() - began:.1f} s")
    names = {pod["metadata"]["name"] for pod in joint.pods("burst")}
    joint.until(lambda: helped(joint, "bank") >= names, "events say that nodes were asked for", seconds=WITHIN)

    # The scheduler decides which pod gets a node: once the tenant wants none any more, all four run.
    tenant.delete_pods()
    joint.until_running("burst", 4)


def test_limits_are_shared_among_namespaces_and_survive_a_restart(joint: JointCluster) -> None:
    tenant = Tenant(joint.cluster)
    joint.change(mode="Simulate", resourceLimits={"maxNodesTotal": 5})
    joint.iterate_twice()
    joint.deploy("burst", 4, cpu="3", memory="64Mi")
    joint.until_running("burst", 1)
    for number in range(30):
        tenant.create_pod(f"p-{number:03}", resources={"requests": {"cpu": "3", "memory": "64Mi"}})
    joint.iterate_twice()

    joint.change(mode="Act")
    joint.until(lambda: joint.size("workers") == 5, "the limit is reached", seconds=WITHIN + 5)
    joint.until(lambda: len(helped(joint, "bank")) == 2, "half of the four nodes are for the bank")
    joint.until(lambda: len(helped(joint, tenant.namespace)) == 2, "and half of them for the tenant")
    assert joint.operator is not None
    joint.operator.stop()
    joint.until(lambda: len(joint.nodes("workers")) == 5, "the nodes")
    joint.operate()
    joint.change(resourceLimits={"maxNodesTotal": 40, "maxNodesPerNamespace": 1})
    joint.iterate_twice()
    assert joint.size("workers") == 5, "both have more than one node, as their pods on nodes show"
