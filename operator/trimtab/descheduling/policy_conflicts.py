"""Policies that would undo each other, found before anything is planned: what one moves the other would move back."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import combinations
from typing import Final

from msgspec import Struct

from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.selector import Selector
from trimtab.kube.objects import Node
from trimtab.kube.rules.selectors import matches_labels

OPPOSED: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "LowNodeUtilization",
        "HighNodeUtilization",
        "one fills underutilized nodes, the other empties them, and each would undo what the other did",
    ),
)
"""Strategies that must not look at the same nodes, and why."""


class PolicyConflict(Struct, frozen=True, order=True):
    """Two policies, or one alone, that would undo each other.

    Attributes:
        first: a policy's name.
        second: that of the other, which comes later in the order of names; the same where one opposes itself.
        message: the strategies, the nodes that both look at, and why that cannot be.
    """

    first: str
    second: str
    message: str


def conflicts(
    policies: Iterable[DeschedulerPolicy], nodes: Collection[Node] | None = None
) -> tuple[PolicyConflict, ...]:
    """Which policies would undo each other, by their names; whether they only simulate makes no difference.

    Suspended policies plan nothing and conflict with nobody.

    Args:
        policies: valid ones, in any order.
        nodes: of the cluster: two policies meet where both select a node. Without them they meet unless their node
            selectors contradict each other by themselves (another value of the same label).
    """
    awake = sorted((each for each in policies if not each.spec.suspend), key=lambda policy: policy.name)
    pairs = [(each, each) for each in awake] + list(combinations(awake, 2))
    found = (_conflict(first, second, nodes) for first, second in pairs)
    return tuple(sorted(each for each in found if each is not None))


def _conflict(
    first: DeschedulerPolicy, second: DeschedulerPolicy, nodes: Collection[Node] | None
) -> PolicyConflict | None:
    has, other = (dict(policy.spec.strategies.enabled()) for policy in (first, second))
    for one, opposite, why in OPPOSED:
        for left, right in ((one, opposite), (opposite, one)):
            if left in has and right in other:
                shared = _shared(first, second, nodes)
                if shared is None:
                    return None
                text = f"{left} of policy {first.name} and {right} of policy {second.name} look at {shared}: {why}"
                return PolicyConflict(first.name, second.name, text)
    return None


def _shared(first: DeschedulerPolicy, second: DeschedulerPolicy, nodes: Collection[Node] | None) -> str | None:
    """The nodes that both look at in words, ``None`` if there are none."""
    selectors = [each for each in (first.spec.node_selector, second.spec.node_selector) if each is not None]
    if nodes is None:
        return None if len(selectors) == 2 and _contradict(*selectors) else "the same nodes"
    compiled = [each.compile() for each in selectors]
    both = sorted(node.name for node in nodes if all(matches_labels(each, node.labels) for each in compiled))
    if not both:
        return None
    return f"node {both[0]}" + (f" and {len(both) - 1} more" if len(both) > 1 else "")


def _contradict(first: Selector, second: Selector) -> bool:
    """Whether no node can match both, as far as single labels tell."""
    one, other = _values(first), _values(second)
    return any(key in other and not values & other[key] for key, values in one.items())


def _values(selector: Selector) -> dict[str, frozenset[str]]:
    """The values that a selector leaves to a label, for labels whose values it names."""
    found = {key: frozenset((value,)) for key, value in selector.match_labels.items()}
    for each in selector.match_expressions:
        if each.operator == "In":
            values = frozenset(each.values)
            found[each.key] = found.get(each.key, values) & values
    return found
