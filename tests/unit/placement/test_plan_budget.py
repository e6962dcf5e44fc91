"""How plans share their time among namespaces."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from tests.builders import pod
from trimtab.placement.plan_budget import (
    BACKOFF_SHARE,
    MAX_DEADLINE,
    MIN_DEADLINE,
    UNLIMITED,
    PlanBackoff,
    PlanBudget,
    default_deadline,
    planning_cost,
)


class Time:
    """A clock that goes on only where a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def never() -> float:
    raise AssertionError("the clock was read")


Item = tuple[str, int, float]
"""Namespace, cost as it can be seen beforehand, and seconds that it takes."""


def take_turns(budget: PlanBudget, items: list[Item], time: Time) -> tuple[list[Item], list[Item]]:
    judged: list[Item] = []
    skipped: list[Item] = []
    for item in budget.fair_order(items, lambda each: each[0], lambda each: each[1], skipped):
        judged.append(item)
        time.now += item[2]
    return judged, skipped


def test_clock_is_not_read_without_a_deadline() -> None:
    for budget in (UNLIMITED, PlanBudget(math.inf, never)):
        assert budget.exceeded("a") is None
        assert not budget.over
        with budget.charged("a"):
            pass
        assert list(budget.fair_order([3, 1, 2], str, int, [])) == [3, 1, 2]
        assert budget.stage(0.5).exceeded("a") is None


def test_order_is_kept_in_the_first_half() -> None:
    time = Time()
    items = [("b", 9, 1.0), ("a", 0, 1.0), ("b", 1, 1.0), ("a", 5, 1.9)]
    assert take_turns(PlanBudget(10.0, time), items, time) == (items, [])


def test_expensive_namespace_leaves_half_of_the_time_to_others() -> None:
    time = Time()
    hostile: list[Item] = [("tenant", 1, 2.0)] * 50
    others: list[Item] = [("bank", 0, 0.1)] * 8 + [("shop", 0, 0.1)] * 8
    budget = PlanBudget(10.0, time)
    judged, skipped = take_turns(budget, hostile + others, time)
    assert sorted(each for each in judged if each in others) == sorted(others)
    assert {each[0] for each in skipped} == {"tenant"}
    assert time.now <= 10.0 + 2.0


def test_many_pods_of_one_namespace_leave_half_of_the_time_to_others() -> None:
    time = Time()
    many: list[Item] = [("tenant", 1, 0.01)] * 5000
    others: list[Item] = [("bank", 0, 0.1)] * 8
    judged, skipped = take_turns(PlanBudget(10.0, time), many + others, time)
    assert judged.count(others[0]) == 8
    assert skipped
    assert set(skipped) == {many[0]}


def test_most_expensive_pods_of_a_namespace_are_skipped() -> None:
    time = Time()
    first: Item = ("a", 0, 5.0)
    items: list[Item] = [first, ("a", 700, 4.0), ("a", 3, 1.0), ("a", 700, 4.0), ("a", 1, 1.0)]
    judged, skipped = take_turns(PlanBudget(10.0, time), items, time)
    assert judged == [first, ("a", 1, 1.0), ("a", 3, 1.0), ("a", 700, 4.0)]
    assert skipped == [("a", 700, 4.0)]


def test_every_item_is_either_yielded_or_skipped() -> None:
    time = Time()
    items: list[Item] = [(f"n{number % 7}", number % 11, 0.3) for number in range(100)]
    judged, skipped = take_turns(PlanBudget(10.0, time), items, time)
    assert sorted([*judged, *skipped]) == sorted(items)
    assert skipped


def test_namespace_above_the_average_waits_in_the_second_half() -> None:
    time = Time()
    budget = PlanBudget(10.0, time)
    with budget.charged("tenant"):
        time.now += 4.9
    assert budget.exceeded("tenant") is None
    with budget.charged("bank"):
        time.now += 0.2
    assert budget.exceeded("tenant") is not None
    assert budget.exceeded("bank") is None
    assert budget.exceeded("never seen") is None
    time.now = 10.0
    assert budget.exceeded("bank") is not None
    assert budget.over


def test_stage_has_its_share_from_its_start() -> None:
    time = Time()
    budget = PlanBudget(10.0, time)
    time.now = 100.0
    stage = budget.stage(0.5)
    time.now = 104.9
    assert not stage.over
    time.now = 105.0
    assert stage.over


@pytest.mark.parametrize(("interval", "seconds"), [(5.0, MIN_DEADLINE), (120.0, 60.0), (3600.0, MAX_DEADLINE)])
def test_the_default_follows_the_interval(interval: float, seconds: float) -> None:
    assert default_deadline(interval) == seconds
    assert default_deadline(interval, at_most=5.0) == 5.0


def test_planning_cost_counts_constraints() -> None:
    stating = pod("a").anti_affinity("zone", labelSelector={}).anti_affinity("host", labelSelector={}).build()
    assert planning_cost(stating.spec) - planning_cost(pod("b").build().spec) == 2


def plan(backoff: PlanBackoff, time: Time, tenant: float, bank: float = 0.1) -> tuple[float, bool]:
    """Plan with 20 pods of a tenant that take so many seconds each; returns the seconds, and whether pods were left."""
    began, items = time.now, [("tenant", 1, tenant)] * 20 + [("bank", 0, bank)] * 8
    budget = backoff.budget(10.0, time)
    judged, skipped = take_turns(budget, items, time)
    assert [each for each in judged if each[0] == "bank"] == items[20:]
    backoff.finish(budget, time.now)
    return time.now - began, bool(skipped)


def test_namespace_whose_pods_were_skipped_backs_off() -> None:
    time, backoff, full = Time(), PlanBackoff(), list[float]()
    while time.now < 4 * 3600:
        seconds, skipped = plan(backoff, time, tenant=2.0)
        assert skipped
        if seconds > 5.0:
            full.append(time.now)
        else:
            assert seconds <= 10.0 * BACKOFF_SHARE + 2.0 + 1.0
        time.now += 10.0
    gaps = [round(b - a) for a, b in pairwise(full)]
    assert gaps[:4] == sorted(gaps[:4])
    assert 60 <= gaps[0] < 90
    assert all(1800 <= gap < 1840 for gap in gaps[5:])


def test_namespace_has_its_time_again_once_it_suffices() -> None:
    time, backoff = Time(), PlanBackoff()
    assert plan(backoff, time, tenant=2.0)[1]
    time.now += 61.0
    assert plan(backoff, time, tenant=0.1) == (pytest.approx(2.8), False)
    assert plan(backoff, time, tenant=2.0)[0] > 9.0, "the backoff is forgotten"
    time.now += 61.0
    assert plan(backoff, time, tenant=2.0)[0] > 9.0, "it starts with a minute again"


def test_only_namespace_never_backs_off() -> None:
    time, backoff = Time(), PlanBackoff()
    for _ in range(3):
        budget = backoff.budget(10.0, time)
        assert take_turns(budget, [("tenant", 1, 1.0)] * 20, time)[1]
        backoff.finish(budget, time.now)
        assert not backoff.budget(10.0, time).backing_off


def test_limit_of_a_backoff_holds_for_exceeded() -> None:
    time = Time()
    budget = PlanBudget(10.0, time, backing_off={"tenant": 0.5})
    assert budget.exceeded("tenant") is None
    with budget.charged("tenant"):
        time.now += 0.6
    assert "tenant" in (budget.exceeded("tenant") or "")
    assert budget.exceeded("bank") is None
    assert budget.stage(0.5).skipped == {"tenant"}
