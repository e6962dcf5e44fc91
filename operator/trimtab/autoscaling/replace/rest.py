"""Whether a cluster is at rest, so that nodes may be replaced: it moves pods that run well, and nothing presses."""

from __future__ import annotations

from typing import Final

from trimtab.api import reasons
from trimtab.autoscaling.groups import Groups, MachineState
from trimtab.autoscaling.replace.record import Replacing
from trimtab.autoscaling.scale_down.eligibility import delay
from trimtab.autoscaling.scale_down.planner import ScalingDown
from trimtab.autoscaling.scale_up import Inputs, ScalingUp
from trimtab.autoscaling.template.taints import TO_BE_DELETED
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node

_NOT_WAITING: Final = frozenset(
    {reasons.TERMINATING, reasons.SCHEDULING_GATED, reasons.DAEMON_SET_POD, reasons.PRIORITY_BELOW_THRESHOLD}
)
"""Why pods are without a node that need none: they keep nothing from being replaced."""


def unrest(
    snapshot: Snapshot, groups: Groups, inputs: Inputs, *, standing: Replacing, up: ScalingUp, down: ScalingDown
) -> str:
    """Why nothing is replaced now, in words; empty where the cluster is at rest.

    Args:
        snapshot: the cluster.
        groups: of the snapshot.
        inputs: what the plan goes by.
        standing: how far earlier replacements are.
        up: what is added by the same plan.
        down: what is removed by the same plan.
    """
    if inputs.halted or standing.waits:
        return inputs.halted or standing.waits
    if up.actions:
        return "nodes are added by this plan"
    waiting = [each for each in up.kept if each.kind == "Pod" and each.reason not in _NOT_WAITING]
    if waiting:
        return f"pods wait for a node, e.g. {waiting[0].namespace}/{waiting[0].name}"
    for group in groups.all:
        if inputs.upcoming.get(group.id, group.upcoming):
            return f"nodes of {group.kind} {group.key} are on their way"
        if any(each.marked for each in group.machines) or group.in_state(MachineState.DELETING):
            return f"machines of {group.kind} {group.key} are going"
    if down.actions or down.unneeded:
        return "nodes are not needed, and go first"
    going = sorted(node.name for node in snapshot.nodes.at if node is not None and _going(node))
    if going:
        return f"node {going[0]} is going"
    late = delay(inputs.spec, inputs.status, now=inputs.now)
    return "" if late is None else late.message


def _going(node: Node) -> bool:
    return node.deleted is not None or any(taint.key == TO_BE_DELETED for taint in node.taints)
