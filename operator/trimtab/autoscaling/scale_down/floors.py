"""How many nodes may still go: each group's smallest size, and the least that the whole cluster is to have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.cluster_limits import GIB, ResourceLimits
from trimtab.autoscaling.groups import NodeGroup
from trimtab.autoscaling.scale_down.utilization import ACCELERATOR
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Node

_CORE = 1000
"""Millicores."""


class _Floor(Struct, frozen=True):
    """The least of a resource in the whole cluster, in the units of nodes' amounts.

    Attributes:
        field: of the limits, as users write it.
        minimum: the least.
        unit: how much of it is one of what users write.
        resource: of nodes' capacities.
        gpu: whether ``resource`` may be the value of :data:`ACCELERATOR` as well.
    """

    field: str
    minimum: int
    unit: int
    resource: str
    gpu: bool = False

    def of(self, node: Node) -> int:
        """How much of it the cluster loses with a node."""
        amounts = node.capacity or node.allocatable
        if self.gpu and node.labels.get(ACCELERATOR) == self.resource:
            return sum(amount for name, amount in amounts.items() if name.endswith("/gpu"))
        return amounts.get(self.resource, 0)


class Floors:
    """What of groups and cluster is left while nodes are planned away; several of one group count together.

    Args:
        limits: of the ClusterAutoscaler.
        nodes: all nodes that stay if nothing is planned: those that no group has among them, and none that is on its
            way out already.
    """

    def __init__(self, limits: ResourceLimits, nodes: Iterable[Node]) -> None:
        there = list(nodes)
        self._names = {node.name for node in there}
        self._floors = list(_floors(limits))
        self._left = [sum(map(floor.of, there)) for floor in self._floors]
        self._going: dict[str, int] = {}
        self._sizes: dict[str, int] = {}

    def refusal(self, group: NodeGroup, node: Node) -> Refusal | None:
        """Why the node cannot go as things stand, ``None`` if it can."""
        going = self._going.get(group.id, 0)
        size = self._size(group)
        if size - going <= group.minimum:
            planned = f", {going} of them going now" if going else ""
            message = f"{group.kind} {group.key} has {size} nodes{planned}, and must have {group.minimum} at least"
            return Refusal(reasons.NODE_GROUP_MIN_SIZE_REACHED, message)
        for floor, left in zip(self._floors, self._left, strict=True):
            own = floor.of(node)
            if own and left - own < floor.minimum:
                message = (
                    f"the cluster has {left / floor.unit:g} of {floor.field}, the node is {own / floor.unit:g} of it, "
                    f"and resourceLimits asks for {floor.minimum / floor.unit:g} at least"
                )
                return Refusal(reasons.MINIMAL_RESOURCE_LIMIT_EXCEEDED, message)
        return None

    def _size(self, group: NodeGroup) -> int:
        """The nodes that are there, where that is fewer than are asked for: some may never come."""
        size = self._sizes.get(group.id)
        if size is None:
            size = min(group.target, sum(name in self._names for name in group.nodes))
            self._sizes[group.id] = size
        return size

    def take(self, group: NodeGroup, node: Node) -> None:
        """Count a node that is to go."""
        self._going[group.id] = self._going.get(group.id, 0) + 1
        for place, floor in enumerate(self._floors):
            self._left[place] -= floor.of(node)


def _floors(limits: ResourceLimits) -> Iterator[_Floor]:
    if limits.cores is not None:
        yield _Floor("cores", limits.cores.min * _CORE, _CORE, "cpu")
    if limits.memory is not None:
        yield _Floor("memory (GiB)", limits.memory.min * GIB, GIB, "memory")
    for gpu in sorted(limits.gpus, key=lambda each: each.type):
        yield _Floor(f"gpus[{gpu.type}]", gpu.min, 1, gpu.type, gpu=True)
