"""What the descheduler project's users ran into, a test for each, named after the project's issue.

The clusters are ours, as small as shows the point; docs/compatibility.md says what is different and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.builders import HOSTNAME, ZONE, PodBuilder, budget, expression, node, selector
from tests.unit.descheduling.planning import (
    ANTI_AFFINITY,
    DUPLICATES,
    NOW,
    PREFERRED,
    built,
    kept,
    messages,
    moves,
    node_affinity,
    node_taints,
    nodes,
    packing,
    plan,
    policy,
    topology_spread,
    utilization,
    web,
)
from tests.unit.descheduling.test_low_node_utilization import CPU, app, big, filled
from tests.unit.descheduling.test_real_use import CPU as BY_USE
from tests.unit.descheduling.test_real_use import used
from tests.unit.descheduling.test_use_by_query import LOAD, loads
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling import planner

EVICT = "descheduler.alpha.kubernetes.io/evict"
SSD = expression("disk", "In", "ssd")
SPREAD: dict[str, Any] = topology_spread("DoNotSchedule", "ScheduleAnyway")


def then(things: Sequence[Any], strategies: dict[str, Any]) -> list[tuple[str, str, str]]:
    """What is planned once a plan is done and every pod came to where it was planned to come."""
    targets = {pod: target for pod, _, target in moves(plan(things, strategies))}
    assert targets, "nothing was planned, so nothing is shown"
    for thing in things:
        if isinstance(thing, PodBuilder) and thing.build().name in targets:
            thing.on(targets[thing.build().name])
    return moves(plan(things, strategies))


@pytest.mark.parametrize(
    ("strategies", "source", "pods"),
    [
        pytest.param(node_taints(), node("n1").taint("x"), [web(f"p{i}", "n1") for i in range(10)], id="a taint"),
        pytest.param(
            node_affinity(),
            node("n1"),
            [web(f"p{i}", "n1").node_affinity(SSD) for i in range(10)],
            id="a rule of the pods",
        ),
        pytest.param({DUPLICATES: {}}, node("n1"), [web(f"p{i}", "n1") for i in range(10)], id="duplicates"),
    ],
)
def test_1584_ten_pods_and_one_free_slot_are_one_move(strategies, source, pods):
    target = node("n2").labels(disk="ssd").allocatable(cpu="4", memory="16Gi", pods=1)
    found = plan([source, target, *pods], strategies)
    assert moves(found) == [("p0", "n1", "n2")]
    assert set(kept(found).values()) == {"NoPlace"}
    assert len(found.kept) == 9


def test_1695_a_pod_that_no_single_node_takes_is_not_moved_into_the_sum_of_their_gaps():
    small = [big(f"n{i}", cpu="5") for i in (2, 3, 4)]
    found = plan([big("n1"), *small, app("large", "n1", "6")], CPU)
    assert found.actions == ()
    assert kept(found)["large"] == "NoPlace"
    assert "3 Insufficient cpu" in messages(found)["large"]


def test_1695_nor_is_it_where_each_gap_takes_it_and_would_be_too_full_then():
    found = plan([big("n1"), big("n2"), big("n3"), app("large", "n1", "6")], CPU)
    assert found.actions == ()
    assert kept(found)["large"] == "NoImprovement"


@pytest.mark.parametrize("mode", ["Simulate", "Approve", "Act"])
def test_1805_a_budget_that_allows_no_disruption_is_asked_in_every_mode(mode):
    things = [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1"), budget().selecting(app="web").allowing(0)]
    found = plan(things, {DUPLICATES: {}}, mode=mode)
    assert found.actions == ()
    assert kept(found)["a"] == "DisruptionBudget"
    assert "PodDisruptionBudget web allows no disruption" in messages(found)["a"]


def test_1805_a_plan_counts_the_budget_down():
    things = [*nodes("n1", "n2", "n3"), *(web(name, "n1") for name in "abc")]
    found = plan([*things, budget().selecting(app="web").allowing(1)], {DUPLICATES: {}})
    assert moves(found) == [("a", "n1", "n2")]
    assert kept(found) == {"b": "DisruptionBudget", "c": "DisruptionBudget"}


def test_1707_a_preferred_node_that_is_full_draws_nobody():
    full = node("n2").labels(disk="ssd").allocatable(cpu="4", memory="16Gi", pods=1)
    things = [node("n1"), full, node("n3"), web("other", "n2", owner="other"), web("a", "n1").prefers_nodes(10, SSD)]
    found = plan(things, node_affinity(PREFERRED))
    assert found.actions == ()
    assert kept(found) == {"a": "NoImprovement"}


def test_three_pods_with_a_rule_against_a_fourth_are_one_move():
    """The project's own table of cases has this one, and expects three evictions."""
    against = {"labelSelector": selector(app="lone")}
    around = [web(f"ring-{i}", "n1", owner=f"ring-{i}").anti_affinity(HOSTNAME, **against) for i in range(3)]
    found = plan([*nodes("n1", "n2"), web("lone", "n1", owner="lone"), *around], {ANTI_AFFINITY: {}})
    assert moves(found) == [("lone", "n1", "n2")]


def test_827_three_pods_on_two_nodes_stay_where_no_third_node_has_room():
    full = [node(name).allocatable(cpu="4", memory="16Gi", pods=1) for name in ("n3", "n4")]
    others = [web(f"other-{name}", name, owner=f"other-{name}") for name in ("n3", "n4")]
    pods = [
        web(name, on).spread(HOSTNAME, when="ScheduleAnyway") for name, on in (("a", "n1"), ("b", "n1"), ("c", "n2"))
    ]
    found = plan([*nodes("n1", "n2"), *full, *others, *pods], {DUPLICATES: {}, **SPREAD})
    assert found.actions == ()
    assert kept(found) == {"a": "NoImprovement", "b": "NoImprovement"}


def test_827_and_where_one_has_room_a_single_move_is_the_end_of_it():
    pods = [
        web(name, on).spread(HOSTNAME, when="ScheduleAnyway") for name, on in (("a", "n1"), ("b", "n1"), ("c", "n2"))
    ]
    things = [*nodes("n1", "n2", "n3"), *pods]
    assert moves(plan(things, {DUPLICATES: {}, **SPREAD})) == [("a", "n1", "n3")]
    assert then(things, {DUPLICATES: {}, **SPREAD}) == []


@pytest.mark.parametrize("replicas", [5, 7, 10, 12])
def test_921_and_1040_more_replicas_than_nodes_are_no_duplicates_once_they_are_spread(replicas):
    names = [f"n{i}" for i in range(5)]
    pods = [web(f"p{i:02}", names[i % 5]) for i in range(replicas)]
    assert moves(plan([*nodes(*names), *pods], {DUPLICATES: {}})) == []


def test_921_and_1040_a_heap_of_replicas_is_spread_once_and_for_all():
    things = [*nodes("n1", "n2", "n3"), *(web(f"p{i}", "n1") for i in range(8))]
    assert then(things, {DUPLICATES: {}}) == []


def test_1237_a_node_without_room_is_none_that_pods_could_be_spread_over():
    full = node("n2").allocatable(cpu="1", memory="16Gi", pods=110)
    things = [node("n1"), full, *(web(f"p{i}", "n1").cpu("500m") for i in range(3)), app("other", "n2", "1")]
    found = plan(things, {DUPLICATES: {}})
    assert found.actions == ()
    assert kept(found) == dict.fromkeys(("p0", "p1", "p2"), "NoPlace")


def test_1219_constraints_that_cannot_all_hold_move_nobody_back_and_forth():
    """Zones are even and nodes are not; what would level the nodes would upset the zones."""
    places = [*(node(f"n{i}").zone("a") for i in (1, 2, 3)), node("n4").zone("b")]
    both = {"when": "ScheduleAnyway"}
    pods = [
        web(name, on).spread(ZONE, **both).spread(HOSTNAME, **both)
        for name, on in (("a", "n1"), ("b", "n2"), ("c", "n4"), ("d", "n4"))
    ]
    found = plan([*places, *pods], SPREAD)
    assert found.actions == ()
    assert kept(found) == {"c": "NoImprovement", "d": "NoImprovement"}


def test_1032_the_pod_goes_whose_move_mends_both_constraints():
    """Any of zone a's pods could go for the zones' sake; only one of n1's helps the nodes as well."""
    places = [node("n1").zone("a"), node("n2").zone("a"), node("n3").zone("b")]
    pods = [
        web(name, on).spread(ZONE).spread(HOSTNAME)
        for name, on in (("a-first-by-name", "n2"), ("b", "n1"), ("c", "n1"))
    ]
    things = [*places, *pods]
    assert moves(plan(things, SPREAD)) == [("b", "n1", "n3")]
    assert then(things, SPREAD) == []


def test_1167_a_pod_that_states_no_constraint_is_not_moved_for_those_of_others():
    places = [node("n1").zone("a"), node("n2").zone("b")]
    counted = [web(f"job-{i}", "n1") for i in range(3)]
    found = plan([*places, *counted, web("a", "n2").spread(ZONE)], SPREAD)
    assert moves(found) == []


@pytest.mark.parametrize("value", ["false", "no", "", "0"])
def test_422_and_1659_an_annotation_that_says_no_means_no(value):
    refusing = web("a", "n1").annotations({EVICT: value})
    found = plan([node("n1").taint("x"), node("n2"), refusing, web("b", "n1")], node_taints())
    assert moves(found) == [("b", "n1", "n2")]
    assert kept(found) == {"a": "EvictAnnotation"}


def test_422_and_1659_nor_does_a_yes_lift_what_must_never_go():
    mirror = web("a", "n1").annotations({EVICT: "true"}).mirror()
    found = plan([node("n1").taint("x"), node("n2"), mirror], node_taints())
    assert found.actions == ()
    assert kept(found) == {"a": "MirrorPod"}


def test_725_nodes_that_are_all_underutilized_are_joined():
    things = [
        big("n1"),
        big("n2"),
        big("n3"),
        *filled("n1", 1),
        *filled("n2", 1, prefix="q"),
        *filled("n3", 2, prefix="r"),
    ]
    found = plan(things, packing({"cpu": 20}))
    assert moves(found) == [("p0", "n1", "n3"), ("q0", "n2", "n3")]


def test_725_and_stay_joined():
    things = [big("n1"), big("n2"), *filled("n1", 1), *filled("n2", 2, prefix="q")]
    assert then(things, packing({"cpu": 20})) == []


def test_384_the_node_above_its_target_by_most_comes_first_whatever_bytes_weigh():
    """The node with more memory in use has more bytes, and the other one is further above its target."""
    everything = utilization({"cpu": 20, "memory": 20}, {"cpu": 50, "memory": 50})
    things = [
        big("bytes", memory="100Gi"),
        big("share"),
        big("n3", pods=1),
        *(app(f"b{i}", "bytes", "1", "9Gi") for i in range(6)),
        *(app(f"s{i}", "share", "1", "1Gi") for i in range(8)),
    ]
    assert [source for _, source, _ in moves(plan(things, everything))] == ["share"]


@pytest.mark.parametrize("mode", ["Simulate", "Act"])
def test_1882_pods_without_a_budget_are_protected_and_no_others_in_every_mode(mode):
    things = [
        node("n1").taint("x"),
        node("n2"),
        web("a", "n1", owner="a"),
        web("b", "n1", owner="b"),
        budget("a").selecting(app="a").allowing(1),
    ]
    found = plan(things, node_taints(), mode=mode, protections={"extra": ["PodsWithoutPDB"]})
    assert moves(found) == [("a", "n1", "n2")]
    assert kept(found) == {"b": "NoDisruptionBudget"}


BY_SOURCE = {
    "KubernetesMetrics": (BY_USE, used({"n1": 9, "n3": 1}, {"p0": 4})),
    "Prometheus": (LOAD, loads({"n1": 0.9, "n3": 0.1}, {"p0": 0.4})),
}


@pytest.mark.parametrize(("strategies", "usage"), BY_SOURCE.values(), ids=BY_SOURCE)
def test_1852_a_node_without_measurements_does_not_keep_the_others_from_being_levelled(strategies, usage):
    things = built([big("n1"), big("n2"), big("n3"), *filled("n1", 7)])
    found = planner.plan(Snapshot(things), [policy(strategies)], now=NOW, usages={"default": usage})
    assert moves(found) == [("p0", "n1", "n3")]
    assert kept(found) == {"n2": "NotMeasured"}
