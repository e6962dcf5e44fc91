"""The process's own metrics: what it is, what it sees, how the API server answers."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector

from trimtab import __version__


class RuntimeMetrics:
    """Made on a registry of their own, so that tests may have many."""

    def __init__(self, registry: CollectorRegistry) -> None:
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        Gauge("trimtab_build_info", "1, with the version.", ["version"], registry=registry).labels(__version__).set(1)
        self.leader = Gauge("trimtab_leader", "1 while this process holds the lease.", registry=registry)
        self.objects = Gauge(
            "trimtab_cluster_objects", "Objects in the picture of the cluster.", ["resource"], registry=registry
        )
        self.requests = Counter(
            "trimtab_api_requests",
            "Requests to the API server by method and HTTP status; 0 where no answer came.",
            ["method", "status"],
            registry=registry,
        )
        self.request_seconds = Histogram(
            "trimtab_api_request_seconds",
            "Seconds until the API server answered.",
            ["method"],
            buckets=(0.005, 0.02, 0.05, 0.1, 0.5, 1, 5, 30),
            registry=registry,
        )
        self.loop_lag = Gauge(
            "trimtab_event_loop_lag_seconds", "How late the event loop last woke up.", registry=registry
        )

    def observe(self, method: str, status: int, seconds: float) -> None:
        """Count one request; what the transport calls."""
        self.requests.labels(method, str(status)).inc()
        self.request_seconds.labels(method).observe(seconds)
