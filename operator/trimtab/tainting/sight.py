"""What the node lifecycle's planner reads of a cluster: a live picture and a file's snapshot both have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Lease, Node, Pod


class Sight(Protocol):
    """Nodes, their Leases, and pods by their nodes: all that is read while a pass is planned."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """By name."""
        ...

    @property
    def leases(self) -> Mapping[str, Lease]:
        """By ``namespace/name``; those of kube-node-lease matter."""
        ...

    def pods_on(self, node: str) -> Iterable[tuple[str, Pod]]:
        """The pods on a node with their keys, in any order."""
        ...


class SnapshotSight:
    """A snapshot as it is now, for ``trimtab plan`` and tests.

    Attributes:
        nodes: by name.
        leases: by ``namespace/name``.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes: Mapping[str, Node] = {node.name: node for node in snapshot.nodes.at if node is not None}
        self.leases: Mapping[str, Lease] = snapshot.shelves.of(Lease)
        self._snapshot = snapshot

    def pods_on(self, node: str) -> Iterable[tuple[str, Pod]]:
        """The pods on a node with their keys, in any order."""
        return self._snapshot.items_on(node)
