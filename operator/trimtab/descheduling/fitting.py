"""Lists that are written into objects: cut to a number of values, and to what they take as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T", bound=Struct)


def fitting(values: Iterable[T], *, limit: int, size: int) -> tuple[T, ...]:
    """The first of the values, at most ``limit`` of them and ``size`` bytes as JSON."""
    taken: list[T] = []
    for value in values:
        size -= len(msgspec.json.encode(value)) + 1
        if len(taken) == limit or size < 0:
            break
        taken.append(value)
    return tuple(taken)
