"""Computes the lifecycle of a run: its expiry, approval, completion and deletion, and the resulting status.

No function does I/O or reads a clock.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.conditions import ConditionStatus, set_condition
from trimtab.api.descheduling_run import DeschedulingRunStatus, Phase, Result, RunOutcome, RunPlan
from trimtab.api.scalars import to_time
from trimtab.disruption.outcome import EVICTED, FAILED, REFUSED, STARTED, Outcome
from trimtab.kube.events.event import truncate

log = logging.getLogger(__name__)

APPROVED_RUN_RETENTION: Final = 600.0
"""Seconds for which a finished approved run is kept even if there are too many runs.

This gives its approver time to read the outcome.
"""


class Run(Struct, frozen=True):
    """The last observed state of a DeschedulingRun.

    The actions of an ended run are only compared with the next plan, so only the newest run needs them.
    :func:`without_actions` removes those of the others, and their outcomes.

    Attributes:
        name: name of the run.
        uid: UID of the run.
        version: resource version of the run as a number; 0 if it is not numeric.
        plan: the spec of the run, which contains the plan, without ``keptPods``: the operator does not read them again.
        approved: whether a user approved the run.
        status: the run's status.
        generation: ``metadata.generation`` of the run. The approval increases it.
    """

    name: str
    uid: str
    version: int
    plan: RunPlan
    approved: bool
    status: DeschedulingRunStatus
    generation: int = 0

    @property
    def open(self) -> bool:
        """Return whether the run is pending approval or being executed."""
        return self.status.phase in {"Pending", "Acting"}

    @property
    def order(self) -> tuple[float, str]:
        """Return the key for sorting runs by age. A later run supersedes an earlier one."""
        return self.plan.time.timestamp(), self.name

    @property
    def acting(self) -> bool:
        """Return whether the run was approved and has not finished."""
        return self.status.phase == "Acting" and self.status.approved_at is not None

    @property
    def act_until(self) -> float:
        """Return the time until which an approved run may be executed: its approval plus the approval period."""
        approved, until = self.status.approved_at, self.plan.approve_until
        if approved is None or until is None:
            return 0.0
        return approved.timestamp() + (until - self.plan.time).total_seconds()

    @property
    def finished_uids(self) -> frozenset[str]:
        """Return the UIDs of the pods whose actions have an outcome."""
        return frozenset(outcome.uid for outcome in self.status.outcomes)


class RunEnding(Struct, frozen=True):
    """The phase and the reason with which an open run ends although not all its actions have an outcome."""

    phase: Phase
    reason: str
    message: str


def read_run(body: Mapping[str, Any]) -> Run | None:
    """Decode a run; ``None`` if it was written by another version of trimtab and this version cannot decode it."""
    metadata, spec = body.get("metadata", {}), body.get("spec", {})
    try:
        plan = msgspec.convert(spec.get("plan"), RunPlan)
        status = msgspec.convert(dict(body.get("status") or {}), DeschedulingRunStatus)
    except msgspec.ValidationError as error:
        log.warning("Failed to decode DeschedulingRun %s; ignoring the run: %s", metadata.get("name"), error)
        return None
    run = Run(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        version=0,
        plan=msgspec.structs.replace(plan, kept_pods=()),
        approved=spec.get("approved") is True,
        status=status,
        generation=0,
    )
    return with_metadata(run, metadata)


def with_metadata(run: Run, metadata: Mapping[str, Any]) -> Run:
    """Return the run with the version and the generation that the metadata contain, such as those after a write.

    An approval that preceded the write arrives with the watch event of the write.
    """
    version = str(metadata.get("resourceVersion", ""))
    return msgspec.structs.replace(
        run,
        version=int(version) if version.isdecimal() else 0,
        generation=int(metadata.get("generation", 0)),
    )


def without_actions(run: Run) -> Run:
    """Return an ended run without its actions and their outcomes. Its status must not be written any more."""
    if not run.plan.actions and not run.status.outcomes:
        return run
    plan = msgspec.structs.replace(run.plan, actions=())
    return msgspec.structs.replace(run, plan=plan, status=msgspec.structs.replace(run.status, outcomes=()))


def with_generation(status: DeschedulingRunStatus, generation: int) -> DeschedulingRunStatus:
    """Return the status with ``observedGeneration`` set in all conditions, because every write describes all of them.

    ``kubectl wait`` ignores conditions that are older than ``metadata.generation``.
    """
    conditions = tuple(msgspec.structs.replace(each, observed_generation=generation) for each in status.conditions)
    return msgspec.structs.replace(status, conditions=conditions)


def expiry(run: Run, *, generation: int, newest: str, now: float) -> RunEnding | None:
    """Return the phase and the reason with which an open run ends now; ``None`` if it stays open.

    The function must not be called while this process executes the run. It assumes that a run in Act mode whose status
    says that it is being executed was left behind by a process that was killed.

    Args:
        run: an open run.
        generation: the current generation of the policy's spec.
        newest: the name of the policy's newest run.
        now: seconds since the epoch.
    """
    if run.plan.mode != "Approve":
        message = "trimtab stopped or the cycle failed while the run was acting; the next cycle plans again"
        return RunEnding("Interrupted", reasons.RUN_INTERRUPTED, message)
    if run.plan.policy_generation != generation:
        changed = f"the policy's spec has changed since (generation {run.plan.policy_generation}, now {generation})"
        return RunEnding("Expired", reasons.SUPERSEDED, changed + _describe_progress(run))
    if run.acting:
        if now < run.act_until:
            return None
        return RunEnding(
            "Expired", reasons.APPROVAL_EXPIRED, "the approved run was not finished in time" + _describe_progress(run)
        )
    if run.name != newest:
        return RunEnding("Expired", reasons.SUPERSEDED, f"run {newest} is newer and has a different plan")
    until = run.plan.approve_until
    if until is not None and now >= until.timestamp():
        return RunEnding("Expired", reasons.APPROVAL_EXPIRED, f"it was not approved before {until:%Y-%m-%dT%H:%M:%SZ}")
    return None


def next_expiry(runs: Iterable[Run]) -> float | None:
    """Return the earliest time at which one of the open runs expires; ``None`` if no run is open."""
    times = []
    for run in runs:
        if run.acting:
            times.append(run.act_until)
        elif run.status.phase == "Pending" and run.plan.approve_until is not None:
            times.append(run.plan.approve_until.timestamp())
    return min(times, default=None)


def newest_of(runs: Iterable[Run]) -> Run | None:
    """Return the newest run; ``None`` if there are no runs."""
    return max(runs, key=lambda run: run.order, default=None)


def surplus_runs(runs: Iterable[Run], *, limit: int, now: float) -> list[Run]:
    """Return the runs to delete if there are more than ``limit``, the oldest first.

    Open runs are kept, and approved runs are kept for :data:`APPROVED_RUN_RETENTION` after their end.

    Args:
        runs: the runs of one policy.
        limit: maximum number of runs to keep.
        now: seconds since the epoch.
    """
    by_age = sorted(runs, key=lambda run: run.order)
    surplus = by_age[: max(0, len(by_age) - limit)]
    return [run for run in surplus if not run.open and not _read(run, now)]


def _read(run: Run, now: float) -> bool:
    ended = run.status.completed
    return run.status.approved_at is not None and ended is not None and now - ended.timestamp() < APPROVED_RUN_RETENTION


def _describe_progress(run: Run) -> str:
    if not run.acting:
        return ""
    return f"; {len(run.finished_uids)} of {len(run.plan.actions)} actions have an outcome"


APPROVED: Final = "Approved"
COMPLETE: Final = "Complete"

OUTCOMES_BYTES: Final = 256 * 1024
"""Maximum size of a run's outcomes with messages, in bytes of JSON. Further outcomes are stored without a message."""

LONGEST_MESSAGE: Final = 256

NOT_ATTEMPTED: Final = frozenset(
    {
        reasons.CYCLE_DEADLINE,
        reasons.WINDOW_CLOSED,
        reasons.SHUTTING_DOWN,
        reasons.POLICY_CHANGED,
        reasons.LEASE_LOST,
    }
)
"""Reason codes of actions that were not attempted. If the run was approved, they are attempted later."""


def initial_status(plan: RunPlan, *, now: float) -> DeschedulingRunStatus:
    """Return the status of a new run."""
    if not plan.actions:
        return _ended(DeschedulingRunStatus(), "Completed", reasons.RUN_COMPLETED, "nothing was planned", now)
    if plan.mode == "Simulate":
        return _ended(DeschedulingRunStatus(), "Simulated", reasons.SIMULATED, "the plan is for information only", now)
    if plan.mode == "Act":
        message = f"evicting {plan.planned} pods"
        return _with(DeschedulingRunStatus(phase="Acting"), COMPLETE, False, reasons.CYCLE_RUNNING, message, now)
    waits = f"{len(plan.actions)} actions are waiting for spec.approved"
    status = _with(DeschedulingRunStatus(phase="Pending"), APPROVED, False, reasons.WAITING_FOR_APPROVAL, waits, now)
    return _with(status, COMPLETE, False, reasons.WAITING_FOR_APPROVAL, waits, now)


def mark_approved(status: DeschedulingRunStatus, *, now: float) -> DeschedulingRunStatus:
    """Return the run's status with the approval recorded. It is unchanged if the approval was recorded before."""
    if status.approved_at is not None:
        return status
    status = msgspec.structs.replace(status, phase="Acting", approved_at=to_time(now))
    status = _with(status, APPROVED, True, reasons.APPROVED, "spec.approved is true", now)
    return _with(status, COMPLETE, False, reasons.CYCLE_RUNNING, "every action is validated again and executed", now)


def add_outcomes(
    status: DeschedulingRunStatus, outcomes: Iterable[Outcome], *, shown: Collection[str]
) -> DeschedulingRunStatus:
    """Return the status with new outcomes added.

    Args:
        status: the current status of the run.
        outcomes: the new outcomes.
        shown: UIDs of the pods in the run's actions. Outcomes of pods that the run does not list are only counted.
    """
    outcomes = list(outcomes)
    tally = Counter(_group(outcome.result) for outcome in outcomes)
    listed = [_outcome(outcome) for outcome in outcomes if outcome.action.uid in shown]
    return msgspec.structs.replace(
        status,
        evicted=status.evicted + tally["evicted"],
        started=status.started + tally["started"],
        refused=status.refused + tally["refused"],
        skipped=status.skipped + tally["skipped"],
        outcomes=_bounded((*status.outcomes, *listed)),
    )


def mark_completed(status: DeschedulingRunStatus, *, now: float) -> DeschedulingRunStatus:
    """Return the status of a completed run: one whose actions all have an outcome."""
    started = f"{status.started} in progress, " if status.started else ""
    message = f"{status.evicted} evicted, {started}{status.refused} refused, {status.skipped} skipped"
    return _ended(status, "Completed", reasons.RUN_COMPLETED, message, now)


def mark_ended(status: DeschedulingRunStatus, how: RunEnding, *, now: float) -> DeschedulingRunStatus:
    """Return the status of a run that ended early."""
    if status.phase == "Pending":
        status = _with(status, APPROVED, False, how.reason, how.message, now)
    status = msgspec.structs.replace(status, phase=how.phase, completed=to_time(now))
    return _with(status, COMPLETE, False, how.reason, how.message, now)


def mark_repeated(status: DeschedulingRunStatus, *, now: float) -> DeschedulingRunStatus:
    """Return the status of a run after a later cycle has computed the same plan."""
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
        message=truncate(outcome.message, LONGEST_MESSAGE),
    )


def _bounded(outcomes: tuple[RunOutcome, ...]) -> tuple[RunOutcome, ...]:
    room, kept = OUTCOMES_BYTES, []
    for outcome in outcomes:
        room -= len(msgspec.json.encode(outcome))
        kept.append(outcome if room >= 0 else msgspec.structs.replace(outcome, message=""))
    return tuple(kept)
