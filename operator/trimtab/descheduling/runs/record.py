"""A cycle's plan as it stands in a DeschedulingRun: named, cut to size, and compared with the one before. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.descheduling_run import MAX_ACTIONS, MAX_KEPT_PODS, MAX_KEPT_REASONS, KeptCount, RunAction, RunPlan
from trimtab.api.plan import Evict, Kept, Plan
from trimtab.api.scalars import to_time
from trimtab.descheduling.fitting import fitting
from trimtab.descheduling.report import kept_pod
from trimtab.kube.resources import DESCHEDULER_POLICIES

ACTIONS_BYTES: Final = 256 * 1024
KEPT_BYTES: Final = 64 * 1024
"""How much of an object the two lists may take, as JSON. With the outcomes that the status adds it stays below half of
what etcd takes (1.5 MiB)."""

LONGEST_MESSAGE: Final = 512
POLICY_LABEL: Final = "trimtab.dev/policy-uid"
"""On every run, so that a policy's runs can be listed without reading the others'."""

_LONGEST_STEM: Final = 220


def run_plan(policy: DeschedulerPolicy, plan: Plan, *, nodes: int, pods: int) -> RunPlan:
    """The plan as the run's spec holds it.

    Args:
        policy: that was planned for.
        plan: what was planned.
        nodes: how many nodes the picture had.
        pods: how many pods it had.
    """
    actions = fitting((_action(action) for action in plan.actions), limit=MAX_ACTIONS, size=ACTIONS_BYTES)
    kept = fitting(
        (kept_pod(kept, longest=LONGEST_MESSAGE) for kept in plan.kept), limit=MAX_KEPT_PODS, size=KEPT_BYTES
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
    """The run's name: the policy's, and the time in UTC.

    Args:
        policy: the policy's name; a very long one is cut, with a hash for what is lost.
        time: seconds since the epoch.
        attempt: how many names of this second are taken.
    """
    stem = policy
    if len(stem) > _LONGEST_STEM:
        stem = f"{stem[: _LONGEST_STEM - 11].rstrip('-.')}-{hashlib.sha256(policy.encode()).hexdigest()[:10]}"
    return f"{stem}-{to_time(time):%Y%m%d-%H%M%S}{f'-{attempt + 1}' if attempt else ''}"


def manifest(name: str, plan: RunPlan) -> dict[str, Any]:
    """The object to create.

    It goes when its policy goes (ownerReferences). ``blockOwnerDeletion`` is left out: OpenShift asks for a right on
    the policy's finalizers for it, and there is nothing to wait for.
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
    """What makes two plans the same to a reader: the spec, the moves, and the reasons for which candidates were left.

    Numbers are left out: in a cluster that lives they change with every cycle, and say nothing new.
    """
    content = {
        "mode": plan.mode,
        "generation": plan.policy_generation,
        "moves": sorted(_moves(plan)),
        "kept": [(each.strategy, each.reason) for each in plan.kept_reasons],
    }
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()


def covers(earlier: RunPlan, later: RunPlan) -> bool:
    """Whether a plan that waits for its approval need not be superseded by a later one: it has all its moves.

    It may have more. Those no longer hold, which is found out before anything is done; to take the run from whoever is
    reading it would be worse. Why other pods are left does not matter to what is approved.
    """
    same = earlier.policy_generation == later.policy_generation and earlier.mode == later.mode
    return same and bool(later.actions) and not later.actions_omitted and _moves(later) <= _moves(earlier)


def _moves(plan: RunPlan) -> set[tuple[str, str, str, str, str]]:
    return {(action.uid, action.strategy, action.reason, action.node, action.how) for action in plan.actions}


def evictions(plan: RunPlan) -> tuple[Evict, ...]:
    """The run's actions as the executor takes them."""
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
            how=action.how,
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
        how=action.how,
        message=action.message[:LONGEST_MESSAGE],
    )


def _kept_reasons(kept: Sequence[Kept]) -> tuple[KeptCount, ...]:
    tally = Counter((each.strategy, each.reason) for each in kept)
    rows = sorted(tally.items())[:MAX_KEPT_REASONS]
    return tuple(KeptCount(strategy=strategy, reason=reason, count=count) for (strategy, reason), count in rows)
