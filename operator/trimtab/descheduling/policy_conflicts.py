"""Policies that would undo each other, found before anything is planned: what one moves the other would move back.

Judged by the policies alone and not by the nodes that there are: else a label on a node would let them loose on each
other, and a plan made of files would tell something else than the cluster does.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Final, Literal

from msgspec import Struct

from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.reasons import POLICY_CONFLICT, SCHEDULER_CONFLICT
from trimtab.api.selector import Requirement, Selector

Scoring = Literal["LeastAllocated", "MostAllocated"]
"""How kube-scheduler's NodeResourcesFit scores nodes: the emptiest first, as it is by default, or the fullest."""

OPPOSED: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "LowNodeUtilization",
        "HighNodeUtilization",
        "one fills underutilized nodes, the other empties them, and each would undo what the other did",
    ),
)
"""Strategies that must not look at the same nodes, and why."""

OPPOSED_BY_SCHEDULER: Final[dict[Scoring, tuple[str, str]]] = {
    "LeastAllocated": (
        "HighNodeUtilization",
        "evicts pods from the emptiest nodes, and the scheduler would put their successors there again",
    ),
    "MostAllocated": (
        "LowNodeUtilization",
        "evicts pods from the fullest nodes, and the scheduler would put their successors there again",
    ),
}
"""The strategy that a scheduler with this scoring would undo, and why. OpenShift's operator refuses the same pairs."""

REMEDY: Final = "suspend one of them, or give them nodeSelectors that cannot both match a node"


class PolicyConflict(Struct, frozen=True, order=True):
    """Two policies that would undo each other, or one that opposes itself or the scheduler.

    Attributes:
        first: a policy's name.
        second: that of the other, which comes later in the order of names; the same where one opposes itself or the
            scheduler.
        reason: a code of :mod:`trimtab.api.reasons`.
        message: the strategies, and why that cannot be.
    """

    first: str
    second: str
    reason: str
    message: str

    @property
    def names(self) -> frozenset[str]:
        """Of the policies that must not act."""
        return frozenset((self.first, self.second))


def conflicts(policies: Iterable[DeschedulerPolicy], *, scoring: Scoring | None = None) -> tuple[PolicyConflict, ...]:
    """Which policies would undo each other, or be undone by the scheduler.

    Whether they only simulate makes no difference: what they show would be as wrong. Whether they are suspended is the
    caller's to read.

    Args:
        policies: valid ones, of different names, in any order. Two of them meet unless their node selectors contradict
            each other.
        scoring: the scheduler's, ``None`` where nobody has said. It cannot be read from a cluster.
    """
    ordered = sorted(policies, key=lambda policy: policy.name)
    pairs = [(each, each) for each in ordered] + list(combinations(ordered, 2))
    found = [_conflict(first, second) for first, second in pairs]
    if scoring is not None:
        found += [_against_scheduler(each, scoring) for each in ordered]
    return tuple(sorted(each for each in found if each is not None))


def _against_scheduler(policy: DeschedulerPolicy, scoring: Scoring) -> PolicyConflict | None:
    strategy, why = OPPOSED_BY_SCHEDULER[scoring]
    if strategy not in dict(policy.spec.strategies.enabled()):
        return None
    text = f"the scheduler is said to score nodes by {scoring}, and {strategy} of policy {policy.name} {why}"
    return PolicyConflict(policy.name, policy.name, SCHEDULER_CONFLICT, text)


def _conflict(first: DeschedulerPolicy, second: DeschedulerPolicy) -> PolicyConflict | None:
    if _contradict(first.spec.node_selector, second.spec.node_selector):
        return None
    has, other = (dict(policy.spec.strategies.enabled()) for policy in (first, second))
    for one, opposite, why in OPPOSED:
        for left, right in ((one, opposite), (opposite, one)):
            if left in has and right in other:
                text = (
                    f"{left} of policy {first.name} and {right} of policy {second.name} look at the same nodes: {why}"
                )
                return PolicyConflict(first.name, second.name, POLICY_CONFLICT, text)
    return None


def _contradict(first: Selector | None, second: Selector | None) -> bool:
    """Whether no node can match both, whatever its labels."""
    wanted: dict[str, list[Requirement]] = {}
    for selector in (first, second):
        for each in () if selector is None else _requirements(selector):
            wanted.setdefault(each.key, []).append(each)
    return any(_impossible(requirements) for requirements in wanted.values())


def _requirements(selector: Selector) -> list[Requirement]:
    labels = selector.match_labels.items()
    return [
        *(Requirement(key=key, operator="In", values=(value,)) for key, value in labels),
        *selector.match_expressions,
    ]


def _impossible(requirements: Iterable[Requirement]) -> bool:
    """Whether no value of the label, nor its absence, meets all of what is required of it."""
    allowed: frozenset[str] | None = None
    forbidden: frozenset[str] = frozenset()
    present = absent = False
    for each in requirements:
        values = frozenset(each.values)
        if each.operator == "In":
            allowed = values if allowed is None else allowed & values
        elif each.operator == "NotIn":
            forbidden |= values
        present |= each.operator in {"In", "Exists"}
        absent |= each.operator == "DoesNotExist"
    return (present and absent) or (allowed is not None and allowed <= forbidden)
