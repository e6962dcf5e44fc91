"""What keeps a report small, whatever a cluster is like: cutting by bytes, and saying how much was cut."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from trimtab.kube.events.event import cut

T = TypeVar("T", bound=Struct)

_NUMBERS: Final = re.compile(r"[0-9]+([.,:][0-9]+)*")
_PLANNED: Final = re.compile(r" \([0-9]+ planned now\)")
"""How the planner tells of a group that it has just raised; once the group was asked, the same size is its own."""

_ESCAPED: Final = (b"<", b">", b"&")
"""What Go's JSON, in which the API server stores custom resources, writes as six bytes, and msgspec as one."""

NAMED: Final = 3


def stored(value: Struct) -> int:
    """How many bytes a value takes as the API server stores it, at most."""
    wire = msgspec.json.encode(value)
    return len(wire) + sum(5 * wire.count(sign) for sign in _ESCAPED)


def fitting(values: Iterable[T], *, limit: int, budget: int) -> tuple[T, ...]:
    """As many of the first values as fit.

    Args:
        values: the most telling first.
        limit: how many there may be.
        budget: bytes that all of them may take.
    """
    kept: list[T] = []
    for value in values:
        budget -= stored(value) + 1  # and a comma
        if len(kept) == limit or budget < 0:
            break
        kept.append(value)
    return tuple(kept)


def short(text: str, limit: int) -> str:
    """The text in at most ``limit`` bytes of UTF-8."""
    return cut(text, limit)


def story(text: str) -> str:
    """A message without its numbers: what it tells, apart from how far things have got."""
    return _NUMBERS.sub("#", _PLANNED.sub("", text))


def named(names: Sequence[str]) -> str:
    """The first of several names, and how many there are beside."""
    shown = ", ".join(names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"


def plural(number: int, what: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
