"""RemovePodsViolatingNodeAffinity: pods move where their rules hold, and where they would rather be."""

from __future__ import annotations

import pytest

from tests.builders import PodBuilder, budget, expression, node
from tests.fixtures.golden import Golden
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
        pytest.param([hdd(), ssd(), requiring().cpu("5")], [], id="the other node is too small"),
        pytest.param(
            [hdd(), ssd(), web("x", "n2", owner="x").cpu("3"), requiring().cpu("2")], [], id="the other is full"
        ),
        pytest.param(
            [hdd(), ssd().allocatable(pods=1), requiring("a"), requiring("b")],
            [("a", "n1", "n2")],
            id="free capacity is reserved for one pod",
        ),
        pytest.param(
            [hdd(), ssd().allocatable(pods=1), requiring("a").priority(5), requiring("b")],
            [("b", "n1", "n2")],
            id="the pod of lower priority is evicted first",
        ),
        pytest.param(
            [hdd(), ssd("n2"), ssd("n3"), web("x", "n2", owner="x").cpu("1"), requiring()],
            [("a", "n1", "n3")],
            id="the target has the most free capacity",
        ),
        pytest.param([hdd(), ssd(), preferring()], [], id="preferred terms are ignored"),
    ],
)
def test_required_node_affinity_is_restored(things, expected):
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
            id="the target is the preferred node that fits",
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
            id="the pod with the larger gain is evicted first",
        ),
    ],
)
def test_preferred_node_affinity_is_improved(things, expected):
    assert moves(plan(things, node_affinity(PREFERRED))) == expected


def test_required_affinity_before_preferred():
    objects = [hdd(), ssd().allocatable(pods=1), preferring("a"), requiring("b").priority(1000)]
    result = plan(objects, node_affinity(REQUIRED, PREFERRED))
    assert moves(result) == [("b", "n1", "n2")]
    assert kept(result) == {"a": "NoPlace"}


def test_required_move_prefers_the_node_with_the_highest_preference():
    shunned = node("n3").labels(disk="ssd", zone="a").taint("slow", "", "PreferNoSchedule")
    objects = [hdd(), ssd("n2"), shunned, requiring().prefers_nodes(1, expression("zone", "In", "a"))]
    assert moves(plan(objects, node_affinity(REQUIRED))) == [("a", "n1", "n2")]
    assert moves(plan(objects, node_affinity(REQUIRED, PREFERRED))) == [("a", "n1", "n3")]


def test_messages_name_the_mismatch(golden: Golden):
    action = plan([hdd(), ssd(), selecting()], node_affinity()).actions[0]
    golden(action.message)
    action = plan([node("n1"), ssd(), selecting()], node_affinity()).actions[0]
    golden(action.message, "2")
    action = plan([hdd(), ssd(), requiring()], node_affinity()).actions[0]
    golden(action.message, "3")
    action = plan([hdd(), ssd(), preferring()], node_affinity(PREFERRED)).actions[0]
    golden(action.message, "4")
    assert action.reason == "NodeAffinityViolated"


def test_violating_pods_that_stay_are_reported(golden: Golden):
    objects = [hdd(), ssd(), requiring("critical").priority(2_000_000_000), requiring("large").cpu("5")]
    objects += [requiring("held").labels(held="yes"), web("well", "n1"), budget().selecting(held="yes").allowing(0)]
    result = plan(objects, node_affinity())
    assert moves(result) == []
    assert kept(result) == {"critical": "CriticalPod", "large": "NoPlace", "held": "DisruptionBudget"}
    golden(messages(result)["large"])


def test_equal_pods_without_target_get_same_message():
    objects = [hdd("n1"), hdd("n2"), ssd("n3").taint("x"), *(requiring(f"p{i}", f"n{1 + i % 2}") for i in range(6))]
    result = plan(objects, node_affinity())
    assert len(result.kept) == 6
    words = "1 node(s) had untolerated taint(s), 2 node(s) didn't match Pod's node affinity/selector."
    assert set(messages(result).values()) == {f"0/3 nodes are available: {words}"}


def test_preferred_node_without_capacity_is_reported(golden: Golden):
    result = plan([hdd(), ssd().allocatable(cpu="1"), hdd("n3"), preferring().cpu("2")], node_affinity(PREFERRED))
    assert kept(result) == {"a": "NoImprovement"}
    golden(messages(result)["a"])
