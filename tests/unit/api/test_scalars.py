"""Durations, time zones and cron expressions; when a policy is due."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import policies
from trimtab.api.cron import next_due
from trimtab.api.decode import decode_policy
from trimtab.api.scalars import format_duration, parse_duration, parse_time_zone, to_time


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5m", 300), ("1h30m", 5400), ("2h3m4s", 7384), ("90m", 5400), ("0s", 0)]
)
def test_a_duration_is_read(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "1d", "5 m", "-5m", "1.5h", "30s5m", "5m\n", "500ms", "٣m"])
def test_invalid_duration_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="30s, 5m or 1h30m"):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=10**9))
def test_duration_round_trips(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc/passwd", "/etc/passwd", "Europe", "a\0b", "x" * 300])
def test_invalid_time_zone_is_rejected_with_an_example(name: str) -> None:
    with pytest.raises(ValueError, match="Europe/Berlin"):
        parse_time_zone(name)


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("cron", "zone", "after", "due"),
    [
        ("30 2 * * *", "UTC", "2026-11-20T12:00:00Z", "2026-11-21T02:30:00Z"),
        ("30 2 * * *", "UTC", "2026-11-20T02:30:00Z", "2026-11-21T02:30:00Z"),
        ("30 2 * * *", "UTC", "2026-11-20T02:29:59Z", "2026-11-20T02:30:00Z"),
        ("30 2 * * *", "Europe/Berlin", "2026-11-20T12:00:00Z", "2026-11-21T01:30:00Z"),
        ("0 9 * * 1-5", "America/New_York", "2026-11-20T15:00:00Z", "2026-11-23T14:00:00Z"),
        ("0 0 29 2 *", "UTC", "2026-11-20T12:00:00Z", "2028-02-29T00:00:00Z"),
        # The clock jumps from 2:00 to 3:00: the hour that is not there is made up for at once.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"),
        # The hour from 2:00 to 3:00 comes twice: once is enough.
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
    ],
)
def test_a_schedule_is_due_at_its_next_time_in_its_zone(cron: str, zone: str, after: str, due: str) -> None:
    assert next_due(cron, zone, after=at(after)) == at(due)


@given(after=st.floats(min_value=0, max_value=4e9))
def test_the_next_time_is_always_later(after: float) -> None:
    assert next_due("*/7 * * * *", "Europe/Berlin", after=after) > after


@pytest.mark.parametrize(
    ("timing", "due"),
    [
        ("suspend: false", "2026-11-20T12:05:00Z"),
        ("interval: 1h", "2026-11-20T13:00:00Z"),
        ("schedule: {cron: '0 15 * * *'}", "2026-11-20T15:00:00Z"),
    ],
    ids=["five minutes by default", "interval", "schedule"],
)
def test_a_policy_is_due_by_its_interval_or_schedule(timing: str, due: str) -> None:
    spec = decode_policy(policies.manifest(policies.with_duplicates(timing))).spec

    assert spec.next_due(last=at("2026-11-20T12:00:00Z")) == at(due)


def test_times_of_the_api_have_whole_seconds() -> None:
    assert to_time(1.9) == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
