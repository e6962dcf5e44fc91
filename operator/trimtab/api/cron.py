"""Cron expressions: five fields with their ranges, checked by the API server and when files are read."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Final

from msgspec import Meta, Struct

from trimtab.api.base import Rule
from trimtab.api.scalars import parse_time_zone

_STEP: Final = "(/0*[1-9][0-9]*)?"


class _Field(Struct, frozen=True):
    """A field of a cron expression.

    Attributes:
        name: its name in error messages.
        allowed: its values, as shown in error messages.
        value: the pattern of one value.
        special: the pattern of a term that is neither a value nor a range, without its leading ``|``; may be empty.
    """

    name: str
    allowed: str
    value: str
    special: str = ""

    @property
    def pattern(self) -> str:
        """Return the pattern of the field: a list of values, ranges and ``*``, each with an optional step."""
        term = f"([*]|{self.value}(-{self.value})?){_STEP}" + (f"|{self.special}" if self.special else "")
        return f"({term})(,({term}))*"


_DAY_OF_WEEK: Final = "(0*[0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)"
FIELDS: Final = (
    _Field("minute", "0-59", "0*[1-5]?[0-9]"),
    _Field("hour", "0-23", "0*(1?[0-9]|2[0-3])"),
    _Field("day of month", "1-31, L or LW", "0*([1-9]|[12][0-9]|3[01])", "LW?"),
    _Field("month", "1-12 or JAN-DEC", "(0*([1-9]|1[0-2])|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)"),
    _Field("day of week", "0-7 or SUN-SAT, with #1 to #5 or L", _DAY_OF_WEEK, f"{_DAY_OF_WEEK}#[1-5]|0*[0-7]L"),
)

CRON_PATTERN: Final = f"(?i)^{' +'.join(field.pattern for field in FIELDS)}$"
CRON_HELP: Final = (
    "five fields (minute 0-59, hour 0-23, day of month 1-31, month 1-12, day of week 0-7 or SUN-SAT), e.g. 30 2 * * 1-5"
)
CRON_RULE: Final = Rule(
    rule=f"self.matches('{CRON_PATTERN}')",
    message=f"must have {CRON_HELP}",
    expression=f"'must have {CRON_HELP}; not ' + self",
)
Cron = Annotated[str, Meta(min_length=1, max_length=128)]

MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
"""Macros of other cron implementations, which are not supported, and the equivalent expressions."""

_LEAP_YEAR: Final = datetime(2028, 1, 1, tzinfo=UTC)


def check_cron(cron: str) -> None:
    """Check that a cron expression is valid and is due at some time.

    Raises:
        ValueError: the expression is invalid; the message names the field and its value.
    """
    next_due(cron, "UTC", after=_LEAP_YEAR.timestamp())


def next_due(cron: str, time_zone: str, *, after: float) -> float:
    """Return the first time strictly after ``after`` at which a cron expression is due in a time zone.

    Times that daylight saving time skips or repeats are handled as in Debian's cron (cronsim). All times are seconds
    since the epoch.

    Raises:
        ValueError: the expression or the time zone is invalid, or it is not due within 50 years (e.g. 31 February).
    """
    from cronsim import CronSim, CronSimError

    zone = parse_time_zone(time_zone)
    if not re.fullmatch(CRON_PATTERN, cron):
        raise ValueError(_describe_error(cron))
    try:
        return next(CronSim(cron, datetime.fromtimestamp(after, zone))).timestamp()
    except CronSimError as error:
        field = str(error).removeprefix("Bad ").replace("-", " ")
        raise ValueError(f"the {field} of {cron!r} is not valid") from error
    except StopIteration as error:
        raise ValueError(f"is never due: {cron!r}") from error


def _describe_error(cron: str) -> str:
    """Return why a cron expression does not match :data:`CRON_PATTERN`."""
    macro = MACROS.get(cron.strip().lower())
    if macro is not None:
        return f"must have {CRON_HELP}; {cron!r} is not supported, use {macro!r}"
    values = cron.split()
    if len(values) != len(FIELDS):
        return f"must have {CRON_HELP}; {cron!r} has {len(values)}"
    for field, value in zip(FIELDS, values, strict=True):
        if not re.fullmatch(field.pattern, value, re.IGNORECASE):
            allowed = f"{field.allowed}; and *, lists, ranges and steps"
            return f"the {field.name} {value!r} of {cron!r} is not valid; allowed: {allowed}"
    return f"must have {CRON_HELP}; not {cron!r}"
