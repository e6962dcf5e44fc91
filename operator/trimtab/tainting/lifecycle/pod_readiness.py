"""Sets the pods on not-ready nodes to not ready, so that Services remove them from their endpoints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from trimtab.api.plan import rfc3339
from trimtab.controller.expectations import Expectations
from trimtab.controller.progress import Component, current_component
from trimtab.controller.work_queue import Retry, WorkQueue
from trimtab.kube.api import ApiError, Conflict, NotFound, Unreachable
from trimtab.kube.objects import Pod
from trimtab.kube.resources import PODS
from trimtab.kube.retry import Backoff
from trimtab.kube.verbs import patch_conditions
from trimtab.tainting.dependencies import TaintingDependencies
from trimtab.tainting.lifecycle.node_health import pods_not_ready, ready_status
from trimtab.tainting.lifecycle.node_updates import TIMEOUT

log = logging.getLogger(__name__)

WORKERS: Final = 8
"""Number of concurrent requests, as in upstream."""

SCAN_PERIOD: Final = 1.0
"""Minimum seconds between two scans of the pods on not-ready nodes. In a full outage these are all pods of the cluster.
"""

NODES_PER_SLICE: Final = 50
"""Number of nodes that are scanned before other tasks of the event loop run."""


RETRY: Final = Backoff(initial=1.0, maximum=30.0)
"""Backoff for a pod whose patch failed."""

RETRIES_PER_SECOND: Final = 100
"""Maximum retries per second of all pods together. A webhook or RBAC may refuse thousands of pods."""

EXPEDITE_PERIOD: Final = 10.0
"""Minimum seconds between two immediate retries of all refused pods, each triggered by a successful patch of one."""


class PodReadinessMarker:
    """Sets the pods on the not-ready nodes of the last plan to not ready."""

    def __init__(self, services: TaintingDependencies) -> None:
        self._services = services
        self._failed: Mapping[str, float] = {}
        self._written: Expectations[Pod, None] = Expectations(services.lister.pod, services.clock)
        self._wanted: dict[str, Pod] = {}  # by pod UID
        self._errors: list[str] = []
        self._expedited_at = 0.0
        self._changed = asyncio.Event()
        self._component = Component("pod readiness")  # until it runs
        self._queue = WorkQueue(
            self._mark,
            workers=WORKERS,
            clock=services.clock,
            retry=RETRY,
            retries_per_second=RETRIES_PER_SECOND,
            metrics=services.queue_metrics.queue("pod-readiness"),
        )

    def put(self, failed: Mapping[str, float]) -> None:
        """Replace the not-ready nodes whose pods are patched, with the time at which each stopped being ready."""
        self._failed = failed
        if failed:
            self._changed.set()
            self._component.expect()
        else:
            self._written.clear()

    async def run(self) -> None:
        """Patch pods until cancelled."""
        await self._queue.run()

    async def scan(self) -> None:
        """Queue the pods that must be patched whenever nodes have failed, until cancelled."""
        component = self._component = current_component()
        while True:
            component.idle()
            await self._changed.wait()
            component.begin()
            self._changed.clear()
            try:
                await self._queue_pods()
            except Exception:  # an error with one pod must not prevent the patches of the others
                log.exception("Failed to set the Ready condition of pods on not-ready nodes to False: unexpected error")
            component.succeed(SCAN_PERIOD)
            await self._services.clock.sleep(SCAN_PERIOD)

    async def _queue_pods(self) -> None:
        """Queue the pods that must be patched. Pods that are backing off keep their backoff."""
        wanted: dict[str, Pod] = {}
        for place, (name, since) in enumerate(self._failed.items(), start=1):
            for pod in self._pods_to_mark(name, since):
                if self._written.pending(pod.key) is not None:
                    continue
                wanted[pod.uid] = self._wanted[pod.uid] = pod
                if pod.uid not in self._queue:
                    self._queue.add(pod.uid)
            if place % NODES_PER_SLICE == 0:
                await asyncio.sleep(0)
        for uid in self._wanted.keys() - wanted.keys():
            self._queue.discard(uid)
        self._wanted = wanted
        if self._errors:
            failed = "Failed to set the Ready condition of %d pods on not-ready nodes to False; retrying: %s"
            log.warning(failed, len(self._errors), self._errors[0])
            self._errors = []

    def _pods_to_mark(self, name: str, since: float) -> list[Pod]:
        node = self._services.lister.node(name)
        if node is None or ready_status(node) in ("True", None):
            return []
        return pods_not_ready((pod for _, pod in self._services.lister.items_on(name)), since=since)

    async def _mark(self, uid: str) -> Retry | None:
        pod = self._wanted.get(uid)
        if pod is None or self._services.stale() is not None or pod.node not in self._failed:
            return None
        not_ready = {"type": "Ready", "status": "False", "lastTransitionTime": rfc3339(self._services.clock.now())}
        try:
            await patch_conditions(
                self._services.api,
                PODS,
                pod.name,
                [not_ready],
                namespace=pod.namespace,
                uid=uid,
                resource_version=pod.resource_version,
                timeout=TIMEOUT,
            )
        except (Conflict, NotFound):
            return Retry()  # the pod was changed or deleted; the watch will show that
        except (ApiError, Unreachable) as error:
            self._errors.append(f"{pod.key} on {pod.node}: {error}")
            return Retry()
        before = pod.resource_version
        self._written.expect(pod.key, uid, None, shown_by=lambda pod: pod.resource_version != before)
        now = self._services.clock.monotonic()
        if self._queue.failures(uid) and now >= self._expedited_at + EXPEDITE_PERIOD:
            self._expedited_at = now
            for each in self._wanted:  # the other refused pods may be admitted now as well
                self._queue.expedite(each)
        return None
