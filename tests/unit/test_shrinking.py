"""The reduction of a failing list of steps, with a fake in place of the runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.shrinking import shrink


class Runs:
    """Fails if all culprits are in the list."""

    def __init__(self, *culprits: int) -> None:
        self._culprits = set(culprits)
        self.calls = 0

    def __call__(self, items: Sequence[int]) -> bool:
        self.calls += 1
        return self._culprits <= set(items)


@given(st.integers(1, 80).flatmap(lambda size: st.tuples(st.just(size), st.sets(st.integers(0, size - 1), max_size=5))))
def test_result_is_what_the_failure_needs_in_its_order(case: tuple[int, set[int]]) -> None:
    size, culprits = case

    assert shrink(range(size), Runs(*culprits), runs=10_000) == sorted(culprits)


def test_one_culprit_of_five_hundred_takes_few_runs() -> None:
    fails = Runs(377)

    assert shrink(range(500), fails, runs=100) == [377]
    assert fails.calls <= 25


def test_number_of_runs_is_bounded() -> None:
    fails = Runs(1, 99)

    found = shrink(range(100), fails, runs=6)

    assert fails.calls == 6
    assert {1, 99} <= set(found)


def test_failure_that_needs_one_of_two_items_keeps_one() -> None:
    either: Callable[[Sequence[int]], bool] = lambda items: 3 in items or 7 in items  # noqa: E731

    assert len(shrink(range(10), either, runs=100)) == 1
