"""RemovePodsViolatingNodeAffinity: pods move where their rules hold, and where they would rather be."""

from __future__ import annotations

import pytest

from tests.builders import PodBuilder, budget, expression, node
from tests.unit.descheduling.planning import PREFERRED, REQUIRED, kept, messages, moves, node_affinity, plan, web

SSD = expression("disk", "In", "ssd")


def hdd(name: str = "n1"):
    return node(name).labels(disk="hdd")


def ssd(name: str = "n2"):
    return node(name).labels(disk="ssd")


def selecting(name: str = "a", on: str = "n1") -> PodBuilder:
    return web(name, on).node_selector(disk="ssd")


def requiring(name: str = "a", on: str = "n1") -> PodBuilder:
    return web(name, on).node_affinity(SSD)


def preferring(name: str = "a", on: str = "n1", weight: int = 10) -> PodBuilder:
    return web(name, on).prefers_nodes(weight, SSD)


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        pytest.param([hdd(), ssd(), requiring()], [("a", "n1", "n2")], id="required affinity"),
        pytest.param([hdd(), ssd(), selecting()], [("a", "n1", "n2")], id="a plain node selector"),
        pytest.param([hdd(), ssd(), requiring(on="n2")], [], id="satisfied"),
        pytest.param([hdd(), ssd(), web("a", "n1")], [], id="nothing required"),
        pytest.param([hdd(), hdd("n2"), requiring()], [], id="no other node satisfies it"),
        pytest.param([hdd(), ssd().cordoned(), requiring()], [], id="the other is cordoned"),
        pytest.param([hdd(), ssd().taint("x"), requiring()], [], id="the other is tainted"),
        pytest.param([hdd(), ssd().taint("x"), requiring().tolerates("x")], [("a", "n1", "n2")], id="tolerated"),
        pytest.param([hdd(), ssd().not_ready(), requiring()], [], id="the other is not ready"),
        pytest.param([hdd(), ssd(), requiring().cpu("5")], [], id="the other is too small"),
        pytest.param(
            [hdd(), ssd(), web("x", "n2", owner="x").cpu("3"), requiring().cpu("2")], [], id="the other is full"
        ),
        pytest.param(
            [hdd(), ssd().allocatable(pods=1), requiring("a"), requiring("b")],
            [("a", "n1", "n2")],
            id="one place is promised to one pod",
        ),
        pytest.param(
            [hdd(), ssd().allocatable(pods=1), requiring("a").priority(5), requiring("b")],
            [("b", "n1", "n2")],
            id="the lower priority goes first",
        ),
        pytest.param(
            [hdd(), ssd("n2"), ssd("n3"), web("x", "n2", owner="x").cpu("1"), requiring()],
            [("a", "n1", "n3")],
            id="where most room is",
        ),
        pytest.param([hdd(), ssd(), preferring()], [], id="preferences are not looked at"),
    ],
)
def test_pods_move_to_nodes_that_satisfy_what_they_require(things, expected):
    assert moves(plan(things, node_affinity(REQUIRED))) == expected


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        pytest.param([hdd(), ssd(), preferring()], [("a", "n1", "n2")], id="the other is preferred"),
        pytest.param([hdd(), ssd(), preferring(on="n2")], [], id="already there"),
        pytest.param([hdd(), hdd("n2"), preferring()], [], id="no node is preferred"),
        pytest.param(
            # upstream compares with the heaviest node whether or not it takes the pod
            [hdd(), ssd().allocatable(cpu="1"), preferring().cpu("2")],
            [],
            id="the preferred one is full",
        ),
        pytest.param(
            [
                hdd(),
                ssd("n2").allocatable(cpu="1"),
                ssd("n3"),
                node("n4").labels(disk="ssd", zone="a").allocatable(cpu="1"),
                preferring().prefers_nodes(5, expression("zone", "In", "a")).cpu("2"),
            ],
            [("a", "n1", "n3")],
            id="the heaviest that takes the pod, not the heaviest of all",
        ),
        pytest.param(
            [
                node("n1").labels(disk="ssd"),
                node("n2").labels(zone="a"),
                preferring(weight=5).prefers_nodes(5, expression("zone", "In", "a")),
            ],
            [],
            id="equally preferred is not better",
        ),
        pytest.param(
            [
                hdd().allocatable(cpu="8"),
                ssd().allocatable(pods=1),
                preferring("a", weight=10),
                preferring("b", weight=20),
            ],
            [("b", "n1", "n2")],
            id="the greater gain goes first",
        ),
    ],
)
def test_pods_move_to_nodes_that_they_prefer(things, expected):
    assert moves(plan(things, node_affinity(PREFERRED))) == expected


def test_what_is_required_comes_before_what_is_preferred():
    things = [hdd(), ssd().allocatable(pods=1), preferring("a"), requiring("b").priority(1000)]
    result = plan(things, node_affinity(REQUIRED, PREFERRED))
    assert moves(result) == [("b", "n1", "n2")]
    assert kept(result) == {"a": "NoPlace"}


def test_a_required_move_goes_where_preference_is_highest():
    shunned = node("n3").labels(disk="ssd", zone="a").taint("slow", "", "PreferNoSchedule")
    things = [hdd(), ssd("n2"), shunned, requiring().prefers_nodes(1, expression("zone", "In", "a"))]
    assert moves(plan(things, node_affinity(REQUIRED))) == [("a", "n1", "n2")]
    assert moves(plan(things, node_affinity(REQUIRED, PREFERRED))) == [("a", "n1", "n3")]


def test_messages_name_what_does_not_match():
    action = plan([hdd(), ssd(), selecting()], node_affinity()).actions[0]
    assert action.message == "n1 has disk=hdd, the pod's node selector wants disk=ssd; n2 matches"
    action = plan([node("n1"), ssd(), selecting()], node_affinity()).actions[0]
    assert action.message == "n1 has no label disk, the pod's node selector wants disk=ssd; n2 matches"
    action = plan([hdd(), ssd(), requiring()], node_affinity()).actions[0]
    assert action.message == "n1 does not match the pod's required node affinity; n2 matches"
    action = plan([hdd(), ssd(), preferring()], node_affinity(PREFERRED)).actions[0]
    assert action.message == "preferred node affinity weight of n1 is 0; n2 has 10"
    assert action.reason == "NodeAffinityViolated"


def test_pods_that_violate_and_stay_are_named():
    things = [hdd(), ssd(), requiring("critical").priority(2_000_000_000), requiring("large").cpu("5")]
    things += [requiring("held").labels(held="yes"), web("well", "n1"), budget().selecting(held="yes").allowing(0)]
    result = plan(things, node_affinity())
    assert moves(result) == []
    assert kept(result) == {"critical": "CriticalPod", "large": "NoPlace", "held": "DisruptionBudget"}
    assert messages(result)["large"] == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector."
    )


def test_pods_alike_without_a_place_get_the_same_words():
    things = [hdd("n1"), hdd("n2"), ssd("n3").taint("x"), *(requiring(f"p{i}", f"n{1 + i % 2}") for i in range(6))]
    result = plan(things, node_affinity())
    assert len(result.kept) == 6
    words = "1 node(s) had untolerated taint(s), 2 node(s) didn't match Pod's node affinity/selector."
    assert set(messages(result).values()) == {f"0/3 nodes are available: {words}"}


def test_a_pod_that_would_rather_be_where_no_room_is_is_told_so():
    result = plan([hdd(), ssd().allocatable(cpu="1"), hdd("n3"), preferring().cpu("2")], node_affinity(PREFERRED))
    assert kept(result) == {"a": "NoImprovement"}
    assert messages(result)["a"] == (
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) already ran the pod, "
        "1 node(s) had a preferred node affinity weight of 0 or less."
    )
