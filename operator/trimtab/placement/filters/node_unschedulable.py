"""NodeUnschedulable: a cordoned node takes only pods that tolerate its taint."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Final

from trimtab.cluster.resources import BoolArray
from trimtab.kube.objects import Pod, Taint
from trimtab.kube.rules.taints import UNSCHEDULABLE, tolerates
from trimtab.placement.framework import StaticFilter

_CORDON: Final = Taint(key=UNSCHEDULABLE, effect="NoSchedule")


class NodeUnschedulable(StaticFilter):
    """Tolerating ``node.kubernetes.io/unschedulable:NoSchedule`` lifts ``spec.unschedulable`` as well (v1.36)."""

    name: ClassVar = "NodeUnschedulable"
    reason: ClassVar = "node(s) were unschedulable"

    def key(self, pod: Pod) -> Hashable | None:
        """The same for all pods that mind a cordon; the others are not concerned."""
        return None if any(tolerates(toleration, _CORDON) for toleration in pod.spec.tolerations) else UNSCHEDULABLE

    def judge(self, pod: Pod) -> BoolArray:
        """Pass where the node is not cordoned."""
        del pod
        passing: BoolArray = ~self.snapshot.nodes.cordoned
        return passing
