"""A template from what was written down of a group's last nodes: for groups that have no node to learn from now."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from trimtab.autoscaling.groups.node_group import NodeGroup, Problem
from trimtab.autoscaling.template.annotated import READY
from trimtab.autoscaling.template.daemon_sets import KIND
from trimtab.autoscaling.template.learned_node import LearnedNode, Overhead, learned_node, outdated
from trimtab.autoscaling.template.node_template import NodeTemplate, TemplateOrigin, template_name
from trimtab.autoscaling.template.taints import with_taints
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import CSINode, Node, OwnerReference, Pod, PodSpec, Taint

MIRROR: Final = "kubernetes.io/config.mirror"
_NAMESPACE: Final = "kube-system"


def recorded(group: NodeGroup, *, daemons_known: bool) -> tuple[NodeTemplate | None, tuple[Problem, ...]]:
    """The template of what is written down on a group, with its static pods.

    It goes before capacity annotations, as it is what a node was, and these are an estimate; but only while the group's
    object says the same of its nodes as then. Labels and taints of the object's template hold over what is written.

    Args:
        group: the group.
        daemons_known: whether the DaemonSets are known, whose pods then are not taken from what is written.

    Returns:
        The template, ``None`` where nothing that can be used is written down; and why not, where something is.
    """
    found = learned_node(group)
    if found is None or isinstance(found, Problem):
        return None, () if found is None else (found,)
    if not found.known:
        return None, ()
    old = outdated(group, found)
    if old is not None:
        return None, (old,)
    return _template(group, found, daemons_known=daemons_known), ()


def _template(group: NodeGroup, found: LearnedNode, *, daemons_known: bool) -> NodeTemplate:
    name = template_name(group.id)
    node = Node(
        name=name,
        uid=name,
        labels=Labels({**found.labels, **group.template.labels}),
        taints=with_taints(found.taints, _lasting(group, found)),
        allocatable=found.allocatable,
        capacity=found.capacity,
        conditions=READY,
    )
    pods = _standing_in("static", found.static, name)
    if not daemons_known:
        pods += _standing_in("daemon", found.daemons, name)
    time = datetime.fromtimestamp(found.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return NodeTemplate(
        group=group.id,
        node=node,
        pods=tuple(pods),
        drivers=None if found.drivers is None else CSINode(name=name, uid=name, drivers=found.drivers),
        origin=TemplateOrigin.RECORDED,
        sample=found.node,
        assumed=(f"a new node is as {found.node or 'the last one'} was at {time}",),
    )


def _lasting(group: NodeGroup, found: LearnedNode) -> Iterator[Taint]:
    """The taints of the group's object, without those of joining that the node that was written down was rid of."""
    passing = {(each.key, each.effect) for each in group.template.initial_taints}
    passing -= {(each.key, each.effect) for each in found.taints}
    return (each for each in group.template.taints if (each.key, each.effect) not in passing)


def _standing_in(what: str, overhead: Overhead, node: str) -> list[Pod]:
    """Pods that take together what was written down, as many as there were; what each took is not known."""
    made = []
    for number in range(overhead.pods):
        name = f"learned-{what}-{number}"
        daemon = what == "daemon"
        pod = Pod(
            namespace=_NAMESPACE,
            name=name,
            uid=f"{node}/{name}",
            owners=(OwnerReference(kind=KIND, name=name, api_version="apps/v1", controller=True),) if daemon else (),
            annotations=Labels() if daemon else Labels({MIRROR: name}),
            spec=PodSpec(requests=overhead.requests) if not number else PodSpec(),
            node=node,
            phase="Running",
        )
        made.append(pod)
    return made
