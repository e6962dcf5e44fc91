"""One score of kube-scheduler a file, each with its weight; :mod:`trimtab.placement.registry` has who counts.

Some bear the name of a filter, as they do in the scheduler: both are one plugin there.
"""

from trimtab.placement.scores.balanced_allocation import BalancedAllocation
from trimtab.placement.scores.image_locality import ImageLocality
from trimtab.placement.scores.inter_pod_affinity import InterPodAffinity
from trimtab.placement.scores.least_allocated import LeastAllocated
from trimtab.placement.scores.most_allocated import MostAllocated
from trimtab.placement.scores.node_affinity import NodeAffinity
from trimtab.placement.scores.pod_topology_spread import PodTopologySpread
from trimtab.placement.scores.taint_toleration import TaintToleration

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
