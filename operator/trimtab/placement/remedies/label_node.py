"""Give a node the labels that the pod asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from trimtab.kube.frozen import Labels
from trimtab.kube.objects import LabelRequirement, Node
from trimtab.placement.remedies.costs import EACH_FURTHER, LABEL, RELABEL
from trimtab.placement.remedies.framework import NEVER, Case, Costs, Step
from trimtab.placement.remedies.selectors import Wish, cheapest_to_meet, system_label, unmet


class LabelNode:
    """Labels that Kubernetes or a cloud provider sets (host, zone, architecture) are facts and left alone."""

    reason: ClassVar = "LabelNode"
    rules: ClassVar = frozenset(("NodeAffinity",))
    evicts: ClassVar = False

    def bound(self, case: Case, rule: str) -> Costs | float:
        """By whether labels are missing or other than asked for."""
        del rule

        def price(wish: Wish) -> Costs | float:
            key = wish.requirement.key
            if wish.of_name or system_label(key):
                return NEVER
            return np.where(case.snapshot.nodes.column(key).ids >= 0, RELABEL, LABEL)

        return cheapest_to_meet(case, price)

    def steps(self, case: Case, node: Node, rule: str) -> Iterator[Step]:
        """A step for each term that could be met."""
        del rule
        for wishes in unmet(case.pod.spec, node):
            if not wishes or any(wish.of_name or system_label(wish.requirement.key) for wish in wishes):
                continue
            changes = {wish.requirement.key: _value(wish.requirement) for wish in wishes}
            labels = {**node.labels, **{key: value for key, value in changes.items() if value is not None}}
            for key in [key for key, value in changes.items() if value is None]:
                labels.pop(key, None)
            there = any(key in node.labels for key in changes)
            yield Step(
                reason=self.reason,
                change=f"label node {node.name}: {', '.join(_text(*each, node) for each in changes.items())}",
                cost=(RELABEL if there else LABEL) + EACH_FURTHER * (len(wishes) - 1),
                kind="Node",
                name=node.name,
                field="metadata.labels",
                before={key: node.labels.get(key) for key in changes},
                after=changes,
                puts=(replace(node, labels=Labels(labels)),),
            )


def _value(requirement: LabelRequirement) -> str | None:
    """A value that meets the requirement, ``None`` for no such label; what comes of it is tried."""
    match requirement.operator:
        case "In":
            return requirement.values[0] if requirement.values else None
        case "Gt" | "Lt":
            try:
                bound = int(requirement.values[0])
            except (IndexError, ValueError):
                return None
            return str(bound + 1 if requirement.operator == "Gt" else bound - 1)
        case "Exists":
            return ""
        case _:
            return None


def _text(key: str, value: str | None, node: Node) -> str:
    had = node.labels.get(key)
    if value is None:
        return f"{key} removed (it is {had})"
    return f"{key}={value}" if had is None else f"{key}={value} in place of {had}"
