"""Determines the scope of a policy: its pods, and its nodes as sources and targets of moves."""

from __future__ import annotations

import numpy as np

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.cluster.disruption_signals import is_being_removed, maintenance_condition, removal_signal
from trimtab.cluster.resources import BoolArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage.measurement import Usage
from trimtab.kube.objects import Node, Pod
from trimtab.kube.rules.selectors import matches_labels


class PolicyScope:
    """The nodes and pods that one policy applies to in one plan. No node changes during the plan.

    Args:
        spec: the policy's spec.
        snapshot: the cluster.
        now: the time of the plan, in seconds since the epoch.
        usage: measured utilization for the policy; ``None`` if nothing was measured.

    Attributes:
        now: the time of the plan.
        usage: the measured utilization, or ``None``.
        selected: bool, shape (nodes.capacity,); the nodes that ``nodeSelector`` selects.
        ready: bool, same shape; the nodes that can start pods: ready, and neither terminating nor about to be removed.
        destinations: bool, same shape; nodes that are selected and ready. Filters handle cordons and taints.
        being_removed: bool, same shape; destinations that an autoscaler or an administrator is about to remove
            (:func:`~trimtab.cluster.disruption_signals.removal_signal`). They are used only if no other destination can
            run the pod. ``None`` if there are none.
        sources: the slots of the selected nodes, sorted by name. Pods are also evicted from nodes that are cordoned or
            not ready.
        filters_pods: whether some pods may be out of scope (:meth:`covers`).
    """

    def __init__(
        self, spec: DeschedulerPolicySpec, snapshot: Snapshot, *, now: float = 0.0, usage: Usage | None = None
    ) -> None:
        self.now = now
        self.usage = usage
        nodes = snapshot.nodes
        chosen = None if spec.node_selector is None else spec.node_selector.compile()
        self.selected: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        self.ready: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        for slot in nodes.slot_of.values():
            node = nodes.node(slot)
            self.selected[slot] = chosen is None or matches_labels(chosen, node.labels)
            self.ready[slot] = can_start_pods(node)
        self.destinations: BoolArray = self.selected & self.ready
        self.being_removed = _being_removed(snapshot, self.destinations)
        self.sources: tuple[int, ...] = tuple(slot for slot in nodes.order().tolist() if self.selected[slot])
        self._include = frozenset(spec.namespaces.include)
        self._exclude = frozenset(spec.namespaces.exclude)
        self._pods = None if spec.pod_selector is None else spec.pod_selector.compile()
        self._unselected = _unselected(spec, snapshot)
        self.filters_pods = bool(self._exclude or self._include or self._unselected) or self._pods is not None

    def covers(self, pod: Pod) -> bool:
        """Return whether the pod's namespace and labels are in the policy's scope. Its node is not checked."""
        if pod.namespace in self._exclude or (self._include and pod.namespace not in self._include):
            return False
        if pod.namespace in self._unselected:
            return False
        return self._pods is None or matches_labels(self._pods, pod.labels)


def _unselected(spec: DeschedulerPolicySpec, snapshot: Snapshot) -> frozenset[str]:
    """Return the namespaces in the snapshot that ``namespaceSelector`` excludes.

    The protection :class:`trimtab.disruption.protections.rules.UnknownNamespaces` handles other namespaces.
    """
    if spec.namespace_selector is None:
        return frozenset()
    chosen = spec.namespace_selector.compile()
    names = snapshot.namespaces
    return frozenset(name for name in names if not matches_labels(chosen, snapshot.namespace_labels(name)))


def _being_removed(snapshot: Snapshot, destinations: BoolArray) -> BoolArray | None:
    nodes = snapshot.nodes
    leaving: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
    for slot in np.flatnonzero(destinations).tolist():
        node = nodes.node(slot)
        if node.taints or node.annotations or node.unschedulable:
            leaving[slot] = removal_signal(node) is not None
    return leaving if leaving.any() else None


def can_start_pods(node: Node) -> bool:
    """Return whether a node is ready and not about to be removed or maintained.

    A node without conditions, as in hand-written files, is treated as ready. A node that an autoscaler drains is
    excluded, because a pod moved there would be evicted again regardless of its tolerations. So is a node whose
    conditions announce maintenance or a shutdown.
    """
    if is_being_removed(node) or maintenance_condition(node) is not None:
        return False
    return not node.conditions or node.ready
