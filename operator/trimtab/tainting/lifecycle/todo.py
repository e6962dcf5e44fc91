"""What a plan asks to be done, node by node. Pure."""

from __future__ import annotations

from collections.abc import Mapping

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


def todos(plan: LifecyclePlan, nodes: Mapping[str, Node]) -> dict[str, Todo]:
    """What is to be done, by node, the most urgent first: what pods go or stay by, then marks, then the rest.

    Args:
        plan: of a pass.
        nodes: that it was made on, by name.
    """
    asks = {each.node: each for each in plan.ask}
    marks = {each.node: each for each in plan.unknown}
    changes = {each.node: each for each in patches(plan.taints, nodes)}
    found = [
        Todo(plan=plan, node=nodes[name], ask=asks.get(name), mark=marks.get(name), patch=changes.get(name))
        for name in sorted({*asks, *marks, *changes})
        if name in nodes
    ]
    found.sort(key=_urgency)
    return {each.node.name: each for each in found}


def _urgency(todo: Todo) -> tuple[int, float]:
    if todo.executes:
        return (0, 0.0)
    if todo.mark is not None:
        return (1, 0.0)
    return (2, 0.0) if todo.ask is None else (3, -todo.ask.silent)
