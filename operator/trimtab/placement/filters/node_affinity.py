"""NodeAffinity: the node selector and the required node affinity."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from trimtab.cluster.resources import BoolArray
from trimtab.kube.objects import Pod
from trimtab.placement.framework import StaticFilter
from trimtab.placement.node_masks import affinity_mask, term_mask

__all__ = ["NodeAffinity", "term_mask"]


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

    def judge(self, pod: Pod) -> BoolArray:
        """Pass where the node is what the pod asks for."""
        return affinity_mask(self.snapshot, pod.spec.node_selector, pod.spec.affinity.node.required)
