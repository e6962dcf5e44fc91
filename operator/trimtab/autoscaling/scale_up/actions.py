"""From new nodes to actions: one a group that grows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.plan import ScaleUp
from trimtab.autoscaling.groups import NodeGroup
from trimtab.autoscaling.scale_up.minimum import Raised
from trimtab.autoscaling.template import NodeTemplate, TemplateOrigin
from trimtab.kube.objects import Pod

_TOLD_BY: Final = {
    TemplateOrigin.LEARNED: "like {}",
    TemplateOrigin.RECORDED: "as {} was",
    TemplateOrigin.ANNOTATIONS: "as its annotations say",
    TemplateOrigin.PROVIDER: "as its provider says",
}


class NewNode(Struct, frozen=True):
    """A node that is to be added, and the pods that it is for."""

    group: str
    pods: tuple[Pod, ...]


def actions(
    groups: Sequence[NodeGroup],
    templates: Mapping[str, NodeTemplate],
    nodes: Iterable[NewNode],
    *,
    decided: Mapping[str, Sequence[str]],
    raised: Raised,
) -> tuple[ScaleUp, ...]:
    """What is asked of the groups, in the order of their ids.

    Args:
        groups: all of them, in that order.
        templates: what their nodes are, by their ids.
        nodes: that are to be added for pods.
        decided: why a group was chosen over others, in words, by its id.
        raised: what is added for the sake of minimums.
    """
    added: dict[str, list[NewNode]] = {}
    for node in nodes:
        added.setdefault(node.group, []).append(node)
    made = []
    for group in groups:
        for_pods, for_minimum = added.get(group.id, []), raised.added.get(group.id, 0)
        if not for_pods and not for_minimum:
            continue
        parts = [] if not for_minimum else [f"{_plural(for_minimum, 'node')} up to its minimum of {group.minimum}"]
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
    source = _TOLD_BY[template.origin].format(template.sample)
    pods = sum(len(node.pods) for node in nodes)
    return f"{_plural(len(nodes), 'node')} {source} for {_plural(pods, 'pod')}"


def _plural(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
