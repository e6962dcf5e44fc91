"""Changes the sizes of node groups concurrently, so that a slow provider delays no other group and no iteration.

A process has one executor. If a provider has not responded when an iteration ends, the request stays in flight during
the next iterations. The executor sends no further request for that group until it receives the response.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.plan import ScaleUp
from trimtab.autoscaling.cluster_state import (
    AutoscalerState,
    GroupFindings,
    provision_seconds,
    record_scale_up_request,
    record_scale_up_result,
    record_target_decrease,
)
from trimtab.autoscaling.groups import GroupMachine, Groups, NodeGroup
from trimtab.autoscaling.providers import (
    MARK_DELAY,
    MachineRemoval,
    MarkedMachines,
    Provider,
    ScaleFailure,
    ScaleResult,
    api_group_of,
    verify_removal,
)
from trimtab.autoscaling.report.iteration_report import ScaleUpOutcome
from trimtab.controller.loop import end_tasks
from trimtab.kube.clock import SYSTEM_CLOCK, Clock

_NAMED = 3


class TargetCorrection(Struct, frozen=True):
    """A decrease of a group's target size that is not part of a planned node removal.

    Attributes:
        group: id of the group.
        to: the new target size.
        reason: a code of :mod:`trimtab.api.reasons`.
        message: the explanation for events and logs.
        machines: the machines to delete; empty if the target size is lowered only for nodes that have no machine.
    """

    group: str
    to: int
    reason: str
    message: str
    machines: tuple[GroupMachine, ...] = ()


def plan_corrections(findings: GroupFindings, groups: Groups) -> tuple[TargetCorrection, ...]:
    """Return the corrections of target sizes, at most one per group, in the order of group ids.

    A shortfall of machines is corrected first: while a group has fewer machines than its target size, its provider
    cannot choose which machine to delete. A correction never lowers a target size below the group's minimum. A group is
    not corrected while its target size does not include the last request.

    Args:
        findings: findings of this iteration.
        groups: node groups of this iteration's snapshot.
    """
    made = []
    for group in groups.all:
        if group.paused or group.id in findings.unobserved_requests or group.target <= group.minimum:
            continue
        correction = _shortfall_correction(group, findings.shortfall.get(group.id, 0))
        correction = correction or _unregistered_correction(group, findings.unregistered.get(group.id, ()))
        if correction is not None:
            made.append(correction)
    return tuple(made)


def _shortfall_correction(group: NodeGroup, number: int) -> TargetCorrection | None:
    to = max(group.minimum, group.target - number)
    if to == group.target:
        return None
    message = (
        f"target size lowered from {group.target} to {to}: no machine was created for {number} of the nodes in time"
    )
    return TargetCorrection(group.id, to, reasons.TARGET_LOWERED, message)


def _unregistered_correction(group: NodeGroup, machines: tuple[GroupMachine, ...]) -> TargetCorrection | None:
    chosen = tuple(machine for machine in machines if machine.name)[: group.target - group.minimum]
    if not chosen:
        return None
    names = ", ".join(machine.name for machine in chosen[:_NAMED])
    more = f" and {len(chosen) - _NAMED} more" if len(chosen) > _NAMED else ""
    left = len(machines) - len(chosen)
    kept = f"; {left} more are kept, because the minimum size is {group.minimum}" if left else ""
    message = f"deleting machines that failed or did not become nodes in time: {names}{more}{kept}"
    return TargetCorrection(group.id, group.target - len(chosen), reasons.DELETE_UNREGISTERED, message, chosen)


log = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 45.0
"""Timeout of one request in seconds.

It is longer than the provider's own timeout, whose error message is more specific.
"""

WAIT_SECONDS: Final = 2.0
"""Seconds for which an iteration waits for its requests. Most responses arrive within milliseconds."""

UNSEEN_SECONDS: Final = 30.0
"""Seconds after a change of a group for which a snapshot may still contain the old state."""

RETRY_SECONDS: Final = 60.0
"""Seconds until a failed correction is retried."""


class PendingIncrease(Struct, frozen=True):
    """A scale-up request in flight.

    Attributes:
        before: the target size before the request.
        after: the requested target size.
        since: the time at which the request was sent, in seconds since the epoch.
    """

    before: int
    after: int
    since: float


class ExecutorResults(Struct, frozen=True):
    """The results that arrived since the last call of :meth:`ScaleUpExecutor.take_results`.

    Attributes:
        scale_ups: results of scale-ups, in the order of group ids.
        corrections: results of corrections, in the same order.
    """

    scale_ups: tuple[ScaleUpOutcome, ...] = ()
    corrections: tuple[ScaleResult, ...] = ()


class ScaleUpExecutor:
    """Changes the sizes of node groups concurrently, so that a slow provider delays no other.

    Args:
        providers: the providers by API group (:func:`~trimtab.autoscaling.providers.api_group_of`).
        clock: the clock.
        seconds: timeout of one request.
        mark_delay: returns the minimum age in seconds of deletion annotations on a group's machines before its size is
            lowered.
        wake: called when a request is completed, so that the next iteration starts immediately.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        clock: Clock = SYSTEM_CLOCK,
        *,
        seconds: float = REQUEST_SECONDS,
        wake: Callable[[], None] | None = None,
        mark_delay: Callable[[NodeGroup], float] = lambda _: MARK_DELAY,
    ) -> None:
        self._providers = providers
        self._clock = clock
        self._seconds = seconds
        self._mark_delay = mark_delay
        self._wake = wake
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._increasing: dict[str, PendingIncrease] = {}
        self._scale_ups: list[ScaleUpOutcome] = []
        self._corrections: list[ScaleResult] = []
        self._unverified: dict[str, MachineRemoval] = {}
        self._not_before: dict[str, float] = {}
        self._marking: dict[str, float] = {}
        self._started: set[str] = set()

    @property
    def running(self) -> Mapping[str, PendingIncrease]:
        """Return the scale-up requests in flight by group id."""
        return dict(self._increasing)

    @property
    def busy(self) -> frozenset[str]:
        """Return the ids of all groups with a request in flight. No other request is started for them."""
        return frozenset(self._tasks)

    @property
    def marking(self) -> frozenset[str]:
        """Return the ids of groups on whose machines the executor is writing deletion annotations.

        These annotations do not count as leftovers. A group stays in the set for :data:`UNSEEN_SECONDS` after its
        request, because a snapshot may contain an annotation before it contains the lower size.
        """
        now = self._clock.monotonic()
        self._marking = {id_: until for id_, until in self._marking.items() if id_ in self._tasks or now < until}
        return frozenset(self._marking)

    def start(self, actions: Sequence[ScaleUp], groups: Groups) -> tuple[ScaleUp, ...]:
        """Start scale-ups without waiting for the responses.

        Args:
            actions: planned scale-ups. Actions of groups that have a request in flight are skipped.
            groups: the groups that the plan is based on.

        Returns:
            The started actions.
        """
        started = []
        for action in actions:
            group = groups.by_id.get(action.group)
            if group is None or group.id in self._tasks:
                continue
            self._increasing[group.id] = PendingIncrease(group.target, action.to, self._clock.now())
            self._start(group.id, self._increase(group, action))
            started.append(action)
        return tuple(started)

    def correct(self, wanted: Sequence[TargetCorrection], groups: Groups) -> tuple[TargetCorrection, ...]:
        """Start corrections of target sizes without waiting for the responses.

        Args:
            wanted: planned corrections. Groups with a request in flight are skipped, and so are groups whose last
                correction failed less than :data:`RETRY_SECONDS` ago.
            groups: the groups that the corrections are based on.

        Returns:
            The started corrections.
        """
        self._unmark_kept(groups)
        now, started = self._clock.monotonic(), []
        for correction in wanted:
            group = groups.by_id.get(correction.group)
            if group is None or group.id in self._tasks or now < self._not_before.get(group.id, now):
                continue
            self._marking[group.id] = now
            self._start(group.id, self._correct(group, correction))
            started.append(correction)
        return tuple(started)

    async def wait(self, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the requests that were started since the last call are completed, or the timeout has passed.

        Each request is waited for only once, so that a hung provider does not prolong every iteration.
        """
        begun, self._started = self._started, set()
        if waited := [task for group, task in self._tasks.items() if group in begun]:
            await asyncio.wait(waited, timeout=seconds)

    async def scale_up(
        self, actions: Sequence[ScaleUp], groups: Groups, *, patience: float = WAIT_SECONDS
    ) -> tuple[ScaleResult, ...]:
        """Start scale-ups and wait for the responses.

        Returns:
            The results of these and of earlier requests. Requests that are still in flight are in :attr:`running`.
        """
        self.start(actions, groups)
        await self.wait(patience)
        return tuple(each.scaled for each in self.take_results().scale_ups)

    def take_results(self) -> ExecutorResults:
        """Return the results that have arrived since the last call of this method."""
        found = ExecutorResults(
            tuple(sorted(self._scale_ups, key=lambda each: each.scaled.group)),
            tuple(sorted(self._corrections, key=lambda each: each.group)),
        )
        self._scale_ups, self._corrections = [], []
        return found

    async def finish(self, seconds: float = 0.0) -> ExecutorResults:
        """Cancel all requests at the end of the process.

        The next process determines from the groups whether the requests took effect.

        Args:
            seconds: the seconds to wait for responses first.

        Returns:
            The results that have not been returned before.
        """
        await end_tasks(self._tasks.values(), seconds)
        return self.take_results()

    def _start(self, group: str, work: Any) -> None:
        task = asyncio.create_task(work, name=f"scale {group}")
        self._tasks[group] = task
        self._started.add(group)
        task.add_done_callback(lambda done: self._done(group, done))

    def _done(self, group: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(group) is task:
            del self._tasks[group]
            if group in self._marking:
                self._marking[group] = self._clock.monotonic() + UNSEEN_SECONDS
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("Failed to scale node group %s: %s", group, error, exc_info=error, extra={"group": group})
        if self._wake is not None:
            self._wake()

    async def _increase(self, group: NodeGroup, action: ScaleUp) -> None:
        at = self._clock.now()
        try:
            scaled = await self._call(group, action.to, lambda provider: provider.increase(group, action.to))
            self._scale_ups.append(ScaleUpOutcome(action, scaled, at))
        finally:
            self._increasing.pop(group.id, None)

    async def _correct(self, group: NodeGroup, correction: TargetCorrection) -> None:
        scaled = await self._lower_or_remove(group, correction)
        if (
            isinstance(scaled, MachineRemoval)
            and scaled.mark
            and not scaled.done
            and (scaled.doubt or scaled.left_marked)
        ):
            self._unverified[group.id] = scaled
        if not scaled.done and scaled.calls and scaled.failure is not ScaleFailure.FORBIDDEN:
            self._not_before[group.id] = self._clock.monotonic() + RETRY_SECONDS
        self._corrections.append(scaled)

    async def _lower_or_remove(self, group: NodeGroup, correction: TargetCorrection) -> ScaleResult:
        if not correction.machines:
            return await self._call(group, correction.to, lambda provider: provider.lower(group, correction.to))
        marked: MarkedMachines | None = None

        async def mark(provider: Provider) -> ScaleResult:
            nonlocal marked
            marked = await provider.mark(group, correction.machines, now=self._clock.now())
            return MachineRemoval(
                group.id,
                group.target,
                correction.to,
                marked.failure,
                marked.message,
                calls=marked.calls,
                mark=marked.text,
                left_marked=marked.left_marked,
            )

        done = await self._call(group, correction.to, mark)
        if not done.done or marked is None:
            return done
        chosen = marked
        if chosen.text:  # the machine controller must see the marks before it sees the lower size
            await self._clock.sleep(self._mark_delay(group))
        scaled = await self._call(group, correction.to, lambda provider: provider.remove(group, chosen))
        after: ScaleResult = replace(scaled, calls=done.calls + scaled.calls)
        return after

    async def _call(self, group: NodeGroup, to: int, act: Callable[[Provider], Awaitable[ScaleResult]]) -> ScaleResult:
        """Call a provider, and convert unexpected exceptions and timeouts to failed results."""
        name = api_group_of(group)
        provider = self._providers.get(name)
        if provider is None:
            message = f"no provider is configured for groups of {name or 'this kind'}"
            return ScaleResult(group.id, group.target, to, failure=ScaleFailure.REFUSED, message=message)
        try:
            async with asyncio.timeout(self._seconds):
                return await act(provider)
        except TimeoutError:
            failure, message = ScaleFailure.TIMED_OUT, f"no answer within {self._seconds:g} s"
        except Exception as error:  # a bug in one provider must not stop other groups
            log.exception(
                "Failed to scale node group %s: unexpected error from the provider",
                group.id,
                extra={"group": group.id},
            )
            failure, message = ScaleFailure.UNREACHABLE, f"{type(error).__name__}: {error}"
        return ScaleResult(group.id, group.target, to, failure=failure, message=message, doubt=True, calls=1)

    def _unmark_kept(self, groups: Groups) -> None:
        """Remove the deletion annotations from machines that were not deleted.

        Otherwise these annotations would block later removals.
        """
        for id_, removal in list(self._unverified.items()):
            group = groups.by_id.get(id_)
            verdict = verify_removal(removal, group)
            if group is None or not (verdict.kept or verdict.pending):
                del self._unverified[id_]
            elif verdict.settled and id_ not in self._tasks:
                self._start(id_, self._unmark(group, verdict.kept, removal.mark))

    async def _unmark(self, group: NodeGroup, machines: Sequence[str], mark: str) -> None:
        provider = self._providers.get(api_group_of(group))
        if provider is None:
            return
        async with asyncio.timeout(self._seconds):
            left = await provider.unmark(group, machines, mark=mark)
        if not left:
            self._unverified.pop(group.id, None)


def record_results(
    state: AutoscalerState,
    outcomes: ExecutorResults,
    running: Mapping[str, PendingIncrease],
    groups: Groups,
    spec: ClusterAutoscalerSpec,
    *,
    now: float,
) -> AutoscalerState:
    """Return the state with results and requests in flight added, so that the next process knows about them.

    Args:
        state: the state before the results.
        outcomes: the results of requests.
        running: scale-up requests in flight, by group id.
        groups: the groups that the plan was based on.
        spec: spec of the ClusterAutoscaler.
        now: the current time in seconds since the epoch.
    """
    provision = spec.provision_seconds

    def seconds(id_: str) -> float:
        group = groups.by_id.get(id_)
        return provision if group is None else provision_seconds(group, provision)

    for result in outcomes.scale_ups:
        state = record_scale_up_result(state, result.scaled, now=now, seconds=seconds(result.scaled.group))
    for corrected in outcomes.corrections:
        state = record_target_decrease(state, corrected)
    for id_, increase in running.items():
        state = record_scale_up_request(
            state, id_, increase.before, increase.after, now=increase.since, seconds=seconds(id_)
        )
    return state
