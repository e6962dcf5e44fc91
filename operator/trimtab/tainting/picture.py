"""What the taint manager sees: nodes, their Leases and the pods that have a node, by the watches alone.

The snapshot has them as well, but planners borrow it for seconds and try moves on it. Deadlines and the health of nodes
are asked for on the event loop, at any moment. It costs an entry an object; the objects are the snapshot's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from trimtab.kube.objects import NODE_LEASES, Lease, Node, Pod
from trimtab.tainting.deadlines.columns import Item
from trimtab.tainting.deadlines.placed import PlacedPods


class Follower(Protocol):
    """Is told of every change, after the picture has it; it must be quick, and must not raise."""

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came, changed or went."""
        ...

    def lease_changed(self, old: Lease | None, new: Lease | None) -> None:
        """A node's Lease came, was renewed or went."""
        ...

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod came, changed or went."""
        ...


class Picture:
    """Nodes, Leases of nodes, and placed pods; its methods ending in ``_changed`` are listeners of the stores.

    Attributes:
        nodes: by name.
        leases: of kube-node-lease, by ``namespace/name``.
        pods: those that have a node, whether or not the node is there.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.leases: dict[str, Lease] = {}
        self.pods = PlacedPods()
        self._followers: list[Follower] = []

    def follow(self, follower: Follower) -> Callable[[], None]:
        """Tell of every change from now on; what is returned ends that."""
        self._followers.append(follower)
        return lambda: self._followers.remove(follower)

    def uid_of(self, node: str) -> str:
        """The uid of a node by its name, empty where there is none."""
        there = self.nodes.get(node)
        return there.uid if there is not None else ""

    def pods_on(self, node: str) -> Iterable[Item]:
        """The pods on a node with their keys, in no particular order."""
        return self.pods.on(node)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came, changed or went."""
        if new is not None:
            self.nodes[new.name] = new
        elif old is not None:
            self.nodes.pop(old.name, None)
        for follower in self._followers:
            follower.node_changed(old, new)

    def lease_changed(self, old: Lease | None, new: Lease | None) -> None:
        """A Lease came, was renewed or went; those that are no node's are left out."""
        lease = new or old
        if lease is None or lease.namespace != NODE_LEASES:
            return
        if new is None:
            self.leases.pop(lease.key, None)
        else:
            self.leases[lease.key] = new
        for follower in self._followers:
            follower.lease_changed(old, new)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod came, changed or went."""
        self.pods.pod_changed(old, new)
        for follower in self._followers:
            follower.pod_changed(old, new)
