"""``trimtab plan`` with autoscalers among the policies."""

from __future__ import annotations

import html
import random
from typing import Any

import msgspec
import pytest

from tests.builders import machine_set, node, pod

NOW = "2026-11-20T12:00:00Z"

CLUSTER = """\
apiVersion: autoscaling.openshift.io/v1
kind: ClusterAutoscaler
metadata: {name: default}
spec:
  resourceLimits: {maxNodesTotal: 4}
"""
MACHINE = """\
apiVersion: autoscaling.openshift.io/v1beta1
kind: MachineAutoscaler
metadata: {name: workers, namespace: openshift-machine-api}
spec:
  minReplicas: 0
  maxReplicas: 9
  scaleTargetRef: {apiVersion: machine.openshift.io/v1beta1, kind: MachineSet, name: workers-a}
"""
PRIORITIES = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: cluster-autoscaler-priority-expander, namespace: kube-system}
data:
  priorities: |
    20: [workers]
    10: [workers-a]
"""
POLICY = """\
apiVersion: trimtab.dev/v1alpha1
kind: DeschedulerPolicy
metadata: {name: default}
spec:
  strategies: {RemoveDuplicates: {}}
"""


def objects() -> list[Any]:
    """A full node, a set without nodes, six pods that wait; one of them fits nowhere."""
    return [
        node("n1"),
        pod("full").on("n1").cpu("4"),
        machine_set().replicas(0).capacity(cpu="4", memory="16Gi"),
        *(pod(f"web-{number}").cpu("1500m").unschedulable() for number in range(5)),
        pod("big").cpu("64").unschedulable(),
    ]


def test_plan_has_scale_ups_and_reasons_of_pending_pods(run, write, policy) -> None:
    result = run(
        "plan",
        "--cluster",
        write("c.json", *objects()),
        "--policy",
        policy(CLUSTER, MACHINE),
        "--now",
        NOW,
        "-o",
        "json",
    )

    assert (result.exit_code, result.stderr) == (0, "")
    document = msgspec.json.decode(result.stdout)
    (action,) = document["actions"]
    assert list(action) == ["action", "machineSet", "from", "to", "reason", "pods", "message", "group"]
    assert action["action"] == "ScaleUp"
    assert action["machineSet"] == "openshift-machine-api/workers-a"
    assert (action["from"], action["to"], action["reason"]) == (0, 3, "PendingPods")
    assert action["pods"] == [f"shop/web-{number}" for number in range(5)]
    pending, stays = document["kept"]
    expected = [(kept["kind"], kept["name"], kept["strategy"], kept["reason"]) for kept in (pending, stays)]
    assert expected == [("Pod", "big", "ScaleUp", "NoGroupFits"), ("Node", "n1", "ScaleDown", "NotAutoscaled")]
    assert document["summary"] == {"Evict": 0, "RemoveNode": 0, "ScaleUp": 1, "kept": 2}


def test_output_is_independent_of_file_document_and_object_order(run, write, policy) -> None:
    items = objects()
    one = [policy(CLUSTER, MACHINE, POLICY)]
    others = [policy(MACHINE, name="a.yaml"), policy(POLICY, CLUSTER, name="b.yaml")]
    found = set()
    for files in (one, others, others[::-1]):
        random.Random(len(found)).shuffle(items)
        options = [each for path in files for each in ("--policy", path)]
        result = run("plan", "--cluster", write("c.json", *items), *options, "--now", NOW, "-o", "json")
        assert result.exit_code == 0
        found.add(result.stdout)
    assert len(found) == 1


def test_table_has_a_row_per_node_group(run, write, policy) -> None:
    cluster = write("c.json", *objects())
    result = run("plan", "--cluster", cluster, "--policy", policy(CLUSTER, MACHINE), "--now", NOW)
    assert "1 ScaleUp; 2 kept" in result.stdout
    assert "MachineSet/openshift-machine-api/workers-a   0      3    5      PendingPods" in result.stdout
    assert "Kept: NoGroupFits (1)" in result.stdout


def test_capacity_is_reserved_once_for_pending_and_moved_pods(run, write, policy) -> None:
    duplicates = [pod(f"twin-{number}").on("n1").cpu("2").owned_by("ReplicaSet", "twin").ready() for number in (1, 2)]
    there = [node("n1"), node("n2").allocatable(cpu="2"), *duplicates]
    waiting = pod("waits").cpu("2").unschedulable()

    def plan(*documents: str) -> Any:
        cluster = write("c.json", *there, waiting)
        result = run("plan", "--cluster", cluster, "--policy", policy(*documents), "--now", NOW, "-o", "json")
        assert result.exit_code == 0
        return msgspec.json.decode(result.stdout)

    assert [each["pod"] for each in plan(POLICY)["actions"]] == ["twin-1"]
    both = plan(POLICY, CLUSTER)
    assert both["actions"] == []
    assert {(each["name"], each["reason"]) for each in both["kept"] if each["kind"] == "Pod"} == {
        ("waits", "FitsOnNode"),
        ("twin-1", "NoPlace"),
        ("twin-2", "NoPlace"),
    }


def test_missing_cluster_autoscaler_uses_defaults_with_a_warning(run, write, policy) -> None:
    result = run("plan", "--cluster", write("c.json", *objects()), "--policy", policy(MACHINE), "--now", NOW)
    assert result.exit_code == 0
    assert "no ClusterAutoscaler given" in result.stderr
    assert "1 ScaleUp" in result.stdout


def test_the_priority_expanders_config_map_may_be_among_the_policies(run, write, policy) -> None:
    cluster = CLUSTER.replace("spec:", "spec:\n  expanders: [Priority]")
    other = machine_set("other").replicas(0).capacity(cpu="4", memory="16Gi").limits(0, 9)
    for files, scale_up in ((PRIORITIES, "workers-a"), (PRIORITIES.replace("20: [workers]", "20: [other]"), "other")):
        policies = policy(cluster, MACHINE, files)
        arguments = ["--cluster", write("c.json", *objects(), other), "--policy", policies, "--now", NOW, "-o", "json"]
        document = msgspec.json.decode(run("plan", *arguments).stdout)
        assert {each["machineSet"] for each in document["actions"]} == {f"openshift-machine-api/{scale_up}"}


def test_machine_autoscalers_with_generated_names_are_different_objects(run, write, policy) -> None:
    first = MACHINE.replace("name: workers,", "generateName: workers-,", 1)
    second = first.replace("name: workers-a}", "name: other}")
    other = machine_set("other").replicas(0).capacity(cpu="4", memory="16Gi").limits(0, 9)
    policies = policy(CLUSTER, first, second)
    arguments = ["--cluster", write("c.json", *objects(), other), "--policy", policies, "--now", NOW, "-o", "json"]
    result = run("plan", *arguments)
    assert result.exit_code == 0
    assert msgspec.json.decode(result.stdout)["summary"]["ScaleUp"] == 1


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ((CLUSTER, CLUSTER), "ClusterAutoscaler/default: is defined twice"),
        ((MACHINE, MACHINE), "MachineAutoscaler/openshift-machine-api/workers: is defined twice"),
        ((CLUSTER.replace("maxNodesTotal", "maxNodeTotal"),), "maxNodeTotal"),
        ((CLUSTER.replace("default", "other"),), "metadata.name"),
        (
            (CLUSTER, PRIORITIES.replace("[workers]", "['(']")),
            "ConfigMap/cluster-autoscaler-priority-expander: data[pri",
        ),
        (("{apiVersion: v1, kind: Pod, metadata: {name: a}}",), "ClusterAutoscaler of autoscaling.openshift.io/v1"),
    ],
    ids=[
        "twice",
        "a machine autoscaler twice",
        "an unknown field",
        "another name",
        "bad priorities",
        "no policy at all",
    ],
)
def test_invalid_document_is_rejected_with_its_name(run, write, policy, documents, expected) -> None:
    result = run("plan", "--cluster", write("c.json", *objects()), "--policy", policy(*documents), "--now", NOW)
    assert result.exit_code == 2
    assert expected in result.stderr


@pytest.mark.parametrize("documents", [(CLUSTER, MACHINE), (CLUSTER, MACHINE, POLICY)], ids=["alone", "and a policy"])
def test_page_shows_the_scaling_plan(run, write, policy, documents) -> None:
    arguments = ["--cluster", write("c.json", *objects()), "--policy", policy(*documents), "--now", NOW]
    document = msgspec.json.decode(run("plan", *arguments, "-o", "json").stdout)
    page = run("plan", *arguments, "-o", "html")
    assert (page.exit_code, page.stderr) == (0, "")
    text = html.unescape(page.stdout)
    assert all(each["message"] in text for each in (*document["actions"], *document["kept"]))
    assert 'id="machines"' in text
    assert run("plan", *arguments, "-o", "html").stdout == page.stdout
