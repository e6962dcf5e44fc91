"""Limits for the size of statuses and events: truncating lists by encoded size, and shortening lists of names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T", bound=Struct)

_NUMBERS: Final = re.compile(r"[0-9]+([.,:][0-9]+)*")
_PLANNED: Final = re.compile(r" \([0-9]+ planned now\)")
"""The planner's note about nodes that it adds in the same iteration. It is obsolete once they are requested."""

_ESCAPED: Final = (b"<", b">", b"&")
"""Characters that Go's JSON encoder, and therefore the API server, stores as six bytes but msgspec writes as one."""

NAMED: Final = 3


def stored_size(value: Struct) -> int:
    """Return an upper bound of a value's size in the API server's storage, in bytes."""
    wire = msgspec.json.encode(value)
    return len(wire) + sum(5 * wire.count(sign) for sign in _ESCAPED)


def fitting(values: Iterable[T], *, limit: int, budget: int) -> tuple[T, ...]:
    """Return the longest prefix of the values that fits within both limits.

    Args:
        values: the values, most important first.
        limit: maximum number of values.
        budget: maximum encoded size of all values together, in bytes.
    """
    kept: list[T] = []
    for value in values:
        budget -= stored_size(value) + 1  # and a comma
        if len(kept) == limit or budget < 0:
            break
        kept.append(value)
    return tuple(kept)


def without_numbers(text: str) -> str:
    """Return the message with its numbers replaced, so that messages that differ only in progress compare equal."""
    return _NUMBERS.sub("#", _PLANNED.sub("", text))


def named(names: Sequence[str]) -> str:
    """Join names for a message; only the first three are listed: ``a, b, c and 4 more``."""
    shown = ", ".join(names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"


def plural(number: int, what: str) -> str:
    """Return a number with its noun: ``1 node``, ``2 nodes``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
