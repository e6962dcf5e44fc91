"""Tracks evictions from their admission until the pod no longer exists."""

from __future__ import annotations

from math import inf
from typing import Final

from msgspec import Struct

from trimtab.api.plan import SURGE
from trimtab.cluster.workloads.owners import owner_key
from trimtab.disruption.background_evictions import BACKGROUND_TIMEOUT
from trimtab.disruption.evictor.cluster_view import ClusterView
from trimtab.disruption.evictor.requests import SCHEDULING, EvictionRequest, Requester
from trimtab.disruption.outcome import STARTED, AttemptResult
from trimtab.kube.objects import Pod

WATCH_LAG: Final = 600.0
"""Seconds for which a granted eviction is not requested again, if the watch is late.

The API server has deleted the pod, so a second request can only fail or disrupt a budget again.
"""

TERMINATION_MARGIN: Final = 30.0
"""Seconds for which a terminating pod still counts toward the concurrent evictions after its grace period has ended."""

DEFAULT_GRACE_PERIOD: Final = 30
"""Kubernetes' default for ``terminationGracePeriodSeconds``."""

RESPONSE_WAIT: Final = 2.0
"""Seconds for which a request with a deadline waits for the response to another request for the same pod."""

DELETION_WAIT: Final = 30.0
"""Seconds after which a request with a deadline and a grace period repeats a granted eviction, because the watch should
have shown the deletion of the pod. A response that was lost, and that was resolved by reading the pod, may be wrong."""

_EARLIER: Final = Requester("an earlier", "process")
"""The requester of evictions that an earlier process made."""


class Permit:
    """The permission to send one eviction request.

    The holder must end it with :meth:`Evictor.conclude` or :meth:`Evictor.cancel`.

    Attributes:
        request: the request.
        pod: the pod in its state at admission.
        counted_at: the time of the admission, or of the response once it has arrived, from which on the request counts
            toward the limits per minute, in seconds on the monotonic clock.
        in_flight: whether the request, or the condition DisruptionTarget that precedes a deletion, was sent, and the
            response to the request has not arrived yet.
        sent_at: the time at which it was sent, in seconds on the monotonic clock; 0 if it was not.
        rechecked_since: the time at which a recheck of the request began, which has not ended yet; otherwise ``None``.
    """

    __slots__ = ("counted_at", "in_flight", "pod", "rechecked_since", "request", "sent_at")

    def __init__(self, request: EvictionRequest, pod: Pod, admitted_at: float) -> None:
        self.request = request
        self.pod = pod
        self.counted_at = admitted_at
        self.in_flight = False
        self.sent_at = 0.0
        self.rechecked_since: float | None = None


class _TerminatingPod(Struct):
    """A pod whose eviction was granted. It counts toward the concurrent evictions until it no longer exists."""

    request: EvictionRequest
    granted: float
    """When the eviction was granted; ``-inf`` if an earlier process made it, which the watch shows already."""
    grace: int
    """The shortest grace period with which the pod was evicted, in seconds."""
    until: float
    moving: float
    """Until this time, a response that the pod is evicted in the background is attributed to this eviction."""


class EvictionsInProgress:
    """The admitted requests, and the pods whose eviction was granted and that still exist.

    All times are in seconds on the monotonic clock.

    Args:
        view: read access to cached pods.

    Attributes:
        permits: the permits that are not concluded, in the order of their admission.
    """

    def __init__(self, view: ClusterView) -> None:
        self.permits: dict[Permit, None] = {}
        self._view = view
        self._terminating: dict[str, _TerminatingPod] = {}
        """The terminating pods by UID."""

    def restore(self, pod: Pod, now: float, now_epoch: float) -> None:
        """Add a terminating pod that was evicted by an earlier process.

        Args:
            pod: the pod.
            now: seconds on the monotonic clock.
            now_epoch: seconds since the epoch.
        """
        request = EvictionRequest(
            namespace=pod.namespace,
            pod=pod.name,
            uid=pod.uid,
            requester=_EARLIER,
            node=pod.node,
            owner=owner_key(pod),
        )
        until = now + (pod.deleted or now_epoch) - now_epoch + TERMINATION_MARGIN
        self._terminating[pod.uid] = _TerminatingPod(request, -inf, grace_period_of(request, pod), until, moving=now)

    def requester_evicting(self, request: EvictionRequest, now: float) -> Requester | None:
        """Return the requester of an eviction of the same pod that the request must not repeat; ``None`` if none."""
        by, leaving = self._in_flight_for(request, now), self._terminating.get(request.uid)
        if by is not None or leaving is None or now >= leaving.granted + WATCH_LAG:
            return by
        return None if self._may_repeat(request, leaving, now) else leaving.request.requester

    def _in_flight_for(self, request: EvictionRequest, now: float) -> Requester | None:
        """Return the requester of an in-flight eviction of the pod for which the request must wait, if there is one.

        Preemptions wait for each other, because a preemptor can need the victim of one with a lower priority, and for
        requests that were sent, whose responses arrive soon. Another request with a deadline only waits for some
        seconds, because the response may be lost, and only for a request that ends the pod as soon as itself.
        """
        preempts = request.requester.controller == SCHEDULING
        for each in self.permits:
            requester = each.request.requester
            if each.request.uid != request.uid:
                continue
            if request.deadline is None or (preempts and (requester.controller == SCHEDULING or each.in_flight)):
                return requester
            recent = each.in_flight and now < each.sent_at + RESPONSE_WAIT and each.request.how != SURGE
            if recent and request.how == "Evict" and not _ends_sooner(request, grace_period_of(each.request, each.pod)):
                return requester  # a deletion does not wait, because a budget may refuse the eviction
        return None

    @staticmethod
    def _may_repeat(request: EvictionRequest, leaving: _TerminatingPod, now: float) -> bool:
        """Return whether a pod may be evicted again although an eviction was granted that the watch does not show."""
        same = leaving.request.requester == request.requester
        moving = now < leaving.moving  # an eviction in the background has not deleted the pod
        if request.deadline is None:
            return same and moving  # the requester asks whether it has ended
        if moving:
            return True
        if request.grace_period is not None:
            sooner = leaving.request.how != "Evict" or _ends_sooner(request, leaving.grace)
            return sooner or now >= leaving.granted + DELETION_WAIT
        return same and request.requester.controller != SCHEDULING  # the requester repeats it on purpose

    def granted(self, permit: Permit, answer: AttemptResult, now: float) -> bool:
        """Track the pod of a granted request, and return whether its eviction was in progress in the background."""
        request, grace = permit.request, grace_period_of(permit.request, permit.pod)
        known = self._terminating.get(request.uid)
        in_background = answer.result == STARTED and request.how == "Evict"
        if known is not None and known.request.how != SURGE and now >= known.moving:
            grace = min(grace, known.grace)
        ends = grace + TERMINATION_MARGIN if request.deadline is None else 0.0
        moving = now + BACKGROUND_TIMEOUT if in_background else now
        self._terminating[request.uid] = _TerminatingPod(request, now, grace, now + ends, moving)
        return in_background and known is not None and now < known.moving

    def voluntary(self, now: float) -> list[EvictionRequest]:
        """Return the requests that count toward the limit on concurrent evictions for a request without a deadline."""
        self.drop_ended(now)
        leaving = (each.request for each in self._terminating.values() if now < each.until)
        return [*(each.request for each in self.permits), *leaving]

    def in_flight(self) -> list[EvictionRequest]:
        """Return the requests that have no response yet, and of which at least the condition was sent."""
        return [each.request for each in self.permits if each.in_flight]

    def drop_ended(self, now: float) -> None:
        """Drop the pods that no longer exist, and those that the watch still shows long after their grace period."""
        for uid, each in tuple(self._terminating.items()):
            pod = self._view.pod(each.request.key)
            until = max(each.until, each.granted + WATCH_LAG, each.moving)
            if pod is None or pod.uid != uid or pod.terminal or now >= until:
                del self._terminating[uid]


def grace_period_of(request: EvictionRequest, pod: Pod) -> int:
    """Return the grace period in seconds with which a request ends a pod."""
    grace = pod.spec.termination_grace_period if request.grace_period is None else request.grace_period
    return DEFAULT_GRACE_PERIOD if grace is None else grace


def _ends_sooner(request: EvictionRequest, grace: int) -> bool:
    """Return whether a request shortens the grace period of a pod that was evicted with the given one."""
    return request.grace_period is not None and request.grace_period < grace
