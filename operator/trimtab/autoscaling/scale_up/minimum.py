"""Raising groups to their minimums, where ``enforceNodeGroupMinSize`` wants it and limits allow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.cluster_limits import ResourceLimits
from trimtab.api.plan import Kept
from trimtab.autoscaling.groups import NodeGroup
from trimtab.autoscaling.scale_up.limits import Cut, Headroom
from trimtab.autoscaling.scale_up.told import STRATEGY
from trimtab.autoscaling.template import NodeTemplate
from trimtab.kube.objects import Node


class Raised(Struct, frozen=True):
    """What is added for the sake of minimums.

    Attributes:
        added: how many nodes, by the groups' ids.
        kept: groups that stay below their minimums, with the reason.
    """

    added: Mapping[str, int] = {}
    kept: tuple[Kept, ...] = ()


def raise_to_minimum(
    groups: Sequence[NodeGroup],
    templates: Mapping[str, NodeTemplate],
    held: Mapping[str, Cut],
    headroom: Headroom,
    limits: ResourceLimits,
) -> Raised:
    """Raise each group that is smaller than its minimum.

    Args:
        groups: all of them, in the order of their ids: who comes first has what limits leave.
        templates: what their nodes are, by their ids. A group whose nodes nobody knows is raised all the same, unless
            there are limits on what nodes have.
        held: what keeps groups from growing whatever their size, by their ids.
        headroom: what limits leave; what is added is taken from it.
        limits: of the ClusterAutoscaler.
    """
    added, kept = {}, []
    for group in groups:
        lacking = group.minimum - group.target
        if lacking <= 0:
            continue
        template = templates.get(group.id)
        node = Node(group.id) if template is None else template.node
        cut = held.get(group.id) or _unknown(template, limits)
        number = 0 if cut is not None else min(lacking, headroom.allowed(group, node))
        if number:
            headroom.take(group, node, number)
            added[group.id] = number
        if number < lacking:
            kept.append(_kept(group, lacking - number, cut or headroom.cut(group, node) or _NO_ROOM))
    return Raised(added, tuple(kept))


_NO_ROOM = Cut(reasons.MAX_SIZE_REACHED, "limits leave no room")


def _unknown(template: NodeTemplate | None, limits: ResourceLimits) -> Cut | None:
    if template is not None or (limits.cores is None and limits.memory is None and not limits.gpus):
        return None
    return Cut(reasons.NO_TEMPLATE, "what its nodes are like is not known, and resourceLimits counts what they have")


def _kept(group: NodeGroup, lacking: int, cut: Cut) -> Kept:
    return Kept(
        kind=group.kind,
        namespace=group.namespace,
        name=group.name,
        strategy=STRATEGY,
        reason=cut.reason,
        message=f"{lacking} nodes short of its minimum of {group.minimum}: {cut.message}",
    )
