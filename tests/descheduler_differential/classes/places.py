"""Unplaceable pods, pods that a budget or a limit blocks, and nodes that one side ignores."""

from __future__ import annotations

from typing import Final

from tests.descheduler_differential.case import Case, Difference
from tests.descheduler_differential.classes.difference_class import DifferenceClass
from trimtab.api import reasons
from trimtab.descheduling.planning.planner import plan_evictions
from trimtab.kube.rules.selectors import label_matcher

RESTARTS: Final = frozenset({"RemovePodsHavingTooManyRestarts"})
IN_PLACE: Final = RESTARTS | {"PodLifeTime"}
"""Strategies after which a pod may be placed on its own node again."""

LIMITS: Final = {
    "maxNoOfPodsToEvictPerNode": "node",
    "maxNoOfPodsToEvictPerNamespace": "namespace",
    "maxNoOfPodsToEvictTotal": "",
}
"""The limits of a policy, and the pod attribute by which each is counted."""


def _place_first(case: Case, difference: Difference) -> bool:
    """No node fits the pod by kube-scheduler's filters in the unchanged cluster."""
    home = difference.strategy in IN_PLACE
    return case.reason(difference) == reasons.NO_PLACE and not case.fitting_nodes(difference, after=False, home=home)


def _place_reserved(case: Case, difference: Difference) -> bool:
    """A node fits the pod in the unchanged cluster, and none fits it after the planned moves."""
    home = difference.strategy in IN_PLACE
    if case.reason(difference) != reasons.NO_PLACE or not case.fitting_nodes(difference, after=False, home=home):
        return False
    return not case.fitting_nodes(difference, after=True, home=home)


def _strictly_better(case: Case, difference: Difference) -> bool:
    """Nodes fit the pod, but every move increases another strategy's measure or does not lower this one's."""
    return case.reason(difference) == reasons.NO_IMPROVEMENT and not case.improving_nodes(difference)


def _budget_read(case: Case, difference: Difference) -> bool:
    """A budget that selects the pod is used up by trimtab's plan, or two budgets select the pod."""
    if case.reason(difference) != reasons.DISRUPTION_BUDGET:
        return False
    pod, snapshot = case.pod(difference.pod), case.trimtab.snapshot
    budgets = [budget for budget in snapshot.budgets.values() if budget.namespace == pod.namespace]
    picking = [budget for budget in budgets if label_matcher(budget.selector)(pod.labels)]
    taken = [snapshot.pods[name] for name in case.trimtab.moves]
    spent = [
        sum(other.namespace == pod.namespace and label_matcher(budget.selector)(other.labels) for other in taken)
        for budget in picking
    ]
    left = [budget.disruptions_allowed - number for budget, number in zip(picking, spent, strict=True)]
    return len(picking) > 1 or any(number <= 0 for number in left)


def limited(case: Case, difference: Difference) -> bool:
    """Whether the side that keeps the pod has reached a limit that applies to the pod."""
    pod = case.pod(difference.pod)
    for key, part in LIMITS.items():
        if key not in case.policy:
            continue
        if difference.side == "descheduler":
            used = [(move.node, move.namespace) for move in case.trimtab.moves.values()]
        else:
            used = [(each.node, each.pod.split("/")[0]) for each in case.descheduler.values()]
        alike = [each for each in used if not part or each[0 if part == "node" else 1] == getattr(pod, part)]
        if len(alike) >= case.policy[key]:
            return True
    return False


def _limit_spent(case: Case, difference: Difference) -> bool:
    """Evictions of other pods reached a limit; the order of candidates decides which pods are evicted."""
    if difference.side == "descheduler" and case.reason(difference) not in ("", reasons.LIMIT_REACHED):
        return False
    return limited(case, difference)


def _limit_of_each(case: Case, difference: Difference) -> bool:
    """The file is imported as several policies, each with its own limit, which together exceed the file's limit."""
    alike = [move.policy for move in case.trimtab.moves.values()]
    return (
        limited(case, difference)
        and len(set(alike)) > 1
        and len(alike) > min(case.policy[key] for key in LIMITS if key in case.policy)
    )


def _nodes_not_ready(case: Case, difference: Difference) -> bool:
    return not case.is_ready(case.pod(difference.pod).node)


def _two_nodes(case: Case, _difference: Difference) -> bool:
    return len(case.visible) < 2 and not case.descheduler


def _next_cycle(case: Case, difference: Difference) -> bool:
    """In the next cycle, trimtab's plan moves the pod, because the first plan freed capacity."""
    with case.state(after=True) as snapshot:
        return any(
            move.key == difference.pod
            for move in plan_evictions(snapshot, case.trimtab.policies, now=case.trimtab.now).actions
        )


FIRST: Final = (
    DifferenceClass("NotReadyNodes", "trimtab", _nodes_not_ready),
    DifferenceClass("SingleNodeClusters", "trimtab", _two_nodes),
    DifferenceClass("BudgetsChecked", "descheduler", _budget_read),
    DifferenceClass("LimitsPerPolicy", "trimtab", _limit_of_each),
    DifferenceClass("MostRestartsFirst", "descheduler", _limit_spent, RESTARTS),
    DifferenceClass("MostRestartsFirst", "trimtab", _limit_spent, RESTARTS),
    DifferenceClass("VictimOrder", "descheduler", _limit_spent),
    DifferenceClass("VictimOrder", "trimtab", _limit_spent),
    DifferenceClass("FitsElsewhere", "descheduler", _place_first),
    DifferenceClass("CapacityReserved", "descheduler", _place_reserved),
)
LAST: Final = (
    DifferenceClass("ReducesViolations", "descheduler", _strictly_better),
    DifferenceClass("DeferredToNextCycle", "descheduler", _next_cycle),
)
