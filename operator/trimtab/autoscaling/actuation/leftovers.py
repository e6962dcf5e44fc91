"""What becomes of signs of removals on nodes for which none runs: pure, from a pass's own picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

from msgspec import Struct

from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.actuation.settings import RemovalSettings
from trimtab.autoscaling.actuation.signs import Signs, signs_of
from trimtab.autoscaling.groups import GroupMachine, Groups, MachineState, NodeGroup
from trimtab.autoscaling.providers import Removal
from trimtab.kube.objects import Node

LINGERING = 600.0
"""Seconds that a node which is not ready may outlive its machine, until whoever deletes nodes has seen it."""

NOTICING = 120.0
"""The same of a node that is ready: its kubelet may be gone, and nobody has noticed yet."""


class Step(StrEnum):
    """What is done."""

    LEAVE = "Leave"
    """Nothing: it is not ours, or the node goes already."""
    VERIFY = "Verify"
    """The size is lowered and the machine marked: see which machine goes."""
    GO_ON = "GoOn"
    """Go on with the removal, if it still holds."""
    RETURN = "Return"
    """Take the signs away."""


class Leftover(Struct, frozen=True):
    """A node with signs of a removal for which none runs.

    Attributes:
        node: the node.
        signs: on it.
        step: what is done.
        group: its group, ``None`` where it has none.
        machine: its machine, ``None`` where the group shows none.
        removal: where it is to be verified, what must have been asked for.
    """

    node: Node
    signs: Signs
    step: Step
    group: NodeGroup | None = None
    machine: GroupMachine | None = None
    removal: Removal | None = None


def leftovers(
    nodes: Iterable[Node],
    groups: Groups,
    spec: ClusterAutoscalerSpec | None,
    *,
    ours: Callable[[Node], bool],
    settings: RemovalSettings,
    now: float,
) -> list[Leftover]:
    """The nodes with signs for which none runs, by name.

    Args:
        nodes: of the cluster.
        groups: of the same picture.
        spec: of the ClusterAutoscaler; ``None`` where there is none.
        ours: whether a removal runs for a node, or has ended just now.
        settings: what is plausible.
        now: seconds since the epoch.
    """
    found = []
    for node in nodes:
        if not node.annotations and not node.taints:
            continue
        signs = signs_of(node)
        if (signs.any or signs.foreign) and not ours(node):
            found.append(_judge(node, signs, groups, spec, settings, now))
    return sorted(found, key=lambda each: each.node.name)


def goes_anyway(node: Node, groups: Groups) -> bool:
    """Whether a node or its machine is being deleted already, so that what stands on it goes with it."""
    if node.deleted is not None:
        return True
    group = groups.group_of(node.name)
    machines = () if group is None else group.machines
    return any(each.node == node.name and each.state is MachineState.DELETING for each in machines)


def _judge(
    node: Node, signs: Signs, groups: Groups, spec: ClusterAutoscalerSpec | None, settings: RemovalSettings, now: float
) -> Leftover:
    group = groups.group_of(node.name)
    machine = None
    if group is not None:
        machine = next((each for each in group.machines if each.node == node.name), None)

    def to(step: Step, removal: Removal | None = None) -> Leftover:
        return Leftover(node, signs, step, group, machine, removal)

    if not signs.any or node.deleted is not None:
        return to(Step.LEAVE)
    age = None if signs.since is None else now - signs.since
    if group is None or machine is None:
        most = NOTICING if node.ready else LINGERING
        lingers = signs.ours and spec is not None and age is not None and 0 <= age < most
        return to(Step.LEAVE if lingers else Step.RETURN)
    if machine.state is MachineState.DELETING:
        return to(Step.LEAVE)
    if signs.ours and machine.marked and alive(group) > group.target:
        return to(Step.VERIFY, asked_before(group, machine))
    if not signs.ours or age is None or not 0 <= age < settings.plausible or not _acts(spec) or group.paused:
        return to(Step.RETURN)
    return to(Step.GO_ON)


def _acts(spec: ClusterAutoscalerSpec | None) -> bool:
    return spec is not None and spec.mode == "Act" and spec.scaling_down.enabled


def alive(group: NodeGroup) -> int:
    """How many machines count for the group's size."""
    return sum(machine.state is not MachineState.DELETING for machine in group.machines)


def asked_before(group: NodeGroup, machine: GroupMachine) -> Removal:
    """What an earlier process must have asked for: the size is lowered, and this machine has yet to go."""
    others = sorted(
        each.name
        for each in group.machines
        if each.name and each.name != machine.name and not each.marked and each.state is not MachineState.DELETING
    )
    return Removal(group.id, alive(group), group.target, machines=(machine.name,), others=tuple(others))
