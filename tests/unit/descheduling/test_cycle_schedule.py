"""When the next cycle is due, from how the last one ended."""

from __future__ import annotations

from typing import Any

import pytest

from trimtab.api import reasons
from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.plan import Evict, Plan
from trimtab.api.schedule import Schedule, Window
from trimtab.api.strategies import Strategies
from trimtab.descheduling.cycle_schedule import MINUTE, RETRY_DELAY, SOON, STARTING_DEADLINE, CycleSchedule
from trimtab.descheduling.report.status import CycleResult
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


def test_first_cycle_is_due_immediately() -> None:
    assert CycleSchedule().cycle_due(spec(), now=NOW, reported=False) <= NOW


def test_unreported_generation_is_due_immediately() -> None:
    times = CycleSchedule()
    times.cycle_ended(spec(interval="1h"), result())
    assert times.cycle_due(spec(interval="1h"), now=NOW + 20, reported=False) <= NOW + 20


def test_interval_counts_from_start_of_last_cycle() -> None:
    times, policy = CycleSchedule(), spec(interval="10m")
    assert times.cycle_ended(policy, result()) == NOW + 600
    assert times.cycle_due(policy, now=NOW + 20, reported=True) == NOW + 600


def test_unfinished_cycle_is_continued_soon() -> None:
    times, policy = CycleSchedule(), spec(interval="10m")
    assert times.cycle_ended(policy, result(unfinished=True)) == NOW + 10 + SOON
    assert times.cycle_due(policy, now=NOW + 10, reported=True) == NOW + 10 + SOON
    times.cycle_started()
    assert times.cycle_due(policy, now=NOW + 10, reported=True) == NOW + 600


def test_new_spec_ignores_unfinished_old_cycle() -> None:
    times = CycleSchedule()
    times.cycle_ended(spec(interval="10m"), result(unfinished=True))
    assert times.cycle_due(NIGHTLY, now=NOW + 20, reported=False) == TEN_AT_NIGHT


def test_failed_cycle_is_retried_unless_scheduled() -> None:
    times, policy = CycleSchedule(), spec(interval="10m")
    times.cycle_failed(policy, started=NOW, now=NOW + 10)
    assert times.cycle_due(policy, now=NOW + 10, reported=True) == NOW + 10 + RETRY_DELAY
    times.cycle_failed(NIGHTLY, started=NOW, now=NOW + 10)
    assert times.cycle_due(NIGHTLY, now=NOW + 10, reported=True) == TEN_AT_NIGHT


def test_scheduled_cycle_respects_starting_deadline() -> None:
    assert CycleSchedule().cycle_due(NIGHTLY, now=TEN_AT_NIGHT + STARTING_DEADLINE - 1, reported=True) == TEN_AT_NIGHT
    assert (
        CycleSchedule().cycle_due(NIGHTLY, now=TEN_AT_NIGHT + STARTING_DEADLINE + 1, reported=True)
        == TEN_AT_NIGHT + DAY
    )


@pytest.mark.parametrize("mode", ["Act", "Simulate"])
def test_only_mode_act_waits_a_minute_after_restart(mode: str) -> None:
    times = CycleSchedule()
    times.restore(None, NOW - 20)
    assert times.cycle_due(spec(mode=mode), now=NOW, reported=True) == (NOW - 20 + MINUTE if mode == "Act" else 0)


def test_clock_set_back_does_not_delay_cycles() -> None:
    times, policy = CycleSchedule(), spec(interval="10m")
    times.restore(NOW + 10 * DAY, NOW - DAY)
    assert times.cycle_due(policy, now=NOW, reported=True) == NOW + 600
    times.cycle_failed(policy, started=NOW, now=NOW + 10 * DAY)
    assert times.cycle_due(policy, now=NOW, reported=True) == NOW + RETRY_DELAY
    assert times.run_due(policy, now=NOW) == NOW + RETRY_DELAY


def test_windows_delay_acting_but_not_planning() -> None:
    windows = (Window(schedule="0 22 * * *", duration="4h"),)
    assert CycleSchedule().cycle_due(spec(windows=windows), now=NOW, reported=False) == TEN_AT_NIGHT
    assert CycleSchedule().run_due(spec(windows=windows, mode="Approve"), now=NOW) == TEN_AT_NIGHT
    assert CycleSchedule().cycle_due(spec(windows=windows, mode="Approve"), now=NOW, reported=False) <= NOW
    assert CycleSchedule().cycle_due(spec(windows=windows), now=TEN_AT_NIGHT + 60, reported=False) <= TEN_AT_NIGHT + 60


@pytest.mark.parametrize(
    ("fields", "restored", "due"),
    [
        pytest.param({"interval": "10m"}, NOW - DAY, NOW, id="interval"),
        pytest.param({"schedule": Schedule(cron="0 22 * * *")}, NOW - DAY, NOW, id="schedule"),
        pytest.param({}, NOW - 20, NOW - 20 + MINUTE, id="limit per minute after a restart"),
        pytest.param({"mode": "Simulate"}, NOW - 20, NOW, id="no limit to simulate"),
        pytest.param(
            {"windows": (Window(schedule="0 22 * * *", duration="4h"),)}, NOW - DAY, TEN_AT_NIGHT, id="window"
        ),
    ],
)
def test_requested_cycle_waits_only_for_windows_and_limits(fields: dict[str, Any], restored: float, due: float) -> None:
    times = CycleSchedule()
    times.restore(NOW - 60, restored)
    assert times.cycle_due(spec(**fields), now=NOW, reported=True, asked=True) == due
    assert times.cycle_due(spec(**fields), now=NOW, reported=True) >= due
