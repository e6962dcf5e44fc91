"""`trimtab local up --machines`: OpenShift's MachineSets and Machines, and nodes that come of them."""

from __future__ import annotations

import os
import signal

import pytest

from tests.fixtures.machine_sets import MachineSets, eventually
from trimtab.kube.api import Invalid, NotFound
from trimtab.kube.resources import MACHINES, NODES, PODS
from trimtab.local.cluster import LocalCluster
from trimtab.local.processes import alive
from trimtab.local.versions import MACHINE_CONTROLLER

ORDER = "local.trimtab.dev"
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io"
JSON_PATCH = "application/json-patch+json"


def test_a_set_becomes_ready_nodes_of_its_shape(sets: MachineSets) -> None:
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


def test_a_sets_taints_are_on_new_nodes_and_a_machines_own_are_added_to_its_node(sets: MachineSets) -> None:
    """As in OpenShift: all nodes of a set get its taint by way of 0 replicas; nobody takes off what others put on."""
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


def test_a_hundred_machines_boot_together_and_go_together(sets: MachineSets) -> None:
    sets.make("many", 100)

    sets.running("many", 100)
    eventually(lambda: sets.get("many")["status"].get("readyReplicas") == 100, what="all are ready")
    sets.scale("many", 0)

    sets.running("many", 0)
    assert not sets.nodes("many")


def test_the_marked_machine_goes_and_its_node_with_it(sets: MachineSets) -> None:
    sets.make("a", 3)
    machines = sets.running("a", 3)
    chosen = max(machines)  # by name alone the first would go

    sets.mark(chosen)
    sets.scale("a", 2)

    left = sets.running("a", 2)
    assert set(left) == set(machines) - {chosen}
    assert set(sets.nodes("a")) == set(left)


def test_a_failed_machine_may_go_in_place_of_the_marked_one(sets: MachineSets) -> None:
    """Both rank the same in the Machine API; here the first by name goes."""
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


def test_failures_come_to_order_and_no_more_of_them(sets: MachineSets) -> None:
    sets.make("a", 3, {f"{ORDER}/fail": "InsufficientResources:2"})

    machines = sets.phases("a", "Failed", "Failed", "Running")

    failed = [each["status"] for each in machines.values() if each["status"]["phase"] == "Failed"]
    assert {each["errorReason"] for each in failed} == {"InsufficientResources"}
    assert f"{ORDER}/fail" not in sets.get("a")["metadata"].get("annotations", {})
    sets.scale("a", 4)
    sets.phases("a", "Failed", "Failed", "Running", "Running")


def test_what_goes_beyond_the_quota_fails(sets: MachineSets) -> None:
    sets.make("a", 2, {f"{ORDER}/quota": "2"})
    sets.running("a", 2)

    sets.scale("a", 4)

    sets.phases("a", "Running", "Running", "Failed", "Failed")
    assert len(sets.nodes("a")) == 2


def test_a_machine_that_never_joins_is_provisioned_without_a_node(sets: MachineSets) -> None:
    sets.make("a", 2, {f"{ORDER}/never-join": "1"})

    machines = sets.phases("a", "Provisioned", "Running")

    assert all(each["spec"]["providerID"] for each in machines.values())
    assert len(sets.nodes("a")) == 1


def test_a_set_that_holds_does_nothing_and_a_lying_one_says_what_it_was_told(sets: MachineSets) -> None:
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


def test_a_set_that_cannot_be_read_makes_nothing_and_says_why(sets: MachineSets) -> None:
    sets.make("a", 1, {f"{ORDER}/quota": "many"})

    status = eventually(lambda: (found := sets.get("a").get("status", {})).get("errorReason") and found, what="it told")

    assert status["errorReason"] == "InvalidConfiguration"
    assert "annotation local.trimtab.dev/quota must be a whole number" in status["errorMessage"]
    assert not sets.machines("a")
    sets.annotate("a", {f"{ORDER}/quota": None})
    sets.running("a", 1)
    eventually(lambda: "errorReason" not in sets.get("a")["status"], what="it is well again")


def test_a_killed_controller_goes_on_where_it_was(machine_cluster: LocalCluster, sets: MachineSets) -> None:
    sets.make("a", 3, {f"{ORDER}/boot-time": "2s"})
    sets.phases("a", "Provisioning", "Provisioning", "Provisioning")
    before = set(sets.machines("a"))

    process = machine_cluster.record().started[MACHINE_CONTROLLER].process
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: not alive(process), what="it is dead")
    assert not machine_cluster.status().healthy
    machine_cluster.up()

    assert set(sets.running("a", 3)) == before


def test_a_machine_drains_its_node_before_it_goes(sets: MachineSets) -> None:
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


def test_a_hook_keeps_a_machine_until_it_is_taken_away(sets: MachineSets) -> None:
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


def test_a_delete_policy_that_openshift_does_not_know_is_refused(sets: MachineSets) -> None:
    with pytest.raises(Invalid, match='supported values: "Random", "Newest", "Oldest"'):
        sets.make("a", 1, deletePolicy="Cheapest")


def test_fields_that_openshift_does_not_have_are_dropped(sets: MachineSets) -> None:
    made = sets.make("a", 0, paused=True)
    assert "paused" not in made["spec"]
