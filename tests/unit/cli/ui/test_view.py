"""The view of the live page: node states, pending pods, and the changes between two views."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.builders import node, pod
from tests.fixtures.golden import Golden
from tests.unit.descheduling.planning import DUPLICATES, NOW, built, policy, web
from trimtab.api.base import ObjectMeta
from trimtab.api.placement_admission import PlacementAdmission
from trimtab.cli.ui.answers import explain, search
from trimtab.cli.ui.page import plan_of
from trimtab.cli.ui.view import Connection, PlanResult, View, change_between, node_states, view_of
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage.measurement import Usage
from trimtab.cluster.workloads.rollouts import Rollouts
from trimtab.inspection.cluster import ClusterInput, PolicySet
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Node, NodeCondition, Taint

READY = (NodeCondition("Ready", "True"),)
UNREADY = (NodeCondition("Ready", "False", since=NOW - 10),)


def cluster(things: Iterable[Any], **policies: Any) -> ClusterInput:
    return ClusterInput(snapshot=Snapshot(built(things)), now=NOW, source="test", policies=PolicySet(**policies))


def sections(view: View) -> dict[str, Any]:
    return {name: json.loads(content) for name, content in view.sections.items()}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Node(name="n", conditions=READY), ["ready"]),
        (Node(name="n", conditions=UNREADY, created=NOW - 11), ["booting"]),
        (Node(name="n", conditions=UNREADY, created=NOW - 600), ["notReady"]),
        (Node(name="n", conditions=UNREADY, created=NOW - 86400), ["notReady"]),
        (Node(name="n", conditions=READY, unschedulable=True), ["ready", "cordoned"]),
        (Node(name="n", conditions=READY, taints=(Taint("gpu", "NoSchedule"),)), ["ready", "tainted"]),
        (Node(name="n", conditions=READY, taints=(Taint("gpu", "PreferNoSchedule"),)), ["ready"]),
        (
            Node(name="n", conditions=READY, taints=(Taint("ToBeDeletedByClusterAutoscaler", "NoSchedule"),)),
            ["ready", "removing"],
        ),
        (Node(name="u", conditions=READY), ["ready", "unneeded"]),
        (Node(name="r", conditions=READY), ["ready", "removing"]),
    ],
)
def test_states_of_a_node(given: Node, expected: list[str]) -> None:
    found = node_states(given, unneeded=frozenset("u"), removing=frozenset("r"), now=NOW)
    assert list(found) == expected


def test_node_rows_contain_utilization_and_pods() -> None:
    view = view_of(cluster([node("n1").allocatable(cpu="4"), web("a", "n1").cpu("1")]), PlanResult(), live=True)
    name, group, _, cpu, _, _, pods, states = view.nodes["n1"]
    assert (name, group, cpu, pods, states) == ("n1", "", 25.0, 1, "ready")


def test_equal_pending_pods_share_a_row_with_the_schedulers_message() -> None:
    first = pod("big-0").owned_by("ReplicaSet", "big").cpu("100").build()
    waiting = [replace(first, name=f"big-{number}", uid=str(number)) for number in range(3)]
    given = ClusterInput(snapshot=Snapshot([node("n1").build(), *waiting]), now=NOW)
    view = view_of(given, PlanResult(), live=True)
    found = sections(view)["pending"]
    row = found["rows"][0]
    assert (row["count"], row["reason"], row["owner"]) == (3, "Unschedulable", "ReplicaSet/big")
    assert "Insufficient cpu" in row["message"]


def test_plan_is_in_the_view_and_a_failed_plan_is_reported() -> None:
    things = [node("n1"), node("n2"), web("a", "n1"), web("b", "n1")]
    given = cluster(things, descheduler=(policy({DUPLICATES: {}}),))
    plan = sections(view_of(given, plan_of(given), live=True))["plan"]
    assert (plan["state"], plan["total"], plan["actions"][0]["action"]) == ("ready", 1, "Evict")
    failed = sections(view_of(given, PlanResult(error="ValueError: x"), live=True))["plan"]
    assert (failed["state"], failed["message"]) == ("failed", "ValueError: x")


def test_only_changed_rows_and_sections_are_sent() -> None:
    before = view_of(cluster([node("n1"), node("n2"), web("a", "n1")]), PlanResult(), live=True)
    after = view_of(cluster([node("n1"), node("n3"), web("a", "n1")]), PlanResult(), live=True)
    assert change_between(before, before) is None
    change = json.loads(change_between(before, after) or b"")
    assert ([row[0] for row in change["rows"]], change["gone"], change["sections"]) == (["n3"], ["n2"], {})


def test_search_finds_names_that_contain_every_word() -> None:
    given = cluster([node("n1"), web("web-1", "n1"), web("web-2", "n1")])
    assert [each["pod"].partition("/")[2] for each in search(given, "WEB 2")["pods"]] == ["web-2"]
    assert search(given, "n1")["nodes"] == ["n1"]
    assert search(given, "  ") == {"nodes": [], "pods": [], "groups": []}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("node", "nn"),
        ("pod", "x/y"),
        ("nodegroup", "a/b"),
        ("pdb", "a/b"),
        ("policy", "TaintManager/x"),
        ("secret", "a"),
    ],
)
def test_unknown_objects_are_not_explained(kind: str, name: str) -> None:
    with pytest.raises(InputError):
        explain(cluster([node("n1")]), kind, name)


def test_explained_node_contains_its_pods() -> None:
    given = cluster([node("n1"), web("web-1", "n1")])
    found = explain(given, "node", "n1")
    assert (found["node"], found["podsTotal"]) == ("n1", 1)
    assert explain(given, "pod", found["pods"][0]["pod"])["node"] == "n1"


def test_disconnected_view_says_since_when() -> None:
    lost = Connection(ok=False, message="connection refused", since=0.0)
    found = sections(view_of(cluster([node("n1")]), PlanResult(), live=True, connection=lost))["head"]["connection"]
    assert found == {"ok": False, "message": "connection refused", "since": "1970-01-01T00:00:00Z"}


def test_explained_policy_contains_its_actions_in_the_plan() -> None:
    things = [node("n1"), node("n2"), web("a", "n1"), web("b", "n1")]
    given = cluster(things, descheduler=(policy({DUPLICATES: {}}),))
    name = f"DeschedulerPolicy/{given.policies.descheduler[0].name}"
    for plan in (None, plan_of(given).plan):
        found = explain(given, "policy", name, plan=plan)
        assert (found["actionsTotal"], [each["reason"] for each in found["actions"]]) == (1, ["DuplicateOnNode"])
        assert found["actions"][0]["pod"] in given.snapshot.pods


def test_explained_policy_whose_kind_is_not_planned_has_no_actions() -> None:
    given = cluster([node("n1")], admission=PlacementAdmission(metadata=ObjectMeta(name="default")))
    found = explain(given, "policy", "PlacementAdmission/default", plan=plan_of(given).plan)
    assert "trimtab explain policy" in found["message"]
    assert not found.keys() & {"planned", "actions", "kept"}


@pytest.mark.parametrize(
    ("source", "usage", "missing"),
    [
        ("KubernetesMetrics", None, True),
        ("KubernetesMetrics", Usage(problem="nodes.metrics.k8s.io is forbidden"), True),
        ("KubernetesMetrics", Usage(), False),
        ("Prometheus", None, True),
    ],
    ids=["not read", "forbidden", "read", "Prometheus"],
)
def test_missing_utilization_is_named_next_to_the_plan(
    source: str, usage: Usage | None, missing: bool, golden: Golden
) -> None:
    prometheus = {"prometheus": {"query": "node_load"}} if source == "Prometheus" else {}
    resource = "MetricResource" if prometheus else "cpu"
    strategy = {
        "params": {
            "nodeResourceUtilizationThresholds": {"thresholds": {resource: 20}, "targetThresholds": {resource: 50}},
            "metricsUtilization": {"source": source, **prometheus},
        }
    }
    measured = policy({"LowNodeUtilization": strategy})
    given = replace(
        cluster([node("n1")], descheduler=(measured,)), usages={} if usage is None else {measured.name: usage}
    )
    omitted = sections(view_of(given, plan_of(given), live=True))["plan"]["omitted"]
    assert len(omitted) == missing
    for each in omitted:
        golden(each)


@pytest.mark.parametrize(
    ("rollouts", "missing"),
    [(None, True), (Rollouts(problem="Deployments cannot be listed: forbidden"), True), (Rollouts(), False)],
    ids=["not read", "forbidden", "read"],
)
def test_missing_deployments_are_named_next_to_the_plan(
    rollouts: Rollouts | None, missing: bool, golden: Golden
) -> None:
    surging = policy({DUPLICATES: {}}, singleReplica="Surge")
    given = replace(cluster([node("n1")], descheduler=(surging,)), rollouts=rollouts)
    omitted = sections(view_of(given, plan_of(given), live=True))["plan"]["omitted"]
    assert len(omitted) == missing
    for each in omitted:
        golden(each)
