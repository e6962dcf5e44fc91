"""Metrics of the evictor that keep the finished requests, for tests."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from trimtab.disruption.evictor.metrics import EvictorMetrics
from trimtab.disruption.evictor.requests import EvictionRequest


class FinishedEvictions(EvictorMetrics):
    """Keeps each request and its result in `finished`, in order."""

    def __init__(self) -> None:
        super().__init__(CollectorRegistry())
        self.finished: list[tuple[EvictionRequest, str]] = []

    def count(self, request: EvictionRequest, result: str) -> None:
        """Keep the request, and count it."""
        super().count(request, result)
        self.finished.append((request, result))

    @property
    def results(self) -> list[str]:
        """The results of the requests, in order."""
        return [result for _, result in self.finished]
