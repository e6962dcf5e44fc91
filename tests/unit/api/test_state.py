"""``status.state``, the column STATE of every kind."""

from __future__ import annotations

from typing import Any

import pytest

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.conditions import DEGRADED, PROGRESSING, READY, Condition, set_condition
from trimtab.api.crds import DEFINITIONS
from trimtab.api.state import state_of, with_state


def conditions(**given: tuple[Any, str]) -> tuple[Condition, ...]:
    found: tuple[Condition, ...] = ()
    for type_, (status, reason) in given.items():
        found = set_condition(found, type_, status, reason=reason, message="", now=0.0, generation=1)
    return found


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ({}, ""),
        ({READY: (True, "LimitsSet")}, "LimitsSet"),
        ({READY: (False, "TargetNotFound")}, "TargetNotFound"),
        ({READY: (False, reasons.TARGET_ALREADY_OWNED)}, "Conflict"),
        ({READY: (True, "CycleCompleted"), PROGRESSING: (False, reasons.IDLE)}, "Idle"),
        ({READY: ("Unknown", "WaitingForFirstCycle"), PROGRESSING: (False, reasons.IDLE)}, "Idle"),
        ({READY: (True, "CycleCompleted"), PROGRESSING: (True, reasons.CYCLE_RUNNING)}, "CycleRunning"),
        ({READY: (True, "CycleCompleted"), PROGRESSING: (False, reasons.WAITING_FOR_APPROVAL)}, "WaitingForApproval"),
        ({READY: (False, reasons.CYCLE_FAILED), PROGRESSING: (True, reasons.CYCLE_RUNNING)}, "CycleRunning"),
        ({READY: (False, reasons.CYCLE_FAILED), PROGRESSING: (False, reasons.SUSPENDED)}, "Suspended"),
        ({READY: (False, reasons.CYCLE_FAILED), PROGRESSING: (False, reasons.IDLE)}, "CycleFailed"),
        ({READY: (False, reasons.INVALID_POLICY), PROGRESSING: (False, reasons.IDLE)}, "Invalid"),
        ({READY: (False, reasons.INVALID_POLICY), PROGRESSING: (True, reasons.CYCLE_RUNNING)}, "Invalid"),
        ({READY: (True, "CycleCompleted"), DEGRADED: (True, reasons.PLAN_STALE)}, "Degraded"),
        ({DEGRADED: (True, reasons.PLAN_STALE), PROGRESSING: (True, reasons.CYCLE_RUNNING)}, "Degraded"),
        ({READY: (False, reasons.INVALID_POLICY), DEGRADED: (True, reasons.INVALID_POLICY)}, "Invalid"),
        ({READY: (True, "CycleCompleted"), DEGRADED: (False, reasons.ALL_WELL)}, "CycleCompleted"),
        ({READY: (False, reasons.SCHEDULER_CONFLICT), PROGRESSING: (False, reasons.IDLE)}, "Conflict"),
    ],
)
def test_state_summarizes_conditions(given: dict[str, Any], state: str) -> None:
    assert state_of(conditions(**given)) == state


@pytest.mark.parametrize("reason", [value for name, value in vars(reasons).items() if name.startswith("INVALID_")])
def test_invalid_objects_of_all_kinds_have_one_state(reason: str) -> None:
    not_of_conditions = {
        reasons.INVALID_ANNOTATION,
        reasons.INVALID_LEARNED_NODE,
        reasons.INVALID_LIMITS,
        reasons.INVALID_NODE_GROUPS,
        reasons.INVALID_PROVIDER_CONFIG,
    }
    if reason not in not_of_conditions:
        assert state_of(conditions(Ready=(False, reason))) == "Invalid"


def test_state_of_a_status_follows_its_conditions() -> None:
    status = ClusterAutoscalerStatus(state="Idle", conditions=conditions(Progressing=(True, reasons.SCALING)))
    changed = with_state(status)
    assert changed.state == "Scaling"
    assert with_state(changed) is changed


def test_every_kind_with_conditions_shows_its_state() -> None:
    """A DeschedulingRun has a phase instead."""
    without = [
        each.kind
        for each in DEFINITIONS
        if each.has_status and not any(column.path == ".status.state" for column in each.columns)
    ]
    assert without == ["DeschedulingRun"]
