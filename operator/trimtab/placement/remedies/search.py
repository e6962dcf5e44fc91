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

from trimtab.cluster.resources import BoolArray
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer
from trimtab.placement.remedies.framework import NEVER, Case, Costs, Step
from trimtab.placement.remedies.registry import ADDITIONS, LIFTINGS, REMEDIES

_ALIKE: Final = 3
"""Nodes with the same bound and failing rules that are tried."""

_TRIED: Final = 32
"""Nodes that are tried at all."""

_STEPS: Final = 5
"""Changes that one plan may have."""


class Cure(Struct, frozen=True):
    """What would make the pod fit, tried.

    Attributes:
        node: where it would fit then.
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


def cheapest(placer: Placer, pod: Pod) -> Cure | None:
    """The cheapest change that makes a pod fit that fits nowhere; ``None`` where nothing that is known helps.

    Args:
        placer: on a snapshot that is within a fork; it is left as it was.
        pod: as if pending.
    """
    return next(cures(placer, pod), None)


def cures(placer: Placer, pod: Pod) -> Iterator[Cure]:
    """:func:`cheapest`, then the cheapest that does without its dearest step's kind of remedy, and so on.

    Lazily, for each is a search of its own.
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
    for bound, name in worth_a_try(case):
        if bound >= limit:
            break
        steps = plan_for(case, name, limit, depth)
        if steps is not None:
            best = Cure(name, steps)
            limit = best.cost
    for addition in case.allowed(ADDITIONS):
        for step in addition.steps(case) if addition.least < limit else ():
            with case.after(step):
                fits = case.obstacle(step.name) is None
            if fits and step.cost < limit:
                best = Cure(step.name, (step,))
                limit = best.cost
    return best


def plan_for(case: Case, name: str, limit: float, depth: int = _STEPS) -> tuple[Step, ...] | None:
    """Changes that make the node take the pod, one rule after the other, each by the cheapest that helps."""
    obstacle = case.obstacle(name)
    if obstacle is None:
        return ()
    node = case.snapshot.nodes.get(name)
    if not depth or node is None:
        return None
    remedies = [remedy for remedy in case.allowed(REMEDIES) if obstacle.name in remedy.rules]
    steps = [step for remedy in remedies for step in remedy.steps(case, node, obstacle.name)]
    for step in sorted(steps, key=lambda step: step.cost):
        if step.cost >= limit:
            break
        with case.after(step):
            helps = case.obstacle(name) is not obstacle
            rest = plan_for(case, name, limit - step.cost, depth - 1) if helps else None
        if rest is not None:
            return (step, *rest)
    return None


def worth_a_try(case: Case) -> Iterator[tuple[float, str]]:
    """Nodes worth a try with the least they can cost, the cheapest first, by name where equal."""
    nodes = case.snapshot.nodes
    bounds: Costs = np.where(nodes.used, 0.0, NEVER)
    patterns = np.zeros(nodes.capacity, dtype=np.int64)
    failing: dict[str, BoolArray] = {}
    for rule, slots in case.placer.failing(case.pod):
        failing[rule.name] = failing[rule.name] | slots if rule.name in failing else slots
    for number, (name, slots) in enumerate(failing.items()):
        found = [remedy.bound(case, name) for remedy in case.allowed(REMEDIES) if name in remedy.rules] or [NEVER]
        least = np.minimum.reduce([np.broadcast_to(each, nodes.capacity) for each in found])
        bounds += np.where(slots, least, 0.0)
        patterns |= slots.astype(np.int64) << number
    worth = np.flatnonzero(bounds < NEVER)
    alike: Counter[tuple[float, int]] = Counter()
    tried = 0
    for slot in worth[np.lexsort((nodes.rank()[worth], bounds[worth]))].tolist():
        bound, pattern = float(bounds[slot]), int(patterns[slot])
        if alike[bound, pattern] == _ALIKE:
            continue
        alike[bound, pattern] += 1
        tried += 1
        yield bound, nodes.node(slot).name
        if tried == _TRIED:
            return
