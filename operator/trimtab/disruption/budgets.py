"""Pod disruption budgets as a ledger: what a plan may still take from each.

The Eviction API decides in the end; the ledger says beforehand what it would decide, so that a plan never promises
what will be refused, and a simulation never shows it. The rules are those of the API server's eviction handler
(k8s.io/kubernetes v1.36 pkg/registry/core/pod/storage/eviction.go), read on the safe side where a status is stale.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from trimtab.api.reasons import DISRUPTION_BUDGET
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.background import REQUEST_EVICT_ONLY
from trimtab.disruption.refusal import Refusal
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Pod, PodDisruptionBudget
from trimtab.kube.rules.selectors import LabelMatcher, label_matcher

MAX_DISRUPTED_PODS: Final = 2000
"""Evictions that may await the disruption controller's notice; with more the API server grants none."""

ALWAYS_ALLOW: Final = "AlwaysAllow"


class BudgetLedger:
    """How many more disruptions each budget allows, as read from its status and lowered by what the plan takes.

    Args:
        snapshot: where the budgets are read, once: a plan is made on one picture.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._by_namespace: defaultdict[str, list[tuple[PodDisruptionBudget, LabelMatcher]]] = defaultdict(list)
        self._left: dict[str, int] = {}
        self._matching: dict[tuple[str, Labels], tuple[PodDisruptionBudget, ...]] = {}
        for key in sorted(snapshot.budgets):
            budget = snapshot.budgets[key]
            self._by_namespace[budget.namespace].append((budget, label_matcher(budget.selector)))
            self._left[key] = budget.disruptions_allowed

    def matching(self, pod: Pod) -> tuple[PodDisruptionBudget, ...]:
        """The budgets whose selector picks the pod, by name; a nil selector picks none, an empty one all."""
        budgets = self._by_namespace.get(pod.namespace)
        if not budgets:
            return ()
        key = (pod.namespace, pod.labels)
        found = self._matching.get(key)
        if found is None:
            found = self._matching[key] = tuple(budget for budget, matches in budgets if matches(pod.labels))
        return found

    def left(self, budget: PodDisruptionBudget) -> int:
        """How many disruptions the budget allows beyond those taken."""
        return self._left[budget.key]

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the API server would not evict the pod now, or ``None``."""
        if not self._left or not _guarded(pod):
            return None
        budgets = self.matching(pod)
        if not budgets:
            return None
        if len(budgets) > 1:
            names = ", ".join(budget.name for budget in budgets)
            return _refusal(
                f"{len(budgets)} PodDisruptionBudgets select the pod ({names}); the Eviction API grants none"
            )
        return self._refusal_of(budgets[0], pod)

    def take(self, pod: Pod) -> None:
        """Count the pod's eviction against its budget, where it costs one."""
        self._count(pod, 1)

    def take_back(self, pod: Pod) -> None:
        """Undo :meth:`take`."""
        self._count(pod, -1)

    def _count(self, pod: Pod, number: int) -> None:
        if not self._left or not _guarded(pod):
            return
        for budget in self.matching(pod):
            if pod.name not in budget.disrupted_pods and not _free(budget, pod):
                self._left[budget.key] -= number

    def _refusal_of(self, budget: PodDisruptionBudget, pod: Pod) -> Refusal | None:
        if pod.name in budget.disrupted_pods:
            # Counted already, by whoever evicted it; a second request would be counted a second time.
            return _refusal(f"PodDisruptionBudget {budget.name} has counted the pod as disrupted: its deletion is due")
        if _free(budget, pod):
            return None
        if _stale(budget):
            return _refusal(
                f"the status of PodDisruptionBudget {budget.name} is of generation {budget.observed_generation}, "
                f"its spec of {budget.generation}: what it allows is not known yet"
            )
        if len(budget.disrupted_pods) > MAX_DISRUPTED_PODS:
            return _refusal(
                f"{len(budget.disrupted_pods)} disruptions of PodDisruptionBudget {budget.name} await the disruption "
                f"controller; with more than {MAX_DISRUPTED_PODS} none is granted"
            )
        if self._left[budget.key] <= 0:
            return _refusal(self._exhausted(budget))
        return None

    def _exhausted(self, budget: PodDisruptionBudget) -> str:
        health = f"{budget.current_healthy} of {budget.expected_pods} pods healthy, {budget.desired_healthy} needed"
        if budget.disruptions_allowed <= 0:
            return f"PodDisruptionBudget {budget.name} allows no disruption ({health})"
        allowed, planned = budget.disruptions_allowed, budget.disruptions_allowed - self._left[budget.key]
        return (
            f"PodDisruptionBudget {budget.name} allows {allowed} disruption{'s' if allowed != 1 else ''} ({health}), "
            f"and {planned} {'are' if planned != 1 else 'is'} planned"
        )


def _guarded(pod: Pod) -> bool:
    """Whether budgets are asked at all: not for pods that are pending, at their end or going (``canIgnorePDB``).

    Nor for those whose eviction is only a request: the webhook that takes it over answers before budgets are looked
    at, and KubeVirt gives each machine a budget that allows nothing. Where nobody takes it over, the server decides.
    """
    if REQUEST_EVICT_ONLY in pod.annotations:
        return False
    return pod.phase not in {"Pending", "Succeeded", "Failed"} and pod.deleted is None


def _free(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Whether evicting the pod costs the budget nothing, because the pod is not healthy and the budget lets it go.

    Unhealthy is only who says so: a cluster file's pod may have a phase without a Ready condition, or no status at all,
    and is taken for healthy, though the API server would not. Where the status is stale, the API server goes on
    comparing its old numbers; we don't.
    """
    if not any(condition.type == "Ready" for condition in pod.conditions):  # kept only while it is not True
        return False
    if budget.unhealthy_pod_eviction_policy == ALWAYS_ALLOW:
        return True
    return not _stale(budget) and budget.current_healthy >= budget.desired_healthy > 0


def _stale(budget: PodDisruptionBudget) -> bool:
    return budget.observed_generation < budget.generation


def _refusal(message: str) -> Refusal:
    return Refusal(reason=DISRUPTION_BUDGET, message=message)
