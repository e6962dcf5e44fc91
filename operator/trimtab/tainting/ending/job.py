"""A pod whose time is over, from then until it is gone."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from trimtab.tainting.deadlines.rule import Deadline
from trimtab.tainting.ending.answer import Answer
from trimtab.tainting.ending.outcome import What
from trimtab.tainting.ending.rates import Paid


class Place(enum.Enum):
    """Where a pod is."""

    LINE = "Line"  # a worker takes it next
    BUSY = "Busy"  # a worker has it
    HELD = "Held"  # a rate holds it back
    PARKED = "Parked"  # the picture is too old to act on
    LATER = "Later"  # tried, and tried again after a while
    ASKED = "Asked"  # the API server took it; the watch has yet to tell, and it is looked at again if it does not


@dataclass(slots=True, eq=False)
class Job:
    """What is known of it. Nothing of this need survive: the next process comes to the same from the deadline.

    Attributes:
        deadline: as last looked at.
        place: where it is.
        attempts: tries that were answered, or were not.
        going: whether the API server took it.
        last: what the last one came to, if that was not the end.
        lost: what it was asked to be where the answer was lost.
        marked: when it was told to be deleted because of a taint, on the monotonic clock.
        marks_failed: how often that failed.
        paid: what its turn took of the rates.
        held_since: since when a rate holds it back, on the monotonic clock.
        held: seconds for which rates held it back before.
        evicting: whether the last try was to evict it.
        asked_to_evict: whether any was.
        again: when it is looked at again, on the monotonic clock, where it is put off.
    """

    deadline: Deadline
    place: Place = Place.LINE
    attempts: int = 0
    going: bool = False
    last: Answer | None = None
    lost: What | None = None
    marked: float | None = None
    marks_failed: int = 0
    paid: Paid | None = None
    held_since: float = 0.0
    held: float = 0.0
    evicting: bool = False
    asked_to_evict: bool = False
    again: float = 0.0
