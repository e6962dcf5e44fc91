"""The look at a planned move right before it is made, on the picture as it is by then."""

from __future__ import annotations

from trimtab.api import reasons
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.plan import Evict
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.strategies.registry import IN_PLACE
from trimtab.disruption.gate import Gate
from trimtab.disruption.refusal import Refusal
from trimtab.placement.placer import Placer


def still_holds(snapshot: Snapshot, policy: DeschedulerPolicy, action: Evict, now: float) -> Refusal | None:
    """Judge a planned move again on another picture; ``None`` where it still holds.

    The expected target need not be the same: the scheduler chooses. But some node must take it, and one other than the
    pod's, unless the strategy only wants the pod to start anew. What has run to its end needs no node.
    """
    pod = snapshot.pods.get(action.key)
    if pod is None or pod.node != action.node:
        return Refusal(reasons.PLAN_OUTDATED, f"the pod is no longer on {action.node}")
    rules = Gate(snapshot, now=now).rules_for(policy.spec)
    if not action.target:
        return rules.protected_from_removal(pod)
    protected = rules.protected(pod)
    if protected is not None:
        return protected
    with snapshot.fork():
        placer = Placer(snapshot)
        source = snapshot.slot(pod)
        lifted = placer.lift(pod)
        places = placer.feasible(lifted)
        if source is not None and action.strategy not in IN_PLACE:
            places[source] = False
        if places.any():
            return None
        return Refusal(reasons.NO_PLACE, placer.why_not(lifted))
