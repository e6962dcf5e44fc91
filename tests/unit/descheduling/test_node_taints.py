"""RemovePodsViolatingNodeTaints: which pods go, where to, and which stay."""

from __future__ import annotations

import pytest

from tests.builders import budget, expression, node
from tests.fixtures.golden import Golden
from tests.unit.descheduling.planning import (
    PREFERRED,
    REQUIRED,
    kept,
    messages,
    moves,
    node_affinity,
    node_taints,
    nodes,
    plan,
    web,
)

TAINT = "example.com/reserved"
OLD = "example.com/old"
SOFT = "PreferNoSchedule"
GOING = "ToBeDeletedByClusterAutoscaler"


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        pytest.param(
            [node("n1").taint(TAINT), node("n2"), web("a", "n1")],
            [("a", "n1", "n2")],
            id="a pod that does not tolerate a taint is evicted",
        ),
        pytest.param(
            [node("n1").taint(TAINT, "yes"), node("n2"), web("a", "n1").tolerates(TAINT, "yes", "NoSchedule")],
            [],
            id="a pod that tolerates the taint is not evicted",
        ),
        pytest.param(
            [node("n1").taint(TAINT, "yes"), node("n2"), web("a", "n1").tolerates(TAINT, "no", "NoSchedule")],
            [("a", "n1", "n2")],
            id="a toleration of another value does not help",
        ),
        pytest.param(
            # upstream's count of tolerations against taints refuses such a wildcard elsewhere
            [node("n1").taint(TAINT).taint(OLD), node("n2"), web("a", "n1").tolerates()],
            [],
            id="a toleration of everything tolerates two taints",
        ),
        pytest.param(
            [node("n1").taint(TAINT).taint(OLD), node("n2"), web("a", "n1").tolerates(TAINT)],
            [("a", "n1", "n2")],
            id="every taint must be tolerated",
        ),
        pytest.param(
            [node("n1").taint(TAINT, effect="NoExecute"), node("n2"), web("a", "n1")],
            [],
            id="NoExecute is the taint manager's",
        ),
        pytest.param(
            [
                node("n1")
                .not_ready()
                .taint("node.kubernetes.io/not-ready")
                .taint("node.kubernetes.io/not-ready", effect="NoExecute"),
                node("n2"),
                web("a", "n1").tolerates("node.kubernetes.io/not-ready", effect="NoExecute", seconds=300),
            ],
            [],
            id="not-ready taints are left to tolerationSeconds",
        ),
        pytest.param(
            [node("n1").taint(TAINT, effect=SOFT), node("n2"), web("a", "n1")],
            [],
            id="PreferNoSchedule is ignored by default",
        ),
        pytest.param(
            [node("n1").cordoned(), node("n2"), web("a", "n1")],
            [("a", "n1", "n2")],
            id="a cordon is a taint as well",
        ),
        pytest.param(
            [node("n1").taint(TAINT), node("n2").taint(OLD), node("n3"), web("a", "n1")],
            [("a", "n1", "n3")],
            id="no pod moves to a node with another taint",
        ),
        pytest.param(
            [
                node("n1").taint(TAINT),
                node("n2"),
                web("a", "n1").deleted(),
                web("b", "n1").phase("Succeeded"),
                web("c"),
            ],
            [],
            id="terminating, terminated and unbound pods are ignored",
        ),
        pytest.param(
            [
                node("n1").taint(TAINT),
                node("n2").allocatable(pods=2),
                web("a", "n1").priority(10),
                web("b", "n1").cpu("2"),
                web("c", "n1").cpu("1"),
                web("d", "n1").priority(20),
            ],
            [("c", "n1", "n2"), ("b", "n1", "n2")],
            id="where places are few, those of low priority get them, and the smaller first",
        ),
    ],
)
def test_pods_not_tolerating_no_schedule_taint_are_evicted(things, expected):
    assert moves(plan(things, node_taints())) == expected


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        pytest.param(
            [node("n1").taint(TAINT, effect=SOFT), node("n2"), web("a", "n1")],
            [("a", "n1", "n2")],
            id="a pod moves to a node without the taint",
        ),
        pytest.param(
            [
                node("n1").taint(TAINT, effect=SOFT).taint(OLD, effect=SOFT),
                node("n2").taint(OLD, effect=SOFT),
                web("a", "n1"),
            ],
            [("a", "n1", "n2")],
            id="one is better than two",
        ),
        pytest.param(
            [node("n1").taint(TAINT, effect=SOFT), node("n2").taint(OLD, effect=SOFT), web("a", "n1")],
            [],
            id="one is no better than one",
        ),
        pytest.param(
            [node("n1").taint(TAINT), node("n2").taint(OLD, effect=SOFT), web("a", "n1")],
            [("a", "n1", "n2")],
            id="a rule is worth more than a preference",
        ),
        pytest.param(
            [node("n1").taint(TAINT), node("n2").taint(OLD, effect=SOFT), node("n3"), web("a", "n1")],
            [("a", "n1", "n3")],
            id="the target is a fitting node without the taint",
        ),
        pytest.param(
            [
                node("n1").taint(TAINT, effect=SOFT),
                node("n2").taint(TAINT),
                node("n3").allocatable(pods=1),
                web("a", "n1").cpu("10m"),
                web("b", "n2").cpu("1"),
            ],
            [("b", "n2", "n3")],
            id="hard taints are processed first",
        ),
    ],
)
def test_prefer_no_schedule_taints_are_enforced_if_enabled(things, expected):
    assert moves(plan(things, node_taints(includePreferNoSchedule=True))) == expected


@pytest.mark.parametrize(
    ("params", "gone"),
    [
        ({}, ["a", "b", "c"]),
        ({"excludedTaints": ["one"]}, ["b", "c"]),
        ({"excludedTaints": ["one=x"]}, ["b", "c"]),
        ({"excludedTaints": ["one=y"]}, ["a", "b", "c"]),
        ({"excludedTaints": ["two=", "three"]}, ["a"]),
        ({"includedTaints": ["one"]}, ["a"]),
        ({"includedTaints": ["one=x", "three"]}, ["a", "c"]),
        ({"includedTaints": ["one=y"]}, []),
        ({"includedTaints": ["two="]}, ["b"]),
        ({"includedTaints": ["two=x", "on", "x"]}, []),
    ],
    ids=str,
)
def test_taints_are_selected_by_key_or_key_value(params, gone):
    objects = [node("n1").taint("one", "x"), node("n2").taint("two"), node("n3").taint("three", "y"), node("n4")]
    objects += [web("a", "n1"), web("b", "n2"), web("c", "n3")]
    assert [pod for pod, _, _ in moves(plan(objects, node_taints(**params)))] == gone


def test_included_not_ready_taint_evicts_immediately():
    objects = [node("n1").not_ready().taint("node.kubernetes.io/not-ready"), node("n2"), web("a", "n1")]
    assert moves(plan(objects, node_taints())) == []
    named = node_taints(includedTaints=["node.kubernetes.io/not-ready"])
    assert moves(plan(objects, named)) == [("a", "n1", "n2")]


def test_capacity_is_reserved_once(golden: Golden):
    """Upstream finds the one free slot on n2 for each of the pods."""
    objects = [node("n1").taint(TAINT), node("n2").allocatable(pods=1), *(web(name, "n1") for name in "abc")]
    result = plan(objects, node_taints())
    assert moves(result) == [("a", "n1", "n2")]
    assert kept(result) == {"b": "NoPlace", "c": "NoPlace"}
    golden(messages(result)["b"])


def test_pods_without_feasible_node_are_kept():
    objects = [node("n1").taint(TAINT), node("n2").taint(OLD), web("a", "n1"), web("b", "n1").volume("emptyDir")]
    result = plan(objects, node_taints())
    assert (moves(result), kept(result)) == ([], {"a": "NoPlace", "b": "LocalStorage"})


def test_equal_prefer_no_schedule_taints_are_no_improvement(golden: Golden):
    objects = [node("n1").taint(TAINT, effect=SOFT), node("n2").taint(OLD, effect=SOFT), web("a", "n1")]
    result = plan(objects, node_taints(includePreferNoSchedule=True))
    assert (moves(result), kept(result)) == ([], {"a": "NoImprovement"})
    golden(messages(result)["a"])


def test_exhausted_pdb_keeps_all_pods():
    objects = [node("n1").taint(TAINT), node("n2"), web("a", "n1"), budget().selecting(app="web").allowing(0)]
    result = plan(objects, node_taints())
    assert (moves(result), kept(result)) == ([], {"a": "DisruptionBudget"})


def test_message_lists_taints(golden: Golden):
    tainted = node("n1").taint(TAINT, "yes").taint(OLD, effect=SOFT)
    objects = [tainted, node("n2"), web("a", "n1")]
    action = plan(objects, node_taints(includePreferNoSchedule=True)).actions[0]
    assert action.reason == "NodeTaintsViolated"
    golden(action.message)
    objects = [tainted, node("n2").taint("other", effect=SOFT), web("a", "n1")]
    action = plan(objects, node_taints(includePreferNoSchedule=True)).actions[0]
    golden(action.message, "2")
    golden(plan(objects, node_taints()).actions[0].message, "3")


def test_only_selected_nodes_are_sources_and_targets():
    objects = [node(f"n{i}").labels(pool="a" if i < 3 else "b") for i in range(1, 5)]
    objects = [objects[0].taint(TAINT), objects[1], objects[2].taint(TAINT), objects[3]]
    objects += [web("a", "n1"), web("b", "n3")]
    result = plan(objects, node_taints(), nodeSelector={"matchLabels": {"pool": "a"}})
    assert moves(result) == [("a", "n1", "n2")]


def test_preferred_affinity_does_not_keep_pod_on_tainted_node():
    objects = [node("n1").labels(disk="ssd").taint(TAINT), node("n2").labels(disk="hdd")]
    objects += [web("a", "n1").prefers_nodes(10, expression("disk", "In", "ssd"))]
    assert moves(plan(objects, node_affinity(REQUIRED, PREFERRED) | node_taints())) == [("a", "n1", "n2")]


def test_later_strategies_do_not_add_prefer_no_schedule_taints(golden: Golden):
    objects = [*nodes("n1"), node("n2").taint(TAINT, effect=SOFT), web("a", "n1"), web("b", "n1")]
    assert moves(plan(objects, {"RemoveDuplicates": {}})) == [("a", "n1", "n2")]
    result = plan(objects, node_taints(includePreferNoSchedule=True) | {"RemoveDuplicates": {}})
    assert moves(result) == []
    golden(messages(result)["a"])


def test_required_affinity_may_use_node_with_prefer_no_schedule_taint():
    objects = [node("n1").labels(disk="hdd"), node("n2").labels(disk="ssd").taint(TAINT, effect=SOFT)]
    objects += [web("a", "n1").node_selector(disk="ssd")]
    result = plan(objects, node_affinity(REQUIRED) | node_taints(includePreferNoSchedule=True))
    assert moves(result) == [("a", "n1", "n2")]


def test_every_equal_pod_without_target_is_reported():
    objects = [node("n1").taint(TAINT), node("n2").taint(OLD), *(web(f"p{number}", "n1") for number in range(50))]
    result = plan(objects, node_taints())
    assert len(result.kept) == 50
    assert len({each.message for each in result.kept}) == 1


@pytest.mark.parametrize(
    ("tainted", "params", "gone"),
    [
        pytest.param(node("n1").taint(GOING, "1795176000"), {}, [], id="nodes that are taken away"),
        pytest.param(node("n1").taint(GOING, "1795176000").cordoned(), {}, [], id="the cordon of a removal"),
        pytest.param(node("n1").taint(GOING).taint(TAINT), {}, [], id="other taints of such a node"),
        pytest.param(
            node("n1").taint("DeletionCandidateOfClusterAutoscaler", "1795176000", SOFT),
            {"includePreferNoSchedule": True},
            [],
            id="deletion candidates",
        ),
        pytest.param(
            node("n1").taint(GOING),
            {"includedTaints": [GOING]},
            [("a", "n1", "n2")],
            id="unless the policy names the taint",
        ),
    ],
)
def test_autoscaler_taints_are_ignored(tainted, params, gone):
    assert moves(plan([tainted, node("n2"), web("a", "n1")], node_taints(**params))) == gone


@pytest.mark.parametrize("resource", ["memory", "disk", "pid"])
def test_taints_of_nodes_under_pressure_evict_no_pod(resource):
    taint = f"pressure.trimtab.dev/{resource}"
    objects = [node("n1").taint(taint), node("n2"), web("a", "n1")]
    assert moves(plan(objects, node_taints())) == []
    assert moves(plan(objects, node_taints(includedTaints=[taint]))) == [("a", "n1", "n2")]
    objects = [node("n1").taint(taint), node("n2").taint(TAINT), web("a", "n2")]
    assert kept(plan(objects, node_taints())) == {"a": "NoPlace"}, "a node under pressure is no target"


def test_nodes_being_removed_are_no_targets():
    objects = [node("n1").taint(TAINT), node("n2").taint(GOING), web("a", "n1").tolerates(GOING)]
    made = plan(objects, node_taints())
    assert moves(made) == []
    assert kept(made) == {"a": "NoPlace"}
