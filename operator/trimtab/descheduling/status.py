"""What a policy's status says as its loop goes on, and writing it, not more often than it changes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from trimtab.api import reasons
from trimtab.api.conditions import DEGRADED, PROGRESSING, READY, ConditionStatus, find_condition, set_condition
from trimtab.api.decode import read_status
from trimtab.api.descheduler_status import DeschedulerStatus
from trimtab.api.eviction_memory import Memory
from trimtab.api.scalars import to_time
from trimtab.descheduling.memory.watching import recall
from trimtab.descheduling.policy_conflicts import REMEDY, PolicyConflict
from trimtab.descheduling.report import CycleResult, conditions_after, status_after
from trimtab.descheduling.services import Services
from trimtab.descheduling.status_patch import TROUBLE, patch_status
from trimtab.kube.api import Api, ApiError, NotFound
from trimtab.kube.errors import InputError
from trimtab.kube.resources import DESCHEDULER_POLICIES

log = logging.getLogger(__name__)


class StatusWriter:
    """Writes the status of one policy as a merge patch of the whole status.

    A failure is logged and the status kept for the next write: a report must not stop what it reports on.
    """

    def __init__(self, api: Api, name: str) -> None:
        self._api = api
        self._name = name
        self._written: DeschedulerStatus | None = None

    async def write(self, status: DeschedulerStatus) -> None:
        """Write the status if it differs from what was last written."""
        if status == self._written:
            return
        try:
            await patch_status(self._api, DESCHEDULER_POLICIES, self._name, status)
        except NotFound:
            return  # the policy is gone: nobody is left to tell
        except TROUBLE as error:
            log.warning("status of policy %s not written: %s", self._name, error)
        except ApiError as error:
            log.error("status of policy %s refused: %s", self._name, error)  # noqa: TRY400 - told in full
        else:
            self._written = status


class PolicyStatus:
    """The status of one policy: each method says one thing of the loop and writes it.

    Attributes:
        generation: what the status is about: the generation that the loop's current turn began with.
        cut_short: whether the status that was found tells of a cycle that never ended.
    """

    def __init__(self, name: str, services: Services) -> None:
        self.generation = 0
        self.cut_short = False
        self._name = name
        self._clock = services.clock
        self._metrics = services.metrics
        self._writer = StatusWriter(services.api, name)
        self._status = DeschedulerStatus()

    @property
    def observed_generation(self) -> int:
        """The generation that the last report was about."""
        return self._status.observed_generation

    def take_up(self, wire: Mapping[str, Any]) -> tuple[float | None, float]:
        """Go on from the status that an earlier process wrote.

        Returns:
            When the last cycle started, ``None`` where there was none, and when the last pod was evicted, 0 for never;
            seconds since the epoch.
        """
        self._status, problem = read_status(dict(wire))
        if problem:
            log.warning("the status of policy %s cannot be read and starts anew: %s", self._name, problem)
        last = None if self._status.last_run is None else self._status.last_run.time.timestamp()
        running = find_condition(self._status.conditions, PROGRESSING)
        if running is not None and running.reason == reasons.CYCLE_RUNNING:
            self.cut_short = True
            last = max(last or 0.0, running.last_transition_time.timestamp())
            self._status = msgspec.structs.replace(self._status, observed_generation=running.observed_generation)
        return last, max((eviction.time.timestamp() for eviction in self._status.last_evictions), default=0.0)

    async def waiting(self, due: float, *, opens: float | None = None) -> None:
        """The next cycle is due then, and the next window, where none is open, opens at ``opens`` (since the epoch)."""
        if find_condition(self._status.conditions, READY) is None:
            self._set(READY, "Unknown", reasons.WAITING_FOR_FIRST_CYCLE, "no cycle has run yet")
        running = find_condition(self._status.conditions, PROGRESSING)
        if running is not None and running.reason == reasons.CYCLE_RUNNING:
            self._set(PROGRESSING, False, reasons.IDLE, "the process ended while a cycle acted; the next one goes on")
            running = None
        if opens is not None:
            message = f"none of spec.windows is open; the next one opens at {to_time(opens):%Y-%m-%dT%H:%M:%SZ}"
            self._set(PROGRESSING, False, reasons.OUTSIDE_WINDOWS, message)
        elif running is not None and running.reason == reasons.OUTSIDE_WINDOWS:
            self._set(PROGRESSING, False, reasons.IDLE, "waiting for the next cycle")
        self._status = msgspec.structs.replace(self._status, next_run=to_time(due))
        await self._write()

    async def blind(self, wrong: str) -> None:
        """A cycle is due, but there is no picture of the cluster to plan on."""
        log.warning("policy %s waits: %s", self._name, wrong)
        self._set(DEGRADED, True, reasons.CLUSTER_UNREACHABLE, wrong)
        await self._write()

    def recall(self, *, generation: int, asked: str) -> Memory:
        """What is remembered of evictions, as far as it holds for this generation of the spec."""
        return recall(self._status.memory, generation=generation, asked=asked)

    async def running(self, message: str, memory: Memory) -> None:
        """A cycle acts, and its evictions are watched."""
        self._status = msgspec.structs.replace(self._status, memory=memory)
        self._set(PROGRESSING, True, reasons.CYCLE_RUNNING, message)
        await self._write()

    async def done(self, result: CycleResult, *, next_run: float) -> None:
        """A cycle has ended; the next one is due then (seconds since the epoch)."""
        self._status = status_after(self._status, result, next_run=next_run)
        for condition in conditions_after(result):
            self._set(*condition)
        self._metrics.cycles.labels(self._name, result.mode, "Completed").inc()
        self._metrics.remembered(self._name, result.memory, now=result.finished)
        self._metrics.last_cycle.labels(self._name).set(result.finished)
        await self._report()

    async def failed(self, error: Exception, *, mode: str) -> None:
        """A cycle has ended with an error."""
        message = f"{type(error).__name__}: {error}"
        self._set(READY, False, reasons.CYCLE_FAILED, message)
        self._set(DEGRADED, True, reasons.CYCLE_FAILED, message)
        self._set(PROGRESSING, False, reasons.IDLE, "the last cycle failed; it will be tried again")
        self._metrics.cycles.labels(self._name, mode, "Failed").inc()
        await self._report()

    async def invalid(self, problem: InputError) -> None:
        """The spec cannot be used."""
        message = str(problem)
        log.warning("policy %s cannot be used: %s", self._name, message)
        self._set(READY, False, reasons.INVALID_POLICY, message)
        self._set(DEGRADED, True, reasons.INVALID_POLICY, message)
        self._set(PROGRESSING, False, reasons.IDLE, "waiting for a spec that can be used")
        self._metrics.cycles.labels(self._name, "", "InvalidPolicy").inc()
        await self._report(next_run=False)

    async def suspended(self) -> None:
        """The policy is held."""
        self._set(PROGRESSING, False, reasons.SUSPENDED, "spec.suspend is true: no cycle starts")
        await self._report(next_run=False)

    async def opposed(self, conflicts: Sequence[PolicyConflict]) -> None:
        """Other policies or the scheduler would undo what the policy does: it is held until they no longer would."""
        reason = min(conflict.reason for conflict in conflicts)
        message = "; ".join(conflict.message for conflict in conflicts)
        if reason == reasons.POLICY_CONFLICT:
            message += f". Neither acts: {REMEDY}"
        if not self._opposed():
            log.warning("policy %s is held: %s", self._name, message)
        self._set(READY, False, reason, message)
        self._set(DEGRADED, True, reason, message)
        self._set(PROGRESSING, False, reasons.IDLE, "waiting for the conflict to be resolved")
        await self._report(next_run=False)

    async def unopposed(self) -> None:
        """Nothing stands in the policy's way; told only where something did."""
        if self._opposed():
            self._set(
                READY, "Unknown", reasons.WAITING_FOR_FIRST_CYCLE, "no cycle has run since a conflict was resolved"
            )
            self._set(DEGRADED, False, reasons.ALL_WELL, "nothing stands in the policy's way any more")
            self._set(PROGRESSING, False, reasons.IDLE, "waiting for the next cycle")
            await self._write()

    def _opposed(self) -> bool:
        degraded = find_condition(self._status.conditions, DEGRADED)
        return degraded is not None and degraded.reason in {reasons.POLICY_CONFLICT, reasons.SCHEDULER_CONFLICT}

    def _set(self, type_: str, status: ConditionStatus | bool, reason: str, message: str) -> None:
        conditions = set_condition(
            self._status.conditions,
            type_,
            status,
            reason=reason,
            message=message,
            now=self._clock.now(),
            generation=self.generation,
        )
        self._status = msgspec.structs.replace(self._status, conditions=conditions)

    async def _report(self, *, next_run: bool = True) -> None:
        """Write it as a report on the generation: what came before is no longer what counts."""
        kept = self._status.next_run if next_run else None
        self._status = msgspec.structs.replace(self._status, observed_generation=self.generation, next_run=kept)
        await self._write()

    async def _write(self) -> None:
        await self._writer.write(self._status)
