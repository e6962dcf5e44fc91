"""A cycle after evictions that no watch has shown yet plans none of them again, and nothing in their place."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.builders import ZONE, node, pod
from tests.fakes.clock import SetClock
from tests.unit.descheduling.planning import (
    ANTI_AFFINITY,
    DUPLICATES,
    NODE_AFFINITY,
    NODE_TAINTS,
    NOW,
    RESTARTS,
    TOPOLOGY_SPREAD,
    built,
    policy,
    restarts,
    utilization,
    web,
)
from trimtab.api.plan import Plan
from trimtab.cluster.own_writes import OwnWrite
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.descheduling.planning import planner


def crowd(number: int, on: str, **labels: str) -> list[Any]:
    return [web(f"web-{each}", on, owner=f"o-{each}").cpu("1").labels(**labels) for each in range(number)]


CLUSTERS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    DUPLICATES: (
        {DUPLICATES: {}},
        [node("n1"), node("n2"), node("n3"), *(web(f"web-{each}", "n1") for each in range(4))],
    ),
    "LowNodeUtilization": (
        utilization({"cpu": 20}, {"cpu": 50}),
        [node("n1").allocatable(cpu="10"), node("n2").allocatable(cpu="10"), *crowd(8, "n1")],
    ),
    ANTI_AFFINITY: (
        {ANTI_AFFINITY: {}},
        [node("n1"), node("n2"), node("n3"), *(each.anti_affinity() for each in crowd(3, "n1", app="web"))],
    ),
    NODE_AFFINITY: (
        {NODE_AFFINITY: {}},
        [node("n1"), node("n2").labels(disk="ssd"), *(each.node_selector(disk="ssd") for each in crowd(3, "n1"))],
    ),
    NODE_TAINTS: ({NODE_TAINTS: {}}, [node("n1").taint("going"), node("n2"), *crowd(3, "n1")]),
    RESTARTS: (restarts(2), [node("n1"), node("n2"), *(each.restarted(3) for each in crowd(3, "n1"))]),
    TOPOLOGY_SPREAD: (
        {TOPOLOGY_SPREAD: {}},
        [node("n1").zone("a"), node("n2").zone("b"), *(each.spread(ZONE) for each in crowd(6, "n1", app="web"))],
    ),
}


RELATIVE = {DUPLICATES, TOPOLOGY_SPREAD}


class Cluster:
    """A shared snapshot whose watches deliver only what the test passes to them."""

    def __init__(self, things: list[Any]) -> None:
        self.clock = SetClock(NOW)
        self.shared = SharedSnapshot(clock=self.clock)
        for each in built(things):
            self.shared.apply(None, each)

    async def plan(self, strategies: dict[str, Any], **spec: Any) -> Plan:
        async with self.shared.borrow() as snapshot:
            return planner.plan_evictions(snapshot, [policy(strategies, **spec)], now=NOW)

    def evict(self, plan: Plan) -> None:
        """Let the API server grant all evictions of a plan."""
        for action in plan.actions:
            key = f"{action.namespace}/{action.pod}"
            self.shared.record(OwnWrite.of_ended_pod(key, action.uid, now=NOW, at=NOW))

    def replace(self, plan: Plan) -> None:
        """Show the replacements of a plan's evictions on their targets, before the evicted pods are gone."""
        for action in plan.actions:
            old = self.shared._snapshot.pods[f"{action.namespace}/{action.pod}"]
            new = replace(old, name=f"{old.name}-new", uid=f"{old.uid}-new", node=action.target, deleted=None)
            self.shared.apply(None, new)


@pytest.mark.parametrize(("strategies", "things"), CLUSTERS.values(), ids=CLUSTERS)
async def test_next_cycle_plans_nothing_more(strategies: dict[str, Any], things: list[Any]) -> None:
    """Strategies that compare the nodes of an owner's pods see them balanced once the replacements exist."""
    cluster = Cluster(things)
    first = await cluster.plan(strategies)
    assert first.actions
    cluster.evict(first)
    if strategies.keys() & RELATIVE:
        second = await cluster.plan(strategies)
        assert not {each.uid for each in second.actions} & {each.uid for each in first.actions}
        cluster.replace(first)
    assert not (await cluster.plan(strategies)).actions


async def test_next_cycle_plans_the_rest_of_a_limited_one() -> None:
    strategies, things = CLUSTERS["LowNodeUtilization"]
    cluster = Cluster(things)
    everything = {each.pod for each in (await cluster.plan(strategies)).actions}
    evicted: set[str] = set()
    for _ in everything:
        made = await cluster.plan(strategies, limits={"perCycle": 1})
        evicted |= {each.pod for each in made.actions}
        cluster.evict(made)
    assert evicted == everything
    assert not (await cluster.plan(strategies, limits={"perCycle": 1})).actions


async def test_room_of_evicted_pods_is_not_given_away_before_they_are_gone() -> None:
    """A terminating pod still uses its node, as kube-scheduler counts it."""
    cluster = Cluster(
        [
            node("n1").taint("going"),
            node("n2").allocatable(cpu="1").labels(disk="ssd"),
            pod("old").on("n2").cpu("1").owned_by("ReplicaSet", "old").ready(),
            web("web-0", "n1", owner="o").cpu("1"),
        ]
    )
    found = cluster.shared._snapshot.pods["shop/old"]
    cluster.shared.record(OwnWrite.of_ended_pod(found.key, found.uid, now=NOW, at=NOW))
    assert not (await cluster.plan({NODE_TAINTS: {}})).actions
