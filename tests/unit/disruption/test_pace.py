"""So many evictions in any minute, evenly enough."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.disruption.pace import LARGEST_BURST, Pace


def starts(pace: Pace, number: int, *, per_minute: int, now: float = 0.0) -> list[float]:
    """When evictions start if each comes as early as it may."""
    times = []
    for _ in range(number):
        while (wait := pace.wait(now, per_minute=per_minute)) > 0.0:
            now += max(wait, 1e-6)
        pace.take(now)
        times.append(now)
    return times


@given(per_minute=st.integers(1, 200), number=st.integers(1, 400), pause=st.floats(0.0, 200.0))
def test_no_minute_has_more_than_the_pace_whenever_it_begins(per_minute: int, number: int, pause: float):
    pace = Pace()
    times = starts(pace, number // 2, per_minute=per_minute)
    times += starts(pace, number, per_minute=per_minute, now=(times[-1] if times else 0.0) + pause)
    for index in range(len(times) - per_minute):
        assert times[index + per_minute] - times[index] >= 60.0 - 1e-3


@pytest.mark.parametrize("per_minute", [1, 5, 6, 13, 30, 100])
def test_the_pace_is_reached_in_the_long_run(per_minute: int):
    assert starts(Pace(), 3 * per_minute + 1, per_minute=per_minute)[-1] == pytest.approx(180.0)


@pytest.mark.parametrize(("per_minute", "burst"), [(1, 1), (6, 1), (30, 5), (600, LARGEST_BURST)])
def test_only_a_share_of_a_minutes_evictions_comes_at_once(per_minute: int, burst: int):
    times = starts(Pace(), burst + 1, per_minute=per_minute)
    assert times[:burst] == [0.0] * burst
    assert times[burst] == pytest.approx(60.0 * burst / per_minute)


def test_what_is_given_back_may_be_taken_again():
    pace = Pace()
    pace.take(1.0)
    assert pace.wait(2.0, per_minute=1) == pytest.approx(59.0)
    pace.give_back(1.0)
    assert pace.wait(2.0, per_minute=1) == 0.0
    pace.give_back(1.0)  # once more does no harm


def test_a_pace_that_changes_counts_what_went_before():
    pace = Pace()
    starts(pace, 10, per_minute=60)
    assert pace.wait(0.0, per_minute=5) > 0.0
