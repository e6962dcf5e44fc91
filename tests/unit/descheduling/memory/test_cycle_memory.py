"""A scheduler that puts pods where they were, or where they are not wanted: a few tries and no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from tests.builders import expression, node, selector
from tests.unit.descheduling.memory.remembering import HOUR, a_pod, memory, watched, written
from tests.unit.descheduling.planning import (
    AFFINITY,
    ANTI_AFFINITY,
    DUPLICATES,
    HIGH,
    LIFE_TIME,
    NODE_AFFINITY,
    NODE_TAINTS,
    NOW,
    PREFERRED,
    RESTARTS,
    TOPOLOGY_SPREAD,
    UTILIZATION,
    affinity,
    ago,
    anti_affinity,
    built,
    life_time,
    node_affinity,
    node_taints,
    nodes,
    packing,
    policy,
    restarts,
    topology_spread,
    utilization,
    web,
)
from trimtab.api.descheduler_status import EvictionMemory
from trimtab.api.plan import Plan
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.memory.assess import repeating_strategies
from trimtab.descheduling.memory.cycle_memory import CycleMemory
from trimtab.descheduling.planning import planner
from trimtab.disruption.outcome import EVICTED, REFUSED, Outcome
from trimtab.kube.objects import Pod

Put = Callable[[Pod, Snapshot], str]
OLD = ago(10 * HOUR)


class World:
    """A cluster in which evicted pods come again where ``put`` says; an empty name leaves them Pending."""

    def __init__(
        self,
        things: Any,
        strategies: dict[str, Any],
        put: Put,
        *,
        crashes: bool = False,
        cured: bool = False,
        **spec: Any,
    ) -> None:
        self.snapshot = Snapshot(built(things))
        self.policy = policy(strategies, **spec)
        self.put = put
        self.crashes = crashes
        self.cured = cured
        self.memory = EvictionMemory()
        self.now = NOW
        self.evicted: list[tuple[str, str, str]] = []
        self.kept: set[str] = set()

    def run(self, cycles: int) -> World:
        for _ in range(cycles):
            self.cycle()
            self.now += 300
        return self

    def cycle(self) -> None:
        keeper = CycleMemory(self.memory, self.policy.spec.cooldown, routine=repeating_strategies(self.policy.spec))
        remembered = keeper.assess(self.snapshot, now=self.now)
        made = planner.plan_evictions(self.snapshot, [self.policy], now=self.now, memories={"default": remembered})
        keeper.planned(made, self.snapshot, now=self.now)
        self.kept = {each.reason for each in made.kept}
        known = keeper.begin(made.actions, self.snapshot, now=self.now)
        for action in made.actions:
            self.now += 10

            def judge(memory: EvictionMemory, strategy: str = action.strategy) -> Plan:
                given = {"default": memory}
                return planner.plan_evictions(self.snapshot, [self.policy], now=self.now, memories=given, only=strategy)

            refusal = keeper.recheck(action, self.snapshot, now=self.now, judge=judge)
            if refusal is not None:
                keeper.ended(Outcome(action, REFUSED, refusal.reason, refusal.message, self.now))
                continue
            victim = self.snapshot.pods[action.key]
            keeper.sent(action, self.snapshot)
            self.snapshot.remove(victim)
            self.snapshot.put(self.again(victim))
            self.evicted.append((action.strategy, action.owner, action.node))
            keeper.ended(Outcome(action, EVICTED, "Evicted", "", self.now))
        # whoever is killed has written down what it was about to do, and nothing since
        self.memory = written(known if self.crashes else keeper.memory)

    def again(self, victim: Pod) -> Pod:
        place = self.put(victim, self.snapshot)
        name = f"{victim.name.split('.')[0]}.{len(self.evicted)}"
        return msgspec.structs.replace(
            victim,
            name=name,
            uid=f"uid-{name}",
            node=place,
            created=float(int(self.now)),
            phase="Running" if place else "Pending",
            restarts=0 if self.cured else victim.restarts,
        )


def back(victim: Pod, _: Snapshot) -> str:
    return victim.node


def nowhere(_victim: Pod, _snapshot: Snapshot) -> str:
    return ""


def crowd(count: int, on: str = "n1", **more: Any) -> list[Any]:
    return [web(f"web-{number}", on, **more).created(OLD) for number in range(count)]


def old(builder: Any, name: str) -> Any:
    return builder.uid(f"uid-{name}").created(OLD)


WORLDS = [
    pytest.param([*nodes("n1", "n2", "n3"), *crowd(6)], {DUPLICATES: {}}, id=DUPLICATES),
    pytest.param(
        [
            node("n1"),
            node("n2").labels(disk="ssd"),
            *(p.prefers_nodes(9, expression("disk", "In", "ssd")) for p in crowd(5)),
        ],
        node_affinity(PREFERRED),
        id=NODE_AFFINITY,
    ),
    pytest.param([node("n1").taint("gone", "", "NoSchedule"), node("n2"), *crowd(5)], node_taints(), id=NODE_TAINTS),
    pytest.param(
        [*nodes("n1", "n2"), *(p.cpu("500m") for p in crowd(7))],
        utilization({"cpu": 20}, {"cpu": 40}),
        id=UTILIZATION,
    ),
    pytest.param(
        [*nodes("n1", "n2"), *(p.cpu("100m") for p in crowd(2)), old(web("x", "n2", owner="x").cpu("3"), "x")],
        packing({"cpu": 30}),
        id=HIGH,
    ),
    pytest.param([*nodes("n1", "n2", "n3"), *(p.anti_affinity() for p in crowd(3))], anti_affinity(), id=ANTI_AFFINITY),
    pytest.param(
        [
            *nodes("n1", "n2"),
            old(web("db", "n2", owner="db"), "db"),
            *(p.affinity(labelSelector=selector({"app": "db"})) for p in crowd(3)),
        ],
        affinity(),
        id=AFFINITY,
    ),
    pytest.param(
        [node("n1").zone("a"), node("n2").zone("b"), *(p.spread() for p in crowd(5))],
        topology_spread(),
        id=TOPOLOGY_SPREAD,
    ),
]


@pytest.mark.parametrize("crashes", [False, True], ids=["", "killed while acting"])
@pytest.mark.parametrize(("things", "strategies"), WORLDS)
def test_returning_pods_are_evicted_at_most_three_times(
    things: list[Any], strategies: dict[str, Any], crashes: bool
) -> None:
    world = World(things, strategies, back, crashes=crashes).run(cycles=40)
    most = Counter(world.evicted).most_common(1)
    assert [count for _, count in most] == [3]
    assert {owner for _, owner, _ in world.evicted} == {"ReplicaSet/web"}
    [bad] = [each for each in world.memory.setbacks if each.name == "web"]
    assert (bad.failures, bad.trouble, bad.gave_up) == (3, "CameBack", True)
    assert "GaveUp" in world.kept


@pytest.mark.parametrize(
    ("strategies", "name"),
    [
        pytest.param({DUPLICATES: {}}, DUPLICATES, id=DUPLICATES),
        pytest.param(life_time(3600), LIFE_TIME, id=LIFE_TIME),
        pytest.param(restarts(5), RESTARTS, id=RESTARTS),
    ],
)
def test_pending_replacements_stop_after_three_evictions(strategies: dict[str, Any], name: str) -> None:
    pods = [msgspec.structs.replace(pod.build(), restarts=9) for pod in crowd(9)]
    world = World([*nodes("n1", "n2"), *pods], strategies, nowhere, limits={"perOwner": 1}).run(cycles=40)
    assert Counter(strategy for strategy, _, _ in world.evicted) == {name: 3}
    assert [each.trouble for each in world.memory.setbacks] == ["Pending"]


def test_ping_pong_stops_after_three_evictions() -> None:
    def other(victim: Pod, _: Snapshot) -> str:
        return "n2" if victim.node == "n1" else "n1"

    world = World([*nodes("n1", "n2", "n3"), *crowd(2)], {DUPLICATES: {}}, other)
    world.snapshot.put(a_pod("web-9", "n2", age=20 * HOUR))
    world.run(cycles=60)
    assert len(world.evicted) == 3
    assert [(each.trouble, each.gave_up) for each in world.memory.setbacks] == [("WantedAway", True)]


@pytest.mark.parametrize("crashes", [False, True], ids=["", "killed while acting"])
def test_siblings_do_not_follow_unwanted_replacement(crashes: bool) -> None:
    """All five are planned for n2, and the scheduler has its own mind: none but the first goes in each try."""
    objects = [
        node("n1"),
        node("n2").labels(disk="ssd"),
        node("n3"),
        *(p.prefers_nodes(9, expression("disk", "In", "ssd")) for p in crowd(5)),
    ]

    def other(victim: Pod, _: Snapshot) -> str:
        return "n3" if victim.node == "n1" else "n1"

    world = World(objects, node_affinity(PREFERRED), other, crashes=crashes)
    world.cycle()
    assert [node for _, _, node in world.evicted] == ["n1"]
    world.run(cycles=60)
    assert len(world.evicted) == 3
    assert [(each.trouble, each.gave_up) for each in world.memory.setbacks] == [("WantedAway", True)]


def test_well_placed_replacements_block_no_sibling() -> None:
    objects = [
        node("n1"),
        *(node(name).labels(disk="ssd") for name in ("n2", "n3")),
        *(p.prefers_nodes(9, expression("disk", "In", "ssd")) for p in crowd(5)),
    ]
    world = World(objects, node_affinity(PREFERRED), lambda *_: "n3")
    world.cycle()
    assert len(world.evicted) == 5
    assert world.memory.setbacks == ()


def test_restarted_pods_may_stay_on_their_node() -> None:
    world = World([*nodes("n1", "n2"), *crowd(1)], life_time(3600), back).run(cycles=70)
    assert len(world.evicted) == 6, "one an hour"
    assert world.memory == EvictionMemory()


def ill() -> list[Any]:
    """Two old pods that have crashed often and wait for their next start."""
    return [pod.restarted(9).container_state("CrashLoopBackOff") for pod in crowd(2)]


STUCK = {"maxPodLifeTimeSeconds": 200, "states": ["CrashLoopBackOff"]}


@pytest.mark.parametrize("crashes", [False, True], ids=["", "killed while acting"])
@pytest.mark.parametrize("put", [back, lambda *_: "n2"], ids=["where they were", "elsewhere"])
@pytest.mark.parametrize(
    "strategies",
    [
        pytest.param(restarts(5), id=RESTARTS),
        pytest.param(life_time(**STUCK), id=f"{LIFE_TIME} of a state"),
    ],
)
def test_useless_restarts_stop_after_three(strategies: dict[str, Any], put: Put, crashes: bool) -> None:
    world = World([*nodes("n1", "n2"), *ill()], strategies, put, crashes=crashes).run(cycles=60)
    assert len(world.evicted) == 3
    assert [(each.trouble, each.gave_up) for each in world.memory.setbacks] == [("WantedAway", True)]


def test_every_failing_pod_is_restarted_once_before_giving_up() -> None:
    objects = [pod.container_state("CrashLoopBackOff") for pod in crowd(7)]
    world = World([*nodes("n1", "n2"), *objects], life_time(**STUCK), back).run(cycles=60)
    assert len(world.evicted) == 7
    assert [(each.failures, each.gave_up) for each in world.memory.setbacks] == [(7, True)]


def test_successful_restarts_continue() -> None:
    world = World([*nodes("n1", "n2"), *ill()], restarts(5), back, cured=True).run(cycles=20)
    assert len(world.evicted) == 2
    assert world.memory == EvictionMemory()


def test_well_placed_pods_are_moved_without_waiting() -> None:
    def emptiest(_: Pod, snapshot: Snapshot) -> str:
        return min(("n1", "n2", "n3"), key=lambda name: len(snapshot.pods_on(name)))

    world = World([*nodes("n1", "n2", "n3"), *crowd(9)], {DUPLICATES: {}}, emptiest)
    world.cycle()
    assert len(world.evicted) == 6
    assert Counter(pod.node for pod in world.snapshot.pods.values()) == {"n1": 3, "n2": 3, "n3": 3}
    world.now += 2 * HOUR
    world.run(cycles=15)
    assert (len(world.evicted), world.memory) == (6, EvictionMemory())


def test_restarts_between_cycles_have_no_effect() -> None:
    objects = [*nodes("n1", "n2", "n3"), *crowd(6)]

    def plain(world: World) -> list[tuple[str, str, str]]:
        return world.run(cycles=30).evicted

    kept_in_mind = World(objects, {DUPLICATES: {}}, back)
    assert plain(kept_in_mind) == plain(World(objects, {DUPLICATES: {}}, back, crashes=True))


def test_cooldowns_double() -> None:
    times = []

    def noted(victim: Pod, _: Snapshot) -> str:
        times.append(world.now)
        return victim.node

    world = World([*nodes("n1", "n2"), *crowd(2)], {DUPLICATES: {}}, noted, cooldown={"initial": "1h", "attempts": 5})
    world.run(cycles=400)
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert [round(wait / HOUR) for wait in waits] == [1, 2, 4, 8]


def test_watched_evictions_fit_into_status() -> None:
    entries = [watched(f"pod-{number:04}" + "x" * 200) for number in range(200)]
    assert len(msgspec.json.encode(memory(*entries))) < 200 * 1024
