"""metav1.Condition: what a policy's status says of its state, and the pure helper that updates it.

``Ready`` is the summary; ``Progressing`` says whether a cycle runs, ``Degraded`` whether something keeps trimtab from
doing what the policy asks; ``Effective`` whether its evictions help. Reasons are in :mod:`trimtab.api.reasons`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from trimtab.api.base import Status, bounded, doc
from trimtab.api.scalars import to_time

READY: Final = "Ready"
PROGRESSING: Final = "Progressing"
DEGRADED: Final = "Degraded"
EFFECTIVE: Final = "Effective"
_ORDER: Final = {READY: 0, PROGRESSING: 1, DEGRADED: 2, EFFECTIVE: 3}
_LONGEST_MESSAGE: Final = 32768

ConditionStatus = Literal["True", "False", "Unknown"]


class Condition(Status, frozen=True):
    """One aspect of the state, as metav1.Condition."""

    type: Annotated[
        str,
        Meta(min_length=1, max_length=316, pattern="^[A-Za-z]([-A-Za-z0-9_./]*[A-Za-z0-9])?$"),
        doc("Ready, Progressing, Degraded or Effective."),
    ]
    status: Annotated[ConditionStatus, doc("True, False or Unknown.")]
    reason: Annotated[
        str,
        Meta(min_length=1, max_length=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
        doc("The reason's code, in CamelCase."),
    ]
    message: Annotated[str, bounded("The reason in words, with its numbers.", limit=_LONGEST_MESSAGE)]
    last_transition_time: Annotated[datetime, doc("When the status last changed.")]
    observed_generation: Annotated[
        int, Meta(ge=0), doc("The generation of the spec that this is about.", format="int64")
    ] = 0


class Wanted(Struct, frozen=True):
    """A condition as it is to be, see :func:`set_condition`."""

    type: str
    status: ConditionStatus | bool
    reason: str
    message: str


def find_condition(conditions: tuple[Condition, ...], type_: str) -> Condition | None:
    """The condition of that type, or ``None``."""
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
    """The conditions with one of them set.

    ``lastTransitionTime`` moves only when the status changes: it says since when things are as they are. What does not
    change returns the same tuple, so that a caller can tell with ``is`` that nothing needs writing.

    Args:
        conditions: as they were.
        type_: READY, PROGRESSING or DEGRADED.
        status: True, False, or ``"Unknown"`` where nobody can say.
        reason: a code of :mod:`trimtab.api.reasons`.
        message: the reason in words; cut to what the API takes.
        now: seconds since the epoch.
        generation: ``metadata.generation`` of the spec that this is about.

    Returns:
        The conditions: Ready, Progressing, Degraded, then others by name.
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
    conditions: tuple[Condition, ...], wanted: Iterable[Wanted], *, now: float, generation: int
) -> tuple[Condition, ...]:
    """The conditions with these set, each as :func:`set_condition` does it."""
    for each in wanted:
        conditions = set_condition(
            conditions, each.type, each.status, reason=each.reason, message=each.message, now=now, generation=generation
        )
    return conditions


def is_true(conditions: tuple[Condition, ...], type_: str) -> bool:
    """Whether the condition is there and True."""
    found = find_condition(conditions, type_)
    return found is not None and found.status == "True"
