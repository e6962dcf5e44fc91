"""Tracks evictions from their admission until the pod no longer exists."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

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
        rechecked_since: the time at which a recheck of the request began, which has not ended yet; otherwise ``None``.
    """

    __slots__ = ("counted_at", "in_flight", "pod", "rechecked_since", "request")

    def __init__(self, request: EvictionRequest, pod: Pod, admitted_at: float) -> None:
        self.request = request
        self.pod = pod
        self.counted_at = admitted_at
        self.in_flight = False
        self.rechecked_since: float | None = None


class _TerminatingPod(Struct):
    """A pod whose eviction was granted. It counts toward the concurrent evictions until it no longer exists."""

    request: EvictionRequest
    until: float
    unseen: float
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
        self._terminating[pod.uid] = _TerminatingPod(request, until, unseen=now, moving=now)

    def requester_evicting(self, request: EvictionRequest, now: float) -> Requester | None:
        """Return the requester of an eviction of the same pod that the request must not repeat; ``None`` if none."""
        by, leaving = self._in_flight_for(request), self._terminating.get(request.uid)
        if by is None and leaving is not None and now < leaving.unseen and not self._may_repeat(request, leaving, now):
            return leaving.request.requester
        return by

    def _in_flight_for(self, request: EvictionRequest) -> Requester | None:
        """Return the requester of an in-flight eviction of the pod for which the request must wait, if there is one.

        A request with a deadline waits for none. Preemptions wait for each other, because a preemptor can need the
        victim of one with a lower priority, and for requests that were sent, whose responses arrive soon.
        """
        preempts = request.requester.controller == SCHEDULING
        if request.deadline is not None and not preempts:
            return None
        for each in self.permits:
            requester = each.request.requester
            waits = request.deadline is None or requester.controller == SCHEDULING or each.in_flight
            if waits and each.request.uid == request.uid:
                return requester
        return None

    @staticmethod
    def _may_repeat(request: EvictionRequest, leaving: _TerminatingPod, now: float) -> bool:
        """Return whether a pod may be evicted again although an eviction was granted that the watch does not show."""
        same = leaving.request.requester == request.requester
        moving = now < leaving.moving  # an eviction in the background has not deleted the pod
        if request.deadline is None:
            return same and moving  # the requester asks whether it has ended
        if request.grace_period is not None or moving:  # the request shortens the grace period, or deletes the pod
            return True
        return same and request.requester.controller != SCHEDULING  # the requester repeats it on purpose

    def granted(self, permit: Permit, answer: AttemptResult, now: float) -> bool:
        """Track the pod of a granted request, and return whether its eviction was in progress in the background."""
        request, grace = permit.request, permit.request.grace_period
        known = self._terminating.get(request.uid)
        in_background = answer.result == STARTED and request.how == "Evict"
        if grace is None:
            grace = permit.pod.spec.termination_grace_period
        ends = 0.0
        if request.deadline is None:
            ends = (DEFAULT_GRACE_PERIOD if grace is None else grace) + TERMINATION_MARGIN
        moving = now + BACKGROUND_TIMEOUT if in_background else now
        self._terminating[request.uid] = _TerminatingPod(request, now + ends, now + WATCH_LAG, moving)
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
            if pod is None or pod.uid != uid or pod.terminal or now >= max(each.until, each.unseen, each.moving):
                del self._terminating[uid]
