"""Uncordon a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from trimtab.kube.objects import Node
from trimtab.kube.rules.taints import UNSCHEDULABLE
from trimtab.placement.remedies.costs import SWITCH
from trimtab.placement.remedies.framework import NEVER, Case, Costs, Step
from trimtab.placement.remedies.taint_sets import by_taints


class Uncordon:
    """``spec.unschedulable`` goes, and with it the taint that the node controller sets for it."""

    reason: ClassVar = "Uncordon"
    rules: ClassVar = frozenset(("NodeUnschedulable", "TaintToleration"))
    evicts: ClassVar = False

    def bound(self, case: Case, rule: str) -> Costs | float:
        """What the cordon costs is paid once, for both rules."""
        nodes = case.snapshot.nodes
        if rule == "NodeUnschedulable":
            return np.where(nodes.cordoned, SWITCH, NEVER)
        only_that = by_taints(case, lambda taints: 0.0 if {taint.key for taint in taints} == {UNSCHEDULABLE} else NEVER)
        return np.where(nodes.cordoned, only_that, only_that + SWITCH)

    def steps(self, case: Case, node: Node, rule: str) -> Iterator[Step]:
        """One step: as ``kubectl uncordon`` does."""
        del case, rule
        taints = tuple(taint for taint in node.taints if taint.key != UNSCHEDULABLE)
        if node.unschedulable or taints != node.taints:
            yield Step(
                reason=self.reason,
                change=f"uncordon node {node.name}",
                cost=SWITCH,
                kind="Node",
                name=node.name,
                field="spec.unschedulable",
                before=node.unschedulable,
                after=False,
                puts=(replace(node, unschedulable=False, taints=taints),),
            )
