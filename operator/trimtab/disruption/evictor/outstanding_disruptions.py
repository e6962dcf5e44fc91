"""Tracks disruptions that the status of their PodDisruptionBudget does not show yet.

Before it grants an eviction, the API server lowers ``status.disruptionsAllowed`` and adds the pod to
``status.disruptedPods`` in one write, but the watch delivers that status later. Until then, two requesters could both
rely on the same allowed disruption. Therefore a disruption is treated as outstanding from immediately before its
request until the watch shows it. If no disruption is outstanding, the request is sent and the API server decides.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.disruption.budgets import costs_nothing, guarded
from trimtab.disruption.evictor.requests import Requester
from trimtab.kube.objects import Pod, PodDisruptionBudget
from trimtab.kube.rules.selectors import LabelMatcher, label_matcher

WATCH_LAG: Final = 10.0
"""Seconds after which a granted disruption that the watch has not shown is no longer outstanding.

The watch may never show it, because a relist may skip that status.
"""


class OutstandingDisruption(Struct):
    """A disruption that the watch does not show yet.

    Attributes:
        pod: name of the pod.
        requester: the requester of the eviction.
        until: expiry in seconds on the monotonic clock; ``None`` until the API server responds to the request.
    """

    pod: str
    requester: Requester
    until: float | None = None


class BudgetExhausted(Struct, frozen=True):
    """A PodDisruptionBudget that outstanding disruptions may have used up, and the requester of the last of them."""

    message: str
    requester: Requester


class OutstandingDisruptions:
    """Tracks the outstanding disruptions of all PodDisruptionBudgets.

    The watch events of PodDisruptionBudgets must be passed to :meth:`budget_changed`.
    """

    def __init__(self) -> None:
        self._budgets: dict[str, dict[str, tuple[PodDisruptionBudget, LabelMatcher]]] = {}
        self._outstanding_by_budget: dict[
            str, dict[str, OutstandingDisruption]
        ] = {}  # by the budget's key, then by the pod's UID

    def budget_changed(self, old: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> None:
        """Process an added, changed or removed PodDisruptionBudget."""
        if new is None:
            if old is not None:
                self._budgets.get(old.namespace, {}).pop(old.name, None)
                self._outstanding_by_budget.pop(old.key, None)
            return
        self._budgets.setdefault(new.namespace, {})[new.name] = new, label_matcher(new.selector)
        spent = self._outstanding_by_budget.get(new.key)
        if spent:
            self._store(new.key, {uid: each for uid, each in spent.items() if each.pod not in new.disrupted_pods})

    def exhausted(self, pod: Pod, *, now: float) -> BudgetExhausted | None:
        """Return the pod's PodDisruptionBudget if outstanding disruptions of other pods may have used it up.

        Otherwise the result is ``None``.

        Args:
            pod: the pod to evict.
            now: seconds on the monotonic clock.
        """
        budget = self.budget_of(pod)
        if budget is None:
            return None
        spent = self._outstanding(budget.key, now)
        others = [each for uid, each in spent.items() if uid != pod.uid]
        if not others or budget.disruptions_allowed > len(others):
            return None
        message = (
            f"PodDisruptionBudget {budget.name} allows {budget.disruptions_allowed} disruptions, and its status does "
            f"not show {len(others)} outstanding evictions yet, the last of {others[-1].pod}"
        )
        return BudgetExhausted(message, others[-1].requester)

    def outstanding(self, budget: PodDisruptionBudget, pod: Pod, *, now: float) -> int:
        """Return the number of outstanding disruptions of a budget, without that of the pod."""
        return sum(uid != pod.uid for uid in self._outstanding(budget.key, now))

    def hold(self, pod: Pod, requester: Requester) -> None:
        """Record the outstanding disruption of an eviction that is about to be requested."""
        budget = self.budget_of(pod)
        if budget is not None and pod.name not in budget.disrupted_pods:
            self._outstanding_by_budget.setdefault(budget.key, {})[pod.uid] = OutstandingDisruption(pod.name, requester)

    def granted(self, pod: Pod, *, now: float) -> None:
        """Record that the eviction was granted. Its disruption stays outstanding until the budget's status shows it."""
        for spent in self._entries_of(pod):
            spent[pod.uid].until = now + WATCH_LAG

    def release(self, pod: Pod) -> None:
        """Drop the disruption of an eviction that was not granted."""
        for key in [key for key, spent in self._outstanding_by_budget.items() if pod.uid in spent]:
            left = {uid: each for uid, each in self._outstanding_by_budget[key].items() if uid != pod.uid}
            self._store(key, left)

    def _entries_of(self, pod: Pod) -> list[dict[str, OutstandingDisruption]]:
        return [spent for spent in self._outstanding_by_budget.values() if pod.uid in spent]

    def _outstanding(self, key: str, now: float) -> dict[str, OutstandingDisruption]:
        spent = self._outstanding_by_budget.get(key, {})
        left = {uid: each for uid, each in spent.items() if each.until is None or each.until > now}
        if len(left) < len(spent):
            self._store(key, left)
        return left

    def _store(self, key: str, spent: dict[str, OutstandingDisruption]) -> None:
        if spent:
            self._outstanding_by_budget[key] = spent
        else:
            self._outstanding_by_budget.pop(key, None)

    def budget_of(self, pod: Pod) -> PodDisruptionBudget | None:
        """Return the PodDisruptionBudget that the pod's eviction counts against.

        The result is ``None`` if no budget applies to the pod, and also if several do, because the API server then
        refuses the eviction.
        """
        if not guarded(pod):
            return None
        matching = [budget for budget, matches in self._budgets.get(pod.namespace, {}).values() if matches(pod.labels)]
        if len(matching) != 1 or costs_nothing(matching[0], pod):
            return None
        return matching[0]
