"""What the numbers of each strategy's measure count, in words for a table."""

from __future__ import annotations

from typing import Final

WORDS: Final[dict[str, tuple[str, ...]]] = {
    "RemovePodsViolatingNodeTaints": (
        "pods on nodes whose NoSchedule taint they do not tolerate",
        "PreferNoSchedule taints that other nodes would spare pods",
    ),
    "RemovePodsViolatingNodeAffinity": (
        "pods on nodes that fail their node selector or required affinity",
        "weight of preferred node affinity that pods miss",
    ),
    "RemovePodsViolatingInterPodAntiAffinity": (
        "pairs of pods together that required anti-affinity forbids",
        "weight of preferred anti-affinity that pods disregard",
    ),
    "RemovePodsViolatingInterPodAffinity": (
        "pods whose required pod affinity does not hold",
        "weight of preferred pod affinity that pods miss",
    ),
    "RemovePodsViolatingTopologySpreadConstraint": (
        "pods beyond maxSkew of constraints with DoNotSchedule",
        "pods beyond maxSkew of constraints with ScheduleAnyway",
    ),
    "RemovePodsHavingTooManyRestarts": ("pods restarted too often",),
    "PodLifeTime": ("pods at the end of their time",),
    "RemoveDuplicates": ("pods above their owner's fair share of a node",),
    "LowNodeUtilization": ("percent points above targets, over all nodes and resources",),
    "HighNodeUtilization": ("underutilized nodes in use", "pods that keep underutilized nodes in use"),
    "RemoveFailedPods": ("failed pods that are to be removed",),
}
"""By strategy, a text for each number of its measure. All measures count what is wrong: less is better."""


ALONE: Final = {
    "RemovePodsViolatingTopologySpreadConstraint": "pods beyond maxSkew of the topology spread constraints looked at"
}
"""Texts for strategies whose measure may be one number less, which one depending on their parameters."""


def words(strategy: str, numbers: int) -> tuple[str, ...]:
    """What each number of a strategy's measure counts; a strategy that nobody has described yet has them numbered."""
    known = WORDS.get(strategy, ())
    if len(known) == numbers:
        return known
    if numbers == 1 and strategy in ALONE:
        return (ALONE[strategy],)
    return tuple(f"measure {place + 1}" for place in range(numbers))
