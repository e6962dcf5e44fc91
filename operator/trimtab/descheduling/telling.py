"""What a cycle tells in the log and in events, besides what becomes of each pod."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from trimtab.api import reasons
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.eviction_memory import Setback
from trimtab.api.plan import SURGE, Evict, Plan
from trimtab.descheduling.memory.recollection import told
from trimtab.descheduling.runs.lifecycle import Run
from trimtab.kube.events.event import WARNING
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.reference import ObjectReference
from trimtab.kube.resources import DESCHEDULER_POLICIES

log = logging.getLogger(__name__)

SHOWN: Final = 5
"""Pods that an event names: a note has 1,024 characters, and the run has them all."""


def reference(policy: DeschedulerPolicy) -> ObjectReference:
    """The policy as events name it."""
    return ObjectReference.to(DESCHEDULER_POLICIES, policy.name, uid=policy.metadata.uid)


def log_plan(policy: DeschedulerPolicy, plan: Plan) -> None:
    """Log what was planned, in numbers."""
    log.info(
        "policy %s: %d to evict, %d kept",
        policy.name,
        len(plan.actions),
        len(plan.kept),
        extra={"policy": policy.name, "mode": policy.spec.mode, "summary": plan.summary()},
    )


def tell_of_plan(policy: DeschedulerPolicy, plan: Plan, run: Run | None, *, recorder: Recorder) -> None:
    """An event of what would be evicted, and what it waits for.

    Args:
        policy: that was planned for, and is not in mode Act.
        plan: with one action at least.
        run: that holds the plan; ``None`` where none could be written.
        recorder: posts the event.
    """
    shown = ", ".join(f"{action.key} ({_way(action)})" for action in plan.actions[:SHOWN])
    more = f" and {len(plan.actions) - SHOWN} more" if len(plan.actions) > SHOWN else ""
    reason, action, waits = reasons.SIMULATED, "Simulate", ""
    if policy.spec.mode == "Approve" and run is not None:
        reason, action, waits = reasons.WAITING_FOR_APPROVAL, "Approve", f"; run {run.name} waits for spec.approved"
    note = f"would evict {len(plan.actions)}: {shown}{more}{waits}"
    recorder.event(reference(policy), reason=reason, action=action, note=note)


def tell_of_giving_up(policy: DeschedulerPolicy, gave_up: Iterable[Setback], *, recorder: Recorder) -> None:
    """Log and post an event of each owner that is left alone from now on, as evicting its pods does not help."""
    for each in gave_up:
        note = f"{each.strategy} gave up: {told(each)}"
        log.warning("policy %s: %s", policy.name, note)
        recorder.event(reference(policy), reason=reasons.GAVE_UP, action="GiveUp", note=note, type=WARNING)


def _way(action: Evict) -> str:
    surge = " by a rollout" if action.how == SURGE else ""
    return f"{action.node} → {action.target}{surge}" if action.target else f"removed from {action.node}"
