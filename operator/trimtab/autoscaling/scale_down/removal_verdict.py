"""Explains for one node whether scale-down would remove it, with everything that prevents the removal."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.scale_down.drainability import DrainContext, DrainOutcome, block, judge, of_daemon_set
from trimtab.autoscaling.scale_down.equivalence import is_running, returns_to_unready_node
from trimtab.autoscaling.scale_down.planner import plan
from trimtab.autoscaling.scale_up import PlanInputs
from trimtab.cluster.disruption_signals import as_removed
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.replacements import differences
from trimtab.disruption.budgets import BudgetLedger
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer, hold_nominated

_BY_PODS: Final = frozenset(
    {
        reasons.BLOCKED_BY_POD,
        reasons.BLOCKED_BY_ON_COMPLETION_POD,
        reasons.HELD_TOO_LONG,
        reasons.NO_PLACE_TO_MOVE_PODS,
        reasons.REPLACEMENT_LARGER,
    }
)
"""Reasons of the planner that name the first of possibly several pods."""


class RemovalBlocker(Struct, frozen=True):
    """A reason why a node is not removed.

    Attributes:
        reason: code of :mod:`trimtab.api.reasons`.
        message: the details.
        pod: ``namespace/name`` of the pod that prevents the removal; empty if it is not a pod.
    """

    reason: str
    message: str
    pod: str = ""


class RemovalVerdict(Struct, frozen=True):
    """Whether scale-down would remove a node now.

    Attributes:
        removable: whether a plan for this node alone removes it.
        reason: code of :mod:`trimtab.api.reasons`.
        message: the details of the plan.
        blockers: everything that prevents the removal: the node's own state, then its pods by ``namespace/name``. Empty
            if the node is removable.
    """

    removable: bool
    reason: str
    message: str
    blockers: tuple[RemovalBlocker, ...] = ()


def removal_verdict(snapshot: Snapshot, inputs: PlanInputs, name: str) -> RemovalVerdict:
    """Determine whether scale-down would remove a node, and list all blockers instead of the first.

    Args:
        snapshot: the cluster state. It is changed and restored.
        inputs: the inputs of the autoscaling planners.
        name: the name of a node in the snapshot.
    """
    groups = inputs.node_groups(snapshot)
    made = plan(snapshot, groups, inputs.spec, now=inputs.now, status=inputs.status, only=[name])
    for action in made.actions:
        if action.node == name:
            return RemovalVerdict(True, action.reason, action.message)
    kept = next((each for each in made.kept if each.name == name), None)
    if kept is None:
        return RemovalVerdict(False, reasons.DISRUPTION_UNDERWAY, "the node is being removed")
    own = () if kept.reason in _BY_PODS else (RemovalBlocker(kept.reason, kept.message, kept.pod),)
    of_pods = blocking_pods(name, drain_context(snapshot, inputs), inputs.spec)
    if groups.group_of(name) is not None:
        of_pods += _pods_without_place(snapshot, inputs.spec, name, {each.pod for each in of_pods})
    found = (*own, *sorted(of_pods, key=lambda each: each.pod))
    if not found:  # the planner tries pods in another order, so that another pod may fit
        found = (RemovalBlocker(kept.reason, kept.message, kept.pod),)
    return RemovalVerdict(False, kept.reason, kept.message, found)


def drain_context(snapshot: Snapshot, inputs: PlanInputs) -> DrainContext:
    """Return the input of the drain rules, with a new ledger of the PodDisruptionBudgets."""
    local_storage = inputs.spec.skip_nodes_with_local_storage
    return DrainContext(snapshot, BudgetLedger(snapshot), inputs.now, local_storage_blocks=local_storage)


def blocking_pods(name: str, context: DrainContext, spec: ClusterAutoscalerSpec) -> list[RemovalBlocker]:
    """Return the pods of a node that the drain rules and PodDisruptionBudgets do not allow to evict.

    All pods of the node are evicted together, so a budget that allows fewer disruptions blocks the others.

    Args:
        name: the name of a node in the snapshot.
        context: the input of the drain rules. Its ledger is unchanged afterwards.
        spec: the spec of the ClusterAutoscaler.
    """
    found: list[RemovalBlocker] = []
    evicted: list[Pod] = []
    for pod in context.snapshot.pods_on(name):
        if pod.priority < spec.pod_priority_threshold:
            continue
        verdict = judge(pod, context)
        if verdict.outcome is DrainOutcome.SKIP or of_daemon_set(pod):
            continue
        if verdict.outcome is DrainOutcome.DRAIN and not pod.terminal:
            refusal = context.budgets.refusal(pod)
            if refusal is None:
                context.budgets.take(pod)
                evicted.append(pod)
            else:
                verdict = block(reasons.NOT_ENOUGH_PDB, refusal.message)
        if verdict.outcome is not DrainOutcome.DRAIN:
            found.append(RemovalBlocker(verdict.reason, verdict.message, pod.key))
    for pod in evicted:
        context.budgets.take_back(pod)
    return found


def _pods_without_place(
    snapshot: Snapshot, spec: ClusterAutoscalerSpec, name: str, blocked: set[str]
) -> list[RemovalBlocker]:
    """Return the pods that do not fit on other nodes, except blocked ones, if all pods of the node are moved."""
    found = []
    with snapshot.fork():
        hold_nominated(snapshot)
        placer = Placer(snapshot)
        running: list[Pod] = []
        waiting: list[Pod] = []
        for pod in snapshot.pods_on(name):
            moves = is_running(pod) and not of_daemon_set(pod) and pod.priority >= spec.pod_priority_threshold
            mirror = judge(pod, DrainContext(snapshot, BudgetLedger(snapshot), 0.0)).outcome is DrainOutcome.SKIP
            lost = returns_to_unready_node(pod, snapshot)
            unbound = placer.displace(pod)
            if moves and not mirror and not lost and pod.key not in blocked:
                running.append(pod)
                waiting.append(replace(unbound, phase="Pending", created=None))
        snapshot.put(as_removed(snapshot.nodes.node(snapshot.nodes.slot_of[name])))
        for pod, placement in zip(running, placer.place(waiting), strict=True):
            if placement.pod.node:
                continue
            differing = differences(pod, placement.pod)
            if differing and placer.feasible(replace(pod, node="")).any():
                message = f"its replacement will have {differing}: {placement.message}"
                found.append(RemovalBlocker(reasons.REPLACEMENT_LARGER, message, pod.key))
            else:
                found.append(RemovalBlocker(reasons.NO_PLACE_TO_MOVE_PODS, placement.message, pod.key))
    return found
