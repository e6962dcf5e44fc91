"""The queue of due pods. Each pod is evicted or deleted, and retried until it no longer exists or is no longer due.

The queue is in memory only. In a restarted process, the timers of overdue pods fire immediately and fill the queue
again. A waiting pod is an entry in the queue and not a task; a fixed number of workers send the requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.taint_manager import OBSERVE, RefusedPod, StuckNode, TaintManagerSpec
from trimtab.cluster.workloads.owners import OwnerKey, owner_key
from trimtab.disruption.evictor import Evictor, Permit
from trimtab.disruption.evictor.requests import BUDGET_REFUSER, TAINTING, EvictionRequest, Requester, Way
from trimtab.disruption.evictor.retries import RETRIES_PER_SECOND
from trimtab.kube.api import Api
from trimtab.tainting.deadlines import Deadline, describe_deadline
from trimtab.tainting.dependencies import TaintingDependencies
from trimtab.tainting.eviction.due_pod import (
    DuePod,
    DuePodAttempt,
    DuePodResult,
    QueueState,
    attempt_of,
    deleted_after_maximum_wait,
    mark_before_deletion,
    not_due,
)
from trimtab.tainting.eviction.due_queue import DueQueue
from trimtab.tainting.eviction.evaluator import (
    DeadlinesByTaint,
    Evaluator,
    EvictionAction,
    EvictionDecision,
    maximum_waits,
)
from trimtab.tainting.eviction.status import EvictionCounter, StuckNodeFinder, refused_pods

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

After that the pod is evaluated again, because a proxy in front of a starting API server may answer every request with
404.
"""

ADMISSION_RETRY: Final = 0.25
"""Seconds after which a pod is evaluated again if the evictor did not admit it."""

MAX_WAIT: Final = 60.0
"""Maximum seconds until a pod is evaluated again if it is no longer due because a clock was set back."""


class EvictionQueue:
    """Evicts and deletes due pods.

    Args:
        services: the dependencies of the taint manager.
        spec: the spec of the TaintManager.
        deadline_of: returns the deadline of a pod by its ``namespace/name``; ``None`` if it has none.
        deadlines_of: returns one deadline for each taint of the pod's node, as if the node had only that taint
            (:meth:`~trimtab.tainting.deadlines.TaintDeadlineTracker.deadlines_of`). A pod that waits for a retry or for
            a rate limit is deleted once any of these deadlines requires that.
        workers: number of pods that are evicted concurrently.
    """

    def __init__(
        self,
        services: TaintingDependencies,
        spec: TaintManagerSpec,
        *,
        deadline_of: Callable[[str], Deadline | None],
        deadlines_of: DeadlinesByTaint,
        workers: int = WORKERS,
    ) -> None:
        self._services = services
        self._evaluator = Evaluator(services, spec, deadline_of, deadlines_of)
        self._spec = spec
        pods: dict[str, DuePod] = {}
        self._queue = DueQueue(
            self._process,
            rates=spec.user_taint_rates,
            zone_of=self._evaluator.zone_of,
            unlimited_from=self._evaluator.unlimited_from,
            pods=pods,
            workers=min(workers, services.evictor.limits.max_concurrent or workers),
            clock=services.clock,
            stale=lambda: services.stale() is not None,
            metrics=services.queue_metrics.queue("due-pods"),
        )
        self._attempts = EvictionAttempts(services, self._evaluator, self._queue, pods)
        self._stuck = StuckNodeFinder(services)

    @property
    def deleted(self) -> int:
        """Return the number of pods that were deleted since the queue was created."""
        return self._attempts.counter.deleted

    @property
    def evicted(self) -> int:
        """Return the number of pods that were evicted since the queue was created."""
        return self._attempts.counter.evicted

    @property
    def waiting(self) -> int:
        """Return the number of due pods whose eviction or deletion the API server has not granted yet."""
        return len(self._attempts.entries) - self._attempts.granted

    @property
    def held(self) -> int:
        """Return the number of due pods that userTaintRates delays."""
        return self._queue.held

    @property
    def refused(self) -> tuple[RefusedPod, ...]:
        """Return the due pods whose eviction or deletion was refused, the longest overdue first."""
        return refused_pods(self._attempts.entries.values())

    @property
    def stuck(self) -> tuple[StuckNode, ...]:
        """Return the unreachable nodes with pods that still exist after their grace period, sorted by name.

        The list is updated every ten seconds.
        """
        return self._stuck.nodes()

    def due(self, deadline: Deadline) -> None:
        """Queue a due pod. In Observe mode this has no effect.

        The pod is evaluated before each request, so it is harmless to queue it twice or too early.
        """
        if self._spec.mode == OBSERVE or self._attempts.stopping:
            return
        entry = self._attempts.entries.get(deadline.key)
        if entry is not None:
            if entry.deadline.uid == deadline.uid:
                self._attempts.requeue(entry, deadline)
                return
            self._attempts.forget(entry)
        entry = self._attempts.entries[deadline.key] = DuePod(deadline)
        self._queue.add(entry)

    def changed(self, key: str) -> None:
        """Evaluate a queued pod again after its deadline has changed. No-op for pods that are not queued.

        The caches must already reflect the change.
        """
        entry = self._attempts.entries.get(key)
        if entry is None or entry.queue_state is QueueState.PROCESSING:  # the worker evaluates the pod anyway
            return
        verdict = self._evaluator.decide(entry)
        if verdict.action is EvictionAction.NOTHING or verdict.action is EvictionAction.WAIT:
            self._attempts.postpone_or_finish(entry, verdict)
        else:
            self._attempts.requeue(entry, verdict.deadline)

    def node_changed(self, name: str) -> None:
        """Evaluate the queued pods of a node again after its taints have changed, because they may be due earlier.

        The caches and the deadline tracker must already reflect the change.
        """
        for key, _ in self._services.lister.items_on(name):
            entry = self._attempts.entries.get(key)
            if entry is not None:
                self._attempts.reevaluate(entry)

    def configure(self, spec: TaintManagerSpec) -> None:
        """Apply a new spec of the TaintManager.

        Mode Observe drops all queued pods. When the mode changes back, the caller must queue the due pods again.
        """
        before, self._evaluator.maximum_waits, self._spec = self._evaluator.maximum_waits, maximum_waits(spec), spec
        self._queue.set_rates(spec.user_taint_rates)
        for entry in tuple(self._attempts.entries.values()):
            if spec.mode == OBSERVE:
                self._attempts.finish(entry, not_due("the mode was changed to Observe"))
            elif entry.queue_state is QueueState.BACKING_OFF and self._evaluator.maximum_waits != before:
                self._queue.add(entry)

    async def run(self) -> None:
        """Process the queue until cancelled. After a cancellation, the next process queues the overdue pods again."""
        await self._queue.run()

    async def run_timers(self) -> None:
        """Lift rate limits when the taints of failed nodes make pods due, until cancelled."""
        await self._queue.run_timers()

    async def stop(self, seconds: float = 10.0) -> None:
        """Start no further attempt, and wait up to ``seconds`` for in-flight requests.

        After that, :meth:`run` can be cancelled.
        """
        self._attempts.stopping = True
        if not await self._queue.drain(seconds):
            logger.warning(
                "Stopped the taint manager's eviction queue while %d eviction requests were in flight",
                self._queue.processing,
            )

    async def _process(self, key: str) -> None:
        entry = self._attempts.entries.get(key)
        if entry is None:
            return
        entry.queue_state = QueueState.PROCESSING
        try:
            await self._attempts.attempt(entry)
        except Exception as error:  # a bug must not end the retries of the pod
            logger.exception("Failed to evict pod %s: unexpected error", key)
            words = f"{type(error).__name__}: {error}"
            self._attempts.handle_attempt(
                entry, DuePodAttempt(DuePodResult.FAILED, reasons.DELETION_FAILED, words, uncertain=True)
            )


def request_of(
    deadline: Deadline, *, how: Way = "Delete", overdue: bool = False, owner: OwnerKey | None = None
) -> EvictionRequest:
    """Build the request to delete or evict a pod with the pod's own grace period."""
    namespace, _, name = deadline.key.partition("/")
    return EvictionRequest(
        namespace=namespace,
        pod=name,
        uid=deadline.uid,
        node=deadline.node,
        how=how,
        reason=reasons.NO_EXECUTE_TAINT,
        message=describe_deadline(deadline),
        requester=REQUESTER,
        owner=owner,
        deadline=deadline.due,
        overdue=overdue,
    )


async def mark(evictor: Evictor, deadline: Deadline, api: Api) -> DuePodAttempt | None:
    """Write the condition DisruptionTarget on a pod, so that Jobs and owners do not count its deletion as a failure.

    Returns:
        ``None`` if the condition was written, otherwise the failed attempt.
    """
    outcome = await evictor.mark_disruption_target(
        request_of(deadline), api, reason=reasons.DELETION_BY_TAINT_MANAGER, message=MESSAGE, timeout=TIMEOUT
    )
    return None if outcome is None else attempt_of(outcome, done=DuePodResult.DELETED)


async def send(evictor: Evictor, permit: Permit, api: Api) -> DuePodAttempt:
    """Delete or evict the admitted pod with one request, which has the pod's UID as a precondition."""
    outcome = await evictor.send(permit, api, timeout=TIMEOUT)
    return attempt_of(outcome, done=DuePodResult.DELETED if permit.request.how == "Delete" else DuePodResult.EVICTED)


class EvictionAttempts:
    """Makes the attempts for each due pod, and finishes or requeues the pod depending on the API server's response.

    Args:
        services: the dependencies of the taint manager.
        evaluator: decides what to do with a pod.
        queue: schedules the next attempt.
        entries: the due pods by ``namespace/name``.

    Attributes:
        entries: the due pods by ``namespace/name``.
        granted: number of due pods whose eviction or deletion the API server has granted.
        counter: counts and reports the outcomes.
        stopping: whether no further attempt is started.
    """

    def __init__(
        self, services: TaintingDependencies, evaluator: Evaluator, queue: DueQueue, entries: dict[str, DuePod]
    ) -> None:
        self.entries = entries
        self.granted = 0
        self.counter = EvictionCounter(services)
        self.stopping = False
        self._services = services
        self._evaluator = evaluator
        self._queue = queue
        self._retried: dict[str, float] = {}

    async def attempt(self, entry: DuePod) -> None:
        """Make one attempt to evict or delete a pod.

        The pod is evaluated again before each request, because it may have changed in the meantime.
        """
        verdict = self._evaluate(entry)
        if verdict is not None and verdict.action is EvictionAction.DELETE and not self._evaluator.marked(entry):
            answer = await mark(self._services.evictor, verdict.deadline, self._services.api)
            if answer is None:
                entry.marked = self._monotonic()
            elif mark_before_deletion(entry, answer):
                self.handle_attempt(
                    entry, replace(answer, uncertain=False)
                )  # the pod is not evicted, whether or not the condition was written
                return
            verdict = self._evaluate(entry)
        if verdict is None:
            return
        permit = self._admitted(entry, verdict)
        if permit is None:
            return
        if verdict.action is EvictionAction.DELETE:
            answer = await send(self._services.evictor, permit, self._services.api)
            if verdict.waited and answer.result is DuePodResult.DELETED:
                answer = deleted_after_maximum_wait(answer, seconds=self._services.clock.now() - verdict.deadline.due)
        else:
            entry.eviction_requested = True
            answer = await send(self._services.evictor, permit, self._services.api)
        self.handle_attempt(entry, answer, until=verdict.until if verdict.action is EvictionAction.EVICT else None)

    def _admitted(self, entry: DuePod, verdict: EvictionDecision) -> Permit | None:
        """Return the evictor's permit. If a limit or budget refuses it, requeue the pod and return ``None``."""
        pod = self._services.lister.pod(entry.deadline.key)
        if pod is None:
            return None
        how: Way = "Delete" if verdict.action is EvictionAction.DELETE else "Evict"
        overdue = how == "Evict" and verdict.until <= self._services.clock.now()
        request = request_of(verdict.deadline, how=how, overdue=overdue, owner=owner_key(pod))
        found = self._services.evictor.admit(request, pod)
        if isinstance(found, Permit):
            return found
        entry.queue_state = QueueState.BACKING_OFF
        wait = max(ADMISSION_RETRY, (self._queue.later - self.granted) / RETRIES_PER_SECOND)
        left = verdict.until - self._services.clock.now() if verdict.action is EvictionAction.EVICT else 0.0
        self._queue.requeue_at(entry, self._monotonic() + (min(wait, left) if left > 0.0 else wait))
        return None

    # --- evaluation ---------------------------------------------------------------------------------------------------

    def _evaluate(self, entry: DuePod) -> EvictionDecision | None:
        """Decide which request to send for a pod; return ``None`` if no request is necessary now."""
        if self.stopping or self.entries.get(entry.deadline.key) is not entry:
            return None
        if self._services.stale() is not None:
            self._queue.add(entry)  # the queue is paused while the caches are stale
            return None
        verdict = self._evaluator.decide(entry)
        if verdict.action is EvictionAction.NOTHING or verdict.action is EvictionAction.WAIT:
            self.postpone_or_finish(entry, verdict)
            return None
        if (
            verdict.waited and not entry.eviction_requested
        ):  # no eviction was tried: the process was down, or a rate limit delayed it
            verdict = replace(verdict, action=EvictionAction.EVICT, waited=False)
        entry.deadline = verdict.deadline
        if entry.granted:  # the request was granted, but the pod still exists
            entry.granted = False
            self.granted -= 1
        return verdict

    def postpone_or_finish(self, entry: DuePod, verdict: EvictionDecision) -> None:
        """Finish a pod that no longer exists or has another deadline.

        Requeue it if it is not due yet because a clock was set back.
        """
        if verdict.why is not None:
            self.finish(entry, verdict.why)
        elif verdict.deadline == entry.deadline:  # the clock was set back, so no timer will queue the pod again
            self._queue.remove(entry)
            self._queue.return_tokens(entry)
            entry.queue_state = QueueState.BACKING_OFF
            wait = min(verdict.until - self._services.clock.now(), MAX_WAIT)
            self._queue.requeue_at(entry, self._monotonic() + wait)
        else:
            self.finish(entry, not_due(f"its new deadline is in {verdict.until - self._services.clock.now():.0f}s"))

    def requeue(self, entry: DuePod, deadline: Deadline) -> None:
        """Apply a new deadline to a queued pod.

        If the new deadline is caused by a taint with a different key, process the pod immediately.
        """
        other, entry.deadline = entry.deadline.taint.key != deadline.taint.key, deadline
        if other and entry.queue_state in (QueueState.BACKING_OFF, QueueState.RATE_LIMITED):
            self._queue.remove(entry)
            self._queue.add(entry)

    def reevaluate(self, entry: DuePod) -> None:
        """Process a backing-off or rate-limited pod earlier if the changed taints of its node require it."""
        if entry.queue_state is QueueState.RATE_LIMITED:
            self._queue.update_unlimited_from(entry)
        elif entry.queue_state is QueueState.BACKING_OFF and entry.evicting:
            verdict = self._evaluator.decide(entry)
            if verdict.action is EvictionAction.EVICT:
                self._queue.requeue_at(entry, min(entry.retry_at, self._evaluator.monotonic(verdict.until)))
            elif verdict.action is EvictionAction.DELETE:
                self._queue.remove(entry)
                self._queue.add(entry)

    # --- outcome -----------------------------------------------------------------------------------------

    def handle_attempt(self, entry: DuePod, answer: DuePodAttempt, *, until: float | None = None) -> None:
        """Finish or requeue a pod after an attempt.

        Args:
            entry: the pod.
            answer: the result of the attempt.
            until: the time after which the pod is deleted instead of evicted, in seconds since the epoch; ``None`` if
                the attempt was a deletion.
        """
        entry.attempts += 1
        if answer.retry:
            self._retry(entry, answer, until)
            return
        ours = self.entries.get(entry.deadline.key) is entry
        if answer.result is DuePodResult.GONE:
            self.finish(entry, answer)
        else:
            self.counter.take(entry, answer)
            self._retry_refused(entry)
        if ours:
            self._wait_for_watch(entry)

    def _wait_for_watch(self, entry: DuePod) -> None:
        """Schedule a retry in case the watch does not show the deletion of the pod."""
        self.forget(entry)
        if not self._evaluator.known(entry):  # the watch delivered the deletion before the response
            return
        self.entries[entry.deadline.key] = entry
        entry.queue_state, entry.granted, entry.lost_response = QueueState.AWAITING_WATCH, True, None
        self.granted += 1
        self._queue.requeue_at(entry, self._monotonic() + CONFIRM_TIMEOUT)

    def _retry(self, entry: DuePod, answer: DuePodAttempt, until: float | None) -> None:
        if answer.uncertain:
            entry.lost_response = DuePodResult.DELETED if until is None else DuePodResult.EVICTED
        else:
            self._queue.return_tokens(entry)
        entry.last, entry.evicting = answer, until is not None
        self.counter.take(entry, answer)
        if self.entries.get(entry.deadline.key) is not entry:
            return
        wait = self._services.evictor.retry_delay(
            entry.deadline.uid,
            REQUESTER,
            by_budget=answer.refuser == BUDGET_REFUSER,
            retry_after=answer.retry_after,
        )
        if entry.evicting:
            wait = max(0.0, min(wait, self._left(entry)))
        entry.queue_state = QueueState.BACKING_OFF
        self._queue.requeue_at(entry, self._monotonic() + wait)

    def _left(self, entry: DuePod) -> float:
        """Return the seconds until the pod is deleted instead of evicted, according to its current deadlines."""
        verdict = self._evaluator.decide(entry)
        return verdict.until - self._services.clock.now() if verdict.action is EvictionAction.EVICT else 0.0

    def _retry_refused(self, entry: DuePod) -> None:
        """Retry the pods with the same refuser after one of them was admitted. This happens at most once a second."""
        last, now = entry.last, self._monotonic()
        if last is None or last.refuser == BUDGET_REFUSER or now - self._retried.get(last.refuser, now - 1.0) < 1.0:
            return
        self._retried[last.refuser] = now
        for each in tuple(self.entries.values()):
            if (
                each.queue_state is QueueState.BACKING_OFF
                and each.last is not None
                and each.last.refuser == last.refuser
            ):
                self._queue.remove(each)
                self._queue.add(each)

    def finish(self, entry: DuePod, why: DuePodAttempt) -> None:
        """Remove a pod and report its outcome.

        A pod that no longer exists after a lost response is counted as evicted by trimtab.
        """
        self.forget(entry)
        if entry.granted:
            return
        if entry.lost_response is not None and why.result is DuePodResult.GONE:
            words = "the response was lost, and the pod no longer exists"
            why = DuePodAttempt(entry.lost_response, reasons.NO_EXECUTE_TAINT, words)
        else:
            self._queue.return_tokens(entry)
        self.counter.take(entry, why)

    def forget(self, entry: DuePod) -> None:
        """Remove a pod from the queue, unless the entry already belongs to a new pod with the same name."""
        if self.entries.get(entry.deadline.key) is entry:
            self._queue.remove(entry)
            del self.entries[entry.deadline.key]
            self.granted -= entry.granted
            self._services.evictor.withdraw(entry.deadline.uid, REQUESTER)

    def _monotonic(self) -> float:
        return self._services.clock.monotonic()
