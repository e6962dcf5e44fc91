"""A template from what a provider outside of the cluster says: for its groups that have no node to learn from."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.autoscaling.groups.node_group import NodeGroup, Problem
from trimtab.autoscaling.template.annotated import ARCH, GENERIC, MAX_PODS, READY
from trimtab.autoscaling.template.node_template import NodeTemplate, TemplateOrigin, template_name
from trimtab.autoscaling.template.reserve import allocatable, reserve
from trimtab.autoscaling.template.taints import lasting, with_taints
from trimtab.kube.frozen import NO_LABELS, Labels, ResourceList
from trimtab.kube.objects import Node
from trimtab.kube.rules.node_labels import HOSTNAME


def is_provided(group: NodeGroup) -> bool:
    """Whether the group's provider is asked for templates, and no object's annotations."""
    return group.template.node is not None or bool(group.template.untold)


def provided(group: NodeGroup, *, startup: Collection[str]) -> NodeTemplate | Problem:
    """The template that a provider gives, without pods; else why there is none.

    It is taken as it is, but for what only one node has: its name, and taints and conditions of its state.
    """
    node = group.template.node
    amounts = ResourceList() if node is None else node.allocatable or node.capacity
    if node is None or not (amounts.get("cpu") and amounts.get("memory")):
        untold = group.template.untold or "its provider says nothing of cpu or memory"
        message = f"has no node to learn from, and what one would be like is not known: {untold}"
        return Problem(group.kind, group.namespace, group.id, reasons.NO_TEMPLATE, message)
    assumed = []
    if ARCH not in node.labels:
        assumed.append(f"{ARCH} is {GENERIC[ARCH]}, as no label says otherwise")
    if not node.allocatable:
        assumed.append("its provider says no allocatable amounts: the capacity less a reserve")
    return NodeTemplate(
        group=group.id,
        node=_as_new(node, template_name(group.id), startup),
        origin=TemplateOrigin.PROVIDER,
        assumed=tuple(assumed),
    )


def _as_new(node: Node, name: str, startup: Collection[str]) -> Node:
    amounts = node.allocatable or allocatable(node.capacity, reserve(node.capacity))
    return replace(
        node,
        name=name,
        uid=name,
        resource_version="",
        labels=Labels({**GENERIC, **{key: value for key, value in node.labels.items() if key != HOSTNAME}}),
        annotations=NO_LABELS,
        created=None,
        deleted=None,
        unschedulable=False,
        provider_id="",
        taints=with_taints(lasting(node.taints, startup), ()),
        allocatable=amounts if amounts.get("pods") else ResourceList({**amounts, "pods": MAX_PODS}),
        capacity=node.capacity or amounts,
        conditions=READY,
        images=ResourceList(),
    )
