"""The rules of kube-scheduler v1.36's default profile, in the order in which it asks them.

The order of filters matters for explanations only: a node is counted under the first filter that it fails.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.placement import scores
from trimtab.placement.filters.inter_pod_affinity import InterPodAffinity
from trimtab.placement.filters.named_nodes import NamedNodes
from trimtab.placement.filters.node_affinity import NodeAffinity
from trimtab.placement.filters.node_name import NodeName
from trimtab.placement.filters.node_ports import NodePorts
from trimtab.placement.filters.node_resources_fit import NodeResourcesFit
from trimtab.placement.filters.node_unschedulable import NodeUnschedulable
from trimtab.placement.filters.taint_toleration import TaintToleration
from trimtab.placement.framework import Filter, Score


class Profile(Struct, frozen=True):
    """What a scheduler goes by."""

    filters: tuple[type[Filter], ...]
    scores: tuple[type[Score], ...]


DEFAULT: Final = Profile(
    filters=(
        NamedNodes,
        NodeUnschedulable,
        NodeName,
        TaintToleration,
        NodeAffinity,
        NodePorts,
        NodeResourcesFit,
        InterPodAffinity,
    ),
    scores=(
        scores.TaintToleration,
        scores.NodeAffinity,
        scores.LeastAllocated,
        scores.InterPodAffinity,
        scores.BalancedAllocation,
        scores.ImageLocality,
    ),
)
"""kube-scheduler without any configuration."""

MOST_ALLOCATED: Final = Profile(
    filters=DEFAULT.filters,
    scores=tuple(scores.MostAllocated if score is scores.LeastAllocated else score for score in DEFAULT.scores),
)
"""The same, set up to fill nodes (``scoringStrategy`` MostAllocated of NodeResourcesFit)."""
