"""What LowNodeUtilization and HighNodeUtilization share: when nodes count as full, and whose pods stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from trimtab.api.base import NamespaceName, NaturalInt, Percentage, Rule, Spec, bounded, doc
from trimtab.api.strategies.base import SET

Shares = Mapping[Annotated[str, bounded("A resource.", least=1, limit=317)], Percentage]
"""Resource name to percentage of what nodes can allocate."""


class UtilizationThresholds(Spec, frozen=True):
    """When a node counts as underutilized and when as overutilized, in percent of allocatable, by pods' requests."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="(has(self.useDeviationThresholds) && self.useDeviationThresholds) || !has(self.targetThresholds) || "
            "self.thresholds.all(r, !(r in self.targetThresholds) || self.thresholds[r] <= self.targetThresholds[r])",
            message="thresholds must not exceed targetThresholds",
            # format, not join: a key's length has no bound, and the cost of joining keys is estimated beyond the budget
            expression="'thresholds must not exceed targetThresholds, but do for %s'.format([self.thresholds.filter(r, "
            "r in self.targetThresholds && self.thresholds[r] > self.targetThresholds[r])])",
            field_path=".thresholds",
        ),
    )

    thresholds: Annotated[
        Shares,
        bounded(
            "A node is underutilized if its usage of every resource named here is at or below the percentage. "
            "LowNodeUtilization moves pods to such nodes, HighNodeUtilization empties them. Resources: cpu, memory, "
            "pods, and any other that nodes offer. A resource that is not named never keeps a node from being "
            "underutilized.",
            least=1,
            limit=16,
        ),
    ]
    target_thresholds: (
        Annotated[
            Shares,
            bounded(
                "LowNodeUtilization, which requires it: a node is overutilized, and pods are moved away from it, while "
                "its usage of any resource named here is above the percentage; no node is filled beyond it. A resource "
                "that is not named counts as 100.",
                least=1,
                limit=16,
            ),
        ]
        | None
    ) = None
    use_deviation_thresholds: Annotated[
        bool | None,
        doc(
            "LowNodeUtilization: both thresholds are deviations from the mean usage of the policy's nodes, in percent "
            "points: underutilized is at or below the mean less thresholds, overutilized is above the mean plus "
            "targetThresholds, between 0 and 100. The mean is that of the nodes' percentages, whatever their size. "
            "Without it, or false: thresholds are percentages."
        ),
    ] = None  # not False: the API server would write it into policies that do not have it
    number_of_nodes: Annotated[
        NaturalInt,
        doc("The strategy acts only while more nodes than this are underutilized; 0 acts from the first one on."),
    ] = 0


class EvictableNamespaces(Spec, frozen=True):
    """Whose pods a strategy leaves where they are. They count in how full nodes are, like all others."""

    exclude: Annotated[
        tuple[NamespaceName, ...],
        bounded("Pods of these namespaces are not moved by this strategy.", least=1, limit=256, **SET),
    ] = ()
