"""Lists the pods that are never evicted, grouped by the reason: protections, drain rules and PodDisruptionBudgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from trimtab.api import reasons
from trimtab.api.bounds import plural
from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.strategies import Strategies
from trimtab.disruption.outcome import Refusal
from trimtab.disruption.protections.gate import Gate

if TYPE_CHECKING:
    from trimtab.disruption.budgets import BudgetLedger
    from trimtab.inspection.cluster import ClusterInput
    from trimtab.kube.objects import Pod, PodDisruptionBudget

Document = dict[str, Any]

TEMPORARY: Final = frozenset(
    {
        reasons.TERMINATING,
        reasons.TERMINAL,
        reasons.POD_STARTING,
        reasons.POD_TOO_YOUNG,
        reasons.ROLLOUT_IN_PROGRESS,
    }
)
"""Protections that end by themselves. Pods with one of them are counted, and not listed."""

Check = Callable[["Pod"], Refusal | None]


def explain_protections(cluster: ClusterInput, *, namespace: str | None = None) -> Document:
    """Return the pods that are never evicted, by policy and reason, ready for JSON.

    A pod is listed for a policy if its protections, or PodDisruptionBudgets, prevent that the policy ever evicts it:
    a budget that requires all its pods, or several budgets that select the pod. Scale-down is listed if there is a
    ClusterAutoscaler. Pods of a DeschedulerPolicy are judged without its namespaces and label selectors. Without a
    DeschedulerPolicy, the default protections apply.

    Args:
        cluster: the cluster.
        namespace: the only namespace to consider; ``None`` for all namespaces.
    """
    pods = [
        pod
        for _, pod in sorted(cluster.snapshot.pods.items())
        if pod.node and not pod.terminal and namespace in (None, pod.namespace)
    ]
    gate = Gate(cluster.snapshot, now=cluster.now, rollouts=cluster.rollouts)
    controllers: list[tuple[str, Check]] = [
        (f"DeschedulerPolicy {policy.name}", _descheduling_check(gate, policy.spec))
        for policy in cluster.policies.descheduler
    ]
    if not controllers:
        controllers = [("default protections", _descheduling_check(gate, DeschedulerPolicySpec(Strategies())))]
    autoscaler = cluster.policies.cluster_autoscaler
    if autoscaler is not None and autoscaler.spec.scaling_down.enabled:
        controllers.append(("scale-down", _drain_check(cluster, gate.budgets)))
    groups = [_of_controller(name, check, pods) for name, check in controllers]
    times = Counter(each["pod"] for found in groups for group in found["groups"] for each in group["pods"])
    everywhere = sum(number == len(groups) for number in times.values())
    return {
        "message": f"{everywhere} of {plural(len(pods), 'pod')} with a node are never evicted",
        "pods": len(pods),
        "neverEvicted": everywhere,
        "controllers": groups,
    }


def _of_controller(name: str, check: Check, pods: Iterable[Pod]) -> Document:
    groups: dict[str, list[Document]] = {}
    temporary = 0
    for pod in pods:
        found = check(pod)
        if found is not None and found.reason in TEMPORARY:
            temporary += 1
        elif found is not None:
            groups.setdefault(found.reason, []).append({"pod": pod.key, "node": pod.node, "message": found.message})
    return {
        "controller": name,
        "temporary": temporary,
        "groups": [
            {"reason": reason, "pods": found}
            for reason, found in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
        ],
    }


def _descheduling_check(gate: Gate, spec: DeschedulerPolicySpec) -> Check:
    protected = gate.rules_for(spec).protected

    def check(pod: Pod) -> Refusal | None:
        return protected(pod) or _refusal_by_budget(gate.budgets.matching(pod))

    return check


def _drain_check(cluster: ClusterInput, budgets: BudgetLedger) -> Check:
    """Return the check whether a pod always blocks the removal of its node."""
    from trimtab.autoscaling.scale_down.drainability import DrainOutcome, judge, of_daemon_set
    from trimtab.autoscaling.scale_down.removal_verdict import drain_context

    inputs = cluster.policies.autoscaling_inputs(now=cluster.now)
    context = drain_context(cluster.snapshot, inputs)

    def check(pod: Pod) -> Refusal | None:
        verdict = judge(pod, context)
        if verdict.outcome is DrainOutcome.SKIP or of_daemon_set(pod):
            return None  # the pod is deleted with its node
        if pod.priority < inputs.spec.pod_priority_threshold:
            return None
        if verdict.outcome is DrainOutcome.DRAIN or verdict.reason == reasons.NOT_ENOUGH_PDB:
            return _refusal_by_budget(budgets.matching(pod))
        return Refusal(verdict.reason, verdict.message)

    return check


def _refusal_by_budget(budgets: tuple[PodDisruptionBudget, ...]) -> Refusal | None:
    """Return why budgets never allow the eviction of a pod; ``None`` if they allow it now or later."""
    if len(budgets) > 1:
        names = ", ".join(budget.name for budget in budgets)
        return Refusal(reasons.OVERLAPPING_BUDGETS, f"several PodDisruptionBudgets select the pod: {names}")
    for budget in budgets:
        needed, expected = budget.desired_healthy, budget.expected_pods
        if budget.disruptions_allowed <= 0 and needed >= expected > 0:
            message = f"PodDisruptionBudget {budget.name} requires {needed} healthy pods of {expected}"
            return Refusal(reasons.ALL_PODS_REQUIRED, message)
    return None
