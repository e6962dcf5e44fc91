"""Durations, times, cron expressions and time zones: text in the API, numbers in Python.

Python knows times as seconds since the epoch and durations as seconds; the API as RFC 3339 and as ``1h30m``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from msgspec import Meta

from trimtab.api.base import Rule
from trimtab.kube.clock import calendar_time

SHORTEST_INTERVAL: Final = 5
LONGEST_INTERVAL: Final = 7 * 24 * 3600

DURATION_PATTERN: Final = "^([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?$"
DURATION_HELP: Final = "a duration in hours, minutes and seconds, e.g. 30s, 5m or 1h30m"
Duration = Annotated[str, Meta(min_length=2, max_length=32)]
"""Whole hours, minutes and seconds of Go's durations: finer units make no sense here, and CEL reads the same text.

Its form is a rule rather than a pattern, because a rule can say what is wanted; so are those of the next two.
"""

DURATION_RULE: Final = Rule(rule=f"self.matches('{DURATION_PATTERN}')", message=f"must be {DURATION_HELP}")
INTERVAL_RULE: Final = Rule(
    rule=f"!self.matches('{DURATION_PATTERN}') || "
    f"(duration(self) >= duration('{SHORTEST_INTERVAL}s') && duration(self) <= duration('{LONGEST_INTERVAL}s'))",
    message=f"must be between {SHORTEST_INTERVAL}s and {LONGEST_INTERVAL // 3600}h",
)

SHORTEST_APPROVAL: Final = 60
APPROVAL_RULE: Final = Rule(
    rule=f"!self.matches('{DURATION_PATTERN}') || "
    f"(duration(self) >= duration('{SHORTEST_APPROVAL}s') && duration(self) <= duration('{LONGEST_INTERVAL}s'))",
    message=f"must be between {SHORTEST_APPROVAL // 60}m and {LONGEST_INTERVAL // 3600}h",
)

SHORTEST_WINDOW: Final = 60
WINDOW_RULE: Final = Rule(
    rule=f"!self.matches('{DURATION_PATTERN}') || "
    f"(duration(self) >= duration('{SHORTEST_WINDOW}s') && duration(self) <= duration('{LONGEST_INTERVAL}s'))",
    message=f"must be between {SHORTEST_WINDOW // 60}m and {LONGEST_INTERVAL // 3600}h",
)

SHORTEST_COOLDOWN: Final = 1
COOLDOWN_RULE: Final = Rule(
    rule=f"!self.matches('{DURATION_PATTERN}') || "
    f"(duration(self) >= duration('{SHORTEST_COOLDOWN}s') && duration(self) <= duration('{LONGEST_INTERVAL}s'))",
    message=f"must be between {SHORTEST_COOLDOWN}s and {LONGEST_INTERVAL // 3600}h",
)

CRON_PATTERN: Final = r"^[0-9A-Za-z*/,#-]+( +[0-9A-Za-z*/,#-]+){4}$"
CRON_HELP: Final = "five fields (minute, hour, day of month, month, day of week), e.g. 30 2 * * 1-5"
CRON_RULE: Final = Rule(rule=f"self.matches('{CRON_PATTERN}')", message=f"must have {CRON_HELP}")
Cron = Annotated[str, Meta(min_length=1, max_length=128)]

TIME_ZONE_HELP: Final = "a name of the IANA time zone database, e.g. UTC or Europe/Berlin"
TimeZone = Annotated[str, Meta(min_length=1, max_length=64)]
TIME_ZONE_RULE: Final = Rule(
    # CEL has no test for a zone's existence, but refuses to compute with one that it doesn't know. It would take
    # offsets such as +02:00 as well, and Local.
    rule="self.matches('^[A-Za-z]') && self != 'Local' && timestamp('2000-06-01T00:00:00Z').getFullYear(self) == 2000",
    message=f"must be {TIME_ZONE_HELP}",
)

_DURATION: Final = re.compile(r"(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?")
_A_LEAP_YEAR: Final = datetime(2028, 1, 1, tzinfo=UTC)


def parse_duration(text: str) -> int:
    """Seconds of ``1h30m``.

    Raises:
        ValueError: the text is no duration; the message says what is one.
    """
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        raise ValueError(f"must be {DURATION_HELP}; not {text!r}")
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds


def format_duration(seconds: int) -> str:
    """``1h30m`` for 5400, ``0s`` for 0: what :func:`parse_duration` reads back."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{number}{unit}" for number, unit in ((hours, "h"), (minutes, "m"), (rest, "s")) if number]
    return "".join(parts) or "0s"


def to_time(seconds: float) -> datetime:
    """Seconds since the epoch as a time of the API: UTC, whole seconds, as metav1.Time has them."""
    return calendar_time(int(seconds))


def parse_time_zone(name: str) -> ZoneInfo:
    """The time zone of that name.

    Raises:
        ValueError: there is none; the message says what is one.
    """
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError) as error:
        raise ValueError(f"must be {TIME_ZONE_HELP}; not {name!r}") from error


def check_cron(cron: str) -> None:
    """See that an expression is one of cron's and will ever be due.

    Raises:
        ValueError: it is not; the message says which field is wrong.
    """
    next_due(cron, "UTC", after=_A_LEAP_YEAR.timestamp())


def next_due(cron: str, time_zone: str, *, after: float) -> float:
    """The first time strictly after ``after`` (seconds) that a cron expression names in a time zone.

    Hours that daylight saving skips or repeats are treated as Debian's cron treats them (cronsim).

    Raises:
        ValueError: the expression or the zone is none, or it names no time within 50 years (31 February).
    """
    from cronsim import CronSim, CronSimError

    zone = parse_time_zone(time_zone)
    if len(cron.split()) != 5:  # cronsim would take a sixth field as seconds
        raise ValueError(f"must have {CRON_HELP}; not {cron!r}")
    try:
        return next(CronSim(cron, datetime.fromtimestamp(after, zone))).timestamp()
    except CronSimError as error:
        field = str(error).removeprefix("Bad ")
        raise ValueError(f"must have {CRON_HELP}; the {field} of {cron!r} is not valid") from error
    except StopIteration as error:
        raise ValueError(f"is never due: {cron!r}") from error
