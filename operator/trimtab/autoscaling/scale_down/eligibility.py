"""Which nodes may be tried at all, and why others stay; in upstream's order, what is cheapest to ask first."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec, ScaleDown
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.autoscaling.groups import GroupMachine, Groups, MachineState, NodeGroup
from trimtab.autoscaling.replace.record import NONE, Replacing
from trimtab.autoscaling.scale_down.utilization import Utilization, percent, threshold_of
from trimtab.autoscaling.template.taints import TO_BE_DELETED
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Node

DISABLED: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
"""On nodes: with "true" they stay."""


class Eligibility:
    """Asks what does not change while a plan is made.

    Args:
        spec: of the ClusterAutoscaler.
        groups: of the snapshot.
        utilization: of its nodes.
        replacing: how far replacements are: old nodes may go however much of them is used, new ones stay.
    """

    def __init__(
        self, spec: ClusterAutoscalerSpec, groups: Groups, utilization: Utilization, replacing: Replacing = NONE
    ) -> None:
        self._spec = spec
        self._replacing = replacing
        self._groups = groups
        self._utilization = utilization
        self.machines = {machine.node: machine for group in groups.all for machine in group.machines if machine.node}
        """The machine of each node that a group has."""

    def refusal(self, node: Node, slot: int) -> Refusal | None:
        """Why the node stays whatever happens to others; ``None`` if it may go."""
        if not self._spec.scaling_down.enabled:
            return Refusal(reasons.SCALE_DOWN_DISABLED, "spec.scaleDown.enabled is false")
        going = self.going(node)
        if going:
            return Refusal(reasons.CURRENTLY_BEING_DELETED, going)
        if node.annotations.get(DISABLED) == "true":
            return Refusal(reasons.SCALE_DOWN_DISABLED_ANNOTATION, f"its annotation {DISABLED} says true")
        group = self._groups.group_of(node.name)
        if group is None:
            return Refusal(reasons.NOT_AUTOSCALED, "no group that is scaled has the node")
        if group.paused:
            message = f"{group.kind} {group.key} is not scaled: {group.paused}"
            return Refusal(reasons.GROUP_PAUSED, message)
        if node.name in self._replacing.new:
            return Refusal(reasons.REPLACEMENT_GOES_ON, "it takes the place of nodes that are still to go")
        return None if node.name in self._replacing.old else self._too_full(group, slot)

    def going(self, node: Node) -> str:
        """Why the node counts as on its way out, in words; empty where it does not."""
        if node.deleted is not None:
            return "the node is being deleted"
        if any(taint.key == TO_BE_DELETED for taint in node.taints):
            return f"the node has the taint {TO_BE_DELETED}"
        machine: GroupMachine | None = self.machines.get(node.name)
        if machine is None or (machine.state is not MachineState.DELETING and not machine.marked):
            return ""
        return f"its machine {machine.key} is {'being deleted' if not machine.marked else 'marked to be deleted'}"

    def _too_full(self, group: NodeGroup, slot: int) -> Refusal | None:
        used = self._utilization
        threshold = threshold_of(self._spec, group.options, gpu=used.on_gpus(slot))
        if used.of(slot) <= threshold:
            return None
        return Refusal(reasons.NOT_UNDERUTILIZED, f"{used.told(slot)}; the threshold is {percent(threshold)}")


class Waiting(Struct, frozen=True):
    """For how long a node must have been unneeded, and since when it counts as that.

    Attributes:
        since: seconds since the epoch, ``None`` where nobody has recorded it.
        needed: seconds.
    """

    since: float | None
    needed: float

    def over(self, now: float) -> bool:
        """Whether it has been for long enough."""
        return self.since is not None and now - self.since >= self.needed


class Times:
    """How nodes wait.

    Args:
        down: of the ClusterAutoscaler; its times are read once, for there are thousands of nodes.
    """

    def __init__(self, down: ScaleDown) -> None:
        self._unneeded = down.unneeded_seconds
        self._unready = down.unready_seconds

    def of(self, node: Node, group: NodeGroup, record: float | None) -> Waiting:
        """How a node waits: one that is unready must have been both unready and unneeded for ``unreadyTime``."""
        options = group.options
        if not unready(node):
            own = options.unneeded_seconds
            return Waiting(record, self._unneeded if own is None else own)
        own = options.unready_seconds
        since = next((each.since for each in node.conditions if each.type == "Ready"), None)
        both = record if record is None or since is None else max(record, since)
        return Waiting(both, self._unready if own is None else own)


def unready(node: Node) -> bool:
    """Whether the node's Ready condition says something else than True; a file's node without one counts as ready."""
    return any(each.type == "Ready" and each.status != "True" for each in node.conditions)


def too_soon(node: Node, waiting: Waiting, *, now: float) -> Refusal:
    """Why a node that is not needed stays for the time being."""
    reason = reasons.NOT_UNREADY_LONG_ENOUGH if unready(node) else reasons.NOT_UNNEEDED_LONG_ENOUGH
    what = "unready and unneeded" if unready(node) else "unneeded"
    if waiting.since is None:
        message = f"{what} now, and not recorded as that before; it must be for {waiting.needed:.10g}s"
    elif waiting.since > now:
        message = f"{what}, but recorded as that since a time that lies {elapsed(waiting.since - now)} ahead"
    else:
        message = f"{what} for {elapsed(now - waiting.since)}; it must be for {waiting.needed:.10g}s"
    return Refusal(reason, message)


def elapsed(seconds: float) -> str:
    """A time that has gone by, in whole seconds rounded down: what is due in a moment does not read as due."""
    return f"{int(seconds)}s"


def delay(spec: ClusterAutoscalerSpec, status: ClusterAutoscalerStatus, *, now: float) -> Refusal | None:
    """Why no node is removed at this time, by what was done a short while ago; ``None`` if nothing is against it."""
    down = spec.scaling_down
    for what, field, reason, time, seconds in (
        (
            "nodes were added",
            "delayAfterAdd",
            reasons.DELAY_AFTER_ADD,
            status.last_scale_up,
            down.delay_after_add_seconds,
        ),
        (
            "a node was removed",
            "delayAfterDelete",
            reasons.DELAY_AFTER_DELETE,
            status.last_scale_down,
            down.delay_after_delete_seconds,
        ),
        (
            "removing a node failed",
            "delayAfterFailure",
            reasons.DELAY_AFTER_FAILURE,
            status.last_scale_down_failure,
            down.delay_after_failure_seconds,
        ),
    ):
        if time is not None and now - time.timestamp() < seconds:
            message = f"{what} {elapsed(max(0.0, now - time.timestamp()))} ago, and {field} is {seconds:.10g}s"
            return Refusal(reason, message)
    return None
