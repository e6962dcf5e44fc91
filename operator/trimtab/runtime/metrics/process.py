"""Metrics of the process: version, leadership, caches, progress, and requests to the API server."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector

from trimtab import __version__
from trimtab.controller.progress import Component
from trimtab.controller.reporter import LabeledGauge


class RuntimeMetrics:
    """The metrics of the process.

    Args:
        registry: the Prometheus registry.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        build = Gauge("trimtab_build_info", "Always 1, with the version as a label.", ["version"], registry=registry)
        build.labels(__version__).set(1)
        self.leader = Gauge("trimtab_leader", "1 while this process is the leader.", registry=registry)
        self.other_operators = Gauge(
            "trimtab_other_operators",
            "Number of other active processes that run the same controllers (AnotherOperatorActive); should be 0.",
            registry=registry,
        )
        self.objects = Gauge(
            "trimtab_cluster_objects", "Number of objects in the caches.", ["resource"], registry=registry
        )
        self.too_complex = Gauge(
            "trimtab_pods_too_complex",
            "Number of pods beyond the complexity limits, which trimtab neither moves nor places, by reason.",
            ["reason"],
            registry=registry,
        )
        self.definitions = Gauge(
            "trimtab_definition_served",
            "1 while the API server serves a custom resource, 0 while its controller waits for the CRD.",
            ["definition"],
            registry=registry,
        )
        self._inactive = LabeledGauge(
            "trimtab_part_inactive_seconds",
            "Longest time in seconds for which a component of the operator with pending work has made no progress.",
            ("part",),
            registry,
        )
        self._failing = LabeledGauge(
            "trimtab_part_failing_seconds",
            "Seconds for which a component of the operator has been failing without a success (maximum).",
            ("part",),
            registry,
        )
        self._overdue = LabeledGauge(
            "trimtab_plan_overdue_seconds",
            "Seconds by which the next plan for an object of this kind is overdue (maximum).",
            ("kind",),
            registry,
        )
        self.requests = Counter(
            "trimtab_api_requests",
            "Requests to the API server by method and HTTP status; status 0 means no response.",
            ["method", "status"],
            registry=registry,
        )
        self.request_seconds = Histogram(
            "trimtab_api_request_seconds",
            "Response time of the API server in seconds.",
            ["method"],
            buckets=(0.005, 0.02, 0.05, 0.1, 0.5, 1, 5, 30),
            registry=registry,
        )
        self.loop_lag = Histogram(
            "trimtab_event_loop_lag_seconds",
            "Lag of the controllers' event loop in seconds, measured 50 times a second.",
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
            registry=registry,
        )
        self.http_refused = Counter(
            "trimtab_http_refused",
            "Connections and requests that the probe and metrics servers refused, by server and reason.",
            ["server", "reason"],
            registry=registry,
        )

    def count_progress(self, components: Iterable[Component]) -> None:
        """Export the progress of components. If several components have the same kind, the maximum is exported."""
        inactive: dict[tuple[str, ...], float] = {}
        failing: dict[tuple[str, ...], float] = {}
        overdue: dict[tuple[str, ...], float] = {}
        for component in components:
            expected, silent = component.allowed_silence, component.inactive_seconds()
            measured = [(inactive, silent if silent > expected else 0.0), (failing, component.failing_seconds())]
            if component.plan_schedule is not None:
                measured.append((overdue, component.plan_overdue_seconds()))
            for worst, seconds in measured:
                worst[component.kind,] = max(seconds, worst.get((component.kind,), 0.0))
        for series, worst in ((self._inactive, inactive), (self._failing, failing), (self._overdue, overdue)):
            series.show(worst)

    def refused(self, server: str) -> Callable[[str], None]:
        """Return the function that the server with this name calls with the reason code of each refusal."""
        return lambda reason: self.http_refused.labels(server, reason).inc()

    def observe(self, method: str, status: int, seconds: float) -> None:
        """Record one request to the API server. The transport calls it."""
        self.requests.labels(method, str(status)).inc()
        self.request_seconds.labels(method).observe(seconds)
