"""Drains a node: evicts its pods, waits until they have terminated, and finally evicts its DaemonSet pods."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from trimtab.api import reasons
from trimtab.autoscaling.actuation.removal import RemovalControl, RemovalEnded, RemovalResult, RemovalSettings, failed
from trimtab.autoscaling.actuation.removal_review import RemovalReview
from trimtab.autoscaling.scale_down import STRATEGY
from trimtab.autoscaling.scale_down.drainability import DEFAULT_GRACE_PERIOD, long_terminating, of_daemon_set
from trimtab.autoscaling.scale_down.eligibility import unready
from trimtab.cluster.workloads.owners import owner_key
from trimtab.disruption.evictor import Evictor, PendingEviction
from trimtab.disruption.evictor.requests import AUTOSCALER, EvictionRequest, Requester
from trimtab.disruption.outcome import EVICTED, GONE, STARTED, AttemptResult, Refusal
from trimtab.disruption.protections import MIRROR_ANNOTATION
from trimtab.disruption.protections.causes import bound_by_name
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.objects import Node, Pod

log = logging.getLogger(__name__)

ENABLE_DAEMON_SET_EVICTION: Final = "cluster-autoscaler.kubernetes.io/enable-ds-eviction"
"""Annotation of DaemonSet pods. Its value "true" or "false" overrides the settings for the pod."""


def pods_to_evict(pods: Sequence[Pod], node: Node | None) -> list[Pod]:
    """Return the pods to evict before a node is removed: running pods except static pods and DaemonSet pods.

    If the node is not ready, pods that were created with its name and that its kubelet has not accepted are not evicted
    either. Their controllers would replace them on the same node until it no longer exists.

    Args:
        pods: all pods of the node.
        node: the node; ``None`` if it no longer exists.
    """
    found = [pod for pod in pods if _is_running(pod) and pod.deleted is None and not of_daemon_set(pod)]
    if node is None or not unready(node):
        return found
    return [pod for pod in found if pod.phase != "Pending" or pod.started is not None or not bound_by_name(pod)]


def terminating_pods(pods: Sequence[Pod], *, now: float) -> list[Pod]:
    """Return the terminating pods to wait for, excluding those whose grace period ended long ago."""
    return [
        pod
        for pod in pods
        if _is_running(pod)
        and pod.deleted is not None
        and not of_daemon_set(pod)
        and not long_terminating(pod, now=now)
    ]


def daemon_set_pods(pods: Sequence[Pod], *, by_default: bool) -> list[Pod]:
    """Return the DaemonSet pods to evict from a node.

    Args:
        pods: all pods of the node.
        by_default: whether to evict pods without the annotation :data:`ENABLE_DAEMON_SET_EVICTION`.
    """
    found = [pod for pod in pods if _is_running(pod) and pod.deleted is None and of_daemon_set(pod)]
    values = ("true", "") if by_default else ("true",)
    return [pod for pod in found if pod.annotations.get(ENABLE_DAEMON_SET_EVICTION, "") in values]


def grace_period_of(pod: Pod, maximum: int) -> int:
    """Return the pod's grace period in seconds, limited to ``maxPodGracePeriod``."""
    own = pod.spec.termination_grace_period
    return min(DEFAULT_GRACE_PERIOD if own is None else own, maximum)


def _is_running(pod: Pod) -> bool:
    return not pod.terminal and MIRROR_ANNOTATION not in pod.annotations


def _not_evicted(pod: Pod, answer: AttemptResult, tries: int) -> RemovalEnded:
    message = f"pod {pod.key} was not evicted after {tries} attempts: {answer.message}"
    if answer.lacks_permission:
        return RemovalEnded(RemovalResult.ABORTED, Refusal(reasons.REMOVAL_FORBIDDEN, message), pod=pod)
    reason = reasons.NOT_ENOUGH_PDB if answer.reason == reasons.DISRUPTION_BUDGET else answer.reason
    return failed(reason, message, pod=pod)


class Drain:
    """Drains one node.

    Args:
        node: name of the node.
        api: the API server.
        review: reads pods from the cache and checks whether they may still be evicted.
        clock: the clock.
        settings: timeouts and backoffs.
        at_once: semaphore that limits the concurrent eviction requests of all drains.
        control: checked before each request; it raises an exception if the removal must stop.
        evictor: admits and sends evictions.
    """

    def __init__(
        self,
        node: str,
        *,
        api: Api,
        review: RemovalReview,
        clock: Clock,
        settings: RemovalSettings,
        at_once: asyncio.Semaphore,
        control: RemovalControl,
        evictor: Evictor,
    ) -> None:
        self._node = node
        self._api = api
        self._review = review
        self._clock = clock
        self._settings = settings
        self._at_once = at_once
        self._control = control
        self._evictor = evictor
        self._requester = Requester(AUTOSCALER, f"removal of node {node}", STRATEGY)
        self._ended: RemovalEnded | None = None
        self.evicted: dict[str, str] = {}
        """UIDs of the evicted pods, by ``namespace/name``."""

    async def evict(self, pods: Sequence[Pod]) -> None:
        """Evict pods concurrently, and wait until they and other terminating pods of the node have terminated.

        Raises:
            RemovalEnded: a pod was not evicted or did not terminate in time, or the removal must stop. Pods that were
                already evicted are not restored.
        """
        due = dict(zip([pod.uid for pod in pods], await self._evict_all(pods), strict=True))
        now = self._clock.monotonic()
        wall = self._clock.now()
        for pod in terminating_pods(self._review.pods(self._node), now=wall):
            ends = max(0.0, (pod.deleted or wall) - wall) + self._settings.termination_slack
            due.setdefault(pod.uid, now + max(ends, self._settings.termination_slack))
        await self._wait_until_terminated(due)

    async def evict_daemon_sets(self, pods: Sequence[Pod]) -> None:
        """Try to evict each DaemonSet pod once, and wait for those that terminate; failures do not end the removal.

        Raises:
            RemovalEnded: the removal must stop.
        """
        due = {}
        until, latest = self._deadlines()
        for pod in pods:
            await self._control.checkpoint()
            answer = await self._request_eviction(pod)
            while isinstance(answer, PendingEviction) and self._clock.monotonic() < until:
                until = await self._wait_for_admission(answer, until, latest)
                answer = await self._request_eviction(pod)
            self._evictor.withdraw(pod.uid, self._requester)
            if not isinstance(answer, PendingEviction) and answer.result == EVICTED:
                self.evicted[pod.key] = pod.uid
                due[pod.uid] = self._latest_end(pod)
        await self._wait_until_terminated(due, required=False)

    def _deadlines(self) -> tuple[float, float]:
        """Return the deadline for retries of an eviction, and the latest time to which it can be extended.

        Waiting for operator-wide eviction limits extends the deadline.
        """
        now = self._clock.monotonic()
        return now + self._settings.eviction_timeout, now + self._settings.max_eviction_wait

    def _latest_end(self, pod: Pod) -> float:
        """Return the deadline by which the pod must have terminated if it is evicted now, on the monotonic clock."""
        grace_period = grace_period_of(pod, self._max_grace_period)
        return self._clock.monotonic() + grace_period + self._settings.termination_slack

    async def _evict_all(self, pods: Sequence[Pod]) -> list[float]:
        """Evict pods concurrently, and return the termination deadline of each pod on the monotonic clock."""
        deadlines = await asyncio.gather(*(self._evict_one(pod) for pod in pods))
        if self._ended is not None:
            raise self._ended
        return deadlines

    async def _evict_one(self, pod: Pod) -> float:
        """Evict one pod. If that fails, stop the other evictions after their outstanding requests."""
        try:
            return await self._evict_with_retries(pod)
        except RemovalEnded as ended:
            self._ended = self._ended or ended
        except Exception as error:  # if gather raised it, evictions of other pods would continue
            log.exception("Failed to evict pod %s from node %s: unexpected error", pod.key, self._node)
            message = f"pod {pod.key} was not evicted: {type(error).__name__}: {error}"
            self._ended = self._ended or failed(reasons.REMOVAL_FAILED, message, pod=pod)
        finally:
            self._evictor.withdraw(pod.uid, self._requester)
        return 0.0

    async def _evict_with_retries(self, pod: Pod) -> float:
        """Request the eviction until the API server accepts it or the pod no longer exists.

        Returns:
            The deadline by which the pod must have terminated, on the monotonic clock.

        Raises:
            RemovalEnded: the eviction was not accepted in time, or the removal must stop.
        """
        until, latest = self._deadlines()
        tries = 0
        reviewed = self._clock.monotonic()  # the node was reviewed right before the drain
        while True:
            await self._control.checkpoint()
            self._check_ended()
            if self._clock.monotonic() - reviewed >= self._settings.max_review_age:
                blocked = await self._review.eviction_blocker(pod.key)
                if blocked is not None:
                    raise RemovalEnded(RemovalResult.ABORTED, blocked, pod=pod)
                reviewed = self._clock.monotonic()
            answer = await self._request_eviction(pod)
            if isinstance(answer, PendingEviction):
                if self._clock.monotonic() >= until:
                    raise failed(answer.reason, f"pod {pod.key} was not evicted: {answer.message}", pod=pod)
                until = await self._wait_for_admission(answer, until, latest)
                continue
            now = self._clock.monotonic()
            if answer.result == STARTED:
                self._control.report_progress(f"pod {pod.key}: {answer.message}")
                self.evicted[pod.key] = pod.uid
                return now + self._settings.max_eviction_wait
            if answer.result == EVICTED:
                self.evicted[pod.key] = pod.uid
            if answer.result in (EVICTED, GONE):
                return self._latest_end(pod)
            if not answer.retry or now >= until:
                await self._control.checkpoint()  # raises if this process lost the lease
                raise _not_evicted(pod, answer, tries + 1)
            self._control.report_progress(f"pod {pod.key}: {answer.message}")
            tries += 1
            by_budget = answer.reason == reasons.DISRUPTION_BUDGET
            wait = self._evictor.retry_delay(
                pod.uid, self._requester, by_budget=by_budget, retry_after=answer.retry_after
            )
            await self._control.pause(min(wait, max(0.0, until - now)))

    async def _request_eviction(self, pod: Pod) -> AttemptResult | PendingEviction:
        """Send one eviction request if the evictor admits it; otherwise return the pending eviction.

        No request is sent for a pod that another controller has evicted while this one waited.
        """
        async with self._at_once:
            self._check_ended()  # another pod may have ended the drain while this one waited for the semaphore
            current = next((each for each in self._review.pods(self._node) if each.uid == pod.uid), None)
            if current is None:
                return AttemptResult(GONE, reasons.ALREADY_GONE, "the pod no longer exists")
            if current.deleted is not None:
                return AttemptResult(GONE, reasons.TERMINATING, "the pod is already terminating")
            found = self._evictor.admit(self._eviction_request(pod), pod)
            if isinstance(found, PendingEviction):
                return found
            return await self._evictor.evict(found, self._api, timeout=self._settings.timeout)

    def _check_ended(self) -> None:
        if self._ended is not None:
            raise self._ended

    async def _wait_for_admission(self, waiting: PendingEviction, until: float, latest: float) -> float:
        """Wait until the next attempt to have an eviction admitted.

        Returns:
            The new deadline for retries. It is extended by the time spent waiting for operator-wide eviction limits.
        """
        self._control.report_progress(
            f"eviction of pod {waiting.request.key} waits ({waiting.reason}): {waiting.message}"
        )
        began = self._clock.monotonic()
        await self._control.pause(min(waiting.retry_after, max(0.0, until - began)))
        waited = self._clock.monotonic() - began
        await self._control.checkpoint()
        if waiting.reason == reasons.WAITING_FOR_EVICTION_LIMIT:
            return max(until, min(until + waited, latest))
        return until

    async def _wait_until_terminated(self, due: dict[str, float], *, required: bool = True) -> None:
        """Wait until all of the pods have terminated or left the node.

        Args:
            due: the deadline of each pod by UID, in seconds on the monotonic clock.
            required: whether a pod that misses its deadline ends the removal. If false, the drain stops waiting for
                that pod.

        Raises:
            RemovalEnded: a required pod did not terminate in time, or the removal must stop.
        """
        while due:
            left = [pod for pod in self._review.pods(self._node) if pod.uid in due and not pod.terminal]
            now = self._clock.monotonic()
            late = [pod for pod in left if now >= due[pod.uid]]
            if late and required:
                message = f"pod {late[0].key} did not terminate in time ({len(left)} pods are still terminating)"
                raise failed(reasons.POD_NOT_TERMINATED, message, pod=late[0])
            if len(late) == len(left):
                return
            self._control.report_progress(f"waiting for {len(left)} pods to terminate, e.g. {left[0].key}")
            await self._control.checkpoint()
            await self._control.pause(self._settings.poll_interval)

    def _grace_period_override(self, pod: Pod) -> int | None:
        """Return ``gracePeriodSeconds`` for the eviction, or ``None`` to use the pod's own grace period."""
        own = pod.spec.termination_grace_period
        maximum = self._max_grace_period
        return maximum if (DEFAULT_GRACE_PERIOD if own is None else own) > maximum else None

    @property
    def _max_grace_period(self) -> int:
        return self._review.spec.max_pod_grace_period

    def _eviction_request(self, pod: Pod) -> EvictionRequest:
        return EvictionRequest(
            namespace=pod.namespace,
            pod=pod.name,
            uid=pod.uid,
            node=self._node,
            owner=owner_key(pod),
            reason=reasons.UNDERUTILIZED,
            message=f"node {self._node} is being removed",
            requester=self._requester,
            grace_period=self._grace_period_override(pod),
        )
