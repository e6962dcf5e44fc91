"""What a run may still become: when it expires, when it may act, when it may be deleted. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.descheduling_run import DeschedulingRunStatus, Phase, RunPlan

log = logging.getLogger(__name__)

READING_TIME: Final = 600.0
"""Seconds for which the outcomes of an approved run stay, however many newer runs there are: whoever approved it will
look."""


class Run(Struct, frozen=True):
    """One DeschedulingRun as it was last seen.

    Attributes:
        name: its name.
        uid: its UID.
        version: its resource version, 0 where the server's is no number.
        plan: what was planned.
        approved: whether somebody approved it.
        status: what trimtab reported.
    """

    name: str
    uid: str
    version: int
    plan: RunPlan
    approved: bool
    status: DeschedulingRunStatus

    @property
    def open(self) -> bool:
        """Whether something may still come of it."""
        return self.status.phase in {"Pending", "Acting"}

    @property
    def order(self) -> tuple[float, str]:
        """Runs by age; a later one supersedes an earlier one."""
        return self.plan.time.timestamp(), self.name

    @property
    def acting(self) -> bool:
        """Whether it was approved and is not finished."""
        return self.status.phase == "Acting" and self.status.approved_at is not None

    @property
    def act_until(self) -> float:
        """Until when an approved run may act: as long as it would have waited for the approval."""
        approved, until = self.status.approved_at, self.plan.approve_until
        if approved is None or until is None:
            return 0.0
        return approved.timestamp() + (until - self.plan.time).total_seconds()

    @property
    def done(self) -> frozenset[str]:
        """The UIDs of the pods whose actions have their outcome."""
        return frozenset(outcome.uid for outcome in self.status.outcomes)


class Ending(Struct, frozen=True):
    """How a run that is open ends without having been carried out to its end."""

    phase: Phase
    reason: str
    message: str


def read_run(body: Mapping[str, Any]) -> Run | None:
    """A run as the API server has it; ``None`` where another version of trimtab wrote what this one cannot read."""
    metadata, spec = body.get("metadata", {}), body.get("spec", {})
    try:
        plan = msgspec.convert(spec.get("plan"), RunPlan)
        status = msgspec.convert(dict(body.get("status") or {}), DeschedulingRunStatus)
    except msgspec.ValidationError as error:
        log.warning("run %s cannot be read and is left alone: %s", metadata.get("name"), error)
        return None
    version = str(metadata.get("resourceVersion", ""))
    return Run(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        version=int(version) if version.isdecimal() else 0,
        plan=plan,
        approved=spec.get("approved") is True,
        status=status,
    )


def ending(run: Run, *, generation: int, newest: str, now: float) -> Ending | None:
    """How an open run ends by what has changed since; ``None`` where it goes on.

    Nothing of it may be in progress: an acting run of mode Act that is found so was left by a process that died.

    Args:
        run: an open one.
        generation: of the policy's spec as it is now.
        newest: the name of the policy's newest run.
        now: seconds since the epoch.
    """
    if run.plan.mode != "Approve":
        message = "trimtab ended, or the cycle failed, while the run acted; the next cycle plans anew"
        return Ending("Interrupted", reasons.RUN_INTERRUPTED, message)
    if run.plan.policy_generation != generation:
        changed = f"the policy's spec has changed since (generation {run.plan.policy_generation}, now {generation})"
        return Ending("Expired", reasons.SUPERSEDED, changed + _far(run))
    if run.acting:
        if now < run.act_until:
            return None
        return Ending("Expired", reasons.APPROVAL_EXPIRED, "the time to act on the approval was up" + _far(run))
    if run.name != newest:
        return Ending("Expired", reasons.SUPERSEDED, f"run {newest} is newer and plans otherwise")
    until = run.plan.approve_until
    if until is not None and now >= until.timestamp():
        return Ending("Expired", reasons.APPROVAL_EXPIRED, f"nobody approved it before {until:%Y-%m-%dT%H:%M:%SZ}")
    return None


def next_ending(runs: Iterable[Run]) -> float | None:
    """When the first of the runs that are open expires, if nothing happens before."""
    times = []
    for run in runs:
        if run.acting:
            times.append(run.act_until)
        elif run.status.phase == "Pending" and run.plan.approve_until is not None:
            times.append(run.plan.approve_until.timestamp())
    return min(times, default=None)


def newest_of(runs: Iterable[Run]) -> Run | None:
    """The newest run."""
    return max(runs, key=lambda run: run.order, default=None)


def to_delete(runs: Iterable[Run], *, limit: int, now: float) -> list[Run]:
    """The runs that there are too many of, the oldest first.

    Those that are open stay, and so do for :data:`READING_TIME` those that were carried out on somebody's approval.

    Args:
        runs: of one policy.
        limit: how many shall stay.
        now: seconds since the epoch.
    """
    by_age = sorted(runs, key=lambda run: run.order)
    surplus = by_age[: max(0, len(by_age) - limit)]
    return [run for run in surplus if not run.open and not _read(run, now)]


def _read(run: Run, now: float) -> bool:
    ended = run.status.completed
    return run.status.approved_at is not None and ended is not None and now - ended.timestamp() < READING_TIME


def _far(run: Run) -> str:
    if not run.acting:
        return ""
    return f"; {len(run.done)} of {len(run.plan.actions)} actions have their outcome"
