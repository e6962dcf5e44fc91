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
            "A node is underutilized if its utilization of every listed resource is at or below this percentage "
            "of the node's allocatable amount. LowNodeUtilization uses underutilized nodes as targets; "
            "HighNodeUtilization drains them. Resources: cpu, memory, pods, and extended resources. Resources "
            "that are not listed are ignored.",
            least=1,
            limit=16,
        ),
    ]
    target_thresholds: (
        Annotated[
            Shares,
            bounded(
                "Required for LowNodeUtilization. A node whose utilization of any listed resource is above the "
                "percentage is overutilized, and pods are evicted until it is not. A node is not considered as a "
                "target for a pod if the pod would push it above the percentage. A resource that is not listed has "
                "the threshold 100.",
                least=1,
                limit=16,
            ),
        ]
        | None
    ) = None
    use_deviation_thresholds: Annotated[
        bool | None,
        doc(
            "LowNodeUtilization only: whether both thresholds are deviations, in percentage points, from the "
            "mean utilization of the policy's nodes. A node is underutilized at or below mean - thresholds and "
            "overutilized above mean + targetThresholds, limited to the range from 0 to 100. The mean is the "
            "average of the nodes' percentages, regardless of node size. If unset or false, the thresholds are "
            "absolute percentages."
        ),
    ] = None  # not False, because the API server would add the default to all policies
    number_of_nodes: Annotated[
        NaturalInt,
        doc(
            "The strategy acts only if more than this number of nodes are underutilized. 0 means that one "
            "underutilized node is enough."
        ),
    ] = 0


class EvictableNamespaces(Spec, frozen=True):
    """Restricts the namespaces whose pods this strategy evicts; only exclude is supported."""

    exclude: Annotated[
        tuple[NamespaceName, ...],
        bounded(
            "Pods in these namespaces are not evicted by this strategy but still count toward node utilization.",
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
    """Limits on evictions by this strategy, in addition to the policy's limits."""

    node: Annotated[PositiveInt | None, doc("Maximum number of evictions by this strategy per node and cycle.")] = None


SOURCES: Final = (KUBERNETES_METRICS, PROMETHEUS)
"""The sources of measured utilization."""


class PrometheusQuery(Spec, frozen=True):
    """PromQL queries for actual utilization. The server's address and credentials are settings of the operator."""

    query: Annotated[
        str,
        bounded(
            "PromQL query that returns one series per node with a value between 0 (idle) and 1 (fully "
            "utilized). thresholds and targetThresholds refer to it as MetricResource, in percent. A node is "
            "considered not measured if it has no series, several series, or a value outside this range.",
            least=1,
            limit=8192,
        ),
    ]
    node_label: Annotated[
        str,
        Meta(
            description="Name of the label whose value is the node name, in the series that query returns.",
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
                "pod's part of the value that query returns for its node. If a pod has no series, its part is "
                "estimated from its share of the cpu, memory and pods requested on the node. If podQuery is unset "
                "or returns no series at all, the strategy evicts one pod per node and cycle unless "
                "evictionLimits.node is set.",
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
            "Where measurements come from. KubernetesMetrics: the metrics.k8s.io API, served by metrics-server "
            "or an adapter. It provides cpu and memory; requests are used for all other resources. Prometheus: "
            "the queries in the field prometheus, evaluated by the Prometheus server that is configured in the "
            "operator's settings."
        ),
    ]
    prometheus: Annotated[
        PrometheusQuery | None,
        doc("Prometheus queries. Required if source is Prometheus; must be unset otherwise."),
    ] = None


class LowNodeUtilizationParams(Spec, frozen=True):
    """Parameters of LowNodeUtilization."""

    cel: ClassVar[tuple[Rule, ...]] = (_TARGETS_RULE, _METRIC_RULE)

    node_resource_utilization_thresholds: Annotated[
        UtilizationThresholds | None,
        doc("When a node is considered underutilized or overutilized. Required if the strategy is enabled."),
    ] = None
    metrics_utilization: Annotated[
        MetricsUtilization | None,
        doc(
            "Source of measured utilization, which is used instead of requests to classify nodes and select "
            "pods. Nodes without a measurement are ignored. A target node must still have enough unrequested "
            "resources for the pod, as the scheduler requires, and its measured utilization must stay at or "
            "below targetThresholds. If unset, utilization is computed from requests."
        ),
    ] = None
    evictable_namespaces: Annotated[
        EvictableNamespaces,
        doc("Restricts the namespaces whose pods this strategy evicts; only exclude is supported."),
    ] = EvictableNamespaces()
    eviction_limits: Annotated[
        EvictionLimits, doc("Limits on evictions by this strategy, in addition to the policy's limits.")
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
        doc("When a node is considered underutilized. Required if the strategy is enabled."),
    ] = None
    eviction_modes: Annotated[
        tuple[EvictionMode, ...],
        bounded(
            "Restricts which pods are evicted. OnlyThresholdingResources: only pods that request at least one "
            "of the resources in thresholds; a node counts as empty once it runs no such pod. This is useful, "
            "for example, with a threshold for GPUs. If unset, all pods of a node are evicted, except "
            "DaemonSet, static and mirror pods.",
            least=1,
            limit=1,
            **SET,
        ),
    ] = ()
    evictable_namespaces: Annotated[
        EvictableNamespaces,
        doc("Restricts the namespaces whose pods this strategy evicts; only exclude is supported."),
    ] = EvictableNamespaces()


class HighNodeUtilization(Strategy, frozen=True):
    """Drains underutilized nodes completely, so that fewer nodes are needed.

    A node that cannot be drained completely is left unchanged.
    """

    needs: ClassVar[tuple[str, ...]] = ("nodeResourceUtilizationThresholds",)

    params: Annotated[HighNodeUtilizationParams, doc("Parameters of HighNodeUtilization.")] = (
        HighNodeUtilizationParams()
    )
