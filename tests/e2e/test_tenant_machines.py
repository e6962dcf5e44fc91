"""A tenant who may write Cluster API machines in the tenant's own namespace claims no node and affects no node group.

The tenant has ClusterRole ``edit``, which an aggregated ClusterRole extends to Cluster API's kinds, as platforms do.
The operator runs every controller with the chart's permissions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.autoscaling import MACHINE_NAMESPACE
from tests.fixtures.custom_resources import DEFINITIONS, definition, served
from tests.fixtures.joint import JointCluster, own_joint_cluster
from tests.fixtures.machine_sets import MERGE
from tests.fixtures.tainting import make_namespace
from tests.fixtures.tenant import Tenant
from trimtab.api import reasons
from trimtab.kube.resources import (
    CLUSTER_MACHINE_SETS,
    CLUSTER_MACHINES,
    MACHINE_DEPLOYMENTS,
    MACHINE_POOLS,
    NODES,
    Resource,
)
from trimtab_local.client import Client

KINDS = (MACHINE_DEPLOYMENTS, CLUSTER_MACHINE_SETS, MACHINE_POOLS, CLUSTER_MACHINES)
LIMITS = "cluster.x-k8s.io/cluster-api-autoscaler-node-group"
CLUSTERS = "clusters"
"""The namespace of the administrator's Cluster API objects."""
QUIET = 15.0
"""Seconds, three times the period after which an unneeded node is removed."""

THEIR_UID = "node-of-the-other-cluster"

Claim = Callable[[dict[str, Any]], dict[str, Any]]
"""Returns the spec and the status of a machine that claims a node."""


def claim(node: dict[str, Any], *, uid: str = "", named: bool = True) -> dict[str, Any]:
    """The node's provider ID, if wanted its name, and any UID; Cluster API's v1beta2 has no UIDs."""
    spec, reference = {"providerID": node["spec"]["providerID"]}, {"kind": "Node", "name": node["metadata"]["name"]}
    if not named:
        return {"spec": spec, "status": {"phase": "Provisioned"}}
    return {"spec": spec, "status": {"phase": "Running", "nodeRef": reference | ({"uid": uid} if uid else {})}}


@pytest.fixture
def joint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JointCluster]:
    """Cluster API's kinds, a fixed group of two nodes, and two further nodes that no machine of the Machine API has.

    Pods run on all of them, and need so little that every node is unneeded. There is no ClusterAutoscaler yet.
    """
    with own_joint_cluster(request, tmp_path) as joint:
        for resource in KINDS:
            joint.client.request("POST", DEFINITIONS, with_scale(resource))
        joint.until(lambda: all(served(joint.client, each.path()) for each in KINDS), "Cluster API's kinds")
        joint.manage_taints()
        joint.operate()
        joint.group("workers", replicas=2, minimum=2, maximum=2)
        for name in ("ours", "single"):
            joint.static(name, cpu="4", open_=True)
            body = {"spec": {"providerID": f"metal:///rack-1/{name}"}}
            joint.client.request("PATCH", NODES.path(name), body, content_type=MERGE)
        spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
        selector = {"labelSelector": {"matchLabels": {"app": "web"}}}
        joint.deploy("web", 8, cpu="100m", topologySpreadConstraints=[spread | selector])
        joint.until_running("web", 8)
        assert set(joint.where("web")) == set(joint.all_nodes())
        make_namespace(joint.client, CLUSTERS)
        yield joint


def with_scale(resource: Resource) -> dict[str, Any]:
    """A definition whose objects can be scaled."""
    made = definition(resource)
    if resource is not CLUSTER_MACHINES:
        paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
        made["spec"]["versions"][0]["subresources"] = {"scale": paths}
    return made


def machine_tenant(joint: JointCluster) -> Tenant:
    """A tenant with all permissions for Cluster API's objects in the tenant's namespace."""
    labels = {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}
    rule = {"apiGroups": ["cluster.x-k8s.io"], "resources": ["*"], "verbs": ["*"]}
    role = {"metadata": {"name": "cluster-api-edit", "labels": labels}, "rules": [rule]}
    joint.client.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    tenant = Tenant(joint.cluster)
    path = CLUSTER_MACHINES.path(namespace=tenant.namespace)
    joint.until(lambda: served(tenant.client, path), "the permissions of the tenant")
    return tenant


def create_machine(client: Client, namespace: str, cluster: str, machine: dict[str, Any], name: str = "md") -> None:
    """Create a MachineDeployment, its MachineSet and a machine with the given spec and status."""
    owner: dict[str, Any] = {}
    for resource in (MACHINE_DEPLOYMENTS, CLUSTER_MACHINE_SETS, CLUSTER_MACHINES):
        metadata: dict[str, Any] = {"name": name, "namespace": namespace}
        if owner:
            controller = {"name": name, "uid": owner["metadata"]["uid"], "controller": True}
            metadata["ownerReferences"] = [{key: owner[key] for key in ("apiVersion", "kind")} | controller]
        else:
            metadata["annotations"] = {f"{LIMITS}-min-size": "0", f"{LIMITS}-max-size": "9"}
        made = machine if resource is CLUSTER_MACHINES else {"spec": {"replicas": 1}}
        manifest = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": metadata,
            **made,
            "spec": {"clusterName": cluster, **made["spec"]},
        }
        owner = client.request("POST", resource.path(namespace=namespace), manifest)


def own_machine(joint: JointCluster, cluster: str) -> None:
    """The administrator's machine of the node ``ours``, with the annotations by Cluster API's controller."""
    node = joint.all_nodes()["ours"]
    create_machine(joint.client, CLUSTERS, cluster, claim(node, uid=node["metadata"]["uid"]))
    annotations = {"machine": "md", "cluster-namespace": CLUSTERS, "cluster-name": cluster}
    body = {"metadata": {"annotations": {f"cluster.x-k8s.io/{key}": value for key, value in annotations.items()}}}
    joint.client.request("PATCH", NODES.path("ours"), body, content_type=MERGE)


def forge_machines(joint: JointCluster, tenant: Tenant, cluster: str, forged: Claim) -> None:
    """For each node a MachineDeployment of the tenant whose machine claims the node."""
    for number, node in enumerate(joint.all_nodes().values()):
        create_machine(tenant.client, tenant.namespace, cluster, forged(node), name=f"aaa-{number}")


def is_unconfirmed(joint: JointCluster, key: str) -> bool:
    """Whether the condition Ready names a MachineDeployment that is not treated as a node group."""
    message = joint.condition("Ready").get("message", "")
    return reasons.NODE_GROUP_NOT_CONFIRMED in message and f"MachineDeployment {key}" in message


def replicas(joint: JointCluster, namespace: str) -> list[int]:
    listed = joint.client.request("GET", MACHINE_DEPLOYMENTS.path(namespace=namespace))["items"]
    return [each["spec"]["replicas"] for each in listed]


def end_own_machine(joint: JointCluster) -> None:
    """Remove the administrator's machine and node, as Cluster API's controller does after a scale-down."""
    joint.client.request("DELETE", CLUSTER_MACHINES.path("md", namespace=CLUSTERS))
    joint.client.request("DELETE", NODES.path("ours"))


def pods_on(joint: JointCluster, nodes: set[str]) -> set[str]:
    """The UIDs of the pods on these nodes."""
    return {pod["metadata"]["uid"] for pod in joint.pods("web") if pod["spec"].get("nodeName") in nodes}


def stay_unharmed(joint: JointCluster, tenant: Tenant, nodes: set[str], pods: set[str]) -> None:
    """The operator neither marks nor drains these nodes, also not within :data:`QUIET` seconds from now.

    It also changes none of the tenant's objects.
    """
    iterations, until = joint.iterations(), time.monotonic() + QUIET
    joint.until(lambda: time.monotonic() > until and joint.iterations() >= iterations + 4, "iterations", seconds=90)
    assert set(joint.all_nodes()) >= nodes
    assert {name: marks for name, marks in joint.leftovers().items() if name in nodes} == {}
    assert pods <= pods_on(joint, nodes)
    changes = joint.audit.ours(verbs=("create", "update", "patch", "delete"))
    theirs = [each for each in changes if each.object_ref.namespace == tenant.namespace and each.what != "events"]
    assert [each.summary for each in theirs] == []


@pytest.mark.parametrize(
    ("forged", "reason"),
    [
        (partial(claim, uid=THEIR_UID), reasons.NODE_IDENTITY_MISMATCH),
        (claim, reasons.NODE_NOT_CONFIRMED),
        (partial(claim, named=False), ""),
    ],
    ids=["other UID", "name", "provider ID"],
)
def test_machines_of_a_tenant_claim_no_node(joint: JointCluster, forged: Claim, reason: str) -> None:
    """The tenant names our cluster, and the settings include the tenant's namespace.

    Only the node whose machine the administrator created is removed.
    """
    tenant = machine_tenant(joint)
    forge_machines(joint, tenant, "prod", forged)
    own_machine(joint, "prod")
    others = set(joint.all_nodes()) - {"ours"}
    pods = pods_on(joint, others)

    joint.autoscale(nodeGroupAutoDiscovery={"namespaces": [MACHINE_NAMESPACE, CLUSTERS, tenant.namespace]})

    joint.until(lambda: replicas(joint, CLUSTERS) == [0], "the administrator's own node to be removed")
    end_own_machine(joint)
    stay_unharmed(joint, tenant, others, pods)
    if reason:
        assert joint.condition("Degraded")["reason"] == reasons.INVALID_NODE_GROUPS
        assert reason in joint.condition("Degraded")["message"]


def test_second_cluster_is_refused_without_a_setting(joint: JointCluster) -> None:
    """The tenant's objects are reported and pause nothing: the node groups of our cluster are scaled."""
    tenant = machine_tenant(joint)
    own_machine(joint, "prod")
    forge_machines(joint, tenant, "theirs", partial(claim, uid=THEIR_UID))
    others = set(joint.all_nodes()) - {"ours"}
    pods = pods_on(joint, others)

    joint.autoscale()

    joint.until(lambda: is_unconfirmed(joint, f"{tenant.namespace}/aaa-0"), "the condition")
    assert joint.condition("Degraded")["reason"] == reasons.ALL_WELL
    joint.until(lambda: replicas(joint, CLUSTERS) == [0], "the administrator's own node to be removed")
    end_own_machine(joint)
    stay_unharmed(joint, tenant, others, pods)

    joint.change(nodeGroupAutoDiscovery={"clusterName": "prod"})
    joint.until(lambda: not is_unconfirmed(joint, f"{tenant.namespace}/aaa-0"), "the condition to end")
    stay_unharmed(joint, tenant, others, pods)


def test_upcoming_nodes_of_a_tenant_delay_no_scale_up(joint: JointCluster) -> None:
    """The tenant requests nodes with room for all pending pods, and nothing creates them."""
    tenant = machine_tenant(joint)
    joint.group("spare", replicas=0, minimum=0, maximum=3)
    annotations = {f"{LIMITS}-min-size": "0", f"{LIMITS}-max-size": "9"}
    capacity = {"cpu": "64", "memory": "256Gi", "maxPods": "110"}
    annotations |= {f"capacity.cluster-autoscaler.kubernetes.io/{key}": value for key, value in capacity.items()}
    body = {
        "apiVersion": MACHINE_DEPLOYMENTS.api_version,
        "kind": MACHINE_DEPLOYMENTS.kind,
        "metadata": {"name": "aaa", "namespace": tenant.namespace, "annotations": annotations},
        "spec": {"clusterName": "prod", "replicas": 9},
    }
    tenant.client.request("POST", MACHINE_DEPLOYMENTS.path(namespace=tenant.namespace), body)
    joint.autoscale()

    joint.deploy("more", 2, cpu="3")

    joint.until_running("more", 2)
    joint.until(lambda: is_unconfirmed(joint, f"{tenant.namespace}/aaa"), "the condition")
    assert reasons.NODE_GROUP_NOT_CONFIRMED not in joint.condition("Degraded")["message"]
    assert replicas(joint, tenant.namespace) == [9]
