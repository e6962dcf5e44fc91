"""Add a node like one that is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from trimtab.kube.rules.quantity import format_amount
from trimtab.placement.remedies.costs import ADD_NODE
from trimtab.placement.remedies.framework import Case, Step
from trimtab.placement.remedies.new_nodes import fresh, new_name, shapes


class AddNode:
    """What a cluster autoscaler would do: would a new node of this shape, empty but for DaemonSets' pods, take the pod?

    The smallest shape comes first. The new node has no cordon and none of the taints that Kubernetes sets itself.
    """

    reason: ClassVar = "AddNode"
    least: ClassVar = ADD_NODE

    def steps(self, case: Case) -> Iterator[Step]:
        """A step for each shape."""
        for like in shapes(case, large_enough=True):
            amounts = {name: format_amount(name, amount) for name, amount in like.allocatable.items()}
            told = ", ".join(f"{name} {amounts[name]}" for name in ("cpu", "memory") if name in amounts)
            yield Step(
                reason=self.reason,
                change=f"add a node like {like.name} ({told}): a new one takes the pod",
                cost=ADD_NODE,
                kind="Node",
                name=new_name(case, like),
                details={"like": like.name, "allocatable": amounts},
                puts=fresh(case, like),
            )
