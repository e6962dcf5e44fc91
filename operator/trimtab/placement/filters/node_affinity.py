"""NodeAffinity: the node selector and the required node affinity."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from trimtab.kube.objects import Node, Pod, PodSpec
from trimtab.kube.rules.selectors import matches_node_selector
from trimtab.placement.framework import StaticFilter


class NodeAffinity(StaticFilter):
    """Both must hold: ``nodeSelector`` label by label, and one term of the required affinity (v1.36)."""

    name: ClassVar = "NodeAffinity"
    reason: ClassVar = "node(s) didn't match Pod's node affinity/selector"

    def key(self, pod: Pod) -> Hashable | None:
        """Selector and required terms; nothing to check where a pod has neither."""
        required = pod.spec.affinity.node.required
        if not pod.spec.node_selector and required is None:
            return None
        return pod.spec.node_selector, required

    def allows(self, pod: Pod, node: Node) -> bool:
        """Pass where the node is what the pod asks for."""
        return matches_required(pod.spec, node)


def matches_required(spec: PodSpec, node: Node) -> bool:
    """Whether a node satisfies a pod's node selector and required node affinity.

    Source: component-helpers ``nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)``, v0.36.
    """
    labels = node.labels
    for key, value in spec.node_selector.items():
        if labels.get(key) != value:
            return False
    required = spec.affinity.node.required
    return required is None or matches_node_selector(required, labels, node.name)
