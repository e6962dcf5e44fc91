"""What a plan reads from the eviction memory, and what it writes to it."""

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
from trimtab.api.descheduler_status import EvictionMemory
from trimtab.api.plan import Kept, Plan
from trimtab.api.scalars import to_time
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.memory.cooldown import effective_condition, gave_up_since
from trimtab.descheduling.memory.cycle_memory import count_unwanted_targets, valid_memory
from trimtab.descheduling.planning import planner

WORLD = [
    a_pod("web-1", "n1", age=2 * HOUR),
    a_pod("web-2", "n1", age=HOUR),
    a_pod("api-1", "n1", age=HOUR, owner="api"),
]
LANDED = watched("old", "n3", replacement="uid-web-2", landed="n1", landed_time=to_time(NOW - MINUTE))


def plan(remembered: EvictionMemory, strategies: dict[str, Any] | None = None, pods: Any = WORLD) -> Plan:
    world = Snapshot([*(each.build() for each in nodes("n1", "n2", "n3")), *pods])
    return planner.plan_evictions(
        world, [policy(strategies or {DUPLICATES: {}})], now=NOW, memories={"default": remembered}
    )


@pytest.mark.parametrize(
    ("entry", "reason", "words"),
    [
        pytest.param(
            setback(1),
            "CoolingDown",
            "an eviction of ReplicaSet shop/web's pods did not help: the last replacement was scheduled to n1; "
            "no eviction before 2026-11-20T",
            id="once",
        ),
        pytest.param(setback(2, trouble="Pending", landed=""), "CoolingDown", "2 consecutive evictions", id="twice"),
        pytest.param(setback(2, trouble="Pending", landed=""), "CoolingDown", "stayed Pending", id="pending"),
        pytest.param(
            setback(3, lasts=-HOUR), "GaveUp", "3 consecutive evictions of ReplicaSet shop/web's", id="permanent"
        ),
        pytest.param(setback(3), "GaveUp", "annotation trimtab.dev/try-again gets another value", id="eviction helped"),
        pytest.param(
            setback(1, trouble="WantedAway", node="n3", landed="n1"),
            "CoolingDown",
            "the last pod was moved from n3 to n1, where RemoveDuplicates would evict its replacement again",
            id="wanted away",
        ),
        pytest.param(
            LANDED,
            "CoolingDown",
            "was moved from n3 to n1, where RemoveDuplicates would evict its replacement again",
            id="found now",
        ),
    ],
)
def test_owner_in_cooldown_is_kept_with_reason(entry: Any, reason: str, words: str) -> None:
    made = plan(memory(entry))
    assert moves(made) == []
    assert kept(made) == {"web-1": reason, "web-2": reason}, "no other pod is evicted instead"
    assert words in messages(made)["web-2"]


@pytest.mark.parametrize(
    "remembered",
    [
        pytest.param(EvictionMemory(), id="empty memory"),
        pytest.param(memory(setback(1, lasts=0)), id="the slots_below_targets-down is over"),
        pytest.param(memory(setback(3, name="api")), id="another owner was given up"),
        pytest.param(memory(setback(3, namespace="other")), id="one of that name in another namespace"),
        pytest.param(memory(setback(3, strategy="LowNodeUtilization")), id="another strategy gave up"),
        pytest.param(memory(setback(3, template="another")), id="another template was given up"),
        pytest.param(memory(watched()), id="the eviction is not judged yet"),
        pytest.param(
            memory(watched("old", "n3", replacement="uid-web-2", landed="n2", landed_time=to_time(NOW))),
            id="another actor moved the replacement",
        ),
    ],
)
def test_other_owners_are_moved(remembered: EvictionMemory) -> None:
    assert moves(plan(remembered)) == [("web-2", "n1", "n2")]


def test_other_strategies_continue_after_giving_up() -> None:
    made = plan(memory(setback(3)), {DUPLICATES: {}, **life_time(int(HOUR + MINUTE))})
    assert [(each.strategy, each.pod) for each in made.actions] == [("PodLifeTime", "web-1")]


def thoughts(
    before: EvictionMemory, *names: str, reason: str = "CoolingDown", strategy: str = DUPLICATES
) -> EvictionMemory:
    words = [
        Kept(kind="Pod", namespace="shop", name=name, strategy=strategy, reason=reason, message="") for name in names
    ]
    return count_unwanted_targets(before, words, Snapshot(WORLD), COOLDOWN, now=NOW)


def test_unwanted_replacement_counts_as_failure() -> None:
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
def test_other_kept_reasons_are_no_failure(names: list[str], reason: str, strategy: str) -> None:
    assert thoughts(memory(LANDED), *names, reason=reason, strategy=strategy) == memory(LANDED)


@pytest.mark.parametrize(
    ("generation", "asked", "forgives"),
    [
        pytest.param(1, "", False, id="unchanged"),
        pytest.param(1, "monday", False, id="annotation value is known"),
        pytest.param(2, "monday", True, id="another spec"),
        pytest.param(1, "tuesday", True, id="annotation is set"),
    ],
)
def test_spec_or_annotation_change_resets_setbacks(generation: int, asked: str, forgives: bool) -> None:
    before = memory(watched(), LANDED, setback(3), generation=1, try_again="monday", forgotten=7)
    after = valid_memory(before, generation=generation, try_again=asked)
    if not forgives:
        assert after == before
        return
    assert after == memory(watched(), generation=generation, try_again=asked, forgotten=7), (
        "what is on its way is watched on"
    )
    assert valid_memory(after, generation=generation, try_again=asked) == after


@pytest.mark.parametrize(
    ("entries", "status", "reason", "words"),
    [
        pytest.param((), True, "AllWell", "all known evictions helped or are still being observed", id="nothing"),
        pytest.param(
            (setback(1),),
            True,
            "CoolingDown",
            "waiting before evicting pods of 1 owner again: RemoveDuplicates: an eviction",
            id="once",
        ),
        pytest.param((setback(1, lasts=-1),), True, "AllWell", "evictions helped", id="over"),
        pytest.param(
            (setback(1), setback(3, name="api")),
            False,
            "GaveUp",
            "stopped evicting pods of 1 owner: RemoveDuplicates: 3",
            id="gave up",
        ),
        pytest.param(
            tuple(setback(3, name=f"app-{number:02}") for number in range(12)), False, "GaveUp", "and 2 more", id="many"
        ),
    ],
)
def test_condition_effective_lists_owners(entries: tuple[Any, ...], status: bool, reason: str, words: str) -> None:
    made = effective_condition(memory(*entries), now=NOW)
    type_, found, why, message = made.type, made.status, made.reason, made.message
    assert (type_, found, why) == ("Effective", status, reason)
    assert words in message


def test_giving_up_is_reported_once() -> None:
    before, after = memory(setback(2)), memory(setback(3))
    assert gave_up_since(before, after) == [setback(3)]
    assert gave_up_since(after, after) == []
    assert whose()["kind"] == "ReplicaSet"
