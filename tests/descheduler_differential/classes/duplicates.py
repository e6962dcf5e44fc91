"""RemoveDuplicates: the pods of an owner that the descheduler counts, and its formula."""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import Final

from tests.descheduler_differential.case import Case, Difference
from tests.descheduler_differential.classes.difference_class import DifferenceClass
from tests.descheduler_differential.classes.evictable import evictable
from tests.descheduler_differential.classes.nodefit import fits
from trimtab.api import reasons
from trimtab.kube.objects import Pod

NAME: Final = "RemoveDuplicates"


def _of_owner(case: Case, pod: Pod) -> list[Pod]:
    return [other for other in case.trimtab.snapshot.pods.values() if other.owners == pod.owners and other.owners]


def _counted(case: Case, pod: Pod) -> list[Pod]:
    """The owner's pods that the descheduler counts: evictable, on ready nodes, and fitting elsewhere with nodeFit."""
    scope, visible = case.scope(NAME), set(case.visible)
    return [
        other
        for other in _of_owner(case, pod)
        if other.node in visible
        and not other.terminal
        and scope.covers(other)
        and evictable(case, other.key)
        and (not case.node_fit or fits(case, other.key))
    ]


def by_upstream_formula(case: Case, pod: Pod) -> int:
    """The number of the owner's pods that the descheduler evicts from the node: all above ceil(counted / nodes)."""
    counted = _counted(case, pod)
    on_node = Counter(other.node for other in counted)
    duplicates = [other for other in counted if on_node[other.node] > 1]
    targets: set[str] = set()
    for other in duplicates:
        suiting = case.matching_nodes(other.key) & set(case.visible)
        if len(suiting) > 1:
            targets |= suiting
    if len(targets) < 2:
        return 0
    return max(0, on_node[pod.node] - max(1, ceil(len(counted) / len(targets))))


def _numbers(case: Case, difference: Difference) -> tuple[int, int]:
    """The numbers of the owner's pods on the node that the descheduler and trimtab evict."""
    pod = case.pod(difference.pod)
    group = {other.key for other in _of_owner(case, pod) if other.node == pod.node}
    descheduler = sum(each.pod in group for each in case.evicted_by_descheduler(NAME))
    trimtab = sum(each.key in group for each in case.evicted_by_trimtab(NAME))
    return descheduler, trimtab


def _others(case: Case, difference: Difference) -> bool:
    """The side that keeps the pod evicts at least as many other pods of the owner from that node."""
    descheduler, trimtab = _numbers(case, difference)
    return trimtab >= descheduler if difference.side == "descheduler" else descheduler >= trimtab


def _more_than_better(case: Case, difference: Difference) -> bool:
    """The descheduler evicts more pods from the node, and no further move of the pod would reduce duplicates."""
    descheduler, trimtab = _numbers(case, difference)
    open_ = case.reason(difference) in ("", reasons.NOT_ENOUGH_NODES)
    return descheduler > trimtab and open_ and not case.improving_nodes(difference)


def _fewer_by_formula(case: Case, difference: Difference) -> bool:
    """The descheduler evicts fewer pods from the node, as many as its formula gives."""
    descheduler, trimtab = _numbers(case, difference)
    return descheduler < trimtab and descheduler == by_upstream_formula(case, case.pod(difference.pod))


def _brought_before(case: Case, difference: Difference) -> bool:
    """trimtab's other strategies moved pods of the owner to the node, and it evicts at most that many more."""
    descheduler, trimtab = _numbers(case, difference)
    pod = case.pod(difference.pod)
    owned = {other.key for other in _of_owner(case, pod)}
    others = [move for move in case.trimtab.moves.values() if move.strategy != NAME and move.key in owned]
    return descheduler < trimtab <= descheduler + sum(move.target == pod.node for move in others)


_ONLY: Final = frozenset({NAME})
DUPLICATES: Final = (
    DifferenceClass("VictimOrder", "descheduler", _others, _ONLY),
    DifferenceClass("VictimOrder", "trimtab", _others, _ONLY),
    DifferenceClass("DuplicatesByOwner", "descheduler", _more_than_better, _ONLY),
    DifferenceClass("DuplicatesByOwner", "trimtab", _fewer_by_formula, _ONLY),
    DifferenceClass("FollowUpDifference", "trimtab", _brought_before, _ONLY),
)
