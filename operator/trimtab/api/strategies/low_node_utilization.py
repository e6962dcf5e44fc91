"""LowNodeUtilization and its parameters."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from trimtab.api.base import PositiveInt, Spec, doc
from trimtab.api.strategies.base import Strategy
from trimtab.api.strategies.utilization import EvictableNamespaces, UtilizationThresholds


class EvictionLimits(Spec, frozen=True):
    """How many pods one strategy may evict in one cycle, beside the policy's limits."""

    node: Annotated[PositiveInt | None, doc("Most evictions by this strategy from one node in one cycle.")] = None


SOURCES: Final = ("KubernetesMetrics",)
"""Who can be asked for real use."""


class MetricsUtilization(Spec, frozen=True):
    """Real use instead of requests."""

    source: Annotated[
        Literal["KubernetesMetrics"],
        doc(
            "Who measures. KubernetesMetrics: metrics.k8s.io, which metrics-server or an adapter serves; it has cpu "
            "and memory, and all other resources still count by requests."
        ),
    ]


class LowNodeUtilizationParams(Spec, frozen=True):
    """Parameters of LowNodeUtilization."""

    node_resource_utilization_thresholds: Annotated[
        UtilizationThresholds | None,
        doc("When a node counts as underutilized and when as overutilized. Required where the strategy is enabled."),
    ] = None
    metrics_utilization: Annotated[
        MetricsUtilization | None,
        doc(
            "Judge nodes and choose pods by what they really use. A node that was not measured is left alone. Where "
            "pods go is still decided by requests, as the scheduler decides it, among nodes whose use stays at or "
            "below their targets. Without it, requests count."
        ),
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
