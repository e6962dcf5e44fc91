"""Which node is which machine's, and what the machines do.

A machine names its node (``status.nodeRef``); a node may name its machine (an annotation); and both may have the same
provider ID. That is asked in this order over all machines: what a machine says of itself outweighs what is inferred.
Provider IDs must be equal as they are: upstream compares what follows the last slash, which two providers, or two
zones of one, may well have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from msgspec import Struct

from trimtab.api import reasons
from trimtab.autoscaling.groups.keys import (
    DELETE_MACHINE,
    NODES_CLUSTER_MACHINE,
    NODES_CLUSTER_NAMESPACE,
    NODES_MACHINE,
)
from trimtab.autoscaling.groups.node_group import GroupMachine, MachineState, Problem
from trimtab.autoscaling.groups.provider import Candidate
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import AnyMachine, Node
from trimtab.kube.objects.machine import CLUSTER_API, MACHINE_API

FAILED_PHASE = "Failed"


class _NodeNames(Struct, frozen=True):
    """The names of nodes by all that leads to them."""

    known: frozenset[str]
    of_machine: dict[tuple[str, str], str]
    of_provider_id: dict[str, str]


class Membership(Struct, frozen=True):
    """The machines of each candidate by its id, nodes of no Machine last; and nodes that two machines claim."""

    machines: dict[str, tuple[GroupMachine, ...]]
    problems: tuple[Problem, ...]


def membership(candidates: Sequence[Candidate], snapshot: Snapshot) -> Membership:
    """Match machines and nodes.

    Args:
        candidates: in the order in which a node goes to one of several that claim it.
        snapshot: the nodes.
    """
    names = _node_names(snapshot)
    everyone = [machine for candidate in candidates for machine in _in_order(candidate)]
    node_of: dict[int, str] = {}
    taken: dict[str, AnyMachine] = {}
    problems = []
    for claim in _CLAIMS:
        for machine in everyone:
            node = "" if id(machine) in node_of else claim(machine, names)
            if not node:
                continue
            first = taken.setdefault(node, machine)
            if first is machine:
                node_of[id(machine)] = node
            elif claim is _by_reference:
                problems.append(_twice(machine, node, first))
    machines = {}
    claimed = set(taken)
    for candidate in candidates:
        strays = _without_machine(candidate, names, claimed)
        claimed |= {stray.node for stray in strays}
        own = (_group_machine(machine, node_of.get(id(machine), "")) for machine in _in_order(candidate))
        machines[candidate.id] = (*own, *strays)
    return Membership(machines, tuple(problems))


def _in_order(candidate: Candidate) -> list[AnyMachine]:
    return sorted(candidate.machines, key=lambda machine: machine.key)


def _node_names(snapshot: Snapshot) -> _NodeNames:
    of_machine: dict[tuple[str, str], str] = {}
    of_provider_id: dict[str, str] = {}
    ambiguous = set()
    for node in _nodes(snapshot):
        for key in _machine_keys(node):
            of_machine.setdefault(key, node.name)
        if node.provider_id and of_provider_id.setdefault(node.provider_id, node.name) != node.name:
            ambiguous.add(node.provider_id)
    for provider_id in ambiguous:  # the old node of a machine that joined again, or a mistake: nobody can tell
        del of_provider_id[provider_id]
    return _NodeNames(frozenset(snapshot.nodes.slot_of), of_machine, of_provider_id)


def nodes_by_provider_id(snapshot: Snapshot) -> dict[str, str]:
    """The names of nodes by their provider IDs; IDs that several nodes have lead nowhere."""
    return _node_names(snapshot).of_provider_id


def _nodes(snapshot: Snapshot) -> Iterator[Node]:
    for slot in snapshot.nodes.order().tolist():
        yield snapshot.nodes.node(slot)


def _machine_keys(node: Node) -> Iterator[tuple[str, str]]:
    annotations = node.annotations
    if NODES_MACHINE in annotations:
        yield MACHINE_API, annotations[NODES_MACHINE]
    if NODES_CLUSTER_MACHINE in annotations:
        namespace = annotations.get(NODES_CLUSTER_NAMESPACE, "default")
        yield CLUSTER_API, f"{namespace}/{annotations[NODES_CLUSTER_MACHINE]}"


def _by_reference(machine: AnyMachine, names: _NodeNames) -> str:
    return machine.node if machine.node in names.known else ""


def _by_annotation(machine: AnyMachine, names: _NodeNames) -> str:
    return names.of_machine.get((machine.api_group, machine.key), "")


def _by_provider_id(machine: AnyMachine, names: _NodeNames) -> str:
    return names.of_provider_id.get(machine.provider_id, "")


_CLAIMS: Sequence[Callable[[AnyMachine, _NodeNames], str]] = (_by_reference, _by_annotation, _by_provider_id)


def _group_machine(machine: AnyMachine, node: str) -> GroupMachine:
    state = _state(machine, node)
    failed = state is MachineState.FAILED
    return GroupMachine(
        namespace=machine.namespace,
        name=machine.name,
        state=state,
        node=node,
        since=machine.created if machine.deleted is None else machine.deleted,
        marked=any(machine.annotations.get(key) for key in DELETE_MACHINE[machine.api_group]),
        reason=machine.error_reason if failed else "",
        message=machine.error_message if failed else "",
        node_labels=machine.node_labels,
        node_taints=machine.node_taints,
    )


def _state(machine: AnyMachine, node: str) -> MachineState:
    if machine.deleted is not None:
        return MachineState.DELETING
    if machine.phase == FAILED_PHASE or machine.error_reason or machine.error_message:
        return MachineState.FAILED
    return MachineState.RUNNING if node else MachineState.PENDING


def _without_machine(candidate: Candidate, names: _NodeNames, claimed: Collection[str]) -> list[GroupMachine]:
    """Nodes of a pool whose provider shows no Machine for them."""
    told = {node for node in candidate.nodes if node in names.known}
    told |= {names.of_provider_id[each] for each in candidate.provider_ids if each in names.of_provider_id}
    namespace = candidate.source.namespace
    return [
        GroupMachine(namespace=namespace, name="", state=MachineState.RUNNING, node=node)
        for node in sorted(told.difference(claimed))
    ]


def _twice(machine: AnyMachine, node: str, first: AnyMachine) -> Problem:
    message = f"status.nodeRef: the node {node} is also that of the {first.kind} {first.key}, for which it counts"
    return Problem(machine.kind, machine.namespace, machine.name, reasons.NODE_CLAIMED_TWICE, message)
