"""kube-scheduler's scores with their weights. :mod:`trimtab.placement.registry` lists the scores of each profile.

Some scores have the name of a filter, because both belong to the same scheduler plugin.
"""

from trimtab.placement.scores.images import ImageLocality
from trimtab.placement.scores.nodes import (
    BalancedAllocation,
    LeastAllocated,
    MostAllocated,
    NodeAffinity,
    TaintToleration,
)
from trimtab.placement.scores.pods import InterPodAffinity, PodTopologySpread

__all__ = [
    "BalancedAllocation",
    "ImageLocality",
    "InterPodAffinity",
    "LeastAllocated",
    "MostAllocated",
    "NodeAffinity",
    "PodTopologySpread",
    "TaintToleration",
]
