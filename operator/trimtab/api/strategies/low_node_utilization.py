"""LowNodeUtilization and its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from trimtab.api.base import NaturalInt, Percentage, Rule, Spec, bounded, doc
from trimtab.api.strategies.base import Strategy

Shares = Mapping[Annotated[str, bounded("A resource.", least=1, limit=317)], Percentage]
"""Resource name to percentage of what nodes can allocate."""


class UtilizationThresholds(Spec, frozen=True):
    """When a node counts as underutilized and when as overutilized, in percent of allocatable, by pods' requests."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.thresholds.all(r, !(r in self.targetThresholds) || "
            "self.thresholds[r] <= self.targetThresholds[r])",
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
            "A node is underutilized, and pods are moved to it, if its usage of every resource named here is at or "
            "below the percentage. Resources: cpu, memory, pods, and any other that nodes offer. A resource that is "
            "not named never keeps a node from being underutilized.",
            least=1,
            limit=16,
        ),
    ]
    target_thresholds: Annotated[
        Shares,
        bounded(
            "A node is overutilized, and pods are moved away from it, while its usage of any resource named here is "
            "above the percentage; no node is filled beyond it. A resource that is not named counts as 100.",
            least=1,
            limit=16,
        ),
    ]
    number_of_nodes: Annotated[
        NaturalInt,
        doc("The strategy acts only while more nodes than this are underutilized; 0 acts from the first one on."),
    ] = 0


class LowNodeUtilizationParams(Spec, frozen=True):
    """Parameters of LowNodeUtilization."""

    node_resource_utilization_thresholds: Annotated[
        UtilizationThresholds | None,
        doc("When a node counts as underutilized and when as overutilized. Required where the strategy is enabled."),
    ] = None


class LowNodeUtilization(Strategy, frozen=True):
    """Moves pods from overutilized nodes to underutilized ones."""

    needs: ClassVar[tuple[str, ...]] = ("nodeResourceUtilizationThresholds",)

    params: Annotated[LowNodeUtilizationParams, doc("Parameters of LowNodeUtilization.")] = LowNodeUtilizationParams()
