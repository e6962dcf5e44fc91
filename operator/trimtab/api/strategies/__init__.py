"""The strategies of a DeschedulerPolicy and their parameters, named and nested as in descheduler/v1alpha1.

A new strategy is a file here and one field of :class:`Strategies`: schema, CEL rules, checks and the reference page
follow. What a strategy does is in ``trimtab.descheduling.strategies``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Final

from msgspec import field

from trimtab.api.base import Rule, Spec, doc
from trimtab.api.strategies.base import SET, NoParams, Strategy
from trimtab.api.strategies.failed_pods import FailedPodsParams, RemoveFailedPods
from trimtab.api.strategies.high_node_utilization import (
    ONLY_THRESHOLDING_RESOURCES,
    HighNodeUtilization,
    HighNodeUtilizationParams,
)
from trimtab.api.strategies.inter_pod_affinity import InterPodAffinityParams, RemovePodsViolatingInterPodAffinity
from trimtab.api.strategies.inter_pod_anti_affinity import (
    InterPodAntiAffinityParams,
    RemovePodsViolatingInterPodAntiAffinity,
)
from trimtab.api.strategies.low_node_utilization import (
    KUBERNETES_METRICS,
    METRIC_RESOURCE,
    METRIC_RULE,
    PROMETHEUS,
    LowNodeUtilization,
    LowNodeUtilizationParams,
    MetricsUtilization,
    PrometheusQuery,
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
from trimtab.api.strategies.utilization import UtilizationThresholds

__all__ = [
    "KUBERNETES_METRICS",
    "METRIC_RESOURCE",
    "ONLY_THRESHOLDING_RESOURCES",
    "PREFERRED",
    "PROMETHEUS",
    "REQUIRED",
    "SET",
    "STRATEGIES",
    "FailedPodsParams",
    "HighNodeUtilization",
    "HighNodeUtilizationParams",
    "InterPodAffinityParams",
    "InterPodAntiAffinityParams",
    "LowNodeUtilization",
    "LowNodeUtilizationParams",
    "MetricsUtilization",
    "NoParams",
    "NodeAffinityParams",
    "NodeTaintsParams",
    "OwnerKinds",
    "PodConditionFilter",
    "PodLifeTime",
    "PodLifeTimeParams",
    "PrometheusQuery",
    "RemoveDuplicates",
    "RemoveDuplicatesParams",
    "RemoveFailedPods",
    "RemovePodsHavingTooManyRestarts",
    "RemovePodsViolatingInterPodAffinity",
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

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!('LowNodeUtilization' in self && self['LowNodeUtilization'].enabled && "
            "'HighNodeUtilization' in self && self['HighNodeUtilization'].enabled)",
            message="LowNodeUtilization and HighNodeUtilization would undo each other: enable one of them",
        ),
        Rule(
            rule="!('LowNodeUtilization' in self) || "
            "!has(self['LowNodeUtilization'].params) || "
            "!has(self['LowNodeUtilization'].params.nodeResourceUtilizationThresholds) || "
            "has(self['LowNodeUtilization'].params.nodeResourceUtilizationThresholds.targetThresholds)",
            message="LowNodeUtilization.params.nodeResourceUtilizationThresholds.targetThresholds is required",
            reason="FieldValueRequired",
        ),
        Rule(
            rule="!('HighNodeUtilization' in self) || "
            "!has(self['HighNodeUtilization'].params) || "
            "!has(self['HighNodeUtilization'].params.nodeResourceUtilizationThresholds) || "
            "!(has(self['HighNodeUtilization'].params.nodeResourceUtilizationThresholds.targetThresholds) || "
            "(has(self['HighNodeUtilization'].params.nodeResourceUtilizationThresholds.useDeviationThresholds) && "
            "self['HighNodeUtilization'].params.nodeResourceUtilizationThresholds.useDeviationThresholds))",
            message="targetThresholds and useDeviationThresholds belong to LowNodeUtilization, not to "
            "HighNodeUtilization",
            reason="FieldValueForbidden",
        ),
        METRIC_RULE,
    )

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
        doc("Parts pods that anti-affinity terms forbid to be together."),
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
    high_node_utilization: Annotated[
        HighNodeUtilization | None,
        doc("Empties underutilized nodes, each wholly or not at all."),
    ] = field(default=None, name="HighNodeUtilization")
    inter_pod_affinity: Annotated[
        RemovePodsViolatingInterPodAffinity | None,
        doc("Moves pods to the pods that their pod affinity asks for."),
    ] = field(default=None, name="RemovePodsViolatingInterPodAffinity")

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
