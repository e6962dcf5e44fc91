"""Open increases of one group: numbers of nodes by when they were asked for, of which the oldest come first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from trimtab.autoscaling.memory.state import MAX_INCREASES, OpenScaleUp

Increases = tuple[OpenScaleUp, ...]


def total(increases: Sequence[OpenScaleUp]) -> int:
    """How many nodes they ask for."""
    return sum(each.size for each in increases)


def upto(increases: Sequence[OpenScaleUp], target: int) -> Increases:
    """The same sizes one after the other, so that the last ends at the target; empty ones are left out.

    Where the target is too small for all of them, as only a status that was edited can have it, the oldest begin at 0.
    """
    found: list[OpenScaleUp] = []
    top = target
    for each in reversed(increases):
        bottom = max(0, top - each.size)
        if bottom < top:
            found.append(replace(each, from_=bottom, to=top))
        top = bottom
    return tuple(reversed(found))


def cut(increases: Sequence[OpenScaleUp], number: int) -> Increases:
    """Without so many nodes, the newest first."""
    left = []
    for each in reversed(increases):
        less = min(number, each.size)
        number -= less
        left.append(replace(each, to=each.to - less))
    return tuple(each for each in reversed(left) if each.size > 0)


def shares(increases: Sequence[OpenScaleUp], number: int) -> list[int]:
    """How many of ``number`` nodes that are not there each of them waits for: what has come counts for the oldest."""
    found = []
    for each in reversed(increases):
        own = min(number, each.size)
        found.append(own)
        number -= own
    return found[::-1]


def bounded(increases: Increases) -> Increases:
    """At most as many as a status holds: of more, the two neighbours whose deadlines are closest become one.

    The one has the later deadline: some nodes are waited for a little longer, and none is given up before its time.
    """
    found = list(increases)
    while len(found) > MAX_INCREASES:
        gaps = [later.deadline - earlier.deadline for earlier, later in pairwise(found)]
        place = gaps.index(min(gaps))
        earlier, later = found[place : place + 2]
        deadline = max(earlier.deadline, later.deadline)
        doubt = earlier.doubt and later.doubt
        found[place : place + 2] = [replace(earlier, to=later.to, deadline=deadline, doubt=doubt)]
    return tuple(found)


def clamped(increases: Increases, *, now: float, seconds: float) -> Increases:
    """With times that can be: asked for now at the latest, and given up so many seconds from now at the latest."""
    return tuple(
        replace(each, since=min(each.since, now), deadline=min(each.deadline, now + seconds)) for each in increases
    )
