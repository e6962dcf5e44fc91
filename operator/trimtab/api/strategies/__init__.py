"""The strategies of a DeschedulerPolicy and their parameters, named and nested as in descheduler/v1alpha1.

To add a strategy, add its class to one of these modules and a field to :class:`Strategies`; the CRD schema, the CEL
rules and the reference page are generated from them. The implementations are in ``trimtab.descheduling.strategies``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Final

from msgspec import field

from trimtab.api.base import SET, Rule, Spec, Strategy, doc
from trimtab.api.strategies.placement import (
    PREFERRED,
    REQUIRED,
    InterPodAffinityParams,
    InterPodAntiAffinityParams,
    NodeAffinityParams,
    NodeTaintsParams,
    RemoveDuplicates,
    RemoveDuplicatesParams,
    RemovePodsViolatingInterPodAffinity,
    RemovePodsViolatingInterPodAntiAffinity,
    RemovePodsViolatingNodeAffinity,
    RemovePodsViolatingNodeTaints,
    RemovePodsViolatingTopologySpreadConstraint,
    TopologySpreadParams,
)
from trimtab.api.strategies.pod_state import (
    FailedPodsParams,
    OwnerKinds,
    PodConditionFilter,
    PodLifeTime,
    PodLifeTimeParams,
    RemoveFailedPods,
    RemovePodsHavingTooManyRestarts,
    TooManyRestartsParams,
)
from trimtab.api.strategies.utilization import (
    KUBERNETES_METRICS,
    METRIC_RESOURCE,
    ONLY_THRESHOLDING_RESOURCES,
    PROMETHEUS,
    HighNodeUtilization,
    HighNodeUtilizationParams,
    LowNodeUtilization,
    LowNodeUtilizationParams,
    MetricsUtilization,
    PrometheusQuery,
    UtilizationThresholds,
)

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
    """Strategies to run, keyed by name.

    Strategies run in this order: RemovePodsViolatingNodeTaints, RemovePodsViolatingNodeAffinity,
    RemovePodsViolatingInterPodAntiAffinity, RemovePodsViolatingInterPodAffinity,
    RemovePodsViolatingTopologySpreadConstraint, RemovePodsHavingTooManyRestarts, PodLifeTime, RemoveDuplicates,
    LowNodeUtilization or HighNodeUtilization, RemoveFailedPods.
    """

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!(has(self.LowNodeUtilization) && self.LowNodeUtilization.enabled && "
            "has(self.HighNodeUtilization) && self.HighNodeUtilization.enabled)",
            message="LowNodeUtilization and HighNodeUtilization would undo each other: enable one of them",
        ),
    )

    remove_duplicates: Annotated[
        RemoveDuplicates | None,
        doc(
            "Evicts pods so that the pods of each owner (such as a ReplicaSet or StatefulSet) are spread evenly "
            "across the nodes that can run them."
        ),
    ] = field(default=None, name="RemoveDuplicates")
    low_node_utilization: Annotated[
        LowNodeUtilization | None,
        doc("Evicts pods from overutilized nodes so that they are rescheduled to underutilized nodes."),
    ] = field(default=None, name="LowNodeUtilization")
    inter_pod_anti_affinity: Annotated[
        RemovePodsViolatingInterPodAntiAffinity | None,
        doc("Evicts pods that violate inter-pod anti-affinity."),
    ] = field(default=None, name="RemovePodsViolatingInterPodAntiAffinity")
    node_affinity: Annotated[
        RemovePodsViolatingNodeAffinity | None,
        doc(
            "Evicts pods whose node does not match their node selector or node affinity, if a matching node can run "
            "these pods. params.nodeAffinityType determines whether required or preferred node affinity is enforced."
        ),
    ] = field(default=None, name="RemovePodsViolatingNodeAffinity")
    too_many_restarts: Annotated[
        RemovePodsHavingTooManyRestarts | None,
        doc("Evicts pods whose containers have restarted too often."),
    ] = field(default=None, name="RemovePodsHavingTooManyRestarts")
    pod_life_time: Annotated[
        PodLifeTime | None,
        doc(
            "Evicts pods based on their age, state, conditions or container exit codes. Matching pods that have "
            "already terminated are deleted."
        ),
    ] = field(default=None, name="PodLifeTime")
    failed_pods: Annotated[
        RemoveFailedPods | None,
        doc("Deletes pods whose phase is Failed."),
    ] = field(default=None, name="RemoveFailedPods")
    node_taints: Annotated[
        RemovePodsViolatingNodeTaints | None,
        doc(
            "Evicts pods that do not tolerate a NoSchedule taint of their node, if another node can run these pods. "
            "The following taints are ignored unless params.includedTaints lists them: node.kubernetes.io/not-ready, "
            "node.kubernetes.io/unreachable, pressure.trimtab.dev/* of NodePressurePolicies, taints of autoscalers, "
            "and all taints of a node that an autoscaler is removing."
        ),
    ] = field(default=None, name="RemovePodsViolatingNodeTaints")
    topology_spread: Annotated[
        RemovePodsViolatingTopologySpreadConstraint | None,
        doc(
            "Evicts pods that violate topology spread constraints, so that pods are spread evenly across zones, "
            "nodes or other topology domains."
        ),
    ] = field(default=None, name="RemovePodsViolatingTopologySpreadConstraint")
    high_node_utilization: Annotated[
        HighNodeUtilization | None,
        doc(
            "Drains underutilized nodes so that fewer nodes are needed. If a node cannot be drained completely, no "
            "pods are evicted from the node."
        ),
    ] = field(default=None, name="HighNodeUtilization")
    inter_pod_affinity: Annotated[
        RemovePodsViolatingInterPodAffinity | None,
        doc(
            "Evicts pods that violate inter-pod affinity, so that these pods are rescheduled near the pods that their "
            "affinity terms select."
        ),
    ] = field(default=None, name="RemovePodsViolatingInterPodAffinity")

    def __iter__(self) -> Iterator[tuple[str, Strategy]]:
        """Yield every configured strategy with its name, whether or not it is enabled."""
        for name, attribute in zip(self.__struct_encode_fields__, self.__struct_fields__, strict=True):
            strategy = getattr(self, attribute)
            if strategy is not None:
                yield name, strategy

    def enabled(self) -> tuple[tuple[str, Strategy], ...]:
        """Return the enabled strategies with their names."""
        return tuple((name, strategy) for name, strategy in self if strategy.enabled)


STRATEGIES: Final[tuple[str, ...]] = Strategies.__struct_encode_fields__
"""The names of all strategies, in the order in which they are listed to users."""
