"""Converts a cycle's plan to a DeschedulingRun and revalidates an approved run.

An hour may pass between planning and approval, and the violation may no longer exist by then. Therefore a new plan is
computed, and only those approved evictions are executed that it contains as well. Each executed eviction is therefore
one that was approved and that a cycle in Act mode would execute now. No function does I/O or reads a clock.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.bounds import fitting
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.descheduling_run import MAX_ACTIONS, MAX_KEPT_PODS, MAX_KEPT_REASONS, KeptCount, RunAction, RunPlan
from trimtab.api.plan import SURGE, Evict, Kept, Plan
from trimtab.api.scalars import to_time
from trimtab.descheduling.report.status import kept_pod
from trimtab.descheduling.strategies.registry import WHOLE_NODES
from trimtab.disruption.outcome import GONE, SKIPPED, Outcome
from trimtab.kube.events.event import truncate
from trimtab.kube.resources import DESCHEDULER_POLICIES

ACTIONS_BYTES: Final = 256 * 1024
KEPT_BYTES: Final = 64 * 1024
"""Maximum size of each of a run's lists ``actions`` and ``keptPods``, in bytes of JSON.

With the outcomes in the status, the object stays below half of etcd's limit (1.5 MiB).
"""

LONGEST_MESSAGE: Final = 512
POLICY_LABEL: Final = "trimtab.dev/policy-uid"
"""Label with the policy's UID, by which the runs of a policy are listed."""

_LONGEST_STEM: Final = 220


def run_plan(policy: DeschedulerPolicy, plan: Plan, *, nodes: int, pods: int) -> RunPlan:
    """Convert a plan to the spec of a run.

    Args:
        policy: the policy.
        plan: the plan.
        nodes: number of nodes in the snapshot.
        pods: number of pods in the snapshot.
    """
    actions = fitting((_action(action) for action in plan.actions), limit=MAX_ACTIONS, budget=ACTIONS_BYTES)
    kept = fitting(
        (kept_pod(kept, longest=LONGEST_MESSAGE) for kept in plan.kept), limit=MAX_KEPT_PODS, budget=KEPT_BYTES
    )
    waits = policy.spec.mode == "Approve" and plan.actions
    return RunPlan(
        policy=policy.name,
        policy_uid=policy.metadata.uid,
        policy_generation=policy.metadata.generation,
        mode=policy.spec.mode,
        time=to_time(plan.now),
        approve_until=to_time(plan.now + policy.spec.approval_seconds) if waits else None,
        planned=len(plan.actions),
        kept=len(plan.kept),
        actions=actions,
        actions_omitted=len(plan.actions) - len(actions),
        kept_reasons=_kept_reasons(plan.kept),
        kept_pods=kept,
        kept_omitted=len(plan.kept) - len(kept),
        nodes=nodes,
        pods=pods,
    )


def run_name(policy: str, time: float, *, attempt: int = 0) -> str:
    """Return the run's name: the policy's name and the time in UTC.

    Args:
        policy: the policy's name. If it is too long, it is truncated and a hash is appended.
        time: seconds since the epoch.
        attempt: number of names with the same policy and second that are already in use.
    """
    stem = policy
    if len(stem) > _LONGEST_STEM:
        stem = f"{stem[: _LONGEST_STEM - 11].rstrip('-.')}-{hashlib.sha256(policy.encode()).hexdigest()[:10]}"
    return f"{stem}-{to_time(time):%Y%m%d-%H%M%S}{f'-{attempt + 1}' if attempt else ''}"


def manifest(name: str, plan: RunPlan) -> dict[str, Any]:
    """Return the DeschedulingRun object to create.

    An owner reference makes the garbage collector delete it with its policy. ``blockOwnerDeletion`` is not set, because
    OpenShift would require a permission on the policy's finalizers for it.
    """
    owner = {
        "apiVersion": DESCHEDULER_POLICIES.api_version,
        "kind": DESCHEDULER_POLICIES.kind,
        "name": plan.policy,
        "uid": plan.policy_uid,
        "controller": True,
    }
    labels = {"app.kubernetes.io/managed-by": "trimtab", POLICY_LABEL: plan.policy_uid}
    return {
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
        "spec": {"plan": msgspec.to_builtins(plan), "approved": False},
    }


def fingerprint(plan: RunPlan) -> str:
    """Return a hash of the parts of a plan in which a change matters to users.

    It covers the generation, the moves, and the reasons why candidates are kept. Counts are not included, because in a
    live cluster they change with every cycle.
    """
    content = {
        "mode": plan.mode,
        "generation": plan.policy_generation,
        "moves": sorted(_moves(plan)),
        "kept": [(each.strategy, each.reason) for each in plan.kept_reasons],
    }
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()


def covers(earlier: RunPlan, later: RunPlan) -> bool:
    """Return whether a plan that is pending approval contains all moves of a later plan, so that no new run is needed.

    The earlier plan may contain additional moves. Moves that are no longer valid are dropped before the execution, and
    replacing the run while a user reviews it would be worse. Why candidates are kept is irrelevant to the approval.
    """
    same = earlier.policy_generation == later.policy_generation and earlier.mode == later.mode
    return same and bool(later.actions) and not later.actions_omitted and _moves(later) <= _moves(earlier)


def _moves(plan: RunPlan) -> set[tuple[str, str, str, str, str]]:
    return {(action.uid, action.strategy, action.reason, action.node, action.how) for action in plan.actions}


def to_evictions(plan: RunPlan) -> tuple[Evict, ...]:
    """Convert the actions of a run's plan to the type that the executor requires."""
    return tuple(
        Evict(
            policy=plan.policy,
            strategy=action.strategy,
            namespace=action.namespace,
            pod=action.pod,
            node=action.node,
            target=action.target,
            reason=action.reason,
            message=action.message,
            uid=action.uid,
            owner=action.owner,
            how=SURGE if action.how == SURGE else "Evict",
            cause=action.cause,
        )
        for action in plan.actions
    )


def _action(action: Evict) -> RunAction:
    return RunAction(
        namespace=action.namespace,
        pod=action.pod,
        uid=action.uid,
        node=action.node,
        strategy=action.strategy,
        reason=action.reason,
        target=action.target,
        owner=action.owner,
        how=SURGE if action.how == SURGE else "Evict",
        cause=action.cause,
        message=truncate(action.message, LONGEST_MESSAGE),
    )


def _kept_reasons(kept: Sequence[Kept]) -> tuple[KeptCount, ...]:
    tally = Counter((each.strategy, each.reason) for each in kept)
    rows = sorted(tally.items())[:MAX_KEPT_REASONS]
    return tuple(KeptCount(strategy=strategy, reason=reason, count=count) for (strategy, reason), count in rows)


class RecheckedRun(Struct, frozen=True):
    """The result of revalidating an approved plan.

    Attributes:
        execute: the evictions to execute, in the order and with the targets of the new plan.
        dropped: outcomes of the evictions that are no longer valid.
    """

    execute: tuple[Evict, ...]
    dropped: tuple[Outcome, ...]


def recheck_approved(approved: Sequence[Evict], fresh: Plan, *, present: frozenset[str]) -> RecheckedRun:
    """Separate the approved evictions that are still valid from those that are not.

    Args:
        approved: approved evictions without an outcome.
        fresh: the plan of the same policy on the current snapshot.
        present: the UIDs of those pods of ``approved`` that still exist.
    """
    now = {action.uid: action for action in fresh.actions}
    wanted = {action.uid for action in approved}
    partial = {
        (action.strategy, action.node)
        for action in fresh.actions
        if action.strategy in WHOLE_NODES and action.uid not in wanted
    }
    kept = _by_pod(fresh.kept)
    dropped, go = [], set()
    for action in approved:
        against = _invalid_result(action, now.get(action.uid), kept, partial, present)
        if against is None:
            go.add(action.uid)
        else:
            result, reason, message = against
            dropped.append(Outcome(action=action, result=result, reason=reason, message=message, at=fresh.now))
    return RecheckedRun(execute=tuple(action for action in fresh.actions if action.uid in go), dropped=tuple(dropped))


def _invalid_result(
    action: Evict,
    now: Evict | None,
    kept: dict[str, list[Kept]],
    partial: set[tuple[str, str]],
    present: frozenset[str],
) -> tuple[str, str, str] | None:
    """Return the result, reason and message of an eviction that is no longer valid; ``None`` if it is valid."""
    if action.uid not in present:
        return GONE, reasons.ALREADY_GONE, "the pod no longer exists"
    if now is None:
        left = [each for each in kept.get(action.key, ()) if each.strategy == action.strategy]
        if left:
            return SKIPPED, left[0].reason, f"validated again before the eviction: {left[0].message}"
        found = "validated again before the eviction: the violation no longer exists"
        return SKIPPED, reasons.NO_LONGER_PLANNED, found
    if (now.strategy, now.reason) != (action.strategy, action.reason):
        other = f"now {now.strategy} would evict the pod ({now.reason}), which was not approved"
        return SKIPPED, reasons.NO_LONGER_PLANNED, other
    if now.node != action.node or bool(now.target) != bool(action.target):
        return SKIPPED, reasons.PLAN_OUTDATED, f"the pod has changed since the approval: it is on {now.node}"
    if now.how != action.how:
        ways = {"Evict": "evicted", "Surge": "restarted with a rollout"}
        return SKIPPED, reasons.PLAN_OUTDATED, f"now it would be {ways[now.how]}, which was not approved"
    if (now.strategy, now.node) in partial:
        whole = f"draining {now.node} now requires evictions that were not approved"
        return SKIPPED, reasons.NO_LONGER_PLANNED, whole
    return None


def _by_pod(kept: Iterable[Kept]) -> dict[str, list[Kept]]:
    found: dict[str, list[Kept]] = {}
    for each in kept:
        if each.kind == "Pod":
            found.setdefault(f"{each.namespace}/{each.name}", []).append(each)
    return found
