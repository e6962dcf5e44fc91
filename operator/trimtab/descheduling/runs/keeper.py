"""The runs of one policy: written, followed and cleaned up.

Every run is known from one list at the start and from the watch after that. trimtab writes runs and their status, and
deletes old ones; it has no right to write a spec again, and so cannot approve what it planned itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from trimtab.api import reasons
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.descheduling_run import DeschedulingRunStatus, RunPlan
from trimtab.descheduling.runs import lifecycle, progress, record
from trimtab.descheduling.runs.lifecycle import Ending, Run, read_run
from trimtab.descheduling.status_patch import TROUBLE, patch_status
from trimtab.kube.api import Api, ApiError, Conflict, NotFound, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.resources import DESCHEDULING_RUNS
from trimtab.kube.verbs import create, delete, list_objects

log = logging.getLogger(__name__)

MOST_NAMES: Final = 10
"""Runs of one policy, or of two with the same beginning of their names, that may be written within a second."""


class RunKeeper:
    """Knows a policy's runs and writes them.

    Args:
        policy: the policy's name.
        api: the API server.
        clock: the time.
    """

    def __init__(self, policy: str, *, api: Api, clock: Clock) -> None:
        self._policy = policy
        self._api = api
        self._clock = clock
        self._runs: dict[str, Run] = {}
        self._listed = ""  # the UID of the policy whose runs were listed

    @property
    def runs(self) -> tuple[Run, ...]:
        """All that are known, the oldest first."""
        return tuple(sorted(self._runs.values(), key=lambda run: run.order))

    def get(self, run: Run) -> Run:
        """The run as it was last seen."""
        return self._runs.get(run.name, run)

    def observe(self, body: Mapping[str, Any]) -> bool:
        """Take in what the watch tells; whether a run has been approved that was not."""
        run = read_run(body)
        if run is None:
            return False
        known = self._runs.get(run.name)
        if known is not None and known.uid == run.uid and run.version < known.version:
            return False  # the answer to our own write was faster than the watch
        self._runs[run.name] = run
        return run.approved and (known is None or not known.approved)

    def forget(self, name: str) -> None:
        """A run is gone."""
        self._runs.pop(name, None)

    async def take_up(self, uid: str) -> None:
        """Learn of the runs that are there already.

        Raises:
            ApiError: the API server does not let them be listed.
            Unreachable: it does not answer.
        """
        if self._listed == uid:
            return
        found = await list_objects(self._api, DESCHEDULING_RUNS, label_selector=f"{record.POLICY_LABEL}={uid}")
        for body in found.items:
            run = read_run(body)
            if run is not None and run.plan.policy_uid == uid:
                self._runs.setdefault(run.name, run)  # the watch is never older than what it has told already
        self._listed = uid

    # --- what is to be done ------------------------------------------------------------------------------------

    def approved(self) -> Run | None:
        """The run that is to be carried out, or carried on; asked after :meth:`tidy`, so that it may still act."""
        ready = (run for run in self.runs if run.open and run.approved and run.plan.mode == "Approve")
        return next(ready, None)

    @property
    def waiting(self) -> int:
        """How many runs wait for somebody to approve them: one at most, but for a moment."""
        return sum(run.status.phase == "Pending" and not run.approved for run in self._runs.values())

    def next_ending(self) -> float | None:
        """When the first of the open runs expires."""
        return lifecycle.next_ending(self._runs.values())

    async def tidy(self, *, generation: int) -> None:
        """Take note of approvals, and end what can no longer be approved or carried out.

        Only while nothing is being carried out.

        Args:
            generation: of the policy's spec as it is now.
        """
        now = self._clock.now()
        for run in self.runs:
            if run.status.phase is None:  # written by a process that ended before it could say so
                run = await self._write(run, progress.first_status(run.plan, now=now))
            newest = lifecycle.newest_of(self._runs.values())
            if not run.open or newest is None:
                continue
            how = lifecycle.ending(run, generation=generation, newest=newest.name, now=now)
            if how is not None:
                await self.end(run, how)
            elif run.approved and run.status.approved_at is None:  # its time counts from now, whenever its turn comes
                await self._write(run, progress.approved(run.status, now=now))

    # --- writing -----------------------------------------------------------------------------------------------

    async def record(self, policy: DeschedulerPolicy, plan: RunPlan) -> Run | None:
        """Write a run of this plan, if it says anything new.

        What was planned is new in mode Act, where it is carried out; else it is compared with the newest run. One that
        has all of it goes on to wait for its approval, and counts how often.

        Returns:
            The run that tells of the plan: a new one, or the one that says the same; ``None`` where none is wanted, or
            where it could not be written and the policy needs none to act.

        Raises:
            ApiError, Unreachable: it could not be written, and in mode Approve nothing goes without.
        """
        if policy.spec.runs_history_limit == 0:
            await self._prune(limit=0)
            return None
        approved = self.approved()
        if approved is not None:  # while the plan was made; what was approved goes first
            return approved
        newest = lifecycle.newest_of(self._runs.values())
        if newest is not None and self._says_the_same(newest, plan):
            return await self._repeat(newest) if plan.actions else newest
        try:
            run = await self._create(plan)
        except (ApiError, Unreachable) as error:
            if policy.spec.mode == "Approve":
                raise
            log.warning("run of policy %s not written: %s", self._policy, error)
            return None
        run = await self._write(run, progress.first_status(plan, now=self._clock.now()))
        for other in self.runs:  # before anybody approves what is no longer the plan
            if other.name != run.name and other.status.phase == "Pending":
                await self.end(other, Ending("Expired", reasons.SUPERSEDED, f"run {run.name} is newer"))
        await self._prune(limit=policy.spec.runs_history_limit)
        return run

    def _says_the_same(self, newest: Run, plan: RunPlan) -> bool:
        if plan.actions and plan.mode == "Act":
            return False
        if plan.actions and plan.mode == "Approve":
            return newest.status.phase == "Pending" and record.covers(newest.plan, plan)
        return record.fingerprint(newest.plan) == record.fingerprint(plan)

    async def _repeat(self, run: Run) -> Run:
        return await self._write(run, progress.repeated(run.status, now=self._clock.now()))

    async def begin(self, run: Run) -> Run:
        """Note that an approved run is being carried out.

        Raises:
            ApiError, Unreachable: it could not be noted; then nothing must be done.
        """
        return await self._write(run, progress.approved(run.status, now=self._clock.now()), strictly=True)

    async def note(self, run: Run, status: DeschedulingRunStatus) -> Run:
        """Write how a run goes on."""
        return await self._write(run, status)

    async def complete(self, run: Run) -> None:
        """Every action of the run has its outcome."""
        await self._write(run, progress.completed(run.status, now=self._clock.now()))

    async def end(self, run: Run, how: Ending) -> None:
        """End a run before its end."""
        log.info("run %s: %s: %s", run.name, how.phase, how.message, extra={"run": run.name, "reason": how.reason})
        await self._write(run, progress.ended(run.status, how, now=self._clock.now()))

    async def _create(self, plan: RunPlan) -> Run:
        for attempt in range(MOST_NAMES):
            name = record.run_name(plan.policy, plan.time.timestamp(), attempt=attempt)
            try:
                body = await create(self._api, DESCHEDULING_RUNS, record.manifest(name, plan))
            except Conflict:
                if attempt + 1 == MOST_NAMES:
                    raise
                continue
            run = read_run(body)
            assert run is not None, "what was written can be read"
            self._runs[name] = run
            return run
        raise AssertionError("unreachable")

    async def _write(self, run: Run, status: DeschedulingRunStatus, *, strictly: bool = False) -> Run:
        """Write a run's status; what cannot be written is kept in memory and goes with the next write.

        Args:
            run: the run.
            status: all of it.
            strictly: raise instead.
        """
        changed = msgspec.structs.replace(self.get(run), status=status)
        try:
            changed = read_run(await patch_status(self._api, DESCHEDULING_RUNS, run.name, status)) or changed
        except NotFound:  # somebody deleted it, and the watch may never say so
            self.forget(run.name)
            if strictly:
                raise
            return changed
        except (ApiError, Unreachable) as error:
            if strictly:
                raise
            level, how = (logging.WARNING, "not written") if isinstance(error, TROUBLE) else (logging.ERROR, "refused")
            log.log(level, "status of run %s %s: %s", run.name, how, error)
        self._runs[run.name] = changed
        return changed

    async def _prune(self, *, limit: int) -> None:
        for run in lifecycle.to_delete(self._runs.values(), limit=limit, now=self._clock.now()):
            try:
                await delete(self._api, DESCHEDULING_RUNS, run.name, uid=run.uid)
            except (NotFound, Conflict):
                pass
            except (ApiError, Unreachable) as error:
                log.warning("old run %s not deleted: %s", run.name, error)
                continue
            self.forget(run.name)
