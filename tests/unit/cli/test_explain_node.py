"""``trimtab explain node``."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.builders import budget, machine_set, node, pod, replica_set
from tests.fixtures.golden import Golden
from tests.node_summaries import GI, MI, summary

NOW = "2026-11-20T12:00:00Z"
PRESSURE = """\
apiVersion: trimtab.dev/v1alpha1
kind: NodePressurePolicy
metadata: {name: workers}
spec:
  evictionSoft: {memory.available: 10%}
  evictionSoftGracePeriod: {memory.available: 30s}
  evictionHard: {memory.available: 5%}
"""
AUTOSCALER = """\
apiVersion: autoscaling.openshift.io/v1
kind: ClusterAutoscaler
metadata: {name: default}
spec: {scaleDown: {enabled: true, unneededTime: 5m}}
"""
MANAGER = """\
apiVersion: trimtab.dev/v1alpha1
kind: TaintManager
metadata: {name: default}
spec:
  taints: [{key: example.com/maintenance, policy: Evict}]
"""


def explained(run: Any, name: str, *arguments: Any) -> Any:
    result = run("explain", "node", name, "--now", NOW, "-o", "json", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return msgspec.json.decode(result.stdout)


def managed(manager: str, time: str, *path: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key in reversed(path):
        fields = {key: fields}
    return {"manager": manager, "operation": "Update", "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields}


def node_of_10gi(name: str = "n1", allocatable: str = "8Gi") -> Any:
    """A node with 10Gi of memory, as in the example of OpenShift 3's documentation."""
    return node(name).allocatable(memory=allocatable).capacity(memory="10Gi")


def test_node_without_pressure_is_only_ready(run, write) -> None:
    document = explained(run, "n1", "--cluster", write("c.json", node("n1"), pod("web").on("n1")))

    assert (document["node"], document["message"], document["ready"]) == ("n1", "ready", True)
    assert list(document) == [
        "node",
        "message",
        "ready",
        "deleted",
        "cordon",
        "taints",
        "taintsChanged",
        "conditions",
        "resources",
        "pressure",
        "oom",
        "scaleDown",
        "deadlines",
        "leaving",
        "nodeGroup",
        "utilization",
        "wouldMove",
        "history",
    ]
    assert document["cordon"] is None
    assert document["pressure"] is None
    assert (document["taints"], document["deadlines"], document["leaving"]) == ([], [], [])


def test_unknown_node_is_an_error_with_similar_names(run, write, golden: Golden) -> None:
    cluster = write("c.json", node("n3"))
    result = run("explain", "node", "n33", "--cluster", cluster)

    assert result.exit_code == 2
    golden(result.stderr.replace(str(cluster), "c.json"))


@pytest.mark.parametrize("word", ["node", "nodes", "no"])
def test_the_resource_has_kubectls_aliases(run, write, word) -> None:
    assert run("explain", word, "n1", "--cluster", write("c.json", node("n1"))).exit_code == 0


def test_authors_of_taints_and_cordon_come_from_managed_fields(run, write, golden: Golden) -> None:
    made = node("n1").cordoned().taint("dedicated", "team-a").taint("pressure.trimtab.dev/memory")
    fields = [
        managed("kubectl-cordon", "2026-11-20T11:00:00Z", "f:spec", "f:unschedulable"),
        managed("trimtab", "2026-11-20T11:58:00Z", "f:spec", "f:taints"),
        managed("kubelet", "2026-11-20T11:59:00Z", "f:status", "f:conditions", 'k:{"type":"Ready"}'),
    ]
    document = explained(run, "n1", "--cluster", write("c.json", made.merge(metadata={"managedFields": fields})))

    assert document["cordon"] == {
        "by": "administrator",
        "changed": {"manager": "kubectl-cordon", "time": "2026-11-20T11:00:00Z"},
    }
    assert document["taintsChanged"] == {"manager": "trimtab", "time": "2026-11-20T11:58:00Z"}
    golden("\n".join(f"{each['key']}: {each['addedBy'] or 'unknown'}" for each in document["taints"]))
    assert [each["changed"]["manager"] for each in document["conditions"]] == ["kubelet"]


@pytest.mark.parametrize("ours", [True, False])
def test_drain_taint_names_the_autoscaler_that_added_it(run, write, ours) -> None:
    made = node("n1").taint("ToBeDeletedByClusterAutoscaler", "1763640000").cordoned()
    if ours:
        made.annotations({"trimtab.dev/removing": "1763640000", "trimtab.dev/cordoned-by": "cluster-autoscaler"})
    document = explained(run, "n1", "--cluster", write("c.json", made))

    by = "cluster autoscaler of trimtab" if ours else "another cluster autoscaler"
    assert document["taints"][0]["addedBy"] == by
    assert document["cordon"]["by"] == ("cluster-autoscaler of trimtab" if ours else "administrator")
    assert document["cordon"]["changed"] is None


# --- allocatable ------------------------------------------------------------------------------------------------------


def test_example_scenario_leaves_daemons_one_gibibyte_above_the_soft_threshold(run, write, policy) -> None:
    """OpenShift 3.11, "Example Scenario": 10Gi, 10% for daemons, soft threshold at 10%: 8Gi are allocatable."""
    document = explained(run, "n1", "--cluster", write("c.json", node_of_10gi()), "--policy", policy(PRESSURE))

    [memory] = [each for each in document["resources"] if each["resource"] == "memory"]
    assert (memory["capacity"], memory["allocatable"], memory["reserved"]) == (10 * GI, 8 * GI, 2 * GI)
    assert [(each["by"], each["hard"], each["value"], each["daemonRoom"]) for each in memory["thresholds"]] == [
        ("Kubelet", True, 100 * MI, 2 * GI - 100 * MI),
        ("NodePressurePolicy workers", True, GI // 2, GI + GI // 2),
        ("NodePressurePolicy workers", False, GI, GI),
    ]
    assert (memory["systemReserved"], memory["expectedAllocatable"]) == (None, None)


def test_kubelet_configuration_splits_the_reserved_amount(run, write, file) -> None:
    path = file("kubeletArguments: {eviction-hard: ['memory.available<500Mi'], system-reserved: ['memory=1.5Gi']}")
    document = explained(run, "n1", "--cluster", write("c.json", node_of_10gi()), "--kubelet-config", path)

    [memory] = [each for each in document["resources"] if each["resource"] == "memory"]
    assert (memory["systemReserved"], memory["kubeReserved"], memory["evictionThreshold"]) == (1536 * MI, 0, 500 * MI)
    assert memory["expectedAllocatable"] == 8204 * MI


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{kind: ConfigMap, apiVersion: v1}", "contains neither a KubeletConfiguration nor kubeletArguments"),
        ("{kind: KubeletConfiguration, evictionHard: {memory.free: 1Gi}}", "evictionHard: 'memory.free' is not an"),
    ],
)
def test_invalid_kubelet_configuration_is_a_one_line_error(run, write, file, text, message) -> None:
    result = run("explain", "node", "n1", "--cluster", write("c.json", node_of_10gi()), "--kubelet-config", file(text))

    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


# --- signals ----------------------------------------------------------------------------------------------------------


def test_pressure_has_signals_distances_and_eviction_order(run, write, policy) -> None:
    state = {"firstMet": {"soft/memory.available": "2026-11-20T11:59:45.000Z"}}
    cluster = write(
        "c.json",
        node_of_10gi().annotations({"pressure.trimtab.dev/state": json.dumps(state)}),
        pod("small").on("n1").memory("3Gi").owned_by("ReplicaSet", "web"),
        pod("large").on("n1").memory("1Gi").owned_by("ReplicaSet", "web"),
        pod("agent").on("n1").owned_by("DaemonSet", "agent"),
        summary("n1", 900 * MI, {"shop/small": 2 * GI, "shop/large": 4 * GI, "shop/agent": GI}),
    )
    document = explained(run, "n1", "--cluster", cluster, "--policy", policy(PRESSURE))

    found = document["pressure"]
    assert (found["policy"], found["reason"], found["source"]) == ("workers", "SoftGracePeriod", "Summary")
    [memory] = found["signals"]
    assert (memory["signal"], memory["available"], memory["capacity"]) == ("memory.available", 900 * MI, 10 * GI)
    assert [(each["by"], each["hard"], each["distance"], each["met"]) for each in memory["thresholds"]] == [
        ("Policy", True, 388 * MI, False),
        ("Policy", False, -124 * MI, True),
        ("Kubelet", True, 800 * MI, False),
    ]
    assert memory["thresholds"][1]["since"] == "2026-11-20T11:59:45Z"
    assert memory["thresholds"][1]["due"] == "2026-11-20T12:00:15Z"
    assert found["rankedFor"] == "memory.available"
    assert [(each["pod"], each.get("usage"), each.get("protected")) for each in found["pods"]] == [
        ("shop/large", 4 * GI, None),
        ("shop/small", 2 * GI, None),
        ("shop/agent", None, "DaemonSetPod"),
    ]
    assert [(each["pod"], each["oomScoreAdj"], each["oomScore"]) for each in document["oom"]] == [
        ("shop/large", 900, 1300),
        ("shop/agent", 1000, 1100),
        ("shop/small", 700, 900),
    ]


def test_node_without_policy_has_signals_and_the_kubelets_thresholds(run, write) -> None:
    cluster = write("c.json", node_of_10gi(), pod("web").on("n1"), summary("n1", 2 * GI, {"shop/web": GI}))
    found = explained(run, "n1", "--cluster", cluster)["pressure"]

    assert found["policy"] == ""
    assert [each["by"] for each in found["signals"][0]["thresholds"]] == ["Kubelet"]
    assert [each["pod"] for each in found["pods"]] == ["shop/web"]


def test_policies_in_the_cluster_are_used_unless_a_file_is_given(run, write, policy) -> None:
    own = msgspec.yaml.decode(PRESSURE.replace("workers", "in-cluster"))
    cluster = write("c.json", node_of_10gi(), summary("n1", 2 * GI), own, msgspec.yaml.decode(AUTOSCALER))
    inside = explained(run, "n1", "--cluster", cluster)
    given = explained(run, "n1", "--cluster", cluster, "--policy", policy(PRESSURE))

    assert (inside["pressure"]["policy"], given["pressure"]["policy"]) == ("in-cluster", "workers")


# --- the rest of the story --------------------------------------------------------------------------------------------


def test_deadlines_are_those_of_kube_controller_manager_without_a_taint_manager(run, write, policy) -> None:
    started = "2026-11-20T10:00:00Z"
    cluster = write(
        "c.json",
        node("n1").taint("example.com/maintenance", "", "NoExecute", added="2026-11-20T11:59:00Z"),
        pod("short").on("n1").started(started),
        pod("long").on("n1").started(started).tolerates("example.com/maintenance", "", "NoExecute", seconds=120),
        pod("forever").on("n1").started(started).tolerates("example.com/maintenance", "", "NoExecute"),
    )
    without = explained(run, "n1", "--cluster", cluster)["deadlines"]
    acting = MANAGER.replace("spec:", "spec:\n  mode: EvictPods", 1)
    managed_ = explained(run, "n1", "--cluster", cluster, "--policy", policy(acting))["deadlines"]

    assert [(each["pod"], each["due"], each["how"], each["by"]) for each in without] == [
        ("shop/short", NOW, "Delete", "kube-controller-manager"),
        ("shop/long", "2026-11-20T12:01:00Z", "Delete", "kube-controller-manager"),
    ]
    assert [(each["how"], each["by"]) for each in managed_] == [("Evict", "TaintManager default")] * 2


def test_node_and_pod_name_the_same_enforcer_of_a_deadline(run, write, policy) -> None:
    cluster = write(
        "c.json",
        node("n1").taint("example.com/maintenance", "", "NoExecute", added="2026-11-20T11:59:00Z"),
        pod("web").on("n1").started("2026-11-20T10:00:00Z"),
    )
    for mode, enforcer in (("Observe", "kube-controller-manager"), ("EvictPods", "TaintManager default")):
        manager = msgspec.yaml.decode(MANAGER)
        manager["spec"]["mode"] = mode
        path = policy(json.dumps(manager), name=f"{mode}.yaml")
        [on_node] = explained(run, "n1", "--cluster", cluster, "--policy", path)["deadlines"]
        asked = run("explain", "pod", "shop/web", "--cluster", cluster, "--policy", path, "--now", NOW, "-o", "json")
        of_pod = json.loads(asked.stdout)["deadline"]
        assert (on_node["by"], of_pod["by"]) == (enforcer, enforcer)
        assert (on_node["how"], on_node["due"]) == (of_pod["how"], of_pod["due"])


def test_leaving_pods_have_their_reason(run, write, golden: Golden) -> None:
    state = {"evicting": "pod-shop-gone", "firstMet": {"hard/memory.available": "2026-11-20T11:59:50.000Z"}}
    cluster = write(
        "c.json",
        node("n1").annotations({"pressure.trimtab.dev/state": json.dumps(state)}),
        pod("gone")
        .on("n1")
        .deleted("2026-11-20T12:00:20Z")
        .condition("DisruptionTarget", "True", reason="EvictionByEvictionAPI", since="2026-11-20T11:59:50Z"),
        pod("stays").on("n1"),
    )
    [leaving] = explained(run, "n1", "--cluster", cluster)["leaving"]

    golden(leaving["by"])
    assert (leaving["pod"], leaving["reason"]) == ("shop/gone", "EvictionByEvictionAPI")
    assert (leaving["graceEnds"], leaving["since"]) == ("2026-11-20T12:00:20Z", "2026-11-20T11:59:50Z")


def autoscaled(*pods: Any, **annotations: str) -> list[Any]:
    group = machine_set().limits(1, 5).replicas(2)
    nodes = [node("n1").annotations({"trimtab.dev/unneeded-since": "2026-11-20T11:00:00Z"}), node("n2")]
    return [group, *(group.machine(f"workers-a-{n}").on(f"n{n}") for n in (1, 2)), *nodes, *pods]


def test_removable_node_has_no_blockers(run, write, policy) -> None:
    cluster = write("c.json", *autoscaled(pod("a").on("n1").owned_by("ReplicaSet", "web").ready()))
    down = explained(run, "n1", "--cluster", cluster, "--policy", policy(AUTOSCALER))["scaleDown"]

    assert (down["removable"], down["reason"], down["blockers"]) == (True, "Underutilized", [])


def test_pod_whose_replacement_is_larger_is_named(run, write, policy) -> None:
    resized = pod("small").on("n1").cpu("1").owned_by("ReplicaSet", "web").ready().merge(metadata={"generation": 2})
    other = pod("other").on("n2").cpu("2").owned_by("ReplicaSet", "other").ready()
    template = replica_set("web").of_pods(pod().cpu("3"))
    cluster = write("c.json", *autoscaled(resized, other), template)
    down = explained(run, "n1", "--cluster", cluster, "--policy", policy(AUTOSCALER))["scaleDown"]

    assert down["reason"] == "ReplacementLarger"
    assert [(each["reason"], each["pod"]) for each in down["blockers"]] == [("ReplacementLarger", "shop/small")]


def test_pods_that_tolerate_every_taint_must_fit_on_another_node(run, write, policy) -> None:
    """Two pods keep the node, and the one that tolerates every taint fits only there."""
    tolerating = pod("any").on("n1").cpu("1").owned_by("ReplicaSet", "web").ready().tolerates()
    full = pod("full").on("n2").cpu("3500m").owned_by("ReplicaSet", "other").ready()
    cluster = write("c.json", *autoscaled(pod("bare").on("n1").ready(), tolerating, full))
    down = explained(run, "n1", "--cluster", cluster, "--policy", policy(AUTOSCALER))["scaleDown"]

    assert [(each["reason"], each["pod"]) for each in down["blockers"]] == [
        ("NoPlaceToMovePods", "shop/any"),
        ("NotReplicated", "shop/bare"),
    ]


def test_all_blockers_of_a_removal_are_listed(run, write, policy) -> None:
    cluster = write(
        "c.json",
        *autoscaled(
            pod("bare").on("n1").ready(),
            pod("data").on("n1").owned_by("ReplicaSet", "web").volume("emptyDir").ready(),
            pod("fine").on("n1").owned_by("ReplicaSet", "web").ready(),
            pod("guarded").on("n1").labels(app="db").owned_by("ReplicaSet", "db").ready(),
            pod("gpu").on("n1").owned_by("ReplicaSet", "gpu").node_selector({"gpu": "yes"}).ready(),
        ),
        budget().selecting(app="db").allowing(0),
    )
    down = explained(run, "n1", "--cluster", cluster, "--policy", policy(AUTOSCALER))["scaleDown"]

    assert down["removable"] is False
    assert [(each["reason"], each["pod"]) for each in down["blockers"]] == [
        ("NotReplicated", "shop/bare"),
        ("LocalStorageRequested", "shop/data"),
        ("NoPlaceToMovePods", "shop/gpu"),
        ("NotEnoughPdb", "shop/guarded"),
    ]


def test_state_of_the_node_comes_before_its_pods(run, write, policy) -> None:
    cluster = write("c.json", *autoscaled(pod("bare").on("n2").ready(), pod("large").cpu("3").on("n2").ready()))
    down = explained(run, "n2", "--cluster", cluster, "--policy", policy(AUTOSCALER))["scaleDown"]

    assert [(each["reason"], each["pod"]) for each in down["blockers"]] == [
        ("NotUnderutilized", ""),
        ("NotReplicated", "shop/bare"),
        ("NotReplicated", "shop/large"),
    ]


def test_node_outside_of_node_groups_is_not_autoscaled(run, write, policy) -> None:
    cluster = write("c.json", node("n1"))
    down = explained(run, "n1", "--cluster", cluster, "--policy", policy(AUTOSCALER))["scaleDown"]

    assert [each["reason"] for each in down["blockers"]] == ["NotAutoscaled"]


def test_tables_of_a_node(run, write, policy, golden: Golden) -> None:
    state = {"firstMet": {"soft/memory.available": "2026-11-20T11:59:00Z"}}
    cluster = write(
        "c.json",
        node_of_10gi(allocatable="9Gi")
        .annotations({"pressure.trimtab.dev/state": json.dumps(state)})
        .cordoned()
        .taint("example.com/maintenance", "", "NoExecute", added="2026-11-20T11:59:00Z")
        .merge(metadata={"managedFields": [managed("kubectl", "2026-11-20T11:59:00Z", "f:spec", "f:taints")]}),
        pod("large").on("n1").memory("1Gi").owned_by("ReplicaSet", "web").started("2026-11-20T10:00:00Z"),
        pod("leaves").on("n1").owned_by("ReplicaSet", "web").deleted("2026-11-20T12:00:20Z"),
        summary("n1", 900 * MI, {"shop/large": 4 * GI}, measured="2026-11-20T11:59:55Z"),
        summary("n1", 1000 * MI, measured="2026-11-20T11:59:45Z"),
        summary("n1", 1100 * MI, measured="2026-11-20T11:59:35Z"),
    )
    golden(run("explain", "node", "n1", "--cluster", cluster, "--policy", policy(PRESSURE), "--now", NOW).stdout)
