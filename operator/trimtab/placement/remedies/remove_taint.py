"""Remove taints from a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from msgspec.structs import replace

from trimtab.kube.objects import Node, Taint
from trimtab.placement.remedies.costs import UNTAINT
from trimtab.placement.remedies.framework import NEVER, Case, Costs, Step
from trimtab.placement.remedies.taint_sets import as_json, by_taints, on_purpose, text, unwelcome


class RemoveTaint:
    """What somebody set on purpose goes, for this pod and for all others."""

    reason: ClassVar = "RemoveTaint"
    rules: ClassVar = frozenset(("TaintToleration",))
    evicts: ClassVar = False

    def bound(self, case: Case, rule: str) -> Costs | float:
        """By the number of taints."""
        del rule
        return by_taints(case, _cost)

    def steps(self, case: Case, node: Node, rule: str) -> Iterator[Step]:
        """One step, for all taints of the node that keep the pod away."""
        del rule
        taints = unwelcome(node.taints, case.pod)
        cost = _cost(taints)
        if cost == NEVER:
            return
        left = tuple(taint for taint in node.taints if taint not in taints)
        yield Step(
            reason=self.reason,
            change=f"remove {' and '.join(map(text, taints))} from node {node.name}",
            cost=cost,
            kind="Node",
            name=node.name,
            field="spec.taints",
            before=[as_json(taint) for taint in node.taints],
            after=[as_json(taint) for taint in left],
            puts=(replace(node, taints=left),),
        )


def _cost(taints: tuple[Taint, ...]) -> float:
    return on_purpose(taints, UNTAINT)
