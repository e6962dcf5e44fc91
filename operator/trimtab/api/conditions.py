"""The conditions in a status (metav1.Condition), and functions that return updated conditions.

``Ready`` is the summary. ``Progressing`` reports whether a cycle or iteration is running, ``Degraded`` whether
something prevents trimtab from doing what the spec asks for, and ``Effective`` whether evictions help. A
DeschedulerPolicy and the ClusterAutoscaler are ``Conflicting`` if their settings work against each other; a
SchedulerPolicy is ``Conflicting`` if another one has the same scheduler name. ``Contended`` reports that another
operator runs the same controllers; it exists only after one was detected. ``PermissionsMissing`` lists the permissions
that the object needs and trimtab's service account lacks. The reasons are in :mod:`trimtab.api.reasons`.

``Ready`` is the condition to wait for and to alert on: it is False whenever nothing can be done for the object, for
example if its spec is invalid, a necessary permission is missing, the iteration failed, or no node group can be scaled
up. If a part of the work is impossible, only ``Degraded`` is True: node groups in backoff do not change ``Ready`` of
the ClusterAutoscaler while another group can be scaled up.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from trimtab.api.base import Status, bounded, doc, list_map
from trimtab.api.scalars import to_time

READY: Final = "Ready"
PROGRESSING: Final = "Progressing"
DEGRADED: Final = "Degraded"
EFFECTIVE: Final = "Effective"
CONFLICTING: Final = "Conflicting"
CONTENDED: Final = "Contended"
PERMISSIONS_MISSING: Final = "PermissionsMissing"
_ORDER: Final = {
    READY: 0,
    PROGRESSING: 1,
    DEGRADED: 2,
    EFFECTIVE: 3,
    CONFLICTING: 4,
    CONTENDED: 5,
    PERMISSIONS_MISSING: 6,
}
_LONGEST_MESSAGE: Final = 32768

ConditionStatus = Literal["True", "False", "Unknown"]


class Condition(Status, frozen=True):
    """Details of one aspect of the current state of the object."""

    type: Annotated[
        str,
        Meta(min_length=1, max_length=316, pattern="^[A-Za-z]([-A-Za-z0-9_./]*[A-Za-z0-9])?$"),
        doc("Type of the condition in CamelCase, for example Ready."),
    ]
    status: Annotated[ConditionStatus, doc("Status of the condition, one of True, False or Unknown.")]
    reason: Annotated[
        str,
        Meta(min_length=1, max_length=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
        doc("Reason code in CamelCase that explains the status of the condition."),
    ]
    message: Annotated[
        str, bounded("Human-readable message with details about the status of the condition.", limit=_LONGEST_MESSAGE)
    ]
    last_transition_time: Annotated[datetime, doc("Last time the condition transitioned from one status to another.")]
    observed_generation: Annotated[
        int, Meta(ge=0), doc("The metadata.generation that the condition was set based upon.", format="int64")
    ] = 0


ObservedGeneration = Annotated[
    int, Meta(ge=0), doc("Most recent generation (metadata.generation) observed by the operator.", format="int64")
]


def condition_list(text: str) -> Meta:
    """Return the schema metadata of a status's ``conditions``, with ``text`` as its description.

    The list is a list map with the key ``type``.
    """
    return bounded(text, limit=16, **list_map("type"))


class ConditionUpdate(Struct, frozen=True):
    """The new value of a condition, see :func:`set_condition`."""

    type: str
    status: ConditionStatus | bool
    reason: str
    message: str


def find_condition(conditions: tuple[Condition, ...], type_: str) -> Condition | None:
    """Return the condition of type ``type_``, or ``None`` if there is none."""
    return next((condition for condition in conditions if condition.type == type_), None)


def set_condition(
    conditions: tuple[Condition, ...],
    type_: str,
    status: ConditionStatus | bool,
    *,
    reason: str,
    message: str,
    now: float,
    generation: int,
) -> tuple[Condition, ...]:
    """Return the conditions with the one of type ``type_`` added or updated.

    ``lastTransitionTime`` changes only if the status changes. If nothing changes, the same tuple is returned, so a
    caller can test with ``is`` whether a write is needed.

    Args:
        conditions: the current conditions.
        type_: READY, PROGRESSING, DEGRADED, EFFECTIVE, CONFLICTING, CONTENDED or PERMISSIONS_MISSING.
        status: True, False, or ``"Unknown"``.
        reason: a code of :mod:`trimtab.api.reasons`.
        message: details of the reason; truncated to the length that the API permits.
        now: seconds since the epoch.
        generation: the ``metadata.generation`` that the condition is based on.

    Returns:
        The conditions in a fixed order, Ready first.
    """
    text: ConditionStatus = status if isinstance(status, str) else ("True" if status else "False")
    old = find_condition(conditions, type_)
    new = Condition(
        type=type_,
        status=text,
        reason=reason,
        message=message[:_LONGEST_MESSAGE],
        last_transition_time=old.last_transition_time if old and old.status == text else to_time(now),
        observed_generation=generation,
    )
    if new == old:
        return conditions
    others = [condition for condition in conditions if condition.type != type_]
    return tuple(sorted([*others, new], key=lambda condition: (_ORDER.get(condition.type, 9), condition.type)))


def set_conditions(
    conditions: tuple[Condition, ...], wanted: Iterable[ConditionUpdate], *, now: float, generation: int
) -> tuple[Condition, ...]:
    """Return the conditions with those in ``wanted`` added or updated, see :func:`set_condition`."""
    for each in wanted:
        conditions = set_condition(
            conditions, each.type, each.status, reason=each.reason, message=each.message, now=now, generation=generation
        )
    return conditions


def is_true(conditions: tuple[Condition, ...], type_: str) -> bool:
    """Return whether there is a condition of type ``type_`` whose status is True."""
    found = find_condition(conditions, type_)
    return found is not None and found.status == "True"
