"""How a run's status goes on, step by step. Pure; every step returns the next status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final, cast

import msgspec

from trimtab.api import reasons
from trimtab.api.conditions import ConditionStatus, set_condition
from trimtab.api.descheduling_run import DeschedulingRunStatus, Phase, Result, RunOutcome, RunPlan
from trimtab.api.scalars import to_time
from trimtab.descheduling.runs.lifecycle import Ending
from trimtab.disruption.outcome import EVICTED, FAILED, REFUSED, STARTED, Outcome

APPROVED: Final = "Approved"
COMPLETE: Final = "Complete"

OUTCOMES_BYTES: Final = 256 * 1024
"""How much the outcomes may take as JSON with their messages; what is beyond goes without a message."""

LONGEST_MESSAGE: Final = 256

PASSING: Final = frozenset({reasons.CYCLE_DEADLINE, reasons.WINDOW_CLOSED, reasons.SHUTTING_DOWN, reasons.LEASE_LOST})
"""Outcomes that only say that an action's turn has not come: an approved run takes it up again."""


def first_status(plan: RunPlan, *, now: float) -> DeschedulingRunStatus:
    """The status of a run that has just been written."""
    if not plan.actions:
        return _ended(DeschedulingRunStatus(), "Completed", reasons.RUN_COMPLETED, "nothing was planned", now)
    if plan.mode == "Simulate":
        return _ended(DeschedulingRunStatus(), "Simulated", reasons.SIMULATED, "nothing is to be done", now)
    if plan.mode == "Act":
        message = f"evicting {plan.planned} pods"
        return _with(DeschedulingRunStatus(phase="Acting"), COMPLETE, False, reasons.CYCLE_RUNNING, message, now)
    waits = f"{len(plan.actions)} actions wait for spec.approved"
    status = _with(DeschedulingRunStatus(phase="Pending"), APPROVED, False, reasons.WAITING_FOR_APPROVAL, waits, now)
    return _with(status, COMPLETE, False, reasons.WAITING_FOR_APPROVAL, waits, now)


def approved(status: DeschedulingRunStatus, *, now: float) -> DeschedulingRunStatus:
    """Somebody approved the run, and trimtab begins to act on it; what has begun stays as it is."""
    if status.approved_at is not None:
        return status
    status = msgspec.structs.replace(status, phase="Acting", approved_at=to_time(now))
    status = _with(status, APPROVED, True, reasons.APPROVED, "spec.approved is true", now)
    return _with(status, COMPLETE, False, reasons.CYCLE_RUNNING, "every action is judged again and carried out", now)


def noted(
    status: DeschedulingRunStatus, outcomes: Iterable[Outcome], *, shown: Collection[str]
) -> DeschedulingRunStatus:
    """Outcomes have become known.

    Args:
        status: as it was.
        outcomes: new ones.
        shown: the UIDs of the pods in the run's actions; the outcomes of others, which had no room there, only count.
    """
    outcomes = list(outcomes)
    tally = Counter(_group(outcome.result) for outcome in outcomes)
    told = [_outcome(outcome) for outcome in outcomes if outcome.action.uid in shown]
    return msgspec.structs.replace(
        status,
        evicted=status.evicted + tally["evicted"],
        started=status.started + tally["started"],
        refused=status.refused + tally["refused"],
        skipped=status.skipped + tally["skipped"],
        outcomes=_bounded((*status.outcomes, *told)),
    )


def completed(status: DeschedulingRunStatus, *, now: float) -> DeschedulingRunStatus:
    """Every action has its outcome."""
    started = f"{status.started} on their way out, " if status.started else ""
    message = f"{status.evicted} evicted, {started}{status.refused} refused, {status.skipped} left"
    return _ended(status, "Completed", reasons.RUN_COMPLETED, message, now)


def ended(status: DeschedulingRunStatus, how: Ending, *, now: float) -> DeschedulingRunStatus:
    """The run ends before its end."""
    if status.phase == "Pending":
        status = _with(status, APPROVED, False, how.reason, how.message, now)
    status = msgspec.structs.replace(status, phase=how.phase, completed=to_time(now))
    return _with(status, COMPLETE, False, how.reason, how.message, now)


def repeated(status: DeschedulingRunStatus, *, now: float) -> DeschedulingRunStatus:
    """A later cycle planned the same."""
    return msgspec.structs.replace(status, repeats=status.repeats + 1, last_repeat=to_time(now))


def _ended(status: DeschedulingRunStatus, phase: Phase, reason: str, message: str, now: float) -> DeschedulingRunStatus:
    status = msgspec.structs.replace(status, phase=phase, completed=to_time(now))
    return _with(status, COMPLETE, True, reason, message, now)


def _with(
    status: DeschedulingRunStatus, type_: str, value: ConditionStatus | bool, reason: str, message: str, now: float
) -> DeschedulingRunStatus:
    conditions = set_condition(status.conditions, type_, value, reason=reason, message=message, now=now, generation=0)
    return msgspec.structs.replace(status, conditions=conditions)


def _group(result: str) -> str:
    if result in {EVICTED, STARTED}:
        return "evicted" if result == EVICTED else "started"
    return "refused" if result in {REFUSED, FAILED} else "skipped"


def _outcome(outcome: Outcome) -> RunOutcome:
    action = outcome.action
    return RunOutcome(
        namespace=action.namespace,
        pod=action.pod,
        uid=action.uid,
        result=cast("Result", outcome.result),
        reason=outcome.reason,
        time=to_time(outcome.at),
        message=outcome.message[:LONGEST_MESSAGE],
    )


def _bounded(outcomes: tuple[RunOutcome, ...]) -> tuple[RunOutcome, ...]:
    room, kept = OUTCOMES_BYTES, []
    for outcome in outcomes:
        room -= len(msgspec.json.encode(outcome))
        kept.append(outcome if room >= 0 else msgspec.structs.replace(outcome, message=""))
    return tuple(kept)
