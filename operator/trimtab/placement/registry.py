"""The rules of kube-scheduler v1.36's default profile, in the order in which it asks them.

The order of filters matters for explanations only: a node is counted under the first filter that it fails.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.placement import filters, scores
from trimtab.placement.framework import Filter, Score


class Profile(Struct, frozen=True):
    """What a scheduler goes by."""

    filters: tuple[type[Filter], ...]
    scores: tuple[type[Score], ...]


DEFAULT: Final = Profile(
    filters=(
        filters.SchedulingGates,
        filters.NamedNodes,
        filters.NodeUnschedulable,
        filters.NodeName,
        filters.TaintToleration,
        filters.NodeAffinity,
        filters.NodePorts,
        filters.NodeResourcesFit,
        filters.VolumeRestrictions,
        filters.NodeVolumeLimits,
        filters.VolumeBinding,
        filters.VolumeZone,
        filters.PodTopologySpread,
        filters.InterPodAffinity,
        filters.DynamicResources,
        filters.NodeDeclaredFeatures,
    ),
    scores=(
        scores.TaintToleration,
        scores.NodeAffinity,
        scores.LeastAllocated,
        scores.PodTopologySpread,
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
