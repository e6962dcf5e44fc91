"""Plans what a SchedulerPolicy would do to a cluster: the scheduling part of ``trimtab plan``.

Pending pods that name the policy's scheduler are planned as one scheduling cycle, highest priority first. In addition,
each running pod that names the scheduler is evaluated as if it were pending. Pods that the policy would place on
another node are reported, but not moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from trimtab.api.plan import Bind, Kept, Preempt, Scheduling
from trimtab.api.reasons import NOMINATED, OTHER_NODE_PREFERRED, PREEMPTED, SCHEDULED, UNSCHEDULABLE
from trimtab.api.scheduler_policy import SchedulerPolicy
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer
from trimtab.scheduling import planner
from trimtab.scheduling.extender_verdicts import must_be_asked
from trimtab.scheduling.planner import CyclePlanner, Decision, batch_order, scheduler_of
from trimtab.scheduling.profiles import profile_of

STRATEGY: Final = "Scheduling"
"""The value of ``strategy`` in entries of ``kept``, where the descheduler writes the name of a strategy."""


class SchedulingPlan(Struct, frozen=True):
    """The scheduling part of a plan.

    Attributes:
        actions: pods to preempt and to bind, in the order of the queue.
        kept: pods that stay pending, and running pods that would be placed on other nodes.
    """

    actions: tuple[Scheduling, ...]
    kept: tuple[Kept, ...]


def plan_scheduling(snapshot: Snapshot, policies: Sequence[SchedulerPolicy]) -> SchedulingPlan:
    """Plan a cycle for the pending pods of the policies' schedulers.

    Capacity for the pods that fit stays reserved in the snapshot, so that later plans do not use it.

    Args:
        snapshot: the cluster. The caller must have forked it.
        policies: policies with different scheduler names.
    """
    by_scheduler = {policy.spec.scheduler_name: policy for policy in policies}
    placers = {name: Placer(snapshot, profile_of(policy.spec)) for name, policy in by_scheduler.items()}
    running = [
        pod
        for _, pod in sorted(snapshot.pods.items())
        if pod.node in snapshot.nodes.slot_of
        and not pod.terminal
        and pod.deleted is None
        and scheduler_of(pod) in placers
    ]
    placed_again = [_placed_again(placers[scheduler_of(pod)], pod, by_scheduler) for pod in running]
    elsewhere = [found for found in placed_again if found is not None]
    pending = [
        pod
        for _, pod in snapshot.unbound()
        if not pod.terminal and pod.deleted is None and scheduler_of(pod) in placers
    ]
    pending.sort(key=lambda pod: (batch_order(pod), pod.created or 0.0, pod.key))
    decisions = CyclePlanner(snapshot, placers).plan(pending)
    actions: list[Scheduling] = []
    kept: list[Kept] = []
    for decision in decisions:
        policy = by_scheduler[scheduler_of(decision.pod)]
        name = policy.name
        actions += _actions(decision, policy)
        if isinstance(decision, planner.Reject):
            kept.append(_kept(decision, name))
    return SchedulingPlan(tuple(actions), (*kept, *elsewhere))


def _actions(decision: Decision, policy: SchedulerPolicy) -> list[Scheduling]:
    pod, name = decision.pod, policy.name
    if isinstance(decision, planner.Bind):
        many = decision.feasible > 1
        message = f"highest score of {decision.feasible} feasible nodes" if many else "the only feasible node"
        if any(must_be_asked(extender, pod) for extender in policy.spec.extenders):
            message += "; scheduler extenders were not asked"
        return [Bind(name, pod.namespace, pod.name, decision.node, SCHEDULED, message, pod.uid)]
    preemption = decision.preemption
    if preemption is None:
        return []
    return [
        Preempt(
            name,
            victim.namespace,
            victim.name,
            preemption.node,
            pod.key,
            PREEMPTED,
            f"priority {victim.priority} is below {pod.priority} of {pod.key}, which fits on no node",
            victim.uid,
        )
        for victim in preemption.victims
    ]


def _kept(decision: planner.Reject, policy: str) -> Kept:
    pod, preemption = decision.pod, decision.preemption
    reason, node = (UNSCHEDULABLE, "") if preemption is None else (NOMINATED, preemption.node)
    return Kept("Pod", pod.namespace, pod.name, STRATEGY, reason, decision.message, policy=policy, node=node)


def _placed_again(placer: Placer, pod: Pod, policies: dict[str, SchedulerPolicy]) -> Kept | None:
    """Return an entry if the policy would move a running pod to another node; ``None`` if no node scores higher."""
    snapshot = placer.snapshot
    with snapshot.fork():
        pending = placer.unbind(pod)
        feasible = placer.feasible(pending)
        totals = placer.scorer.totals(pending, feasible)
        slot, highest = snapshot.nodes.slot_of[pod.node], totals.max()
        if highest < 0:
            message = placer.unschedulable_message(pending)
        elif totals[slot] == highest:
            return None
        else:
            best = placer.scorer.best(pending, feasible)[0]
            current = f"{pod.node} scores {totals[slot]}" if feasible[slot] else f"{pod.node} is not feasible"
            message = f"{snapshot.nodes.node(best).name} scores {highest}, {current}"
    policy = policies[scheduler_of(pod)].name
    return Kept("Pod", pod.namespace, pod.name, STRATEGY, OTHER_NODE_PREFERRED, message, policy=policy, node=pod.node)
