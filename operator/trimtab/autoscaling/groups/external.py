"""Groups that no object of the cluster stands for: their provider says what they are, and they join all others here.

Whoever asks a provider (:mod:`trimtab.autoscaling.external`) makes :class:`ExternalGroups` of its answers: values as
any others, so that planners stay pure and take them as a part of their input. Which node an instance is follows from
the snapshot, as with machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.autoscaling.groups.keys import PRICE
from trimtab.autoscaling.groups.membership import nodes_by_provider_id
from trimtab.autoscaling.groups.node_group import (
    GroupMachine,
    GroupOptions,
    MachineState,
    NodeGroup,
    Problem,
    TemplateSource,
)
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Node

KIND: Final = "NodeGroup"
"""What such a group is called where others have the kind of their object."""

_INT32: Final = 2**31 - 1


class ExternalMachine(Struct, frozen=True, gc=False):
    """An instance as its provider tells it.

    Attributes:
        provider_id: the provider's name for it, unique in the cluster; nodes have the same as ``spec.providerID``.
        node: the name of its node where the provider knows it; else the provider ID leads to it.
        deleting: whether it is on its way out.
        creating: whether it is being made.
        reason: the provider's code for what is wrong with it; empty where nothing is.
        message: the same in words.
        since: when its state began, in seconds since the epoch; ``None`` where nobody says it.
    """

    provider_id: str
    node: str = ""
    deleting: bool = False
    creating: bool = False
    reason: str = ""
    message: str = ""
    since: float | None = None


class ExternalGroup(Struct, frozen=True, gc=False):
    """A group as its provider tells it.

    Attributes:
        provider: which provider acts on it: what its id begins with, and its ``api_version``.
        name: the provider's own name for it.
        minimum: the fewest nodes that scale-down leaves.
        maximum: the most nodes that scale-up asks for.
        target: the size that is asked for at present.
        machines: its instances, in any order.
        options: what it wants otherwise than the ClusterAutoscaler.
        node: what a new node of it would be, as the provider says; ``None`` where it does not say.
        untold: why it does not say, in words.
        price: what a node of it costs an hour as the annotation ``trimtab.dev/price`` has it; empty if unknown.
        paused: why it must not be acted on at present, in words.
    """

    provider: str
    name: str
    minimum: int
    maximum: int
    target: int
    machines: tuple[ExternalMachine, ...] = ()
    options: GroupOptions = GroupOptions()
    node: Node | None = None
    untold: str = ""
    price: str = ""
    paused: str = ""

    @property
    def id(self) -> str:
        """What the group is known by, e.g. ``external/workers-a``."""
        return f"{self.provider}/{self.name}"


class ExternalGroups(Struct, frozen=True):
    """The groups of providers outside of the cluster.

    Attributes:
        groups: in any order.
        problems: what is wrong with the answers of providers.
    """

    groups: tuple[ExternalGroup, ...] = ()
    problems: tuple[Problem, ...] = ()

    def __or__(self, other: ExternalGroups) -> ExternalGroups:
        """Both."""
        return ExternalGroups((*self.groups, *other.groups), (*self.problems, *other.problems))


NO_EXTERNAL_GROUPS: Final = ExternalGroups()


def external_groups(
    external: ExternalGroups, snapshot: Snapshot, taken: Mapping[str, str]
) -> tuple[list[NodeGroup], list[Problem]]:
    """The node groups that providers tell, and what is wrong with what they tell; pure, whatever the order.

    Args:
        external: the providers' answers.
        snapshot: the nodes.
        taken: the ids of the groups that nodes belong to already, by the nodes' names; they keep them.
    """
    problems = list(external.problems)
    if not external.groups:
        return [], problems
    by_provider_id = nodes_by_provider_id(snapshot)
    claimed = dict(taken)
    made: dict[str, NodeGroup] = {}
    for group in sorted(external.groups, key=lambda each: (each.id, each.minimum, each.maximum, each.target)):
        wrong = "is told twice by its provider; the first counts" if group.id in made else _wrong(group)
        if wrong:
            problems.append(_problem(group, reasons.INVALID_LIMITS, wrong))
            continue
        machines = list(_machines(group, snapshot, by_provider_id, claimed, problems))
        made[group.id] = _node_group(group, machines)
        if group.paused:
            problems.append(_problem(group, reasons.GROUP_PAUSED, f"is not scaled: {group.paused}"))
    return list(made.values()), problems


def _wrong(group: ExternalGroup) -> str:
    """What cannot be in the sizes that a provider tells; empty where they can be."""
    if not group.name:
        return "has no id: its provider must give each group one"
    for what, size in (("smallest size", group.minimum), ("largest size", group.maximum), ("target", group.target)):
        if not 0 <= size <= _INT32:
            return f"its provider says that its {what} is {size}: it must be 0 or more"
    if group.maximum < group.minimum:
        return f"its provider says that its largest size is {group.maximum}, less than its smallest, {group.minimum}"
    return ""


def _machines(
    group: ExternalGroup,
    snapshot: Snapshot,
    by_provider_id: Mapping[str, str],
    claimed: dict[str, str],
    problems: list[Problem],
) -> Iterator[GroupMachine]:
    """The instances with their nodes, by their provider IDs; each node is that of one instance of one group."""
    seen: set[str] = set()
    for machine in _in_order(group.machines):
        if machine.provider_id in seen:
            continue
        seen.add(machine.provider_id)
        node = machine.node if machine.node in snapshot.nodes.slot_of else ""
        node = node or by_provider_id.get(machine.provider_id, "")
        if node in claimed:
            message = f"instance {machine.provider_id}: the node {node} belongs to {claimed[node]}, for which it counts"
            problems.append(_problem(group, reasons.NODE_CLAIMED_TWICE, message))
            node = ""
        elif node:
            claimed[node] = group.id
        state = _state(machine, node)
        failed = state is MachineState.FAILED
        yield GroupMachine(
            namespace="",
            name=machine.provider_id,
            state=state,
            node=node,
            since=machine.since,
            reason=machine.reason if failed else "",
            message=machine.message if failed else "",
        )


def _in_order(machines: Iterable[ExternalMachine]) -> list[ExternalMachine]:
    return sorted(
        (each for each in machines if each.provider_id),
        key=lambda each: (each.provider_id, each.node, each.deleting, each.creating, each.reason, each.message),
    )


def _state(machine: ExternalMachine, node: str) -> MachineState:
    """What an instance is doing. An error of an instance whose node is there and works is the node's to tell."""
    if machine.deleting:
        return MachineState.DELETING
    if machine.reason and (machine.creating or not node):
        return MachineState.FAILED
    return MachineState.RUNNING if node else MachineState.PENDING


def _node_group(group: ExternalGroup, machines: Iterable[GroupMachine]) -> NodeGroup:
    return NodeGroup(
        id=group.id,
        api_version=group.provider,
        kind=KIND,
        namespace="",
        name=group.name,
        minimum=group.minimum,
        maximum=group.maximum,
        target=group.target,
        machines=tuple(machines),
        options=group.options,
        template=TemplateSource(
            annotations=Labels({PRICE: group.price} if group.price else {}),
            node=group.node,
            untold="" if group.node is not None else group.untold or "its provider does not say it",
        ),
        paused=group.paused,
    )


def _problem(group: ExternalGroup, reason: str, message: str) -> Problem:
    return Problem(KIND, "", group.id, reason, message)
