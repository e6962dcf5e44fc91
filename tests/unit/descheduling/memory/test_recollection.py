"""What a plan is told of a memory, and what a plan tells it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.descheduling.memory.remembering import (
    COOLDOWN,
    HOUR,
    MINUTE,
    NOW,
    a_pod,
    memory,
    policy,
    setback,
    watched,
    whose,
)
from tests.unit.descheduling.planning import DUPLICATES, kept, life_time, messages, moves, nodes
from trimtab.api.eviction_memory import Memory
from trimtab.api.plan import Kept, Plan
from trimtab.api.scalars import to_time
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling import planner
from trimtab.descheduling.memory.second_thoughts import second_thoughts
from trimtab.descheduling.memory.verdict import gave_up_since, verdict
from trimtab.descheduling.memory.watching import recall

WORLD = [
    a_pod("web-1", "n1", age=2 * HOUR),
    a_pod("web-2", "n1", age=HOUR),
    a_pod("api-1", "n1", age=HOUR, owner="api"),
]
LANDED = watched("old", "n3", replacement="uid-web-2", landed="n1", landed_time=to_time(NOW - MINUTE))


def plan(remembered: Memory, strategies: dict[str, Any] | None = None, pods: Any = WORLD) -> Plan:
    world = Snapshot([*(each.build() for each in nodes("n1", "n2", "n3")), *pods])
    return planner.plan(world, [policy(strategies or {DUPLICATES: {}})], now=NOW, memories={"default": remembered})


@pytest.mark.parametrize(
    ("entry", "reason", "words"),
    [
        pytest.param(
            setback(1),
            "CoolingDown",
            "an eviction of ReplicaSet shop/web's pods did not help: the last one's replacement came back to n1; "
            "not again before 2026-11-20T",
            id="once",
        ),
        pytest.param(setback(2, trouble="Pending", landed=""), "CoolingDown", "2 evictions in a row", id="twice"),
        pytest.param(setback(2, trouble="Pending", landed=""), "CoolingDown", "found no node", id="pending"),
        pytest.param(setback(3, lasts=-HOUR), "GaveUp", "3 evictions in a row of ReplicaSet shop/web's", id="for good"),
        pytest.param(setback(3), "GaveUp", "annotation trimtab.dev/try-again gets another value", id="what helps"),
        pytest.param(
            setback(1, trouble="WantedAway", node="n3", landed="n1"),
            "CoolingDown",
            "the last one went from n3 to n1, where RemoveDuplicates would evict it again",
            id="wanted away",
        ),
        pytest.param(
            LANDED, "CoolingDown", "went from n3 to n1, where RemoveDuplicates would evict it again", id="found now"
        ),
    ],
)
def test_the_pods_of_an_owner_that_cools_down_are_kept_and_it_is_said_why(entry: Any, reason: str, words: str) -> None:
    made = plan(memory(entry))
    assert moves(made) == []
    assert kept(made) == {"web-1": reason, "web-2": reason}, "nobody goes in the other's stead"
    assert words in messages(made)["web-2"]


@pytest.mark.parametrize(
    "remembered",
    [
        pytest.param(Memory(), id="nothing is known"),
        pytest.param(memory(setback(1, lasts=0)), id="the cool-down is over"),
        pytest.param(memory(setback(3, name="api")), id="another owner was given up"),
        pytest.param(memory(setback(3, namespace="other")), id="one of that name in another namespace"),
        pytest.param(memory(setback(3, strategy="LowNodeUtilization")), id="another strategy gave up"),
        pytest.param(memory(setback(3, template="another")), id="another template was given up"),
        pytest.param(memory(watched()), id="the eviction is not judged yet"),
        pytest.param(
            memory(watched("old", "n3", replacement="uid-web-2", landed="n2", landed_time=to_time(NOW))),
            id="the replacement has been moved since by somebody else",
        ),
    ],
)
def test_others_are_moved_as_ever(remembered: Memory) -> None:
    assert moves(plan(remembered)) == [("web-2", "n1", "n2")]


def test_a_strategy_that_gave_up_leaves_the_others_their_turn() -> None:
    made = plan(memory(setback(3)), {DUPLICATES: {}, **life_time(int(HOUR + MINUTE))})
    assert [(each.strategy, each.pod) for each in made.actions] == [("PodLifeTime", "web-1")]


def thoughts(before: Memory, *names: str, reason: str = "CoolingDown", strategy: str = DUPLICATES) -> Memory:
    words = [
        Kept(kind="Pod", namespace="shop", name=name, strategy=strategy, reason=reason, message="") for name in names
    ]
    return second_thoughts(before, words, Snapshot(WORLD), COOLDOWN, now=NOW)


def test_a_replacement_that_is_wanted_away_counts_against_the_eviction_it_came_for() -> None:
    after = thoughts(memory(LANDED, setback(1, lasts=-HOUR)), "web-2", "web-1", "gone")
    assert after.watched == ()
    [bad] = after.setbacks
    assert (bad.trouble, bad.failures, bad.node, bad.landed) == ("WantedAway", 2, "n3", "n1")
    assert bad.until == to_time(NOW + 20 * MINUTE)
    assert thoughts(after, "web-2") == after, "the same pod counts once"


@pytest.mark.parametrize(
    ("names", "reason", "strategy"),
    [
        pytest.param(["web-1"], "CoolingDown", DUPLICATES, id="another pod of the owner"),
        pytest.param(["web-2"], "NoPlace", DUPLICATES, id="kept for another reason"),
        pytest.param(["web-2"], "CoolingDown", "LowNodeUtilization", id="another strategy"),
    ],
)
def test_what_others_are_kept_for_says_nothing_of_it(names: list[str], reason: str, strategy: str) -> None:
    assert thoughts(memory(LANDED), *names, reason=reason, strategy=strategy) == memory(LANDED)


@pytest.mark.parametrize(
    ("generation", "asked", "forgives"),
    [
        pytest.param(1, "", False, id="nothing has changed"),
        pytest.param(1, "monday", False, id="what was asked for has been done"),
        pytest.param(2, "monday", True, id="another spec"),
        pytest.param(1, "tuesday", True, id="somebody asks"),
    ],
)
def test_a_changed_spec_or_a_new_request_gives_everyone_another_chance(
    generation: int, asked: str, forgives: bool
) -> None:
    before = memory(watched(), LANDED, setback(3), generation=1, asked="monday", forgotten=7)
    after = recall(before, generation=generation, asked=asked)
    if not forgives:
        assert after == before
        return
    assert after == memory(watched(), generation=generation, asked=asked, forgotten=7), (
        "what is on its way is watched on"
    )
    assert recall(after, generation=generation, asked=asked) == after


@pytest.mark.parametrize(
    ("entries", "status", "reason", "words"),
    [
        pytest.param((), True, "AllWell", "no eviction is known not to have helped", id="nothing"),
        pytest.param(
            (setback(1),), True, "CoolingDown", "leaves 1 alone for a while: RemoveDuplicates: an eviction", id="once"
        ),
        pytest.param((setback(1, lasts=-1),), True, "AllWell", "no eviction", id="over"),
        pytest.param(
            (setback(1), setback(3, name="api")), False, "GaveUp", "gave up on 1: RemoveDuplicates: 3", id="gave up"
        ),
        pytest.param(
            tuple(setback(3, name=f"app-{number:02}") for number in range(12)), False, "GaveUp", "and 2 more", id="many"
        ),
    ],
)
def test_the_condition_says_who_is_left_alone(entries: tuple[Any, ...], status: bool, reason: str, words: str) -> None:
    type_, found, why, message = verdict(memory(*entries), now=NOW)
    assert (type_, found, why) == ("Effective", status, reason)
    assert words in message


def test_giving_up_is_told_once() -> None:
    before, after = memory(setback(2)), memory(setback(3))
    assert gave_up_since(before, after) == [setback(3)]
    assert gave_up_since(after, after) == []
    assert whose()["kind"] == "ReplicaSet"
