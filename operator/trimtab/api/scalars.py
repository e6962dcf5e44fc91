"""Durations, times and time zones: strings in the API, numbers in Python.

In Python, times are seconds since the epoch and durations are seconds. In the API they are RFC 3339 timestamps and
strings such as ``1h30m``. trimtab's own kinds accept whole hours, minutes and seconds only; OpenShift's kinds and
command-line flags accept all Go durations.
"""

from __future__ import annotations

import functools
import re
from datetime import datetime
from fractions import Fraction
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from msgspec import Meta

from trimtab.api.base import Rule, doc
from trimtab.kube.clock import calendar_time

SHORTEST_INTERVAL: Final = 5
LONGEST_INTERVAL: Final = 7 * 24 * 3600

DURATION_PATTERN: Final = "^([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?$"
DURATION_HELP: Final = "a duration in hours, minutes and seconds, e.g. 30s, 5m or 1h30m"
Duration = Annotated[str, Meta(min_length=2, max_length=32)]
"""A Go duration in whole hours, minutes and seconds, which CEL parses as well.

The format is checked by a CEL rule rather than a pattern, because a rule can have a helpful message. The same applies
to cron expressions and time zones.
"""

DURATION_RULE: Final = Rule(rule=f"self.matches('{DURATION_PATTERN}')", message=f"must be {DURATION_HELP}")
SHORTEST_APPROVAL: Final = 60
SHORTEST_WINDOW: Final = 60
SHORTEST_COOLDOWN: Final = 1


def range_rule(shortest: int, shown: str) -> Rule:
    """Return a rule for durations between ``shortest`` seconds and the longest interval.

    The rule accepts strings that are not durations, because :data:`DURATION_RULE` rejects them.
    """
    return Rule(
        rule=f"!self.matches('{DURATION_PATTERN}') || "
        f"(duration(self) >= duration('{shortest}s') && duration(self) <= duration('{LONGEST_INTERVAL}s'))",
        message=f"must be between {shown} and {LONGEST_INTERVAL // 3600}h",
    )


INTERVAL_RULE: Final = range_rule(SHORTEST_INTERVAL, f"{SHORTEST_INTERVAL}s")
APPROVAL_RULE: Final = range_rule(SHORTEST_APPROVAL, f"{SHORTEST_APPROVAL // 60}m")
WINDOW_RULE: Final = range_rule(SHORTEST_WINDOW, f"{SHORTEST_WINDOW // 60}m")
ZERO_RULE: Final = range_rule(0, "0s")
COOLDOWN_RULE: Final = range_rule(SHORTEST_COOLDOWN, f"{SHORTEST_COOLDOWN}s")


def duration_doc(text: str, *ranges: Rule) -> Meta:
    """Return the schema metadata of a :data:`Duration`: its description, and its CEL rules.

    Args:
        text: the description. A sentence about the format and the range is appended.
        ranges: the rules for the range, such as :data:`INTERVAL_RULE`.
    """
    return doc(f"{text} {duration_format(*ranges)}.", DURATION_RULE, *ranges)


def go_duration_doc(text: str) -> Meta:
    """Return the schema metadata of a :data:`GoDuration`, see :func:`duration_doc`."""
    return doc(f"{text} {duration_format(GO_DURATION_BOUND)}.", GO_DURATION_RULE, GO_DURATION_BOUND)


def duration_format(*ranges: Rule) -> str:
    """Describe the format and the range of a duration: ``Duration such as 30s, 5m or 1h30m, between 5s and 168h``."""
    return ", ".join([DURATION_FORMAT, *(each.message.removeprefix("must be ") for each in ranges)])


DURATION_FORMAT: Final = "Duration such as 30s, 5m or 1h30m"

TIME_ZONE_HELP: Final = "a name of the IANA time zone database, e.g. UTC or Europe/Berlin"
TimeZone = Annotated[str, Meta(min_length=1, max_length=64)]
TIME_ZONE_RULE: Final = Rule(
    # CEL cannot test whether a zone exists, but evaluation fails for an unknown one. It would also accept offsets such
    # as +02:00, and Local.
    rule="self.matches('^[A-Za-z]') && self != 'Local' && timestamp('2000-06-01T00:00:00Z').getFullYear(self) == 2000",
    message=f"must be {TIME_ZONE_HELP}",
)

_DURATION: Final = re.compile(r"(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?")


@functools.lru_cache(maxsize=256)  # planners read the durations of a spec for each node
def parse_duration(text: str) -> int:
    """Parse a duration such as ``1h30m``, and return it in seconds.

    Raises:
        ValueError: the text is not a duration; the message describes the format.
    """
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        raise ValueError(f"must be {DURATION_HELP}; not {text!r}")
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds


def format_duration(seconds: int) -> str:
    """Format seconds as a duration: 5400 as ``1h30m``, 0 as ``0s``. :func:`parse_duration` is the inverse."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{number}{unit}" for number, unit in ((hours, "h"), (minutes, "m"), (rest, "s")) if number]
    return "".join(parts) or "0s"


TIME_RESOLUTION: Final = 1.0
"""Resolution of metav1.Time in seconds. The actual time is up to this much later."""


def to_time(seconds: float) -> datetime:
    """Convert seconds since the epoch to a UTC time in whole seconds, as metav1.Time."""
    return calendar_time(int(seconds))


def parse_time_zone(name: str) -> ZoneInfo:
    """Return the IANA time zone ``name``.

    Raises:
        ValueError: the time zone does not exist; the message describes the format.
    """
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError) as error:
        raise ValueError(f"must be {TIME_ZONE_HELP}; not {name!r}") from error


LONGEST_GO_DURATION: Final = 8760 * 3600
"""The maximum duration: one year in seconds. A longer duration is most likely a typo."""

_GO_PATTERN: Final = "^(0|([0-9]{1,9}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+)$"
GO_DURATION_HELP: Final = "a duration that is not negative, e.g. 30s, 10m or 1h30m"
GoDuration = Annotated[str, Meta(min_length=1, max_length=64)]
"""A Go duration such as ``10m``, ``1h30m``, ``1.5h`` or ``500ms``, as OpenShift's kinds accept it."""

GO_DURATION_RULE: Final = Rule(rule=f"self.matches('{_GO_PATTERN}')", message=f"must be {GO_DURATION_HELP}")
GO_DURATION_BOUND: Final = Rule(
    rule=f"!self.matches('{_GO_PATTERN}') || duration(self) <= duration('8760h')", message="must be at most 8760h"
)

_GO_PART: Final = re.compile("([0-9]+(?:[.][0-9]+)?)(ns|us|µs|ms|s|m|h)")
_GO_UNITS: Final = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}


def go_duration_seconds(text: str) -> Fraction:
    """Return the seconds of a Go duration such as ``1h30m``, ``0.5h`` or ``500ms``, without an upper bound.

    Raises:
        ValueError: the text is not a duration, or is negative; the message describes the format.
    """
    if not re.fullmatch(_GO_PATTERN[1:-1], text):
        raise ValueError(f"must be {GO_DURATION_HELP}; not {text!r}")
    return sum((Fraction(number) * _GO_UNITS[unit] for number, unit in _GO_PART.findall(text)), Fraction(0))


def parse_go_duration(text: str) -> float:
    """Parse a Go duration such as ``1h30m``, ``0.5h`` or ``500ms``, and return it in seconds.

    Raises:
        ValueError: the text is not a duration, is negative, or exceeds a year; the message describes the format.
    """
    seconds = go_duration_seconds(text)
    if seconds > LONGEST_GO_DURATION:
        raise ValueError(f"{GO_DURATION_BOUND.message}; not {text}")
    return float(seconds)
