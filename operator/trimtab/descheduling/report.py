"""From a cycle's plan and outcomes to the policy's status: pure, so that it is the same in every test."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from typing import cast

import msgspec
from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.conditions import DEGRADED, PROGRESSING, READY
from trimtab.api.descheduler_policy import Mode
from trimtab.api.descheduler_status import (
    MAX_COUNTS,
    MAX_EVICTIONS,
    MAX_KEPT,
    Count,
    DeschedulerStatus,
    Eviction,
    KeptPod,
    LastRun,
)
from trimtab.api.descheduler_status import Outcome as OutcomeWord
from trimtab.api.eviction_memory import Memory
from trimtab.api.plan import Kept, Plan
from trimtab.api.scalars import to_time
from trimtab.descheduling.memory.verdict import verdict
from trimtab.disruption.outcome import EVICTED, FAILED, REFUSED, SKIPPED, STARTED, Outcome

_LONGEST = 1024


class CycleResult(Struct, frozen=True):
    """What one cycle did.

    Attributes:
        mode: Simulate, Approve or Act.
        plan: what was planned.
        outcomes: what became of the plan's actions; empty when nothing was to be carried out.
        started: seconds since the epoch; also the plan's ``now``.
        finished: seconds since the epoch.
        nodes: how many nodes the picture had.
        pods: how many pods the picture had.
        run: the DeschedulingRun that tells of it; empty where none was written.
        approved: whether an approved run was carried out.
        memory: what is remembered of evictions, this cycle's among them.
        unmeasured: what kept real use, which the policy judges by, from being read; empty where nothing did.
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
    memory: Memory = Memory()
    unmeasured: str = ""

    @property
    def acted(self) -> bool:
        """Whether the plan was carried out."""
        return self.mode == "Act" or self.approved

    @property
    def unfinished(self) -> bool:
        """Whether planned evictions were left only because time ran out."""
        return any(outcome.reason == reasons.CYCLE_DEADLINE for outcome in self.outcomes)


def conditions_after(cycle: CycleResult) -> tuple[tuple[str, bool, str, str], ...]:
    """Type, status, reason and message of each condition once the cycle has ended.

    A budget's refusal is no fault of trimtab's and degrades nothing; an eviction that failed otherwise does.
    """
    failed = [outcome for outcome in cycle.outcomes if outcome.result == FAILED]
    done = sum(outcome.result == EVICTED for outcome in cycle.outcomes)
    leaving = sum(outcome.result == STARTED for outcome in cycle.outcomes)
    also = f" ({leaving} more on their way out)" if leaving else ""
    planned, kept = len(cycle.plan.actions), len(cycle.plan.kept)
    if cycle.approved:
        summary = f"evicted {done}{also} of {planned} approved in run {cycle.run}"
    elif cycle.mode == "Act":
        summary = f"evicted {done}{also} of {planned} planned, kept {kept}"
    elif cycle.mode == "Approve" and planned:
        summary = f"would evict {planned}, kept {kept}; run {cycle.run} waits for spec.approved"
    else:
        summary = f"would evict {planned}, kept {kept}"
    degraded = (
        (DEGRADED, True, reasons.EVICTIONS_FAILED, f"{len(failed)} evictions failed; first: {failed[0].message}")
        if failed
        else (DEGRADED, True, reasons.USE_NOT_MEASURED, cycle.unmeasured)
        if cycle.unmeasured
        else (DEGRADED, False, reasons.ALL_WELL, "no eviction failed")
    )
    return (
        (READY, True, reasons.CYCLE_COMPLETED, summary),
        (PROGRESSING, False, reasons.IDLE, "waiting for the next cycle"),
        degraded,
        verdict(cycle.memory, now=cycle.finished),
    )


def status_after(before: DeschedulerStatus, cycle: CycleResult, *, next_run: float) -> DeschedulerStatus:
    """The status once the cycle has ended; conditions and observedGeneration stay as they were."""
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
    """Pods that were planned to go and are still there: they lead the list, as they are what an admin asks about."""
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
    """A candidate that was left, as a status holds it, with at most so much of the message."""
    whole_node = kept.kind == "Node"
    return KeptPod(
        strategy=kept.strategy,
        reason=kept.reason,
        namespace=kept.namespace,
        pod="" if whole_node else kept.name,
        node=kept.name if whole_node else kept.node,
        message=kept.message[:longest],
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
        message=action.message[:_LONGEST],
    )
