"""Creates, observes and deletes the DeschedulingRuns of one policy, and writes their outcomes.

Runs are listed once at startup and then watched. trimtab creates and deletes runs and writes their
status. It has no permission to change the spec of a run, so it cannot approve its own plans.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from trimtab.api import reasons
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.descheduling_run import DeschedulingRunStatus, RunPlan
from trimtab.controller.loop import end_tasks
from trimtab.controller.status_writer import TRANSIENT, write_status
from trimtab.descheduling.runs import lifecycle, record
from trimtab.descheduling.runs.lifecycle import Run, RunEnding, read_run
from trimtab.disruption.outcome import Outcome
from trimtab.kube.api import Api, ApiError, Conflict, NotFound, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.resources import DESCHEDULING_RUNS
from trimtab.kube.verbs import METADATA, create, delete, list_objects

log = logging.getLogger(__name__)

MOST_NAMES: Final = 10
"""Number of runs with the same name prefix that can be created within one second."""


class RunManager:
    """Tracks the DeschedulingRuns of one policy and writes them to the API server.

    Args:
        policy: the policy's name.
        api: the API server.
        clock: the source of the current time.
    """

    def __init__(self, policy: str, *, api: Api, clock: Clock) -> None:
        self._policy = policy
        self._api = api
        self._clock = clock
        self._runs: dict[str, Run] = {}
        self._listed = ""  # the UID of the policy whose runs were listed
        self._unwritten: dict[str, DeschedulingRunStatus] = {}  # by run, statuses whose last write failed

    @property
    def runs(self) -> tuple[Run, ...]:
        """Return all known runs, the oldest first."""
        return tuple(sorted(self._runs.values(), key=lambda run: run.order))

    def get(self, run: Run) -> Run:
        """Return the last observed state of the given run."""
        return self._runs.get(run.name, run)

    def observe(self, body: Mapping[str, Any]) -> bool:
        """Process a watch event and return whether the run has been newly approved."""
        run = read_run(body)
        if run is None:
            return False
        known = self._runs.get(run.name)
        if known is not None and known.uid == run.uid and run.version < known.version:
            return False  # the response to our own write is newer
        if known is None or known.uid != run.uid:
            self._unwritten.pop(run.name, None)
        elif run.name in self._unwritten:
            run = msgspec.structs.replace(run, status=self._unwritten[run.name])
        self._remember(run)
        return run.approved and (known is None or not known.approved)

    def forget(self, name: str) -> None:
        """Remove a deleted run."""
        self._runs.pop(name, None)
        self._unwritten.pop(name, None)

    async def list_existing(self, uid: str) -> None:
        """List the existing runs of the policy, once per policy UID.

        Raises:
            ApiError: the API server refuses the list.
            Unreachable: the API server does not answer.
        """
        if self._listed == uid:
            return
        found = await list_objects(self._api, DESCHEDULING_RUNS, label_selector=f"{record.POLICY_LABEL}={uid}")
        for body in found.items:
            run = read_run(body)
            if run is not None and run.plan.policy_uid == uid:
                self._remember(self._runs.get(run.name, run))  # the watch may already have delivered a newer version
        self._listed = uid

    def _remember(self, run: Run) -> None:
        """Store the state of a run, and forget the actions of ended runs that a newer one has replaced."""
        self._runs[run.name] = run
        newest = lifecycle.newest_of(self._runs.values())
        for each in tuple(self._runs.values()):
            if each is not newest and not each.open and each.status.phase and each.name not in self._unwritten:
                self._runs[each.name] = lifecycle.without_actions(each)

    # --- state -------------------------------------------------------------------------------------------------

    def approved(self) -> Run | None:
        """Return the approved run to execute or continue; ``None`` if there is none.

        :meth:`tidy` must be called first, because it ends expired runs.
        """
        ready = (run for run in self.runs if run.open and run.approved and run.plan.mode == "Approve")
        return next(ready, None)

    @property
    def waiting(self) -> int:
        """Return the number of runs that are pending approval.

        It exceeds one only while a new run replaces an older one.
        """
        return sum(run.status.phase == "Pending" and not run.approved for run in self._runs.values())

    @property
    def out_of_sync(self) -> bool:
        """Return whether the status of a run could not be written. :meth:`tidy` writes it again."""
        return bool(self._unwritten)

    def next_expiry(self) -> float | None:
        """Return the time at which the next open run expires; ``None`` if no run is open."""
        return lifecycle.next_expiry(self._runs.values())

    async def tidy(self, *, generation: int) -> None:
        """Record approvals, end runs that can no longer be approved or executed, and repeat failed status writes.

        The method must not be called while a run is being executed.

        Args:
            generation: the current generation of the policy's spec.
        """
        now = self._clock.now()
        for run in self.runs:
            if run.name in self._unwritten:
                run = await self._write(run, run.status)
            if run.status.phase is None:  # the process that created it was killed before it wrote the status
                run = await self._write(run, lifecycle.initial_status(run.plan, now=now))
            newest = lifecycle.newest_of(self._runs.values())
            if not run.open or newest is None:
                continue
            how = lifecycle.expiry(run, generation=generation, newest=newest.name, now=now)
            if how is not None:
                await self.end(run, how)
            elif (
                run.approved and run.status.approved_at is None
            ):  # its approval deadline starts now, even if the run is executed later
                await self._write(run, lifecycle.mark_approved(run.status, now=now))

    # --- writing -----------------------------------------------------------------------------------------------

    async def record(self, policy: DeschedulerPolicy, plan: RunPlan) -> Run | None:
        """Create a run for this plan unless the newest run already records it.

        A plan in Act mode always gets its own run. In the other modes the plan is compared with the newest run. If that
        run covers the plan, it stays open for approval and its repeat counter is incremented.

        Returns:
            The new or existing run that records the plan; ``None`` if the policy keeps no runs, or if the run could not
            be written and the mode is not Approve.

        Raises:
            ApiError, Unreachable: the run could not be written in Approve mode.
        """
        if policy.spec.runs_history_limit == 0:
            await self._prune(limit=0)
            return None
        approved = self.approved()
        if approved is not None:  # it was approved while the plan was made and is executed first
            return approved
        newest = lifecycle.newest_of(self._runs.values())
        if newest is not None and self._is_equal_plan(newest, plan):
            return await self._repeat(newest) if plan.actions else newest
        try:
            run = await self._create(plan)
        except (ApiError, Unreachable) as error:
            if policy.spec.mode == "Approve":
                raise
            log.warning("Failed to create a DeschedulingRun for DeschedulerPolicy %s: %s", self._policy, error)
            return None
        run = await self._write(run, lifecycle.initial_status(plan, now=self._clock.now()))
        for other in self.runs:  # so that no user approves an outdated plan
            if other.name != run.name and other.status.phase == "Pending":
                await self.end(other, RunEnding("Expired", reasons.SUPERSEDED, f"run {run.name} is newer"))
        await self._prune(limit=policy.spec.runs_history_limit)
        return run

    def _is_equal_plan(self, newest: Run, plan: RunPlan) -> bool:
        if plan.actions and plan.mode == "Act":
            return False
        if bool(plan.planned) != bool(newest.plan.planned):  # an ended run may have been stored without its actions
            return False
        if plan.actions and plan.mode == "Approve":
            return newest.status.phase == "Pending" and record.covers(newest.plan, plan)
        return record.fingerprint(newest.plan) == record.fingerprint(plan)

    async def _repeat(self, run: Run) -> Run:
        return await self._write(run, lifecycle.mark_repeated(run.status, now=self._clock.now()))

    async def begin(self, run: Run) -> Run:
        """Record that the execution of an approved run has started.

        Raises:
            ApiError, Unreachable: the start could not be recorded, so the caller must not evict any pod.
        """
        return await self._write(run, lifecycle.mark_approved(run.status, now=self._clock.now()), strictly=True)

    async def note(self, run: Run, status: DeschedulingRunStatus) -> Run:
        """Write the status of a run."""
        return await self._write(run, status)

    async def complete(self, run: Run) -> None:
        """Record that the run is completed: each of its actions has an outcome."""
        await self._write(run, lifecycle.mark_completed(run.status, now=self._clock.now()))

    async def end(self, run: Run, how: RunEnding) -> None:
        """End a run early, for example because it expired."""
        log.info(
            "DeschedulingRun %s ended (%s): %s",
            run.name,
            how.phase,
            how.message,
            extra={"run": run.name, "reason": how.reason},
        )
        await self._write(run, lifecycle.mark_ended(run.status, how, now=self._clock.now()))

    async def _create(self, plan: RunPlan) -> Run:
        for attempt in range(MOST_NAMES):
            body = record.manifest(record.run_name(plan.policy, plan.time.timestamp(), attempt=attempt), plan)
            try:
                answer = await create(self._api, DESCHEDULING_RUNS, body, accept=METADATA)
            except Conflict:
                if attempt + 1 == MOST_NAMES:
                    raise
                continue
            run = read_run({**body, "metadata": answer["metadata"]})
            assert run is not None, "what was written can be read"
            self._remember(run)
            return run
        raise AssertionError("unreachable")

    async def _write(self, run: Run, status: DeschedulingRunStatus, *, strictly: bool = False) -> Run:
        """Write a run's status and return the updated run.

        If the write fails temporarily, the status is kept in memory, and :meth:`tidy` writes it again.

        Args:
            run: the run.
            status: the status to write, with all fields.
            strictly: whether to raise an exception if the write fails.
        """
        latest = self.get(run)
        status = lifecycle.with_generation(status, latest.generation)
        changed = msgspec.structs.replace(latest, status=status)
        try:
            answer = await write_status(
                self._api, DESCHEDULING_RUNS, run.name, status, accept=METADATA, clock=self._clock
            )
            changed = lifecycle.with_metadata(changed, answer["metadata"])
            self._unwritten.pop(run.name, None)
        except NotFound:  # the run was deleted, and the watch may miss the event
            self.forget(run.name)
            if strictly:
                raise
            return changed
        except (ApiError, Unreachable) as error:
            if strictly:
                raise
            if isinstance(error, TRANSIENT):
                level, message = logging.WARNING, "Failed to write the status of DeschedulingRun %s; retrying: %s"
                self._unwritten[run.name] = status
            else:
                level, message = logging.ERROR, "The API server rejected the status of DeschedulingRun %s: %s"
                self._unwritten.pop(run.name, None)
            log.log(level, message, run.name, error)
        self._remember(changed)
        return changed

    async def _prune(self, *, limit: int) -> None:
        for run in lifecycle.surplus_runs(self._runs.values(), limit=limit, now=self._clock.now()):
            try:
                await delete(self._api, DESCHEDULING_RUNS, run.name, uid=run.uid)
            except (NotFound, Conflict):
                pass
            except (ApiError, Unreachable) as error:
                log.warning("Failed to delete old DeschedulingRun %s: %s", run.name, error)
                continue
            self.forget(run.name)


PAUSE: Final = 5.0
"""Seconds between two status writes of a run.

The pause limits the traffic, because each write contains all outcomes of the run, which can be hundreds of kilobytes.
"""


class OutcomeWriter:
    """Writes the outcomes of one run periodically.

    It is an asynchronous context manager that writes the remaining outcomes when it exits.

    Args:
        keeper: writes the status of the run.
        run: the run that records the outcomes; ``None`` to discard them.
        include_not_attempted: whether to write outcomes of actions that were not attempted.
    """

    def __init__(self, keeper: RunManager, run: Run | None, *, include_not_attempted: bool) -> None:
        self._keeper = keeper
        self._run = run
        self._include_not_attempted = include_not_attempted
        self._shown = frozenset(action.uid for action in run.plan.actions) if run is not None else frozenset()
        self._waiting: list[Outcome] = []
        self._writing: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    def note(self, outcome: Outcome) -> None:
        """Queue an outcome for the next write."""
        if self._run is not None and (self._include_not_attempted or outcome.reason not in lifecycle.NOT_ATTEMPTED):
            self._waiting.append(outcome)

    async def __aenter__(self) -> Self:
        """Start the periodic writes."""
        if self._run is not None:
            self._writing = asyncio.create_task(self._write_on(), name=f"journal of {self._run.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the remaining outcomes."""
        writing, self._writing = self._writing, None  # its exception refers to this object: a reference cycle
        if writing is not None:
            await end_tasks([writing])
        if kind is None or not issubclass(kind, asyncio.CancelledError):
            await self._flush()

    async def _write_on(self) -> None:
        while True:
            await asyncio.sleep(PAUSE)
            await asyncio.shield(asyncio.ensure_future(self._flush()))

    async def _flush(self) -> None:
        async with self._lock:  # wait for a write that is in flight
            if self._run is None or not self._waiting:
                return
            outcomes, self._waiting = self._waiting, []
            before = self._keeper.get(self._run).status
            self._run = await self._keeper.note(self._run, lifecycle.add_outcomes(before, outcomes, shown=self._shown))
