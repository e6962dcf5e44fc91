"""Least privilege: the operator's requests in the API server's audit log are compared with its roles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tools.generate.base import render

from examples.demo.workloads import IMAGE, deployment
from tests.conftest import MakeCluster
from tests.fixtures.clusters import create_nodes, require_local_cluster
from tests.fixtures.custom_resources import serve, served
from tests.fixtures.machine_sets import MachineSets
from tests.fixtures.metrics_api import serve_metrics_api
from tests.fixtures.placement_admission import VALIDATING, AdmissionCluster
from tests.fixtures.placement_admission import pod as admission_pod
from tests.fixtures.waiting import wait_for
from trimtab.kube.api import Forbidden, NotFound
from trimtab.kube.resources import (
    BUDGETS,
    CLUSTER_AUTOSCALERS,
    DESCHEDULER_POLICIES,
    EVICTION_REQUESTS,
    MACHINE_AUTOSCALERS,
    NODE_PRESSURE_POLICIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    PRIORITY_CLASSES,
    SCHEDULER_POLICIES,
    STORAGE_CLASSES,
    TAINT_MANAGERS,
    VERTICAL_POD_AUTOSCALERS,
    Resource,
)
from trimtab.kube.rules.taints import NOT_READY
from trimtab.tainting.deadlines import SINCE_ANNOTATION as SINCE
from trimtab_local.client import Client
from trimtab_local.cluster import LocalCluster
from trimtab_local.components import DEFAULT_COMPONENTS, WITH_MACHINES, Settings
from trimtab_local.install import NAMESPACE, RELEASE, OperatorProcess, apply, install
from trimtab_local.nodes import SILENT, node, ready
from trimtab_local.versions import KUBELET_STATS

USER = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
ADMISSION = f"{RELEASE}-admission"
ADMISSION_USER = f"system:serviceaccount:{NAMESPACE}:{ADMISSION}"
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


HISTORY = {("trimtab.dev", "historyrecords", verb) for verb in ("get", "create", "patch", "delete")}
"""Records are created and extended with the first actions, read after a conflict, and deleted after a week."""
STANDBY = {("coordination.k8s.io", "leases", "watch")}
"""A standby replica watches the Lease of the leader."""


def granted(controller: str, *values: str) -> set[Right]:
    """Group, resource with subresource, and verb of every permission that the chart grants a controller."""
    roles_of_all = (f"{RELEASE}-lease", f"{RELEASE}-acting", f"{RELEASE}-history")
    names = (*(f"{RELEASE}-{controller}{suffix}" for suffix in ("", "-status", "-record")), *roles_of_all)
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
    """The resource of a request that ClusterRole system:basic-user permits to every account, or None."""
    resource: str = entry["objectRef"]["resource"]
    return resource if resource in ("selfsubjectaccessreviews", "selfsubjectrulesreviews") else None


def granted_to(account: str, *values: str) -> set[Right]:
    """The permissions of all roles that the chart binds to a service account."""
    made = render(*(part for value in values for part in ("--set", value)))
    names = {
        (each["roleRef"]["kind"], each["roleRef"]["name"])
        for each in made
        if each["kind"].endswith("RoleBinding") and account in [subject["name"] for subject in each["subjects"]]
    }
    return {
        (group, resource, verb)
        for each in made
        if (each["kind"], each["metadata"]["name"]) in names
        for rule in each["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


class Audit:
    """The API server's audit log, with the requests of one user."""

    def __init__(self, path: Path, user: str = USER) -> None:
        self._path = path
        self._user = user
        self._from = 0

    def mark(self) -> None:
        """Ignore all requests until now."""
        self._from = self._path.stat().st_size

    def entries(self) -> Iterator[dict[str, Any]]:
        with self._path.open("rb") as log:
            log.seek(self._from)
            found = log.read()
        for line in found[: found.rfind(b"\n") + 1].splitlines():
            entry = json.loads(line)
            if entry["user"]["username"] == self._user and "objectRef" in entry and what_everybody_may(entry) is None:
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
    require_local_cluster(request, "these tests need the audit log of a local control plane")
    policy = tmp_path / "audit.yaml"
    policy.write_text(AUDIT % f"{USER}, {ADMISSION_USER}", encoding="utf-8")
    return f"--audit-policy-file={policy}", f"--audit-log-path={tmp_path / 'audit.log'}"


@pytest.fixture
def audited(make_cluster: MakeCluster, tmp_path: Path, audit_arguments: tuple[str, str]) -> Audited:
    cluster = make_cluster(Settings(apiserver_args=audit_arguments), nodes=0)
    create_nodes(cluster.client, (node(f"n{index}", zone="z") for index in range(2)))
    install(cluster)
    serve_metrics_api(cluster.client)
    serve(cluster.client, VERTICAL_POD_AUTOSCALERS, EVICTION_REQUESTS)
    return cluster, Audit(tmp_path / "audit.log")


@pytest.fixture
def audited_machines(make_cluster: MakeCluster, tmp_path: Path, audit_arguments: tuple[str, str]) -> Audited:
    cluster = make_cluster(Settings(components=WITH_MACHINES, apiserver_args=audit_arguments), nodes=0)
    install(cluster)
    serve(cluster.client, VERTICAL_POD_AUTOSCALERS, EVICTION_REQUESTS)
    return cluster, Audit(tmp_path / "audit.log")


def test_descheduler_uses_all_of_its_rbac_and_needs_no_more(audited: Audited, tmp_path: Path) -> None:
    cluster, audit = audited
    client = cluster.client
    client.request("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    cordon(cluster, "n1", True)
    client.request("POST", "/apis/apps/v1/namespaces/shop/deployments", deployment("web", namespace="shop", replicas=2))
    wait_for(lambda: running(cluster) == 2, "the pods")
    cordon(cluster, "n1", None)
    process = OperatorProcess(cluster, tmp_path, "--controllers=descheduler")
    standby = OperatorProcess(cluster, tmp_path, "--controllers=descheduler", name="standby")
    process.start()
    try:
        standby.start()
        wait_for(lambda: audit.asked() >= STANDBY, "the standby to watch the Lease")
        assert standby.stop() == 0
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
    lost_answers = {("", "pods", "get")}  # of evictions
    assert granted("descheduler") - audit.asked() <= lost_answers | HISTORY


IN_CASE_OF_CONFLICT = {
    ("", "nodes", "get"),
    ("autoscaling.openshift.io", "machineautoscalers", "get"),
    ("machine.openshift.io", "machines", "get"),
    ("machine.openshift.io", "machinesets/scale", "get"),
}
"""Rights for what somebody wrote in between, or an answer that was lost."""


def test_autoscaler_uses_all_of_its_rbac_and_needs_no_more(audited_machines: Audited, tmp_path: Path) -> None:
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
    # Without it the operator searches the MachineAutoscalers' namespaces too, where it has no permission.
    priorities = {"metadata": {"name": "cluster-autoscaler-priority-expander"}, "data": {"priorities": "10: [.*]"}}
    client.request("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", priorities)
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
    assert here - audit.asked() <= seldom | IN_CASE_OF_CONFLICT | HISTORY | STANDBY


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
    """A cluster without the node lifecycle of kube-controller-manager; kubelets renew their Leases every second."""
    kwok = ("--node-lease-duration-seconds=4",)
    cluster = make_cluster(Settings(apiserver_args=audit_arguments, kwok_args=kwok, node_lifecycle=False), nodes=0)
    for index in range(4):
        cluster.client.request("POST", NODES.path(), node(f"n{index}", zone="z"))
    return cluster, Audit(tmp_path / "audit.log")


def test_taint_manager_uses_all_of_its_rbac_and_needs_no_more(audited_nodes: Audited, tmp_path: Path) -> None:
    """The test raises its permissions from mode to mode, as an administrator would."""
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
        assert granted("taint-manager", f"{RIGHTS}=Observe") - audit.asked() <= SELDOM | HISTORY

        # Asked to do more than it may, it says so.
        write_manager(client, "TaintAndEvict")
        wait_for(
            lambda: condition(client, "Ready") == ("False", "PermissionsMissing"), "the missing rights to be reported"
        )
        [message] = [each["message"] for each in conditions(client) if each["type"] == "Ready"]
        for right in ("delete pods", "create pods/eviction", "patch nodes/status", "patch nodes,", "get nodes"):
            assert right in message
        assert condition(client, "PermissionsMissing") == ("True", "PermissionsMissing")
        assert condition(client, "Degraded")[0] == "True"

        # Beside kube-controller-manager: pods go, one by deletion and one by eviction, and nodes are only annotated.
        write_manager(client, "Observe")
        install(cluster, *ALONE, f"{RIGHTS}=EvictPods")
        wait_for(lambda: condition(client, "Ready") == ("True", "Observing"), "the mode to be seen")
        audit.mark()
        write_manager(client, "EvictPods")
        taint(client, "n1", LEAVING)
        wait_for(lambda: {"web-0", "web-1"}.isdisjoint(pods(client)), "two pods to go")
        wait_for(lambda: SINCE in str(client.request("GET", NODES.path("n1"))["metadata"]), "the annotation")
        # It asks anew for what was missing before; once it has all that this mode needs it is told so.
        wait_for(lambda: condition(client, "Ready") == ("True", "ManagingTaints"), "nothing to be missing")
        assert audit.refused() == []
        earlier = granted("taint-manager", f"{RIGHTS}=EvictPods")
        assert audit.asked() <= earlier
        assert earlier - granted("taint-manager", f"{RIGHTS}=Observe") - audit.asked() <= LOST_ANSWERS

        # In its place: nodes are freed of their first taint, one falls silent, and its pod goes.
        write_manager(client, "Observe")
        install(cluster, *ALONE, f"{RIGHTS}=TaintAndEvict")
        wait_for(lambda: condition(client, "Ready") == ("True", "Observing"), "the mode to be seen again")
        wait_for(lambda: may_taint(cluster), "the API server to read the changed admission policies")
        audit.mark()
        write_manager(client, "TaintAndEvict")
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
    own = granted("taint-manager", f"{RIGHTS}=TaintAndEvict")
    assert audit.asked() <= own
    assert own - earlier - audit.asked() == set()
    assert granted("taint-manager") == granted("taint-manager", f"{RIGHTS}=Observe"), "the chart's default"


LOST_ANSWERS = {("", "pods", "get")}
"""For an eviction whose answer was lost."""

SELDOM = {("events.k8s.io", "events", "patch")}
"""An event is repeated after five minutes."""


SCHEDULER_ONLY = (*ALONE, "controllers.taintManager.enabled=false", "controllers.scheduler.enabled=true")


def test_scheduler_uses_all_of_its_rbac_and_needs_no_more(audited_scheduling: Audited, tmp_path: Path) -> None:
    cluster, audit = audited_scheduling
    client = cluster.client
    policy = {"schedulerName": "packing", "profile": {"scoringStrategy": {"type": "MostAllocated"}}}
    client.request("POST", SCHEDULER_POLICIES.path(), {**head(SCHEDULER_POLICIES, "packing"), "spec": policy})
    process = OperatorProcess(cluster, tmp_path, "--controllers=scheduler")
    process.start()
    try:
        # Bindings, with a volume that exists and one that must be provisioned.
        pending(client, "low", cpu="2")
        pending(client, "guarded", cpu="2")
        pending(client, "large", cpu="1000")
        pending(client, "volume", claim="existing")
        pending(client, "provisioned", claim="provisioned")
        wait_for(lambda: node_of(client, "low") and node_of(client, "guarded"), "two pods to be bound")
        wait_for(lambda: node_of(client, "volume"), "a pod with a volume to be bound")
        wait_for(lambda: scheduled_reason(client, "large") == "Unschedulable", "the condition of a pod")
        # As a provisioner does it: the volume appears once the scheduler has selected the node.
        wait_for(lambda: selected_node(client, "provisioned") == "n0", "the node of a claim")
        assert not node_of(client, "provisioned")
        uid = client.request("GET", PERSISTENT_VOLUME_CLAIMS.path("provisioned", namespace="shop"))["metadata"]["uid"]
        reference = {"kind": "PersistentVolumeClaim", "namespace": "shop", "name": "provisioned", "uid": uid}
        make_volume(client, "made", "provisioned", claimRef=reference)
        wait_for(lambda: node_of(client, "provisioned"), "a pod with a provisioned volume to be bound")
        # Preemptions: an eviction, and a deletion against a PodDisruptionBudget.
        pending(client, "urgent", cpu="2", priority="high")
        wait_for(lambda: node_of(client, "urgent"), "the first preemption")
        assert "low" not in pods(client)
        pending(client, "later", cpu="2", priority="high")
        wait_for(lambda: node_of(client, "later"), "the second preemption")
        assert "guarded" not in pods(client)
        wait_for(lambda: ("coordination.k8s.io", "leases", "update") in audit.asked(), "the lease to be renewed")
        [shown] = client.request("GET", SCHEDULER_POLICIES.path())["items"]
        assert {each["type"]: each["status"] for each in shown["status"]["conditions"]}["Ready"] == "True"
        client.request("DELETE", SCHEDULER_POLICIES.path("packing"))
        wait_for(lambda: not client.request("GET", SCHEDULER_POLICIES.path())["items"], "the policy to be gone")
    finally:
        assert process.stop() == 0

    assert audit.refused() == []
    mine = granted("scheduler", *SCHEDULER_ONLY)
    assert audit.asked() <= mine
    conflicts = {("", kind, "get") for kind in ("persistentvolumes", "persistentvolumeclaims")}
    assert mine - audit.asked() <= SELDOM | LOST_ANSWERS | HISTORY | STANDBY | conflicts


PRESSURE_ONLY = (*ALONE, "controllers.taintManager.enabled=false", "controllers.pressure.enabled=true")
USAGE = """\
nodes:
- {measureEvery: 1s, memory: {capacity: 1000Mi, used: {start: 50Mi}}}
pods:
- {labels: {name: leak}, memory: {start: 700Mi}}
- {labels: {name: guarded}, memory: {start: 700Mi}}
"""
"""What nodes and pods use. A node has 1000Mi of memory."""


@pytest.fixture
def audited_kubelets(make_cluster: MakeCluster, tmp_path: Path, audit_arguments: tuple[str, str]) -> Audited:
    """A cluster whose kubelets serve stats; the operator has the chart's permissions for node pressure only."""
    (tmp_path / "usage.yaml").write_text(USAGE, encoding="utf-8")
    settings = Settings(
        components=(*DEFAULT_COMPONENTS, KUBELET_STATS),
        apiserver_args=audit_arguments,
        stats_scenario=str(tmp_path / "usage.yaml"),
    )
    cluster = make_cluster(settings, nodes=0)
    create_nodes(cluster.client, (node(f"n{index}", zone="z") for index in range(3)))
    serve_metrics_api(cluster.client)
    install(cluster, *PRESSURE_ONLY)
    wait_for(lambda: served(cluster.client, NODE_PRESSURE_POLICIES.path()), "NodePressurePolicies to be served")
    cluster.client.request("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    path = "/api/v1/namespaces/shop/serviceaccounts/default"
    wait_for(lambda: served(cluster.client, path), "the default service account")
    return cluster, Audit(tmp_path / "audit.log")


def test_node_pressure_uses_all_of_its_rbac_and_needs_no_more(audited_kubelets: Audited, tmp_path: Path) -> None:
    cluster, audit = audited_kubelets
    client = cluster.client
    budget = {"maxUnavailable": 0, "selector": {"matchLabels": {"name": "guarded"}}}
    client.request("POST", BUDGETS.path(namespace="shop"), {**head(BUDGETS, "guarded"), "spec": budget})
    for name, on in (("leak", "n0"), ("guarded", "n1"), ("failed", "n2")):
        labels = {"metadata": {"name": name, "labels": {"name": name}}}
        spec = {"nodeName": on, "containers": [{"name": "main", "image": IMAGE}]}
        client.request("POST", PODS.path(namespace="shop"), {**labels, "spec": spec})
    wait_for(lambda: running_pods(client) == {"leak", "guarded", "failed"}, "the pods to run")
    failed = {"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}}
    path = PODS.path("failed", namespace="shop", subresource="status")
    client.request("PATCH", path, failed, content_type=MERGE)
    spec = {
        "mode": "Act",
        "monitoringInterval": "5s",
        "evictionHard": {"memory.available": "400Mi"},
        "evictionPressureTransitionPeriod": "1s",
        "deleteAfter": "0s",
        "failedPods": {"after": "0s", "keepPerOwner": 0},
    }
    client.request("POST", NODE_PRESSURE_POLICIES.path(), {**head(NODE_PRESSURE_POLICIES, "all"), "spec": spec})
    process = OperatorProcess(cluster, tmp_path, "--controllers=pressure")
    process.start()
    try:
        # An eviction, a deletion because a budget refuses the eviction, and a failed pod.
        wait_for(lambda: not pods(client), "all pods to leave", timeout=90)
        # A kubelet that does not respond: the memory is read from metrics.k8s.io.
        broken = f"{USAGE}faults:\n- {{names: [n2], fault: ServerError}}\n"
        (tmp_path / "usage.yaml").write_text(broken, encoding="utf-8")
        wait_for(lambda: ("metrics.k8s.io", "nodes", "list") in audit.asked(), "metrics to be read", timeout=60)
        wait_for(lambda: ("coordination.k8s.io", "leases", "update") in audit.asked(), "the lease to be renewed")
        client.request("DELETE", NODE_PRESSURE_POLICIES.path("all"))
        wait_for(lambda: not client.request("GET", NODE_PRESSURE_POLICIES.path())["items"], "the policy to be gone")
        for index in range(3):
            found = client.request("GET", NODES.path(f"n{index}"))
            assert "pressure.trimtab.dev" not in json.dumps([found["spec"], found["status"]["conditions"]])
            assert "pressure.trimtab.dev/state" not in found["metadata"].get("annotations", {})
    finally:
        assert process.stop() == 0

    assert audit.refused() == []
    mine = granted_to(RELEASE, *PRESSURE_ONLY)
    assert audit.asked() <= mine
    # For a conflicting write, and for a node under pressure whose kubelet does not respond.
    unused = {("", "nodes", "get"), ("metrics.k8s.io", "pods", "list")}
    assert mine - audit.asked() <= SELDOM | LOST_ANSWERS | HISTORY | STANDBY | unused


def running_pods(client: Client) -> set[str]:
    found = client.request("GET", PODS.path(namespace="shop"))["items"]
    return {each["metadata"]["name"] for each in found if each["status"].get("phase") == "Running"}


@pytest.fixture
def audited_admission(
    make_cluster: MakeCluster, tmp_path: Path, audit_arguments: tuple[str, str]
) -> Iterator[tuple[AdmissionCluster, Audit]]:
    cluster = make_cluster(Settings(apiserver_args=audit_arguments), nodes=0)
    with ExitStack() as stack:
        kinds = [f"controllers.{each}.enabled=true" for each in ("clusterAutoscaler", "scheduler", "pressure")]
        admission = AdmissionCluster(cluster, tmp_path, stack, values=kinds)
        yield admission, Audit(tmp_path / "audit.log", ADMISSION_USER)


def test_admission_role_uses_all_of_its_rbac_and_needs_no_more(
    audited_admission: tuple[AdmissionCluster, Audit],
) -> None:
    admission, audit = audited_admission
    client = admission.client
    namespace = admission.namespace()
    replica = admission.start()
    admission.enforce(podNodeConstraints={"nodeSelectorLabelBlacklist": ["region"]}, podNodeSelector={})
    wait_for(lambda: reason(admission, "Ready") == ("True", "Enforcing"), "the rules to be in force", timeout=30)
    with pytest.raises(Forbidden, match="node selection by nodeName is prohibited by policy for your role"):
        admission.dev.create(PODS, admission_pod(nodeName="n0"), namespace=namespace)
    target = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": "own"}
    own: dict[Resource, dict[str, Any]] = {
        DESCHEDULER_POLICIES: {"strategies": {"RemoveDuplicates": {}}},
        SCHEDULER_POLICIES: {"schedulerName": "own"},
        NODE_PRESSURE_POLICIES: {"evictionHard": {"memory.available": "1Gi"}},
        MACHINE_AUTOSCALERS: {"minReplicas": 1, "maxReplicas": 2, "scaleTargetRef": target},
    }
    for kind, spec in own.items():
        client.request(
            "POST", kind.path(namespace=namespace if kind.namespaced else ""), {**head(kind, "own"), "spec": spec}
        )
    wait_for(lambda: admission.policy()["status"].get("refused"), "the refusal to be counted", timeout=30)

    assert audit.refused() == []
    mine = granted_to(ADMISSION, "admission.enabled=true")
    assert audit.asked() <= mine
    seldom = {("events.k8s.io", "events", "create"), ("events.k8s.io", "events", "patch"), ("", "namespaces", "get")}
    # API servers that cannot stream lists over watches are asked for a list first.
    streamed = {(group, kind, "list") for group, kind, verb in audit.asked() if verb == "watch"}
    assert mine - audit.asked() <= seldom | streamed

    # If an administrator deletes the webhooks of a failing replica, it cannot restore them.
    path = VALIDATING.path(ADMISSION)
    client.request("DELETE", path)
    wait_for(lambda: reason(admission, "Ready") == ("False", "WebhooksNotRegistered"), "the status", timeout=30)
    wait_for(lambda: ("events.k8s.io", "events", "create") in audit.asked(), "an event", timeout=30)
    assert reason(admission, "Degraded") == ("True", "ReplicaDegraded")
    assert {each.partition("?")[0] for each in audit.refused()} == {f"patch {path}"}
    with pytest.raises(NotFound):
        client.request("GET", path)
    assert replica.stop() == 0
    assert admission.policy()["status"].get("replicas", []) == []


def reason(admission: AdmissionCluster, type_: str) -> tuple[str, str]:
    found = admission.condition(type_)
    return found.get("status", ""), found.get("reason", "")


@pytest.fixture
def audited_scheduling(make_cluster: MakeCluster, tmp_path: Path, audit_arguments: tuple[str, str]) -> Audited:
    """A node for two pods with 2 CPUs, a PodDisruptionBudget for one of them, and claims."""
    cluster = make_cluster(Settings(apiserver_args=audit_arguments), nodes=0)
    client = cluster.client
    capacity = {"cpu": "4500m", "memory": "16Gi", "pods": "110"}
    client.request("POST", NODES.path(), node("n0", zone="z", capacity=capacity))
    wait_for(lambda: all(map(ready, client.request("GET", NODES.path())["items"])), "the node")
    install(cluster, *SCHEDULER_ONLY)
    serve(client, VERTICAL_POD_AUTOSCALERS, EVICTION_REQUESTS)
    wait_for(lambda: served(client, SCHEDULER_POLICIES.path()), "the SchedulerPolicy's kind to be served")
    client.request("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    wait_for(lambda: served(client, "/api/v1/namespaces/shop/serviceaccounts/default"), "the default service account")
    client.request("POST", PRIORITY_CLASSES.path(), {**head(PRIORITY_CLASSES, "high"), "value": 1000})
    selector = {"matchLabels": {"app": "guarded"}}
    budget = {**head(BUDGETS, "guarded"), "spec": {"minAvailable": 1, "selector": selector}}
    client.request("POST", BUDGETS.path(namespace="shop"), budget)
    late = {"volumeBindingMode": "WaitForFirstConsumer"}
    for name, provisioner in (("existing", "kubernetes.io/no-provisioner"), ("provisioned", "example.com/test")):
        body = {**head(STORAGE_CLASSES, name), "provisioner": provisioner, **late}
        client.request("POST", STORAGE_CLASSES.path(), body)
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": name,
            "resources": {"requests": {"storage": "1Gi"}},
        }
        path = PERSISTENT_VOLUME_CLAIMS.path(namespace="shop")
        client.request("POST", path, {**head(PERSISTENT_VOLUME_CLAIMS, name), "spec": claim})
    make_volume(client, "local", "existing")
    return cluster, Audit(tmp_path / "audit.log")


def head(resource: Resource, name: str) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}


def make_volume(client: Client, name: str, class_name: str, **spec: Any) -> None:
    """Create a volume on the node n0."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n0"]}
    volume = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": class_name,
        "local": {"path": "/mnt"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        **spec,
    }
    client.request("POST", PERSISTENT_VOLUMES.path(), {**head(PERSISTENT_VOLUMES, name), "spec": volume})


def selected_node(client: Client, claim: str) -> str:
    """Return the node for which a provisioner must create the volume of a claim; empty for none."""
    found = client.request("GET", PERSISTENT_VOLUME_CLAIMS.path(claim, namespace="shop"))["metadata"]
    return str(found.get("annotations", {}).get("volume.kubernetes.io/selected-node", ""))


def pending(client: Client, name: str, *, cpu: str = "100m", priority: str = "", claim: str = "") -> None:
    """Create a pod that names the scheduler packing."""
    container = {"name": "main", "image": IMAGE, "resources": {"requests": {"cpu": cpu}}}
    spec: dict[str, Any] = {"schedulerName": "packing", "containers": [container], "terminationGracePeriodSeconds": 0}
    if priority:
        spec["priorityClassName"] = priority
    if claim:
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    manifest = {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}
    client.request("POST", PODS.path(namespace="shop"), manifest)


def node_of(client: Client, name: str) -> str:
    found: str = client.request("GET", PODS.path(name, namespace="shop"))["spec"].get("nodeName", "")
    return found


def scheduled_reason(client: Client, name: str) -> str:
    found = client.request("GET", PODS.path(name, namespace="shop"))["status"].get("conditions") or []
    return next((each.get("reason", "") for each in found if each["type"] == "PodScheduled"), "")


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
    """The TaintManager; its status is empty before it is first written."""
    found: dict[str, Any] = client.request("GET", TAINT_MANAGERS.path("default"))
    return {"status": {"counts": {"overdue": 0}, "conditions": []}} | found


def conditions(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = manager(client)["status"].get("conditions", [])
    return found


def condition(client: Client, kind: str) -> tuple[str, str]:
    """Status and reason of a condition of the current generation."""
    generation = manager(client)["metadata"]["generation"]
    found = [each for each in conditions(client) if each["type"] == kind and each["observedGeneration"] == generation]
    return (found[0]["status"], found[0]["reason"]) if found else ("", "")


def place(client: Client, name: str, on: str) -> None:
    """Create a ready pod on a node that tolerates taints only briefly."""
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
        for key in ("not-ready", "unreachable")
    ]
    spec = {"nodeName": on, "containers": [{"name": "main", "image": IMAGE}], "tolerations": tolerations}
    client.request("POST", PODS.path(namespace="shop"), {"metadata": {"name": name}, "spec": spec})
    path = PODS.path(name, namespace="shop")
    wait_for(lambda: client.request("GET", path)["status"].get("phase") == "Running", f"{name} to run")


def pods(client: Client) -> set[str]:
    """Pods without a deletion timestamp; the kubelet of a dead node never removes its pods."""
    found = [each["metadata"] for each in client.request("GET", PODS.path(namespace="shop"))["items"]]
    return {each["name"] for each in found if "deletionTimestamp" not in each}


def taint(client: Client, name: str, key: str) -> None:
    """Add a NoExecute taint without timeAdded, as kubectl does."""
    put = [*taints(client, name), {"key": key, "effect": "NoExecute"}]
    client.request("PATCH", NODES.path(name), {"spec": {"taints": put}}, content_type=MERGE)


def may_taint(cluster: LocalCluster) -> bool:
    """Whether the operator may add the not-ready taint; the API server reloads admission policies every second."""
    token = cluster.service_account_token(NAMESPACE, RELEASE)
    client = Client(server=cluster.server, token=token, ca=Path(cluster.ca))
    body = {"spec": {"taints": [*taints(cluster.client, "n3"), {"key": NOT_READY, "effect": "NoExecute"}]}}
    try:
        client.request("PATCH", NODES.path("n3"), body, params={"dryRun": "All"}, content_type=MERGE)
    except Forbidden:
        return False
    return True


def taints(client: Client, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.request("GET", NODES.path(name))["spec"].get("taints") or []
    return found


def silence(client: Client, name: str) -> None:
    """Stop the kubelet of a node."""
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


def test_removed_permission_is_reported_and_its_return_noticed_within_ten_seconds(
    audited_nodes: Audited, tmp_path: Path
) -> None:
    cluster, _ = audited_nodes
    client = cluster.client
    install(cluster, *ALONE, f"{RIGHTS}=EvictPods")
    wait_for(lambda: served(client, TAINT_MANAGERS.path()), "the TaintManager's kind to be served")
    write_manager(client, "EvictPods")
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/trimtab-taint-manager"
    process = OperatorProcess(cluster, tmp_path, "--controllers=tainting")
    process.start()
    try:
        wait_for(lambda: condition(client, "PermissionsMissing")[0] == "False", "the permissions to be complete")
        wait_for(lambda: condition(client, "Ready")[0] == "True", "the TaintManager to be ready")
        role = client.request("GET", path)
        rules = [rule for rule in role["rules"] if rule["resources"] != ["pods/status"]]
        client.request("PUT", path, {**role, "rules": rules})
        wait_for(lambda: condition(client, "Ready") == ("False", "PermissionsMissing"), "the report", timeout=10)
        [message] = [each["message"] for each in conditions(client) if each["type"] == "PermissionsMissing"]
        assert "patch pods/status (chart value controllers.taintManager.rights=EvictPods)" in message

        role = client.request("GET", path)
        rules = [*rules, {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}]
        client.request("PUT", path, {**role, "rules": rules})
        wait_for(lambda: condition(client, "Ready") == ("True", "ManagingTaints"), "the return", timeout=10)
        assert condition(client, "PermissionsMissing") == ("False", "PermissionsGranted")
    finally:
        process.stop()
