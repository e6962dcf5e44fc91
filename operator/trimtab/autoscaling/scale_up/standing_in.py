"""Nodes that are not there yet, put into a picture: upcoming, still starting, planned, or only asked about."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from trimtab.autoscaling.groups.node_group import NodeGroup
from trimtab.autoscaling.template.annotated import READY
from trimtab.autoscaling.template.node_template import NodeTemplate
from trimtab.autoscaling.template.taints import TO_BE_DELETED, lasting, starts_up
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Node

STARTING: Final = 900.0
"""Seconds after which a node that is not ready is no longer starting (upstream's ``max-node-startup-time``)."""


MOST: Final = 10_000
"""New nodes of all groups that are put in at most: twice what a cluster holds, and a size may be mistyped."""

_AS_THEY_SAY: Final[Mapping[str, int]] = {}


def add(snapshot: Snapshot, template: NodeTemplate, name: str) -> int:
    """Put a node of a template into the picture with all that comes with it; returns its slot."""
    for obj in template.instance(name):
        snapshot.put(obj)
    return snapshot.nodes.slot_of[name]


def stand_in(
    snapshot: Snapshot,
    groups: Iterable[NodeGroup],
    templates: Mapping[str, NodeTemplate],
    *,
    now: float,
    startup: Collection[str],
    upcoming: Mapping[str, int] = _AS_THEY_SAY,
) -> dict[str, str]:
    """Put in what is asked for already, as it will be: machines on their way, and nodes that are starting.

    Args:
        snapshot: where to.
        groups: all of them.
        templates: what their nodes are, by the groups' ids.
        now: seconds since the epoch.
        startup: keys of startup taints.
        upcoming: how many machines of a group are on their way, by its id, where that is known better than from the
            group itself.

    Returns:
        The groups' ids by the names of these nodes.
    """
    found = {}
    left = MOST
    for group in groups:
        template = templates.get(group.id)
        for name in group.nodes:
            node = snapshot.nodes.get(name)
            if node is not None and _starting(node, group, now, startup):
                snapshot.put(_started(node, template, startup))
                found[name] = group.id
        if template is not None:
            coming = min(upcoming.get(group.id, group.upcoming), left)
            left -= coming
            for number in range(1, coming + 1):
                name = f"upcoming-{number}-of-{group.id}"
                add(snapshot, template, name)
                found[name] = group.id
    return found


@contextmanager
def probes(snapshot: Snapshot, templates: Iterable[NodeTemplate]) -> Iterator[dict[str, int]]:
    """One new node of each group in the picture at once, to ask about all of them in one go.

    Yields:
        The slots by the groups' ids.
    """
    with snapshot.fork():
        yield {template.group: add(snapshot, template, f"probe-of-{template.group}") for template in templates}


def _starting(node: Node, group: NodeGroup, now: float, startup: Collection[str]) -> bool:
    if node.unschedulable or node.deleted is not None or any(taint.key == TO_BE_DELETED for taint in node.taints):
        return False
    limit = STARTING if group.options.startup_seconds is None else group.options.startup_seconds
    young = node.created is not None and now - node.created < limit
    if any(starts_up(taint, startup) for taint in node.taints):
        return young or node.created is None
    return young and not node.ready


def _started(node: Node, template: NodeTemplate | None, startup: Collection[str]) -> Node:
    """The node as it will be; what its kubelet has not told yet is as the group's other nodes have it."""
    there = replace(node, taints=lasting(node.taints, startup), conditions=READY)
    if node.allocatable or template is None:
        return there
    like = next(obj for obj in template.instance(node.name) if isinstance(obj, Node))
    labels = Labels({**like.labels, **node.labels})
    return replace(there, allocatable=like.allocatable, capacity=like.capacity, labels=labels)
