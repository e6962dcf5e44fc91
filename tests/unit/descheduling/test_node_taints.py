"""RemovePodsViolatingNodeTaints: which pods go, where to, and which stay."""

from __future__ import annotations

import pytest

from tests.builders import budget, expression, node
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
            id="a pod leaves a node with a taint that it does not tolerate",
        ),
        pytest.param(
            [node("n1").taint(TAINT, "yes"), node("n2"), web("a", "n1").tolerates(TAINT, "yes", "NoSchedule")],
            [],
            id="a pod that tolerates the taint stays",
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
            id="how long a pod stays on a node that is not ready is for its tolerationSeconds to say",
        ),
        pytest.param(
            [node("n1").taint(TAINT, effect=SOFT), node("n2"), web("a", "n1")],
            [],
            id="PreferNoSchedule is not looked at unless asked for",
        ),
        pytest.param(
            [node("n1").cordoned(), node("n2"), web("a", "n1")],
            [("a", "n1", "n2")],
            id="a cordon is a taint as well",
        ),
        pytest.param(
            [node("n1").taint(TAINT), node("n2").taint(OLD), node("n3"), web("a", "n1")],
            [("a", "n1", "n3")],
            id="no pod goes from one taint to another",
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
            id="pods on their way out, at their end or without a node are no concern",
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
def test_pods_leave_nodes_with_a_no_schedule_taint_that_they_do_not_tolerate(things, expected):
    assert moves(plan(things, node_taints())) == expected


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        pytest.param(
            [node("n1").taint(TAINT, effect=SOFT), node("n2"), web("a", "n1")],
            [("a", "n1", "n2")],
            id="a pod leaves for a node without",
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
            id="of the nodes that take the pod, one without is chosen",
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
            id="rules first: their pods get the last place",
        ),
    ],
)
def test_pods_move_to_nodes_with_fewer_prefer_no_schedule_taints_on_request(things, expected):
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
def test_taints_are_picked_by_key_or_by_key_and_value(params, gone):
    things = [node("n1").taint("one", "x"), node("n2").taint("two"), node("n3").taint("three", "y"), node("n4")]
    things += [web("a", "n1"), web("b", "n2"), web("c", "n3")]
    assert [pod for pod, _, _ in moves(plan(things, node_taints(**params)))] == gone


def test_a_node_that_is_not_ready_is_left_at_once_where_the_policy_names_its_taint():
    things = [node("n1").not_ready().taint("node.kubernetes.io/not-ready"), node("n2"), web("a", "n1")]
    assert moves(plan(things, node_taints())) == []
    named = node_taints(includedTaints=["node.kubernetes.io/not-ready"])
    assert moves(plan(things, named)) == [("a", "n1", "n2")]


def test_a_place_is_promised_once():
    """Upstream finds the one free slot on n2 for each of the pods."""
    things = [node("n1").taint(TAINT), node("n2").allocatable(pods=1), *(web(name, "n1") for name in "abc")]
    result = plan(things, node_taints())
    assert moves(result) == [("a", "n1", "n2")]
    assert kept(result) == {"b": "NoPlace", "c": "NoPlace"}
    assert messages(result)["b"] == "0/2 nodes are available: 1 Too many pods, 1 node(s) had untolerated taint(s)."


def test_pods_that_no_node_takes_stay_where_they_are():
    things = [node("n1").taint(TAINT), node("n2").taint(OLD), web("a", "n1"), web("b", "n1").volume("emptyDir")]
    result = plan(things, node_taints())
    assert (moves(result), kept(result)) == ([], {"a": "NoPlace", "b": "LocalStorage"})


def test_where_every_node_repels_as_much_there_is_no_improvement():
    things = [node("n1").taint(TAINT, effect=SOFT), node("n2").taint(OLD, effect=SOFT), web("a", "n1")]
    result = plan(things, node_taints(includePreferNoSchedule=True))
    assert (moves(result), kept(result)) == ([], {"a": "NoImprovement"})
    assert messages(result)["a"] == (
        "0/2 nodes are available: 1 node(s) already ran the pod, "
        "1 node(s) had 1 or more PreferNoSchedule taints that the pod does not tolerate."
    )


def test_a_budget_that_allows_nothing_keeps_all():
    things = [node("n1").taint(TAINT), node("n2"), web("a", "n1"), budget().selecting(app="web").allowing(0)]
    result = plan(things, node_taints())
    assert (moves(result), kept(result)) == ([], {"a": "DisruptionBudget"})


def test_the_message_names_the_taints():
    tainted = node("n1").taint(TAINT, "yes").taint(OLD, effect=SOFT)
    things = [tainted, node("n2"), web("a", "n1")]
    action = plan(things, node_taints(includePreferNoSchedule=True)).actions[0]
    assert action.reason == "NodeTaintsViolated"
    assert action.message == (
        f"n1 has the taints {TAINT}=yes:NoSchedule, {OLD}:PreferNoSchedule, which the pod does not tolerate; "
        "n2 has none such"
    )
    things = [tainted, node("n2").taint("other", effect=SOFT), web("a", "n1")]
    action = plan(things, node_taints(includePreferNoSchedule=True)).actions[0]
    assert action.message.endswith("; n2 has other:PreferNoSchedule only")
    assert plan(things, node_taints()).actions[0].message.startswith(f"n1 has the taint {TAINT}=yes:NoSchedule, which")


def test_only_nodes_of_the_policy_are_left_and_gone_to():
    things = [node(f"n{i}").labels(pool="a" if i < 3 else "b") for i in range(1, 5)]
    things = [things[0].taint(TAINT), things[1], things[2].taint(TAINT), things[3]]
    things += [web("a", "n1"), web("b", "n3")]
    result = plan(things, node_taints(), nodeSelector={"matchLabels": {"pool": "a"}})
    assert moves(result) == [("a", "n1", "n2")]


def test_a_preference_for_a_tainted_node_does_not_hold_a_pod_there():
    things = [node("n1").labels(disk="ssd").taint(TAINT), node("n2").labels(disk="hdd")]
    things += [web("a", "n1").prefers_nodes(10, expression("disk", "In", "ssd"))]
    assert moves(plan(things, node_affinity(REQUIRED, PREFERRED) | node_taints())) == [("a", "n1", "n2")]


def test_no_later_strategy_brings_a_pod_to_more_prefer_no_schedule_taints():
    things = [*nodes("n1"), node("n2").taint(TAINT, effect=SOFT), web("a", "n1"), web("b", "n1")]
    assert moves(plan(things, {"RemoveDuplicates": {}})) == [("a", "n1", "n2")]
    result = plan(things, node_taints(includePreferNoSchedule=True) | {"RemoveDuplicates": {}})
    assert moves(result) == []
    assert "1 node(s) had more PreferNoSchedule taints that the pod does not tolerate" in messages(result)["a"]


def test_a_required_node_affinity_is_met_on_a_node_with_a_prefer_no_schedule_taint_where_no_other_suits():
    things = [node("n1").labels(disk="hdd"), node("n2").labels(disk="ssd").taint(TAINT, effect=SOFT)]
    things += [web("a", "n1").node_selector(disk="ssd")]
    result = plan(things, node_affinity(REQUIRED) | node_taints(includePreferNoSchedule=True))
    assert moves(result) == [("a", "n1", "n2")]


def test_of_thousands_alike_without_a_place_each_is_named():
    things = [node("n1").taint(TAINT), node("n2").taint(OLD), *(web(f"p{number}", "n1") for number in range(50))]
    result = plan(things, node_taints())
    assert len(result.kept) == 50
    assert len({each.message for each in result.kept}) == 1


@pytest.mark.parametrize(
    ("tainted", "params", "gone"),
    [
        pytest.param(node("n1").taint(GOING, "1795176000"), {}, [], id="nodes that are taken away"),
        pytest.param(node("n1").taint(GOING, "1795176000").cordoned(), {}, [], id="the cordon that goes with it"),
        pytest.param(node("n1").taint(GOING).taint(TAINT), {}, [], id="whatever else such a node has"),
        pytest.param(
            node("n1").taint("DeletionCandidateOfClusterAutoscaler", "1795176000", SOFT),
            {"includePreferNoSchedule": True},
            [],
            id="nodes that may go soon",
        ),
        pytest.param(node("n1").taint(GOING), {"includedTaints": [GOING]}, [("a", "n1", "n2")], id="but if named"),
    ],
)
def test_what_a_cluster_autoscaler_taints_is_left_to_it(tainted, params, gone):
    assert moves(plan([tainted, node("n2"), web("a", "n1")], node_taints(**params))) == gone


def test_nothing_is_moved_onto_a_node_that_is_taken_away():
    things = [node("n1").taint(TAINT), node("n2").taint(GOING), web("a", "n1").tolerates(GOING)]
    made = plan(things, node_taints())
    assert moves(made) == []
    assert kept(made) == {"a": "NoPlace"}
