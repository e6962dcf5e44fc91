"""Explains PodDisruptionBudgets: what they allow and why, and which evictions and node removals they block.

The numbers are those that the disruption controller wrote to the status, because the API server decides by them. Which
pods can be evicted is computed by the same :class:`~trimtab.disruption.budgets.BudgetLedger` that planners use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from trimtab.api import reasons
from trimtab.api.bounds import named, plural
from trimtab.disruption.budgets import ALWAYS_ALLOW, BudgetLedger, costs_nothing, guarded

if TYPE_CHECKING:
    from trimtab.api.plan import Kept, Plan
    from trimtab.autoscaling.groups import Groups
    from trimtab.autoscaling.scale_down.drainability import DrainContext
    from trimtab.autoscaling.scale_up import PlanInputs
    from trimtab.inspection.cluster import ClusterInput
    from trimtab.kube.objects import Pod, PodDisruptionBudget

Document = dict[str, Any]

_BY_BUDGET: Final = frozenset({reasons.DISRUPTION_BUDGET, reasons.NOT_ENOUGH_PDB})
"""Reason codes of plans for pods that a budget protects."""


def explain_pdb(cluster: ClusterInput, namespace: str, name: str, *, plan: Plan | None = None) -> Document:
    """Return what a PodDisruptionBudget allows and why, what it blocks, and what would unblock it, ready for JSON.

    Args:
        cluster: the cluster.
        namespace: the namespace of an existing PodDisruptionBudget.
        name: its name.
        plan: the joint plan of the cluster, if the caller has made it already.
    """
    budgets = _Budgets(cluster, plan)
    return budgets.document(cluster.snapshot.budgets[f"{namespace}/{name}"])


def explain_pdbs(cluster: ClusterInput, *, namespace: str | None = None, plan: Plan | None = None) -> Document:
    """Return the PodDisruptionBudgets that block something now or allow no disruption, ready for JSON.

    Args:
        cluster: the cluster.
        namespace: the only namespace to consider; ``None`` for all namespaces.
        plan: the joint plan of the cluster, if the caller has made it already.

    Returns:
        A document with ``budgets``, those that block most first, and the number of the ``others``.
    """
    found = [
        each
        for key, each in sorted(cluster.snapshot.budgets.items())
        if namespace is None or each.namespace == namespace
    ]
    budgets = _Budgets(cluster, plan)
    rows = [budgets.summary(each) for each in found]
    shown = [row for row in rows if row["reason"] != reasons.DISRUPTIONS_ALLOWED or _blocks(row)]
    shown = [row for row in shown if row["reason"] != reasons.SELECTS_NO_PODS]
    shown.sort(key=lambda row: (-row["nodes"] - row["evictions"], row["pdb"]))
    blocking = sum(map(_blocks, shown))
    return {
        "message": f"{blocking} of {len(rows)} PodDisruptionBudgets block evictions or node removals now, "
        f"and {sum(row['disruptionsAllowed'] <= 0 for row in shown)} allow no disruption",
        "budgets": shown,
        "others": len(rows) - len(shown),
    }


def _blocks(row: Mapping[str, Any]) -> bool:
    return bool(row["nodes"] or row["evictions"])


class _Budgets:
    """What the PodDisruptionBudgets of a cluster allow and block."""

    def __init__(self, cluster: ClusterInput, plan: Plan | None) -> None:
        self._cluster = cluster
        self._ledger = BudgetLedger(cluster.snapshot)
        self._pods: dict[str, list[Pod]] = {key: [] for key in cluster.snapshot.budgets}
        for _, pod in sorted(cluster.snapshot.pods.items()):
            if not self._ledger.any_in(pod.namespace) or pod.terminal:
                continue
            for budget in self._ledger.matching(pod):
                self._pods[budget.key].append(pod)
        self._kept = self._kept_by_pod(plan)
        self._blocked_nodes: dict[str, dict[str, str]] = {}

    def _kept_by_pod(self, plan: Plan | None) -> dict[str, list[Kept]]:
        from trimtab.inspection.planning import joint_plan

        found: dict[str, list[Kept]] = {}
        for each in (joint_plan(self._cluster) if plan is None else plan).kept:
            if each.kind == "Pod" and each.reason in _BY_BUDGET:
                found.setdefault(f"{each.namespace}/{each.name}", []).append(each)
        return found

    def document(self, budget: PodDisruptionBudget) -> Document:
        """Return everything about one budget."""
        pods = self._pods[budget.key]
        reason, message = self._verdict(budget)
        nodes = self._nodes_blocked_by(budget)
        overlapping = self._overlapping(budget)
        held = [
            {
                "pod": pod.key,
                "node": each.node or pod.node,
                "policy": each.policy,
                "strategy": each.strategy,
                "reason": each.reason,
                "message": each.message,
            }
            for pod in pods
            for each in self._kept.get(pod.key, ())
        ]
        healthy = sum(_counts_as_healthy(budget, pod) for pod in pods)
        return {
            "pdb": budget.key,
            "message": f"{message}; {_blocked_text(len(nodes), len(held))}",
            "reason": reason,
            "disruptionsAllowed": budget.disruptions_allowed,
            "expectedPods": budget.expected_pods,
            "currentHealthy": budget.current_healthy,
            "desiredHealthy": budget.desired_healthy,
            "disruptedPods": list(budget.disrupted_pods),
            "generation": budget.generation,
            "observedGeneration": budget.observed_generation,
            "unhealthyPodEvictionPolicy": budget.unhealthy_pod_eviction_policy or "IfHealthyBudget",
            "observed": {"pods": len(pods), "healthy": healthy},
            "notes": self._notes(budget, healthy),
            "evictable": len(self._evictable(budget)),
            "pods": [self._pod(budget, pod) for pod in pods],
            "overlapping": [{"pdb": key, "pods": names} for key, names in overlapping.items()],
            "blocksNodes": [
                {"node": node, "pods": list(blocked), "message": next(iter(blocked.values()))}
                for node, blocked in nodes.items()
            ],
            "heldEvictions": held,
            "remedies": _remedies(budget, reason, list(overlapping), unhealthy=_unhealthy_pods(budget, pods)),
        }

    def summary(self, budget: PodDisruptionBudget) -> Document:
        """Return one row of the table of budgets."""
        reason, message = self._verdict(budget)
        pods = self._pods[budget.key]
        return {
            "pdb": budget.key,
            "reason": reason,
            "message": message,
            "disruptionsAllowed": budget.disruptions_allowed,
            "expectedPods": budget.expected_pods,
            "currentHealthy": budget.current_healthy,
            "desiredHealthy": budget.desired_healthy,
            "pods": len(pods),
            "nodes": len(self._nodes_blocked_by(budget)),
            "evictions": sum(len(self._kept.get(pod.key, ())) for pod in pods),
        }

    def _verdict(self, budget: PodDisruptionBudget) -> tuple[str, str]:
        """Return what decides about evictions of the budget's pods: a reason code, and a sentence with the numbers."""
        pods = self._pods[budget.key]
        if not pods:
            return reasons.SELECTS_NO_PODS, "it selects no pods"
        if budget.observed_generation < budget.generation:
            message = f"its status is for generation {budget.observed_generation}, the spec has {budget.generation}"
            return reasons.BUDGET_STATUS_STALE, f"allows no disruption: {message}"
        if all(len(self._ledger.matching(pod)) > 1 for pod in pods):
            others = named([key.partition("/")[2] for key in self._overlapping(budget)])
            return reasons.OVERLAPPING_BUDGETS, f"allows no disruption: all its pods are also selected by {others}"
        if budget.expected_pods <= 0 and budget.disruptions_allowed <= 0:
            return reasons.NO_EXPECTED_PODS, f"allows no disruption: the status expects no pods, and {len(pods)} exist"
        return _verdict_by_numbers(budget)

    def _notes(self, budget: PodDisruptionBudget, healthy: int) -> list[str]:
        """Return hints that the status is out of date, and who else asks for evictions of the budget's pods."""
        found = []
        computed = max(0, budget.current_healthy - budget.desired_healthy) if budget.expected_pods > 0 else 0
        if budget.disruptions_allowed < computed:
            found.append(
                f"currentHealthy minus desiredHealthy is {computed}, and disruptionsAllowed is "
                f"{budget.disruptions_allowed}: the API server subtracted evictions that the disruption controller has "
                "not processed yet"
            )
        if healthy != budget.current_healthy:
            found.append(
                f"the status counts {plural(budget.current_healthy, 'healthy pod')}, the cluster has {healthy}: the "
                "disruption controller has not processed the latest changes yet"
            )
        return found + self._requests(budget)

    def _requests(self, budget: PodDisruptionBudget) -> list[str]:
        """Return the EvictionRequests of other components for the budget's pods."""
        from trimtab.kube.objects import PodEvictionRequest

        uids = {pod.uid: pod.name for pod in self._pods[budget.key]}
        return [
            f"EvictionRequest {each.name} of {each.requester} asks for the eviction of pod {uids[each.pod_uid]}"
            for _, each in sorted(self._cluster.snapshot.objects.of(PodEvictionRequest).items())
            if each.active and each.pod_uid in uids
        ]

    def _evictable(self, budget: PodDisruptionBudget) -> list[Pod]:
        """Return the pods that the Eviction API would evict one after another now."""
        taken = []
        for pod in self._pods[budget.key]:
            if guarded(pod) and self._ledger.refusal(pod) is None:
                self._ledger.take(pod)
                taken.append(pod)
        for pod in taken:
            self._ledger.take_back(pod)
        return taken

    def _pod(self, budget: PodDisruptionBudget, pod: Pod) -> Document:
        refusal = self._ledger.refusal(pod)
        return {
            "pod": pod.key,
            "node": pod.node,
            "healthy": _healthy(pod),
            "state": _state(budget, pod),
            "evictable": refusal is None,
            "free": guarded(pod) and costs_nothing(budget, pod),
            "message": "" if refusal is None else refusal.message,
        }

    def _overlapping(self, budget: PodDisruptionBudget) -> dict[str, list[str]]:
        """Return the pods of this budget that other budgets also select, by the keys of these budgets."""
        found: dict[str, list[str]] = {}
        for pod in self._pods[budget.key]:
            for other in self._ledger.matching(pod):
                if other.key != budget.key:
                    found.setdefault(other.key, []).append(pod.key)
        return dict(sorted(found.items()))

    def _nodes_blocked_by(self, budget: PodDisruptionBudget) -> dict[str, dict[str, str]]:
        """Return the nodes that scale-down cannot remove because of the budget, with the pods and messages."""
        found = {}
        for name in sorted({pod.node for pod in self._pods[budget.key] if pod.node}):
            blocked = self._blocked_by_budgets(name)
            own = {pod.key: blocked[pod.key] for pod in self._pods[budget.key] if pod.key in blocked}
            if own:
                found[name] = own
        return found

    def _blocked_by_budgets(self, node: str) -> dict[str, str]:
        """Return the pods of a node whose budgets prevent its removal; empty for nodes of no node group."""
        from trimtab.autoscaling.scale_down.removal_verdict import blocking_pods

        if self._cluster.policies.cluster_autoscaler is None or self._groups.group_of(node) is None:
            return {}
        if node not in self._blocked_nodes:
            spec = self._cluster.policies.cluster_autoscaler.spec
            found = blocking_pods(node, self._drain, spec)
            self._blocked_nodes[node] = {each.pod: each.message for each in found if each.reason in _BY_BUDGET}
        return self._blocked_nodes[node]

    @cached_property
    def _inputs(self) -> PlanInputs:
        return self._cluster.policies.autoscaling_inputs(now=self._cluster.now)

    @cached_property
    def _groups(self) -> Groups:
        return self._inputs.node_groups(self._cluster.snapshot)

    @cached_property
    def _drain(self) -> DrainContext:
        from trimtab.autoscaling.scale_down.removal_verdict import drain_context

        return drain_context(self._cluster.snapshot, self._inputs)


def _verdict_by_numbers(budget: PodDisruptionBudget) -> tuple[str, str]:
    """Return the verdict for a budget whose status is current."""
    desired, expected = budget.desired_healthy, budget.expected_pods
    numbers = f"{budget.current_healthy} of {expected} expected pods are healthy, {desired} must be"
    if budget.disruptions_allowed > 0:
        return reasons.DISRUPTIONS_ALLOWED, f"allows {plural(budget.disruptions_allowed, 'disruption')}: {numbers}"
    if desired >= expected:
        return reasons.ALL_PODS_REQUIRED, f"never allows a disruption: {numbers}"
    if budget.disrupted_pods:
        evicted = plural(len(budget.disrupted_pods), "evicted pod")
        return reasons.DISRUPTIONS_IN_PROGRESS, f"allows no disruption: {numbers}, and {evicted} must be replaced"
    return reasons.UNHEALTHY_PODS, f"allows no disruption: {numbers}"


def _healthy(pod: Pod) -> bool:
    """Return whether the pod is Ready. A Ready condition is in the snapshot only while it is not True."""
    return guarded(pod) and not any(each.type == "Ready" for each in pod.conditions)


def _counts_as_healthy(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Return whether the disruption controller counts the pod in ``status.currentHealthy``."""
    return _healthy(pod) and pod.name not in budget.disrupted_pods


def _unhealthy_pods(budget: PodDisruptionBudget, pods: Iterable[Pod]) -> list[str]:
    return [pod.key for pod in pods if not _counts_as_healthy(budget, pod)]


def _state(budget: PodDisruptionBudget, pod: Pod) -> str:
    if pod.deleted is not None:
        return "Terminating"
    if pod.name in budget.disrupted_pods:
        return "Evicted"
    if pod.phase == "Pending":
        return "Pending"
    return "Ready" if _healthy(pod) else "NotReady"


def _blocked_text(nodes: int, evictions: int) -> str:
    if not nodes and not evictions:
        return "it blocks nothing now"
    parts = []
    if nodes:
        parts.append(f"the removal of {plural(nodes, 'node')}")
    if evictions:
        parts.append(plural(evictions, "planned eviction"))
    return f"it blocks {' and '.join(parts)}"


def _remedies(
    budget: PodDisruptionBudget, reason: str, others: Sequence[str], *, unhealthy: Sequence[str]
) -> list[Document]:
    """Return what an administrator can do, most effective first; empty if the budget allows disruptions."""
    found: list[tuple[str, str]] = []
    if reason == reasons.BUDGET_STATUS_STALE:
        found.append(("CheckDisruptionController", "check that kube-controller-manager runs its disruption controller"))
    elif reason == reasons.OVERLAPPING_BUDGETS:
        names = [key.partition("/")[2] for key in others]
        found.append(
            ("ChangeSelector", f"change the selectors, so that either this budget or {named(names)} selects a pod")
        )
    elif reason == reasons.NO_EXPECTED_PODS:
        found.append(
            ("CheckControllers", "check that the pods have a controller with a scale subresource, or use minAvailable")
        )
    elif reason == reasons.ALL_PODS_REQUIRED:
        found.append(("AddReplicas", f"run at least {plural(budget.desired_healthy + 1, 'replica')}"))
        found.append(("RelaxBudget", f"require fewer than {plural(budget.expected_pods, 'healthy pod')}"))
    elif reason in (reasons.UNHEALTHY_PODS, reasons.DISRUPTIONS_IN_PROGRESS):
        missing = budget.desired_healthy + 1 - budget.current_healthy
        found.append(
            (
                "WaitForHealthyPods",
                f"{plural(missing, 'more pod')} must become healthy" + (f": {named(unhealthy)}" if unhealthy else ""),
            )
        )
    if unhealthy and reason == reasons.UNHEALTHY_PODS and budget.unhealthy_pod_eviction_policy != ALWAYS_ALLOW:
        message = "set unhealthyPodEvictionPolicy to AlwaysAllow, so that unhealthy pods can be evicted"
        found.append(("AllowUnhealthyPods", message))
    return [{"reason": code, "message": message} for code, message in found]
