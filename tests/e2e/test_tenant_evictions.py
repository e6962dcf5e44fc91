"""A tenant's pods cause evictions of the tenant's own pods alone, with every controller and the chart's permissions.

Every pod of the tenant is created with the tenant's permissions: ClusterRole ``edit`` in one namespace that enforces
Pod Security ``restricted``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.joint import JointCluster, deploy_on, own_joint_cluster
from tests.fixtures.machine_sets import MERGE
from tests.fixtures.tainting import at, make_namespace
from tests.fixtures.tenant import Tenant, restricted_pod
from trimtab.api import reasons
from trimtab.kube.resources import PODS

STRATEGY = "RemovePodsViolatingInterPodAntiAffinity"
STRATEGIES = {STRATEGY: {"enabled": True}}
OTHERS = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["tenant"]}]}
CYCLES = 4
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
MAX_HOLD = 25.0
"""Seconds."""


@pytest.fixture
def joint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JointCluster]:
    """Three nodes, all controllers, and in the namespace ``bank`` pods of another tenant on all of them."""
    with own_joint_cluster(request, tmp_path) as joint:
        joint.manage_taints()
        joint.autoscale()
        joint.operate()
        joint.group("stable", replicas=3, minimum=3, maximum=3)
        make_namespace(joint.client, "bank")
        joint.pods_namespace = "bank"
        joint.deploy("pay", 6, cpu="100m")
        joint.deploy("ledger", 4, cpu="100m")
        joint.until_running("pay", 6)
        joint.until_running("ledger", 4)
        yield joint


def terms(key: str, **term: Any) -> dict[str, Any]:
    """A pod's affinity with one required anti-affinity term."""
    required = [{"topologyKey": key, "labelSelector": {}, **term}]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def replica_set(tenant: Tenant, name: str, *, annotations: dict[str, str] | None = None, **spec: Any) -> None:
    """A ReplicaSet of one pod, created by the tenant."""
    template = restricted_pod(name, labels={"app": name}, annotations=annotations, **spec)
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": annotations or {}},
                "spec": template["spec"],
            },
        },
    }
    tenant.client.request("POST", f"/apis/apps/v1/namespaces/{tenant.namespace}/replicasets", manifest)


def uids(joint: JointCluster, *namespaces: str) -> set[str]:
    """The pods of these namespaces that are not being deleted, by UID."""
    pods = [pod for each in namespaces for pod in joint.client.request("GET", PODS.path(namespace=each))["items"]]
    return {pod["metadata"]["uid"] for pod in pods if not pod["metadata"].get("deletionTimestamp")}


def after_cycles(joint: JointCluster, number: int = CYCLES) -> dict[str, Any]:
    """The status of the policy after a number of further cycles."""
    seen: set[str] = set()

    def ended() -> bool:
        last = joint.policy_status().get("lastRun") or {}
        if last.get("completed"):
            seen.add(last["time"])
        return len(seen) > number

    joint.until(ended, f"{number} cycles to end", seconds=60)
    return joint.policy_status()


def kept(status: dict[str, Any]) -> dict[str, str]:
    """The reasons why the last cycle kept pods, by ``namespace/name``."""
    return {f"{each['namespace']}/{each['pod']}": each["reason"] for each in status.get("kept", ()) if each.get("pod")}


def evicted(joint: JointCluster) -> list[str]:
    """The pods whose eviction the API server granted, as ``namespace/name``."""
    return [each.key for each in joint.audit.ours("pods/eviction", granted=True)]


def with_pods_of(joint: JointCluster, app: str) -> str:
    """A node that runs pods of a Deployment of the bank."""
    return min(joint.where(app))


def spare_nodes(joint: JointCluster) -> None:
    """Add nodes with room for every pod of the bank: only the rules of this project keep the pods where they are."""
    joint.group("spare", replicas=2, minimum=2, maximum=2)


def test_bare_pod_bound_by_name_evicts_no_other_pod(joint: JointCluster) -> None:
    """a1.yaml, with the node and with three of five nodes as the domain."""
    tenant, node = Tenant(joint.cluster), with_pods_of(joint, "ledger")
    spare_nodes(joint)
    before = uids(joint, "bank", "kube-system")
    for name, key in (("hostile-1", "kubernetes.io/hostname"), ("hostile-2", "pool")):
        tenant.create_pod(name, nodeName=node, affinity=terms(key, namespaceSelector=OTHERS))
    joint.write_policy(strategies=STRATEGIES, namespaces={})

    status = after_cycles(joint)
    assert (evicted(joint), uids(joint, "bank", "kube-system")) == ([], before)
    found = kept(status)
    assert {found[f"tenant/{name}"] for name in ("hostile-1", "hostile-2")} == {reasons.BARE_POD}
    assert {reason for key, reason in found.items() if key.startswith("bank/")} == {reasons.CAUSED_FROM_OTHER_NAMESPACE}
    assert sum(key.startswith("bank/") for key in found) == 10

    # the administrator allows causes from other namespaces: pods of equal priority stay all the same
    joint.write_policy(strategies=STRATEGIES, namespaces={"include": ["bank"]}, crossNamespace="Allow")
    found = kept(after_cycles(joint))
    assert (evicted(joint), uids(joint, "bank", "kube-system")) == ([], before)
    assert set(found.values()) == {reasons.CAUSE_OF_LOWER_PRIORITY}


def test_pod_of_low_priority_evicts_no_pod_of_high_priority(joint: JointCluster) -> None:
    """prio.py: without permission for other namespaces, and with it."""
    tenant, node = Tenant(joint.cluster), with_pods_of(joint, "ledger")
    joint.priority_class("high", 1_000_000)
    joint.priority_class("low", -1000)
    deploy_on(joint, "vault", 5, [node], cpu="100m", priorityClassName="high")
    spare_nodes(joint)
    before = uids(joint, "bank", "kube-system")
    rule = terms("kubernetes.io/hostname", labelSelector={"matchLabels": {"app": "vault"}}, namespaceSelector=OTHERS)
    tenant.create_pod("hostile", nodeName=node, priorityClassName="low", affinity=rule)
    joint.write_policy(strategies=STRATEGIES, namespaces={"include": ["bank"]})

    found = kept(after_cycles(joint))
    assert (evicted(joint), uids(joint, "bank", "kube-system")) == ([], before)
    assert list(found.values()) == [reasons.CAUSED_FROM_OTHER_NAMESPACE] * 5

    joint.write_policy(strategies=STRATEGIES, namespaces={"include": ["bank"]}, crossNamespace="Allow")
    found = kept(after_cycles(joint))
    assert (evicted(joint), uids(joint, "bank", "kube-system")) == ([], before)
    assert list(found.values()) == [reasons.CAUSE_OF_LOWER_PRIORITY] * 5


def test_replica_set_bound_by_name_evicts_no_pod(joint: JointCluster) -> None:
    """leak.yaml: its pods stay, because its template names their node, to which they would return."""
    tenant, node = Tenant(joint.cluster), with_pods_of(joint, "pay")
    spare_nodes(joint)
    before = uids(joint, "bank", "kube-system")
    everywhere = terms("pool", labelSelector={"matchLabels": {"app": "pay"}}, namespaceSelector={})
    replica_set(tenant, "spy", nodeName=node, affinity=everywhere)
    joint.write_policy(strategies=STRATEGIES, namespaces={})

    found = kept(after_cycles(joint))
    assert (evicted(joint), uids(joint, "bank", "kube-system")) == ([], before)
    assert {reason for key, reason in found.items() if key.startswith("tenant/spy")} == {reasons.REPLACEMENT_LARGER}
    assert [reason for key, reason in found.items() if key.startswith("bank/pay")] == [
        reasons.CAUSED_FROM_OTHER_NAMESPACE
    ] * 6


def test_pod_bound_by_name_is_evicted_itself(joint: JointCluster) -> None:
    """The tenant's ReplicaSet adopts a pod that names its node, so that its replacement can run elsewhere.

    The policy allows causes from other namespaces, and the tenant's pod has the higher priority: the pod of the bank
    would be evicted if a scheduler had placed the tenant's pod.
    """
    tenant, node = Tenant(joint.cluster), with_pods_of(joint, "pay")
    joint.priority_class("high", 1000)
    deploy_on(joint, "solo", 1, [node], cpu="100m")
    joint.cordon(node)
    joint.resize("solo", 2)  # the only pod of an owner is not evicted
    joint.until_running("solo", 2)
    joint.cordon(node, on=False)
    selected = {"labelSelector": {"matchLabels": {"app": "solo"}}, "namespaceSelector": {}}
    spec = {"priorityClassName": "high", "affinity": terms("kubernetes.io/hostname", **selected)}
    tenant.create_pod("by-name", labels={"app": "loud"}, nodeName=node, **spec)
    replica_set(tenant, "loud", **spec)
    joint.until(lambda: pods_of(tenant)["by-name"]["metadata"].get("ownerReferences"), "the pod is adopted")
    joint.until(lambda: pods_of(tenant)["by-name"]["status"]["phase"] == "Running", "the pod runs")
    before = uids(joint, "bank", "kube-system")
    joint.write_policy(strategies=STRATEGIES, namespaces={}, crossNamespace="Allow")

    after_cycles(joint)
    assert (evicted(joint), uids(joint, "bank", "kube-system")) == (["tenant/by-name"], before)
    (replacement,) = pods_of(tenant).values()
    assert replacement["spec"]["nodeName"] != node


def pods_of(tenant: Tenant) -> dict[str, dict[str, Any]]:
    """The tenant's pods that are not being deleted, by name."""
    pods = tenant.client.request("GET", PODS.path(namespace=tenant.namespace))["items"]
    return {pod["metadata"]["name"]: pod for pod in pods if not pod["metadata"].get("deletionTimestamp")}


def test_allow_evicts_only_pods_of_lower_priority(joint: JointCluster) -> None:
    """The scheduler placed the pod that states the rule; the others broke the rule by a label that came later."""
    joint.priority_class("data", 100)
    make_namespace(joint.client, "data")
    joint.pods_namespace = "data"
    rule = terms("pool", labelSelector={"matchLabels": {"loud": "yes"}}, namespaceSelector={})
    joint.deploy("db", 1, cpu="100m", priorityClassName="data", nodeSelector={"pool": "stable"}, affinity=rule)
    joint.until_running("db", 1)
    time.sleep(1.1)  # start times are in seconds, and the pod must come first
    joint.pods_namespace = "bank"
    joint.deploy("late", 2, cpu="100m")
    joint.deploy("peer", 1, cpu="100m", priorityClassName="data")
    joint.until_running("late", 2)
    joint.until_running("peer", 1)
    joint.group("other", replicas=1, minimum=1, maximum=1)
    quiet, loud = uids(joint, "data"), []
    for app in ("late", "peer"):
        for pod in joint.pods(app):
            body = {"metadata": {"labels": {"loud": "yes"}}}
            path = PODS.path(pod["metadata"]["name"], namespace="bank")
            joint.client.request("PATCH", path, body, content_type=MERGE)
            loud.append(f"bank/{pod['metadata']['name']}")

    joint.write_policy(strategies=STRATEGIES, namespaces={})
    found = kept(after_cycles(joint))
    assert evicted(joint) == []
    assert {key: found[key] for key in loud} == dict.fromkeys(loud, reasons.CAUSED_FROM_OTHER_NAMESPACE)
    assert {reason for key, reason in found.items() if key.startswith("data/db")} == {reasons.NO_PLACE}

    joint.write_policy(strategies=STRATEGIES, namespaces={}, crossNamespace="Allow")
    joint.until(lambda: len(evicted(joint)) == 2, "the pods of lower priority to be evicted", seconds=90)
    found = kept(after_cycles(joint))
    assert sorted(evicted(joint)) == sorted(loud[:2])
    assert found[loud[2]] == reasons.CAUSE_OF_LOWER_PRIORITY
    assert uids(joint, "data") == quiet


def test_annotation_holds_a_node_at_most_max_hold(joint: JointCluster) -> None:
    """The tenant changes the annotation and replaces the pod; the period goes on."""
    tenant = Tenant(joint.cluster)
    joint.group("flex", replicas=1, minimum=0, maximum=2)
    (node,) = joint.nodes("flex")
    term = {"weight": 100, "preference": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["flex"]}]}}
    preferred = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    replica_set(tenant, "held", annotations={SAFE_TO_EVICT: "false"}, affinity=preferred)

    def holder() -> dict[str, Any] | None:
        pods = tenant.client.request("GET", PODS.path(namespace=tenant.namespace))["items"]
        there = (each for each in pods if each["spec"].get("nodeName") == node and each["status"]["phase"] == "Running")
        return next(there, None)

    joint.until(lambda: holder() is not None, "the tenant's pod to run on the node")
    joint.change(scaleDown={"maxHold": f"{MAX_HOLD:.0f}s"})
    since = joint.until(lambda: held_since(joint).get(node), "the node to be recorded as held")
    for value in ("true", "on-completion", "false"):
        pod = joint.until(holder, "a pod that holds the node")
        body = {"metadata": {"annotations": {SAFE_TO_EVICT: value}}}
        path = PODS.path(pod["metadata"]["name"], namespace=tenant.namespace)
        tenant.client.request("PATCH", path, body, content_type=MERGE)
    tenant.delete_pods()
    joint.until(lambda: holder() is not None, "another pod of the tenant to run on the node")
    assert held_since(joint).get(node) == since

    joint.until(lambda: joint.size("flex") == 0, "the node to be removed", seconds=MAX_HOLD + 60)
    began = datetime.fromisoformat(since).timestamp()
    drained = [each for each in joint.audit.ours("pods/eviction", granted=True) if each.key.startswith("tenant/held")]
    assert drained
    assert min(at(each) for each in drained) - began >= MAX_HOLD - 1.0


def held_since(joint: JointCluster) -> dict[str, str]:
    """The time since which nodes are held, by name, in the status of the ClusterAutoscaler."""
    return {each["name"]: each["since"] for each in joint.status().get("held", ())}
