"""Windows: when they are open, when they close, and when a policy may start within them."""

from __future__ import annotations

from datetime import datetime

import pytest

from trimtab.api.schedule import Schedule, Window, closes_at, next_opening, next_start, open_at

NIGHT = Window(schedule="0 22 * * *", duration="4h", time_zone="Europe/Berlin")
EARLY = Window(schedule="30 2 * * *", duration="1h", time_zone="Europe/Berlin")
NOON = Window(schedule="0 12 * * 1-5", duration="30m")


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("windows", "time", "expected"),
    [
        pytest.param((), "2026-07-01T03:00Z", True, id="without any it is always open"),
        pytest.param((NIGHT,), "2026-07-01T19:59:59Z", False, id="a second before"),
        pytest.param((NIGHT,), "2026-07-01T20:00Z", True, id="as it opens, in summer"),
        pytest.param((NIGHT,), "2026-07-01T23:59:59Z", True, id="past midnight"),
        pytest.param((NIGHT,), "2026-07-02T00:00Z", False, id="as it closes"),
        pytest.param((NIGHT,), "2026-01-01T20:30Z", False, id="before it opens, in winter"),
        pytest.param((NIGHT,), "2026-01-01T21:00Z", True, id="as it opens, in winter"),
        pytest.param((NOON,), "2026-07-04T12:10Z", False, id="on a Saturday"),
        pytest.param((NIGHT, NOON), "2026-07-03T12:10Z", True, id="one of two"),
        pytest.param((EARLY,), "2026-03-29T00:59Z", False, id="spring: before the skipped hour"),
        pytest.param((EARLY,), "2026-03-29T01:00Z", True, id="spring: a skipped opening is made up for right after"),
        pytest.param((EARLY,), "2026-03-29T01:59Z", True, id="spring: as long as on other days"),
        pytest.param((EARLY,), "2026-03-29T02:00Z", False, id="spring: and not longer"),
        pytest.param((EARLY,), "2026-10-25T00:30Z", True, id="autumn: at the first of two half past two"),
        pytest.param((EARLY,), "2026-10-25T01:29Z", True, id="autumn: as long as on other days"),
        pytest.param((EARLY,), "2026-10-25T01:31Z", False, id="autumn: not again at the second"),
    ],
)
def test_window_is_open_for_its_duration(windows: tuple[Window, ...], time: str, expected: bool) -> None:
    assert open_at(windows, at(time)) is expected


def test_window_across_dst_keeps_its_length() -> None:
    assert open_at((NIGHT,), at("2026-03-28T21:00Z"))
    assert closes_at((NIGHT,), at("2026-03-28T21:00Z"), until=at("2026-03-30T00:00Z")) == at("2026-03-29T01:00Z")


@pytest.mark.parametrize(
    ("windows", "now", "until", "expected"),
    [
        pytest.param((), "12:00", "12:05", "12:05", id="without any, never"),
        pytest.param(("0 12 * * *", "10m"), "12:01", "12:05", "12:05", id="not before the time that matters"),
        pytest.param(("0 12 * * *", "10m"), "12:08", "12:13", "12:10", id="before it"),
        pytest.param(("0 12 * * *", "10m"), "12:10", "12:15", "12:10", id="closed already"),
        pytest.param(("0,10 12 * * *", "10m"), "12:08", "13:00", "12:20", id="windows that touch are one"),
        pytest.param(("*/5 * * * *", "10m"), "12:08", "13:00", "13:00", id="windows that overlap for ever"),
    ],
)
def test_windows_close_when_none_is_open(windows: tuple[str, ...], now: str, until: str, expected: str) -> None:
    made = (Window(schedule=windows[0], duration=windows[1]),) if windows else ()
    day = "2026-07-01T{}Z"
    assert closes_at(made, at(day.format(now)), until=at(day.format(until))) == at(day.format(expected))


def test_the_next_opening_is_that_of_the_first_window_to_open() -> None:
    assert next_opening((NIGHT, NOON), after=at("2026-07-01T11:00Z")) == at("2026-07-01T12:00Z")
    assert next_opening((NIGHT, NOON), after=at("2026-07-01T12:00Z")) == at("2026-07-01T20:00Z")
    assert next_opening((), after=0.0) is None


@pytest.mark.parametrize(
    ("cron", "time", "expected"),
    [
        pytest.param(None, "2026-07-01T12:10Z", "2026-07-01T12:10Z", id="at once within one"),
        pytest.param(None, "2026-07-01T13:00Z", "2026-07-02T12:00Z", id="with an interval, as one opens"),
        pytest.param(
            "*/20 * * * *", "2026-07-01T12:40Z", "2026-07-02T12:00Z", id="a time of the schedule at the opening"
        ),
        pytest.param("15 * * * *", "2026-07-01T13:15Z", "2026-07-02T12:15Z", id="a time of the schedule within one"),
        pytest.param("0 8 * * 6", "2026-07-04T08:00Z", None, id="none that ever falls into one"),
    ],
)
def test_a_policy_starts_within_a_window_at_a_time_of_its_schedule(
    cron: str | None, time: str, expected: str | None
) -> None:
    start = next_start((NOON,), Schedule(cron=cron) if cron else None, at=at(time))
    if expected is None:
        assert not open_at((NOON,), start)
    else:
        assert start == at(expected)
