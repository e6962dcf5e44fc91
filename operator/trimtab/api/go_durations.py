"""Durations as Go writes them, which the APIs of other projects take: ``10m``, ``1h30m``, ``1.5h``, ``500ms``.

Our own kinds take whole hours, minutes and seconds only (:mod:`trimtab.api.scalars`); what OpenShift's kinds take must
be taken unchanged.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Final

from msgspec import Meta

from trimtab.api.base import Rule

LONGEST: Final = 8760 * 3600
"""Seconds of a year: more is a slip, and far more than Go can hold."""

_PATTERN: Final = "^(0|([0-9]{1,9}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+)$"
HELP: Final = "a duration that is not negative, e.g. 30s, 10m or 1h30m"
GoDuration = Annotated[str, Meta(min_length=1, max_length=64)]

GO_DURATION_RULE: Final = Rule(rule=f"self.matches('{_PATTERN}')", message=f"must be {HELP}")
GO_DURATION_BOUND: Final = Rule(
    rule=f"!self.matches('{_PATTERN}') || duration(self) <= duration('8760h')", message="must be at most 8760h"
)

_PART: Final = re.compile("([0-9]+(?:[.][0-9]+)?)(ns|us|µs|ms|s|m|h)")
_UNITS: Final = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}


def parse_go_duration(text: str) -> float:
    """Seconds of ``1h30m``, ``0.5h`` or ``500ms``.

    Raises:
        ValueError: the text is no duration, is negative, or longer than a year; the message says what is one.
    """
    if not re.fullmatch(_PATTERN[1:-1], text):
        raise ValueError(f"must be {HELP}; not {text!r}")
    seconds = sum((Fraction(number) * _UNITS[unit] for number, unit in _PART.findall(text)), Fraction(0))
    if seconds > LONGEST:
        raise ValueError(f"{GO_DURATION_BOUND.message}; not {text}")
    return float(seconds)
