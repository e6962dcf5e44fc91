"""What OpenShift's ``devActualUtilizationProfile`` asks Prometheus.

Queries: openshift/cluster-kube-descheduler-operator (2026-06, pkg/operator/target_config_reconciler.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trimtab.api.strategies import METRIC_RESOURCE, PROMETHEUS
from trimtab.descheduling.imports.draft import Findings

FREE: Final = "query:"
"""What a profile begins with that is a query itself; OpenShift does not document it."""

COMBINED: Final = "PrometheusCPUMemoryCombinedProfile"

_PRESSURE: Final = "rate(node_pressure_{}_waiting_seconds_total[1m])"
_CPU: Final = f"avg by (instance) ({_PRESSURE.format('cpu')})"
QUERIES: Final[Mapping[str, str]] = {
    "PrometheusCPUUsage": "instance:node_cpu:rate:sum",
    "PrometheusCPUPSIPressure": _PRESSURE.format("cpu"),
    "PrometheusCPUPSIPressureByUtilization": (
        f'{_CPU} and (1 - avg by (instance) (rate(node_cpu_seconds_total{{mode="idle"}}[1m]))) > 0.7 or {_CPU} * 0'
    ),
    "PrometheusMemoryPSIPressure": _PRESSURE.format("memory"),
    "PrometheusIOPSIPressure": _PRESSURE.format("io"),
    "PrometheusCPUCombined": "descheduler:combined_utilization_and_pressure:avg1m",
    COMBINED: "descheduler:node:linear_amplified_ideal_point_positive_distance:k3:avg1m",
}
"""What each profile asks, by its name."""


def queried(profile: Any, place: str, findings: Findings) -> dict[str, Any]:
    """LowNodeUtilization's ``metricsUtilization`` as the profile has it; empty for an error, which is noted.

    Args:
        profile: the name of a query, or one after ``query:``.
        place: where it stands.
        findings: also what is to be known of a query that is taken as it is.
    """
    query = profile.removeprefix(FREE) if isinstance(profile, str) and profile.startswith(FREE) else None
    if query is None and isinstance(profile, str):
        query = QUERIES.get(profile)
    if not query:
        findings.error(place, f"must be {', '.join(QUERIES)} or {FREE} and PromQL, not {profile!r}")
        return {}
    told = "the address and a token are the operator's settings: --prometheus-url, --prometheus-token-file"
    if query.startswith("descheduler:"):
        told += "; the query is a recording rule of OpenShift's operator: keep its PrometheusRule descheduler-rules"
    elif profile == "PrometheusCPUUsage":
        told += "; the query gives cores, and what is above 1 is no share: nodes that use more are left alone"
    findings.warn(place, told)
    return {"source": PROMETHEUS, "prometheus": {"query": query}}


RESOURCES: Final = (METRIC_RESOURCE,)
"""What thresholds are of then."""
