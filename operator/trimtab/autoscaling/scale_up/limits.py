"""How many nodes may still be added: the group's largest size, and the limits of the whole cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.cluster_limits import GIB, ResourceLimits
from trimtab.autoscaling.groups.node_group import NodeGroup
from trimtab.kube.objects import Node

ACCELERATOR: Final = "cluster-api/accelerator"
"""On nodes: the type of their GPUs, as OpenShift's limits may name it."""

_CORE: Final = 1000
"""Millicores."""

_ENDLESS: Final = 2**31 - 1


class Cut(Struct, frozen=True):
    """What keeps a group from growing further: a reason code and the numbers."""

    reason: str
    message: str


class _Limit(Struct, frozen=True):
    """The most of something in the whole cluster, in the units of nodes' amounts, and how that is told."""

    reason: str
    field: str
    maximum: int
    unit: int
    gpu: str = ""

    def of(self, node: Node) -> int:
        """How much a node counts for."""
        amounts = node.capacity or node.allocatable
        match self.reason:
            case reasons.MAX_NODES_TOTAL_REACHED:
                return 1
            case reasons.MAX_CORES_REACHED:
                return amounts.get("cpu", 0)
            case reasons.MAX_MEMORY_REACHED:
                return amounts.get("memory", 0)
        if node.labels.get(ACCELERATOR) == self.gpu:
            return sum(amount for name, amount in amounts.items() if name.endswith("/gpu"))
        return amounts.get(self.gpu, 0)


class Headroom:
    """What of the limits is left while nodes are planned.

    Everything counts: nodes that no group has, those of the control plane, and those that are on their way.

    Args:
        limits: of the ClusterAutoscaler.
        nodes: all nodes there are or will be.
    """

    def __init__(self, limits: ResourceLimits, nodes: Iterable[Node]) -> None:
        self._limits = _limits(limits)
        there = list(nodes) if self._limits else []
        self._used = [sum(map(limit.of, there)) for limit in self._limits]
        self._added: dict[str, int] = {}

    def room(self, group: NodeGroup) -> int:
        """How many nodes the group may get by its own size."""
        return max(0, group.maximum - self.size(group))

    def size(self, group: NodeGroup) -> int:
        """The group's target with what has been planned."""
        return group.target + self._added.get(group.id, 0)

    def in_cluster(self, node: Node) -> int:
        """How many nodes like this one the cluster may get."""
        room = _ENDLESS
        for limit, used in zip(self._limits, self._used, strict=True):
            each = limit.of(node)
            if each:
                room = min(room, max(0, limit.maximum - used) // each)
        return room

    def allowed(self, group: NodeGroup, node: Node) -> int:
        """How many nodes like this one the group may get."""
        return min(self.room(group), self.in_cluster(node))

    def take(self, group: NodeGroup, node: Node, number: int) -> None:
        """Count nodes that are planned."""
        self._added[group.id] = self._added.get(group.id, 0) + number
        for place, limit in enumerate(self._limits):
            self._used[place] += number * limit.of(node)

    def cut(self, group: NodeGroup, node: Node) -> Cut | None:
        """What keeps the group from getting one node more; ``None`` where nothing does."""
        if not self.room(group):
            size = self.size(group)
            planned = f" ({size - group.target} planned now)" if size != group.target else ""
            return Cut(reasons.MAX_SIZE_REACHED, f"its size is {size}{planned}, and {group.maximum} is its largest")
        for limit, used in zip(self._limits, self._used, strict=True):
            each = limit.of(node)
            if each and used + each > limit.maximum:
                adds = (
                    "" if limit.reason == reasons.MAX_NODES_TOTAL_REACHED else f"a node adds {_amount(each, limit)}, "
                )
                message = (
                    f"the cluster has {_amount(used, limit)}, {adds}and "
                    f"resourceLimits.{limit.field} allows {_amount(limit.maximum, limit)}"
                )
                return Cut(limit.reason, message)
        return None


def _limits(limits: ResourceLimits) -> list[_Limit]:
    found = []
    if limits.max_nodes_total:  # 0 is no limit
        found.append(_Limit(reasons.MAX_NODES_TOTAL_REACHED, "maxNodesTotal", limits.max_nodes_total, 1))
    if limits.cores is not None:
        found.append(_Limit(reasons.MAX_CORES_REACHED, "cores.max", limits.cores.max * _CORE, _CORE))
    if limits.memory is not None:
        found.append(_Limit(reasons.MAX_MEMORY_REACHED, "memory.max", limits.memory.max * GIB, GIB))
    gpus = sorted(limits.gpus, key=lambda each: each.type)
    return found + [_Limit(reasons.MAX_GPUS_REACHED, f"gpus[{gpu.type}].max", gpu.max, 1, gpu.type) for gpu in gpus]


def _amount(amount: int, limit: _Limit) -> str:
    what = {
        reasons.MAX_NODES_TOTAL_REACHED: "nodes",
        reasons.MAX_CORES_REACHED: "cores",
        reasons.MAX_MEMORY_REACHED: "GiB",
    }.get(limit.reason, limit.gpu)
    return f"{round(amount / limit.unit, 2):g} {what}" if limit.unit > 1 else f"{amount} {what}"
