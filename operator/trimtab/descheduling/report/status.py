"""Maintains a policy's status while its loop runs, and reports each cycle in the status, the log and events."""

from __future__ import annotations

import logging
from collections import Counter as Tally
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.bounds import plural
from trimtab.api.conditions import (
    CONFLICTING,
    DEGRADED,
    PROGRESSING,
    READY,
    ConditionUpdate,
    find_condition,
    set_conditions,
)
from trimtab.api.decode import read_status
from trimtab.api.descheduler_policy import DeschedulerPolicy, Mode
from trimtab.api.descheduler_status import (
    MAX_COUNTS,
    MAX_EVICTIONS,
    MAX_KEPT,
    Count,
    DeschedulerStatus,
    Eviction,
    EvictionMemory,
    KeptPod,
    LastRun,
    Setback,
)
from trimtab.api.descheduler_status import Outcome as OutcomeWord
from trimtab.api.plan import SURGE, Evict, Kept, Plan
from trimtab.api.scalars import TIME_RESOLUTION, to_time
from trimtab.api.waiting_evictions import outline
from trimtab.cluster.shared_snapshot import in_thread
from trimtab.controller.reporter import condition, describe_error, invalid_conditions, not_ready
from trimtab.controller.status_writer import StatusWriter
from trimtab.descheduling.dependencies import DeschedulerDependencies
from trimtab.descheduling.memory.cooldown import describe_setback, effective_condition
from trimtab.descheduling.memory.cycle_memory import valid_memory
from trimtab.descheduling.planning.missing_namespaces import INCLUDE, MissingNamespace
from trimtab.descheduling.policy_conflicts import REMEDY, PolicyConflict
from trimtab.descheduling.runs.lifecycle import Run
from trimtab.disruption.evictor.requests import DESCHEDULER
from trimtab.disruption.outcome import EVICTED, FAILED, REFUSED, SKIPPED, STARTED, Outcome
from trimtab.kube.errors import InputError
from trimtab.kube.events.event import WARNING, truncate
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.resources import DESCHEDULER_POLICIES, ObjectReference

COUNTS_PERIOD: Final = 60.0
"""Minimum seconds between two status writes if only the number of pending evictions has changed."""

log = logging.getLogger(__name__)


class PolicyStatus:
    """Maintains the status of one policy. Most methods record one event of the loop and write the status.

    Attributes:
        generation: generation of the spec that the current iteration reconciles.
        cycle_interrupted: whether an earlier process ended while it was running a cycle.
    """

    def __init__(self, name: str, deps: DeschedulerDependencies) -> None:
        self.generation = 0
        self.cycle_interrupted = False
        self._name = name
        self._clock = deps.clock
        self._metrics = deps.metrics
        self._evictor = deps.executor.evictor
        self._waiting_written = 0.0
        self._writer = StatusWriter(
            deps.api, deps.clock, resource=DESCHEDULER_POLICIES, name=name, empty=DeschedulerStatus()
        )
        self._status = DeschedulerStatus()
        self._cycle: LastRun | None = None  # the cycle in progress and its outcomes so far
        self._cycle_generation = 0  # that of the last reported cycle; 0 if there was none or it is unknown

    @property
    def run_now(self) -> str:
        """Return the last value of the annotation ``trimtab.dev/run-now`` for which a cycle was started."""
        return self._status.run_now

    @property
    def cycle_reported(self) -> bool:
        """Return whether the last cycle ended, or was interrupted, with the current generation.

        A cycle of an unknown generation counts, because a repeated cycle would evict more pods.
        """
        return self._cycle_generation in (0, self.generation)

    @property
    def out_of_sync(self) -> bool:
        """Return whether the last status write failed or was refused. If so, it is repeated with the next report."""
        return self._writer.out_of_sync

    def restore(self, wire: Mapping[str, Any]) -> tuple[float | None, float]:
        """Restore the policy's status that an earlier process wrote.

        The generation of the last cycle is read from ``status.lastRun``, and so is whether that cycle ended. Several
        processes may restart before the next cycle, and each changes the conditions and ``observedGeneration``.

        Returns:
            The start of the last cycle (``None`` if there was none) and the latest time at which the earlier process
            may have evicted a pod (0 if it evicted none), in seconds since the epoch.
        """
        self._status, problem = read_status(dict(wire))
        self._writer.start_from(self._status)
        self._status = self._writer.status
        if problem:
            log.warning(
                "Failed to decode the status of DeschedulerPolicy %s; rebuilding the status: %s", self._name, problem
            )
        self._clear_waiting_evictions()  # the evictions of the earlier process are no longer pending
        times = [eviction.time.timestamp() for eviction in self._status.last_evictions]
        evicted = max(times) + TIME_RESOLUTION if times else 0.0
        last = self._status.last_run
        if last is None:
            return None, evicted
        running = find_condition(self._status.conditions, PROGRESSING)
        self.cycle_interrupted = running is not None and running.reason == reasons.CYCLE_RUNNING
        self._cycle_generation = last.generation
        return last.time.timestamp(), evicted if last.completed is not None else self._clock.now()

    async def waiting(
        self, due: float, *, opens: float | None = None, scheduled: bool = False, approvals: int = 0
    ) -> None:
        """Report the time of the next cycle, and what the policy waits for.

        Args:
            due: the time of the next cycle in seconds since the epoch.
            opens: the time at which a window opens, in seconds since the epoch; ``None`` if one is open.
            scheduled: whether the policy has a schedule, so that its first cycle may be hours away.
            approvals: number of runs that wait for approval.
        """
        ready = find_condition(self._status.conditions, READY)
        if opens is not None:
            self._accept_spec(reasons.OUTSIDE_WINDOWS, "the policy is valid; no cycle has run yet")
        elif scheduled:
            self._accept_spec(reasons.WAITING_FOR_FIRST_CYCLE, "the policy is valid; its first cycle is scheduled")
        elif ready is None:
            self._set(condition(READY, "Unknown", reasons.WAITING_FOR_FIRST_CYCLE, "no cycle has run yet"))
        running = find_condition(self._status.conditions, PROGRESSING)
        if running is not None and running.reason == reasons.CYCLE_RUNNING:
            message = "the process ended while a cycle was evicting pods; the next cycle continues"
            self._set(condition(PROGRESSING, False, reasons.IDLE, message))
            running = None
        if opens is not None:
            message = f"none of spec.windows is open; the next one opens at {to_time(opens):%Y-%m-%dT%H:%M:%SZ}"
            self._set(condition(PROGRESSING, False, reasons.OUTSIDE_WINDOWS, message))
        elif approvals:
            message = f"{plural(approvals, 'DeschedulingRun')} waiting for spec.approved"
            self._set(condition(PROGRESSING, False, reasons.WAITING_FOR_APPROVAL, message))
        elif running is None or running.reason != reasons.IDLE:
            self._set(condition(PROGRESSING, False, reasons.IDLE, "waiting for the next cycle"))
        self._status = msgspec.structs.replace(self._status, next_run=to_time(due))
        await self._report()

    async def not_ready(self, reason: str) -> None:
        """Report that a cycle is due but the caches are too old for planning."""
        log.warning("DeschedulerPolicy %s cannot start a cycle: %s", self._name, reason)
        self._set(condition(DEGRADED, True, reasons.CLUSTER_UNREACHABLE, reason))
        await self._write()

    def memory_for(self, *, generation: int, try_again: str) -> EvictionMemory:
        """Return the part of the eviction memory that is valid for this generation of the spec."""
        return valid_memory(self._status.memory, generation=generation, try_again=try_again)

    def cycle_started(self, *, run_now: str) -> None:
        """Record that a cycle has started, which a user may have asked for. The next write of the status contains it.

        Args:
            run_now: the value of the annotation ``trimtab.dev/run-now``; empty if it is unset.
        """
        self._status = msgspec.structs.replace(self._status, run_now=run_now or self._status.run_now)

    async def running(self, message: str, memory: EvictionMemory, cycle: LastRun) -> None:
        """Report that a cycle is evicting pods, and persist the evictions that will be observed.

        Args:
            message: what the cycle does.
            memory: the memory with these evictions.
            cycle: the summary of the cycle so far.
        """
        self._cycle = msgspec.structs.replace(cycle, generation=self.generation)
        self._status = msgspec.structs.replace(self._status, memory=memory)
        self._set(condition(PROGRESSING, True, reasons.CYCLE_RUNNING, message))
        await self._write()

    def count_outcome(self, outcome: Outcome) -> None:
        """Count an outcome of the cycle in progress. :meth:`report_progress` writes the numbers."""
        cycle = self._cycle
        if cycle is not None:
            self._cycle = msgspec.structs.replace(
                cycle,
                evicted=cycle.evicted + (outcome.result == EVICTED),
                started=cycle.started + (outcome.result == STARTED),
                refused=cycle.refused + (outcome.result in {REFUSED, FAILED}),
            )

    def report_progress(self) -> None:
        """Update the outcomes of the cycle in progress and the policy's pending evictions in the status.

        The method does not wait for the write. The status is written if an outcome was counted or the reasons of
        pending evictions have changed. If only the number of pending evictions changes, it is written at most once
        per :data:`COUNTS_PERIOD`.
        """
        before, now = self._status.waiting_evictions, self._clock.now()
        waiting = self._evictor.waiting_status(DESCHEDULER, name=self._name, previous=before)
        news = [outline(each) for each in waiting] != [outline(each) for each in before]
        if news or (waiting != before and not 0 <= now - self._waiting_written < COUNTS_PERIOD):
            self._waiting_written = now
            self._status = msgspec.structs.replace(self._status, waiting_evictions=waiting)
        self._writer.put(self._with_progress())

    def _with_progress(self) -> DeschedulerStatus:
        """Return the status with the outcomes of the cycle in progress. :meth:`done` sets the final ones."""
        cycle, status = self._cycle, self._status
        if cycle is None:
            return status
        return msgspec.structs.replace(status, last_run=cycle, evicted=status.evicted + cycle.evicted)

    async def done(self, result: CycleResult, *, next_run: float) -> None:
        """Report that a cycle has ended and that the next one is due at ``next_run`` (seconds since the epoch)."""
        self._cycle = None
        self._status = await in_thread(
            partial(status_after, self._status, result, next_run=next_run, generation=self.generation)
        )
        self._clear_waiting_evictions()
        self._set(*conditions_after(result))
        self._metrics.cycles.labels(self._name, result.mode, "Completed").inc()
        self._metrics.remembered(self._name, result.memory, now=result.finished)
        self._metrics.last_cycle.labels(self._name).set(result.finished)
        self._cycle_generation = self.generation
        await self._report()

    async def failed(self, error: Exception, *, mode: str) -> None:
        """Report that a cycle failed. The evictions until then remain counted."""
        self._status, self._cycle = self._with_progress(), None
        self._clear_waiting_evictions()
        self._set(
            *not_ready(reasons.CYCLE_FAILED, describe_error(error)),
            condition(PROGRESSING, False, reasons.IDLE, "the last cycle failed and will be retried"),
        )
        self._metrics.cycles.labels(self._name, mode, "Failed").inc()
        self._cycle_generation = self.generation
        await self._report()

    async def invalid(self, problem: InputError) -> None:
        """Report that the spec is invalid."""
        message = str(problem)
        log.warning("DeschedulerPolicy %s is invalid: %s", self._name, message)
        self._set(*invalid_conditions(reasons.INVALID_POLICY, message, "waiting for a valid spec"))
        self._metrics.cycles.labels(self._name, "", "InvalidPolicy").inc()
        await self._report(next_run=False)

    async def suspended(self) -> None:
        """Report that the policy is suspended."""
        self._accept_spec(reasons.SUSPENDED, "the policy is valid; no cycle has run yet, and spec.suspend is true")
        self._set(condition(PROGRESSING, False, reasons.SUSPENDED, "spec.suspend is true: no cycle starts"))
        await self._report(next_run=False)

    async def conflict_found(self, conflicts: Sequence[PolicyConflict]) -> None:
        """Report that the policy does not act because other policies or the scheduler would undo its evictions."""
        reason = min(conflict.reason for conflict in conflicts)
        message = "; ".join(conflict.message for conflict in conflicts)
        if reason == reasons.POLICY_CONFLICT:
            message += f". Neither policy acts until the conflict is resolved: {REMEDY}"
        if not self._has_conflict():
            log.warning(
                "DeschedulerPolicy %s is inactive because it conflicts with another object: %s", self._name, message
            )
        self._set(*invalid_conditions(reason, message, "waiting for the conflict to be resolved"))
        await self._report(next_run=False)

    async def conflict_resolved(self) -> None:
        """Clear a reported conflict. The call has no effect if none was reported."""
        if self._has_conflict():
            waiting = "no cycle has run since the conflict was resolved"
            self._set(
                condition(READY, "Unknown", reasons.WAITING_FOR_FIRST_CYCLE, waiting),
                condition(DEGRADED, False, reasons.ALL_WELL, "the conflict has been resolved"),
                condition(PROGRESSING, False, reasons.IDLE, "waiting for the next cycle"),
            )
            await self._write()

    async def settings_conflict(self, wanted: ConditionUpdate | None) -> None:
        """Report whether the settings of the ClusterAutoscaler conflict with the policy.

        Args:
            wanted: the condition to report; ``None`` if there is no ClusterAutoscaler, which is reported only if a
                conflict was reported before.
        """
        if wanted is None:
            before = find_condition(self._status.conditions, CONFLICTING)
            if before is None or before.status == "False":
                return
            wanted = ConditionUpdate(CONFLICTING, False, reasons.NO_CONFLICT, "there is no ClusterAutoscaler")
        self._set(wanted)
        await self._write()

    def _accept_spec(self, reason: str, message: str) -> None:
        """Set Ready for a new generation of the spec whose first cycle may be hours away, or never come.

        Otherwise ``kubectl wait --for=condition=Ready`` would wait for that cycle, because it ignores conditions of
        earlier generations. The outcome of a cycle with the same generation is kept.
        """
        ready = find_condition(self._status.conditions, READY)
        if ready is None or ready.reason in _NO_CYCLE_YET or ready.observed_generation != self.generation:
            self._set(
                condition(READY, True, reason, message),
                condition(DEGRADED, False, reasons.ALL_WELL, "no cycle has run yet"),
            )

    def _has_conflict(self) -> bool:
        degraded = find_condition(self._status.conditions, DEGRADED)
        return degraded is not None and degraded.reason in {reasons.POLICY_CONFLICT, reasons.SCHEDULER_CONFLICT}

    def _set(self, *wanted: ConditionUpdate) -> None:
        before, now = self._status.conditions, self._clock.now()
        conditions = set_conditions(before, wanted, now=now, generation=self.generation)
        self._status = msgspec.structs.replace(self._status, conditions=conditions)

    async def _report(self, *, next_run: bool = True) -> None:
        """Write the status, with the current generation as ``observedGeneration``."""
        kept = self._status.next_run if next_run else None
        self._status = msgspec.structs.replace(self._status, observed_generation=self.generation, next_run=kept)
        await self._write()

    def _clear_waiting_evictions(self) -> None:
        self._status = msgspec.structs.replace(self._status, waiting_evictions=())

    async def _write(self) -> None:
        await self._writer.write(self._with_progress())


_NO_CYCLE_YET: Final = frozenset({reasons.WAITING_FOR_FIRST_CYCLE, reasons.OUTSIDE_WINDOWS, reasons.SUSPENDED})
"""Reasons of the condition Ready until a cycle of its generation has run."""


_LONGEST = 1024


class CycleResult(Struct, frozen=True):
    """The result of one cycle.

    Attributes:
        mode: Simulate, Approve or Act.
        plan: the plan.
        outcomes: the outcomes of the plan's actions; empty if the plan was not executed.
        started: start of the cycle in seconds since the epoch, which is also the plan's ``now``.
        finished: end of the cycle in seconds since the epoch.
        nodes: number of nodes in the snapshot.
        pods: number of pods in the snapshot.
        run: name of the DeschedulingRun that records the cycle; empty if none was written.
        approved: whether the cycle executed an approved run.
        memory: the policy's memory of evictions, including those of this cycle.
        usage_problem: the reason why measured utilization could not be read; empty if it was read or if the policy does
            not use it.
        missing_namespaces: namespaces that the policy names and that do not exist.
    """

    mode: str
    plan: Plan
    outcomes: Sequence[Outcome]
    started: float
    finished: float
    nodes: int
    pods: int
    run: str = ""
    approved: bool = False
    memory: EvictionMemory = EvictionMemory()
    usage_problem: str = ""
    missing_namespaces: tuple[MissingNamespace, ...] = ()

    @property
    def acted(self) -> bool:
        """Return whether the plan was executed."""
        return self.mode == "Act" or self.approved

    @property
    def unfinished(self) -> bool:
        """Return whether planned evictions were skipped only because the cycle ran out of time."""
        return any(outcome.reason == reasons.CYCLE_DEADLINE for outcome in self.outcomes)


def conditions_after(cycle: CycleResult) -> tuple[ConditionUpdate, ...]:
    """Return the policy's conditions after the cycle.

    Degraded is set if an eviction failed, but not if a PodDisruptionBudget refused it, if measured utilization could
    not be read, and if ``namespaces.include`` names a namespace that does not exist.
    """
    failed = [outcome for outcome in cycle.outcomes if outcome.result == FAILED]
    done = sum(outcome.result == EVICTED for outcome in cycle.outcomes)
    leaving = sum(outcome.result == STARTED for outcome in cycle.outcomes)
    also = f" ({leaving} more in progress)" if leaving else ""
    planned, kept = len(cycle.plan.actions), len(cycle.plan.kept)
    if cycle.approved:
        summary = f"evicted {done}{also} of {planned} approved in run {cycle.run}"
    elif cycle.mode == "Act":
        summary = f"evicted {done}{also} of {planned} planned, kept {kept}"
    elif cycle.mode == "Approve" and planned:
        summary = f"would evict {planned}, kept {kept}; DeschedulingRun {cycle.run} is waiting for approval"
    else:
        summary = f"would evict {planned}, kept {kept}"
    missing = [each.message for each in cycle.missing_namespaces if each.field == INCLUDE]
    degraded = (
        condition(
            DEGRADED, True, reasons.EVICTIONS_FAILED, f"{len(failed)} evictions failed; first: {failed[0].message}"
        )
        if failed
        else condition(DEGRADED, True, reasons.USAGE_NOT_MEASURED, cycle.usage_problem)
        if cycle.usage_problem
        else condition(DEGRADED, True, reasons.NAMESPACE_NOT_FOUND, "; ".join(missing))
        if missing
        else condition(DEGRADED, False, reasons.ALL_WELL, "no eviction failed")
    )
    return (
        condition(READY, True, reasons.CYCLE_COMPLETED, summary),
        condition(PROGRESSING, False, reasons.IDLE, "waiting for the next cycle"),
        degraded,
        effective_condition(cycle.memory, now=cycle.finished),
    )


def status_after(
    before: DeschedulerStatus, cycle: CycleResult, *, next_run: float, generation: int
) -> DeschedulerStatus:
    """Return the policy's status after a cycle. Its conditions and ``observedGeneration`` are unchanged."""
    evicted = [outcome for outcome in cycle.outcomes if outcome.result == EVICTED]
    leaving = [outcome for outcome in cycle.outcomes if outcome.result in {EVICTED, STARTED}]
    left = [*_left_by_executor(cycle.outcomes), *cycle.plan.kept]
    return msgspec.structs.replace(
        before,
        last_run=LastRun(
            time=to_time(cycle.started),
            completed=to_time(cycle.finished),
            generation=generation,
            mode=cast("Mode", cycle.mode),
            run=cycle.run,
            duration_seconds=round(max(0.0, cycle.finished - cycle.started), 3),
            planned=len(cycle.plan.actions),
            evicted=len(evicted),
            started=len(leaving) - len(evicted),
            refused=sum(outcome.result in {REFUSED, FAILED} for outcome in cycle.outcomes),
            kept=len(cycle.plan.kept),
            nodes=cycle.nodes,
            pods=cycle.pods,
        ),
        next_run=to_time(next_run),
        evicted=before.evicted + len(evicted),
        counts=_counts(cycle),
        kept=tuple(kept_pod(kept, longest=_LONGEST) for kept in left[:MAX_KEPT]),
        last_evictions=(*(_eviction(outcome) for outcome in reversed(leaving)), *before.last_evictions)[:MAX_EVICTIONS],
        memory=cycle.memory,
    )


def _left_by_executor(outcomes: Iterable[Outcome]) -> list[Kept]:
    """Return the planned pods that were not evicted.

    They are listed before other kept pods, because they matter most to administrators.
    """
    return [
        Kept(
            kind="Pod",
            namespace=outcome.action.namespace,
            name=outcome.action.pod,
            strategy=outcome.action.strategy,
            reason=outcome.reason,
            message=outcome.message,
            node=outcome.action.node,
        )
        for outcome in outcomes
        if outcome.result in {REFUSED, FAILED, SKIPPED}
    ]


def _counts(cycle: CycleResult) -> tuple[Count, ...]:
    tally: Tally[tuple[str, str, OutcomeWord]] = Tally()
    for kept in cycle.plan.kept:
        tally[kept.strategy, kept.reason, "Kept"] += 1
    if not cycle.acted:
        for action in cycle.plan.actions:
            tally[action.strategy, action.reason, "Planned"] += 1
    for outcome in cycle.outcomes:
        action = outcome.action
        if outcome.result == EVICTED:
            tally[action.strategy, action.reason, "Evicted"] += 1
        elif outcome.result == STARTED:
            tally[action.strategy, action.reason, "Started"] += 1
        elif outcome.result in {REFUSED, FAILED}:
            tally[action.strategy, outcome.reason, "Refused"] += 1
        elif outcome.result == SKIPPED:
            tally[action.strategy, outcome.reason, "Kept"] += 1
    rows = sorted(tally.items())[:MAX_COUNTS]
    return tuple(
        Count(strategy=strategy, reason=reason, outcome=outcome, count=number)
        for (strategy, reason, outcome), number in rows
    )


def kept_pod(kept: Kept, *, longest: int) -> KeptPod:
    """Convert a kept candidate to its form in the status. Its message is truncated to ``longest`` characters."""
    whole_node = kept.kind == "Node"
    return KeptPod(
        strategy=kept.strategy,
        reason=kept.reason,
        namespace=kept.namespace,
        pod="" if whole_node else kept.name,
        node=kept.name if whole_node else kept.node,
        message=truncate(kept.message, longest),
    )


def _eviction(outcome: Outcome) -> Eviction:
    action = outcome.action
    return Eviction(
        namespace=action.namespace,
        pod=action.pod,
        strategy=action.strategy,
        reason=action.reason,
        time=to_time(outcome.at),
        node=action.node,
        target=action.target,
        message=truncate(action.message, _LONGEST),
        cause=action.cause,
    )


SHOWN: Final = 5
"""Maximum number of pods that an event names, because an event's note is limited to 1,024 characters.

The DeschedulingRun lists all pods.
"""


def reference(policy: DeschedulerPolicy) -> ObjectReference:
    """Return an object reference to the policy, for its events."""
    return ObjectReference.to(DESCHEDULER_POLICIES, policy.name, uid=policy.metadata.uid)


def log_plan(policy: DeschedulerPolicy, plan: Plan) -> None:
    """Log how many pods the plan evicts and keeps: at INFO level if it evicts any, otherwise at DEBUG level."""
    log.log(
        logging.INFO if plan.actions else logging.DEBUG,
        "Planned %d eviction(s) for DeschedulerPolicy %s, kept %d candidate(s)",
        len(plan.actions),
        policy.name,
        len(plan.kept),
        extra={"policy": policy.name, "mode": policy.spec.mode, "summary": plan.summary()},
    )


def announce_plan(policy: DeschedulerPolicy, plan: Plan, run: Run | None, *, recorder: Recorder) -> None:
    """Emit an event with the planned evictions of a policy in Simulate or Approve mode.

    Args:
        policy: the policy.
        plan: a plan with at least one action.
        run: the run that contains the plan; ``None`` if no run could be written.
        recorder: emits the event.
    """
    shown = ", ".join(f"{action.key} ({_describe_method(action)})" for action in plan.actions[:SHOWN])
    more = f" and {len(plan.actions) - SHOWN} more" if len(plan.actions) > SHOWN else ""
    reason, action, waits = reasons.SIMULATED, "Simulate", ""
    if policy.spec.mode == "Approve" and run is not None:
        reason, action, waits = (
            reasons.WAITING_FOR_APPROVAL,
            "Approve",
            f"; to approve, set spec.approved of DeschedulingRun {run.name} to true",
        )
    note = f"would evict {plural(len(plan.actions), 'pod')}: {shown}{more}{waits}"
    recorder.event(reference(policy), reason=reason, action=action, note=note)


def announce_giving_up(policy: DeschedulerPolicy, gave_up: Iterable[Setback], *, recorder: Recorder) -> None:
    """Log and emit an event for each owner whose pods a strategy no longer evicts because evictions did not help."""
    for each in gave_up:
        note = f"{each.strategy} stopped evicting: {describe_setback(each)}"
        log.warning("DeschedulerPolicy %s: %s", policy.name, note)
        recorder.event(reference(policy), reason=reasons.GAVE_UP, action="GiveUp", note=note, type=WARNING)


def _describe_method(action: Evict) -> str:
    if not action.target:
        return f"removed from {action.node}"
    rollout = " by a rollout" if action.how == SURGE else ""
    return f"from {action.node}, replacement{rollout} expected on {action.target}"
