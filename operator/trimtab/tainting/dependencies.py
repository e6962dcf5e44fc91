"""The dependencies of the taint manager, which the composition root creates once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from trimtab.cluster.lister import Lister
from trimtab.controller.metrics import WorkQueueMetrics
from trimtab.disruption.evictor import Evictor
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock

if TYPE_CHECKING:
    from trimtab.tainting.report import Reporter

REQUEST_TIMEOUT: Final = 10.0
"""Timeout in seconds of one request, except those about a pod to evict (:mod:`.eviction_queue`)."""


class ActionCounts(Struct):
    """Counts of the actions of one TaintManager in this process: pods, and NoExecute taints added to nodes."""

    deleted: int = 0
    evicted: int = 0
    nodes_tainted: int = 0


class TaintingDependencies(Struct, frozen=True, kw_only=True):
    """Dependencies that all tasks of the taint manager share.

    Attributes:
        api: the API client, which sends no request once another process may be the leader.
        evictor: admits and sends the evictions and deletions of all controllers.
        lister: the caches of nodes, Leases and pods.
        clock: the wall clock and the monotonic clock.
        reporter: emits events, metrics and log lines.
        stale: returns the reason why the caches are too old to act on; ``None`` if they are up to date.
        watches_verified_at: returns the time at which the watches of nodes and Leases were last known to be up to date,
            in seconds since the epoch; ``None`` if either watch never was.
        namespace: namespace in which the operator runs.
        nodes_in_sync: returns whether the watch of nodes delivers every change; ``False`` during a relist.
        verify_watches: reads from the API server if the watches deliver no events, to keep ``watches_verified_at`` and
            ``stalled_watch`` up to date. It is called periodically; ``None`` if it is not needed.
        stalled_watch: returns a description of a stalled watch, which also pauses the tasks that evict pods and taint
            nodes; ``None`` if no watch has stalled.
        stale_leases: returns the reason why the watch of Leases is stale, which also pauses the node lifecycle;
            ``None`` if it is up to date.
        queue_metrics: metrics of the work queues.
        counts: counts of the actions, for the status. Each TaintManager has its own.
    """

    api: Api
    evictor: Evictor
    lister: Lister
    clock: Clock
    reporter: Reporter
    stale: Callable[[], str | None]
    watches_verified_at: Callable[[], float | None]
    namespace: str
    nodes_in_sync: Callable[[], bool] = lambda: True
    verify_watches: Callable[[], Awaitable[None]] | None = None
    stalled_watch: Callable[[], str | None] = lambda: None
    stale_leases: Callable[[], str | None] = lambda: None
    queue_metrics: WorkQueueMetrics = field(default_factory=WorkQueueMetrics)
    counts: ActionCounts = field(default_factory=ActionCounts)
