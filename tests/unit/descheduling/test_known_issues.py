"""What the descheduler project's users ran into, a test for each, named after the project's issue.

The clusters are ours, as small as shows the point; docs/compatibility.md says what is different and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.builders import HOSTNAME, ZONE, PodBuilder, budget, expression, node, selector
from tests.fixtures.golden import Golden
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
from tests.unit.descheduling.test_measured_utilization import CPU as BY_USE
from tests.unit.descheduling.test_measured_utilization import used
from tests.unit.descheduling.test_queried_utilization import LOAD, loads
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planning import planner

EVICT = "descheduler.alpha.kubernetes.io/evict"
SSD = expression("disk", "In", "ssd")
SPREAD: dict[str, Any] = topology_spread("DoNotSchedule", "ScheduleAnyway")


def then(things: Sequence[Any], strategies: dict[str, Any]) -> list[tuple[str, str, str]]:
    """What is planned once a plan is done and every pod came to where it was planned to come."""
    targets = {pod: target for pod, _, target in moves(plan(things, strategies))}
    assert targets, "nothing was planned, so nothing is shown"
    for item in things:
        if isinstance(item, PodBuilder) and item.build().name in targets:
            item.on(targets[item.build().name])
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
def test_1584_one_free_slot_allows_one_move(strategies, source, pods):
    target = node("n2").labels(disk="ssd").allocatable(cpu="4", memory="16Gi", pods=1)
    found = plan([source, target, *pods], strategies)
    assert moves(found) == [("p0", "n1", "n2")]
    assert set(kept(found).values()) == {"NoPlace"}
    assert len(found.kept) == 9


def test_1695_free_capacity_of_nodes_is_not_added_up():
    small = [big(f"n{i}", cpu="5") for i in (2, 3, 4)]
    found = plan([big("n1"), *small, app("large", "n1", "6")], CPU)
    assert found.actions == ()
    assert kept(found)["large"] == "NoPlace"
    assert "3 Insufficient cpu" in messages(found)["large"]


def test_1695_targets_must_stay_below_target_thresholds():
    found = plan([big("n1"), big("n2"), big("n3"), app("large", "n1", "6")], CPU)
    assert found.actions == ()
    assert kept(found)["large"] == "NoImprovement"


@pytest.mark.parametrize("mode", ["Simulate", "Approve", "Act"])
def test_1805_exhausted_pdb_is_respected_in_every_mode(mode, golden: Golden):
    objects = [*nodes("n1", "n2"), web("a", "n1"), web("b", "n1"), budget().selecting(app="web").allowing(0)]
    found = plan(objects, {DUPLICATES: {}}, mode=mode)
    assert found.actions == ()
    assert kept(found)["a"] == "DisruptionBudget"
    golden(messages(found)["a"])


def test_1805_plan_consumes_pdb():
    objects = [*nodes("n1", "n2", "n3"), *(web(name, "n1") for name in "abc")]
    found = plan([*objects, budget().selecting(app="web").allowing(1)], {DUPLICATES: {}})
    assert moves(found) == [("a", "n1", "n2")]
    assert kept(found) == {"b": "DisruptionBudget", "c": "DisruptionBudget"}


def test_1707_full_preferred_node_is_no_target():
    full = node("n2").labels(disk="ssd").allocatable(cpu="4", memory="16Gi", pods=1)
    objects = [node("n1"), full, node("n3"), web("other", "n2", owner="other"), web("a", "n1").prefers_nodes(10, SSD)]
    found = plan(objects, node_affinity(PREFERRED))
    assert found.actions == ()
    assert kept(found) == {"a": "NoImprovement"}


def test_pod_conflicting_with_three_others_is_moved_alone():
    """The project's own table of cases has this one, and expects three evictions."""
    against = {"labelSelector": selector(app="lone")}
    around = [web(f"ring-{i}", "n1", owner=f"ring-{i}").anti_affinity(HOSTNAME, **against) for i in range(3)]
    found = plan([*nodes("n1", "n2"), web("lone", "n1", owner="lone"), *around], {ANTI_AFFINITY: {}})
    assert moves(found) == [("lone", "n1", "n2")]


def test_827_duplicates_stay_without_third_node():
    full = [node(name).allocatable(cpu="4", memory="16Gi", pods=1) for name in ("n3", "n4")]
    others = [web(f"other-{name}", name, owner=f"other-{name}") for name in ("n3", "n4")]
    pods = [
        web(name, on).spread(HOSTNAME, when="ScheduleAnyway") for name, on in (("a", "n1"), ("b", "n1"), ("c", "n2"))
    ]
    found = plan([*nodes("n1", "n2"), *full, *others, *pods], {DUPLICATES: {}, **SPREAD})
    assert found.actions == ()
    assert kept(found) == {"a": "NoImprovement", "b": "NoImprovement"}


def test_827_third_node_gets_one_duplicate():
    pods = [
        web(name, on).spread(HOSTNAME, when="ScheduleAnyway") for name, on in (("a", "n1"), ("b", "n1"), ("c", "n2"))
    ]
    objects = [*nodes("n1", "n2", "n3"), *pods]
    assert moves(plan(objects, {DUPLICATES: {}, **SPREAD})) == [("a", "n1", "n3")]
    assert then(objects, {DUPLICATES: {}, **SPREAD}) == []


@pytest.mark.parametrize("replicas", [5, 7, 10, 12])
def test_921_and_1040_evenly_spread_replicas_are_no_duplicates(replicas):
    names = [f"n{i}" for i in range(5)]
    pods = [web(f"p{i:02}", names[i % 5]) for i in range(replicas)]
    assert moves(plan([*nodes(*names), *pods], {DUPLICATES: {}})) == []


def test_921_and_1040_replicas_are_spread_once():
    objects = [*nodes("n1", "n2", "n3"), *(web(f"p{i}", "n1") for i in range(8))]
    assert then(objects, {DUPLICATES: {}}) == []


def test_1237_full_nodes_are_no_targets():
    full = node("n2").allocatable(cpu="1", memory="16Gi", pods=110)
    objects = [node("n1"), full, *(web(f"p{i}", "n1").cpu("500m") for i in range(3)), app("other", "n2", "1")]
    found = plan(objects, {DUPLICATES: {}})
    assert found.actions == ()
    assert kept(found) == dict.fromkeys(("p0", "p1", "p2"), "NoPlace")


def test_1219_unsatisfiable_constraints_cause_no_ping_pong():
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


def test_1032_pod_improving_both_constraints_is_moved():
    """Any of zone a's pods could go for the zones' sake; only one of n1's helps the nodes as well."""
    places = [node("n1").zone("a"), node("n2").zone("a"), node("n3").zone("b")]
    pods = [
        web(name, on).spread(ZONE).spread(HOSTNAME)
        for name, on in (("a-first-by-name", "n2"), ("b", "n1"), ("c", "n1"))
    ]
    objects = [*places, *pods]
    assert moves(plan(objects, SPREAD)) == [("b", "n1", "n3")]
    assert then(objects, SPREAD) == []


def test_1167_pod_without_constraint_is_not_moved():
    places = [node("n1").zone("a"), node("n2").zone("b")]
    counted = [web(f"job-{i}", "n1") for i in range(3)]
    found = plan([*places, *counted, web("a", "n2").spread(ZONE)], SPREAD)
    assert moves(found) == []


@pytest.mark.parametrize("value", ["false", "no", "", "0"])
def test_422_and_1659_evict_annotation_false_protects_pod(value):
    refusing = web("a", "n1").annotations({EVICT: value})
    found = plan([node("n1").taint("x"), node("n2"), refusing, web("b", "n1")], node_taints())
    assert moves(found) == [("b", "n1", "n2")]
    assert kept(found) == {"a": "EvictAnnotation"}


def test_422_and_1659_evict_annotation_true_keeps_hard_protections():
    mirror = web("a", "n1").annotations({EVICT: "true"}).mirror()
    found = plan([node("n1").taint("x"), node("n2"), mirror], node_taints())
    assert found.actions == ()
    assert kept(found) == {"a": "MirrorPod"}


def test_725_underutilized_nodes_are_merged():
    objects = [
        big("n1"),
        big("n2"),
        big("n3"),
        *filled("n1", 1),
        *filled("n2", 1, prefix="q"),
        *filled("n3", 2, prefix="r"),
    ]
    found = plan(objects, packing({"cpu": 20}))
    assert moves(found) == [("p0", "n1", "n3"), ("q0", "n2", "n3")]


def test_725_merged_nodes_stay_merged():
    objects = [big("n1"), big("n2"), *filled("n1", 1), *filled("n2", 2, prefix="q")]
    assert then(objects, packing({"cpu": 20})) == []


def test_384_nodes_are_ordered_by_percentage_above_target():
    """The node with more memory in use has more bytes, and the other one is further above its target."""
    everything = utilization({"cpu": 20, "memory": 20}, {"cpu": 50, "memory": 50})
    objects = [
        big("bytes", memory="100Gi"),
        big("share"),
        big("n3", pods=1),
        *(app(f"b{i}", "bytes", "1", "9Gi") for i in range(6)),
        *(app(f"s{i}", "share", "1", "1Gi") for i in range(8)),
    ]
    assert [source for _, source, _ in moves(plan(objects, everything))] == ["share"]


@pytest.mark.parametrize("mode", ["Simulate", "Act"])
def test_1882_pods_without_pdb_protects_only_those_pods(mode):
    objects = [
        node("n1").taint("x"),
        node("n2"),
        web("a", "n1", owner="a"),
        web("b", "n1", owner="b"),
        budget("a").selecting(app="a").allowing(1),
    ]
    found = plan(objects, node_taints(), mode=mode, protections={"extra": ["PodsWithoutPDB"]})
    assert moves(found) == [("a", "n1", "n2")]
    assert kept(found) == {"b": "NoDisruptionBudget"}


BY_SOURCE = {
    "KubernetesMetrics": (BY_USE, used({"n1": 9, "n3": 1}, {"p0": 4})),
    "Prometheus": (LOAD, loads({"n1": 0.9, "n3": 0.1}, {"p0": 0.4})),
}


@pytest.mark.parametrize(("strategies", "usage"), BY_SOURCE.values(), ids=BY_SOURCE)
def test_1852_unmeasured_node_does_not_block_others(strategies, usage):
    objects = built([big("n1"), big("n2"), big("n3"), *filled("n1", 7)])
    found = planner.plan_evictions(Snapshot(objects), [policy(strategies)], now=NOW, usages={"default": usage})
    assert moves(found) == [("p0", "n1", "n3")]
    assert kept(found) == {"n2": "NotMeasured"}
