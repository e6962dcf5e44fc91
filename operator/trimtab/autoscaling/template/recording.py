"""What is to be written down of groups' nodes, so that a group without nodes still knows what they are like. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct

from trimtab.autoscaling.groups.node_group import GroupMachine, MachineState, NodeGroup, Problem, TemplateSource
from trimtab.autoscaling.template.annotated import said
from trimtab.autoscaling.template.daemon_sets import daemon_set_of
from trimtab.autoscaling.template.learned import Standing, standing
from trimtab.autoscaling.template.learned_node import (
    MAX_TEXT,
    LearnedNode,
    Overhead,
    encode,
    learned_node,
    outdated,
    said_digest,
    template_digest,
)
from trimtab.autoscaling.template.node_template import NodeTemplate, TemplateOrigin, Templates
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import Node, Pod, Taint
from trimtab.kube.objects.machine import CLUSTER_API, MACHINE_API

SOON: Final = 300.0
"""Seconds after which something that matters is written again: nodes that differ must not write by turns each pass."""
LATER: Final = 3600.0
"""Seconds after which the rest is: what comes with each node, and how long it takes to boot."""
DEVICES: Final = 1800.0
"""Seconds that a node must have been ready before it counts as one that does not get devices any more."""

_NEAR: Final = {"memory": 0.015, "ephemeral-storage": 0.05}
"""By how much amounts differ between machines of one type."""
_OVERHEAD: Final = 0.05
_BOOT: Final = 0.2


class Recording(Struct, frozen=True):
    """An annotation to write.

    Attributes:
        group: the group on whose object, as it was planned on.
        text: what to write.
        learned: the same as a value.
    """

    group: NodeGroup
    text: str
    learned: LearnedNode


def next_records(
    groups: Iterable[NodeGroup],
    templates: Templates,
    snapshot: Snapshot,
    now: float,
    *,
    startup_taints: Collection[str] = (),
    boots: Mapping[str, float | None] | None = None,
) -> tuple[Recording, ...]:
    """What is to be written down after a pass; nothing in most passes.

    What decides whether pods fit (amounts, labels, taints, drivers) is written as soon as it is another, at most every
    five minutes; what comes with each node and its boot time at most once an hour. Only a node that has settled is
    written down, without the labels and taints that the group's object gives: these count as the object says them.
    Where the type of machine has changed, that is written at once: from then on nodes made before it teach nothing, for
    nobody can tell by a node of which type it is.

    Args:
        groups: with an object; others are passed over.
        templates: of these groups, of the same snapshot.
        snapshot: the cluster.
        now: seconds since the epoch.
        startup_taints: keys of ``spec.startupTaints``.
        boots: how long nodes of groups take to boot in seconds, by the groups' ids, where somebody has measured it.

    Returns:
        What to write, by the groups' ids.
    """
    startup = frozenset(startup_taints)
    found = []
    for group in sorted(groups, key=lambda each: each.id):
        if not group.uid or group.api_version.partition("/")[0] not in (MACHINE_API, CLUSTER_API):
            continue
        there = learned_node(group)
        old = None if isinstance(there, Problem) else there
        boot = (boots or {}).get(group.id)
        new = _next(group, templates.of_group.get(group.id), old, snapshot, now=now, startup=startup, boot=boot)
        text = "" if new is None else encode(new)
        if new is not None and len(text) <= MAX_TEXT:
            found.append(Recording(group, text, new))
    return tuple(found)


def _next(
    group: NodeGroup,
    template: NodeTemplate | None,
    old: LearnedNode | None,
    snapshot: Snapshot,
    *,
    now: float,
    startup: frozenset[str],
    boot: float | None,
) -> LearnedNode | None:
    """What to write on one group; ``None`` where what is there will do."""
    if old is not None and outdated(group, old) is not None:
        return LearnedNode(at=now, template=template_digest(group), said=said_digest(group), since=now)
    node = None if template is None else _sample(template, snapshot, now=now, startup=startup)
    if template is None or node is None:
        return None
    new = LearnedNode(
        at=now,
        template=template_digest(group),
        said=said_digest(group),
        since=None if old is None else old.since,
        node=node.name,
        allocatable=node.allocatable,
        capacity=node.capacity,
        labels=_labels(template, _peers(group, snapshot, now=now, startup=startup), group.template),
        taints=_taints(template, group.template),
        drivers=None if template.drivers is None else template.drivers.drivers,
        daemons=_overhead(pod for pod in template.pods if daemon_set_of(pod)),
        static=_overhead(pod for pod in template.pods if not daemon_set_of(pod)),
        boot_seconds=boot if boot is not None or old is None else old.boot_seconds,
    )
    if not _complete(group, node, old, now=now):
        return None
    if old is None or not old.known:
        return new if _made_since(node, old) else None
    if not _made_since(node, old):
        return None
    ago = now - old.at
    if not 0 <= ago < SOON and _matters(old, new):
        return new
    return new if not 0 <= ago < LATER and _differs(old, new) else None


def _sample(template: NodeTemplate, snapshot: Snapshot, *, now: float, startup: frozenset[str]) -> Node | None:
    """The node that the template was learned from, if it has settled."""
    node = snapshot.nodes.get(template.sample) if template.origin is TemplateOrigin.LEARNED else None
    if node is None or standing(node, now=now, startup=startup) is not Standing.SETTLED:
        return None
    return node


def _made_since(node: Node, old: LearnedNode | None) -> bool:
    """Whether a node was made of the template as it is; one whose age nobody knows was not."""
    if old is None or old.since is None:
        return True
    return node.created is not None and node.created >= old.since


def _complete(group: NodeGroup, node: Node, old: LearnedNode | None, *, now: float) -> bool:
    """Whether a node has all the resources that it is to have, or has been ready for so long that it gets no more.

    Devices are counted minutes after their node is ready, once their driver is installed.
    """
    wanted = {*said(group), *(() if old is None else (name for name, amount in old.allocatable.items() if amount))}
    if all(node.allocatable.get(name) for name in wanted):
        return True
    since = next((each.since for each in node.conditions if each.type == "Ready"), None)
    return since is None or now - since >= DEVICES


def _peers(group: NodeGroup, snapshot: Snapshot, *, now: float, startup: frozenset[str]) -> list[Node]:
    nodes = (snapshot.nodes.get(machine.node) for machine in group.machines if _stays(machine))
    return [node for node in nodes if node is not None and standing(node, now=now, startup=startup) is Standing.SETTLED]


def _stays(machine: GroupMachine) -> bool:
    return bool(machine.node) and machine.state is not MachineState.DELETING


def _labels(template: NodeTemplate, peers: Iterable[Node], source: TemplateSource) -> Labels:
    """The template's labels but the object's, and but those in which nodes differ: what the next has nobody knows."""
    kept = {key: value for key, value in template.node.labels.items() if key not in source.labels}
    for node in peers:
        if kept.items() - node.labels.items():
            kept = {key: value for key, value in kept.items() if node.labels.get(key) == value}
    return Labels(kept)


def _taints(template: NodeTemplate, source: TemplateSource) -> tuple[Taint, ...]:
    """The template's taints but the object's; of those that nodes get once it is told that the node had them."""
    given = {(taint.key, taint.effect) for taint in source.taints}
    given -= {(taint.key, taint.effect) for taint in source.initial_taints}
    return tuple(taint for taint in template.node.taints if (taint.key, taint.effect) not in given)


def _overhead(pods: Iterable[Pod]) -> Overhead:
    count, total = 0, dict[str, int]()
    for pod in pods:
        count += 1
        for name, amount in pod.spec.requests.items():
            total[name] = total.get(name, 0) + amount
    return Overhead(count, ResourceList(total))


def _matters(old: LearnedNode, new: LearnedNode) -> bool:
    """Whether pods may fit on the one and not on the other."""
    return (
        not _near(old.allocatable, new.allocatable, _NEAR)
        or not _near(old.capacity, new.capacity, _NEAR)
        or old.labels != new.labels
        or frozenset(old.taints) != frozenset(new.taints)
        or old.drivers != new.drivers
    )


def _differs(old: LearnedNode, new: LearnedNode) -> bool:
    one, other = old.boot_seconds or 0.0, new.boot_seconds or 0.0
    return (
        _overheads_differ(old.daemons, new.daemons)
        or _overheads_differ(old.static, new.static)
        or abs(one - other) > _BOOT * max(one, other)
        or old.said != new.said
    )


def _overheads_differ(old: Overhead, new: Overhead) -> bool:
    ratios = dict.fromkeys((*old.requests, *new.requests), _OVERHEAD)
    return old.pods != new.pods or not _near(old.requests, new.requests, ratios)


def _near(one: Mapping[str, int], other: Mapping[str, int], ratios: Mapping[str, float]) -> bool:
    return all(
        abs(one.get(name, 0) - other.get(name, 0)) <= ratios.get(name, 0.0) * max(one.get(name, 0), other.get(name, 0))
        for name in {*one, *other}
    )
