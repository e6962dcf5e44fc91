"""Computes ``status.state``, which ``kubectl get`` shows in the column STATE, for all kinds.

    >>> state_of(status.conditions)
    'CycleRunning'

The state summarizes the conditions for people, in one word. Programs should read the conditions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.base import bounded
from trimtab.api.conditions import DEGRADED, PROGRESSING, READY, Condition, find_condition

INVALID: Final = "Invalid"
"""The spec is invalid, so nothing is done for the object."""

CONFLICT: Final = "Conflict"
"""Another object has priority or would undo what this one does, so nothing is done for the object."""

_SUMMARIES: Final = {
    reasons.INVALID_AUTOSCALER: INVALID,
    reasons.INVALID_MACHINE_AUTOSCALER: INVALID,
    reasons.INVALID_PLACEMENT_ADMISSION: INVALID,
    reasons.INVALID_POLICY: INVALID,
    reasons.INVALID_TAINT_MANAGER: INVALID,
    reasons.POLICY_CONFLICT: CONFLICT,
    reasons.SCHEDULER_CONFLICT: CONFLICT,
    reasons.SCHEDULER_NAME_CONFLICT: CONFLICT,
    reasons.TARGET_ALREADY_OWNED: CONFLICT,
}
"""Reasons of Ready=False that are summarized, because several kinds have one each."""

S = TypeVar("S")


_VALUES: Final = {
    "ClusterAutoscaler": "Idle, Scaling, Degraded or Invalid",
    "DeschedulerPolicy": "Idle, CycleRunning, WaitingForApproval, OutsideWindows, Suspended, Degraded, Invalid or "
    "Conflict",
    "MachineAutoscaler": "LimitsSet, AboveMaximum, BelowMinimum, Invalid or Conflict",
    "NodePressurePolicy": "Idle, EvictingPods, Degraded or Invalid",
    "PlacementAdmission": "Enforcing, WarningOnly, Degraded or Invalid",
    "SchedulerPolicy": "Idle, Scheduling, Degraded, Invalid or Conflict",
    "TaintManager": "Idle, EvictingPods, TaintingNodes, Degraded or Invalid",
}
"""The values of ``state`` of each kind, without the reasons of Ready=False."""

_CONFLICTS: Final = {
    "DeschedulerPolicy": "no cycle starts, because another DeschedulerPolicy or the scheduler would undo the evictions",
    "MachineAutoscaler": "another MachineAutoscaler refers to the same node group",
    "SchedulerPolicy": "an older SchedulerPolicy has the same schedulerName",
}
"""What the state Conflict means, for the kinds that have it."""


def state_text(kind: str) -> str:
    """Describe ``state`` and its values for a kind, for its description and that of the column STATE."""
    conflict = f" Conflict means that {_CONFLICTS[kind]}." if kind in _CONFLICTS else ""
    return (
        f"Summary of the conditions. One of {_VALUES[kind]}, or the reason of the Ready condition if that is False and "
        f"none of these states applies.{conflict}"
    )


def state_meta(kind: str) -> Any:
    """Return the schema metadata of the ``state`` in the status of a kind."""
    return bounded(
        f"{state_text(kind)} The state is intended for display only. Programs should read the conditions instead.",
        limit=1024,
    )


def state_of(conditions: Iterable[Condition]) -> str:
    """Return the state of an object; empty if it has no conditions.

    - Invalid or Conflict, if that is why the object is not ready.
    - Otherwise Degraded, if something prevents what the spec asks for.
    - Otherwise the reason of Progressing, if it is True or says more than Idle, such as Suspended.
    - Otherwise the reason of Ready, if it is False.
    - Otherwise the reason of Progressing, or the reason of Ready for kinds without the condition Progressing.
    """
    found = tuple(conditions)
    ready, progressing = find_condition(found, READY), find_condition(found, PROGRESSING)
    not_ready = "" if ready is None or ready.status != "False" else ready.reason
    if not_ready in _SUMMARIES:
        return _SUMMARIES[not_ready]
    degraded = find_condition(found, DEGRADED)
    if degraded is not None and degraded.status == "True":
        return DEGRADED
    if progressing is not None and (progressing.status == "True" or progressing.reason != reasons.IDLE):
        return progressing.reason
    if not_ready:
        return not_ready
    if progressing is not None:
        return progressing.reason
    return "" if ready is None else ready.reason


def with_state(status: S) -> S:
    """Return the status with its ``state`` computed from its conditions; unchanged if its type has no ``state``."""
    old = getattr(status, "state", None)
    if old is None:
        return status
    state = state_of(getattr(status, "conditions", ()))
    return status if state == old else replace(status, state=state)  # type: ignore[type-var]
