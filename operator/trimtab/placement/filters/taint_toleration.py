"""TaintToleration: every NoSchedule and NoExecute taint of the node must be tolerated."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Final

from trimtab.kube.objects import Node, Pod
from trimtab.kube.rules.taints import untolerated
from trimtab.placement.framework import StaticFilter

HARD_EFFECTS: Final = frozenset(("NoSchedule", "NoExecute"))


class TaintToleration(StaticFilter):
    """PreferNoSchedule is a matter of scores; ``tolerationSeconds`` is ignored when scheduling (v1.36)."""

    name: ClassVar = "TaintToleration"
    reason: ClassVar = "node(s) had untolerated taint(s)"

    def key(self, pod: Pod) -> Hashable | None:
        """The tolerations."""
        return pod.spec.tolerations

    def allows(self, pod: Pod, node: Node) -> bool:
        """Pass where no hard taint is left over."""
        return not node.taints or untolerated(node.taints, pod.spec.tolerations, HARD_EFFECTS) is None
