"""Enforces the operator-wide limits on the evictions of all controllers."""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.api.reasons import WAITING_FOR_EVICTION_LIMIT
from trimtab.disruption.evictor.evictions_in_progress import EvictionsInProgress
from trimtab.disruption.evictor.requests import EvictionRequest
from trimtab.disruption.evictor.waiting_requests import PendingEviction, WaitingRequests
from trimtab.disruption.limits import ALL, EvictionLimits, LimitScope, describe_scope, pace_of
from trimtab.kube.token_bucket import SlidingWindow


class OperatorLimits:
    """Limits concurrent evictions and evictions per minute, in total and per namespace, node and owner.

    All times are in seconds on the monotonic clock.

    Args:
        limits: the limits.
        in_progress: the evictions in progress.
        waiting: the waiting requests, among which this class puts those that must wait for a limit.
    """

    def __init__(self, limits: EvictionLimits, in_progress: EvictionsInProgress, waiting: WaitingRequests) -> None:
        self.limits = limits
        self._in_progress = in_progress
        self._waiting = waiting
        self._windows: dict[LimitScope, SlidingWindow] = {}

    def check(self, request: EvictionRequest, now: float) -> PendingEviction | None:
        """Return the limit that a request must wait for; ``None`` if it need not wait.

        A request with a deadline waits only for the limit on concurrent requests.
        """
        for scope in request.scopes:
            found = self._concurrency_limited(request, scope, now)
            if found is not None:
                return found
        for scope in () if request.deadline is not None else request.scopes:
            found = self._rate_limited(request, scope, now)
            if found is not None:
                return found
        return None

    def _concurrency_limited(self, request: EvictionRequest, scope: LimitScope, now: float) -> PendingEviction | None:
        limit, name = self.limits.concurrent_of(scope[0]), _limit_name("maxConcurrentEvictions", scope)
        if limit is None:
            return None
        if request.deadline is None:
            busy = self._in_progress.voluntary(now)
            ahead = len(self._waiting.ahead(request, name, scope, now))
        else:  # the request waits for in-flight requests, not for rollouts, rechecks or slowly terminating pods
            busy, ahead = self._in_progress.in_flight(), 0
        if scope != ALL:
            busy = [each for each in busy if scope in each.scopes]
        if len(busy) + ahead < limit:
            return None
        others = {each.requester for each in busy}
        number = "1 eviction is" if len(busy) == 1 else f"{len(busy)} evictions are"
        message = f"{name} is {limit}, and {number} in progress{_where(scope)}"
        requester = next(iter(others)) if len(others) == 1 else None
        return self._waiting.add(
            request, WAITING_FOR_EVICTION_LIMIT, message, requester, limit=name, scope=scope, now=now
        )

    def _rate_limited(self, request: EvictionRequest, scope: LimitScope, now: float) -> PendingEviction | None:
        limit, name = self.limits.per_minute_of(scope[0]), _limit_name("evictionsPerMinute", scope)
        if limit is None:
            return None
        window = self._windows.get(scope)
        wait = 0.0 if window is None else window.wait(now)
        if wait <= 0.0 and not self._waiting.ahead(request, name, scope, now):
            return None
        message = f"{name} is {limit}" + _where(scope) + f", and the next may start in {wait:.0f}s"
        return self._waiting.add(request, WAITING_FOR_EVICTION_LIMIT, message, None, limit=name, scope=scope, now=now)

    def take(self, scopes: Iterable[LimitScope], at: float) -> None:
        """Count an eviction toward the limits per minute of its scopes."""
        for window in self._windows_of(scopes):
            window.take(at)

    def give_back(self, scopes: Iterable[LimitScope], at: float) -> None:
        """Undo :meth:`take`."""
        for window in self._windows_of(scopes):
            window.give_back(at)

    def postpone(self, scopes: Iterable[LimitScope], taken: float, at: float) -> None:
        """Count an eviction from the time of its response on, because its request may have arrived late."""
        for window in self._windows_of(scopes):
            window.postpone(taken, at)

    def _windows_of(self, scopes: Iterable[LimitScope]) -> list[SlidingWindow]:
        found = []
        for scope in scopes:
            limit = self.limits.per_minute_of(scope[0])
            if limit is not None:
                found.append(self._windows.setdefault(scope, SlidingWindow(*pace_of(limit))))
        return found

    def drop_expired(self, now: float) -> None:
        """Drop the evictions of more than a minute ago."""
        for window in self._windows.values():
            window.wait(now)  # drops them
        self._windows = {scope: window for scope, window in self._windows.items() if window}


def _limit_name(name: str, scope: LimitScope) -> str:
    return f"{name}Per{scope[0].capitalize()}" if scope[0] else name


def _where(scope: LimitScope) -> str:
    return "" if scope == ALL else f" for {describe_scope(scope)}"
