"""Counts the nodes that the pods of each namespace use, and how many more may be added for them.

The namespace for which a node was added is not stored. It is derived from the pods on the node, including pending pods
that are placed there. So the count survives a restart, and a namespace without pods uses no nodes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Final

from trimtab.api import reasons
from trimtab.autoscaling.scale_up.limits import LimitReason
from trimtab.autoscaling.template.node_template import daemon_set_of
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.protections import MIRROR_ANNOTATION
from trimtab.kube.frozen import ResourceList
from trimtab.kube.objects import Pod

_ENDLESS: Final = 2**31 - 1
_ROUNDING: Final = 1e-6


class NamespaceShares:
    """Counts the nodes that each namespace uses, as fractions of nodes.

    Args:
        snapshot: the cluster state with upcoming nodes, in which pending pods are placed on existing and upcoming
            nodes.
        nodes: names of the nodes that belong to groups.
        limit: ``resourceLimits.maxNodesPerNamespace``; 0 for no limit.
    """

    def __init__(self, snapshot: Snapshot, nodes: Iterable[str], limit: int) -> None:
        self._limit = limit
        self._used: dict[str, float] = {}
        for name in nodes:
            node = snapshot.nodes.get(name)
            if node is not None:
                self._count(node_shares((pod for _, pod in snapshot.items_on(name)), node.allocatable))

    def copy(self) -> NamespaceShares:
        """Return an independent copy, on which a plan can be tried out."""
        made = copy.copy(self)
        made._used = dict(self._used)  # noqa: SLF001
        return made

    def used(self, namespace: str) -> float:
        """Return the number of nodes that the namespace uses, which may be fractional."""
        return self._used.get(namespace, 0.0)

    def allowed(self, namespace: str) -> int:
        """Return the number of nodes that may still be added for the namespace."""
        return max(0, int(self._limit - self.used(namespace) + _ROUNDING)) if self._limit else _ENDLESS

    def grant(self, namespace: str, number: int) -> None:
        """Add planned nodes to the number that the namespace uses."""
        self._used[namespace] = self.used(namespace) + number

    def add(self, pods: Iterable[Pod], allocatable: ResourceList) -> None:
        """Count a new node as used by the namespaces of its pods, each by the share that its pods request."""
        self._count(node_shares(pods, allocatable))

    def exceeded(self, namespaces: Iterable[str]) -> bool:
        """Return whether any of these namespaces uses more nodes than its limit allows."""
        return bool(self._limit) and any(self.used(each) > self._limit + _ROUNDING for each in namespaces)

    def limit_reason(self, namespace: str) -> LimitReason | None:
        """Return the reason why no further node may be added for the namespace, or ``None`` if one may be added."""
        if self.allowed(namespace):
            return None
        message = (
            f"pods of the namespace {namespace} use {self.used(namespace):.2f} nodes, and "
            f"resourceLimits.maxNodesPerNamespace allows {self._limit}"
        )
        return LimitReason(reasons.MAX_NODES_PER_NAMESPACE_REACHED, message)

    def _count(self, found: Mapping[str, float]) -> None:
        for namespace, part in found.items():
            self._used[namespace] = self.used(namespace) + part


def node_shares(pods: Iterable[Pod], allocatable: ResourceList) -> dict[str, float]:
    """Return the fraction of a node that each namespace uses, by the requests of its pods.

    The fractions add up to 1.

    Args:
        pods: the pods on the node. DaemonSet pods and static pods do not count, since every node has them.
        allocatable: allocatable resources of the node.
    """
    weights: dict[str, float] = {}
    for pod in pods:
        if not pod.terminal and not daemon_set_of(pod) and MIRROR_ANNOTATION not in pod.annotations:
            weights[pod.namespace] = weights.get(pod.namespace, 0.0) + _weight(pod, allocatable)
    total = sum(weights.values())
    return {namespace: weight / total for namespace, weight in weights.items()} if total else {}


def _weight(pod: Pod, allocatable: ResourceList) -> float:
    """Return the largest of a pod's shares of a node's cpu, memory and pods. It is never 0."""
    requests = pod.spec.requests
    shares = (requests.get(name, 0) / max(1, allocatable.get(name, 0)) for name in ("cpu", "memory"))
    return max(1 / max(1, allocatable.get("pods", 0)), *shares)
