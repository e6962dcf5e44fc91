"""The filters and scores of kube-scheduler v1.36's default profile, in its order.

The order of the filters only affects explanations, where each node is counted for the first filter that it fails.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.placement import filters, scores
from trimtab.placement.interface import FilterFactory, ScoreFactory


class Profile(Struct, frozen=True):
    """A scheduler profile: the enabled filters and scores.

    Attributes:
        filters: the factories of the filters, in the order of evaluation.
        scores: the factories of the score plugins.
        checks_all: whether a diagnosis contains every filter that a node fails (``alwaysCheckAllPredicates``) instead
            of the first one.
        preempts: whether a pod that fits on no node may preempt pods of lower priority.
    """

    filters: tuple[FilterFactory, ...]
    scores: tuple[ScoreFactory, ...]
    checks_all: bool = False
    preempts: bool = True


DEFAULT: Final = Profile(
    filters=(
        filters.Complexity,
        filters.NamespaceComplexity,
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
"""The profile that kube-scheduler uses without configuration."""

MOST_ALLOCATED: Final = Profile(
    filters=DEFAULT.filters,
    scores=tuple(scores.MostAllocated if score is scores.LeastAllocated else score for score in DEFAULT.scores),
)
"""The default profile with the ``scoringStrategy`` MostAllocated for NodeResourcesFit, which packs nodes."""
