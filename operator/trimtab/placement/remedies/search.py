"""The registry of remedies, and the search for the cheapest change that makes a pod fit.

The search computes a lower bound of the cost for each node, from all filters that the node fails. It tries the nodes in
ascending order of their bounds, and applies changes to a node one after another until it is feasible. The search ends
when the next bound is not below the cost of the best plan so far. Identical nodes have identical results, so only a few
of the nodes with the same bound and the same failing filters are tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from msgspec import Struct

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.kube.objects import Node, Pod
from trimtab.placement.placer import Placer
from trimtab.placement.remedies.capacity import (
    BindClaim,
    ChangeHostPort,
    EvictNeighbours,
    FreeHostPort,
    FreeRoom,
    FreeVolumes,
    LowerRequests,
    WaitForPods,
)
from trimtab.placement.remedies.constraints import (
    ChangeSelector,
    LabelNode,
    RaiseMaxSkew,
    RecoverNode,
    RelaxAffinity,
    RelaxSpread,
    RemoveSchedulingGates,
    RemoveTaint,
    TolerateTaint,
    Uncordon,
    UpgradeKubelet,
)
from trimtab.placement.remedies.costs import MOVE
from trimtab.placement.remedies.interface import (
    IMPOSSIBLE,
    Costs,
    NodeAddition,
    Protection,
    RefusalRemedy,
    Remedy,
    RemedyCase,
    Step,
    unprotected,
)
from trimtab.placement.remedies.new_nodes import AddNode, LargerNode

REMEDIES: Final[tuple[Remedy, ...]] = (
    WaitForPods(),
    Uncordon(),
    TolerateTaint(),
    RemoveTaint(),
    RecoverNode(),
    UpgradeKubelet(),
    LabelNode(),
    ChangeSelector(),
    LowerRequests(),
    FreeRoom(),
    ChangeHostPort(),
    FreeHostPort(),
    BindClaim(),
    FreeVolumes(),
    RaiseMaxSkew(),
    RelaxSpread(),
    RelaxAffinity(),
    EvictNeighbours(),
)
"""The remedies that can make a node feasible."""

REFUSAL_REMEDIES: Final[tuple[RefusalRemedy, ...]] = (RemoveSchedulingGates(), BindClaim())
"""The remedies for a pod that is rejected before any node is examined."""

NODE_ADDITIONS: Final[tuple[NodeAddition, ...]] = (AddNode(), LargerNode())
"""The remedies that add a node, cheapest first."""


_MAX_EQUAL_NODES: Final = 3
"""Maximum number of nodes to try with the same bound and the same failing filters."""

_MAX_NODES: Final = 48
"""Maximum total number of nodes to try."""

_MAX_FRUITLESS_NODES: Final = 12
"""Once a plan has been found, the search ends after this number of consecutive nodes without a cheaper plan."""

_SATISFIED_BY_OTHERS: Final = frozenset(("PodTopologySpread",))
"""Filters that a change for another filter may satisfy as well."""

_MAX_STEPS: Final = 5
"""Maximum number of changes of one plan."""


class RemedyPlan(Struct, frozen=True):
    """Changes that make the pod fit, verified on the snapshot.

    Attributes:
        node: the name of the node on which the pod then fits. The name of a new node is generated.
        steps: the changes in order, at least one.
    """

    node: str
    steps: tuple[Step, ...]

    @property
    def cost(self) -> float:
        """Return the sum of the steps' costs."""
        return sum(step.cost for step in self.steps)

    @property
    def reason(self) -> str:
        """Return the reason code of the most expensive step."""
        return max(self.steps, key=lambda step: step.cost).reason

    def document(self) -> dict[str, Any]:
        """Return the plan as a JSON document, in which ``change`` describes all steps."""
        return {
            "change": "; ".join(step.change for step in self.steps),
            "node": self.node,
            "reason": self.reason,
            "cost": round(self.cost, 2),
            "steps": [step.document() for step in self.steps],
        }


def find_remedy_plans(placer: Placer, pod: Pod, protection: Protection = unprotected) -> Iterator[RemedyPlan]:
    """Yield the cheapest plan that makes an unschedulable pod fit, then alternative plans.

    Nothing is yielded if no known remedy helps.

    Each alternative is the cheapest plan that does not use the remedies of the previous plans' most expensive steps.
    Alternatives are computed only when they are requested.

    Args:
        placer: a placer on a snapshot within a fork; the snapshot is unchanged afterwards.
        pod: the pod, with an empty ``node``.
        protection: returns why a pod cannot be evicted now, for example a PodDisruptionBudget. Evicting such pods is
            the last choice.
    """
    placer.snapshot.add_resources(pod.spec)
    case = RemedyCase(placer, pod, protection)
    while (found := _cheapest_plan(case, IMPOSSIBLE, _MAX_STEPS)) is not None:
        yield found
        case.without |= {found.reason}


def _cheapest_plan(case: RemedyCase, limit: float, depth: int) -> RemedyPlan | None:
    """Return the cheapest plan with a cost below ``limit``, or ``None`` if there is none."""
    refused = case.placer.refusing_filter(case.pod)
    if refused is None:
        return _on_nodes(case, limit, depth)
    best: RemedyPlan | None = None
    name = refused[0].name
    for step in (
        step
        for remedy in case.allowed(REFUSAL_REMEDIES)
        if name in remedy.rules
        for step in remedy.steps_to_admit(case)
    ):
        if step.cost >= limit or not depth:
            continue
        with case.after(step):
            still = case.placer.refusing_filter(case.pod)
            found = None if still == refused else _lifted(case, limit - step.cost, depth - 1)
        if found is not None:
            best = RemedyPlan(found.node, (step, *found.steps))
            limit = best.cost
    return best


def _lifted(case: RemedyCase, limit: float, depth: int) -> RemedyPlan | None:
    """Return the remaining plan for a pod after a remedy has removed the reason that rejected it on all nodes.

    The plan has no steps if the pod already fits. The result is ``None`` if no plan costs less than ``limit``.
    """
    slot = case.placer.choose(case.pod, case.placer.feasible(case.pod))
    if slot is not None:
        return RemedyPlan(case.snapshot.nodes.node(slot).name, ())
    return _cheapest_plan(case, limit, depth)


def _on_nodes(case: RemedyCase, limit: float, depth: int) -> RemedyPlan | None:
    best: RemedyPlan | None = None
    worth = list(candidate_nodes(case))
    ways = [_by_adding, _by_changing] if worth and worth[0][0] >= MOVE else [_by_changing, _by_adding]
    for way in ways:  # the probably cheaper one first, because its cost limits the search of the other
        found = way(case, limit, depth, worth)
        if found is not None:
            best, limit = found, found.cost
    return best


def _by_changing(case: RemedyCase, limit: float, depth: int, worth: list[tuple[float, str]]) -> RemedyPlan | None:
    best: RemedyPlan | None = None
    patience = _MAX_FRUITLESS_NODES
    for bound, name in worth:
        if bound >= limit or not patience:
            break
        steps = plan_for(case, name, limit, depth)
        patience -= limit < IMPOSSIBLE
        if steps is not None:
            best, patience = RemedyPlan(name, steps), _MAX_FRUITLESS_NODES
            limit = best.cost
    return best


def _by_adding(case: RemedyCase, limit: float, depth: int, worth: list[tuple[float, str]]) -> RemedyPlan | None:
    best: RemedyPlan | None = None
    for addition in case.allowed(NODE_ADDITIONS) if depth else ():
        for step in addition.steps(case) if addition.least < limit else ():
            if step.cost >= limit:
                continue
            with case.after(step):
                fits = case.obstacle(step.name) is None
            if fits:
                best = RemedyPlan(step.name, (step,))
                limit = best.cost
    return best


def plan_for(case: RemedyCase, name: str, limit: float, depth: int = _MAX_STEPS) -> tuple[Step, ...] | None:
    """Return the cheapest changes below ``limit`` that make the node feasible, or ``None`` if there are none.

    The filters that the node fails are satisfied one after another.

    Args:
        case: the unschedulable pod.
        name: the node's name.
        limit: the upper limit of the cost, exclusive.
        depth: the maximum number of changes.
    """
    obstacle = case.obstacle(name)
    if obstacle is None:
        return ()
    node = case.snapshot.nodes.get(name)
    if not depth or node is None:
        return None
    best: tuple[Step, ...] | None = None
    for step in _steps(case, node, obstacle.name, limit):
        if step.cost >= limit:
            break
        with case.after(step):
            helps = case.obstacle(name) is not obstacle
            rest = plan_for(case, name, limit - step.cost, depth - 1) if helps else None
        if rest is not None:
            best = (step, *rest)
            limit = sum(each.cost for each in best)
    return best


def _steps(case: RemedyCase, node: Node, rule: str, limit: float) -> list[Step]:
    """Return steps that may satisfy a filter on a node, cheapest first.

    Steps that cost ``limit`` or more may be omitted.
    """
    case.limit = limit
    remedies = [remedy for remedy in case.allowed(REMEDIES) if rule in remedy.rules]
    return sorted((step for remedy in remedies for step in remedy.steps(case, node, rule)), key=lambda step: step.cost)


def candidate_nodes(case: RemedyCase) -> Iterator[tuple[float, str]]:
    """Yield the nodes to try, each with the lower bound of its cost, in ascending order of bound, then of name."""
    nodes = case.snapshot.nodes
    failing: dict[str, BoolArray] = {}
    for rule, slots in case.placer.failing_filters(case.pod):
        failing[rule.name] = failing[rule.name] | slots if rule.name in failing else slots
    bounds, patterns = _bounds(case, failing)
    worth = np.flatnonzero(bounds < IMPOSSIBLE)
    alike: Counter[tuple[float, int]] = Counter()
    tried = 0
    for slot in worth[np.lexsort((case.rank[worth], bounds[worth]))].tolist():
        bound, pattern = float(bounds[slot]), int(patterns[slot])
        if alike[bound, pattern] == _MAX_EQUAL_NODES:
            continue
        alike[bound, pattern] += 1
        tried += 1
        yield bound, nodes.node(slot).name
        if tried == _MAX_NODES:
            return


def _bounds(case: RemedyCase, failing: dict[str, BoolArray]) -> tuple[Costs, IntArray]:
    """Return a lower bound of the cost of making each node feasible, and the filters that it fails as bits.

    The bounds of the failed filters are added up, except for changes that may satisfy several filters: evictions are
    included once, and topology spread only if no other filter fails.

    Returns:
        Two arrays of shape (capacity,): float64 and int64.
    """
    nodes = case.snapshot.nodes
    bounds: Costs = np.where(nodes.used, 0.0, IMPOSSIBLE)
    without_evicting = np.zeros(nodes.capacity)
    evicting: Costs = np.full(nodes.capacity, IMPOSSIBLE)
    patterns = np.zeros(nodes.capacity, dtype=np.int64)
    for number, (name, slots) in enumerate(failing.items()):
        patterns |= slots.astype(np.int64) << number
        remedies = [remedy for remedy in case.allowed(REMEDIES) if name in remedy.rules]
        by_eviction = _minimum_costs(case, name, [remedy for remedy in remedies if remedy.evicts])
        otherwise = _minimum_costs(case, name, [remedy for remedy in remedies if not remedy.evicts])
        if name in _SATISFIED_BY_OTHERS:
            others = np.logical_or.reduce([mask for other, mask in failing.items() if other != name] or [~nodes.used])
            bounds += np.where(slots & ~others, np.minimum(by_eviction, otherwise), 0.0)
        elif all(remedy.evicts is False for remedy in remedies):
            bounds += np.where(slots, otherwise, 0.0)
        else:
            without_evicting += np.where(slots, otherwise, 0.0)
            evicting = np.where(slots, np.minimum(evicting, by_eviction), evicting)
    bounds += np.minimum(without_evicting, evicting)
    return bounds, patterns


def _minimum_costs(case: RemedyCase, rule: str, remedies: list[Remedy]) -> Costs:
    found = [np.broadcast_to(remedy.bound(case, rule), case.snapshot.nodes.capacity) for remedy in remedies]
    least: Costs = np.minimum.reduce([*found, np.full(case.snapshot.nodes.capacity, IMPOSSIBLE)])
    return least
