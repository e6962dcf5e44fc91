"""Add a node that is larger than any that is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from trimtab.kube.rules.quantity import format_amount
from trimtab.placement.remedies.amounts import told
from trimtab.placement.remedies.costs import LARGER_NODE
from trimtab.placement.remedies.framework import Case, Step
from trimtab.placement.remedies.new_nodes import enlarged, fresh, new_name, shapes


class LargerNode:
    """The pod can never fit: it asks for more than any node it may use would hold, empty as it were.

    Said by how much the one fails that is nearest to holding it.
    """

    reason: ClassVar = "LargerNode"
    least: ClassVar = LARGER_NODE

    def steps(self, case: Case) -> Iterator[Step]:
        """A step for each shape, the nearest first."""
        for like in shapes(case, large_enough=False):
            amounts = enlarged(case, like)
            names = [name for name, amount in amounts.items() if amount > like.allocatable.get(name, 0)]
            if not names:
                continue
            needed = {name: format_amount(name, amounts[name]) for name in names}
            has = {name: format_amount(name, like.allocatable.get(name, 0)) for name in names}
            by = {name: format_amount(name, amounts[name] - like.allocatable.get(name, 0)) for name in names}
            yield Step(
                reason=self.reason,
                change=f"add a node with at least {told(needed)}: the nearest, {like.name}, has {told(has)} even when "
                f"it is empty, {told(by)} too little",
                cost=LARGER_NODE
                + float(np.log2(1 + sum(amounts[n] / max(like.allocatable.get(n, 0), 1) for n in names))),
                kind="Node",
                name=new_name(case, like),
                details={"like": like.name, "allocatable": needed, "missing": by},
                puts=fresh(case, like, amounts),
            )
