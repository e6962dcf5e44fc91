"""The cheapest change that makes a pod fit somewhere.

All nodes get a lower bound of what it would cost there, computed on columns from all rules that each fails. Then they
are tried in that order, one change after the other until the node takes the pod, and the search ends where the next
bound is no lower than the best that was found. Nodes that are alike give the same answer, so only a few of those with
the same bound and the same rules are tried.
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
from trimtab.placement.remedies.costs import MOVE
from trimtab.placement.remedies.framework import NEVER, Case, Costs, Remedy, Step
from trimtab.placement.remedies.registry import ADDITIONS, LIFTINGS, REMEDIES

_ALIKE: Final = 3
"""Nodes with the same bound and failing rules that are tried."""

_TRIED: Final = 48
"""Nodes that are tried at all."""

_PATIENCE: Final = 12
"""Once there is a plan, so many nodes in a row may give no cheaper one before the search ends."""

_EVENED: Final = frozenset(("PodTopologySpread",))
"""Rules that changes for the sake of others may satisfy."""

_STEPS: Final = 5
"""Changes that one plan may have."""


class Cure(Struct, frozen=True):
    """What would make the pod fit, tried.

    Attributes:
        node: where it would fit then; the name of a new node is made up.
        steps: in order; never empty.
    """

    node: str
    steps: tuple[Step, ...]

    @property
    def cost(self) -> float:
        """The sum over the steps."""
        return sum(step.cost for step in self.steps)

    @property
    def reason(self) -> str:
        """That of the dearest step."""
        return max(self.steps, key=lambda step: step.cost).reason

    def document(self) -> dict[str, Any]:
        """As JSON: ``change`` is all steps in a sentence."""
        return {
            "change": "; ".join(step.change for step in self.steps),
            "node": self.node,
            "reason": self.reason,
            "cost": round(self.cost, 2),
            "steps": [step.document() for step in self.steps],
        }


def cures(placer: Placer, pod: Pod) -> Iterator[Cure]:
    """The cheapest change that makes a pod fit that fits nowhere, and alternatives; none where nothing known helps.

    Each alternative is the cheapest that does without the dearest step's kind of remedy of those before. Lazily, for
    each is a search of its own.

    Args:
        placer: on a snapshot that is within a fork; it is left as it was.
        pod: as if pending.
    """
    case = Case(placer, pod)
    while (found := _cure(case, NEVER, _STEPS)) is not None:
        yield found
        case.without |= {found.reason}


def _cure(case: Case, limit: float, depth: int) -> Cure | None:
    """The cheapest cure below ``limit``."""
    refused = case.placer.refusing(case.pod)
    if refused is None:
        return _on_nodes(case, limit, depth)
    best: Cure | None = None
    name = refused[0].name
    for step in (step for lifting in case.allowed(LIFTINGS) if name in lifting.rules for step in lifting.lifting(case)):
        if step.cost >= limit or not depth:
            continue
        with case.after(step):
            still = case.placer.refusing(case.pod)
            found = None if still == refused else _lifted(case, limit - step.cost, depth - 1)
        if found is not None:
            best = Cure(found.node, (step, *found.steps))
            limit = best.cost
    return best


def _lifted(case: Case, limit: float, depth: int) -> Cure | None:
    """The cure of a pod that is no longer refused for one reason: nothing more to do, if it fits now."""
    slot = case.placer.choose(case.pod, case.placer.feasible(case.pod))
    if slot is not None:
        return Cure(case.snapshot.nodes.node(slot).name, ())
    return _cure(case, limit, depth)


def _on_nodes(case: Case, limit: float, depth: int) -> Cure | None:
    best: Cure | None = None
    worth = list(worth_a_try(case))
    ways = [_by_adding, _by_changing] if worth and worth[0][0] >= MOVE else [_by_changing, _by_adding]
    for way in ways:  # the way that is probably cheaper first, for its cost cuts the other one short
        found = way(case, limit, depth, worth)
        if found is not None:
            best, limit = found, found.cost
    return best


def _by_changing(case: Case, limit: float, depth: int, worth: list[tuple[float, str]]) -> Cure | None:
    best: Cure | None = None
    patience = _PATIENCE
    for bound, name in worth:
        if bound >= limit or not patience:
            break
        steps = plan_for(case, name, limit, depth)
        patience -= limit < NEVER
        if steps is not None:
            best, patience = Cure(name, steps), _PATIENCE
            limit = best.cost
    return best


def _by_adding(case: Case, limit: float, depth: int, worth: list[tuple[float, str]]) -> Cure | None:
    del worth
    best: Cure | None = None
    for addition in case.allowed(ADDITIONS) if depth else ():
        for step in addition.steps(case) if addition.least < limit else ():
            if step.cost >= limit:
                continue
            with case.after(step):
                fits = case.obstacle(step.name) is None
            if fits:
                best = Cure(step.name, (step,))
                limit = best.cost
    return best


def plan_for(case: Case, name: str, limit: float, depth: int = _STEPS) -> tuple[Step, ...] | None:
    """The cheapest changes below ``limit`` that make the node take the pod, one rule after the other.

    Args:
        case: the case.
        name: the node's.
        limit: what they must cost less than.
        depth: how many they may be.
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


def _steps(case: Case, node: Node, rule: str, limit: float) -> list[Step]:
    """What may satisfy a rule on a node, the cheapest first; none that costs ``limit`` need be among them."""
    case.limit = limit
    remedies = [remedy for remedy in case.allowed(REMEDIES) if rule in remedy.rules]
    return sorted((step for remedy in remedies for step in remedy.steps(case, node, rule)), key=lambda step: step.cost)


def worth_a_try(case: Case) -> Iterator[tuple[float, str]]:
    """Nodes worth a try with the least they can cost, the cheapest first, by name where equal."""
    nodes = case.snapshot.nodes
    failing: dict[str, BoolArray] = {}
    for rule, slots in case.placer.failing(case.pod):
        failing[rule.name] = failing[rule.name] | slots if rule.name in failing else slots
    bounds, patterns = _bounds(case, failing)
    worth = np.flatnonzero(bounds < NEVER)
    alike: Counter[tuple[float, int]] = Counter()
    tried = 0
    for slot in worth[np.lexsort((case.rank[worth], bounds[worth]))].tolist():
        bound, pattern = float(bounds[slot]), int(patterns[slot])
        if alike[bound, pattern] == _ALIKE:
            continue
        alike[bound, pattern] += 1
        tried += 1
        yield bound, nodes.node(slot).name
        if tried == _TRIED:
            return


def _bounds(case: Case, failing: dict[str, BoolArray]) -> tuple[Costs, IntArray]:
    """What each node costs at least, and which rules it fails, as bits.

    Rules add up, but for what one change may do to several: evicting pods is counted once, and a spread, which all
    other changes may even out, only where nothing else fails.

    Returns:
        float64 and int64, both of shape (capacity,).
    """
    nodes = case.snapshot.nodes
    bounds: Costs = np.where(nodes.used, 0.0, NEVER)
    without_evicting = np.zeros(nodes.capacity)
    evicting: Costs = np.full(nodes.capacity, NEVER)
    patterns = np.zeros(nodes.capacity, dtype=np.int64)
    for number, (name, slots) in enumerate(failing.items()):
        patterns |= slots.astype(np.int64) << number
        remedies = [remedy for remedy in case.allowed(REMEDIES) if name in remedy.rules]
        by_eviction = _least(case, name, [remedy for remedy in remedies if remedy.evicts])
        otherwise = _least(case, name, [remedy for remedy in remedies if not remedy.evicts])
        if name in _EVENED:
            others = np.logical_or.reduce([mask for other, mask in failing.items() if other != name] or [~nodes.used])
            bounds += np.where(slots & ~others, np.minimum(by_eviction, otherwise), 0.0)
        elif all(remedy.evicts is False for remedy in remedies):
            bounds += np.where(slots, otherwise, 0.0)
        else:
            without_evicting += np.where(slots, otherwise, 0.0)
            evicting = np.where(slots, np.minimum(evicting, by_eviction), evicting)
    bounds += np.minimum(without_evicting, evicting)
    return bounds, patterns


def _least(case: Case, rule: str, remedies: list[Remedy]) -> Costs:
    found = [np.broadcast_to(remedy.bound(case, rule), case.snapshot.nodes.capacity) for remedy in remedies]
    least: Costs = np.minimum.reduce([*found, np.full(case.snapshot.nodes.capacity, NEVER)])
    return least
