"""``trimtab plan`` with unneeded nodes: from the input files to the complete output."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec

from tests.builders import budget, machine_set, node, pod
from tests.fixtures.golden import Golden

NOW = "2026-11-20T12:00:00Z"
SINCE = "2026-11-20T11:00:00Z"

CLUSTER = """\
apiVersion: autoscaling.openshift.io/v1
kind: ClusterAutoscaler
metadata: {{name: default}}
spec:
  resourceLimits: {{cores: {{min: 8, max: 128}}}}
  scaleDown: {{enabled: true, unneededTime: 5m}}
{status}
"""
STATUS = """\
status:
  unneeded: [{name: n1, since: "2026-11-20T11:00:00Z"}, {name: n2, since: "2026-11-20T11:58:00Z"}]
"""
POLICY = """\
apiVersion: trimtab.dev/v1alpha1
kind: DeschedulerPolicy
metadata: {name: default}
spec:
  strategies: {RemoveDuplicates: {}}
"""


def cluster_autoscaler(status: str = "") -> str:
    return CLUSTER.format(status=status)


def objects(*, annotated: bool = True, allowed: int = 2) -> list[Any]:
    """Three nodes of a MachineSet and one of the control plane; a pod on each of the first two, five on the third."""
    of = machine_set().limits(1, 5).replicas(3)
    nodes = [node(f"n{number}") for number in (1, 2, 3)]
    if annotated:
        nodes[0].annotations({"trimtab.dev/unneeded-since": SINCE})

    def web(name: str, on: str) -> Any:
        return pod(name).labels(app="web").on(on).cpu("500m").owned_by("ReplicaSet", "web").ready()

    return [
        of,
        *(of.machine(f"workers-a-{number}").on(f"n{number}") for number in (1, 2, 3)),
        *nodes,
        node("control-plane").taint("node-role.kubernetes.io/control-plane"),
        web("a", "n1"),
        web("b", "n2"),
        *(web(f"c-{number}", "n3") for number in range(5)),
        budget().selecting(app="web").allowing(allowed),
    ]


def planned(run: Any, write: Any, path: Path, items: list[Any], *more: str) -> Any:
    result = run("plan", "--cluster", write("c.json", *items), "--policy", path, "--now", NOW, "-o", "json", *more)
    assert (result.exit_code, result.stderr) == (0, "")
    return msgspec.json.decode(result.stdout)


def test_unneeded_node_is_removed_and_others_have_reasons(run, write, policy, golden: Golden) -> None:
    document = planned(run, write, policy(cluster_autoscaler()), objects())

    (action,) = document["actions"]
    assert list(action)[:6] == ["action", "node", "machineSet", "reason", "moves", "message"]
    assert (action["action"], action["node"], action["reason"]) == ("RemoveNode", "n1", "Underutilized")
    assert action["machineSet"] == "openshift-machine-api/workers-a"
    assert action["machine"] == "openshift-machine-api/workers-a-1"
    assert action["moves"] == [{"pod": "shop/a", "target": "n3"}]
    golden(action["message"])
    assert {(kept["kind"], kept["name"], kept["strategy"], kept["reason"]) for kept in document["kept"]} == {
        ("Node", "control-plane", "ScaleDown", "NotAutoscaled"),
        ("Node", "n2", "ScaleDown", "NotUnneededLongEnough"),
        ("Node", "n3", "ScaleDown", "NotUnderutilized"),
    }
    assert document["summary"] == {"Evict": 0, "RemoveNode": 1, "ScaleUp": 0, "kept": 3}


def test_unneeded_since_is_read_from_the_status(run, write, policy, golden: Golden) -> None:
    document = planned(run, write, policy(cluster_autoscaler(STATUS)), objects(annotated=False))
    assert [action["node"] for action in document["actions"]] == ["n1"]
    messages = {kept["name"]: kept["message"] for kept in document["kept"]}
    golden(messages["n2"])


def test_node_without_unneeded_since_is_kept(run, write, policy) -> None:
    assert planned(run, write, policy(cluster_autoscaler()), objects(annotated=False))["actions"] == []


def test_disruption_budget_blocks_node_removal(run, write, policy, golden: Golden) -> None:
    document = planned(run, write, policy(cluster_autoscaler()), objects(allowed=0))
    assert document["actions"] == []
    messages = {kept["name"]: (kept["reason"], kept["message"]) for kept in document["kept"]}
    assert messages["n1"][0] == "BlockedByPod"
    golden(messages["n1"][1])


def test_output_is_independent_of_object_order(run, write, policy) -> None:
    items, path, found = objects(), policy(cluster_autoscaler(), POLICY), set()
    for seed in range(3):
        random.Random(seed).shuffle(items)
        result = run("plan", "--cluster", write("c.json", *items), "--policy", path, "--now", NOW, "-o", "json")
        found.add(result.stdout)
    assert len(found) == 1


def test_capacity_used_by_a_removal_is_not_reused(run, write, policy) -> None:
    """Of two disruptions the removal costs one; without it RemoveDuplicates would make two moves."""
    both = planned(run, write, policy(cluster_autoscaler(), POLICY), objects())
    evictions = [action for action in both["actions"] if action["action"] == "Evict"]
    assert [action["node"] for action in both["actions"] if action["action"] == "RemoveNode"] == ["n1"]
    assert len(evictions) <= 1
    assert all(action["target"] != "n1" and action["pod"] != "a" for action in evictions)


def test_nodes_are_kept_while_the_plan_scales_up(run, write, policy) -> None:
    wants = pod("wants").cpu("4").node_selector(size="large").unschedulable()
    more = machine_set("large").limits(0, 3).replicas(0).capacity(cpu="8", memory="16Gi").node_labels(size="large")
    document = planned(run, write, policy(cluster_autoscaler()), [*objects(), wants, more])
    assert [action["action"] for action in document["actions"]] == ["ScaleUp"]
    reasons = {kept["name"]: kept["reason"] for kept in document["kept"]}
    assert reasons["n1"] == "DelayAfterAdd"


def test_table_has_a_row_per_removed_node(run, write, policy) -> None:
    items = write("c.json", *objects())
    result = run("plan", "--cluster", items, "--policy", policy(cluster_autoscaler()), "--now", NOW)
    assert "1 RemoveNode; 3 kept" in result.stdout
    assert "n1     MachineSet/openshift-machine-api/workers-a   1      Underutilized" in result.stdout
    assert "Node n3" in result.stdout


LEVELLING = """\
apiVersion: trimtab.dev/v1alpha1
kind: DeschedulerPolicy
metadata: {name: levelling}
spec:
  strategies:
    LowNodeUtilization:
      enabled: true
      params:
        nodeResourceUtilizationThresholds: {thresholds: {cpu: 20}, targetThresholds: {cpu: 50}}
"""


def test_unneeded_nodes_are_not_targets(run, write, policy, golden: Golden) -> None:
    """n2 has no mark yet: that it is unneeded is found by the same plan."""
    document = planned(run, write, policy(cluster_autoscaler(), LEVELLING), objects())
    assert [action["action"] for action in document["actions"]] == ["RemoveNode"]
    (recorded,) = [each for each in document["kept"] if each["reason"] == "DestinationUnneeded"]
    assert recorded["name"] == "n2"
    golden(recorded["message"])


def test_removal_signals_count_without_an_autoscaler(run, write, policy) -> None:
    document = planned(run, write, policy(LEVELLING), objects())
    assert [each["name"] for each in document["kept"] if each["reason"] == "DestinationUnneeded"] == ["n1"]
    assert "n1" not in {action["target"] for action in document["actions"]}
