"""The requests that wait for admission, in the order in which they are admitted."""

from __future__ import annotations

from collections import Counter
from typing import Final, TypeAlias

from msgspec import Struct

from trimtab.disruption.evictor.requests import DESCHEDULER, EvictionRequest, Requester
from trimtab.disruption.evictor.retries import ADMISSION_RETRY, RETRIES_PER_SECOND
from trimtab.disruption.limits import ALL, LimitScope

REQUEST_EXPIRY: Final = 5.0
"""Seconds after which a waiting request is dropped if its requester has not repeated it."""

REFUSAL_EXPIRY: Final = 30.0
"""The same for a request that a PodDisruptionBudget refused. Requesters repeat it less often."""

HEAD_START: Final = 60.0
"""Seconds by which a request of a lower rank must have waited longer to precede a request of the next rank."""

_RANKS: Final = {DESCHEDULER: 2}
_DRAIN_RANK: Final = 1
"""Ranks of requests without a deadline, by controller. Requests with a deadline have rank 0."""

BUDGET: Final = "budget"
"""The kind of the scopes of requests that wait for a PodDisruptionBudget."""


class PendingEviction(Struct, frozen=True, kw_only=True):
    """A request that must wait before it is sent.

    Attributes:
        request: the request.
        reason: one of the reason codes ``WaitingFor…`` in :mod:`trimtab.api.reasons`.
        message: description of the reason with names and numbers.
        waits_for: the requester whose evictions the request waits for; ``None`` if it waits for several requesters or
            for none.
        since: the time at which the request began to wait, in seconds on the monotonic clock.
        scope: the scope whose limit it waits for; :data:`ALL` if it waits for no limit.
        retry_after: seconds after which the requester repeats the request.
    """

    request: EvictionRequest
    reason: str
    message: str
    waits_for: Requester | None
    since: float
    scope: LimitScope = ALL
    retry_after: float = ADMISSION_RETRY


class _Waiter(Struct):
    """A waiting request, what it waits for, and the time until which its requester may repeat it."""

    waiting: PendingEviction
    limit: str
    scope: LimitScope
    until: float


_WaiterKey: TypeAlias = tuple[str, Requester]
"""The UID of the pod, and the requester."""


class WaitingRequests:
    """The waiting requests of all requesters. Each waits until its requester repeats or withdraws it, or it expires."""

    def __init__(self) -> None:
        self._waiters: dict[_WaiterKey, _Waiter] = {}
        self._numbers: Counter[Requester] = Counter()
        """The number of waiting requests by requester."""
        self._lines: dict[tuple[str, LimitScope], dict[_WaiterKey, _Waiter]] = {}
        """The waiters by the limit and scope that they wait for."""

    def all(self, *, now: float) -> list[PendingEviction]:
        """Return the waiting requests, in any order."""
        self.drop_expired(now)
        return [each.waiting for each in self._waiters.values()]

    def end(self, uid: str, requester: Requester) -> None:
        """Drop a request that no longer waits.

        Args:
            uid: UID of the pod.
            requester: the requester.
        """
        self._drop((uid, requester))

    def ahead(self, request: EvictionRequest, limit: str, scope: LimitScope, now: float) -> list[PendingEviction]:
        """Return the requests of other requesters that precede a request at the same limit, the first one first."""
        mine = self._waiters.get((request.uid, request.requester))
        order = _order(request, now if mine is None else mine.waiting.since)
        found = [
            each.waiting
            for each in self._lines.get((limit, scope), {}).values()
            if now <= each.until
            and each.waiting.request.uid != request.uid
            and not each.waiting.request.requester.same_object(request.requester)
            and _order(each.waiting.request, each.waiting.since) < order
        ]
        return sorted(found, key=lambda each: _order(each.request, each.since))

    def add(
        self,
        request: EvictionRequest,
        reason: str,
        message: str,
        waits_for: Requester | None,
        *,
        now: float,
        limit: str = "",
        scope: LimitScope = ALL,
        expiry: float = REQUEST_EXPIRY,
    ) -> PendingEviction:
        """Let a request wait, or go on waiting: it keeps the time at which it began to wait.

        Args:
            request: the request.
            reason: one of the reason codes ``WaitingFor…``.
            message: description of the reason with names and numbers.
            waits_for: the requester whose evictions the request waits for; ``None`` for several or none.
            now: seconds on the monotonic clock.
            limit: name of the limit that the request waits for, or :data:`BUDGET`; ``""`` if it waits for neither.
            scope: the scope of the limit.
            expiry: seconds after which the request is dropped if its requester has not repeated it.
        """
        key = (request.uid, request.requester)
        known = self._waiters.get(key)
        retry_after = self._retry_after(request)
        since = now if known is None or now > known.until else known.waiting.since
        waiting = PendingEviction(
            request=request,
            reason=reason,
            message=message,
            waits_for=waits_for,
            since=since,
            scope=ALL if limit in ("", BUDGET) else scope,
            retry_after=retry_after,
        )
        self._drop(key)
        self._waiters[key] = self._lines.setdefault((limit, scope), {})[key] = _Waiter(
            waiting, limit, scope, now + max(expiry, 2 * retry_after)
        )
        self._numbers[request.requester] += 1
        return waiting

    def _retry_after(self, request: EvictionRequest) -> float:
        """Return the seconds until a waiting request is repeated, which are more if its requester has many of them.

        A drain and a policy repeat a request at least three times before it would be dropped. The taint manager has
        thousands of requests in a large outage, and repeats them less often.
        """
        spread = self._numbers[request.requester] / RETRIES_PER_SECOND
        if request.deadline is None:
            spread = min(spread, REQUEST_EXPIRY / 3)
        return max(ADMISSION_RETRY, spread)

    def _drop(self, key: _WaiterKey) -> None:
        waiter = self._waiters.pop(key, None)
        if waiter is not None:
            requester = key[1]
            self._numbers[requester] -= 1
            if not self._numbers[requester]:
                del self._numbers[requester]
            line = self._lines[waiter.limit, waiter.scope]
            del line[key]
            if not line:
                del self._lines[waiter.limit, waiter.scope]

    def drop_expired(self, now: float) -> None:
        """Drop the requests that their requesters have not repeated in time."""
        for key in [key for key, each in self._waiters.items() if now > each.until]:
            self._drop(key)


def _order(request: EvictionRequest, since: float) -> tuple[bool, float]:
    """Return the sort key by which requests at the same limit are admitted."""
    if request.deadline is not None:
        return False, request.deadline
    return True, since + HEAD_START * _RANKS.get(request.requester.controller, _DRAIN_RANK)
