"""Real use as v1alpha2 has it: who measures, and what is asked.

Fields: kubernetes-sigs/descheduler v0.36, ``MetricsProvider`` of pkg/api/v1alpha2 and ``MetricsUtilization`` of the
plugins in nodeutilization.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.api.strategies import KUBERNETES_METRICS, PROMETHEUS
from trimtab.api.strategies.low_node_utilization import SOURCES
from trimtab.descheduling.imports.draft import Findings
from trimtab.descheduling.imports.fields import is_true


def told_of_provider(provider: Mapping[str, Any], place: str, findings: Findings) -> None:
    """Who is asked for real use; where that is stands in the operator's settings, and in no policy."""
    source = provider.get("source")
    if source not in (None, *SOURCES):
        findings.warn(place, f"is left out: real use is read from {', '.join(SOURCES)} only")
    elif source == PROMETHEUS:
        where = provider.get("prometheus") or {}
        url = f"={where['url']}" if where.get("url") else ""
        whose = "of that Secret" if where.get("authToken") else "of the service account, where it wants one"
        findings.warn(
            place,
            f"is for the operator's settings: --prometheus-url{url} and a --prometheus-token-file with the token "
            f"{whose} (the chart's prometheus.url and prometheus.tokenFile); without them nodes are not measured",
        )


def metrics_of(value: Any, place: str, findings: Findings) -> Any:
    """``metricsUtilization`` without ``metricsServer``, which the source KubernetesMetrics has superseded."""
    if not isinstance(value, Mapping) or "metricsServer" not in value:
        return value
    rest = {key: item for key, item in value.items() if key != "metricsServer"}
    if value["metricsServer"] is None or not is_true(value["metricsServer"], f"{place}.metricsServer", findings):
        return rest
    if rest.get("source"):
        findings.error(f"{place}.metricsServer", "and source cannot be given together")
    return {"source": KUBERNETES_METRICS} | rest
