"""What is left as it is while the cluster, or a group, is unwell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.autoscaling.groups import NodeGroup
from trimtab.disruption.refusal import Refusal


class Standstill(Struct, frozen=True):
    """Why nodes are not removed whatever they are used for.

    Their records stay: a moment in which nothing can be said of a node is no reason to count its time from the
    beginning. Upstream forgets all times then.

    Attributes:
        cluster: why none at all is, in words; empty where that is not so.
        groups: why none of a group is, in words, by its id.
    """

    cluster: str = ""
    groups: Mapping[str, str] = {}

    def refusal(self, group: NodeGroup) -> Refusal | None:
        """Why no node of the group goes; ``None`` where that is for each node to say."""
        if self.cluster:
            return Refusal(reasons.CLUSTER_UNHEALTHY, self.cluster)
        if group.id in self.groups:
            return Refusal(reasons.GROUP_UNHEALTHY, f"{group.kind} {group.key}: {self.groups[group.id]}")
        return None


NO_STANDSTILL: Final = Standstill()
