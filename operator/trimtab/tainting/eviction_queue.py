"""The queue of due pods. Each pod is evicted or deleted, and retried until it no longer exists or is no longer due.

The queue is in memory only. In a restarted process, the timers of overdue pods fire immediately and fill the queue
again. A waiting pod is an entry in the queue and not a task; a fixed number of workers send the requests. The rate
limits of user taints delay pods before they get a worker.

The steps of a worker are in :meth:`EvictionQueue._attempt`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Hashable, Iterable
from typing import Final, cast

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.taint_manager import TaintManagerSpec, UserTaintRates
from trimtab.cluster.workloads.owners import owner_key
from trimtab.controller.reporter import pod_fields
from trimtab.controller.work_queue import WorkQueue
from trimtab.disruption.evictor import Permit
from trimtab.disruption.evictor.requests import BUDGET_REFUSER, TAINTING, EvictionRequest, Requester
from trimtab.kube.objects import Pod
from trimtab.kube.token_bucket import KeyedTokenBuckets
from trimtab.tainting.deadlines import Deadline, TaintDeadlineTracker, describe_deadline
from trimtab.tainting.dependencies import TaintingDependencies
from trimtab.tainting.due_pods import (
    DuePod,
    DuePodOutcome,
    DuePodReport,
    DuePodResult,
    EvictionDecision,
    Flow,
    decide,
    maximum_waits,
    must_retry_mark,
    not_due,
    outcome_of,
)
from trimtab.tainting.lifecycle.planner import NO_EXECUTE_KEYS
from trimtab.tainting.lifecycle.zones import zone_of

logger = logging.getLogger(__name__)

WORKERS: Final = 48
"""Number of pods that are evicted concurrently. All controllers share the connections to the API server."""

REQUESTER: Final = Requester(TAINTING, "cluster")

MESSAGE: Final = "Taint manager: deleting due to NoExecute taint"
"""The message of the condition DisruptionTarget, as in kube-controller-manager."""

TIMEOUT: Final = 30.0
"""Timeout of one request in seconds. It is the maximum timeout of an admission webhook."""

CONFIRM_TIMEOUT: Final = 30.0
"""Seconds within which the watch must show the deletion of a pod after the API server granted it or answered 404.

After that the pod is evaluated again: a proxy in front of a starting API server may answer every request with 404.
"""

MAX_WAIT: Final = 60.0
"""Maximum seconds until a pod is evaluated again that is no longer due, or that a rate limit applies to.

The wall clock may be set meanwhile.
"""

CATCH_UP: Final = 0.1
"""Maximum delay of the event loop that a rate limit makes up for, in seconds. It makes up for no pause of the queue."""


class EvictionQueue:
    """Evicts and deletes due pods. It is the rate limiter of its work queue.

    The rate limits of user taints apply to all pods together, to each zone and to each namespace. In any ``T`` seconds
    a limit admits at most ``rate * (T + CATCH_UP) + 1`` pods. The pods of one zone and namespace form a flow, in which
    they are admitted in the order of their priority.

    Attributes:
        work: the work queue, whose keys are those of the pods.
    """

    def __init__(
        self,
        dependencies: TaintingDependencies,
        spec: TaintManagerSpec,
        tracker: TaintDeadlineTracker,
        *,
        workers: int = WORKERS,
    ) -> None:
        self._dependencies = dependencies
        self._clock = dependencies.clock
        self._maximum_waits = maximum_waits(spec)
        self._tracker = tracker
        self._pods: dict[str, DuePod] = {}
        self._retried: dict[str, float] = {}
        self._stopping = False
        self._set_rates(spec.user_taint_rates)
        # _process() returns no delay and raises nothing: the retries of a pod are scheduled with _requeue_after().
        self.work = WorkQueue(
            self._process,
            workers=min(workers, dependencies.evictor.limits.max_concurrent or workers),
            clock=dependencies.clock,
            group_of=namespace_of,
            priority_of=self._priority,
            rate_limiter=self,
            paused=lambda: dependencies.stale() is not None,
            metrics=dependencies.queue_metrics.queue("due-pods"),
        )

    # --- state --------------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Return the number of due pods whose eviction or deletion the API server has not granted yet."""
        return sum(not pod.ended for pod in self._pods.values())

    @property
    def held(self) -> int:
        """Return the number of due pods that userTaintRates delays."""
        return self.work.statistics().rate_limited

    @property
    def pods(self) -> Collection[DuePod]:
        """Return the due pods."""
        return self._pods.values()

    # --- inputs -------------------------------------------------------------------------------------------------------

    def enqueue(self, deadline: Deadline) -> None:
        """Queue a due pod. It is evaluated before each request, so it is harmless to queue it twice or too early."""
        if self._stopping:
            return
        pod = self._pods.get(deadline.key)
        if pod is not None and pod.deadline.uid == deadline.uid:
            self._apply_deadline(pod, deadline)
            return
        if pod is not None:
            self._forget(pod)
        pod = self._pods[deadline.key] = DuePod(deadline)
        self._add(pod)

    def deadline_changed(self, key: str) -> None:
        """Evaluate a queued pod again after its deadline has changed. No-op for pods that are not queued.

        The caches and the deadline tracker must already reflect the change.
        """
        pod = self._pods.get(key)
        if pod is None or pod.processing:  # the worker evaluates the pod anyway
            return
        verdict = self._decide(pod)
        if verdict.action is None:
            self._postpone_or_finish(pod, verdict)
            return
        self._apply_deadline(pod, verdict.deadline)
        if pod.held_since is not None:
            self.work.reschedule(key, self._limited_for(pod))
        elif pod.evicting and self._backs_off(pod):  # it may be deleted earlier than its eviction is retried
            left = verdict.evict_until - self._clock.now() if verdict.action == "Evict" else 0.0
            self.work.add_after(key, left)

    def taints_changed(self, name: str) -> None:
        """Evaluate the queued pods of a node again after its taints have changed, because they may be due earlier."""
        for key, _ in self._dependencies.lister.items_on(name):
            self.deadline_changed(key)

    def configure(self, spec: TaintManagerSpec) -> None:
        """Apply a new spec of the TaintManager, whose mode is EvictPods or TaintAndEvict."""
        before, self._maximum_waits = self._maximum_waits, maximum_waits(spec)
        if spec.user_taint_rates != self._rates:
            self._set_rates(spec.user_taint_rates)
            self.work.set_rate_limiter(self)  # rate-limited pods keep their order
        if self._maximum_waits != before:
            for pod in filter(self._backs_off, self._pods.values()):
                self._add(pod)

    # --- tasks --------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Process the queue until cancelled. After a cancellation, the next process queues the overdue pods again."""
        await self.work.run()

    async def stop(self, seconds: float = 10.0) -> None:
        """Start no further attempt, and wait up to ``seconds`` for in-flight requests. Then cancel :meth:`run`."""
        self._stopping = True
        if not await self.work.drain(seconds):
            left = self.work.statistics().processing
            stopped = "Stopped the taint manager's eviction queue while %d eviction requests were in flight"
            logger.warning(stopped, left)

    async def _process(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None:
            return
        pod.processing = True
        try:
            await self._attempt(pod)
        except Exception as error:  # a bug must not end the retries of the pod
            logger.exception("Failed to evict pod %s: unexpected error", key)
            words = f"{type(error).__name__}: {error}"
            self._handle(pod, DuePodOutcome(DuePodResult.FAILED, reasons.DELETION_FAILED, words, uncertain=True))
        finally:
            pod.processing = False

    # --- an attempt ---------------------------------------------------------------------------------------------------

    async def _attempt(self, pod: DuePod) -> None:
        # 1. Decide from the current deadlines. The pod may have changed since it was queued.
        verdict = self._evaluate(pod)
        if verdict is None:
            return
        # 2. Ask the evictor for a permit. Without one, the pod backs off.
        permit = self._admitted(pod, verdict)
        if permit is None:
            return
        # 3. Mark the pod before a deletion. A pod that waits for a permit is not marked, because it continues to run.
        evicts = verdict.action == "Evict"
        if not evicts and not await self._mark(pod, permit):
            return
        # 4. Send the request. Then wait until the watch shows that the pod is gone, or retry.
        pod.eviction_requested |= evicts
        response = await self._dependencies.evictor.send(permit, self._dependencies.api, timeout=TIMEOUT)
        answer = outcome_of(response, done=DuePodResult.EVICTED if evicts else DuePodResult.DELETED)
        if verdict.waited and answer.result is DuePodResult.DELETED:
            words = f"eviction was refused for {self._clock.now() - verdict.deadline.due:.0f}s; the pod is deleted"
            answer = DuePodOutcome(answer.result, reasons.MAXIMUM_WAIT_OVER, words)
        self._handle(pod, answer, evicts=evicts)

    def _evaluate(self, pod: DuePod) -> EvictionDecision | None:
        """Decide which request to send for a pod, and apply its current deadline.

        If no request is necessary now, the pod is requeued or finished, and the result is ``None``.
        """
        if self._stopping or self._pods.get(pod.deadline.key) is not pod:
            return None
        if self._dependencies.stale() is not None:
            self._add(pod)  # the queue is paused while the caches are stale
            return None
        verdict = self._decide(pod)
        if verdict.action is None:
            self._postpone_or_finish(pod, verdict)
            return None
        if verdict.waited and not pod.eviction_requested:
            # maximumWait is over, but no eviction was tried, because the process was down or a rate limit delayed it.
            # Try one eviction, which is overdue; if it is refused, the retry follows at once and deletes the pod.
            verdict = replace(verdict, action="Evict", waited=False)
        pod.deadline = verdict.deadline
        pod.ended = False  # if it was true, the watch has not shown the end of the pod in time
        return verdict

    def _admitted(self, entry: DuePod, verdict: EvictionDecision) -> Permit | None:
        """Return the evictor's permit. If a limit or budget refuses it, requeue the pod and return ``None``."""
        pod, now = self._dependencies.lister.pod(entry.deadline.key), self._clock.now()
        if pod is None:  # never, because decide() has just seen the pod
            return None
        found = self._dependencies.evictor.admit(request_of(verdict, pod, now=now), pod)
        if isinstance(found, Permit):
            return found
        left = verdict.evict_until - now if verdict.action == "Evict" else 0.0
        self._requeue_after(entry, min(found.retry_after, left) if left > 0.0 else found.retry_after)
        return None

    async def _mark(self, pod: DuePod, permit: Permit) -> bool:
        """Write the condition DisruptionTarget, so that Jobs and owners do not count the deletion as a failure.

        The pod may change meanwhile. If the deletion must not be sent, cancel the permit, requeue or finish the pod,
        and return ``False``.
        """
        evictor = self._dependencies.evictor
        response = await evictor.mark_disruption_target(
            permit, self._dependencies.api, reason=reasons.DELETION_BY_TAINT_MANAGER, message=MESSAGE, timeout=TIMEOUT
        )
        if response is not None and must_retry_mark(pod, failed := outcome_of(response, done=DuePodResult.DELETED)):
            evictor.cancel(permit)
            # Even if the response was lost and the condition was written, the pod itself has not been ended.
            self._handle(pod, replace(failed, uncertain=False))
            return False
        verdict = self._evaluate(pod)
        if verdict is not None and verdict.action == "Delete":
            return True
        evictor.cancel(permit)
        if verdict is not None:
            self._add(pod)  # it is evicted instead, because maximumWait was set or increased in the meantime
        return False

    def _postpone_or_finish(self, pod: DuePod, verdict: EvictionDecision) -> None:
        """Finish a pod that no longer exists or has another deadline; requeue it if a clock was set back."""
        left = verdict.deadline.due - self._clock.now()
        if verdict.why is not None:
            self._finish(pod, verdict.why)
        elif verdict.deadline == pod.deadline:  # the clock was set back, so no timer will queue the pod again
            self.work.discard(pod.deadline.key)
            if not pod.ended:
                self._return_tokens(pod)
            self._requeue_after(pod, min(left, MAX_WAIT))
        else:
            self._finish(pod, not_due(f"its new deadline is in {left:.0f}s"))

    def _apply_deadline(self, pod: DuePod, deadline: Deadline) -> None:
        """Apply a new deadline. If a taint with a different key causes it, process the pod immediately."""
        other, pod.deadline = pod.deadline.taint.key != deadline.taint.key, deadline
        if other and (pod.held_since is not None or self._backs_off(pod)):
            self._add(pod)

    # --- its outcome --------------------------------------------------------------------------------------------------

    def _handle(self, pod: DuePod, answer: DuePodOutcome, *, evicts: bool = False) -> None:
        pod.attempts += 1
        if answer.result in (DuePodResult.REFUSED, DuePodResult.FAILED):
            self._retry(pod, answer, evicts=evicts)
            return
        ours = self._pods.get(pod.deadline.key) is pod
        if answer.result is DuePodResult.GONE:
            self._finish(pod, answer)
        else:
            self._report(pod, answer)
            self._retry_refused(pod)
        if ours:
            self._wait_for_watch(pod)

    def _wait_for_watch(self, pod: DuePod) -> None:
        """Schedule a retry in case the watch does not show the deletion of the pod."""
        self._forget(pod)
        current = self._tracker.deadlines.get(pod.deadline.key)
        if current is None or current.uid != pod.deadline.uid:  # the watch delivered the deletion before the response
            return
        self._pods[pod.deadline.key] = pod
        pod.ended, pod.lost_response = True, None
        self._requeue_after(pod, CONFIRM_TIMEOUT)

    def _retry(self, pod: DuePod, answer: DuePodOutcome, *, evicts: bool) -> None:
        if answer.uncertain:
            pod.lost_response = DuePodResult.EVICTED if evicts else DuePodResult.DELETED
        else:
            self._return_tokens(pod)
        pod.last, pod.evicting = answer, evicts
        self._report(pod, answer)
        if self._pods.get(pod.deadline.key) is not pod:
            return
        by_budget, uid = answer.refuser == BUDGET_REFUSER, pod.deadline.uid
        wait = self._dependencies.evictor.retry_delay(
            uid, REQUESTER, by_budget=by_budget, retry_after=answer.retry_after
        )
        if pod.evicting:  # at most until the pod is deleted instead, according to its current deadlines
            verdict = self._decide(pod)
            left = verdict.evict_until - self._clock.now() if verdict.action == "Evict" else 0.0
            wait = max(0.0, min(wait, left))
        self._requeue_after(pod, wait)

    def _retry_refused(self, pod: DuePod) -> None:
        """Retry the pods with the same refuser after one of them was admitted. This happens at most once a second."""
        last, now = pod.last, self._clock.monotonic()
        if last is None or last.refuser == BUDGET_REFUSER or now - self._retried.get(last.refuser, now - 1.0) < 1.0:
            return
        self._retried[last.refuser] = now
        for each in tuple(self._pods.values()):
            if each.last is not None and each.last.refuser == last.refuser and self._backs_off(each):
                self._add(each)

    def _finish(self, pod: DuePod, why: DuePodOutcome) -> None:
        """Remove a pod and report its outcome.

        A pod that no longer exists after a lost response counts as evicted by trimtab.
        """
        self._forget(pod)
        if pod.ended:
            return
        if pod.lost_response is not None and why.result is DuePodResult.GONE:
            words, key = "the response was lost, and the pod no longer exists", pod.deadline.key
            why = DuePodOutcome(pod.lost_response, reasons.NO_EXECUTE_TAINT, words)
            fields = pod_fields(key, pod.deadline.uid, pod.deadline.node)
            logger.info("%s pod %s: %s", why.result.value, key, words, extra=fields)
        else:
            self._return_tokens(pod)
        self._report(pod, why)

    def _forget(self, pod: DuePod) -> None:
        """Remove a pod from the queue, unless the entry already belongs to a new pod with the same name."""
        if self._pods.get(pod.deadline.key) is pod:
            self.work.discard(pod.deadline.key)
            del self._pods[pod.deadline.key]
            self._dependencies.evictor.withdraw(pod.deadline.uid, REQUESTER)

    def _report(self, pod: DuePod, answer: DuePodOutcome) -> None:
        self._dependencies.counts.deleted += answer.result is DuePodResult.DELETED
        self._dependencies.counts.evicted += answer.result is DuePodResult.EVICTED
        self._dependencies.reporter.due_pod_outcome(
            DuePodReport(pod.deadline, answer, attempts=pod.attempts, at=self._clock.now(), held=pod.held)
        )

    # --- its place in the work queue ----------------------------------------------------------------------------------

    def _add(self, pod: DuePod) -> None:
        self.work.discard(pod.deadline.key)
        self.work.add(pod.deadline.key)

    def _backs_off(self, pod: DuePod) -> bool:
        """Return whether a pod waits for its next attempt after a failure."""
        return not pod.ended and pod.held_since is None and self.work.next_due(pod.deadline.key) is not None

    def _requeue_after(self, pod: DuePod, seconds: float) -> None:
        self._stop_holding(pod)
        self.work.reschedule(pod.deadline.key, seconds)

    def _return_tokens(self, pod: DuePod) -> None:
        """Give back the rate limit tokens of a pod that was not evicted."""
        paid, pod.rate_tokens = pod.rate_tokens, None
        if paid is not None:
            flow, at = paid
            for buckets, name in zip(self._limits, flow, strict=True):
                buckets.give_back(name, at)
            self.work.wake()

    # --- called by the work queue, see RateLimiter --------------------------------------------------------------------

    def flow_of(self, key: str) -> Hashable | None:
        """Return the flow of a pod: its keys in the three limits; ``None`` if no rate limit applies to the pod."""
        pod = self._pods.get(key)
        if pod is None:
            return None
        limited_for = self._limited_for(pod)
        if limited_for == 0.0:
            self._stop_holding(pod)
            return None
        if pod.held_since is None:
            pod.held_since = self._clock.monotonic()
        self.work.reschedule(key, limited_for)  # the failure of its node exempts it from the rate limits
        return "", self._zone_of(pod.deadline.node), namespace_of(key)

    def next_at(self, flow: Hashable) -> float:
        """Return the earliest time at which the limits of a flow's zone and namespace admit its next pod."""
        _, zone, namespace = cast("Flow", flow)
        _, of_zones, of_namespaces = self._limits
        return max(of_zones.next_at(zone), of_namespaces.next_at(namespace))

    def next_at_any_flow(self) -> float:
        """Return the earliest time at which the limit on all pods admits another pod; ``-inf`` if unset or unused."""
        of_all, _, _ = self._limits
        return of_all.next_at("")

    def take(self, key: str, flow: Hashable, now: float) -> None:
        """Take the rate limit tokens for an admitted pod."""
        keys = cast("Flow", flow)
        for buckets, name in zip(self._limits, keys, strict=True):
            buckets.take(name, now)
        pod = self._pods.get(key)
        if pod is not None:
            pod.rate_tokens = keys, now
            self._stop_holding(pod)

    def _set_rates(self, rates: UserTaintRates) -> None:
        self._rates = rates
        self._limits = [  # in the order of the keys of a flow
            KeyedTokenBuckets[str](rate, burst=1.0 if rate is None else 1.0 + CATCH_UP * rate)
            for rate in (rates.total, rates.per_zone, rates.per_namespace)
        ]

    def _limited_for(self, pod: DuePod) -> float | None:
        """Return the seconds for which rate limits apply to a pod: 0 if none applies, ``None`` if they never end.

        It is at most :data:`MAX_WAIT`, because the wall clock may be set forward meanwhile.
        """
        if self._rates == UserTaintRates() or pod.rate_tokens is not None or pod.deadline.taint.key in NO_EXECUTE_KEYS:
            return 0.0
        end = self._unlimited_from(pod)
        return None if end is None else min(MAX_WAIT, max(0.0, end - self._clock.now()))

    def _stop_holding(self, pod: DuePod) -> None:
        if pod.held_since is not None:
            pod.held += self._clock.monotonic() - pod.held_since
            pod.held_since = None
            self.work.reschedule(pod.deadline.key, None)

    def _priority(self, key: str) -> float:
        """Return the due time of a pod, so that refused pods come after pods without an attempt."""
        pod = self._pods.get(key)
        return 0.0 if pod is None else self._clock.now() if pod.attempts else pod.deadline.due

    # --- the caches ---------------------------------------------------------------------------------------------------

    def _decide(self, pod: DuePod) -> EvictionDecision:
        key = pod.deadline.key
        return decide(
            pod.deadline,
            self._tracker.deadlines.get(key),
            self._dependencies.lister.pod(key),
            maximum_waits=self._maximum_waits,
            now=self._clock.now(),
            deadlines_by_taint=self._deadlines_of,
        )

    def _zone_of(self, name: str) -> str:
        node = self._dependencies.lister.node(name)
        return "" if node is None else zone_of(node.labels)

    def _unlimited_from(self, entry: DuePod) -> float | None:
        pod = self._dependencies.lister.pod(entry.deadline.key)
        if pod is None or pod.uid != entry.deadline.uid:
            return None
        failed = (each.due for each in self._deadlines_of(pod) if each.taint.key in NO_EXECUTE_KEYS)
        return min(failed, default=None)

    def _deadlines_of(self, pod: Pod) -> Iterable[Deadline]:
        return self._tracker.deadlines_of(pod, now=self._clock.now())


def namespace_of(key: str) -> str:
    """Return the namespace part of a pod key ``namespace/name``."""
    return key.partition("/")[0]


def request_of(verdict: EvictionDecision, pod: Pod, *, now: float) -> EvictionRequest:
    """Build the request to delete or evict a pod with the pod's own grace period."""
    deadline, evicts = verdict.deadline, verdict.action == "Evict"
    return EvictionRequest(
        namespace=deadline.namespace,
        pod=deadline.name,
        uid=deadline.uid,
        node=deadline.node,
        how="Evict" if evicts else "Delete",
        reason=reasons.NO_EXECUTE_TAINT,
        message=describe_deadline(deadline),
        requester=REQUESTER,
        owner=owner_key(pod),
        deadline=deadline.due,
        overdue=evicts and verdict.evict_until <= now,
    )
