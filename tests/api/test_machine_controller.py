"""`trimtab local up --machines`: OpenShift's MachineSets and Machines, and the nodes that they create."""

from __future__ import annotations

import os
import signal

import pytest

from tests.fixtures.machine_sets import MachineSets
from tests.fixtures.waiting import eventually, patiently
from trimtab.kube.api import Invalid, NotFound
from trimtab.kube.resources import MACHINES, NODES, PODS
from trimtab_local.cluster import LocalCluster
from trimtab_local.processes import alive
from trimtab_local.versions import MACHINE_CONTROLLER

ORDER = "local.trimtab.dev"
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io"
JSON_PATCH = "application/json-patch+json"


def test_machine_set_becomes_ready_nodes_of_its_shape(sets: MachineSets) -> None:
    sets.make("a", 2, {f"{CAPACITY}/cpu": "4", f"{CAPACITY}/memory": "16Gi", "trimtab.dev/reserved": "cpu=500m"})

    machines = sets.running("a", 2)

    for name, machine in machines.items():
        node = sets.nodes("a")[machine["status"]["nodeRef"]["name"]]
        assert node["metadata"]["uid"] == machine["status"]["nodeRef"]["uid"]
        assert node["metadata"]["annotations"]["machine.openshift.io/machine"] == f"{sets.namespace}/{name}"
        assert node["spec"]["providerID"] == machine["spec"]["providerID"]
        assert {"key": "only", "value": "a", "effect": "NoSchedule"} in node["spec"]["taints"]
        assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "zone-b"
        assert (node["status"]["capacity"]["cpu"], node["status"]["allocatable"]["cpu"]) == ("4", "3500m")
        assert machine["metadata"]["finalizers"] == ["machine.machine.openshift.io"]
    wanted = {"replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 2}
    eventually(lambda: wanted.items() <= sets.get("a")["status"].items(), what="the status tells all that")


def test_nodes_get_the_taints_of_machine_set_and_machine(sets: MachineSets) -> None:
    """As in OpenShift: nodes get new taints of a MachineSet after a scale to 0 replicas; taints of others are kept."""
    merge = "application/merge-patch+json"
    sets.make("a", 1)
    [name] = sets.running("a", 1)
    others = {"key": "by-hand", "value": "x", "effect": "PreferNoSchedule"}
    sets.client.request(
        "PATCH", NODES.path(name), [{"op": "add", "path": "/spec/taints/-", "value": others}], content_type=JSON_PATCH
    )
    new = [{"key": "only", "value": "a", "effect": "NoSchedule"}, {"key": "key1", "value": "v", "effect": "NoExecute"}]
    sets.patch("a", {"spec": {"template": {"spec": {"taints": new}}}})
    machine = MACHINES.path(name, namespace=sets.namespace)
    own = [{"key": "own", "effect": "NoSchedule"}]
    sets.client.request("PATCH", machine, {"spec": {"taints": own}}, content_type=merge)

    def taints(node: str) -> list[tuple[str, str]]:
        there = sets.nodes("a")[node]["spec"].get("taints", [])
        return [(each["key"], each["effect"]) for each in there if not each["key"].startswith("node.kubernetes.io/")]

    expected = [("only", "NoSchedule"), ("by-hand", "PreferNoSchedule"), ("own", "NoSchedule")]
    eventually(lambda: taints(name) == expected, what="the machine's own taint was added")
    sets.client.request("PATCH", NODES.path(name), {"spec": {"taints": None}}, content_type=merge)
    eventually(lambda: taints(name) == [("own", "NoSchedule")], what="what the machine has comes back")
    sets.scale("a", 0)
    sets.running("a", 0)
    sets.scale("a", 2)
    for each in sets.running("a", 2):
        assert taints(each) == [("only", "NoSchedule"), ("key1", "NoExecute")]


@pytest.mark.live
def test_one_hundred_machines_boot_and_terminate_concurrently(sets: MachineSets) -> None:
    sets.make("many", 100)

    sets.running("many", 100)
    eventually(lambda: sets.get("many")["status"].get("readyReplicas") == 100, what="all are ready")
    sets.scale("many", 0)

    sets.running("many", 0)
    assert not sets.nodes("many")


def test_marked_machine_is_deleted_with_its_node(sets: MachineSets) -> None:
    sets.make("a", 3)
    machines = sets.running("a", 3)
    chosen = max(machines)  # by name alone the first would go

    sets.mark(chosen)
    sets.scale("a", 2)

    left = sets.running("a", 2)
    assert set(left) == set(machines) - {chosen}
    assert set(sets.nodes("a")) == set(left)


def test_failed_machine_is_deleted_before_the_marked_one(sets: MachineSets) -> None:
    """The Machine API ranks both equally; here the name decides."""
    sets.make("a", 2)
    marked = min(sets.running("a", 2))
    sets.annotate("a", {f"{ORDER}/fail": "InsufficientResources:1"})
    sets.scale("a", 3)
    machines = sets.phases("a", "Running", "Running", "Failed")
    [failed] = [name for name, each in machines.items() if each["status"]["phase"] == "Failed"]

    sets.mark(marked)
    sets.scale("a", 2)

    left = eventually(lambda: len(found := set(sets.machines("a"))) == 2 and found, what="two are left")
    assert set(machines) - left == {min(marked, failed)}


def test_requested_number_of_machines_fails(sets: MachineSets) -> None:
    sets.make("a", 3, {f"{ORDER}/fail": "InsufficientResources:2"})

    machines = sets.phases("a", "Failed", "Failed", "Running")

    failed = [each["status"] for each in machines.values() if each["status"]["phase"] == "Failed"]
    assert {each["errorReason"] for each in failed} == {"InsufficientResources"}
    assert f"{ORDER}/fail" not in sets.get("a")["metadata"].get("annotations", {})
    sets.scale("a", 4)
    sets.phases("a", "Failed", "Failed", "Running", "Running")


def test_machines_beyond_the_quota_fail(sets: MachineSets) -> None:
    sets.make("a", 2, {f"{ORDER}/quota": "2"})
    sets.running("a", 2)

    sets.scale("a", 4)

    sets.phases("a", "Running", "Running", "Failed", "Failed")
    assert len(sets.nodes("a")) == 2


def test_machine_without_registration_is_provisioned_without_a_node(sets: MachineSets) -> None:
    sets.make("a", 2, {f"{ORDER}/never-join": "1"})

    machines = sets.phases("a", "Provisioned", "Running")

    assert all(each["spec"]["providerID"] for each in machines.values())
    assert len(sets.nodes("a")) == 1


def test_held_machine_set_is_not_reconciled_and_false_status_is_reported(sets: MachineSets) -> None:
    sets.make("a", 1)
    sets.running("a", 1)

    sets.annotate("a", {f"{ORDER}/hold": "true", f"{ORDER}/status-replicas": "7"})
    sets.scale("a", 3)

    generation = sets.get("a")["metadata"]["generation"]
    status = eventually(
        lambda: (found := sets.get("a")["status"]).get("observedGeneration") == generation and found, what="it looked"
    )
    assert (status["replicas"], status["readyReplicas"]) == (7, 1)
    assert len(sets.machines("a")) == 1


def test_invalid_machine_set_creates_no_machines_and_reports_the_error(sets: MachineSets) -> None:
    sets.make("a", 1, {f"{ORDER}/quota": "many"})

    status = eventually(
        lambda: (found := sets.get("a").get("status", {})).get("errorReason") and found, what="the error is reported"
    )

    assert status["errorReason"] == "InvalidConfiguration"
    assert "local.trimtab.dev/quota" in status["errorMessage"]
    assert not sets.machines("a")
    sets.annotate("a", {f"{ORDER}/quota": None})
    sets.running("a", 1)
    eventually(lambda: "errorReason" not in sets.get("a")["status"], what="it is well again")


def test_killed_machine_controller_resumes(machine_cluster: LocalCluster, sets: MachineSets) -> None:
    sets.make("a", 3, {f"{ORDER}/boot-time": f"{patiently(8):.0f}s"})
    sets.phases("a", "Provisioning", "Provisioning", "Provisioning")
    before = set(sets.machines("a"))

    process = machine_cluster.record().started[MACHINE_CONTROLLER].process
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: not alive(process), what="it is dead")
    assert not machine_cluster.status().healthy
    machine_cluster.up()

    assert set(sets.running("a", 3)) == before


def test_machine_drains_its_node_before_deletion(sets: MachineSets) -> None:
    sets.make("a", 1)
    [machine] = sets.running("a", 1).values()
    client, pods = sets.client, PODS.path(namespace=sets.namespace)
    eventually(lambda: _account(sets), what="the account is there")
    spec = {"nodeName": machine["status"]["nodeRef"]["name"], "containers": [{"name": "main", "image": "none"}]}
    spec["tolerations"] = [{"operator": "Exists"}]
    client.request("POST", pods, {"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": spec})
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    budgets = f"/apis/policy/v1/namespaces/{sets.namespace}/poddisruptionbudgets"
    client.request("POST", budgets, budget)
    eventually(lambda: client.request("GET", f"{pods}/web")["status"].get("phase") == "Running", what="it runs")

    sets.scale("a", 0)
    sets.phases("a", "Deleting")
    eventually(
        lambda: [each["spec"].get("unschedulable") for each in sets.nodes("a").values()] == [True], what="cordon"
    )
    assert client.request("GET", f"{pods}/web")  # its budget keeps it
    client.request("DELETE", f"{budgets}/web")

    sets.running("a", 0)
    with pytest.raises(NotFound):
        client.request("GET", f"{pods}/web")


def _account(sets: MachineSets) -> bool:
    try:
        return bool(sets.client.request("GET", f"/api/v1/namespaces/{sets.namespace}/serviceaccounts/default"))
    except NotFound:
        return False


def test_pre_drain_hook_blocks_deletion_until_removed(sets: MachineSets) -> None:
    sets.make("a", 1)
    [name] = sets.running("a", 1)
    path = MACHINES.path(name, namespace=sets.namespace)
    merge = "application/merge-patch+json"
    hooks = {"preTerminate": [{"name": "backup", "owner": "somebody"}]}
    sets.client.request("PATCH", path, {"spec": {"lifecycleHooks": hooks}}, content_type=merge)

    sets.scale("a", 0)
    sets.phases("a", "Deleting")
    assert sets.client.request("GET", NODES.path(name))
    sets.client.request("PATCH", path, {"spec": {"lifecycleHooks": None}}, content_type=merge)

    sets.running("a", 0)


def test_unknown_delete_policy_is_rejected(sets: MachineSets) -> None:
    with pytest.raises(Invalid, match='supported values: "Random", "Newest", "Oldest"'):
        sets.make("a", 1, deletePolicy="Cheapest")


def test_fields_unknown_to_openshift_are_pruned(sets: MachineSets) -> None:
    made = sets.make("a", 0, paused=True)
    assert "paused" not in made["spec"]
