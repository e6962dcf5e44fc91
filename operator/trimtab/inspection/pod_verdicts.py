"""Explains for a pod with a node what would make it leave: policies, taints and the removal of its node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from trimtab.api import reasons
from trimtab.api.plan import Evict, Kept, Preempt, RemoveNode

if TYPE_CHECKING:
    from trimtab.api.descheduler_policy import DeschedulerPolicy
    from trimtab.api.plan import Plan
    from trimtab.disruption.protections.gate import Gate
    from trimtab.inspection.cluster import ClusterInput
    from trimtab.kube.objects import Pod

Document = dict[str, Any]

EVICT: Final = "Evict"
"""The plan evicts the pod."""
KEEP: Final = "Keep"
"""The strategy considered the pod as a candidate, and the plan does not evict it."""
NOT_CONSIDERED: Final = "NotConsidered"
"""The strategy evaluated the pods in the policy's scope, and found no reason to evict this one."""
OUT_OF_SCOPE: Final = "OutOfScope"
"""The policy does not select the pod or its node."""


def policy_verdicts(cluster: ClusterInput, plan: Plan, pod: Pod) -> list[Document]:
    """Return the verdict of each policy about a pod, by policy name.

    Each document has ``kind``, ``policy``, ``verdict``, ``strategies`` (each with ``strategy``, ``verdict``,
    ``reason``, ``message`` and ``target``), and for DeschedulerPolicies ``mode``, ``suspended`` and ``protections``.

    Args:
        cluster: the cluster.
        plan: the joint plan of the cluster.
        pod: a pod with a node.
    """
    from trimtab.disruption.protections.gate import Gate

    found = _strategies_by_policy(plan, pod)
    gate = Gate(cluster.snapshot, now=cluster.now, rollouts=cluster.rollouts)
    documents = [_descheduler(cluster, gate, policy, pod, found) for policy in cluster.policies.descheduler]
    others = [
        *(("NodePressurePolicy", each.name) for each in cluster.policies.pressure),
        *(("SchedulerPolicy", each.name) for each in cluster.policies.schedulers),
    ]
    for kind, name in others:
        strategies = found.get(name, [])
        documents.append({"kind": kind, "policy": name, "verdict": _verdict(strategies), "strategies": strategies})
    return documents


def _strategies_by_policy(plan: Plan, pod: Pod) -> dict[str, list[Document]]:
    """Return what the plan says about the pod, by the name of the policy."""
    found: dict[str, list[Document]] = {}
    for action in (*(plan.scheduling or ()), *plan.actions):
        if isinstance(action, Evict | Preempt) and (action.namespace, action.pod) == (pod.namespace, pod.name):
            target = action.target if isinstance(action, Evict) else ""
            strategy = action.strategy if isinstance(action, Evict) else "Scheduling"
            found.setdefault(action.policy, []).append(
                _strategy(strategy, EVICT, action.reason, action.message, target=target)
            )
    for kept in _kept_entries(plan, pod):
        if kept.policy and kept.strategy != "TaintManager":
            found.setdefault(kept.policy, []).append(
                _strategy(kept.strategy, KEEP, kept.reason, kept.message, target=kept.node)
            )
    return found


def _kept_entries(plan: Plan, pod: Pod) -> Iterable[Kept]:
    return (
        each for each in plan.kept if each.kind == "Pod" and (each.namespace, each.name) == (pod.namespace, pod.name)
    )


def _strategy(name: str, verdict: str, reason: str, message: str, *, target: str = "") -> Document:
    return {"strategy": name, "verdict": verdict, "reason": reason, "message": message, "target": target or None}


def _descheduler(
    cluster: ClusterInput, gate: Gate, policy: DeschedulerPolicy, pod: Pod, found: dict[str, list[Document]]
) -> Document:
    strategies = list(found.get(policy.name, ()))
    rules = gate.rules_for(policy.spec)
    outside = _outside(cluster, policy, pod)
    considered = {each["strategy"] for each in strategies}
    if not outside:
        strategies += [
            _strategy(name, NOT_CONSIDERED, "", "it found no reason to evict the pod")
            for name, _ in policy.spec.strategies.enabled()
            if name not in considered
        ]
    refusals = rules.protections(pod)
    return {
        "kind": "DeschedulerPolicy",
        "policy": policy.name,
        "mode": policy.spec.mode,
        "suspended": policy.spec.suspend,
        "verdict": OUT_OF_SCOPE if outside and not strategies else _verdict(strategies),
        "message": outside,
        "strategies": strategies,
        "protections": [{"reason": each.reason, "message": each.message} for each in refusals],
    }


def _outside(cluster: ClusterInput, policy: DeschedulerPolicy, pod: Pod) -> str:
    """Return why the pod is not in the policy's scope; empty if it is."""
    from trimtab.descheduling.planning.scope import PolicyScope

    scope = PolicyScope(policy.spec, cluster.snapshot, now=cluster.now)
    if not scope.covers(pod):
        return "the policy does not select the pod: see its namespaces, namespaceSelector and podSelector"
    slot = cluster.snapshot.nodes.slot_of.get(pod.node)
    if slot is not None and not scope.selected[slot]:
        return f"the policy's nodeSelector does not select node {pod.node}"
    return ""


def _verdict(strategies: Iterable[Document]) -> str:
    verdicts = {each["verdict"] for each in strategies}
    return next((each for each in (EVICT, KEEP) if each in verdicts), NOT_CONSIDERED)


def budget_documents(cluster: ClusterInput, pod: Pod) -> list[Document]:
    """Return the PodDisruptionBudgets that select a pod, and whether they allow its eviction now."""
    from trimtab.disruption.budgets import BudgetLedger

    ledger = BudgetLedger(cluster.snapshot)
    refusal = ledger.refusal(pod)
    return [
        {
            "pdb": budget.key,
            "disruptionsAllowed": budget.disruptions_allowed,
            "currentHealthy": budget.current_healthy,
            "desiredHealthy": budget.desired_healthy,
            "blocks": refusal is not None,
            "message": "" if refusal is None else refusal.message,
        }
        for budget in ledger.matching(pod)
    ]


def deadline_document(cluster: ClusterInput, plan: Plan, pod: Pod) -> Document | None:
    """Return when NoExecute taints evict the pod from its node; ``None`` if they do not."""
    from trimtab.inspection.node import KUBE_CONTROLLER_MANAGER, deadline_enforcer, deadlines_on

    manager = cluster.policies.taint_manager
    if manager is not None:
        enforcer = deadline_enforcer(manager)
        for each in plan.deletions or ():
            if (each.namespace, each.pod) == (pod.namespace, pod.name):
                taint = f"{each.taint.key}={each.taint.value}" if each.taint.value else each.taint.key
                return {
                    "due": each.due,
                    "how": "Delete" if enforcer == KUBE_CONTROLLER_MANAGER else each.how,
                    "by": enforcer,
                    "taint": f"{taint}:{each.taint.effect}",
                    "message": each.message,
                }
        return None
    node = cluster.snapshot.nodes.get(pod.node)
    found = [] if node is None else deadlines_on(cluster.snapshot, node, None, now=cluster.now)
    for document in found:
        if document["pod"] == pod.key:
            return {key: value for key, value in document.items() if key != "pod"}
    return None


def removal_document(cluster: ClusterInput, plan: Plan, pod: Pod) -> Document | None:
    """Return whether the pod's node is to be removed; ``None`` without a ClusterAutoscaler and without signs of it.

    The document has ``node``, ``planned``, ``underway``, ``reason``, ``message``, ``target`` (the node on which
    capacity for the pod is reserved) and ``blockedBy`` (the pod that prevents the removal).
    """
    from trimtab.cluster.disruption_signals import is_being_removed

    node = cluster.snapshot.nodes.get(pod.node)
    underway = node is not None and is_being_removed(node)
    document: Document = {
        "node": pod.node,
        "planned": False,
        "underway": underway,
        "reason": reasons.DISRUPTION_UNDERWAY if underway else "",
        "message": "the node is being removed" if underway else "",
        "target": None,
        "blockedBy": None,
    }
    for action in plan.scaling or ():
        if isinstance(action, RemoveNode) and action.node == pod.node:
            target = next((move.target for move in action.moves if move.pod == pod.key), None)
            return {
                **document,
                "planned": True,
                "reason": action.reason,
                "message": action.message,
                "target": target,
            }
    for kept in plan.kept:
        if kept.kind == "Node" and kept.name == pod.node and not kept.policy:
            return {**document, "reason": kept.reason, "message": kept.message, "blockedBy": kept.pod or None}
    return document if underway else None
