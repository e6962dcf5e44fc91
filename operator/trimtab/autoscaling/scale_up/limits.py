"""Computes how many nodes may still be added, given the maximum sizes of groups and ``resourceLimits``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import GIB, ResourceLimits
from trimtab.autoscaling.groups.node_group import NodeGroup
from trimtab.kube.objects import Node

ACCELERATOR: Final = "cluster-api/accelerator"
"""Node label with the GPU type. OpenShift's ``resourceLimits.gpus`` may name that type instead of a resource."""

_CORE: Final = 1000
"""Millicores in a core."""

_ENDLESS: Final = 2**31 - 1


class LimitReason(Struct, frozen=True):
    """The reason why a group cannot be scaled up further: a reason code, and a message with numbers."""

    reason: str
    message: str


class _Limit(Struct, frozen=True):
    """A limit of one resource for the whole cluster, in the unit of ``Node.capacity``."""

    reason: str
    field: str
    maximum: int
    unit: int
    gpu: str = ""

    def of(self, node: Node) -> int:
        """Return how much of the limited resource one node has."""
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
    """Tracks how much of the limits is left while nodes are planned.

    All nodes count toward the limits, including nodes that belong to no group, control plane nodes and upcoming nodes.

    Args:
        limits: ``resourceLimits`` of the ClusterAutoscaler.
        nodes: all existing and upcoming nodes.
    """

    def __init__(self, limits: ResourceLimits, nodes: Iterable[Node]) -> None:
        self._limits = _limits(limits)
        existing = list(nodes) if self._limits else []
        self._used = [sum(map(limit.of, existing)) for limit in self._limits]
        self._added: dict[str, int] = {}
        self._budget = _ENDLESS

    def copy(self) -> Headroom:
        """Return an independent copy, on which a plan can be tried out."""
        made = Headroom(ResourceLimits(), ())
        made._limits, made._used, made._added = self._limits, list(self._used), dict(self._added)
        return made

    def limit_next(self, nodes: int) -> None:
        """Allow at most this number of further nodes, until the next call of this method or of :meth:`clear_limit`."""
        self._budget = nodes

    def clear_limit(self) -> None:
        """Remove the limit that :meth:`limit_next` set."""
        self._budget = _ENDLESS

    def room(self, group: NodeGroup) -> int:
        """Return the number of nodes that can be added until the group reaches its maximum size."""
        return max(0, group.maximum - self.size(group))

    def size(self, group: NodeGroup) -> int:
        """Return the group's target size plus the nodes planned so far."""
        return group.target + self._added.get(group.id, 0)

    def cluster_room(self, node: Node) -> int:
        """Return the number of nodes like this one that the limits of the cluster still allow."""
        room = max(0, self._budget)
        for limit, used in zip(self._limits, self._used, strict=True):
            each = limit.of(node)
            if each:
                room = min(room, max(0, limit.maximum - used) // each)
        return room

    def allowed(self, group: NodeGroup, node: Node) -> int:
        """Return the number of nodes like this one that can be added to the group."""
        return min(self.room(group), self.cluster_room(node))

    def reserve(self, group: NodeGroup, node: Node, number: int) -> None:
        """Subtract planned nodes of a group from the headroom."""
        self._budget -= number
        self._added[group.id] = self._added.get(group.id, 0) + number
        for place, limit in enumerate(self._limits):
            self._used[place] += number * limit.of(node)

    def limit_reason(self, group: NodeGroup, node: Node) -> LimitReason | None:
        """Return the reason why no further node can be added to the group, or ``None`` if one can be added."""
        if not self.room(group):
            size = self.size(group)
            planned = f" ({size - group.target} planned now)" if size != group.target else ""
            return LimitReason(
                reasons.MAX_SIZE_REACHED, f"its size is {size}{planned}, and its maximum is {group.maximum}"
            )
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
                return LimitReason(limit.reason, message)
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
