"""Least privilege, measured: what the operator asks of an API server that writes an audit log, against its roles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.generate.base import render

from examples.demo.install import NAMESPACE, RELEASE, OperatorProcess, apply, install, wait_for
from examples.demo.workloads import IMAGE, deployment
from tests.conftest import MakeCluster
from tests.fixtures.autoscaling import served
from tests.fixtures.machine_sets import MachineSets
from tests.fixtures.metrics_api import serve_metrics_api
from trimtab.kube.api import NotFound
from trimtab.kube.resources import CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS, NODES, PODS, TAINT_MANAGERS
from trimtab.local.client import Client
from trimtab.local.cluster import LocalCluster
from trimtab.local.components import COMPONENTS, Settings
from trimtab.local.nodes import SILENT, node, ready
from trimtab.tainting.deadlines import SINCE_ANNOTATION as SINCE

USER = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
POLICIES = "/apis/trimtab.dev/v1alpha1/deschedulerpolicies"
AUDIT = """\
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
  omitStages: [RequestReceived]
  users: [%s]
- level: None
"""
MERGE = "application/merge-patch+json"
MACHINES = "openshift-machine-api"
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io"
QUICKLY = {
    "expanders": ["Priority"],
    "scaleDown": {"enabled": True, "delayAfterAdd": "1s", "delayAfterDelete": "1s", "unneededTime": "5s"},
}

BY_USE = {
    "LowNodeUtilization": {
        "params": {
            "metricsUtilization": {"source": "KubernetesMetrics"},
            "nodeResourceUtilizationThresholds": {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}},
        }
    }
}

Right = tuple[str, str, str]


def granted(controller: str, *values: str) -> set[Right]:
    """Group, resource with subresource, and verb of all that the chart lets a controller do, with ``--set`` values."""
    names = (f"{RELEASE}-{controller}", f"{RELEASE}-{controller}-record", f"{RELEASE}-lease")
    roles = [
        document
        for document in render(*(part for value in values for part in ("--set", value)))
        if document["kind"] in ("ClusterRole", "Role") and document["metadata"]["name"] in names
    ]
    return {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def what_everybody_may(entry: dict[str, Any]) -> str | None:
    """What an entry asks for that every account is allowed (ClusterRole system:basic-user): what it may do itself."""
    resource: str = entry["objectRef"]["resource"]
    return resource if resource == "selfsubjectaccessreviews" else None


class Audit:
    """The API server's own record of who asked for what."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._from = 0

    def mark(self) -> None:
        """Look only at what comes from now on."""
        self._from = self._path.stat().st_size

    def entries(self) -> Iterator[dict[str, Any]]:
        with self._path.open("rb") as log:
            log.seek(self._from)
            found = log.read()
        for line in found[: found.rfind(b"\n") + 1].splitlines():
            entry = json.loads(line)
            if entry["user"]["username"] == USER and "objectRef" in entry and what_everybody_may(entry) is None:
                yield entry

    def asked(self) -> set[Right]:
        found = set()
        for entry in self.entries():
            ref = entry["objectRef"]
            resource = "/".join(filter(None, (ref["resource"], ref.get("subresource"))))
            found.add((ref.get("apiGroup", ""), resource, entry["verb"]))
        return found

    def refused(self) -> list[str]:
        return [
            f"{entry['verb']} {entry['requestURI']}"
            for entry in self.entries()
            if entry.get("responseStatus", {}).get("code") in (401, 403)
        ]


Audited = tuple[LocalCluster, Audit]


@pytest.fixture
def audit_arguments(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, str]:
    if request.config.getoption("--cluster") != "local":
        pytest.skip("the audit log of kind's API server is not at hand")
    policy = tmp_path / "audit.yaml"
    policy.write_text(AUDIT % USER, encoding="utf-8")
    return f"--audit-policy-file={policy}", f"--audit-log-path={tmp_path / 'audit.log'}"


@pytest.fixture
def audited(make_cluster: MakeCluster, tmp_path: Path, audit_arguments: tuple[str, str]) -> Audited:
    cluster = make_cluster(Settings(apiserver_args=audit_arguments), nodes=0)
    for index in range(2):
        cluster.client.request("POST", "/api/v1/nodes", node(f"n{index}", zone="z"))
    wait_for(lambda: all(map(ready, cluster.client.request("GET", "/api/v1/nodes")["items"])), "the nodes")
    install(cluster)
    serve_metrics_api(cluster.client)
    return cluster, Audit(tmp_path / "audit.log")


@pytest.fixture
def audited_machines(make_cluster: MakeCluster, tmp_path: Path, audit_arguments: tuple[str, str]) -> Audited:
    cluster = make_cluster(Settings(components=COMPONENTS, apiserver_args=audit_arguments), nodes=0)
    install(cluster)
    return cluster, Audit(tmp_path / "audit.log")


def test_in_all_its_life_the_operator_asks_for_what_it_may_and_no_right_lies_idle(
    audited: Audited, tmp_path: Path
) -> None:
    cluster, audit = audited
    client = cluster.client
    client.request("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    cordon(cluster, "n1", True)
    client.request("POST", "/apis/apps/v1/namespaces/shop/deployments", deployment("web", namespace="shop", replicas=2))
    wait_for(lambda: running(cluster) == 2, "the pods")
    cordon(cluster, "n1", None)
    process = OperatorProcess(cluster, tmp_path, "--controllers=descheduler")
    process.start()
    try:
        # Simulating twice makes the second event join the first one: a patch. Then it acts, and is told to end.
        policy = {"kind": "DeschedulerPolicy", "apiVersion": "trimtab.dev/v1alpha1", "metadata": {"name": "all"}}
        # Of the runs only one is kept, so that the first is deleted.
        spec: dict[str, Any] = {"interval": "5s", "runsHistoryLimit": 1, "strategies": {"RemoveDuplicates": {}}}
        spec["namespaces"] = {"include": ["shop"]}
        client.request("POST", POLICIES, {**policy, "spec": spec})
        wait_for(lambda: ("events.k8s.io", "events", "patch") in audit.asked(), "an event to be repeated", timeout=120)
        client.request("PATCH", f"{POLICIES}/all", {"spec": {"mode": "Act"}}, content_type=MERGE)
        wait_for(lambda: status(cluster).get("evicted") == 1, "the eviction")
        wait_for(lambda: ("coordination.k8s.io", "leases", "update") in audit.asked(), "the lease to be renewed")
        wait_for(lambda: ("trimtab.dev", "deschedulingruns", "delete") in audit.asked(), "an old run to be deleted")
        client.request("PATCH", f"{POLICIES}/all", {"spec": {"strategies": BY_USE}}, content_type=MERGE)
        wait_for(lambda: ("metrics.k8s.io", "pods", "list") in audit.asked(), "real use to be read")
        client.request("DELETE", f"{POLICIES}/all")
        wait_for(lambda: gone(cluster), "the policy to be gone")
    finally:
        assert process.stop() == 0

    assert audit.refused() == []
    assert audit.asked() <= granted("descheduler")
    assert granted("descheduler") - audit.asked() <= {("", "pods", "get")}  # for an eviction whose answer was lost


IN_CASE_OF_CONFLICT = {
    ("", "nodes", "get"),
    ("autoscaling.openshift.io", "machineautoscalers", "get"),
    ("machine.openshift.io", "machines", "get"),
    ("machine.openshift.io", "machinesets/scale", "get"),
}
"""Rights for what somebody wrote in between, or an answer that was lost."""


def test_in_all_its_life_the_autoscaler_asks_for_what_it_may_and_no_right_lies_idle(
    audited_machines: Audited, tmp_path: Path
) -> None:
    cluster, audit = audited_machines
    client = cluster.client
    for namespace in ("shop", MACHINES):
        client.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    label = {"machine.openshift.io/cluster-api-machineset": "workers"}
    capacity = {f"{CAPACITY}/cpu": "4", f"{CAPACITY}/memory": "16Gi"}
    MachineSets(client, MACHINES).make("workers", 1, capacity, template={"metadata": {"labels": label}, "spec": {}})
    limits = {"minReplicas": 1, "maxReplicas": 4, "scaleTargetRef": {"kind": "MachineSet", "name": "workers"}}
    for resource, name, spec, path in (
        (MACHINE_AUTOSCALERS, "w", limits, MACHINE_AUTOSCALERS.path(namespace=MACHINES)),
        (CLUSTER_AUTOSCALERS, "default", QUICKLY, CLUSTER_AUTOSCALERS.path()),
    ):
        head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
        client.request("POST", path, {**head, "spec": spec})
    web = "/apis/apps/v1/namespaces/shop/deployments"
    client.request("POST", web, deployment("web", namespace="shop", replicas=6, cpu="1"))
    process = OperatorProcess(cluster, tmp_path, "--controllers=autoscaler")
    process.start()
    try:
        wait_for(lambda: running(cluster) == 6, "nodes for all pods")
        wait_for(lambda: ("", "configmaps", "patch") in audit.asked(), "the status ConfigMap to be written again")
        containers = [{"name": "main", "image": IMAGE}]
        smaller = {"spec": {"template": {"spec": {"containers": containers}}}}
        client.request("PATCH", f"{web}/web", smaller, content_type=MERGE)
        wait_for(lambda: len(client.request("GET", "/api/v1/nodes")["items"]) == 1, "nodes to go", timeout=120)
        client.request("DELETE", CLUSTER_AUTOSCALERS.path("default"))
        client.request("DELETE", MACHINE_AUTOSCALERS.path("w", namespace=MACHINES))
        wait_for(lambda: not client.request("GET", CLUSTER_AUTOSCALERS.path())["items"], "the autoscaler to be gone")
        wait_for(lambda: not client.request("GET", MACHINE_AUTOSCALERS.path())["items"], "its limits to be gone")
        wait_for(lambda: ("coordination.k8s.io", "leases", "update") in audit.asked(), "the lease to be renewed")
    finally:
        assert process.stop() == 0

    assert audit.refused() == []
    assert audit.asked() <= granted("cluster-autoscaler")
    # Of the two machine APIs this cluster has one; what is asked of the other is the same code.
    here = {right for right in granted("cluster-autoscaler") if right[0] != "cluster.x-k8s.io"}
    seldom = {("", "pods", "get"), ("events.k8s.io", "events", "patch")}  # an event is repeated after five minutes
    assert here - audit.asked() <= seldom | IN_CASE_OF_CONFLICT


RIGHTS = "controllers.taintManager.rights"
ALONE = ("controllers.descheduler.enabled=false", "controllers.clusterAutoscaler.enabled=false")
"""Their roles, bound to the same account, would lend it rights."""

ILL, LEAVING = "example.com/ill", "example.com/leaving"
SHORT = {
    "nodeMonitorPeriod": "1s",
    "nodeMonitorGracePeriod": "5s",
    "nodeStartupGracePeriod": "10s",
    "nodeEvictionRate": 1,
}


@pytest.fixture
def audited_nodes(make_cluster: MakeCluster, tmp_path: Path, audit_arguments: tuple[str, str]) -> Audited:
    """A cluster that nobody but the taint manager sees to the nodes of; kubelets renew each second."""
    kwok = ("--node-lease-duration-seconds=4",)
    cluster = make_cluster(Settings(apiserver_args=audit_arguments, kwok_args=kwok, node_lifecycle=False), nodes=0)
    for index in range(4):
        cluster.client.request("POST", NODES.path(), node(f"n{index}", zone="z"))
    return cluster, Audit(tmp_path / "audit.log")


def test_in_all_its_life_the_taint_manager_asks_for_what_it_may_and_no_right_lies_idle(
    audited_nodes: Audited, tmp_path: Path
) -> None:
    """Its rights are raised from mode to mode, as an administrator does who trusts it more and more."""
    cluster, audit = audited_nodes
    client = cluster.client
    install(cluster, *ALONE, f"{RIGHTS}=Observe")
    wait_for(lambda: served(client, TAINT_MANAGERS.path()), "the TaintManager's kind to be served")
    client.request("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    wait_for(lambda: served(client, "/api/v1/namespaces/shop/serviceaccounts/default"), "the default service account")
    for index in range(4):
        place(client, f"web-{index}", f"n{index}")
    write_manager(client, "Observe")
    process = OperatorProcess(cluster, tmp_path, "--controllers=tainting")
    process.start()
    try:
        # Observing: a pod that is long due goes on.
        taint(client, "n0", ILL)
        wait_for(lambda: manager(client)["status"]["counts"]["overdue"] == 1, "a pod's time to be over")
        wait_for(lambda: ("coordination.k8s.io", "leases", "update") in audit.asked(), "the lease to be renewed")
        assert audit.refused() == []
        assert audit.asked() <= granted("taint-manager", f"{RIGHTS}=Observe")
        assert granted("taint-manager", f"{RIGHTS}=Observe") - audit.asked() <= SELDOM

        # Asked to do more than it may, it says so.
        write_manager(client, "Own")
        wait_for(lambda: condition(client, "Ready") == ("False", "RightsMissing"), "the missing rights to be told")
        [message] = [each["message"] for each in conditions(client) if each["type"] == "Ready"]
        for right in ("delete pods", "create pods/eviction", "patch nodes/status", "patch nodes,", "get nodes"):
            assert right in message
        assert condition(client, "Degraded") == ("True", "RightsMissing")

        # Beside kube-controller-manager: pods go, one by deletion and one by eviction, and nodes are only annotated.
        write_manager(client, "Observe")
        install(cluster, *ALONE, f"{RIGHTS}=EarlierOnly")
        wait_for(lambda: condition(client, "Ready") == ("True", "Observing"), "the mode to be seen")
        audit.mark()
        write_manager(client, "EarlierOnly")
        taint(client, "n1", LEAVING)
        wait_for(lambda: {"web-0", "web-1"}.isdisjoint(pods(client)), "two pods to go")
        wait_for(lambda: SINCE in str(client.request("GET", NODES.path("n1"))["metadata"]), "the annotation")
        # It asks anew for what was missing before; once it has all that this mode needs it is told so.
        wait_for(lambda: condition(client, "Ready") == ("True", "ManagingTaints"), "nothing to be missing")
        assert audit.refused() == []
        earlier = granted("taint-manager", f"{RIGHTS}=EarlierOnly")
        assert audit.asked() <= earlier
        assert earlier - granted("taint-manager", f"{RIGHTS}=Observe") - audit.asked() <= LOST_ANSWERS

        # In its place: nodes are freed of their first taint, one falls silent, and its pod goes.
        write_manager(client, "Observe")
        install(cluster, *ALONE, f"{RIGHTS}=Own")
        wait_for(lambda: condition(client, "Ready") == ("True", "Observing"), "the mode to be seen again")
        audit.mark()
        write_manager(client, "Own")
        wait_for(lambda: not taints(client, "n2"), "a node to be freed")
        silence(client, "n2")
        wait_for(lambda: "web-2" not in pods(client), "the silent node's pod to go", timeout=60)
        silence(client, "n3")
        wait_for(lambda: ("", "configmaps", "patch") in audit.asked(), "the record to be written again", timeout=60)
        client.request("DELETE", TAINT_MANAGERS.path("default"))
        wait_for(lambda: not client.request("GET", TAINT_MANAGERS.path())["items"], "the taint manager to be gone")
    finally:
        assert process.stop() == 0

    assert audit.refused() == []
    own = granted("taint-manager", f"{RIGHTS}=Own")
    assert audit.asked() <= own
    assert own - earlier - audit.asked() == set()
    assert granted("taint-manager") == own, "what the chart gives unless told otherwise"


LOST_ANSWERS = {("", "pods", "get")}
"""For an eviction whose answer was lost."""

SELDOM = {("events.k8s.io", "events", "patch")}
"""An event is repeated after five minutes."""


def write_manager(client: Client, mode: str) -> None:
    policies = [{"key": LEAVING, "policy": "Evict"}]
    manifest = {
        "apiVersion": TAINT_MANAGERS.api_version,
        "kind": TAINT_MANAGERS.kind,
        "metadata": {"name": "default"},
        "spec": {"mode": mode, "taints": policies, "nodeLifecycle": SHORT},
    }
    apply(client, TAINT_MANAGERS.path(), manifest)


def manager(client: Client) -> dict[str, Any]:
    """The TaintManager; with an empty status before it is first written."""
    found: dict[str, Any] = client.request("GET", TAINT_MANAGERS.path("default"))
    return {"status": {"counts": {"overdue": 0}, "conditions": []}} | found


def conditions(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = manager(client)["status"].get("conditions", [])
    return found


def condition(client: Client, kind: str) -> tuple[str, str]:
    """A condition of this generation as status and reason."""
    generation = manager(client)["metadata"]["generation"]
    found = [each for each in conditions(client) if each["type"] == kind and each["observedGeneration"] == generation]
    return (found[0]["status"], found[0]["reason"]) if found else ("", "")


def place(client: Client, name: str, on: str) -> None:
    """A pod on a node, ready at first, that bears nothing for long."""
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
        for key in ("not-ready", "unreachable")
    ]
    spec = {"nodeName": on, "containers": [{"name": "main", "image": IMAGE}], "tolerations": tolerations}
    client.request("POST", PODS.path(namespace="shop"), {"metadata": {"name": name}, "spec": spec})
    path = PODS.path(name, namespace="shop")
    wait_for(lambda: client.request("GET", path)["status"].get("phase") == "Running", f"{name} to run")


def pods(client: Client) -> set[str]:
    """Those that nobody has deleted; of a dead node nobody ends them."""
    found = [each["metadata"] for each in client.request("GET", PODS.path(namespace="shop"))["items"]]
    return {each["name"] for each in found if "deletionTimestamp" not in each}


def taint(client: Client, name: str, key: str) -> None:
    """Put a NoExecute taint on a node as kubectl does, without a time."""
    put = [*taints(client, name), {"key": key, "effect": "NoExecute"}]
    client.request("PATCH", NODES.path(name), {"spec": {"taints": put}}, content_type=MERGE)


def taints(client: Client, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.request("GET", NODES.path(name))["spec"].get("taints") or []
    return found


def silence(client: Client, name: str) -> None:
    """Let a node's kubelet die."""
    client.request("PATCH", NODES.path(name), {"metadata": {"labels": {SILENT: "true"}}}, content_type=MERGE)


def cordon(cluster: LocalCluster, name: str, value: bool | None) -> None:
    cluster.client.request("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": value}}, content_type=MERGE)
    wanted = bool(value)

    def seen() -> bool:
        spec = cluster.client.request("GET", f"/api/v1/nodes/{name}")["spec"]
        return any("unschedulable" in taint["key"] for taint in spec.get("taints") or ()) is wanted

    wait_for(seen, "the cordon to be seen")


def running(cluster: LocalCluster) -> int:
    pods = cluster.client.request("GET", "/api/v1/namespaces/shop/pods")["items"]
    return sum(pod["status"].get("phase") == "Running" for pod in pods)


def status(cluster: LocalCluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.client.request("GET", f"{POLICIES}/all").get("status") or {}
    return found


def gone(cluster: LocalCluster) -> bool:
    try:
        cluster.client.request("GET", f"{POLICIES}/all")
    except NotFound:
        return True
    return False
