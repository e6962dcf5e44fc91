"""Reads single objects from the informers' stores, as client-go's listers do.

A read never waits and never sees tentative changes of a planner, even while a planner has borrowed the
:class:`~trimtab.cluster.shared_snapshot.SharedSnapshot`. Pods are indexed by node and by owner. The stores update these
indices before they call listeners, so a listener, like all code on the event loop, reads the latest state.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Mapping
from types import MappingProxyType
from typing import Protocol, TypeAlias

from trimtab.cluster.workloads.owners import OwnerKey, owns
from trimtab.kube.objects import NODE_LEASES, Lease, Node, Pod, ReplicaSet, ReplicationController, StatefulSet
from trimtab.kube.watching.store import Store

Replicated: TypeAlias = ReplicaSet | StatefulSet | ReplicationController
"""A controller with a desired number of pods."""


class ClusterListener(Protocol):
    """Callbacks for changes of nodes, Leases and pods.

    They are called after the lister is updated. They must return quickly and must not raise.
    """

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """Process an added, changed or removed node."""
        ...

    def lease_changed(self, old: Lease | None, new: Lease | None) -> None:
        """Process an added, renewed or removed Lease of a node."""
        ...

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Process an added, changed or removed pod."""
        ...


class Lister:
    """Reads nodes, their Leases, and pods by name, node and owner. Use it only on the event loop of the stores.

    Args:
        nodes: the store of nodes.
        pods: the store of pods.
        leases: the store of the Leases in kube-node-lease.
        replicated: the stores of ReplicaSets, StatefulSets and ReplicationControllers by kind, as far as they are
            watched.
    """

    def __init__(
        self,
        nodes: Store[Node],
        pods: Store[Pod],
        leases: Store[Lease],
        replicated: Mapping[str, Store[Replicated]] = MappingProxyType({}),
    ) -> None:
        self._replicated = replicated
        self._nodes = nodes
        self._pods = pods
        self._leases = leases
        self._by_node = pods.index(_node_of)
        self._by_owner = pods.index(_owner_names)
        self._pending = pods.index(_scheduler_of_pending)

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Return all nodes by name, as a live view of the store."""
        return self._nodes.objects

    @property
    def leases(self) -> Mapping[str, Lease]:
        """Return the nodes' Leases by ``namespace/name``, as a live view of the store."""
        return self._leases.objects

    def node(self, name: str) -> Node | None:
        """Return the node with this name, or ``None`` if it does not exist."""
        return self._nodes.get(name)

    def lease(self, node: str) -> Lease | None:
        """Return the Lease of the node with this name, or ``None`` if there is none."""
        return self._leases.get(f"{NODE_LEASES}/{node}")

    def pod(self, key: str) -> Pod | None:
        """Return the pod with this ``namespace/name``, or ``None`` if it does not exist."""
        return self._pods.get(key)

    def pods_on(self, node: str) -> list[Pod]:
        """Return the pods bound to a node, including terminal ones, ordered by ``namespace/name``.

        The list is empty if the node does not exist.
        """
        return [pod for _, pod in sorted(self._by_node.items(node))]

    def items_on(self, node: str) -> ItemsView[str, Pod]:
        """Return the key and the pod of every pod bound to a node, including terminal pods, in no particular order."""
        return self._by_node.items(node)

    def items(self) -> ItemsView[str, Pod]:
        """Return the key and the pod of every pod, including unbound and terminal pods, in the order of the store."""
        return self._pods.objects.items()

    def pending(self, scheduler: str) -> list[Pod]:
        """Return the pending pods with this ``schedulerName``, excluding terminating and terminal pods."""
        return [pod for _, pod in self._pending.items(scheduler)]

    def owned_by(self, owner: OwnerKey) -> list[Pod]:
        """Return the pods of a controller, including pending and terminal ones, ordered by ``namespace/name``."""
        pods = [pod for _, pod in sorted(self._by_owner.items(owner[:3]))]
        return [pod for pod in pods if owns(owner, pod)] if owner.uid else pods

    def desired_replicas(self, owner: OwnerKey) -> int | None:
        """Return ``spec.replicas`` of a controller; ``None`` if it is unknown, or has no number of replicas."""
        store = self._replicated.get(owner.kind)
        found = None if store is None else store.get(f"{owner.namespace}/{owner.name}")
        return None if found is None or (owner.uid and found.uid and found.uid != owner.uid) else found.replicas

    def subscribe(self, listener: ClusterListener) -> Callable[[], None]:
        """Call the listener on every change from now on, and return a function that unsubscribes it."""
        unsubscribers = (
            self._nodes.subscribe(listener.node_changed, replay=False),
            self._leases.subscribe(listener.lease_changed, replay=False),
            self._pods.subscribe(listener.pod_changed, replay=False),
        )

        def end() -> None:
            for each in unsubscribers:
                each()

        return end


def _node_of(pod: Pod) -> str | None:
    return pod.node or None


def _owner_names(pod: Pod) -> tuple[str, str, str] | None:
    controller = pod.controller
    return None if controller is None else (pod.namespace, controller.qualified_kind, controller.name)


def _scheduler_of_pending(pod: Pod) -> str | None:
    return None if pod.node or pod.deleted is not None or pod.terminal else pod.spec.scheduler_name
