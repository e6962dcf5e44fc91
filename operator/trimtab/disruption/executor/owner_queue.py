"""Queues the evictions of a plan by owner: one pod of an owner at a time, different owners concurrently.

This is not a :class:`~trimtab.controller.work_queue.WorkQueue`, which processes independent keys in several tasks. A
plan is finite and ordered, and the decision for one eviction depends on all previous decisions. The section "Queues" of
``docs/design.md`` compares the two.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from trimtab.api.plan import SURGE, Evict
from trimtab.api.reasons import (
    ALREADY_GONE,
    EVACUATED,
    EVACUATION_FAILED,
    EVICTION_FAILED,
    EVICTION_IN_BACKGROUND,
    PLAN_OUTDATED,
    ROLLED_OUT,
    TERMINAL,
    TERMINATING,
)
from trimtab.cluster.workloads.owners import OwnerKey
from trimtab.controller.timers import TimerHeap
from trimtab.disruption.background_evictions import BACKGROUND_TIMEOUT, IN_PROGRESS, is_evicted_in_background
from trimtab.disruption.evictor import PendingEviction, Permit
from trimtab.disruption.evictor.requests import EvictionRequest, Requester
from trimtab.disruption.outcome import EVICTED, EVICTED_RESPONSE_LOST, FAILED, GONE, REFUSED, SKIPPED, AttemptResult
from trimtab.kube.objects import Pod


@dataclass(slots=True)
class StartedEviction:
    """An eviction that other components complete: a rollout, or an eviction in the background.

    Attributes:
        answer: the result of the action if the executor stops watching before the eviction ends.
        surge: whether a rollout replaces the pod. If not, the pod is evicted in the background.
        until: the time at which watching ends, in seconds on the monotonic clock.
        marked: whether the pod has had the annotation :data:`~trimtab.disruption.background_evictions.IN_PROGRESS`.
    """

    answer: AttemptResult
    surge: bool
    until: float
    marked: bool = False

    def poll(self, action: Evict, pod: Pod | None, *, now: float) -> AttemptResult | None:
        """Return the result of the eviction; ``None`` while it is in progress.

        Args:
            action: the planned eviction.
            pod: the current pod with the planned name; ``None`` if there is none.
            now: seconds on the monotonic clock.
        """
        if pod is None or pod.uid != action.uid or pod.deleted is not None or pod.terminal:
            if self.surge:
                return AttemptResult(EVICTED, ROLLED_OUT, f"Deployment {action.deployment} has its new pod")
            return AttemptResult(EVICTED, EVACUATED, "the pod was evicted in the background")
        if not self.surge:
            if IN_PROGRESS in pod.annotations:
                self.marked = True
            elif self.marked:
                message = f"annotation {IN_PROGRESS} was removed, but the pod still runs: its migration has failed"
                return AttemptResult(REFUSED, EVACUATION_FAILED, message)
        if now < self.until:
            return None
        if self.surge:
            return self.unfinished("after its time limit")
        message = f"the webhook accepted the eviction, but the pod still runs {BACKGROUND_TIMEOUT:.0f}s later"
        return AttemptResult(REFUSED, EVACUATION_FAILED, message)

    def unfinished(self, when: str) -> AttemptResult:
        """Return the result of the action if the executor stops watching before the eviction ends."""
        if self.surge:
            message = f"continues with a rollout {when}: {self.answer.message}"
        else:
            message = f"continues in the background {when}; API server response: {self.answer.message}"
        return msgspec.structs.replace(self.answer, message=message)


def watch_started(action: Evict, answer: AttemptResult, *, now: float, rollout: float) -> StartedEviction:
    """Return the state for watching an eviction that was started at ``now`` (seconds on the monotonic clock).

    A rollout is watched for ``rollout`` seconds.
    """
    surge = action.how == SURGE
    return StartedEviction(answer=answer, surge=surge, until=now + (rollout if surge else BACKGROUND_TIMEOUT))


@dataclass(slots=True)
class QueuedEviction:
    """The state of one action of a plan while it is executed.

    Attributes:
        index: the action's position in the plan.
        action: the planned eviction.
        tries: number of requests so far that must be retried.
        last: the result of the latest of these requests.
        response_lost: whether the response to any request was lost, so that this request may have deleted the pod.
        paced_at: the time at which a share of the rate limit was reserved, in seconds on the monotonic clock.
        mark: the ``restartedAt`` time that identifies the restart of a surge; ``""`` before the first request.
        started: the started rollout or eviction in the background, while it is watched.
        permit: the evictor's permit, from before the recheck until the request has ended.
        lost_permit: the last permit that was released after the response to a request was lost.
    """

    index: int
    action: Evict
    tries: int = 0
    last: AttemptResult | None = None
    response_lost: bool = False
    paced_at: float | None = None
    mark: str = ""
    started: StartedEviction | None = None
    permit: Permit | None = None
    lost_permit: Permit | None = None

    @property
    def uncertain(self) -> bool:
        """Return whether the latest request may have evicted the pod although its response was lost."""
        return self.last is not None and self.last.uncertain


@dataclass(slots=True)
class OwnerQueue:
    """The evictions of one owner in the order of the plan. Each action without an owner has its own queue.

    Attributes:
        owner: the pods' controller; ``None`` if the action has no owner.
        evictions: the remaining evictions; the first is the next one.
        waits_since: when the owner was first seen with missing pods, in seconds on the monotonic clock; ``None`` if the
            next action does not wait for the owner.
        waits_for: why the owner is considered to be missing pods.
        held: the pending request that the evictor did not admit; ``None`` if it admitted the next action.
        evicted: whether a pod of the queue was evicted. If so, the next action may wait longer for the replacement.
    """

    owner: OwnerKey | None
    evictions: deque[QueuedEviction] = field(default_factory=deque)
    waits_since: float | None = None
    waits_for: str = ""
    held: PendingEviction | None = None
    evicted: bool = False

    @property
    def head(self) -> QueuedEviction:
        """Return the owner's next eviction. The queue must not be empty."""
        return self.evictions[0]


class ReadyQueue:
    """Orders owners' queues. Of the queues that are ready, the one whose action is earliest in the plan comes first."""

    def __init__(self, queues: Sequence[OwnerQueue]) -> None:
        self._ready = [(queue.head.index, queue) for queue in queues]
        self._later: TimerHeap[OwnerQueue] = TimerHeap()

    def __bool__(self) -> bool:
        return bool(self._ready or self._later)

    def put(self, queue: OwnerQueue, *, at: float = 0.0) -> None:
        """Add an owner's queue that becomes ready at ``at``, in seconds on the monotonic clock."""
        self._later.set(str(queue.head.index), at, queue)

    def has_ready(self, now: float) -> bool:
        """Return whether any queue is ready."""
        for queue in self._later.take(now, limit=len(self._later)):
            heapq.heappush(self._ready, (queue.head.index, queue))
        return bool(self._ready)

    def pop(self) -> OwnerQueue:
        """Remove and return the first of the ready queues."""
        return heapq.heappop(self._ready)[1]

    def next_at(self) -> float | None:
        """Return the time at which the next waiting queue becomes ready; ``None`` if no queue waits."""
        return self._later.next_due

    def drain(self) -> list[OwnerQueue]:
        """Remove and return all queues."""
        ready, self._ready = self._ready, []
        return [queue for _, queue in ready] + self._later.take(float("inf"), limit=len(self._later))


def group_by_owner(actions: Sequence[Evict]) -> list[OwnerQueue]:
    """Group the actions by owner, in the order of each queue's first action.

    Each terminal pod, and each pod that a rollout replaces, gets its own queue, because its owner loses no running pod.
    """
    queues: dict[object, OwnerQueue] = {}
    for index, action in enumerate(actions):
        owner = owner_of(action) if action.target and action.how != SURGE else None
        key: object = index if owner is None else owner
        queue = queues.setdefault(key, OwnerQueue(owner))
        queue.evictions.append(QueuedEviction(index, action))
    return list(queues.values())


def owner_of(action: Evict) -> OwnerKey | None:
    """Return the identity of the action's owner, without its UID; ``None`` if the action has no owner."""
    kind, _, name = action.owner.partition("/")
    return OwnerKey(action.namespace, kind, name) if name else None


def check_pod(action: Evict, pod: Pod | None, *, response_lost: bool) -> AttemptResult | None:
    """Check immediately before the request that the current pod is the planned one and still on the planned node.

    Args:
        action: the planned eviction.
        pod: the current pod of that name; ``None`` if there is none.
        response_lost: whether the response to an earlier eviction request was lost. If so, a terminating pod counts as
            evicted by that request.

    Returns:
        The result if the action ends here; ``None`` to continue.
    """
    if not action.uid:
        return AttemptResult(
            FAILED, EVICTION_FAILED, "the plan has no UID for the pod, so a new pod of that name could be evicted"
        )
    if pod is None or pod.uid != action.uid:
        if response_lost:
            return EVICTED_RESPONSE_LOST
        message = "the pod no longer exists" if pod is None else "a new pod has the same name"
        return AttemptResult(GONE, ALREADY_GONE, message)
    if pod.deleted is not None:
        return (
            EVICTED_RESPONSE_LOST
            if response_lost
            else AttemptResult(GONE, TERMINATING, "the pod is already terminating")
        )
    if (
        is_evicted_in_background(pod) and not response_lost
    ):  # after a lost response, a retry shows whether the webhook accepted this request
        return AttemptResult(GONE, EVICTION_IN_BACKGROUND, "the pod is already being evicted in the background")
    if pod.terminal and action.target:
        return AttemptResult(SKIPPED, TERMINAL, f"the pod is terminal (phase {pod.phase})")
    if not (pod.terminal or action.target):
        return AttemptResult(
            SKIPPED, PLAN_OUTDATED, f"the plan removes a terminal pod, but the pod is in phase {pod.phase}"
        )
    if pod.node != action.node:
        where = f"runs on {pod.node}" if pod.node else "has no node"
        return AttemptResult(SKIPPED, PLAN_OUTDATED, f"the plan saw the pod on {action.node}, but it {where}")
    return None


def request_of(
    action: Evict, *, owner: OwnerKey | None, requester: Requester, grace_period: int | None = None
) -> EvictionRequest:
    """Build the request for a planned eviction.

    Args:
        action: the planned eviction.
        owner: the key of the pod's controller in the snapshot; ``None`` if the pod has no controller or has terminated.
        requester: the policy and strategy that planned it.
        grace_period: termination grace period in seconds; ``None`` for the pod's own.
    """
    return EvictionRequest(
        namespace=action.namespace,
        pod=action.pod,
        uid=action.uid,
        node=action.node,
        owner=owner,
        how=action.how,
        reason=action.reason,
        message=action.message,
        target=action.target,
        requester=requester,
        grace_period=grace_period,
        settle=owner is not None,
    )
