"""Pods that have no place, pods that a budget or a limit keeps, and nodes that one side does not see."""

from __future__ import annotations

from typing import Final

from tests.descheduler_differential.classes.naming import Named
from tests.descheduler_differential.facts import Case, Difference
from trimtab.api import reasons
from trimtab.descheduling.planner import plan
from trimtab.kube.rules.selectors import label_matcher

RESTARTS: Final = frozenset({"RemovePodsHavingTooManyRestarts"})
IN_PLACE: Final = RESTARTS | {"PodLifeTime"}
"""Strategies of which a pod may come back to its own node."""

LIMITS: Final = {
    "maxNoOfPodsToEvictPerNode": "node",
    "maxNoOfPodsToEvictPerNamespace": "namespace",
    "maxNoOfPodsToEvictTotal": "",
}
"""The limits of a policy, and what each is counted by."""


def _place_first(case: Case, difference: Difference) -> bool:
    """No node takes it, by the scheduler's rules, in the cluster as it is."""
    home = difference.strategy in IN_PLACE
    return case.reason(difference) == reasons.NO_PLACE and not case.takers(difference, after=False, home=home)


def _place_reserved(case: Case, difference: Difference) -> bool:
    """A node takes it as things are, and none once those have their places that went before."""
    home = difference.strategy in IN_PLACE
    if case.reason(difference) != reasons.NO_PLACE or not case.takers(difference, after=False, home=home):
        return False
    return not case.takers(difference, after=True, home=home)


def _strictly_better(case: Case, difference: Difference) -> bool:
    """Nodes take it, and on none would what the strategy mends become less without another's becoming more."""
    return case.reason(difference) == reasons.NO_IMPROVEMENT and not case.betters(difference)


def _budget_read(case: Case, difference: Difference) -> bool:
    """A budget that picks it allows no more disruptions than we make, or two budgets pick it."""
    if case.reason(difference) != reasons.DISRUPTION_BUDGET:
        return False
    pod, snapshot = case.pod(difference.pod), case.ours.snapshot
    budgets = [budget for budget in snapshot.budgets.values() if budget.namespace == pod.namespace]
    picking = [budget for budget in budgets if label_matcher(budget.selector)(pod.labels)]
    taken = [snapshot.pods[name] for name in case.ours.moves]
    spent = [
        sum(other.namespace == pod.namespace and label_matcher(budget.selector)(other.labels) for other in taken)
        for budget in picking
    ]
    left = [budget.disruptions_allowed - number for budget, number in zip(picking, spent, strict=True)]
    return len(picking) > 1 or any(number <= 0 for number in left)


def limited(case: Case, difference: Difference) -> bool:
    """Whether the side that keeps the pod has used up a limit of the policy that the pod counts against."""
    pod = case.pod(difference.pod)
    for key, part in LIMITS.items():
        if key not in case.policy:
            continue
        if difference.side == "theirs":
            used = [(move.node, move.namespace) for move in case.ours.moves.values()]
        else:
            used = [(each.node, each.pod.split("/")[0]) for each in case.theirs.values()]
        alike = [each for each in used if not part or each[0 if part == "node" else 1] == getattr(pod, part)]
        if len(alike) >= case.policy[key]:
            return True
    return False


def _limit_spent(case: Case, difference: Difference) -> bool:
    """A limit lets so many go and no more, and it is used up by others: who comes first is the order's to say."""
    if difference.side == "theirs" and case.reason(difference) not in ("", reasons.LIMIT_REACHED):
        return False
    return limited(case, difference)


def _limit_of_each(case: Case, difference: Difference) -> bool:
    """The file comes to several policies of ours, each with the limit for itself; together we evict more than it."""
    alike = [move.policy for move in case.ours.moves.values()]
    return (
        limited(case, difference)
        and len(set(alike)) > 1
        and len(alike) > min(case.policy[key] for key in LIMITS if key in case.policy)
    )


def _nodes_not_ready(case: Case, difference: Difference) -> bool:
    return not case.is_ready(case.pod(difference.pod).node)


def _two_nodes(case: Case, _difference: Difference) -> bool:
    return len(case.visible) < 2 and not case.theirs


def _next_cycle(case: Case, difference: Difference) -> bool:
    """Planned again once our plan is done, the same policy moves it: others have made room in the meantime."""
    with case.state(after=True) as snapshot:
        return any(move.key == difference.pod for move in plan(snapshot, case.ours.policies, now=case.ours.now).actions)


FIRST: Final = (
    Named("NodesNotReady", "ours", _nodes_not_ready),
    Named("TwoReadyNodes", "ours", _two_nodes),
    Named("BudgetRead", "theirs", _budget_read),
    Named("LimitsPerPolicy", "ours", _limit_of_each),
    Named("MostRestartsOfAll", "theirs", _limit_spent, RESTARTS),
    Named("MostRestartsOfAll", "ours", _limit_spent, RESTARTS),
    Named("OrderOfVictims", "theirs", _limit_spent),
    Named("OrderOfVictims", "ours", _limit_spent),
    Named("PlaceFirst", "theirs", _place_first),
    Named("PlaceReserved", "theirs", _place_reserved),
)
LAST: Final = (
    Named("StrictlyBetter", "theirs", _strictly_better),
    Named("NextCycle", "theirs", _next_cycle),
)
