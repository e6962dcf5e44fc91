"""Matches machines with nodes: a machine references its node, and the node must confirm the reference.

A machine references its node (``status.nodeRef``), and a node may name its machine in an annotation. References are
matched first, so that a reference to a node that does not confirm it is reported.

A user who may write machines in some namespace can claim any node: a reference, a provider ID or an owner proves
nothing. Therefore the node must confirm each claim by fields that only its kubelet and administrators can write (see
``docs/security.md``, "Identity of machines and nodes"), and nothing on it may contradict the claim. If several claims
on a node are confirmed, the claim with the strongest confirmation is used, and among equals that of the oldest machine,
because a forged machine is younger than the node.

An equal provider ID confirms no claim: pods can often read the ID of their node from the cloud's instance metadata. It
is evidence against a removal, however. If a machine has no node, but a node exists that has the machine's provider ID,
that the machine references or that names the machine, the machine is *unconfirmed*: it may be running pods. An
unconfirmed machine is neither removed nor expected to add a node, and its node is not drained. This happens while a
machine is not linked to its node yet, which takes seconds, or for as long as the controller that links them does not
run. It also happens after a node was deleted and registered again, until the controller has updated the UID in the
machine.

Some APIs write another provider ID into the machine than the node has, and only the part after the last slash is equal.
For a machine without a node, a node whose ID ends like the machine's is therefore evidence too, unless the node belongs
to another machine. Azure numbers the instances of each scale set from 0, so these parts may be equal by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from enum import IntEnum
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.autoscaling.groups.annotations import (
    DELETE_MACHINE,
    NODES_CLUSTER,
    NODES_CLUSTER_MACHINE,
    NODES_CLUSTER_NAMESPACE,
    NODES_MACHINE,
)
from trimtab.autoscaling.groups.machine_groups import GroupCandidate
from trimtab.autoscaling.groups.node_group import GroupMachine, MachineState, ObjectProblem
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import AnyMachine, AnyMachineSet, Node
from trimtab.kube.objects.machine import CLUSTER_API, MACHINE_API

FAILED_PHASE: Final = "Failed"


class Confirmation(IntEnum):
    """The evidence on a node that it belongs to a machine, strongest first."""

    ANNOTATION = 0
    """The node's annotation names the machine."""
    UID = 1
    """The machine's ``status.nodeRef.uid`` is the node's UID."""
    NO_IDENTITY_KNOWN = 2
    """Neither UID is known, so the name must suffice.

    This occurs in hand-written files. An API server never returns such nodes.
    """


class Contradiction(Struct, frozen=True):
    """The reason why a node does not belong to a machine that claims it."""

    reason: str
    message: str


class _Claim(Struct, frozen=True):
    """A machine's claim on a node that the node confirms. Claims are compared by ``rank``."""

    rank: tuple[int, float, int]
    machine: AnyMachine
    node: str


class _NodeIndex(Struct, frozen=True):
    """Indexes of the nodes by name, by machine, by provider ID, and by the part of the ID after the last slash."""

    nodes: dict[str, Node]
    of_machine: dict[tuple[str, str], str]
    of_provider_id: dict[str, list[str]]
    of_instance: dict[str, list[str]]


class Membership(Struct, frozen=True):
    """The result of matching machines and nodes.

    It contains the machines of each candidate, by candidate id, and the problems of rejected claims. Nodes that have no
    Machine come after the machines.
    """

    machines: dict[str, tuple[GroupMachine, ...]]
    problems: tuple[ObjectProblem, ...]


def match_nodes(candidates: Sequence[GroupCandidate], snapshot: Snapshot) -> Membership:
    """Match the machines of the candidates with nodes.

    Args:
        candidates: the candidates. If two have equally good claims on a node, the node is assigned to the first one.
        snapshot: the nodes.
    """
    index = _node_index(snapshot)
    everyone = [machine for candidate in candidates for machine in _in_order(candidate)]
    node_of: dict[int, str] = {}
    claimed_by: dict[str, AnyMachine] = {}
    problems = []
    for rule in _CLAIM_RULES:
        claims, refused = _claims(rule, [each for each in everyone if id(each) not in node_of], index)
        problems += refused
        for claim in sorted(claims, key=lambda each: each.rank):
            first = claimed_by.setdefault(claim.node, claim.machine)
            if first is claim.machine:
                node_of[id(claim.machine)] = claim.node
            elif rule is _by_reference:
                problems.append(_duplicate_reference(claim.machine, claim.node, first))
    machines = {}
    claimed = set(claimed_by)
    for candidate in candidates:
        own = [
            _group_machine(machine, node_of.get(id(machine), ""), index, claimed_by) for machine in _in_order(candidate)
        ]
        strays = _without_machine(candidate, index, claimed, own)
        claimed |= {stray.node for stray in strays if stray.node}
        machines[candidate.id] = (*own, *strays)
    return Membership(machines, tuple(problems))


def _claims(
    rule: Callable[[AnyMachine, _NodeIndex], str], machines: Sequence[AnyMachine], index: _NodeIndex
) -> tuple[list[_Claim], list[ObjectProblem]]:
    """Return the claims that one rule confirms, and the problems of references that were not confirmed."""
    claims, refused = [], []
    for order, machine in enumerate(machines):
        name = rule(machine, index)
        if not name:
            continue
        found = confirm_node(machine, index.nodes[name])
        if isinstance(found, Confirmation):
            created = machine.created if machine.created is not None else float("inf")
            claims.append(_Claim((found, created, order), machine, name))
        elif rule is _by_reference:
            refused.append(ObjectProblem(machine.kind, machine.namespace, machine.name, found.reason, found.message))
    return claims, refused


def confirm_node(machine: AnyMachine, node: Node) -> Confirmation | Contradiction:
    """Determine whether a node belongs to a machine.

    Args:
        machine: a machine that claims the node, or that the node names.
        node: the node.

    Returns:
        The confirmation by the node, or the contradiction. If nothing on the node confirms the claim, that is a
        contradiction too.
    """
    named = list(machine_keys(node))
    if named and (machine.api_group, machine.key) not in named:
        return _mismatch(f"the node {node.name} names the machine {named[0][1]}")
    if machine.node and machine.node != node.name:
        return _mismatch(f"it references the node {machine.node}, not {node.name}")
    theirs = _other_cluster(node, machine) if machine.api_group == CLUSTER_API else ""
    if theirs:
        return _mismatch(f"the node {node.name} belongs to {theirs}")
    uids_known = bool(machine.node_uid and node.uid)
    if uids_known and machine.node_uid != node.uid:
        return _mismatch(f"status.nodeRef.uid is {machine.node_uid}, and that of the node {node.name} is {node.uid}")
    if not _same_instance(machine, node):
        return _mismatch(f"its provider ID is {machine.provider_id}, and that of {node.name} is {node.provider_id}")
    if named:
        return Confirmation.ANNOTATION
    if uids_known:
        return Confirmation.UID
    if not machine.node_uid and not node.uid:
        return Confirmation.NO_IDENTITY_KNOWN
    message = (
        f"status.nodeRef: nothing on the node {node.name} confirms that it belongs to this machine: "
        "neither UID nor annotation"
    )
    return Contradiction(reasons.NODE_NOT_CONFIRMED, message)


def _mismatch(message: str) -> Contradiction:
    return Contradiction(reasons.NODE_IDENTITY_MISMATCH, message)


def _same_instance(machine: AnyMachine, node: Node) -> bool:
    """Return whether the provider IDs of a machine and a node can denote the same instance.

    Only the part after the last slash is compared, because for some providers the rest differs between the provider ID
    of a machine and that of its node.
    """
    if not machine.provider_id or not node.provider_id:
        return True
    return _instance(machine.provider_id) == _instance(node.provider_id)


def _instance(provider_id: str) -> str:
    return provider_id.rpartition("/")[2]


def _in_order(candidate: GroupCandidate) -> list[AnyMachine]:
    return sorted(candidate.machines, key=lambda machine: machine.key)


def _node_index(snapshot: Snapshot) -> _NodeIndex:
    nodes = {node.name: node for node in _live_nodes(snapshot)}
    of_machine: dict[tuple[str, str], str] = {}
    for node in nodes.values():
        for key in machine_keys(node):
            of_machine.setdefault(key, node.name)
    of_instance: dict[str, list[str]] = {}
    for node in nodes.values():
        of_instance.setdefault(_instance(node.provider_id), []).append(node.name)
    return _NodeIndex(nodes, of_machine, nodes_by_provider_id(snapshot), of_instance)


def nodes_by_provider_id(snapshot: Snapshot) -> dict[str, list[str]]:
    """Return node names by provider ID. Several nodes have the same ID if one registered again under a new name."""
    found: dict[str, list[str]] = {}
    for node in _live_nodes(snapshot):
        if node.provider_id:
            found.setdefault(node.provider_id, []).append(node.name)
    return found


def _live_nodes(snapshot: Snapshot) -> Iterator[Node]:
    for slot in snapshot.nodes.order().tolist():
        yield snapshot.nodes.node(slot)


def machine_keys(node: Node) -> Iterator[tuple[str, str]]:
    """Yield API group and ``namespace/name`` of each machine that a node names in its annotations."""
    annotations = node.annotations
    if NODES_MACHINE in annotations:
        yield MACHINE_API, annotations[NODES_MACHINE]
    if NODES_CLUSTER_MACHINE in annotations:
        namespace = annotations.get(NODES_CLUSTER_NAMESPACE, "default")
        yield CLUSTER_API, f"{namespace}/{annotations[NODES_CLUSTER_MACHINE]}"


def _by_reference(machine: AnyMachine, index: _NodeIndex) -> str:
    return machine.node if machine.node in index.nodes else ""


def _by_annotation(machine: AnyMachine, index: _NodeIndex) -> str:
    return index.of_machine.get((machine.api_group, machine.key), "")


_CLAIM_RULES: Sequence[Callable[[AnyMachine, _NodeIndex], str]] = (_by_reference, _by_annotation)


def _unconfirmed_node(machine: AnyMachine, index: _NodeIndex, claimed: Collection[str]) -> str:
    """Return the node that seems to be that of a machine without a confirmed node, or an empty string."""
    by_id = index.of_provider_id.get(machine.provider_id)
    if by_id:
        return by_id[0]
    referenced = index.nodes.get(machine.node)
    if referenced is not None and _same_instance(machine, referenced):
        return machine.node
    named = _by_annotation(machine, index)
    instance = _instance(machine.provider_id)
    if named or not instance:
        return named
    return next((name for name in index.of_instance.get(instance, ()) if name not in claimed), "")


def _group_machine(machine: AnyMachine, node: str, index: _NodeIndex, claimed: Collection[str]) -> GroupMachine:
    unconfirmed = "" if node else _unconfirmed_node(machine, index, claimed)
    state = _state(machine, node, unconfirmed)
    failed = state is MachineState.FAILED
    return GroupMachine(
        namespace=machine.namespace,
        name=machine.name,
        state=state,
        node=node,
        unconfirmed_node=unconfirmed,
        since=machine.created if machine.deleted is None else machine.deleted,
        marked=any(machine.annotations.get(key) for key in DELETE_MACHINE[machine.api_group]),
        reason=machine.error_reason if failed else "",
        message=machine.error_message if failed else "",
        node_labels=machine.node_labels,
        node_taints=machine.node_taints,
    )


def _state(machine: AnyMachine, node: str, unconfirmed_node: str) -> MachineState:
    if machine.deleted is not None:
        return MachineState.DELETING
    if machine.phase == FAILED_PHASE or machine.error_reason or machine.error_message:
        return MachineState.FAILED
    if node:
        return MachineState.RUNNING
    return MachineState.UNCONFIRMED if unconfirmed_node else MachineState.PENDING


def _without_machine(
    candidate: GroupCandidate, index: _NodeIndex, claimed: Collection[str], machines: Sequence[GroupMachine]
) -> list[GroupMachine]:
    """Return one entry for each node of a MachinePool whose provider creates no Machine objects.

    Args:
        candidate: the MachinePool; other kinds have no such nodes.
        index: the nodes.
        claimed: names of nodes that already belong to a machine or to another MachinePool.
        machines: the machines of the candidate.
    """
    referenced = {
        name: uid
        for name, uid in candidate.nodes
        if (node := index.nodes.get(name)) is not None and _is_listed(node, candidate)
    }
    own = {each.node or each.unconfirmed_node for each in machines}
    known = own | referenced.keys()
    by_id = (index.of_provider_id.get(each, []) for each in candidate.provider_ids)
    # If an instance registered again under a new name, its old Node may still exist. It is not another instance.
    listed = {names[0] for names in by_id if names and known.isdisjoint(names)}
    seeming = {*referenced, *listed} - own
    confirmed = {
        name
        for name, uid in referenced.items()
        if name not in claimed and index.nodes[name].uid == uid and not _names_others(index.nodes[name], candidate)
    }
    namespace = candidate.source.namespace
    return [
        GroupMachine(namespace, "", MachineState.RUNNING, node=name)
        if name in confirmed
        else GroupMachine(namespace, "", MachineState.UNCONFIRMED, unconfirmed_node=name)
        for name in sorted(seeming)
    ]


def _is_listed(node: Node, candidate: GroupCandidate) -> bool:
    """Return whether a MachinePool lists the provider ID of a node, as far as both have IDs."""
    return not node.provider_id or not candidate.provider_ids or node.provider_id in candidate.provider_ids


def _names_others(node: Node, candidate: GroupCandidate) -> bool:
    """Return whether a node names a machine, another cluster or another namespace.

    If it does, it does not belong to the nodes of the MachinePool that have no Machine.
    """
    return bool(_other_cluster(node, candidate.source)) or any(True for _ in machine_keys(node))


def _other_cluster(node: Node, owner: AnyMachine | AnyMachineSet) -> str:
    """Return the cluster or namespace to which a node belongs if the owner belongs to another one, else ``""``."""
    cluster = node.annotations.get(NODES_CLUSTER, "")
    if cluster and owner.cluster and cluster != owner.cluster:
        return f"the cluster {cluster}, not {owner.cluster}"
    namespace = node.annotations.get(NODES_CLUSTER_NAMESPACE, "")
    return f"the namespace {namespace}, not {owner.namespace}" if namespace not in ("", owner.namespace) else ""


def _duplicate_reference(machine: AnyMachine, node: str, first: AnyMachine) -> ObjectProblem:
    message = f"status.nodeRef: the node {node} already belongs to the {first.kind} {first.key}"
    return ObjectProblem(machine.kind, machine.namespace, machine.name, reasons.NODE_CLAIMED_TWICE, message)
