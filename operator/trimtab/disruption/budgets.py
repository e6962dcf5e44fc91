"""Tracks how many more disruptions each PodDisruptionBudget allows a plan.

The API server decides when it receives the eviction. :class:`BudgetLedger` predicts that decision, so that a plan
contains no eviction that the API server will refuse. The rules are those of the API server's eviction handler
(k8s.io/kubernetes v1.36 pkg/registry/core/pod/storage/eviction.go). If a status is stale, the safer choice is made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from typing import TYPE_CHECKING, Final

from trimtab.api.reasons import DISRUPTION_BUDGET
from trimtab.disruption.background_evictions import REQUEST_EVICT_ONLY
from trimtab.disruption.outcome import Refusal
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Pod, PodDisruptionBudget
from trimtab.kube.rules.selectors import LabelMatcher, label_matcher

if TYPE_CHECKING:
    from trimtab.cluster.snapshot import Snapshot

MAX_DISRUPTED_PODS: Final = 2000
"""Maximum number of entries in a budget's ``status.disruptedPods``. Above it, the API server refuses evictions."""

ALWAYS_ALLOW: Final = "AlwaysAllow"


class BudgetLedger:
    """Computes how many more disruptions each budget allows: the number in its status minus the planned evictions.

    Args:
        snapshot: the cluster state. The budgets are read from it once, because a plan is made on one snapshot.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._by_namespace: defaultdict[str, list[tuple[PodDisruptionBudget, LabelMatcher]]] = defaultdict(list)
        self._left: dict[str, int] = {}
        self._matching: dict[tuple[str, Labels], tuple[PodDisruptionBudget, ...]] = {}
        for key in sorted(snapshot.budgets):
            budget = snapshot.budgets[key]
            self._by_namespace[budget.namespace].append((budget, label_matcher(budget.selector)))
            self._left[key] = budget.disruptions_allowed
        snapshot.nodes.caches.add(self)

    def forget_removed(self, used: Set[int]) -> None:  # noqa: ARG002 - the keys are labels
        """See :class:`~trimtab.cluster.node_table.SpecCache`."""
        self._matching.clear()

    def matching(self, pod: Pod) -> tuple[PodDisruptionBudget, ...]:
        """Return the budgets whose selector matches the pod, sorted by name.

        A budget without a selector matches no pod. An empty selector matches all pods of the namespace.
        """
        budgets = self._by_namespace.get(pod.namespace)
        if not budgets:
            return ()
        key = (pod.namespace, pod.labels)
        found = self._matching.get(key)
        if found is None:
            found = self._matching[key] = tuple(budget for budget, matches in budgets if matches(pod.labels))
        return found

    def any_in(self, namespace: str) -> bool:
        """Return whether the namespace contains any budgets."""
        return namespace in self._by_namespace

    def left(self, budget: PodDisruptionBudget) -> int:
        """Return how many disruptions the budget allows in addition to the planned evictions."""
        return self._left[budget.key]

    def refusal(self, pod: Pod) -> Refusal | None:
        """Return the reason why the API server would refuse to evict the pod now; ``None`` if it would not refuse."""
        if not self._left or not guarded(pod):
            return None
        budgets = self.matching(pod)
        if not budgets:
            return None
        if len(budgets) > 1:
            names = ", ".join(budget.name for budget in budgets)
            return _refusal(
                f"{len(budgets)} PodDisruptionBudgets select the pod ({names}), so the Eviction API refuses to evict it"
            )
        return self._refusal_of(budgets[0], pod)

    def take(self, pod: Pod) -> None:
        """Count the pod's eviction against its budget, if it uses one."""
        self._count(pod, 1)

    def take_back(self, pod: Pod) -> None:
        """Undo :meth:`take`."""
        self._count(pod, -1)

    def _count(self, pod: Pod, number: int) -> None:
        if not self._left or not guarded(pod):
            return
        for budget in self.matching(pod):
            if pod.name not in budget.disrupted_pods and not costs_nothing(budget, pod):
                self._left[budget.key] -= number

    def _refusal_of(self, budget: PodDisruptionBudget, pod: Pod) -> Refusal | None:
        if pod.name in budget.disrupted_pods:
            # The budget's status already counts an earlier eviction of this pod; a second request would be counted
            # again.
            return _refusal(f"PodDisruptionBudget {budget.name} has already counted the pod as disrupted")
        if costs_nothing(budget, pod):
            return None
        if _stale(budget):
            return _refusal(
                f"the status of PodDisruptionBudget {budget.name} is stale (generation {budget.observed_generation}, "
                f"the spec has {budget.generation}): what it allows is unknown"
            )
        if len(budget.disrupted_pods) > MAX_DISRUPTED_PODS:
            return _refusal(
                f"{len(budget.disrupted_pods)} disruptions of PodDisruptionBudget {budget.name} await the disruption "
                f"controller; with more than {MAX_DISRUPTED_PODS} every eviction is refused"
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


def guarded(pod: Pod) -> bool:
    """Return whether budgets apply to the pod.

    Budgets do not apply to pending, terminal and terminating pods (upstream's ``canIgnorePDB``). They also do not apply
    if another component carries out the eviction. Its webhook responds before budgets are checked, and KubeVirt creates
    a budget for each virtual machine that allows no disruption. If there is no such webhook after all, the API server
    decides.
    """
    if REQUEST_EVICT_ONLY in pod.annotations:
        return False
    return pod.phase not in {"Pending", "Succeeded", "Failed"} and pod.deleted is None


def costs_nothing(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Return whether evicting the pod does not count against the budget.

    This is the case if the pod is unhealthy and the budget's ``unhealthyPodEvictionPolicy`` allows its eviction.

    A pod without a Ready condition, as in a cluster file, is treated as healthy here, though not by the API server.
    Unlike the API server, this function does not use the numbers in a stale status.
    """
    if not any(
        condition.type == "Ready" for condition in pod.conditions
    ):  # a pod's Ready condition is cached only while it is not True
        return False
    if budget.unhealthy_pod_eviction_policy == ALWAYS_ALLOW:
        return True
    return not _stale(budget) and budget.current_healthy >= budget.desired_healthy > 0


def _stale(budget: PodDisruptionBudget) -> bool:
    return budget.observed_generation < budget.generation


def _refusal(message: str) -> Refusal:
    return Refusal(reason=DISRUPTION_BUDGET, message=message)
