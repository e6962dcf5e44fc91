"""The look at a planned move right before it is made, on the picture as it is by then."""

from __future__ import annotations

from typing import Any

from trimtab.api import reasons
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.plan import SURGE, Evict
from trimtab.cluster.rollouts import Rollouts
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage import Usage
from trimtab.descheduling.overlap import pending
from trimtab.descheduling.scope import Scope
from trimtab.descheduling.strategies.registry import IN_ORDER, IN_PLACE
from trimtab.descheduling.strategies.strategy import AnyStrategy, Strategy
from trimtab.disruption.gate import Gate
from trimtab.disruption.refusal import Refusal
from trimtab.placement.placer import Placer


def still_holds(
    snapshot: Snapshot,
    policy: DeschedulerPolicy,
    action: Evict,
    now: float,
    *,
    usage: Usage | None = None,
    rollouts: Rollouts | None = None,
) -> Refusal | None:
    """Judge a planned move again on another picture; ``None`` where it still holds.

    The expected target need not be the same: the scheduler chooses. But some node must take it, and one other than the
    pod's, unless the strategy only wants the pod to start anew. What has run to its end needs no node. Where real use
    was measured, the strategy is asked whether it still wants the move by it.

    Args:
        snapshot: the picture as it is now.
        policy: whose plan it is.
        action: the move.
        now: seconds since the epoch.
        usage: what was measured last, for a policy that judges by real use.
        rollouts: the Deployments when it was planned, for a policy with ``singleReplica: Surge``; the one in question
            is read again by whoever restarts it.
    """
    pod = snapshot.pods.get(action.key)
    if pod is None or pod.node != action.node:
        return Refusal(reasons.PLAN_OUTDATED, f"the pod is no longer on {action.node}")
    rules = Gate(snapshot, now=now, rollouts=rollouts).rules_for(policy.spec)
    if not action.target:
        return rules.protected_from_removal(pod)
    protected = rules.protected(pod)
    if protected is not None:
        return protected
    surges = action.how == SURGE
    if surges != rules.surges(pod):
        told = "is no longer the only one of its Deployment" if surges else "has become the only one of its Deployment"
        return Refusal(reasons.PLAN_OUTDATED, f"the pod {told}")
    with snapshot.fork():
        placer = Placer(snapshot)
        source = snapshot.slot(pod)
        strategy = None if usage is None else _strategy(policy, action, placer, usage)
        lifted = pending(pod) if rules.stays_until_replaced(pod) else placer.lift(pod)
        places = placer.feasible(lifted)
        if source is not None and action.strategy not in IN_PLACE:
            places[source] = False
        if not places.any():
            return Refusal(reasons.NO_PLACE, placer.why_not(lifted))
    return None if strategy is None else strategy.no_longer(pod, places)


def _strategy(policy: DeschedulerPolicy, action: Evict, placer: Placer, usage: Usage) -> AnyStrategy | None:
    """The strategy that planned the move, on the picture as it is now; ``None`` where it has nothing to say."""
    enabled: dict[str, Any] = dict(policy.spec.strategies.enabled())
    for kind in IN_ORDER:
        asks = kind.no_longer is not Strategy.no_longer
        if asks and action.strategy == kind.NAME and kind.NAME in enabled:
            return kind(enabled[kind.NAME].params, Scope(policy.spec, placer.snapshot, usage=usage), placer)
    return None
