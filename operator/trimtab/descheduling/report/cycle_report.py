"""Reports the result of a cycle: the policy's status and conditions, log lines and events."""

from __future__ import annotations

import logging
from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from typing import Final, cast

import msgspec
from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.bounds import plural
from trimtab.api.conditions import DEGRADED, PROGRESSING, READY
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
from trimtab.api.scalars import to_time
from trimtab.descheduling.memory.cooldown import describe_setback, effective_condition
from trimtab.descheduling.planning.missing_namespaces import INCLUDE, MissingNamespace
from trimtab.descheduling.runs.lifecycle import Run
from trimtab.disruption.outcome import EVICTED, FAILED, REFUSED, SKIPPED, STARTED, Outcome
from trimtab.kube.events.event import WARNING, truncate
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.resources import DESCHEDULER_POLICIES, ObjectReference

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


def conditions_after(cycle: CycleResult) -> tuple[tuple[str, bool, str, str], ...]:
    """Return the type, status, reason and message of each of the policy's conditions after the cycle.

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
        summary = f"would evict {planned}, kept {kept}; run {cycle.run} is waiting for spec.approved"
    else:
        summary = f"would evict {planned}, kept {kept}"
    missing = [each.message for each in cycle.missing_namespaces if each.field == INCLUDE]
    degraded = (
        (DEGRADED, True, reasons.EVICTIONS_FAILED, f"{len(failed)} evictions failed; first: {failed[0].message}")
        if failed
        else (DEGRADED, True, reasons.USAGE_NOT_MEASURED, cycle.usage_problem)
        if cycle.usage_problem
        else (DEGRADED, True, reasons.NAMESPACE_NOT_FOUND, "; ".join(missing))
        if missing
        else (DEGRADED, False, reasons.ALL_WELL, "no eviction failed")
    )
    return (
        (READY, True, reasons.CYCLE_COMPLETED, summary),
        (PROGRESSING, False, reasons.IDLE, "waiting for the next cycle"),
        degraded,
        effective_condition(cycle.memory, now=cycle.finished),
    )


def status_after(before: DeschedulerStatus, cycle: CycleResult, *, next_run: float) -> DeschedulerStatus:
    """Return the policy's status after the cycle. Its conditions and ``observedGeneration`` are unchanged."""
    evicted = [outcome for outcome in cycle.outcomes if outcome.result == EVICTED]
    leaving = [outcome for outcome in cycle.outcomes if outcome.result in {EVICTED, STARTED}]
    left = [*_left_by_executor(cycle.outcomes), *cycle.plan.kept]
    return msgspec.structs.replace(
        before,
        last_run=LastRun(
            time=to_time(cycle.started),
            completed=to_time(cycle.finished),
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


log = logging.getLogger(__name__)

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
            f"; run {run.name} is waiting for spec.approved",
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
