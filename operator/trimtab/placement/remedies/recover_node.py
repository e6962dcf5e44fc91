"""Mend a node that Kubernetes has tainted because something is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from msgspec.structs import replace

from trimtab.kube.objects import Node, Taint
from trimtab.placement.remedies.costs import RECOVER
from trimtab.placement.remedies.framework import NEVER, Case, Costs, Step
from trimtab.placement.remedies.taint_sets import as_json, by_taints, of_the_system, text, unwelcome, without_cordon


class RecoverNode:
    """Not ready, unreachable, under pressure, without network: the taint goes when the fault does."""

    reason: ClassVar = "RecoverNode"
    rules: ClassVar = frozenset(("TaintToleration",))
    evicts: ClassVar = False

    def bound(self, case: Case, rule: str) -> Costs | float:
        """Only where nothing but such taints keeps the pod away."""
        del rule
        return by_taints(case, _cost)

    def steps(self, case: Case, node: Node, rule: str) -> Iterator[Step]:
        """One step: the node as it is without them."""
        del rule
        taints = unwelcome(node.taints, case.pod)
        if _cost(taints) == NEVER:
            return
        left = tuple(taint for taint in node.taints if taint not in taints)
        conditions = tuple(
            replace(condition, status="True") if condition.type == "Ready" else condition
            for condition in node.conditions
        )
        yield Step(
            reason=self.reason,
            change=f"mend node {node.name}, until Kubernetes takes {' and '.join(map(text, taints))} from it",
            cost=RECOVER,
            kind="Node",
            name=node.name,
            field="spec.taints",
            before=[as_json(taint) for taint in node.taints],
            after=[as_json(taint) for taint in left],
            puts=(replace(node, taints=left, conditions=conditions),),
        )


def _cost(taints: tuple[Taint, ...]) -> float:
    ours = without_cordon(taints)
    return RECOVER if ours and all(map(of_the_system, ours)) else NEVER
