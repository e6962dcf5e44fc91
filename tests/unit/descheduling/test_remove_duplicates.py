"""RemoveDuplicates: which pods go, where to, and which stay."""

from __future__ import annotations

import pytest

from tests.builders import budget, node
from tests.unit.descheduling.planning import DUPLICATES, kept, messages, moves, nodes, plan, web

TAINT = "example.com/reserved"


def _excluding(*kinds: str) -> dict[str, object]:
    return {DUPLICATES: {"params": {"removeDuplicates": {"excludeOwnerKinds": list(kinds)}}}}


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        pytest.param(
            [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1")],
            [("a", "n1", "n2")],
            id="two on one of two nodes part",
        ),
        pytest.param(
            # upstream evicts one of three here and leaves two behind
            [*nodes("n1", "n2", "n3"), web("a", "n1"), web("b", "n1"), web("c", "n1")],
            [("a", "n1", "n2"), ("b", "n1", "n3")],
            id="three on one of three nodes part",
        ),
        pytest.param(
            [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1"), web("c", "n1")],
            [("a", "n1", "n2")],
            id="three on two nodes: two and one is the fair share",
        ),
        pytest.param(
            [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1"), web("c", "n2"), web("d", "n2")],
            [],
            id="an even spread stays",
        ),
        pytest.param(
            [*nodes("n1", "n2", "n3"), web("a", "n1"), web("b", "n1"), web("c", "n2"), web("d", "n3")],
            [],
            id="four on three nodes: two on one of them is the fair share",
        ),
        pytest.param(
            [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1", namespace="blog")],
            [],
            id="owners of one name in two namespaces are two",
        ),
        pytest.param(
            [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1", owner="web-old")],
            [],
            id="the old and the new ReplicaSet of a rollout are two owners",
        ),
        pytest.param(
            [
                *nodes("n1", "n2", "n3"),
                *(web(name, "n1") for name in "abcd"),
                web("e", "n2"),
            ],
            [("a", "n1", "n3"), ("b", "n1", "n2")],
            id="the node with the fewest siblings is filled first, and none beyond the fair share",
        ),
        pytest.param(
            [*nodes("n1", "n2"), web("a", "n1").cpu("1"), web("b", "n1").cpu("500m")],
            [("b", "n1", "n2")],
            id="the smaller pod goes",
        ),
        pytest.param(
            [*nodes("n1", "n2"), web("a", "n1").priority(10), web("b", "n1").priority(20).cpu("1m")],
            [("a", "n1", "n2")],
            id="the pod of lower priority goes, whatever its QoS class",
        ),
        pytest.param(
            [
                *nodes("n1", "n2"),
                web("a", "n1").created("2026-01-01T00:00:00Z"),
                web("b", "n1").created("2026-02-01T00:00:00Z"),
            ],
            [("b", "n1", "n2")],
            id="the younger pod goes",
        ),
        pytest.param(
            [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1").deleted()],
            [],
            id="a pod on its way out is no duplicate",
        ),
        pytest.param(
            [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1").phase("Succeeded")],
            [],
            id="a pod that has ended is no duplicate",
        ),
        pytest.param(
            [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1"), web("c")],
            [],
            id="a pending sibling will go to the empty node: nobody has to be moved there",
        ),
        pytest.param(
            [node("n1"), node("n2"), node("n3").taint(TAINT), web("a", "n1"), web("b", "n1"), web("c", "n2")],
            [],
            id="a tainted node is not counted: two and one is the fair share of two nodes",
        ),
        pytest.param(
            [node("n1"), node("n2"), node("n3").cordoned(), web("a", "n3"), web("b", "n3"), web("c", "n3")],
            [("a", "n3", "n1")],
            id="a cordoned node gives pods away and gets none",
        ),
        pytest.param(
            [node("n1"), node("n2").not_ready(), node("n3"), web("a", "n1"), web("b", "n1")],
            [("a", "n1", "n3")],
            id="a node that is not ready gets none",
        ),
        pytest.param(
            [node("n1"), node("n2").deleted(), node("n3"), web("a", "n1"), web("b", "n1")],
            [("a", "n1", "n3")],
            id="a node that is being deleted gets none",
        ),
        pytest.param(
            [node("n1"), node("n2").merge(status={"conditions": []}), web("a", "n1"), web("b", "n1")],
            [("a", "n1", "n2")],
            id="a node without conditions, as in a file written by hand, is ready",
        ),
        pytest.param(
            [
                node("n1").allocatable(cpu="8"),
                node("n2"),
                node("n3"),
                *(web(x, "n1").cpu("2") for x in "abc"),
                web("z", "n2", owner="other").cpu("1"),
            ],
            [("a", "n1", "n3"), ("b", "n1", "n2")],
            id="of equally bare nodes the emptier gets the first",
        ),
    ],
)
def test_pods_of_an_owner_spread_over_the_nodes_that_can_run_them(things, expected):
    assert moves(plan(things, {DUPLICATES: {}})) == expected


def test_pods_of_daemon_sets_and_nodes_are_left_alone():
    daemons = [web(name, "n1").merge(metadata={"ownerReferences": []}) for name in "ab"]
    daemons = [pod.owned_by("DaemonSet", "agent") for pod in daemons]
    result = plan([*nodes("n1", "n2"), *daemons], {DUPLICATES: {}})
    assert (moves(result), kept(result)) == ([], {})


def test_owners_of_excluded_kinds_are_left_alone():
    things = [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1")]
    assert moves(plan(things, _excluding("StatefulSet"))) == [("a", "n1", "n2")]
    result = plan(things, _excluding("StatefulSet", "ReplicaSet"))
    assert (moves(result), kept(result)) == ([], {})


def test_protected_pods_take_their_share():
    """Counting only evictable pods, as upstream does, would find one pod here and no duplicate."""
    things = [*nodes("n1", "n2"), web("a", "n1").volume("emptyDir"), web("b", "n1")]
    result = plan(things, {DUPLICATES: {}})
    assert moves(result) == [("b", "n1", "n2")]
    assert kept(result) == {"a": "LocalStorage"}


def test_a_place_is_promised_once():
    """Upstream finds the one free slot on n2 for each of the duplicates."""
    things = [node("n1"), node("n2").allocatable(pods=1), *(web(name, "n1") for name in "abcd")]
    result = plan(things, {DUPLICATES: {}})
    assert moves(result) == [("a", "n1", "n2")]
    assert kept(result) == {"b": "NoPlace", "c": "NoPlace", "d": "NoPlace"}
    assert messages(result)["b"] == "0/2 nodes are available: 1 Too many pods, 1 node(s) already ran the pod."


def test_where_a_pod_fits_only_on_nodes_that_have_their_share_there_is_no_improvement():
    things = [*nodes("n1", "n2"), node("n3").allocatable(pods=0)]
    things += [web(name, "n1") for name in "abc"] + [web("d", "n2"), web("e", "n2")]
    result = plan(things, {DUPLICATES: {}})
    assert moves(result) == []
    assert kept(result) == dict.fromkeys("abc", "NoImprovement")
    assert messages(result)["a"] == (
        "0/3 nodes are available: 1 Too many pods, 1 node(s) already ran the pod, "
        "1 node(s) had their fair share (2) of the pods of ReplicaSet shop/web."
    )


@pytest.mark.parametrize(
    "others",
    [[], [node("n2").taint(TAINT)], [node("n2").not_ready()]],
    ids=["one node", "the other is tainted", "the other is not ready"],
)
def test_duplicates_without_a_second_node_are_named(others):
    result = plan([node("n1"), *others, web("a", "n1"), web("b", "n1")], {DUPLICATES: {}})
    assert (moves(result), kept(result)) == ([], {"a": "NotEnoughNodes"})
    assert messages(result)["a"] == ("2 pods of ReplicaSet shop/web on n1; only one node of the policy's can run them")


def test_single_pods_without_a_second_node_are_not_named():
    assert kept(plan([node("n1"), web("a", "n1")], {DUPLICATES: {}})) == {}


def test_a_budget_that_allows_nothing_keeps_all():
    things = [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1"), budget().selecting(app="web").allowing(0)]
    result = plan(things, {DUPLICATES: {}})
    assert (moves(result), kept(result)) == ([], {"a": "DisruptionBudget", "b": "DisruptionBudget"})


def test_what_a_limit_cuts_is_named_and_no_more():
    things = [*nodes("n1", "n2", "n3"), *(web(name, "n1") for name in "abcd")]
    found = plan(things, {DUPLICATES: {}}, limits={"perCycle": 1})
    assert moves(found) == [("a", "n1", "n2")]
    assert kept(found) == {"b": "LimitReached"}


def test_the_message_has_the_numbers():
    action = plan([*nodes("n1", "n2"), web("a", "n1"), web("b", "n1")], {DUPLICATES: {}}).actions[0]
    assert action.message == "2 pods of ReplicaSet shop/web on n1; n2 has none"
    assert (action.reason, action.owner, action.uid) == ("DuplicateOnNode", "ReplicaSet/web", "pod-shop-a")


def test_only_nodes_of_the_policy_count():
    """Elsewhere ten siblings would make the fair share six and hide the duplicates."""
    things = [node(f"n{i}").labels(pool="a" if i < 3 else "b") for i in range(1, 5)]
    things += [web(f"x{i}", "n3") for i in range(10)]
    things += [web("a", "n1"), web("b", "n1")]
    result = plan(things, {DUPLICATES: {}}, nodeSelector={"matchLabels": {"pool": "a"}})
    assert moves(result) == [("a", "n1", "n2")]
