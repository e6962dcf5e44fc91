"""Strategies that act on the utilization of nodes: LowNodeUtilization and HighNodeUtilization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from trimtab.api.base import SET, NamespaceName, NaturalInt, Percentage, PositiveInt, Rule, Spec, Strategy, bounded, doc

Shares = Mapping[Annotated[str, bounded("A resource name.", least=1, limit=317)], Percentage]
"""Resource name to percentage of a node's allocatable amount."""


class UtilizationThresholds(Spec, frozen=True):
    """The thresholds, in percent of allocatable, at which a node is underutilized or overutilized."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="(has(self.useDeviationThresholds) && self.useDeviationThresholds) || !has(self.targetThresholds) || "
            "self.thresholds.all(r, !(r in self.targetThresholds) || self.thresholds[r] <= self.targetThresholds[r])",
            message="thresholds must not exceed targetThresholds",
            # format instead of join: keys have no maximum length, so the estimated cost of join exceeds the budget
            expression="'thresholds must not exceed targetThresholds, but do for %s'.format([self.thresholds.filter(r, "
            "r in self.targetThresholds && self.thresholds[r] > self.targetThresholds[r])])",
            field_path=".thresholds",
        ),
    )

    thresholds: Annotated[
        Shares,
        bounded(
            "Thresholds for underutilized nodes, by resource name. Each threshold is a percentage of the node's "
            "allocatable amount. A node is underutilized if its utilization of every listed resource is at or below "
            "the threshold. LowNodeUtilization moves pods to underutilized nodes. HighNodeUtilization drains "
            "underutilized nodes. Supported resources are cpu, memory, pods and extended resources. Resources that are "
            "not listed are ignored.",
            least=1,
            limit=16,
        ),
    ]
    target_thresholds: (
        Annotated[
            Shares,
            bounded(
                "Thresholds for overutilized nodes, by resource name. Required. Each threshold is a percentage of the "
                "node's allocatable amount. A node is overutilized if its utilization of any listed resource is above "
                "the threshold. The strategy evicts pods from a node while the node is overutilized. The strategy does "
                "not move a pod to a node that would then exceed a threshold. Resources that are not listed have the "
                "threshold 100.",
                least=1,
                limit=16,
            ),
        ]
        | None
    ) = None
    use_deviation_thresholds: Annotated[
        bool | None,
        doc(
            "Whether the thresholds are relative to the mean utilization. If true, a node is underutilized if its "
            "utilization is at or below the mean minus thresholds, and overutilized if its utilization is above the "
            "mean plus targetThresholds. The results are limited to the range from 0 to 100. The mean is the average "
            "utilization of the ready nodes that the policy selects, regardless of node size. If unset or false, the "
            "thresholds are absolute percentages."
        ),
    ] = None  # not False, because the API server would add the default to all policies
    number_of_nodes: Annotated[
        NaturalInt,
        doc("Number of underutilized nodes above which pods are evicted. If 0, one underutilized node is sufficient."),
    ] = 0


class EvictableNamespaces(Spec, frozen=True):
    """Restricts the namespaces whose pods this strategy evicts. Only exclude is supported."""

    exclude: Annotated[
        tuple[NamespaceName, ...],
        bounded(
            "Namespaces whose pods this strategy does not evict. These pods still count toward node utilization.",
            least=1,
            limit=256,
            **SET,
        ),
    ] = ()


KUBERNETES_METRICS: Final = "KubernetesMetrics"
PROMETHEUS: Final = "Prometheus"

METRIC_RESOURCE: Final = "MetricResource"
"""The resource name, as in upstream, with which thresholds refer to the value that a Prometheus query returns for a
node."""

PROMETHEUS_RULE: Final = Rule(
    rule="self.source == 'Prometheus' ? has(self.prometheus) : !has(self.prometheus)",
    message="prometheus is required for the source Prometheus, and must be unset otherwise",
    field_path=".prometheus",
)

_METRIC_RULE: Final = Rule(
    rule="!has(self.nodeResourceUtilizationThresholds) || "
    "(has(self.metricsUtilization) && self.metricsUtilization.source == 'Prometheus' ? "
    "self.nodeResourceUtilizationThresholds.thresholds.all(r, r == 'MetricResource') && "
    "(!has(self.nodeResourceUtilizationThresholds.targetThresholds) || "
    "self.nodeResourceUtilizationThresholds.targetThresholds.all(r, r == 'MetricResource')) : "
    "!('MetricResource' in self.nodeResourceUtilizationThresholds.thresholds) && "
    "(!has(self.nodeResourceUtilizationThresholds.targetThresholds) || "
    "!('MetricResource' in self.nodeResourceUtilizationThresholds.targetThresholds)))",
    message="LowNodeUtilization: if metricsUtilization.source is Prometheus, thresholds and targetThresholds must "
    "contain only MetricResource; otherwise, they must not contain it",
)
"""With the source Prometheus, thresholds can only refer to MetricResource, because a query returns one number per
node."""

_TARGETS_RULE: Final = Rule(
    rule="!has(self.nodeResourceUtilizationThresholds) || has(self.nodeResourceUtilizationThresholds.targetThresholds)",
    message="LowNodeUtilization.params.nodeResourceUtilizationThresholds.targetThresholds is required",
    reason="FieldValueRequired",
)


class EvictionLimits(Spec, frozen=True):
    """Limits on evictions by this strategy. These limits apply in addition to spec.limits."""

    node: Annotated[
        PositiveInt | None, doc("Maximum number of pods that this strategy evicts from each node per cycle.")
    ] = None


SOURCES: Final = (KUBERNETES_METRICS, PROMETHEUS)
"""The sources of measured utilization."""


class PrometheusQuery(Spec, frozen=True):
    """PromQL queries for actual utilization. The server's address and credentials are settings of the operator."""

    query: Annotated[
        str,
        bounded(
            "PromQL query that returns one series per node with a value between 0 (idle) and 1 (fully utilized). In "
            "thresholds and targetThresholds, the resource MetricResource refers to this value, in percent. A node is "
            "treated as not measured if it has no series, several series, or a value outside this range.",
            least=1,
            limit=8192,
        ),
    ]
    node_label: Annotated[
        str,
        Meta(
            description="Label of the returned time series whose value is the name of the node.",
            min_length=1,
            max_length=256,
            pattern="^[a-zA-Z_][a-zA-Z0-9_]*$",
        ),
    ] = "instance"
    pod_query: (
        Annotated[
            str,
            bounded(
                "PromQL query that returns one series per pod, with the labels namespace and pod. The value is the "
                "pod's contribution to the node's utilization, on the same scale as query. If a pod has no series, its "
                "contribution is estimated from its resource requests. If podQuery is unset or returns no series, at "
                "most one pod is evicted from each node per cycle, unless evictionLimits.node is set.",
                least=1,
                limit=8192,
            ),
        ]
        | None
    ) = None


class MetricsUtilization(Spec, frozen=True):
    """Use measured utilization instead of resource requests."""

    cel: ClassVar[tuple[Rule, ...]] = (PROMETHEUS_RULE,)

    source: Annotated[
        Literal["KubernetesMetrics", "Prometheus"],
        doc(
            "Source of the measurements. KubernetesMetrics uses the metrics.k8s.io API, which metrics-server or an "
            "adapter serves. This API provides only cpu and memory. For all other resources, resource requests are "
            "used. Prometheus sends the queries in the prometheus field to the Prometheus server that is configured in "
            "the settings of the operator."
        ),
    ]
    prometheus: Annotated[
        PrometheusQuery | None,
        doc(
            "Prometheus queries for node and pod utilization. Required if source is Prometheus. Must be unset "
            "otherwise."
        ),
    ] = None


class LowNodeUtilizationParams(Spec, frozen=True):
    """Parameters of LowNodeUtilization."""

    cel: ClassVar[tuple[Rule, ...]] = (_TARGETS_RULE, _METRIC_RULE)

    node_resource_utilization_thresholds: Annotated[
        UtilizationThresholds | None,
        doc(
            "Thresholds that determine whether a node is underutilized or overutilized. Required if the strategy "
            "is enabled."
        ),
    ] = None
    metrics_utilization: Annotated[
        MetricsUtilization | None,
        doc(
            "Source of measured utilization. If set, the strategy uses measurements instead of resource requests to "
            "classify nodes and select pods. Nodes without a measurement are ignored. A target node must still have "
            "enough unrequested resources for the pod, and its measured utilization must stay at or below "
            "targetThresholds. If unset, utilization is computed from resource requests."
        ),
    ] = None
    evictable_namespaces: Annotated[
        EvictableNamespaces,
        doc("Restricts the namespaces whose pods this strategy evicts. Only exclude is supported."),
    ] = EvictableNamespaces()
    eviction_limits: Annotated[
        EvictionLimits, doc("Limits on evictions by this strategy. These limits apply in addition to spec.limits.")
    ] = EvictionLimits()


class LowNodeUtilization(Strategy, frozen=True):
    """Evicts pods from overutilized nodes so that they are rescheduled on underutilized nodes."""

    needs: ClassVar[tuple[str, ...]] = ("nodeResourceUtilizationThresholds",)

    params: Annotated[LowNodeUtilizationParams, doc("Parameters of LowNodeUtilization.")] = LowNodeUtilizationParams()


ONLY_THRESHOLDING_RESOURCES: Final = "OnlyThresholdingResources"
EvictionMode = Literal["OnlyThresholdingResources"]


class HighNodeUtilizationParams(Spec, frozen=True):
    """Parameters of HighNodeUtilization."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!has(self.nodeResourceUtilizationThresholds) || "
            "!(has(self.nodeResourceUtilizationThresholds.targetThresholds) || "
            "(has(self.nodeResourceUtilizationThresholds.useDeviationThresholds) && "
            "self.nodeResourceUtilizationThresholds.useDeviationThresholds))",
            message="targetThresholds and useDeviationThresholds belong to LowNodeUtilization, not to "
            "HighNodeUtilization",
            reason="FieldValueForbidden",
        ),
    )

    node_resource_utilization_thresholds: Annotated[
        UtilizationThresholds | None,
        doc("Thresholds that determine whether a node is underutilized. Required if the strategy is enabled."),
    ] = None
    eviction_modes: Annotated[
        tuple[EvictionMode, ...],
        bounded(
            "Restricts which pods are evicted. OnlyThresholdingResources evicts only pods that request at least one of "
            "the resources in thresholds, for example pods that request GPUs. A node that runs no such pods is "
            "considered empty. If unset, all pods on a node are evicted except DaemonSet pods, static pods and mirror "
            "pods.",
            least=1,
            limit=1,
            **SET,
        ),
    ] = ()
    evictable_namespaces: Annotated[
        EvictableNamespaces,
        doc("Restricts the namespaces whose pods this strategy evicts. Only exclude is supported."),
    ] = EvictableNamespaces()


class HighNodeUtilization(Strategy, frozen=True):
    """Drains underutilized nodes completely, so that fewer nodes are needed.

    A node that cannot be drained completely is left unchanged.
    """

    needs: ClassVar[tuple[str, ...]] = ("nodeResourceUtilizationThresholds",)

    params: Annotated[HighNodeUtilizationParams, doc("Parameters of HighNodeUtilization.")] = (
        HighNodeUtilizationParams()
    )
