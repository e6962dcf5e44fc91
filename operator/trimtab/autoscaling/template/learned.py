"""A template from a real node of the group: what is there is what comes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.autoscaling.groups.node_group import GroupMachine, MachineState, NodeGroup, TemplateSource
from trimtab.autoscaling.template.annotated import READY
from trimtab.autoscaling.template.node_template import NodeTemplate, template_name
from trimtab.autoscaling.template.taints import TO_BE_DELETED, lasting, starts_up, with_taints
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import NO_LABELS, Labels, ResourceList
from trimtab.kube.objects import CSINode, Node, Taint
from trimtab.kube.rules.node_labels import HOSTNAME

SETTLED: Final = 60.0
"""Seconds that a node must have been ready: then its DaemonSets' pods are there, and devices have been counted."""

_PLACES: Final = ("topology.", "failure-domain.beta.kubernetes.io/")
"""What keys of labels begin with that say where a node is."""


class Standing(IntEnum):
    """How much a node can teach, the best first."""

    SETTLED = 0
    FRESH = 1
    """Ready for less than :data:`SETTLED` seconds."""
    UNWELL = 2
    """Not ready, cordoned, starting, or on its way out: better than nothing at all."""


class Sample(Struct, frozen=True):
    """A node to learn from, and the group's other nodes that stand as well."""

    node: Node
    machine: GroupMachine
    standing: Standing
    peers: tuple[Node, ...]


def sample_of(group: NodeGroup, snapshot: Snapshot, *, now: float, startup: Collection[str]) -> Sample | None:
    """The node to learn from: of those that stand best and have all resources the newest, of several the first by name.

    The newest, because it shows what the group makes today: the set's template may have changed since the others were
    made. But a ready node may lack its GPUs for minutes, until their driver is installed and has counted them.
    """
    machine_of = {machine.node: machine for machine in group.machines if machine.node}
    ranked = []
    for name in sorted(machine_of):
        node = snapshot.nodes.get(name)
        if node is not None and node.allocatable:
            deleting = machine_of[name].state is MachineState.DELETING
            ranked.append((Standing.UNWELL if deleting else standing(node, now=now, startup=startup), node))
    if not ranked:
        return None
    best = min(rank for rank, _ in ranked)
    peers = [node for rank, node in ranked if rank is best]
    newest = max(peers, key=lambda node: (_resources(node), node.created or 0.0))  # of equals the first
    return Sample(newest, machine_of[newest.name], best, tuple(peers))


def _resources(node: Node) -> int:
    return sum(amount > 0 for amount in node.allocatable.values())


def standing(node: Node, *, now: float, startup: Collection[str]) -> Standing:
    """How much a node can teach at that time."""
    starting = any(starts_up(taint, startup) for taint in node.taints)
    leaving = any(taint.key == TO_BE_DELETED for taint in node.taints)
    if not node.ready or node.unschedulable or node.deleted is not None or starting or leaving:
        return Standing.UNWELL
    since = next((each.since for each in node.conditions if each.type == "Ready"), None)
    return Standing.FRESH if since is not None and now - since < SETTLED else Standing.SETTLED


def learned(group: NodeGroup, sample: Sample, snapshot: Snapshot, *, startup: Collection[str]) -> NodeTemplate:
    """The template that a node makes, without pods."""
    like, name = sample.node, template_name(group.id)
    labels, unsure = _labels(sample, group.template)
    node = replace(
        like,
        name=name,
        uid=name,
        resource_version="",
        labels=Labels({**labels, **group.template.labels}),
        annotations=NO_LABELS,
        created=None,
        deleted=None,
        unschedulable=False,
        provider_id="",
        taints=_taints(sample, group.template, startup),
        conditions=READY,
        images=ResourceList(),
    )
    drivers = snapshot.shelves.of(CSINode).get(like.name)
    assumed = list(unsure)
    if sample.standing is Standing.FRESH:
        assumed.insert(0, f"{like.name} has been ready for less than {SETTLED:g}s")
    elif sample.standing is Standing.UNWELL:
        assumed.insert(0, f"{like.name}, which is not ready and schedulable, is what the group's nodes are like")
    return NodeTemplate(
        group=group.id,
        node=node,
        drivers=None if drivers is None else replace(drivers, name=name, uid=name, resource_version=""),
        sample=like.name,
        assumed=tuple(assumed),
    )


def _labels(sample: Sample, source: TemplateSource) -> tuple[dict[str, str], Sequence[str]]:
    """The labels that a new node will have too, and what cannot be known, in words.

    Without the hostname, without labels that hold the node's or the machine's name, and without the place where the
    group's nodes are in several: nobody knows in which the next one will be, and a volume must not count on it. Labels
    that the sample has of its machine, and that the group's object no longer gives, end with it.
    """
    own = {sample.node.name, sample.machine.name, sample.node.labels.get(HOSTNAME, "")} - {""}
    kept, unsure = {}, []
    for key, value in sorted(sample.node.labels.items()):
        if key.startswith(_PLACES):
            places = sorted({node.labels.get(key, "none") for node in sample.peers})
            if len(places) > 1:
                unsure.append(f"{key} is left out: the group's nodes are in {', '.join(places)}")
                continue
        elif key == HOSTNAME or value in own:
            continue
        if key not in source.labels and sample.machine.node_labels.get(key) == value:
            continue
        kept[key] = value
    return kept, unsure


def _taints(sample: Sample, source: TemplateSource, startup: Collection[str]) -> tuple[Taint, ...]:
    """The taints that a new node will have.

    A set that is given another template changes no machine that it has. So what the sample has of its own machine, and
    the template no longer gives, ends with it; and what the template gives counts though no node has it yet. Except
    for what a node gets only once, when it joins: where the machine gives that and the sample is rid of it, the next
    node will be, too.
    """
    given = {(taint.key, taint.effect) for taint in source.taints}
    old = {(taint.key, taint.effect) for taint in sample.machine.node_taints}
    there = {(taint.key, taint.effect) for taint in sample.node.taints}
    passing = {(taint.key, taint.effect) for taint in source.initial_taints} & old - there
    kept = (taint for taint in _shared(sample, startup) if (taint.key, taint.effect) not in old - given)
    return with_taints(kept, (taint for taint in source.taints if (taint.key, taint.effect) not in passing))


def _shared(sample: Sample, startup: Collection[str]) -> tuple[Taint, ...]:
    """The lasting taints that all nodes have that stand as well: what one alone has, somebody put there by hand."""
    taints = lasting(sample.node.taints, startup)
    for node in sample.peers:
        there = {(taint.key, taint.effect) for taint in node.taints}
        taints = tuple(taint for taint in taints if (taint.key, taint.effect) in there)
    return taints
