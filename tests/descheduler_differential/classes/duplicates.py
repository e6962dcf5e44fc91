"""RemoveDuplicates: which pods of an owner they count, and what they make of it."""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import Final

from tests.descheduler_differential.classes.evictable import evictable
from tests.descheduler_differential.classes.naming import Named
from tests.descheduler_differential.classes.nodefit import fits
from tests.descheduler_differential.facts import Case, Difference
from trimtab.api import reasons
from trimtab.kube.objects import Pod

NAME: Final = "RemoveDuplicates"


def _of_owner(case: Case, pod: Pod) -> list[Pod]:
    return [other for other in case.ours.snapshot.pods.values() if other.owners == pod.owners and other.owners]


def _counted(case: Case, pod: Pod) -> list[Pod]:
    """The owner's pods that they see: on ready nodes, evictable, with nodeFit only those that fit elsewhere."""
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


def by_their_arithmetic(case: Case, pod: Pod) -> int:
    """How many of the owner's pods they evict from the pod's node: what is above ceil(counted / nodes), but one."""
    counted = _counted(case, pod)
    on_node = Counter(other.node for other in counted)
    duplicates = [other for other in counted if on_node[other.node] > 1]
    targets: set[str] = set()
    for other in duplicates:
        suiting = case.suits(other.key) & set(case.visible)
        if len(suiting) > 1:
            targets |= suiting
    if len(targets) < 2:
        return 0
    return max(0, on_node[pod.node] - max(1, ceil(len(counted) / len(targets))))


def _numbers(case: Case, difference: Difference) -> tuple[int, int]:
    """How many of the owner's pods on the node they evict, and we."""
    pod = case.pod(difference.pod)
    group = {other.key for other in _of_owner(case, pod) if other.node == pod.node}
    theirs = sum(each.pod in group for each in case.evicted_by_them(NAME))
    ours = sum(each.key in group for each in case.evicted_by_us(NAME))
    return theirs, ours


def _others(case: Case, difference: Difference) -> bool:
    """The side that keeps it lets as many or more of the owner's pods go from that node, but others."""
    theirs, ours = _numbers(case, difference)
    return ours >= theirs if difference.side == "theirs" else theirs >= ours


def _more_than_better(case: Case, difference: Difference) -> bool:
    """They evict more from the node than we; no further move of the pod would even anything out."""
    theirs, ours = _numbers(case, difference)
    open_ = case.reason(difference) in ("", reasons.NOT_ENOUGH_NODES)
    return theirs > ours and open_ and not case.betters(difference)


def _fewer_by_arithmetic(case: Case, difference: Difference) -> bool:
    """They evict fewer from the node than we, and by their arithmetic that is right."""
    theirs, ours = _numbers(case, difference)
    return theirs < ours and theirs == by_their_arithmetic(case, case.pod(difference.pod))


def _brought_before(case: Case, difference: Difference) -> bool:
    """Other strategies of ours have brought pods of the owner to the node, and as many more go as have come."""
    theirs, ours = _numbers(case, difference)
    pod = case.pod(difference.pod)
    owned = {other.key for other in _of_owner(case, pod)}
    others = [move for move in case.ours.moves.values() if move.strategy != NAME and move.key in owned]
    return theirs < ours <= theirs + sum(move.target == pod.node for move in others)


_ONLY: Final = frozenset({NAME})
DUPLICATES: Final = (
    Named("OrderOfVictims", "theirs", _others, _ONLY),
    Named("OrderOfVictims", "ours", _others, _ONLY),
    Named("DuplicatesByOwner", "theirs", _more_than_better, _ONLY),
    Named("DuplicatesByOwner", "ours", _fewer_by_arithmetic, _ONLY),
    Named("OneFollowsAnother", "ours", _brought_before, _ONLY),
)
