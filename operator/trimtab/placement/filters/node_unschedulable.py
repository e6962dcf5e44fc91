"""NodeUnschedulable: a cordoned node takes only pods that tolerate its taint."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Final

from trimtab.kube.objects import Node, Pod, Taint
from trimtab.kube.rules.taints import UNSCHEDULABLE, tolerates
from trimtab.placement.framework import StaticFilter

_CORDON: Final = Taint(key=UNSCHEDULABLE, effect="NoSchedule")


class NodeUnschedulable(StaticFilter):
    """Tolerating ``node.kubernetes.io/unschedulable:NoSchedule`` lifts ``spec.unschedulable`` as well (v1.36)."""

    name: ClassVar = "NodeUnschedulable"
    reason: ClassVar = "node(s) were unschedulable"

    def key(self, pod: Pod) -> Hashable | None:
        """Whether the pod tolerates a cordon: all there is to know."""
        return any(tolerates(toleration, _CORDON) for toleration in pod.spec.tolerations)

    def allows(self, pod: Pod, node: Node) -> bool:
        """Pass where the node is not cordoned or the pod does not mind."""
        return not node.unschedulable or bool(self.key(pod))
