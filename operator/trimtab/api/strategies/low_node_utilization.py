"""LowNodeUtilization and its parameters."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from trimtab.api.base import PositiveInt, Rule, Spec, bounded, doc
from trimtab.api.strategies.base import Strategy
from trimtab.api.strategies.utilization import EvictableNamespaces, UtilizationThresholds

KUBERNETES_METRICS: Final = "KubernetesMetrics"
PROMETHEUS: Final = "Prometheus"

METRIC_RESOURCE: Final = "MetricResource"
"""What thresholds call the one number that a query gives for a node: upstream's name."""

PROMETHEUS_RULE: Final = Rule(
    rule="self.source == 'Prometheus' ? has(self.prometheus) : !has(self.prometheus)",
    message="prometheus must be given for the source Prometheus, and for no other",
    field_path=".prometheus",
)

_PARAMS: Final = "self['LowNodeUtilization'].params"
_THRESHOLDS: Final = f"{_PARAMS}.nodeResourceUtilizationThresholds"
METRIC_RULE: Final = Rule(
    rule="!('LowNodeUtilization' in self) || "
    f"!has({_PARAMS}) || !has({_THRESHOLDS}) || "
    f"(has({_PARAMS}.metricsUtilization) && {_PARAMS}.metricsUtilization.source == 'Prometheus' ? "
    f"{_THRESHOLDS}.thresholds.all(r, r == 'MetricResource') && "
    f"(!has({_THRESHOLDS}.targetThresholds) || {_THRESHOLDS}.targetThresholds.all(r, r == 'MetricResource')) : "
    f"!('MetricResource' in {_THRESHOLDS}.thresholds) && "
    f"(!has({_THRESHOLDS}.targetThresholds) || !('MetricResource' in {_THRESHOLDS}.targetThresholds)))",
    message="LowNodeUtilization: thresholds and targetThresholds must name MetricResource, and nothing else, where "
    "metricsUtilization has the source Prometheus; without it they must not",
)
"""What a query gives is one number a node, so thresholds can be of nothing else."""


class EvictionLimits(Spec, frozen=True):
    """How many pods one strategy may evict in one cycle, beside the policy's limits."""

    node: Annotated[PositiveInt | None, doc("Most evictions by this strategy from one node in one cycle.")] = None


SOURCES: Final = (KUBERNETES_METRICS, PROMETHEUS)
"""Who can be asked for real use."""


class PrometheusQuery(Spec, frozen=True):
    """What to ask Prometheus; where it is and how to log in there are settings of the operator."""

    query: Annotated[
        str,
        bounded(
            "PromQL that gives one series for each node, with a value from 0 (idle) to 1 (full). Thresholds and "
            "targetThresholds call it MetricResource, in percent. A node without a series, with several or with "
            "another value was not measured.",
            least=1,
            limit=8192,
        ),
    ]
    node_label: Annotated[
        str,
        Meta(
            description="The label that has the node's name.",
            min_length=1,
            max_length=256,
            pattern="^[a-zA-Z_][a-zA-Z0-9_]*$",
        ),
    ] = "instance"
    pod_query: (
        Annotated[
            str,
            bounded(
                "PromQL that gives one series for each pod, with the labels namespace and pod, and as value the pod's "
                "part in the value of its node. Without it, and for pods without a series, a node's value is taken to "
                "come from its pods by what they request of cpu, memory and pods; and because that is only a guess, "
                "one pod leaves a node in one cycle, or as many as evictionLimits.node says.",
                least=1,
                limit=8192,
            ),
        ]
        | None
    ) = None


class MetricsUtilization(Spec, frozen=True):
    """Real use instead of requests."""

    cel: ClassVar[tuple[Rule, ...]] = (PROMETHEUS_RULE,)

    source: Annotated[
        Literal["KubernetesMetrics", "Prometheus"],
        doc(
            "Who measures. KubernetesMetrics: metrics.k8s.io, which metrics-server or an adapter serves; it has cpu "
            "and memory, and all other resources still count by requests. Prometheus: what a query gives, the server "
            "being the one of the operator's settings."
        ),
    ]
    prometheus: Annotated[
        PrometheusQuery | None, doc("The queries. Required for the source Prometheus, and not allowed for another.")
    ] = None


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
