"""The metrics of the evictor: names, help texts and labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from trimtab.api.reasons import (
    WAITING_FOR_BUDGET,
    WAITING_FOR_EVICTION,
    WAITING_FOR_EVICTION_LIMIT,
    WAITING_FOR_OWNER,
    WAITING_FOR_PLAN,
)
from trimtab.disruption.evictor.requests import CONTROLLERS, EvictionRequest

if TYPE_CHECKING:
    from trimtab.disruption.evictor import PendingEviction

REASONS: Final = (
    WAITING_FOR_BUDGET,
    WAITING_FOR_EVICTION,
    WAITING_FOR_EVICTION_LIMIT,
    WAITING_FOR_OWNER,
    WAITING_FOR_PLAN,
)


class EvictorMetrics:
    """Counts the evictions of all controllers, and exports the number of pending evictions by reason."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.evictions = Counter(
            "trimtab_evictions",
            "Finished evictions, deletions and rollouts of pods, by requesting controller and result.",
            ["controller", "how", "result"],
            registry=registry,
        )
        self.in_flight = Gauge(
            "trimtab_evictions_in_flight",
            "Evictions of all controllers that were admitted and have not finished.",
            registry=registry,
        )
        self.waiting = Gauge(
            "trimtab_evictions_waiting",
            "Pending evictions, by what they wait for: another eviction, an owner, a budget, a limit, or a plan.",
            ["controller", "reason"],
            registry=registry,
        )

    def follow(self, waiting: Callable[[], Sequence[PendingEviction]], in_flight: Callable[[], int]) -> None:
        """Compute the gauges at each scrape, from the evictor's callbacks ``waiting`` and ``in_flight``."""
        self.in_flight.set_function(in_flight)

        def count(controller: str, reason: str) -> int:
            return sum((each.request.requester.controller, each.reason) == (controller, reason) for each in waiting())

        for controller in CONTROLLERS:
            for reason in REASONS:
                self.waiting.labels(controller, reason).set_function(partial(count, controller, reason))

    def count(self, request: EvictionRequest, result: str) -> None:
        """Count an eviction request that ended with the given result."""
        self.evictions.labels(request.requester.controller, request.how, result).inc()
