"""Rates of user taints hold pods back as long as they say, no longer, and nobody is forgotten."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.api.taint_manager import UserTaintRates
from trimtab.tainting.ending.held import HeldBack
from trimtab.tainting.ending.rates import CATCH_UP, NEVER, Limit, Rates

RATE = st.none() | st.sampled_from([0.05, 0.3, 1.0, 7.0, 50.0])
WHO = st.tuples(st.floats(0, 60), st.sampled_from("xyz"), st.sampled_from("ab"))


def test_without_a_rate_everybody_goes_at_once() -> None:
    rates = Rates(UserTaintRates())
    assert not rates.limited
    assert [rates.take("z", "n", 5).times for _ in range(3)] == [(NEVER, NEVER, NEVER)] * 3
    assert rates.at("z", "n") == NEVER


@pytest.mark.parametrize(
    ("spec", "others"),
    [
        (UserTaintRates(total=2), {("z", "n"), ("z", "m"), ("y", "n"), ("y", "m")}),
        (UserTaintRates(per_zone=2), {("z", "n"), ("z", "m")}),
        (UserTaintRates(per_namespace=2), {("z", "n"), ("y", "n")}),
    ],
    ids=["total", "zone", "namespace"],
)
def test_each_rate_holds_whom_it_is_about(spec: UserTaintRates, others: set[tuple[str, str]]) -> None:
    rates = Rates(spec)
    rates.take("z", "n", 100)
    held = {(zone, name) for zone in "yz" for name in "mn" if rates.at(zone, name) > 100}
    assert held == others


def test_a_pause_is_not_made_up_for() -> None:
    limit = Limit(10)
    limit.take("", 0)
    assert limit.take("", 1000) == pytest.approx(1000 + 0.1 - CATCH_UP)


def test_a_turn_that_was_not_used_is_given_back_once() -> None:
    limit = Limit(1)
    after = limit.take("", 10)
    limit.give_back("", after)
    limit.give_back("", after)
    assert limit.at("") <= 10
    assert limit.take("", 10) == after


def test_a_turn_after_which_another_was_used_is_lost() -> None:
    limit = Limit(1)
    first = limit.take("", 10)
    second = limit.take("", 11)
    limit.give_back("", first)
    assert limit.at("") == second


def test_what_is_known_of_those_that_may_go_is_forgotten() -> None:
    limit = Limit(1)
    for number in range(10_000):
        limit.take(f"n{number}", number)
    assert len(limit._next) < 3000


def test_the_first_due_goes_first() -> None:
    held = HeldBack(Rates(UserTaintRates(total=1)))
    for due in (5, 3, 9, 1):
        held.add(f"p{due}", due=due, zone="", namespace="n")
    assert _all(held, range(100, 110)) == ["p1", "p3", "p5", "p9"]


def test_one_namespace_that_may_not_go_holds_up_no_other() -> None:
    held = HeldBack(Rates(UserTaintRates(per_namespace=0.01)))
    for number in range(100):
        held.add(f"a{number}", due=number, zone="", namespace="a")
    held.add("b", due=1000, zone="", namespace="b")
    assert _all(held, [2000]) == ["a0", "b"]


def test_who_is_dropped_takes_no_turn() -> None:
    held = HeldBack(Rates(UserTaintRates(total=1)))
    for number in range(4):
        held.add(f"p{number}", due=number, zone="", namespace="n")
    held.drop("p0")
    held.drop("p2")
    assert (len(held), "p0" in held, "p1" in held) == (2, False, True)
    assert _all(held, [10, 11]) == ["p1", "p3"]
    assert held.next_at is None


def test_a_line_whose_last_pod_is_dropped_while_it_may_not_go_is_closed() -> None:
    held = HeldBack(Rates(UserTaintRates(per_namespace=1)))
    held.add("p0", due=0, zone="", namespace="n")
    held.add("p1", due=1, zone="", namespace="n")
    assert _all(held, [10, 10.5]) == ["p0"]
    held.drop("p1")
    assert _all(held, [20]) == []
    held.add("p2", due=2, zone="", namespace="n")
    assert _all(held, [20]) == ["p2"]


def test_other_rates_keep_the_order() -> None:
    held = HeldBack(Rates(UserTaintRates(total=0.001)))
    for number in range(4):
        held.add(f"p{number}", due=-number, zone="", namespace="n")
    assert _all(held, [10]) == ["p3"]
    held.regulate(Rates(UserTaintRates(per_zone=1)))
    assert _all(held, [10, 11]) == ["p2", "p1"]
    assert list(held.clear()) == ["p0"]
    assert len(held) == 0


@given(total=RATE, zone=RATE, namespace=RATE, pods=st.lists(WHO, max_size=40), drops=st.sets(st.integers(0, 39)))
def test_rates_let_nobody_go_early_or_too_fast_and_everybody_in_the_end(
    total: float | None,
    zone: float | None,
    namespace: float | None,
    pods: list[tuple[float, str, str]],
    drops: set[int],
) -> None:
    rates = Rates(UserTaintRates(total=total, per_zone=zone, per_namespace=namespace))
    held = HeldBack(rates)
    arrivals = sorted((due, number) for number, (due, _, _) in enumerate(pods))
    went: dict[int, float] = {}
    now = 0.0
    for _ in range(2000):
        while arrivals and arrivals[0][0] <= now:
            due, number = arrivals.pop(0)
            _, at, name = pods[number]
            held.add(str(number), due=due, zone=at, namespace=name)
            if number in drops:
                held.drop(str(number))
        went |= {int(key): now for key, _ in held.take(now, limit=3)}
        following = [at for at in (held.next_at, arrivals[0][0] if arrivals else None) if at is not None]
        if not following:
            break
        now = max(now + 1e-6, min(following))

    assert set(went) == set(range(len(pods))) - drops
    assert all(at >= pods[number][0] for number, at in went.items())
    _not_faster(total, went.values())
    for key in "xyz":
        _not_faster(zone, (at for number, at in went.items() if pods[number][1] == key))
    for key in "ab":
        _not_faster(namespace, (at for number, at in went.items() if pods[number][2] == key))


def test_ten_thousand_that_wait_in_a_thousand_lines_are_not_gone_through_for_each() -> None:
    held = HeldBack(Rates(UserTaintRates(total=1000, per_zone=100)))
    for number in range(10_000):
        held.add(str(number), due=number, zone=str(number % 10), namespace=str(number % 1000))
    looks = Counter[str]()
    head = held._head

    def counted(line: tuple[str, str]) -> tuple[float, int, str] | None:
        looks["heads"] += 1
        return head(line)

    held._head = counted  # type: ignore[method-assign]
    went = _all(held, (step / 1000 for step in range(2000)))
    assert len(went) >= 1900
    assert looks["heads"] < 150 * len(went)


def _all(held: HeldBack, times: Iterable[float]) -> list[str]:
    return [key for now in times for key, _ in held.take(now, limit=1000)]


def _not_faster(rate: float | None, times: Iterable[float]) -> None:
    if rate is None:
        return
    ordered = sorted(times)
    for index, begin in enumerate(ordered):
        for end in ordered[index:]:
            number = bisect.bisect_right(ordered, end) - index
            assert number <= rate * (end - begin + CATCH_UP) + 1 + 1e-6
