"""Let the pod ask for what a node has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from msgspec.structs import replace

from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Node, NodeSelector, NodeSelectorTerm
from trimtab.placement.remedies.costs import EACH_FURTHER, WISH
from trimtab.placement.remedies.framework import NEVER, Case, Costs, Step
from trimtab.placement.remedies.selectors import Wish, cheapest_to_meet, unmet


class ChangeSelector:
    """A node selector takes the node's value, or goes where the node has none; so do expressions of a required term.

    A DaemonSet's pod is for one node and no other.
    """

    reason: ClassVar = "ChangeSelector"
    rules: ClassVar = frozenset(("NodeAffinity",))
    evicts: ClassVar = False

    def bound(self, case: Case, rule: str) -> Costs | float:
        """By the number of wishes that are not met."""
        del rule
        fixed = _is_of_daemon_set(case)
        return cheapest_to_meet(case, lambda wish: NEVER if wish.of_name and fixed else WISH)

    def steps(self, case: Case, node: Node, rule: str) -> Iterator[Step]:
        """A step for each term that could be met."""
        del rule
        for wishes in unmet(case.pod.spec, node):
            if not wishes or (_is_of_daemon_set(case) and any(wish.of_name for wish in wishes)):
                continue
            selector, required = _changed(case, node, wishes)
            spec = case.pod.spec
            yield case.on_pod(
                self.reason,
                f"let {case.template} not ask for {' and '.join(map(_text, wishes))}{_instead(node, wishes)}",
                WISH + EACH_FURTHER * (len(wishes) - 1),
                **_field(node, wishes),
                node_selector=selector,
                affinity=replace(spec.affinity, node=replace(spec.affinity.node, required=required)),
            )


def _changed(case: Case, node: Node, wishes: list[Wish]) -> tuple[Labels, NodeSelector | None]:
    selector = dict(case.pod.spec.node_selector)
    required = case.pod.spec.affinity.node.required
    for wish in wishes:
        key = wish.requirement.key
        if wish.term is None:
            if key in node.labels:
                selector[key] = node.labels[key]
            else:
                del selector[key]
    number = next((wish.term for wish in wishes if wish.term is not None), None)
    if required is not None and number is not None:
        gone = [wish.requirement for wish in wishes if wish.term is not None]
        term = required.terms[number]
        left = NodeSelectorTerm(
            tuple(each for each in term.match_expressions if each not in gone),
            tuple(each for each in term.match_fields if each not in gone),
        )
        terms = (*required.terms[:number], left, *required.terms[number + 1 :])
        # A term that asks for nothing picks no node: then nothing is required.
        required = NodeSelector(terms) if left.match_expressions or left.match_fields else None
    return Labels(selector), required


def _field(node: Node, wishes: list[Wish]) -> dict[str, Any]:
    """What changes of the pod: the selector's labels, or the term as a whole."""
    if all(wish.term is None for wish in wishes):
        asked = {wish.requirement.key: wish.requirement.values[0] for wish in wishes}
        return {"field": "spec.nodeSelector", "before": asked, "after": {key: node.labels.get(key) for key in asked}}
    return {"field": "spec.affinity.nodeAffinity", "before": [_text(wish) for wish in wishes], "after": []}


def _instead(node: Node, wishes: list[Wish]) -> str:
    keys = [wish.requirement.key for wish in wishes if wish.term is None]
    found = [f"{key}={node.labels[key]}" for key in keys if key in node.labels]
    return f", but for {' and '.join(found)}" if found else ""


def _text(wish: Wish) -> str:
    requirement: Any = wish.requirement
    if wish.term is None:
        return f"{requirement.key}={requirement.values[0]}"
    values = f" ({', '.join(requirement.values)})" if requirement.values else ""
    return f"{requirement.key} {requirement.operator}{values}"


def _is_of_daemon_set(case: Case) -> bool:
    owner = case.origin.controller
    return owner is not None and owner.kind == "DaemonSet"
