"""What a plan asks to be done, node by node. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from trimtab.kube.objects import Node
from trimtab.kube.rules.taints import NO_EXECUTE
from trimtab.tainting.health import AskFirst, MarkUnknown
from trimtab.tainting.patches import TaintPatch, patches
from trimtab.tainting.planner import LifecyclePlan


class Todo(Struct, frozen=True, kw_only=True):
    """What is to be done about one node, in the order of acting.

    Attributes:
        plan: that says so.
        node: as it was planned on.
        ask: whether it is to be read from the API server before it counts as Unknown.
        mark: that makes its conditions Unknown.
        patch: that changes its taints.
    """

    plan: LifecyclePlan
    node: Node
    ask: AskFirst | None = None
    mark: MarkUnknown | None = None
    patch: TaintPatch | None = None

    @property
    def taken(self) -> bool:
        """Whether the queue of its zone gave it free in this pass."""
        return self.node.name in self.plan.taken

    @property
    def executes(self) -> bool:
        """Whether a NoExecute taint is put on or taken off."""
        return self.patch is not None and any(each.taint.effect == NO_EXECUTE for each in self.patch.changes)


MOST: Final = 500
"""Nodes that one pass hands over: more take the workers longer than the next pass is away, which finds them anew."""


def todos(plan: LifecyclePlan, nodes: Mapping[str, Node], *, most: int = MOST) -> dict[str, Todo]:
    """What is to be done, by node, the most urgent first: what pods go or stay by, then marks, then the rest.

    Args:
        plan: of a pass.
        nodes: that it was made on, by name.
        most: how many at most; what the queues gave free is always among them.
    """
    asks = {each.node: each for each in plan.ask}
    marks = {each.node: each for each in plan.unknown}
    changing = {each.node for each in plan.taints}
    executing = {each.node for each in plan.taints if each.taint.effect == NO_EXECUTE}

    def urgency(name: str) -> tuple[int, float, str]:
        if name in executing:
            return (0 if name in plan.taken else 1, 0.0, name)
        if name in marks or name not in asks:
            return (2 if name in marks else 3, 0.0, name)
        return (4, -asks[name].silent, name)

    chosen = sorted((name for name in {*asks, *marks, *changing} if name in nodes), key=urgency)[:most]
    wanted = set(chosen)
    changes = {each.node: each for each in patches((each for each in plan.taints if each.node in wanted), nodes)}
    return {
        name: Todo(plan=plan, node=nodes[name], ask=asks.get(name), mark=marks.get(name), patch=changes.get(name))
        for name in chosen
    }
