"""Pending evictions as reported in the status of every controller that evicts pods.

An eviction may have to wait for another controller. For example, a DeschedulerPolicy waits for a node drain that uses
up the same PodDisruptionBudget, and a drain waits for a policy that evicts a pod of the same owner.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Final

from msgspec import Meta
from msgspec.structs import replace

from trimtab.api.base import ATOMIC, NaturalInt, ReasonCode, ShortText, Status, bounded, doc
from trimtab.api.bounds import without_numbers
from trimtab.kube.events.event import truncate

MAX_WAITING: Final = 10
"""Maximum entries in a status; the metric ``trimtab_evictions_waiting`` counts all pending evictions."""

MAX_MESSAGE_BYTES: Final = 512
"""Maximum length of a message, in bytes."""


class WaitingEvictions(Status, frozen=True):
    """A group of pending evictions that are blocked by the same object or operation, for the same reason."""

    reason: Annotated[
        ReasonCode,
        doc(
            "Reason why the evictions wait. WaitingForEviction means that another controller is evicting the same pod. "
            "WaitingForOwner means that the pod's owner has not replaced its last evicted pod. WaitingForBudget means "
            "that evictions in progress use up the PodDisruptionBudget. WaitingForEvictionLimit means that an eviction "
            "limit of all controllers is reached (Helm value disruption.limits). WaitingForPlan means that another "
            "controller is making a plan."
        ),
    ]
    since: Annotated[datetime, doc("Time at which the first eviction in the group began to wait.")]
    waits_for: Annotated[
        ShortText,
        doc(
            "Operation whose evictions must finish first. The value consists of the name of a controller, a space, and "
            'the name of an object or operation. For example, "descheduler default" refers to evictions by the '
            'DeschedulerPolicy named default, and "autoscaler removal of node n1" refers to the drain of node n1. For '
            "an EvictionRequest of another component, the value is EvictionRequest and the name of the requester. "
            "Empty if the evictions do not wait for a specific operation."
        ),
    ] = ""
    count: Annotated[NaturalInt, doc("Number of pending evictions in this group.")] = 0
    message: Annotated[
        ShortText,
        doc(
            "Human-readable message that explains what the oldest eviction in the group is waiting for, for example a "
            "PodDisruptionBudget."
        ),
    ] = ""


def waiting_list() -> Meta:
    """Return the description and bounds of the status field ``waitingEvictions``."""
    return bounded(
        "Pending evictions, grouped by reason and by the object or operation that blocks them. Sorted by waiting "
        "time, longest first. The list may be truncated.",
        limit=MAX_WAITING,
        **ATOMIC,
    )


def keep_unchanged(
    found: Iterable[WaitingEvictions], previous: Iterable[WaitingEvictions]
) -> tuple[WaitingEvictions, ...]:
    """Return at most :data:`MAX_WAITING` entries for a status, longest waiting first.

    An entry that was also in the previous status keeps its ``since``. It also keeps its message if only numbers in it
    differ, so that a countdown alone does not cause a status update.

    Args:
        found: the pending evictions, one entry per reason and requester.
        previous: the entries of the previous status.
    """
    known = {outline(each): each for each in previous}
    kept = []
    for each in found:
        before = known.get(outline(each))
        entry = replace(
            each,
            message=truncate(each.message, MAX_MESSAGE_BYTES),
            waits_for=truncate(each.waits_for, MAX_MESSAGE_BYTES),
        )
        if before is not None:
            message = (
                before.message if without_numbers(before.message) == without_numbers(entry.message) else entry.message
            )
            entry = replace(entry, since=before.since, message=message)
        kept.append(entry)
    return tuple(sorted(kept, key=lambda each: (each.since, *outline(each)))[:MAX_WAITING])


def outline(entry: WaitingEvictions) -> tuple[str, str]:
    """Return the fields that identify an entry. Changes to other fields alone do not cause a status update."""
    return entry.reason, entry.waits_for
