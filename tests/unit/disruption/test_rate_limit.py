"""So many evictions in any minute, evenly enough."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.disruption.limits import LARGEST_BURST, pace_of
from trimtab.kube.token_bucket import SlidingWindow


def starts(pace: SlidingWindow, number: int, *, per_minute: int, now: float = 0.0) -> list[float]:
    """When evictions start if each comes as early as it may."""
    pace.limit(*pace_of(per_minute))
    times = []
    for _ in range(number):
        while (wait := pace.wait(now)) > 0.0:
            now += max(wait, 1e-6)
        pace.take(now)
        times.append(now)
    return times


@given(per_minute=st.integers(1, 200), number=st.integers(1, 400), pause=st.floats(0.0, 200.0))
def test_no_sliding_minute_exceeds_the_rate(per_minute: int, number: int, pause: float):
    pace = SlidingWindow()
    times = starts(pace, number // 2, per_minute=per_minute)
    times += starts(pace, number, per_minute=per_minute, now=(times[-1] if times else 0.0) + pause)
    for index in range(len(times) - per_minute):
        assert times[index + per_minute] - times[index] >= 60.0 - 1e-3


@pytest.mark.parametrize("per_minute", [1, 5, 6, 13, 30, 100])
def test_rate_is_reached_in_the_long_run(per_minute: int):
    assert starts(SlidingWindow(), 3 * per_minute + 1, per_minute=per_minute)[-1] == pytest.approx(180.0)


@pytest.mark.parametrize(("per_minute", "burst"), [(1, 1), (6, 1), (30, 5), (600, LARGEST_BURST)])
def test_burst_is_a_sixth_of_a_minute(per_minute: int, burst: int):
    times = starts(SlidingWindow(), burst + 1, per_minute=per_minute)
    assert times[:burst] == [0.0] * burst
    assert times[burst] == pytest.approx(60.0 * burst / per_minute)


def test_returned_token_may_be_taken_again():
    pace = SlidingWindow(*pace_of(1))
    pace.take(1.0)
    assert pace.wait(2.0) == pytest.approx(59.0)
    pace.give_back(1.0)
    assert pace.wait(2.0) == 0.0
    pace.give_back(1.0)  # once more does no harm


def test_changed_rate_counts_previous_evictions():
    pace = SlidingWindow()
    starts(pace, 10, per_minute=60)
    pace.limit(*pace_of(5))
    assert pace.wait(0.0) > 0.0


def test_postponed_event_counts_from_the_later_time():
    pace = SlidingWindow((2, 60.0))
    pace.take(0.0)
    pace.take(1.0)
    pace.postpone(0.0, 5.0)
    assert (len(pace), pace.wait(5.0)) == (2, 56.0)
    pace.take(61.0)
    assert pace.wait(61.0) == 4.0
    pace.postpone(5.0, 70.0)
    assert (len(pace), pace.wait(70.0)) == (2, 51.0)


def test_event_that_was_dropped_meanwhile_is_recorded_again():
    pace = SlidingWindow((1, 60.0))
    pace.take(0.0)
    assert pace.wait(70.0) == 0.0
    pace.postpone(0.0, 70.0)
    assert pace.wait(70.0) == 60.0
