"""Sets the pods on not-ready nodes to not ready, so that Services remove them from their endpoints."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Mapping
from typing import Final

from trimtab.api.plan import rfc3339
from trimtab.controller.expectations import Expectations
from trimtab.controller.work_queue import Retry, WorkQueue
from trimtab.kube.api import ApiError, Conflict, NotFound, Unreachable
from trimtab.kube.objects import TERMINAL_PHASES, Pod
from trimtab.kube.resources import PODS
from trimtab.kube.retry import Backoff
from trimtab.kube.verbs import patch_conditions
from trimtab.tainting.dependencies import REQUEST_TIMEOUT, TaintingDependencies

log = logging.getLogger(__name__)

WORKERS: Final = 8
"""Number of concurrent requests, as in upstream."""

SCAN_PERIOD: Final = 1.0
"""Minimum seconds between two scans of the pods on not-ready nodes. In a full outage these are all pods of the cluster.
"""

SCAN: Final = "scan of not-ready nodes"
"""The key in the queue that stands for a scan. The key of a pod contains a slash."""

NODES_PER_SLICE: Final = 50
"""Number of nodes that are scanned before other tasks of the event loop run."""

RETRY: Final = Backoff(initial=1.0, maximum=30.0)
"""Backoff for a pod whose patch failed."""

RETRIES_PER_SECOND: Final = 100
"""Maximum retries per second of all pods together. A webhook or RBAC may refuse thousands of pods."""

EXPEDITE_PERIOD: Final = 10.0
"""Minimum seconds between two immediate retries of all refused pods, each triggered by a successful patch of one."""


class PodReadinessMarker:
    """Sets the pods on the not-ready nodes of the last plan to not ready.

    The keys of its queue are those of the pods, and :data:`SCAN`, which queues the pods.
    """

    def __init__(self, dependencies: TaintingDependencies) -> None:
        self._dependencies = dependencies
        self._failed: Mapping[str, float] = {}
        self._wanted: dict[str, str] = {}  # the pods to patch at the last scan: UID by key
        self._written: Expectations[Pod, None] = Expectations(dependencies.lister.pod, dependencies.clock)
        self._errors: list[str] = []
        self._scanned_at = self._expedited_at = -math.inf
        self._queue = WorkQueue(
            self._reconcile,
            workers=WORKERS,
            clock=dependencies.clock,
            retry=RETRY,
            retries_per_second=RETRIES_PER_SECOND,
            priority_of=lambda key: float(key != SCAN),
            paused=lambda: dependencies.stale() is not None,
            metrics=dependencies.queue_metrics.queue("pod-readiness"),
        )

    def put(self, failed: Mapping[str, float]) -> None:
        """Replace the not-ready nodes whose pods are patched, with the time at which each stopped being ready."""
        self._failed = failed
        self._queue.add(SCAN)

    async def run(self) -> None:
        """Patch pods until cancelled."""
        await self._queue.run()

    async def _reconcile(self, key: str) -> float | Retry | None:
        if key == SCAN:
            if (wait := self._scanned_at + SCAN_PERIOD - self._dependencies.clock.monotonic()) > 0.0:
                return wait
            try:
                await self._scan()
            finally:
                self._scanned_at = self._dependencies.clock.monotonic()
            return None
        pod = self._dependencies.lister.pod(key)
        return await self._mark(pod) if pod is not None and self._to_mark(pod.node, [pod]) else None

    async def _scan(self) -> None:
        """Queue the pods that must be patched, and discard the others.

        Pods that are backing off keep their backoff, but not if they recovered or were replaced in the meantime.
        """
        wanted: dict[str, str] = {}
        for place, name in enumerate(tuple(self._failed), start=1):
            for pod in self._to_mark(name, (pod for _, pod in self._dependencies.lister.items_on(name))):
                wanted[pod.key] = pod.uid
                if self._wanted.get(pod.key, pod.uid) != pod.uid:
                    self._queue.discard(pod.key)
                if pod.key not in self._queue:
                    self._queue.add(pod.key)
            if place % NODES_PER_SLICE == 0:
                await asyncio.sleep(0)
        for key in self._wanted.keys() - wanted.keys():
            self._queue.discard(key)
        self._wanted = wanted
        self._written.prune()
        if self._errors:
            failed = "Failed to set the Ready condition of %d pods on not-ready nodes to False; retrying: %s"
            log.warning(failed, len(self._errors), self._errors[0])
            self._errors = []

    def _to_mark(self, name: str, pods: Iterable[Pod]) -> list[Pod]:
        """Return those of the pods on a node that must be patched."""
        node, since = self._dependencies.lister.node(name), self._failed.get(name)
        if node is None or since is None or node.ready_status in ("True", None):
            return []
        return [pod for pod in pods_not_ready(pods, since=since) if self._written.pending(pod.key) is None]

    async def _mark(self, pod: Pod) -> Retry | None:
        not_ready = {"type": "Ready", "status": "False", "lastTransitionTime": rfc3339(self._dependencies.clock.now())}
        version = pod.resource_version
        try:
            await patch_conditions(
                self._dependencies.api,
                PODS,
                pod.name,
                [not_ready],
                namespace=pod.namespace,
                uid=pod.uid,
                resource_version=version,
                timeout=REQUEST_TIMEOUT,
            )
        except (Conflict, NotFound):
            return Retry()  # the pod was changed or deleted; the watch will show that
        except (ApiError, Unreachable) as error:
            self._errors.append(f"{pod.key} on {pod.node}: {error}")
            return Retry()
        self._written.expect(pod.key, pod.uid, None, shown_by=lambda pod: pod.resource_version != version)
        now = self._dependencies.clock.monotonic()
        if self._queue.failures(pod.key) and now >= self._expedited_at + EXPEDITE_PERIOD:
            self._expedited_at = now
            for key in self._wanted:  # the other refused pods may be admitted now as well
                self._queue.expedite(key)
        return None


def pods_not_ready(pods: Iterable[Pod], *, since: float) -> list[Pod]:
    """Return the pods on a not-ready node that are still Ready, so that Services would keep them in their endpoints.

    Pods that became ready after the node stopped being ready are left alone, because their kubelet is alive and has
    reported them. The result depends only on the times in the objects, so it is the same after a restart. It includes
    pods that are bound later, which upstream handles separately.

    ``pods`` are those of a node that stopped being ready at the time ``since``.
    """
    return [
        pod
        for pod in pods
        if pod.ready and pod.phase not in TERMINAL_PHASES and (pod.ready_since is None or pod.ready_since <= since)
    ]
