"""Which of a pod's wishes about its node a node does not meet: the node selector's, and those of the nearest term."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from trimtab.kube.objects import LabelRequirement, Node, NodeSelectorTerm, PodSpec
from trimtab.kube.rules.selectors import matches_node_term
from trimtab.placement.filters.node_affinity import term_mask
from trimtab.placement.remedies.costs import EACH_FURTHER
from trimtab.placement.remedies.framework import NEVER, Case, Costs

OURS: Final = ("node-role.kubernetes.io", "node-restriction.kubernetes.io")
"""Domains of Kubernetes' own labels that people set."""


class Wish(Struct, frozen=True):
    """One requirement on a node's label, or on its name.

    Attributes:
        requirement: what must hold.
        term: the position of its term in the required affinity, ``None`` for the node selector.
        of_name: whether it is one of ``matchFields``.
    """

    requirement: LabelRequirement
    term: int | None = None
    of_name: bool = False

    @property
    def alone(self) -> NodeSelectorTerm:
        """A term of nothing else."""
        if self.of_name:
            return NodeSelectorTerm(match_fields=(self.requirement,))
        return NodeSelectorTerm(match_expressions=(self.requirement,))


def selector_wishes(spec: PodSpec) -> list[Wish]:
    """What the node selector asks for."""
    return [Wish(LabelRequirement(key, "In", (value,))) for key, value in spec.node_selector.items()]


def term_wishes(spec: PodSpec) -> list[list[Wish]]:
    """What each term of the required affinity asks for, of which one must hold."""
    required = spec.affinity.node.required
    return [] if required is None else [list(_of_term(number, term)) for number, term in enumerate(required.terms)]


def _of_term(number: int, term: NodeSelectorTerm) -> Iterator[Wish]:
    for requirement in term.match_expressions:
        yield Wish(requirement, number)
    for requirement in term.match_fields:
        yield Wish(requirement, number, of_name=True)


def unmet(spec: PodSpec, node: Node) -> list[list[Wish]]:
    """What the node does not meet, once for each term that could be met: the selector's wishes and that term's."""
    always = [wish for wish in selector_wishes(spec) if not _holds(wish, node)]
    terms = [[wish for wish in wishes if not _holds(wish, node)] for wishes in term_wishes(spec)]
    return [[*always, *wishes] for wishes in terms] if terms else [always]


def cheapest_to_meet(case: Case, price: Callable[[Wish], Costs | float]) -> Costs:
    """What it costs at least to meet everything: float64, shape (capacity,).

    Args:
        case: the case.
        price: of a wish that is not met; the dearest counts whole, each further one :data:`EACH_FURTHER`.
    """
    spec = case.pod.spec
    options = term_wishes(spec) or [[]]
    found: Costs = np.minimum.reduce([_together(case, [*selector_wishes(spec), *option], price) for option in options])
    return found


def system_label(key: str) -> bool:
    """Whether a label states a fact that Kubernetes or the cloud provider sets: host, zone, architecture."""
    domain = key.partition("/")[0] if "/" in key else ""
    return domain.endswith(("kubernetes.io", "k8s.io")) and domain not in OURS


def _together(case: Case, wishes: list[Wish], price: Callable[[Wish], Costs | float]) -> Costs:
    dearest = np.zeros(case.snapshot.nodes.capacity)
    number = np.zeros(case.snapshot.nodes.capacity)
    for wish in wishes:
        failing = ~term_mask(case.snapshot, wish.alone)
        dearest = np.maximum(dearest, np.where(failing, price(wish), 0.0))
        number += failing
    found: Costs = np.where(dearest == NEVER, NEVER, dearest + EACH_FURTHER * np.maximum(number - 1, 0))
    return found


def _holds(wish: Wish, node: Node) -> bool:
    return matches_node_term(wish.alone, node.labels, node.name)
