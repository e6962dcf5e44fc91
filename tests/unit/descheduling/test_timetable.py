"""When the next cycle is due, from how the last one ended."""

from __future__ import annotations

from typing import Any

import pytest

from trimtab.api import reasons
from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.plan import Evict, Plan
from trimtab.api.schedule import Schedule
from trimtab.api.strategies import Strategies
from trimtab.api.windows import Window
from trimtab.descheduling.report import CycleResult
from trimtab.descheduling.timetable import AFTER_FAILURE, LATEST_START, MINUTE, SOON, Timetable
from trimtab.disruption.outcome import SKIPPED, Outcome

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z
DAY = 86_400.0
TEN_AT_NIGHT = NOW + 14 * 3600


def spec(**fields: Any) -> DeschedulerPolicySpec:
    return DeschedulerPolicySpec(strategies=Strategies(), **{"mode": "Act", **fields})


NIGHTLY = spec(schedule=Schedule(cron="0 22 * * *"))


def result(*, unfinished: bool = False) -> CycleResult:
    """A cycle that started at NOW and took ten seconds."""
    action = Evict(
        policy="test",
        strategy="PodLifeTime",
        namespace="shop",
        pod="web-1",
        node="n1",
        target="n2",
        reason="TooOld",
        message="",
    )
    left = Outcome(action=action, result=SKIPPED, reason=reasons.CYCLE_DEADLINE, message="", at=NOW + 10)
    return CycleResult(
        mode="Act",
        plan=Plan(now=NOW, actions=(action,)),
        outcomes=[left] if unfinished else [],
        started=NOW,
        finished=NOW + 10,
        nodes=2,
        pods=1,
    )


def test_the_first_cycle_is_due_at_once() -> None:
    assert Timetable().cycle_due(spec(), now=NOW, reported=False) <= NOW


def test_a_spec_that_no_cycle_has_reported_on_is_due_at_once() -> None:
    times = Timetable()
    times.cycle_ended(spec(interval="1h"), result())
    assert times.cycle_due(spec(interval="1h"), now=NOW + 20, reported=False) <= NOW + 20


def test_the_next_cycle_is_due_an_interval_after_the_start_of_the_last() -> None:
    times, policy = Timetable(), spec(interval="10m")
    assert times.cycle_ended(policy, result()) == NOW + 600
    assert times.cycle_due(policy, now=NOW + 20, reported=True) == NOW + 600


def test_a_cycle_that_ended_with_work_left_is_followed_soon() -> None:
    times, policy = Timetable(), spec(interval="10m")
    assert times.cycle_ended(policy, result(unfinished=True)) == NOW + 10 + SOON
    assert times.cycle_due(policy, now=NOW + 10, reported=True) == NOW + 10 + SOON
    times.cycle_begins()
    assert times.cycle_due(policy, now=NOW + 10, reported=True) == NOW + 600


def test_a_spec_that_came_while_a_cycle_acted_keeps_its_schedule_although_that_left_work() -> None:
    times = Timetable()
    times.cycle_ended(spec(interval="10m"), result(unfinished=True))
    assert times.cycle_due(NIGHTLY, now=NOW + 20, reported=False) == TEN_AT_NIGHT


def test_a_cycle_that_failed_is_tried_again_after_a_while_unless_it_has_a_schedule() -> None:
    times, policy = Timetable(), spec(interval="10m")
    times.cycle_failed(policy, started=NOW, now=NOW + 10)
    assert times.cycle_due(policy, now=NOW + 10, reported=True) == NOW + 10 + AFTER_FAILURE
    times.cycle_failed(NIGHTLY, started=NOW, now=NOW + 10)
    assert times.cycle_due(NIGHTLY, now=NOW + 10, reported=True) == TEN_AT_NIGHT


def test_a_scheduled_cycle_starts_a_little_late_but_not_after_that() -> None:
    assert Timetable().cycle_due(NIGHTLY, now=TEN_AT_NIGHT + LATEST_START - 1, reported=True) == TEN_AT_NIGHT
    assert Timetable().cycle_due(NIGHTLY, now=TEN_AT_NIGHT + LATEST_START + 1, reported=True) == TEN_AT_NIGHT + DAY


@pytest.mark.parametrize("mode", ["Act", "Simulate"])
def test_only_acting_waits_for_the_minute_in_which_an_earlier_process_evicted(mode: str) -> None:
    times = Timetable()
    times.take_up(None, NOW - 20)
    assert times.cycle_due(spec(mode=mode), now=NOW, reported=True) == (NOW - 20 + MINUTE if mode == "Act" else 0)


def test_a_clock_that_was_set_back_does_not_hold_cycles_up() -> None:
    times, policy = Timetable(), spec(interval="10m")
    times.take_up(NOW + 10 * DAY, NOW - DAY)
    assert times.cycle_due(policy, now=NOW, reported=True) == NOW + 600
    times.cycle_failed(policy, started=NOW, now=NOW + 10 * DAY)
    assert times.cycle_due(policy, now=NOW, reported=True) == NOW + AFTER_FAILURE
    assert times.run_due(policy, now=NOW) == NOW + AFTER_FAILURE


def test_acting_waits_for_a_window_and_planning_does_not() -> None:
    windows = (Window(schedule="0 22 * * *", duration="4h"),)
    assert Timetable().cycle_due(spec(windows=windows), now=NOW, reported=False) == TEN_AT_NIGHT
    assert Timetable().run_due(spec(windows=windows, mode="Approve"), now=NOW) == TEN_AT_NIGHT
    assert Timetable().cycle_due(spec(windows=windows, mode="Approve"), now=NOW, reported=False) <= NOW
    assert Timetable().cycle_due(spec(windows=windows), now=TEN_AT_NIGHT + 60, reported=False) <= TEN_AT_NIGHT + 60
