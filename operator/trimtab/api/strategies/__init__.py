"""The strategies of a DeschedulerPolicy and their parameters, named and nested as in descheduler/v1alpha1.

A new strategy is a file here and one field of :class:`Strategies`: schema, CEL rules, checks and the reference page
follow. What a strategy does is in ``trimtab.descheduling.strategies``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

from msgspec import field

from trimtab.api.base import Spec, doc
from trimtab.api.strategies.base import SET, NoParams, Strategy
from trimtab.api.strategies.failed_pods import FailedPodsParams, RemoveFailedPods
from trimtab.api.strategies.inter_pod_anti_affinity import RemovePodsViolatingInterPodAntiAffinity
from trimtab.api.strategies.low_node_utilization import (
    LowNodeUtilization,
    LowNodeUtilizationParams,
    UtilizationThresholds,
)
from trimtab.api.strategies.node_affinity import (
    PREFERRED,
    REQUIRED,
    NodeAffinityParams,
    RemovePodsViolatingNodeAffinity,
)
from trimtab.api.strategies.node_taints import NodeTaintsParams, RemovePodsViolatingNodeTaints
from trimtab.api.strategies.pod_life_time import (
    OwnerKinds,
    PodConditionFilter,
    PodLifeTime,
    PodLifeTimeParams,
)
from trimtab.api.strategies.remove_duplicates import RemoveDuplicates, RemoveDuplicatesParams
from trimtab.api.strategies.too_many_restarts import RemovePodsHavingTooManyRestarts, TooManyRestartsParams
from trimtab.api.strategies.topology_spread import RemovePodsViolatingTopologySpreadConstraint, TopologySpreadParams

__all__ = [
    "PREFERRED",
    "REQUIRED",
    "SET",
    "STRATEGIES",
    "FailedPodsParams",
    "LowNodeUtilization",
    "LowNodeUtilizationParams",
    "NoParams",
    "NodeAffinityParams",
    "NodeTaintsParams",
    "OwnerKinds",
    "PodConditionFilter",
    "PodLifeTime",
    "PodLifeTimeParams",
    "RemoveDuplicates",
    "RemoveDuplicatesParams",
    "RemoveFailedPods",
    "RemovePodsHavingTooManyRestarts",
    "RemovePodsViolatingInterPodAntiAffinity",
    "RemovePodsViolatingNodeAffinity",
    "RemovePodsViolatingNodeTaints",
    "RemovePodsViolatingTopologySpreadConstraint",
    "Strategies",
    "Strategy",
    "TooManyRestartsParams",
    "TopologySpreadParams",
    "UtilizationThresholds",
]


class Strategies(Spec, frozen=True):
    """The strategies by name. They run in the order of the descheduler's registry, whatever the order of the input."""

    remove_duplicates: Annotated[
        RemoveDuplicates | None,
        doc("Spreads the pods of one owner over the nodes that can run them."),
    ] = field(default=None, name="RemoveDuplicates")
    low_node_utilization: Annotated[
        LowNodeUtilization | None,
        doc("Moves pods from overutilized nodes to underutilized ones."),
    ] = field(default=None, name="LowNodeUtilization")
    inter_pod_anti_affinity: Annotated[
        RemovePodsViolatingInterPodAntiAffinity | None,
        doc("Parts pods that a required anti-affinity term forbids to be together."),
    ] = field(default=None, name="RemovePodsViolatingInterPodAntiAffinity")
    node_affinity: Annotated[
        RemovePodsViolatingNodeAffinity | None,
        doc("Moves pods to nodes that satisfy their node affinity."),
    ] = field(default=None, name="RemovePodsViolatingNodeAffinity")
    too_many_restarts: Annotated[
        RemovePodsHavingTooManyRestarts | None,
        doc("Evicts pods whose containers have been restarted too often."),
    ] = field(default=None, name="RemovePodsHavingTooManyRestarts")
    pod_life_time: Annotated[
        PodLifeTime | None,
        doc("Evicts pods that have lived too long, or have been in a state for too long."),
    ] = field(default=None, name="PodLifeTime")
    failed_pods: Annotated[
        RemoveFailedPods | None,
        doc("Removes pods that have failed."),
    ] = field(default=None, name="RemoveFailedPods")
    node_taints: Annotated[
        RemovePodsViolatingNodeTaints | None,
        doc("Moves pods that do not tolerate a NoSchedule taint of their node to a node that takes them."),
    ] = field(default=None, name="RemovePodsViolatingNodeTaints")
    topology_spread: Annotated[
        RemovePodsViolatingTopologySpreadConstraint | None,
        doc("Evens out pods over zones, nodes or other domains until their topology spread constraints hold."),
    ] = field(default=None, name="RemovePodsViolatingTopologySpreadConstraint")

    def __iter__(self) -> Iterator[tuple[str, Strategy]]:
        """Every strategy that is listed, with its name, enabled or not."""
        for name, attribute in zip(self.__struct_encode_fields__, self.__struct_fields__, strict=True):
            strategy = getattr(self, attribute)
            if strategy is not None:
                yield name, strategy

    def enabled(self) -> tuple[tuple[str, Strategy], ...]:
        """The strategies that run, with their names."""
        return tuple((name, strategy) for name, strategy in self if strategy.enabled)


STRATEGIES: Final[tuple[str, ...]] = Strategies.__struct_encode_fields__
"""Every strategy's name, in the order in which they are listed to users."""
