"""LowNodeUtilization and its parameters."""

from __future__ import annotations

from typing import Annotated, ClassVar

from trimtab.api.base import PositiveInt, Spec, doc
from trimtab.api.strategies.base import Strategy
from trimtab.api.strategies.utilization import EvictableNamespaces, UtilizationThresholds


class EvictionLimits(Spec, frozen=True):
    """How many pods one strategy may evict in one cycle, beside the policy's limits."""

    node: Annotated[PositiveInt | None, doc("Most evictions by this strategy from one node in one cycle.")] = None


class LowNodeUtilizationParams(Spec, frozen=True):
    """Parameters of LowNodeUtilization."""

    node_resource_utilization_thresholds: Annotated[
        UtilizationThresholds | None,
        doc("When a node counts as underutilized and when as overutilized. Required where the strategy is enabled."),
    ] = None
    evictable_namespaces: Annotated[
        EvictableNamespaces, doc("Whose pods stay; they count in how full nodes are all the same.")
    ] = EvictableNamespaces()
    eviction_limits: Annotated[EvictionLimits, doc("How many pods the strategy may evict in one cycle.")] = (
        EvictionLimits()
    )


class LowNodeUtilization(Strategy, frozen=True):
    """Moves pods from overutilized nodes to underutilized ones."""

    needs: ClassVar[tuple[str, ...]] = ("nodeResourceUtilizationThresholds",)

    params: Annotated[LowNodeUtilizationParams, doc("Parameters of LowNodeUtilization.")] = LowNodeUtilizationParams()
