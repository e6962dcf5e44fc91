"""Merges the groups of external providers, which have no object in the cluster, with all other groups.

:mod:`trimtab.autoscaling.external` calls the providers and converts their responses to :class:`ExternalGroups`, which
are an input of the planners. The node of each instance is looked up in the snapshot, as for machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.autoscaling.groups.annotations import PRICE
from trimtab.autoscaling.groups.membership import nodes_by_provider_id
from trimtab.autoscaling.groups.node_group import (
    GroupMachine,
    GroupOptions,
    MachineState,
    NodeGroup,
    ObjectProblem,
    TemplateSource,
)
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Node

KIND: Final = "NodeGroup"
"""Kind of a group that has no object."""

_INT32: Final = 2**31 - 1


class ExternalMachine(Struct, frozen=True, gc=False):
    """An instance as reported by its provider.

    Attributes:
        provider_id: the provider's id of the instance, unique in the cluster; the same as ``spec.providerID`` of its
            node.
        node: name of its node if the provider knows it. Otherwise the node is looked up by provider ID.
        deleting: whether the instance is being deleted.
        creating: whether the instance is being created.
        reason: the provider's error code; empty if there is no error.
        message: the provider's error message.
        since: the time at which its current state began, in seconds since the epoch; ``None`` if unknown.
    """

    provider_id: str
    node: str = ""
    deleting: bool = False
    creating: bool = False
    reason: str = ""
    message: str = ""
    since: float | None = None


class ExternalGroup(Struct, frozen=True, gc=False):
    """A group as reported by its provider.

    Attributes:
        provider: name of the provider; the prefix of the group's id, and its ``api_version``.
        name: the provider's name of the group.
        minimum: minimum size.
        maximum: maximum size.
        target: current target size.
        machines: its instances in any order.
        options: options that differ from the ClusterAutoscaler's.
        node: a new node of the group; ``None`` if the provider does not describe it.
        no_node_reason: the reason why ``node`` is ``None``.
        price: price of a node per hour, in the format of the annotation ``trimtab.dev/price``; empty if unknown.
        paused: the reason why the group must not be scaled at present; empty if it may be scaled.
    """

    provider: str
    name: str
    minimum: int
    maximum: int
    target: int
    machines: tuple[ExternalMachine, ...] = ()
    options: GroupOptions = GroupOptions()
    node: Node | None = None
    no_node_reason: str = ""
    price: str = ""
    paused: str = ""

    @property
    def id(self) -> str:
        """Return the group's id, e.g. ``external/workers-a``."""
        return f"{self.provider}/{self.name}"


class ExternalGroups(Struct, frozen=True):
    """The groups of external providers.

    Attributes:
        groups: the groups in any order.
        problems: problems with the providers' responses.
        configured: whether external providers are configured, which may not have answered yet.
    """

    groups: tuple[ExternalGroup, ...] = ()
    problems: tuple[ObjectProblem, ...] = ()
    configured: bool = False

    def __or__(self, other: ExternalGroups) -> ExternalGroups:
        """Return the groups and problems of both operands."""
        return ExternalGroups(
            (*self.groups, *other.groups), (*self.problems, *other.problems), self.configured or other.configured
        )


NO_EXTERNAL_GROUPS: Final = ExternalGroups()


def external_groups(
    external: ExternalGroups, snapshot: Snapshot, group_of_node: Mapping[str, str]
) -> tuple[list[NodeGroup], list[ObjectProblem]]:
    """Return the node groups of external providers, and their problems.

    The result does not depend on the order of the groups.

    Args:
        external: the providers' responses.
        snapshot: the nodes.
        group_of_node: group ids by the names of nodes that belong to other groups already.
    """
    problems = list(external.problems)
    if not external.groups:
        return [], problems
    by_provider_id = nodes_by_provider_id(snapshot)
    claimed = dict(group_of_node)
    made: dict[str, NodeGroup] = {}
    for group in sorted(external.groups, key=lambda each: (each.id, each.minimum, each.maximum, each.target)):
        wrong = (
            "is reported twice by its provider; the first report is used"
            if group.id in made
            else _invalid_size_reason(group)
        )
        if wrong:
            problems.append(_problem(group, reasons.INVALID_LIMITS, wrong))
            continue
        machines = list(_machines(group, snapshot, by_provider_id, claimed, problems))
        made[group.id] = _node_group(group, machines)
        if group.paused:
            problems.append(_problem(group, reasons.GROUP_PAUSED, f"is not scaled: {group.paused}"))
    return list(made.values()), problems


def _invalid_size_reason(group: ExternalGroup) -> str:
    """Return the reason why a provider's sizes are invalid; empty if they are valid."""
    if not group.name:
        return "has no id: the provider must give each group an id"
    for what, size in (("minimum size", group.minimum), ("maximum size", group.maximum), ("target", group.target)):
        if not 0 <= size <= _INT32:
            return f"its provider reports the {what} {size}: it must be 0 or more"
    if group.maximum < group.minimum:
        return f"its provider reports the maximum size {group.maximum}, less than the minimum size {group.minimum}"
    return ""


def _machines(
    group: ExternalGroup,
    snapshot: Snapshot,
    by_provider_id: Mapping[str, Sequence[str]],
    claimed: dict[str, str],
    problems: list[ObjectProblem],
) -> Iterator[GroupMachine]:
    """Yield the instances with their nodes; each node belongs to one instance of one group."""
    seen: set[str] = set()
    for machine in _in_order(group.machines):
        if machine.provider_id in seen:
            continue
        seen.add(machine.provider_id)
        by_id = by_provider_id.get(machine.provider_id, ())
        node = machine.node if machine.node in snapshot.nodes.slot_of else ""
        node = node or (by_id[0] if len(by_id) == 1 else "")
        existing = node or next(iter(by_id), "")
        if node in claimed:
            message = f"instance {machine.provider_id}: the node {node} already belongs to {claimed[node]}"
            problems.append(_problem(group, reasons.NODE_CLAIMED_TWICE, message))
            node = ""
        elif node:
            claimed[node] = group.id
        state = _state(machine, node, existing)
        failed = state is MachineState.FAILED
        yield GroupMachine(
            namespace="",
            name=machine.provider_id,
            state=state,
            node=node,
            unconfirmed_node="" if node else existing,
            since=machine.since,
            reason=machine.reason if failed else "",
            message=machine.message if failed else "",
        )


def _in_order(machines: Iterable[ExternalMachine]) -> list[ExternalMachine]:
    return sorted(
        (each for each in machines if each.provider_id),
        key=lambda each: (each.provider_id, each.node, each.deleting, each.creating, each.reason, each.message),
    )


def _state(machine: ExternalMachine, node: str, existing: str) -> MachineState:
    """Return the state of an instance. An instance's error is ignored while its node exists."""
    if machine.deleting:
        return MachineState.DELETING
    if machine.reason and (machine.creating or not existing):
        return MachineState.FAILED
    if node:
        return MachineState.RUNNING
    return MachineState.UNCONFIRMED if existing else MachineState.PENDING


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
            no_node_reason=""
            if group.node is not None
            else group.no_node_reason or "its provider does not describe its nodes",
        ),
        paused=group.paused,
    )


def _problem(group: ExternalGroup, reason: str, message: str) -> ObjectProblem:
    return ObjectProblem(KIND, "", group.id, reason, message)
