"""Turns planned nodes into ScaleUp actions, one per group, and raises groups to their minimum size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.bounds import plural
from trimtab.api.cluster_autoscaler import ResourceLimits
from trimtab.api.plan import Kept, ScaleUp
from trimtab.autoscaling.groups import NodeGroup
from trimtab.autoscaling.scale_up.limits import Headroom, LimitReason
from trimtab.autoscaling.scale_up.messages import STRATEGY
from trimtab.autoscaling.template import NodeTemplate, TemplateOrigin
from trimtab.kube.objects import Node, Pod


class RaisedGroups(Struct, frozen=True):
    """The nodes that are added because groups are below their minimum sizes.

    Attributes:
        added: number of added nodes by group id.
        kept: groups that remain below their minimum size, with the reason.
    """

    added: Mapping[str, int] = {}
    kept: tuple[Kept, ...] = ()


def raise_to_minimum(
    groups: Sequence[NodeGroup],
    templates: Mapping[str, NodeTemplate],
    paused: Mapping[str, LimitReason],
    headroom: Headroom,
    limits: ResourceLimits,
) -> RaisedGroups:
    """Raise each group that is below its minimum size to that size, as far as the limits allow.

    Args:
        groups: all groups in the order of their ids. If the limits do not suffice for all of them, the first groups are
            raised.
        templates: node templates by group id. A group without a template is raised too, unless ``resourceLimits`` limit
            cores, memory or GPUs, because the resources of its nodes are unknown.
        paused: the reason why a group must not be scaled up at all, by group id.
        headroom: what remains of the limits. New nodes are subtracted from it.
        limits: ``resourceLimits`` of the ClusterAutoscaler.
    """
    added, kept = {}, []
    for group in groups:
        missing = group.minimum - group.target
        if missing <= 0:
            continue
        template = templates.get(group.id)
        node = Node(group.id) if template is None else template.node
        limit_reason = paused.get(group.id) or _unknown_size(template, limits)
        number = 0 if limit_reason is not None else min(missing, headroom.allowed(group, node))
        if number:
            headroom.reserve(group, node, number)
            added[group.id] = number
        if number < missing:
            kept.append(
                _kept_group(group, missing - number, limit_reason or headroom.limit_reason(group, node) or _NO_ROOM)
            )
    return RaisedGroups(added, tuple(kept))


_NO_ROOM = LimitReason(reasons.MAX_SIZE_REACHED, "limits allow no further node")


def _unknown_size(template: NodeTemplate | None, limits: ResourceLimits) -> LimitReason | None:
    if template is not None or (limits.cores is None and limits.memory is None and not limits.gpus):
        return None
    return LimitReason(
        reasons.NO_TEMPLATE, "its node template is unknown, and resourceLimits count the resources of its nodes"
    )


def _kept_group(group: NodeGroup, missing: int, limit_reason: LimitReason) -> Kept:
    return Kept(
        kind=group.kind,
        namespace=group.namespace,
        name=group.name,
        strategy=STRATEGY,
        reason=limit_reason.reason,
        message=f"{missing} nodes short of its minimum of {group.minimum}: {limit_reason.message}",
    )


_ORIGIN_TEXTS: Final = {
    TemplateOrigin.LEARNED: "node template from node {}",
    TemplateOrigin.RECORDED: "node template from the earlier node {}",
    TemplateOrigin.ANNOTATIONS: "node template from the group's annotations",
    TemplateOrigin.PROVIDER: "node template from the provider",
}


class NewNode(Struct, frozen=True):
    """A planned node, and the pods that will run on it."""

    group: str
    pods: tuple[Pod, ...]


def build_actions(
    groups: Sequence[NodeGroup],
    templates: Mapping[str, NodeTemplate],
    nodes: Iterable[NewNode],
    *,
    decided: Mapping[str, Sequence[str]],
    raised: RaisedGroups,
) -> tuple[ScaleUp, ...]:
    """Return the scale-up actions in the order of group ids.

    Args:
        groups: all groups in the order of their ids.
        templates: node templates by group id.
        nodes: nodes that are planned for pods.
        decided: messages that say which expander preferred a group to others, by group id.
        raised: nodes that are added to reach minimum sizes.
    """
    added: dict[str, list[NewNode]] = {}
    for node in nodes:
        added.setdefault(node.group, []).append(node)
    made = []
    for group in groups:
        for_pods, for_minimum = added.get(group.id, []), raised.added.get(group.id, 0)
        if not for_pods and not for_minimum:
            continue
        parts = [] if not for_minimum else [f"{plural(for_minimum, 'node')} to reach its minimum of {group.minimum}"]
        if for_pods:
            parts += [_for_pods(for_pods, templates[group.id]), *decided.get(group.id, ())]
        action = ScaleUp(
            machine_set=group.key,
            from_=group.target,
            to=group.target + for_minimum + len(for_pods),
            reason=reasons.PENDING_PODS if for_pods else reasons.BELOW_MINIMUM,
            pods=tuple(sorted(pod.key for node in for_pods for pod in node.pods)),
            message="; ".join(parts),
            group=group.id,
        )
        made.append(action)
    return tuple(made)


def _for_pods(nodes: Sequence[NewNode], template: NodeTemplate) -> str:
    source = _ORIGIN_TEXTS[template.origin].format(template.sample)
    pods = sum(len(node.pods) for node in nodes)
    return f"{plural(len(nodes), 'node')} for {plural(pods, 'pod')} ({source})"
