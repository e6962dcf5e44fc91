"""Labels for the numbers that measure each strategy's remaining violations."""

from __future__ import annotations

from typing import Final

LABELS: Final[dict[str, tuple[str, ...]]] = {
    "RemovePodsViolatingNodeTaints": (
        "pods on nodes whose NoSchedule taint they do not tolerate",
        "untolerated PreferNoSchedule taints that pods could avoid on other nodes",
    ),
    "RemovePodsViolatingNodeAffinity": (
        "pods on nodes that fail their node selector or required affinity",
        "weight of preferred node affinity that is not satisfied",
    ),
    "RemovePodsViolatingInterPodAntiAffinity": (
        "pairs of pods that violate required anti-affinity",
        "weight of preferred anti-affinity that is violated",
    ),
    "RemovePodsViolatingInterPodAffinity": (
        "pods whose required pod affinity is violated",
        "weight of preferred pod affinity that is not satisfied",
    ),
    "RemovePodsViolatingTopologySpreadConstraint": (
        "pods beyond maxSkew of constraints with DoNotSchedule",
        "pods beyond maxSkew of constraints with ScheduleAnyway",
    ),
    "RemovePodsHavingTooManyRestarts": ("pods with too many restarts",),
    "PodLifeTime": ("pods past their maximum life time",),
    "RemoveDuplicates": ("pods above their owner's fair share of a node",),
    "LowNodeUtilization": ("percentage points above targets, over all nodes and resources",),
    "HighNodeUtilization": ("underutilized nodes in use", "pods on underutilized nodes"),
    "RemoveFailedPods": ("failed pods to remove",),
}
"""The label of each number of a strategy's measure, by strategy. Smaller numbers are better."""


SINGLE_LABELS: Final = {
    "RemovePodsViolatingTopologySpreadConstraint": "pods beyond maxSkew of the considered topology spread constraints"
}
"""The labels of strategies that, depending on their parameters, may have only one number."""


def measure_labels(strategy: str, numbers: int) -> tuple[str, ...]:
    """Return a label for each number of a measure.

    For unknown strategies, these are ``measure 1``, ``measure 2`` and so on.
    """
    known = LABELS.get(strategy, ())
    if len(known) == numbers:
        return known
    if numbers == 1 and strategy in SINGLE_LABELS:
        return (SINGLE_LABELS[strategy],)
    return tuple(f"measure {place + 1}" for place in range(numbers))
