"""What a policy looks at: its nodes, as sources and as destinations, and its pods."""

from __future__ import annotations

import numpy as np

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.cluster.resources import BoolArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage import Usage
from trimtab.kube.objects import Node, Pod
from trimtab.kube.rules.selectors import matches_labels
from trimtab.kube.rules.taints import TO_BE_DELETED


class Scope:
    """Nodes and pods of one policy; made for one plan, during which no node comes, goes or changes.

    Args:
        spec: the policy's.
        snapshot: the picture.
        now: seconds since the epoch that the plan is made for; ages count from it.
        usage: what was measured for the policy; ``None`` where nobody was asked.

    Attributes:
        now: likewise.
        usage: likewise.
        selected: bool, shape (nodes.capacity,); the nodes that ``nodeSelector`` picks.
        up: bool, same shape; the nodes that can start a pod: ready, and neither being deleted nor about to be.
        destinations: bool, same shape; both. Whether a pod tolerates a cordon or a taint is the filters' to say.
        sources: the slots of the selected nodes by name. Pods are also moved off nodes that are not ready or cordoned.
        narrow: whether there may be pods that the policy does not look at (:meth:`covers`).
    """

    def __init__(
        self, spec: DeschedulerPolicySpec, snapshot: Snapshot, *, now: float = 0.0, usage: Usage | None = None
    ) -> None:
        self.now = now
        self.usage = usage
        nodes = snapshot.nodes
        chosen = None if spec.node_selector is None else spec.node_selector.compile()
        self.selected: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        self.up: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        for slot in nodes.slot_of.values():
            node = nodes.node(slot)
            self.selected[slot] = chosen is None or matches_labels(chosen, node.labels)
            self.up[slot] = can_start_pods(node)
        self.destinations: BoolArray = self.selected & self.up
        self.sources: tuple[int, ...] = tuple(slot for slot in nodes.order().tolist() if self.selected[slot])
        self._include = frozenset(spec.namespaces.include)
        self._exclude = frozenset(spec.namespaces.exclude)
        self._pods = None if spec.pod_selector is None else spec.pod_selector.compile()
        self._unselected = _unselected(spec, snapshot)
        self.narrow = bool(self._exclude or self._include or self._unselected) or self._pods is not None

    def covers(self, pod: Pod) -> bool:
        """Whether the policy may look at the pod: its namespace and labels. Where it runs is not asked."""
        if pod.namespace in self._exclude or (self._include and pod.namespace not in self._include):
            return False
        if pod.namespace in self._unselected:
            return False
        return self._pods is None or matches_labels(self._pods, pod.labels)


def _unselected(spec: DeschedulerPolicySpec, snapshot: Snapshot) -> frozenset[str]:
    """The namespaces that ``namespaceSelector`` leaves out, of those that are known; a protection sees to the others.

    See :class:`trimtab.disruption.protections.unknown_namespace.UnknownNamespaces`.
    """
    if spec.namespace_selector is None:
        return frozenset()
    chosen = spec.namespace_selector.compile()
    names = snapshot.namespaces
    return frozenset(name for name in names if not matches_labels(chosen, snapshot.namespace_labels(name)))


def can_start_pods(node: Node) -> bool:
    """Whether a node is ready and stays; a node of which no condition is known, as in hand-written files, is ready.

    One that a cluster autoscaler takes away does not stay, whatever a pod tolerates.
    """
    if node.deleted is not None or any(taint.key == TO_BE_DELETED for taint in node.taints):
        return False
    return not node.conditions or node.ready
