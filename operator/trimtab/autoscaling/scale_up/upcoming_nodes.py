"""Adds upcoming, starting, planned or probe nodes, which do not exist or are not ready yet, to a snapshot."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from trimtab.autoscaling.groups.node_group import NodeGroup
from trimtab.autoscaling.template.estimate import READY
from trimtab.autoscaling.template.node_template import TO_BE_DELETED, NodeTemplate, is_startup_taint, lasting_taints
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Node

STARTUP_SECONDS: Final = 900.0
"""Seconds after which a node that is not ready no longer counts as starting (upstream's ``max-node-startup-time``)."""


MAX_ADDED: Final = 10_000
"""Maximum number of new nodes, over all groups, that are added to a snapshot.

It is twice the size of the largest supported cluster, and bounds the cost of a mistyped group size.
"""

_GROUPS_OWN_COUNTS: Final[Mapping[str, int]] = {}


def add_template_node(snapshot: Snapshot, template: NodeTemplate, name: str) -> int:
    """Add a node with its pods and CSI drivers to the snapshot, and return its slot."""
    for obj in template.instance(name):
        snapshot.put(obj)
    return snapshot.nodes.slot_of[name]


def add_upcoming_nodes(
    snapshot: Snapshot,
    groups: Iterable[NodeGroup],
    templates: Mapping[str, NodeTemplate],
    *,
    now: float,
    startup: Collection[str],
    upcoming: Mapping[str, int] = _GROUPS_OWN_COUNTS,
) -> dict[str, str]:
    """Add nodes that were requested and are not ready yet: template nodes for pending machines, and starting nodes.

    Args:
        snapshot: the snapshot to change.
        groups: all groups.
        templates: node templates by group id.
        now: the current time in seconds since the epoch.
        startup: keys of startup taints.
        upcoming: number of upcoming machines by group id, where it differs from the group's own count.

    Returns:
        Group ids by the names of these nodes.
    """
    found = {}
    left = MAX_ADDED
    for group in groups:
        template = templates.get(group.id)
        for name in group.nodes:
            node = snapshot.nodes.get(name)
            if node is not None and _starting(node, group, now, startup):
                snapshot.put(_started(node, template, startup))
                found[name] = group.id
        if template is not None:
            count = min(upcoming.get(group.id, group.upcoming), left)
            left -= count
            for number in range(1, count + 1):
                name = f"upcoming-{number}-of-{group.id}"
                add_template_node(snapshot, template, name)
                found[name] = group.id
    return found


@contextmanager
def probe_nodes(snapshot: Snapshot, templates: Iterable[NodeTemplate]) -> Iterator[dict[str, int]]:
    """Add one new node of each group to the snapshot for the duration of a ``with`` block, to evaluate all groups.

    Yields:
        Slots by group id.
    """
    with snapshot.fork():
        yield {
            template.group: add_template_node(snapshot, template, f"probe-of-{template.group}")
            for template in templates
        }


def _starting(node: Node, group: NodeGroup, now: float, startup: Collection[str]) -> bool:
    if node.unschedulable or node.deleted is not None or any(taint.key == TO_BE_DELETED for taint in node.taints):
        return False
    limit = STARTUP_SECONDS if group.options.startup_seconds is None else group.options.startup_seconds
    young = node.created is not None and now - node.created < limit
    if any(is_startup_taint(taint, startup) for taint in node.taints):
        return young or node.created is None
    return young and not node.ready


def _started(node: Node, template: NodeTemplate | None, startup: Collection[str]) -> Node:
    """Return the node in the state that it will have when it is ready.

    Fields that the kubelet has not reported yet are copied from the template.
    """
    started = replace(node, taints=lasting_taints(node.taints, startup), conditions=READY)
    if node.allocatable or template is None:
        return started
    template_node = next(obj for obj in template.instance(node.name) if isinstance(obj, Node))
    labels = Labels({**template_node.labels, **node.labels})
    return replace(started, allocatable=template_node.allocatable, capacity=template_node.capacity, labels=labels)
