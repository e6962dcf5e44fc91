"""HighNodeUtilization and its parameters."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from trimtab.api.base import Spec, bounded, doc
from trimtab.api.strategies.base import SET, Strategy
from trimtab.api.strategies.utilization import EvictableNamespaces, UtilizationThresholds

ONLY_THRESHOLDING_RESOURCES: Final = "OnlyThresholdingResources"
EvictionMode = Literal["OnlyThresholdingResources"]


class HighNodeUtilizationParams(Spec, frozen=True):
    """Parameters of HighNodeUtilization."""

    node_resource_utilization_thresholds: Annotated[
        UtilizationThresholds | None,
        doc("When a node counts as underutilized and when as overutilized. Required where the strategy is enabled."),
    ] = None
    eviction_modes: Annotated[
        tuple[EvictionMode, ...],
        bounded(
            "OnlyThresholdingResources: only pods are moved that request some resource named in thresholds, and a "
            "node counts as empty once it has none of them, whatever else runs there. E.g. with a threshold for GPUs.",
            least=1,
            limit=1,
            **SET,
        ),
    ] = ()
    evictable_namespaces: Annotated[
        EvictableNamespaces, doc("Whose pods stay; they count in how full nodes are all the same.")
    ] = EvictableNamespaces()


class HighNodeUtilization(Strategy, frozen=True):
    """Empties underutilized nodes, each wholly or not at all, so that fewer nodes are needed."""

    needs: ClassVar[tuple[str, ...]] = ("nodeResourceUtilizationThresholds",)

    params: Annotated[HighNodeUtilizationParams, doc("Parameters of HighNodeUtilization.")] = (
        HighNodeUtilizationParams()
    )
