"""Policies that plan in cycles of their own, each for itself: no pod is sent back and forth between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings

from tests.builders import expression, node
from tests.unit.descheduling.planning import (
    DUPLICATES,
    NOW,
    PREFERRED,
    UTILIZATION,
    anti_affinity,
    built,
    kept,
    messages,
    moves,
    node_affinity,
    nodes,
    packing,
    policy,
    utilization,
    web,
)
from tests.unit.descheduling.test_invariants import after, policies, worlds
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.plan import Plan
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage.measurement import Usage
from trimtab.descheduling.planning.planner import plan_evictions
from trimtab.descheduling.policy_conflicts import conflicts


def turn(world: list[Any], own: DeschedulerPolicy, everyone: Sequence[DeschedulerPolicy]) -> Plan:
    """A cycle of one policy beside others."""
    return plan_evictions(Snapshot(world), [own], now=NOW, peers=[each for each in everyone if each is not own])


def come_to_rest(things: list[Any], *everyone: DeschedulerPolicy) -> list[list[tuple[str, str, str]]]:
    """What is moved until every policy has planned nothing, one cycle after the other."""
    world, done, quiet = built(things), [], 0
    for number in range(60):
        made = turn(world, everyone[number % len(everyone)], everyone)
        world = after(world, made)
        done += [moves(made)] if made.actions else []
        quiet = 0 if made.actions else quiet + 1
        if quiet == len(everyone):
            return done
    pytest.fail(f"pods are sent back and forth: {done[-4:]}")


@settings(max_examples=50)
@given(worlds(), policies("a"), policies("b"))
def test_two_policies_reach_a_fixed_point(world, first, second):
    assume(not conflicts([first, second]))
    come_to_rest(world, first, second)


SPREAD = [*nodes("n1", "n2", "n3"), web("web-0", "n1"), web("web-1", "n1"), web("big", "n2", owner="db").cpu("3")]
AT_HOME = [
    node("n1").labels(disk="ssd"),
    node("n2").labels(disk="hdd"),
    *(web(f"web-{number}", "n2").prefers_nodes(9, expression("disk", "In", "ssd")) for number in range(2)),
]
CROWDED = [
    *(node(name).allocatable(cpu="4", memory="8Gi", pods=100) for name in ("n1", "n2")),
    *(web(f"small-{number}", "n1", owner=f"s{number}").cpu("100m") for number in range(6)),
    web("large", "n2", owner="l").cpu("3"),
]
AVERSE = [
    *nodes("n1", "n2", "n3"),
    *(web(f"web-{number}", "n1").anti_affinity(preferred=50).cpu("100m") for number in range(2)),
    web("big", "n2", owner="db").cpu("3"),
]
PAIRS = [
    pytest.param(
        SPREAD,
        {DUPLICATES: {}},
        packing({"cpu": 40}),
        [[("web-0", "n1", "n3")], [("web-1", "n1", "n2")]],
        "their share of the owner's pods (RemoveDuplicates of policy a)",
        id="one parts an owner's pods, the other packs them",
    ),
    pytest.param(
        AT_HOME,
        node_affinity(PREFERRED),
        {DUPLICATES: {}},
        [[("web-0", "n2", "n1"), ("web-1", "n2", "n1")]],
        "(RemovePodsViolatingNodeAffinity of policy a)",
        id="one brings pods home, the other parts them",
    ),
    pytest.param(
        AVERSE,
        anti_affinity(PREFERRED),
        packing({"cpu": 40}),
        [[("web-0", "n1", "n3")], [("web-1", "n1", "n2")]],
        "(RemovePodsViolatingInterPodAntiAffinity of policy a)",
        id="one policy separates pods with preferred anti-affinity, the other packs them",
    ),
    pytest.param(
        CROWDED,
        utilization({"pods": 2}, {"pods": 4}),
        utilization({"cpu": 20}, {"cpu": 60}),
        [[("small-0", "n1", "n2"), ("small-1", "n1", "n2")]],
        "exceeded targetThresholds further (LowNodeUtilization of policy a)",
        id="one relieves nodes of pods, the other of cpu: the name decides",
    ),
    pytest.param(
        CROWDED,
        utilization({"cpu": 20}, {"cpu": 60}),
        utilization({"pods": 2}, {"pods": 4}),
        [],
        "exceeded targetThresholds further (LowNodeUtilization of policy a)",
        id="the same the other way round",
    ),
]


@pytest.mark.parametrize(("things", "first", "second", "done", "words"), PAIRS)
def test_policy_does_not_undo_moves_of_another(things, first, second, done, words):
    everyone = policy(first, "a"), policy(second, "b")
    assert come_to_rest(things, *everyone) == done
    world = built(things)
    for own in everyone:
        made = turn(world, own, everyone)
        world = after(world, made)
    assert "NoImprovement" in kept(made).values()
    assert any(words in each for each in messages(made).values())


@pytest.mark.parametrize(("things", "first", "second", "done", "words"), PAIRS)
def test_independent_policies_would_undo_each_other(things, first, second, done, words):
    everyone = policy(first, "a"), policy(second, "b")
    world, moved = built(things), []
    for number in range(20):
        made = turn(world, everyone[number % 2], ())
        world = after(world, made)
        moved.append(bool(made.actions))
    assert all(moved[1:])


def test_peers_with_other_scope_do_not_object():
    alone = turn(built(AVERSE), policy(packing({"cpu": 40}), "b"), ())
    foreign = policy(anti_affinity(PREFERRED), "a", namespaces={"include": ["blog"]})
    assert moves(turn(built(AVERSE), policy(packing({"cpu": 40}), "b"), [foreign])) == moves(alone)


def test_joint_planning_gives_the_same_result():
    everyone = [policy({DUPLICATES: {}}, "a"), policy(packing({"cpu": 40}), "b")]
    made = plan_evictions(Snapshot(built(SPREAD)), everyone, now=NOW)
    assert moves(made) == [("web-0", "n1", "n3"), ("web-1", "n1", "n2")]


def test_moves_by_measured_utilization_are_not_undone_by_requests():
    """By requests n2 is full and n1 empty; by use n1 is full."""
    objects = [
        *(node(name).allocatable(cpu="4", memory="8Gi", pods=100) for name in ("n1", "n2")),
        web("web-0", "n2", owner="w").cpu("1"),
        web("large", "n2", owner="l").cpu("2"),
    ]
    by_use = utilization({"cpu": 20}, {"cpu": 50})
    by_use[UTILIZATION]["params"]["metricsUtilization"] = {"source": "KubernetesMetrics"}
    real, requested = policy(by_use, "a"), policy(utilization({"cpu": 20}, {"cpu": 50}), "b")
    used = Usage(nodes={"n1": {"cpu": 3000, "memory": 0}, "n2": {"cpu": 1000, "memory": 0}})
    world = Snapshot(built(objects))
    assert moves(plan_evictions(world, [requested], now=NOW, peers=[real])) != []
    made = plan_evictions(world, [requested], now=NOW, peers=[real], usages={"a": used})
    assert moves(made) == []
    assert any("(LowNodeUtilization of policy a)" in each for each in messages(made).values())
