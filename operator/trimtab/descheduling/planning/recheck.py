"""Validates a planned move again on the current snapshot, immediately before the eviction."""

from __future__ import annotations

from typing import Any

from trimtab.api import reasons
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.descheduler_status import EvictionMemory
from trimtab.api.plan import SURGE, Evict
from trimtab.cluster.disruption_signals import pending_termination
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage.measurement import Usage
from trimtab.cluster.workloads.rollouts import Rollouts
from trimtab.descheduling.memory.holds import held_too_long
from trimtab.descheduling.planning.scope import PolicyScope
from trimtab.descheduling.strategies.registry import IN_ORDER, IN_PLACE
from trimtab.descheduling.strategies.strategy import AnyStrategy, Strategy
from trimtab.disruption.evictor.requests import EVICTION_CONDITION
from trimtab.disruption.outcome import Refusal
from trimtab.disruption.protections.gate import Gate
from trimtab.placement.placer import Placer, hold_nominated


def recheck_move(
    snapshot: Snapshot,
    policy: DeschedulerPolicy,
    action: Evict,
    now: float,
    *,
    usage: Usage | None = None,
    rollouts: Rollouts | None = None,
    memory: EvictionMemory | None = None,
) -> Refusal | None:
    """Return the reason why a planned move is not valid on the current snapshot; ``None`` if it is valid.

    The planned target need not be available, because the scheduler chooses the node. But some node must be able to run
    the pod, and it must not be the pod's current node unless the strategy only restarts pods. Terminated pods need no
    node. If utilization was measured, the move must still be useful to the strategy.

    Args:
        snapshot: the current snapshot.
        policy: the policy.
        action: the planned eviction.
        now: seconds since the epoch.
        usage: the last measurement; ``None`` if the policy does not use measured utilization.
        rollouts: the Deployments at planning time, for a policy with ``singleReplica: Surge``; the executor reads the
            Deployment again before it restarts it.
        memory: the policy's memory, which records since when annotations have protected pods.
    """
    pod = snapshot.pods.get(action.key)
    if pod is None or pod.node != action.node:
        return Refusal(reasons.PLAN_OUTDATED, f"the pod is no longer on {action.node}")
    rules = Gate(snapshot, now=now, rollouts=rollouts).rules_for(
        policy.spec, held_too_long(memory or EvictionMemory(), policy.spec, now=now)
    )
    if not action.target:
        return rules.protected_from_removal(pod)
    protected = rules.protected(pod)
    if protected is not None:
        return protected
    # An eviction that the API server accepted but did not complete leaves DisruptionTarget on the pod. Continue it.
    ending = pending_termination(pod, snapshot.nodes.get(pod.node), now=now, but=EVICTION_CONDITION[1])
    if ending is not None:
        return Refusal(ending.reason, ending.message)
    surges = action.how == SURGE
    if surges != rules.surges(pod):
        change = (
            "is no longer the only replica of its Deployment"
            if surges
            else "has become the only replica of its Deployment"
        )
        return Refusal(reasons.PLAN_OUTDATED, f"the pod {change}")
    with snapshot.fork():
        hold_nominated(snapshot)
        placer = Placer(snapshot)
        source = snapshot.slot(pod)
        strategy = None if usage is None else _strategy(policy, action, placer, usage)
        lifted = placer.replacement(pod) if rules.stays_until_replaced(pod) else placer.displace(pod)
        places = placer.feasible(lifted)
        if source is not None and action.strategy not in IN_PLACE:
            places[source] = False
        if not places.any():
            return Refusal(reasons.NO_PLACE, placer.unschedulable_message(lifted))
    return None if strategy is None else strategy.recheck(pod, places)


def _strategy(policy: DeschedulerPolicy, action: Evict, placer: Placer, usage: Usage) -> AnyStrategy | None:
    """Return the strategy that planned the move, for the current snapshot; ``None`` if it does not recheck moves."""
    enabled: dict[str, Any] = dict(policy.spec.strategies.enabled())
    for kind in IN_ORDER:
        asks = kind.recheck is not Strategy.recheck
        if asks and action.strategy == kind.NAME and kind.NAME in enabled:
            return kind(enabled[kind.NAME].params, PolicyScope(policy.spec, placer.snapshot, usage=usage), placer)
    return None
