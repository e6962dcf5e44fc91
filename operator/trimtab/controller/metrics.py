"""The metrics of work queues, which have the names and labels of client-go's workqueue metrics.

Example::

    metrics = WorkQueueMetrics(registry)
    queue = WorkQueue(reconcile, workers=8, clock=clock, metrics=metrics.queue("node-updates"))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trimtab.controller.progress import Component, register_component

BUCKETS: Final = (0.001, 0.01, 0.1, 0.5, 1, 5, 30, 120, 600)
"""Histogram buckets in seconds.

client-go's buckets range from 10 ns to 10 s, but keys in our queues may wait minutes for webhooks and rate limits.
"""


class WorkQueueMetrics:
    """The metrics of all work queues of the process, by queue name.

    Args:
        registry: the Prometheus registry; ``None`` if the metrics are not exported.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.depth = Gauge(
            "trimtab_workqueue_depth",
            "Number of keys in the queue that wait for a worker.",
            ["name"],
            registry=registry,
        )
        self.adds = Counter(
            "trimtab_workqueue_adds", "Number of keys that were added to the queue.", ["name"], registry=registry
        )
        self.queue_duration = Histogram(
            "trimtab_workqueue_queue_duration_seconds",
            "Seconds that a ready key waited for a worker, without delays and rate limits.",
            ["name"],
            buckets=BUCKETS,
            registry=registry,
        )
        self.work_duration = Histogram(
            "trimtab_workqueue_work_duration_seconds",
            "Seconds that a worker spent on a key.",
            ["name"],
            buckets=BUCKETS,
            registry=registry,
        )
        self.retries = Counter(
            "trimtab_workqueue_retries", "Number of failures after which a key backed off.", ["name"], registry=registry
        )

    def queue(self, name: str) -> QueueMetrics:
        """Return the metrics of a queue. If a queue replaces another one with the same name, the counters continue."""
        return QueueMetrics(self, name)


class QueueMetrics:
    """The metrics and the progress of one work queue. The queue calls the methods."""

    def __init__(self, metrics: WorkQueueMetrics, name: str) -> None:
        self._name = name
        self._component: Component | None = None
        self._moves: Component | None = None
        self._working = 0
        self._depth = metrics.depth.labels(name)
        self._adds = metrics.adds.labels(name)
        self._queue_duration = metrics.queue_duration.labels(name)
        self._work_duration = metrics.work_duration.labels(name)
        self._retries = metrics.retries.labels(name)

    def started(self, depth: Callable[[], int]) -> None:
        """Record that the queue started. Each scrape calls ``depth`` to get the number of ready keys."""
        self._depth.set_function(depth)
        self._component, self._working = register_component(f"work queue {self._name}"), 0
        self._moves = register_component(f"waiting keys of work queue {self._name}")

    def stopped(self) -> None:
        """Record that the queue stopped."""
        self._depth.set_function(lambda: 0)
        self._component = self._moves = None

    def changed(self) -> None:
        """Record that keys or limits have changed. The queue must move its keys to their next stage now."""
        if self._moves is not None:
            self._moves.expect()

    def moved(self, due_in: float | None) -> None:
        """Record that the queue has moved its keys. The next move is due in ``due_in`` seconds, or after a change."""
        if self._moves is not None:
            self._moves.succeed(due_in)

    def added(self) -> None:
        """Record that a new key was added."""
        self._adds.inc()

    def ready(self) -> None:
        """Record that a key may be taken. Unless keys are in progress, that is due now."""
        if self._component is not None and not self._working:
            self._component.expect()

    def paused(self) -> None:
        """Record that the queue starts no keys for now."""
        if self._component is not None and not self._working:
            self._component.idle()

    def handed_out(self, waited: float) -> None:
        """Record that a worker took a key that had been ready for ``waited`` seconds."""
        self._queue_duration.observe(waited)
        self._working += 1
        if self._component is not None and self._working == 1:
            self._component.begin()

    def processed(self, took: float) -> None:
        """Record that a worker finished a key after ``took`` seconds."""
        self._work_duration.observe(took)
        self._working -= 1
        if self._component is None:
            return
        if self._working > 0:
            self._component.advance()
        else:
            self._component.succeed()

    def retried(self) -> None:
        """Record that a failed key was requeued with backoff."""
        self._retries.inc()
