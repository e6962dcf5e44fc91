"""Counts the nodes that the pods of each namespace use, and how many more may be added for them.

The namespace for which a node was added is not stored. It is derived from the pods on the node, including pending pods
that are placed there. So the count survives a restart, and a namespace without pods uses no nodes.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from trimtab.api import reasons
from trimtab.autoscaling.scale_up.limits import LimitReason
from trimtab.autoscaling.template.daemon_sets import key_of
from trimtab.autoscaling.template.node_template import daemon_set_of
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.owners import owns
from trimtab.disruption.protections import MIRROR_ANNOTATION, is_system_namespace
from trimtab.kube.frozen import ResourceList
from trimtab.kube.objects import DaemonSet, Pod

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
        found = {name: node for name in nodes if (node := snapshot.nodes.get(name)) is not None}
        self._daemon_sets = {
            key: each
            for key, each in snapshot.objects.of(DaemonSet).items()
            if is_system_namespace(each.namespace) or _runs_on_most(each, found, snapshot)
        }
        for name, node in found.items():
            self.add((pod for _, pod in snapshot.items_on(name)), node.allocatable)

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
        """Count a node as used by the namespaces of its pods, each by the share that its pods request."""
        for namespace, part in node_shares(pods, allocatable, self._daemon_sets).items():
            self._used[namespace] = self.used(namespace) + part

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


def node_shares(
    pods: Iterable[Pod], allocatable: ResourceList, daemon_sets: Mapping[str, DaemonSet]
) -> dict[str, float]:
    """Return the fraction of a node that each namespace uses, by the requests of its pods.

    The fractions add up to 1.

    Args:
        pods: the pods on the node. Pods that every node has do not count: pods of DaemonSets, and static pods in system
            namespaces.
        allocatable: allocatable resources of the node.
        daemon_sets: the DaemonSets that run on most nodes, and those in system namespaces. Pods of other DaemonSets
            count, because a tenant's DaemonSet may select only the nodes that the tenant uses.
    """
    weights: dict[str, float] = {}
    for pod in pods:
        if not pod.terminal and not _is_on_every_node(pod, daemon_sets):
            weights[pod.namespace] = weights.get(pod.namespace, 0.0) + _weight(pod, allocatable)
    total = sum(weights.values())
    return {namespace: weight / total for namespace, weight in weights.items()} if total else {}


def _runs_on_most(daemon_set: DaemonSet, nodes: Collection[str], snapshot: Snapshot) -> bool:
    key = key_of(daemon_set)
    pods = (pod for pod in snapshot.each_owned_by(key) if not pod.terminal and owns(key, pod))
    there = {pod.node for pod in pods if pod.node in nodes}
    return 2 * len(there) > len(nodes)


def _is_on_every_node(pod: Pod, daemon_sets: Mapping[str, DaemonSet]) -> bool:
    """Return whether every node has such a pod. A tenant's owner reference or annotation alone is no proof."""
    name = daemon_set_of(pod)
    owner = daemon_sets.get(name)
    if owner is not None:
        return owner.desired != 0 and owns(key_of(owner), pod)
    return bool(name or MIRROR_ANNOTATION in pod.annotations) and is_system_namespace(pod.namespace)


def _weight(pod: Pod, allocatable: ResourceList) -> float:
    """Return the largest of a pod's shares of a node's cpu, memory and pods. It is never 0."""
    requests = pod.spec.requests
    shares = (requests.get(name, 0) / max(1, allocatable.get(name, 0)) for name in ("cpu", "memory"))
    return max(1 / max(1, allocatable.get("pods", 0)), *shares)
