"""RemoveDuplicates: which pods go, where to, and which stay."""

from __future__ import annotations

import pytest

from tests.builders import PodBuilder, budget, node, pod, replica_set
from tests.fixtures.golden import Golden
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
            id="an even distribution is not changed",
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
            id="the smaller pod is evicted",
        ),
        pytest.param(
            [*nodes("n1", "n2"), web("a", "n1").priority(10), web("b", "n1").priority(20).cpu("1m")],
            [("a", "n1", "n2")],
            id="priority precedes QoS class",
        ),
        pytest.param(
            [
                *nodes("n1", "n2"),
                web("a", "n1").created("2026-01-01T00:00:00Z"),
                web("b", "n1").created("2026-02-01T00:00:00Z"),
            ],
            [("b", "n1", "n2")],
            id="the younger pod is evicted",
        ),
        pytest.param(
            [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1").deleted()],
            [],
            id="a terminating pod is no duplicate",
        ),
        pytest.param(
            [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1").phase("Succeeded")],
            [],
            id="a terminated pod is no duplicate",
        ),
        pytest.param(
            [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1"), web("c")],
            [],
            id="a pending sibling fits on the empty node",
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


def test_daemon_set_and_mirror_pods_are_not_evicted():
    daemons = [web(name, "n1").merge(metadata={"ownerReferences": []}) for name in "ab"]
    daemons = [pod.owned_by("DaemonSet", "agent") for pod in daemons]
    result = plan([*nodes("n1", "n2"), *daemons], {DUPLICATES: {}})
    assert (moves(result), kept(result)) == ([], {})


def test_excluded_owner_kinds_are_not_evicted():
    objects = [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1")]
    assert moves(plan(objects, _excluding("StatefulSet"))) == [("a", "n1", "n2")]
    result = plan(objects, _excluding("StatefulSet", "ReplicaSet"))
    assert (moves(result), kept(result)) == ([], {})


def test_protected_pods_count_in_fair_share():
    """Counting only evictable pods, as upstream does, would find one pod here and no duplicate."""
    objects = [*nodes("n1", "n2"), web("a", "n1").volume("emptyDir"), web("b", "n1")]
    result = plan(objects, {DUPLICATES: {}})
    assert moves(result) == [("b", "n1", "n2")]
    assert kept(result) == {"a": "LocalStorage"}


def test_capacity_is_reserved_once(golden: Golden):
    """Upstream finds the one free slot on n2 for each of the duplicates."""
    objects = [node("n1"), node("n2").allocatable(pods=1), *(web(name, "n1") for name in "abcd")]
    result = plan(objects, {DUPLICATES: {}})
    assert moves(result) == [("a", "n1", "n2")]
    assert kept(result) == {"b": "NoPlace", "c": "NoPlace", "d": "NoPlace"}
    golden(messages(result)["b"])


def test_nodes_with_fair_share_are_no_targets(golden: Golden):
    objects = [*nodes("n1", "n2"), node("n3").allocatable(pods=0)]
    objects += [web(name, "n1") for name in "abc"] + [web("d", "n2"), web("e", "n2")]
    result = plan(objects, {DUPLICATES: {}})
    assert moves(result) == []
    assert kept(result) == dict.fromkeys("abc", "NoImprovement")
    golden(messages(result)["a"])


@pytest.mark.parametrize(
    "others",
    [[], [node("n2").taint(TAINT)], [node("n2").not_ready()]],
    ids=["one node", "the other is tainted", "the other is not ready"],
)
def test_duplicates_without_second_node_are_reported(others, golden: Golden):
    result = plan([node("n1"), *others, web("a", "n1"), web("b", "n1")], {DUPLICATES: {}})
    assert (moves(result), kept(result)) == ([], {"a": "NotEnoughNodes"})
    golden(messages(result)["a"])


def test_single_pods_without_second_node_are_not_reported():
    assert kept(plan([node("n1"), web("a", "n1")], {DUPLICATES: {}})) == {}


def test_exhausted_pdb_keeps_all_pods():
    objects = [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1"), budget().selecting(app="web").allowing(0)]
    result = plan(objects, {DUPLICATES: {}})
    assert (moves(result), kept(result)) == ([], {"a": "DisruptionBudget", "b": "DisruptionBudget"})


def test_limit_reports_only_pods_it_keeps():
    objects = [*nodes("n1", "n2", "n3"), *(web(name, "n1") for name in "abcd")]
    found = plan(objects, {DUPLICATES: {}}, limits={"perCycle": 1})
    assert moves(found) == [("a", "n1", "n2")]
    assert kept(found) == {"b": "LimitReached"}


def test_message_has_compared_values(golden: Golden):
    action = plan([*nodes("n1", "n2"), web("a", "n1"), web("b", "n1")], {DUPLICATES: {}}).actions[0]
    golden(action.message)
    assert (action.reason, action.owner, action.uid) == ("DuplicateOnNode", "ReplicaSet/web", "pod-shop-a")


def test_only_nodes_of_the_policy_count():
    """Elsewhere ten siblings would make the fair share six and hide the duplicates."""
    objects = [node(f"n{i}").labels(pool="a" if i < 3 else "b") for i in range(1, 5)]
    objects += [web(f"x{i}", "n3") for i in range(10)]
    objects += [web("a", "n1"), web("b", "n1")]
    result = plan(objects, {DUPLICATES: {}}, nodeSelector={"matchLabels": {"pool": "a"}})
    assert moves(result) == [("a", "n1", "n2")]


def resized(name: str, on: str, cpu: str) -> PodBuilder:
    return web(name, on).cpu(cpu).merge(metadata={"generation": 2})


@pytest.mark.parametrize(
    ("template", "expected", "reasons"),
    [
        ("500m", [("a", "n1", "n2")], {}),
        ("2", [("a", "n1", "n2")], {}),
        ("3", [], {"a": "ReplacementLarger", "b": "ReplacementLarger"}),
    ],
)
def test_room_is_sought_for_the_replacement_of_a_resized_pod(template: str, expected: object, reasons: object) -> None:
    """The pods were resized to 200m in place; n2 has room for 2 cpus."""
    owner = replica_set("web").of_pods(pod().cpu(template).memory("1Gi"))
    other = pod("db").on("n2").cpu("2").owned_by("ReplicaSet", "db")
    pods = resized("a", "n1", "200m"), resized("b", "n1", "200m")
    result = plan([*nodes("n1", "n2"), *pods, other, owner], {DUPLICATES: {}})
    assert moves(result) == expected
    assert {name: reason for name, reason in kept(result).items() if name in "ab"} == reasons


def test_pods_of_a_pod_group_stay() -> None:
    pods = [web(name, "n1").merge(spec={"schedulingGroup": {"podGroupName": "train"}}) for name in "ab"]
    result = plan([*nodes("n1", "n2"), *pods], {DUPLICATES: {}})
    assert (moves(result), kept(result)) == ([], dict.fromkeys("ab", "PodGroupsStay"))


def test_room_of_nominated_pods_is_not_given_away() -> None:
    """kube-scheduler preempts on n2 for the waiting pod; n2 has room for one of the two."""
    waiting = pod("urgent").cpu("3").owned_by("ReplicaSet", "urgent").unschedulable()
    pods = [web(name, "n1").cpu("2") for name in "ab"]
    assert moves(plan([*nodes("n1", "n2"), *pods, waiting], {DUPLICATES: {}})) == [("a", "n1", "n2")]
    nominated = waiting.merge(status={"nominatedNodeName": "n2"})
    result = plan([*nodes("n1", "n2"), *pods, nominated], {DUPLICATES: {}})
    assert moves(result) == []
    assert kept(result)["a"] == "NoPlace"
    assert "urgent" not in kept(result)
