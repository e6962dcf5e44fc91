"""The evictor: enforces limits, PodDisruptionBudgets and owner recovery across all controllers that evict pods.

A requester asks for admission and receives either a permit or the reason why the request must wait::

    found = evictor.admit(request, pod)
    if isinstance(found, PendingEviction):
        ...  # found.message is the reason; ask again in found.retry_after seconds
    else:
        answer = await evictor.evict(found, api, timeout=10.0)  # or send, if the requester retries

Admission makes these checks in this order, before the first ``await`` of the request:

1. Nothing is evicting the same pod, and no eviction of it was granted that the watch does not show yet. A request with
   a deadline waits only briefly for another requester's response, and not at all if it may end the pod sooner; after
   the eviction was granted, it waits for the watch. Preemptions wait for each other's response, because several
   preemptors can need the same victim.
2. If the request requires it (``settle``), the owner has recovered from its last eviction by any requester.
3. Unless the request is ``overdue``, outstanding evictions that the status of the pod's PodDisruptionBudget does not
   show yet do not use it up, and neither do the requests that take precedence.
4. The operator-wide limits: concurrent evictions and evictions per minute, in total and per namespace, node and owner.

In checks 1 to 3, requests without a deadline also wait for the EvictionRequests of other components: for the same pod,
for another pod of the owner, and for pods of the same PodDisruptionBudget (:mod:`.other_requests`).

Of the limits, requests with a deadline (evictions of pods on a tainted node, and of preemption victims) wait only for
that on concurrent requests, because a limit on voluntary evictions must neither keep a pod on a failed node nor delay a
pod with a high priority. They still count toward the limits, so that voluntary evictions wait for them.

Requesters that wait for the same limit or the same PodDisruptionBudget are admitted in the order in which they began to
wait. Requests with a deadline take precedence, and drains and node pressure precede the descheduler if they began to
wait at most :data:`~.waiting_requests.HEAD_START` later, so that no requester waits forever. A request that a
PodDisruptionBudget refused keeps its place until its requester repeats or withdraws it. All state is in memory. After a
restart, the status of budgets and the state of owners' pods show which evictions have been made, and the history shows
those of the last minute (:meth:`Evictor.restore`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

from trimtab.api.history_record import HistoryEntry
from trimtab.api.reasons import (
    DISRUPTION_BUDGET,
    WAITING_FOR_BUDGET,
    WAITING_FOR_EVICTION,
    WAITING_FOR_OWNER,
    WAITING_FOR_PLAN,
)
from trimtab.api.scalars import TIME_RESOLUTION, to_time
from trimtab.api.waiting_evictions import WaitingEvictions, keep_unchanged
from trimtab.cluster.workloads.owners import OwnerKey
from trimtab.controller.history import History, NoHistory
from trimtab.disruption.evictor.cluster_view import ClusterView
from trimtab.disruption.evictor.disruption_marks import DisruptionMarks
from trimtab.disruption.evictor.eviction_api import (
    attempt_result_of,
    confirm_eviction,
    evict_once,
    mark_disrupted,
    send_deletion,
    send_eviction,
)
from trimtab.disruption.evictor.eviction_log import log_eviction
from trimtab.disruption.evictor.evictions_in_progress import (
    WATCH_LAG,
    EvictionsInProgress,
    Permit,
    grace_period_of,
)
from trimtab.disruption.evictor.history import history_entry
from trimtab.disruption.evictor.metrics import EvictorMetrics
from trimtab.disruption.evictor.operator_limits import OperatorLimits
from trimtab.disruption.evictor.other_requests import OtherRequests, requester_of
from trimtab.disruption.evictor.outstanding_disruptions import OutstandingDisruptions
from trimtab.disruption.evictor.owner_events import OwnerEvents
from trimtab.disruption.evictor.owner_recovery import OwnerRecovery
from trimtab.disruption.evictor.requests import (
    DOUBTFUL,
    EVICTION_CONDITION,
    EvictionRequest,
    EvictionResponse,
    Requester,
)
from trimtab.disruption.evictor.retries import EvictionRetries
from trimtab.disruption.evictor.waiting_requests import BUDGET, REFUSAL_EXPIRY, PendingEviction, WaitingRequests
from trimtab.disruption.limits import (
    ALL,
    MINUTE,
    EvictionLimits,
    LimitScope,
    limit_scopes,
    scopes,
)
from trimtab.disruption.outcome import DELETED, EVICTED, REFUSED, STARTED, AttemptResult
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.objects import Pod, PodDisruptionBudget

T = TypeVar("T")

CONFIRM_TIMEOUT: Final = 5.0
"""Timeout in seconds of the read of a pod before its eviction is sent again because the response was lost.

It is short, because the eviction may no longer be necessary after the read, and the evictor does not check that again.
"""

RECHECK_TIME: Final = 1.0
"""Seconds after which a recheck that has not ended counts as waiting for a planner. Alone it takes milliseconds."""

MANY_IN_FLIGHT: Final = 8
"""Number of concurrent requests from which on writes that can wait, such as events, wait for them."""

CLEANUP_PERIOD: Final = 60.0
"""Seconds between two cleanups of the state of evictions and scopes."""


class Evictor:
    """Admits and records evictions of pods for all controllers of the process, and sends most of them.

    Attributes:
        budgets: the outstanding disruptions of PodDisruptionBudgets.
        others: the EvictionRequests of other components. Requests without a deadline wait for those of the same pod and
            of other pods of its owner, and leave them their share of the PodDisruptionBudget.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        view: ClusterView,
        limits: EvictionLimits | None = None,
        metrics: EvictorMetrics | None = None,
        history: History | None = None,
        owner_events: OwnerEvents | None = None,
    ) -> None:
        """Create the evictor.

        The caller must pass the watch events of PodDisruptionBudgets to :attr:`budgets`, and those of EvictionRequests
        to :attr:`others`.

        Args:
            clock: wall clock and monotonic clock.
            view: read access to cached pods.
            limits: operator-wide limits; ``None`` for no limits.
            metrics: counts evictions and exports pending evictions; ``None`` for no metrics.
            history: records evictions and refusals; ``None`` for no records.
            owner_events: emits events on the controllers of evicted pods; ``None`` for no events.
        """
        self.budgets = OutstandingDisruptions()
        self.others = OtherRequests()
        self._clock = clock
        self._view = view
        self._owners = OwnerRecovery()
        self._retries = EvictionRetries()
        self._in_progress = EvictionsInProgress(view)
        self._waiting = WaitingRequests()
        self._operator_limits = OperatorLimits(limits or EvictionLimits(), self._in_progress, self._waiting)
        self._unanswered: dict[str, tuple[int, float]] = {}  # by UID: grace period and time of an eviction
        self._marks = DisruptionMarks()
        self._cleanup_at = 0.0
        self._metrics = metrics
        self._recorded = history or NoHistory()
        self._owner_events = owner_events
        if metrics is not None:
            metrics.follow(self.waiting, lambda: len(self._in_progress.permits))

    @property
    def limits(self) -> EvictionLimits:
        """Return the operator-wide limits."""
        return self._operator_limits.limits

    def restore(self, entries: Iterable[HistoryEntry], pods: Iterable[Pod]) -> int:
        """Count the evictions of an earlier process toward the limits, and return the number of those counted.

        Call it before the first request. An earlier process that was killed has not recorded its last evictions, so
        terminating pods that the Eviction API evicted are counted as well.

        Args:
            entries: the actions of the last minute in the history.
            pods: all pods in the cache.
        """
        now, now_epoch = self._now(), self._clock.now()
        counted: dict[str, tuple[float, tuple[LimitScope, ...]]] = {}
        for entry in entries:
            if entry.action in ("Evict", "Delete", "Preempt") and entry.result in ("Succeeded", "Started"):
                kind, _, name = entry.owner.rpartition("/")
                owner = OwnerKey(entry.namespace, kind, name) if kind else None
                counted[entry.uid] = entry.time.timestamp(), (ALL, *scopes(entry.node, entry.namespace, owner))
        for pod in pods:
            if pod.deleted is None or pod.terminal:
                continue
            at = next((each.since for each in pod.conditions if (each.type, each.reason) == EVICTION_CONDITION), None)
            if at is not None:
                counted.setdefault(pod.uid, (at, (ALL, *limit_scopes(pod))))
                self._in_progress.restore(pod, now, now_epoch)
        latest = [(min(at + TIME_RESOLUTION, now_epoch), places) for at, places in counted.values()]
        recent = [(at, places) for at, places in latest if now_epoch - MINUTE < at]
        for at, places in sorted(recent):
            self._operator_limits.take(places, now - (now_epoch - at))
        return len(recent)

    # --- admission -----------------------------------------------------------------------------------------------

    def admit(self, request: EvictionRequest, pod: Pod) -> Permit | PendingEviction:
        """Admit a request and reserve its share of the limits, or return the reason why it must wait.

        The requester repeats the call until the request is admitted, or it abandons the request.

        Args:
            request: the request.
            pod: the pod from the cache.
        """
        now = self._now()
        found = self._already_evicted(request, now) or self._requested_by_others(request)
        found = found or self.owner_unsettled(request, pod)
        found = found or self._budget(request, pod, now) or self._operator_limits.check(request, now)
        if found is not None:
            return found
        self._waiting.end(request.uid, request.requester)
        self._operator_limits.take(request.scopes, now)
        if request.how == "Evict":
            self.budgets.hold(pod, request.requester)
        permit = Permit(request, pod, now)
        self._in_progress.permits[permit] = None
        self._clean_up(now)
        return permit

    def withdraw(self, uid: str, requester: Requester) -> None:
        """End a request that its requester does not repeat: drop its place and the count of its failed attempts.

        A request that has been admitted is ended with :meth:`cancel`.

        Args:
            uid: UID of the pod.
            requester: the requester.
        """
        self._waiting.end(uid, requester)
        self._retries.forget(uid, requester)

    def retry_delay(
        self, uid: str, requester: Requester, *, by_budget: bool, retry_after: float | None = None
    ) -> float:
        """Count a failed attempt of a request, and return the seconds until its requester repeats it.

        The delays begin again after :meth:`withdraw` and after a success.

        Args:
            uid: UID of the pod.
            requester: the requester.
            by_budget: whether a PodDisruptionBudget refused the eviction.
            retry_after: seconds to wait, as requested by the API server; ``None`` if it requested nothing.
        """
        return self._retries.delay(uid, requester, by_budget=by_budget, retry_after=retry_after)

    def busy(self) -> bool:
        """Return whether at least :data:`MANY_IN_FLIGHT` requests are admitted and not concluded."""
        return len(self._in_progress.permits) >= MANY_IN_FLIGHT

    def owner_unsettled(self, request: EvictionRequest, pod: Pod) -> PendingEviction | None:
        """Return the reason why the pod's owner has not recovered from its last eviction.

        The result is ``None`` if the owner has recovered, or if the request need not wait for that.
        """
        owner = request.workload
        if not request.settle or owner is None:
            return None
        pods = self._view.owned_by(owner)
        message = self._owners.unsettled(
            owner,
            pod,
            pods,
            desired=self._view.desired_replicas(owner),
            now=self._now(),
            now_epoch=self._clock.now(),
        )
        if message is None:
            return self._owner_requested_by_others(request, owner, pods)
        other = self._owners.requester(owner)
        if other is not None and other.controller != request.requester.controller:
            message = f"{message} (by {other})"
        return self._waiting.add(request, WAITING_FOR_OWNER, message, other, now=self._now())

    def waiting(self) -> tuple[PendingEviction, ...]:
        """Return the waiting requests, those that have waited longest first."""
        now = self._now()
        found = self._waiting.all(now=now)
        found += [
            PendingEviction(
                request=each.request,
                reason=WAITING_FOR_PLAN,
                message="a planner is using the snapshot that is needed to check the eviction",
                waits_for=None,
                since=each.rechecked_since,
            )
            for each in self._in_progress.permits
            if each.rechecked_since is not None and now - each.rechecked_since >= RECHECK_TIME
        ]
        return tuple(sorted(found, key=lambda each: each.since))

    def waiting_status(
        self, controller: str, *, name: str = "", previous: Iterable[WaitingEvictions] = ()
    ) -> tuple[WaitingEvictions, ...]:
        """Return a controller's pending evictions in the form in which the status of its object contains them.

        Args:
            controller: a constant of :mod:`trimtab.disruption.evictor.requests`.
            name: name of the requester; ``""`` for all requesters of the controller.
            previous: the entries in the current status of the object.
        """
        groups: dict[tuple[str, str], list[PendingEviction]] = {}
        for each in self.waiting():
            requester = each.request.requester
            if requester.controller == controller and name in ("", requester.name):
                groups.setdefault((each.reason, str(each.waits_for or "")), []).append(each)
        began = self._clock.now() - self._now()
        found = [
            WaitingEvictions(
                reason=reason,
                waits_for=waits_for,
                count=len(group),
                since=to_time(round(began + group[0].since)),
                message=group[0].message,
            )
            for (reason, waits_for), group in groups.items()
        ]
        return keep_unchanged(found, previous)

    # --- sending -------------------------------------------------------------------------------------------------

    async def recheck(self, permit: Permit, check: Callable[[], Awaitable[T]]) -> T:
        """Await the check of an admitted request. While it waits for a planner, the request counts as waiting.

        Args:
            permit: a permit from :meth:`admit`.
            check: starts the check, which takes turns with the planners.
        """
        permit.rechecked_since = self._now()
        try:
            return await check()
        finally:
            permit.rechecked_since = None

    async def evict(self, permit: Permit, api: Api, *, timeout: float) -> AttemptResult:
        """Send the eviction once and conclude the permit with its result.

        Args:
            permit: a permit from :meth:`admit`.
            api: the API server.
            timeout: timeout of each request in seconds.
        """
        self.begin(permit)
        return await self.complete(permit, evict_once(api, permit.request, timeout=timeout))

    async def complete(self, permit: Permit, request: Coroutine[Any, Any, AttemptResult]) -> AttemptResult:
        """Await a request that is being sent and conclude its permit with the result.

        If the call is cancelled, the pod is treated as possibly evicted.
        """
        try:
            answer = await request
        except BaseException:
            self.cancel(permit, uncertain=True)
            raise
        self.conclude(permit, answer)
        return answer

    async def send(self, permit: Permit, api: Api, *, timeout: float) -> EvictionResponse:
        """Send the eviction or deletion once and conclude the permit with the response.

        The method is meant for requesters that retry until the pod no longer exists. If the response to the previous
        eviction was lost or a conflict, the pod is read first, because the watch may not show yet that it is
        terminating. If it cannot be read, the eviction is not sent.

        Args:
            permit: a permit from :meth:`admit`.
            api: the API server.
            timeout: timeout of the request in seconds.
        """
        self.begin(permit)
        request, how = permit.request, permit.request.how
        try:
            if how == "Delete":
                response = await send_deletion(api, request, timeout=timeout)
            elif self._lost_response(permit) and (
                found := await confirm_eviction(api, request, timeout=min(timeout, CONFIRM_TIMEOUT))
            ):
                response = found
            else:
                permit.sent_at = self._now()
                grace = grace_period_of(request, permit.pod)
                self._unanswered[request.uid] = grace, permit.sent_at  # also if this is cancelled
                response = await send_eviction(api, request, timeout=timeout)
        except BaseException:
            self.cancel(permit, uncertain=True)
            raise
        if response.code not in DOUBTFUL:
            self._unanswered.pop(request.uid, None)
        self.conclude(permit, attempt_result_of(response, how=how))
        return response

    def _lost_response(self, permit: Permit) -> bool:
        """Return whether the same eviction was sent before, and had no response or a conflict.

        A request that shortens the grace period of a terminating pod is not the same as the one that evicted the pod.
        """
        sent = self._unanswered.get(permit.request.uid)
        grace = grace_period_of(permit.request, permit.pod)
        return sent is not None and sent[0] == grace and permit.pod.deleted is None

    async def mark_disruption_target(
        self, permit: Permit, api: Api, *, reason: str, message: str, timeout: float
    ) -> EvictionResponse | None:
        """Set the condition DisruptionTarget on a pod that is about to be deleted, unless the pod has it already.

        From now on the permit is in flight. If the call is cancelled, the permit is cancelled as well. If the permit is
        concluded, the condition is always written, because the Eviction API has just written its own.

        Args:
            permit: a permit from :meth:`admit`.
            api: the API server.
            reason: reason of the condition.
            message: message of the condition.
            timeout: timeout of the request in seconds.

        Returns:
            ``None`` on success; otherwise the failed response.
        """
        request, now = permit.request, self._clock.now()
        if permit in self._in_progress.permits:
            permit.in_flight, permit.sent_at = True, self._now()
            if self._marks.has(permit.pod, reason, self._now()):
                return None
        try:
            failed = await mark_disrupted(api, request, reason=reason, message=message, now=now, timeout=timeout)
        except BaseException:
            self.cancel(permit)
            raise
        if failed is None:
            self._marks.wrote(request.uid, reason, self._now())
        return failed

    def begin(self, permit: Permit) -> None:
        """Record that the request is being sent. From now on, the owner may have lost the pod."""
        request, permit.in_flight, permit.sent_at = permit.request, True, self._now()
        if request.how == "Evict":
            self._marks.forget(request.uid)
        if (owner := request.workload) is not None:
            self._owners.open(
                owner,
                permit.pod,
                lambda: self._view.owned_by(owner),
                desired=self._view.desired_replicas(owner),
                now=self._now(),
                requester=request.requester,
            )

    def conclude(self, permit: Permit, answer: AttemptResult) -> None:
        """End a permit with the result of its request: keep its reservations if the pod is evicted, or release them.

        If the result is uncertain, the disruption remains outstanding in the pod's budget. A pod that is evicted in the
        background is counted once, even if its eviction is requested again before it ends.
        """
        if permit not in self._in_progress.permits:
            return
        self.response_received(permit)
        request, now, repeated = permit.request, self._now(), False
        if answer.result not in (EVICTED, DELETED, STARTED):
            self._release(permit, uncertain=answer.uncertain)
            self._keep_place(permit, answer)
        else:
            del self._in_progress.permits[permit]
            self._retries.forget(request.uid, request.requester)
            repeated = self._in_progress.granted(permit, answer, now)
            if repeated:
                self.budgets.release(permit.pod)
                self._operator_limits.give_back(request.scopes, permit.counted_at)
            else:
                self.budgets.granted(permit.pod, now=now)
            if (owner := request.workload) is not None:
                self._owners.grant(owner, request.uid, now=now)
        if not repeated and (not answer.retry or answer.result == REFUSED):
            entry = history_entry(request, answer, permit.pod, now=self._clock.now())
            if entry is not None:
                self._recorded.add(entry)
                if entry.result in ("Succeeded", "Started"):
                    log_eviction(entry, request, answer, permit.pod)
                if self._owner_events is not None:
                    self._owner_events.evicted(entry, permit.pod)
        if self._metrics is not None and not answer.retry and not repeated:
            self._metrics.count(request, answer.result)

    def conclude_released(self, permit: Permit, answer: AttemptResult) -> None:
        """Conclude a permit that was released although its request has evicted the pod, because the response was lost.

        The watch already shows the disruption, so that only the rates count it again.
        """
        permit.counted_at = self._now()
        self._operator_limits.take(permit.request.scopes, permit.counted_at)
        self._in_progress.permits[permit] = None
        self.conclude(permit, answer)

    def cancel(self, permit: Permit, *, uncertain: bool = False) -> None:
        """End a permit without a result and release its reservations.

        Args:
            permit: a permit from :meth:`admit`. The call has no effect if the permit has already been concluded.
            uncertain: whether the request may have been sent. If so, its disruption remains outstanding in the budget.
        """
        if permit in self._in_progress.permits:
            self._release(permit, uncertain=uncertain)

    def response_received(self, permit: Permit) -> None:
        """Record that the request is no longer in flight, although its result may not be known yet.

        The eviction counts toward the limits per minute from now on, because the request may have arrived late.
        """
        if permit.in_flight:
            permit.in_flight, now = False, self._now()
            self._operator_limits.postpone(permit.request.scopes, permit.counted_at, now)
            permit.counted_at = now

    def continues_in_background(self, permit: Permit) -> None:
        """Record that another component carries out the eviction. It then counts against no PodDisruptionBudget."""
        self.budgets.release(permit.pod)

    def _keep_place(self, permit: Permit, answer: AttemptResult) -> None:
        """Let a request that a PodDisruptionBudget refused wait for the budget until its requester repeats it."""
        if not answer.retry or answer.reason != DISRUPTION_BUDGET:
            return
        budget = self.budgets.budget_of(permit.pod)
        if budget is not None:
            message = f"PodDisruptionBudget {budget.name} allows no disruption now"
            scope: LimitScope = (BUDGET, budget.key)
            self._waiting.add(
                permit.request,
                WAITING_FOR_BUDGET,
                message,
                None,
                now=self._now(),
                limit=BUDGET,
                scope=scope,
                expiry=REFUSAL_EXPIRY,
            )

    def _release(self, permit: Permit, *, uncertain: bool) -> None:
        request = permit.request
        del self._in_progress.permits[permit]
        if (owner := request.workload) is not None:
            self._owners.close(owner, request.uid)
        if uncertain:
            self.budgets.granted(permit.pod, now=self._now())
            return
        self.budgets.release(permit.pod)
        self._operator_limits.give_back(request.scopes, permit.counted_at)

    # --- admission checks -------------------------------------------------------------------------------------------

    def _already_evicted(self, request: EvictionRequest, now: float) -> PendingEviction | None:
        by = self._in_progress.requester_evicting(request, now)
        if by is None:
            return None
        return self._waiting.add(request, WAITING_FOR_EVICTION, f"{by} is evicting the same pod", by, now=now)

    def _requested_by_others(self, request: EvictionRequest) -> PendingEviction | None:
        if request.deadline is not None:
            return None
        found = self.others.of_pod(request.namespace, request.uid, now=self._clock.now())
        if found is None:
            return None
        message = f"EvictionRequest {found.name} of {found.requester} is evicting the same pod"
        return self._waiting.add(request, WAITING_FOR_EVICTION, message, requester_of(found), now=self._now())

    def _owner_requested_by_others(
        self, request: EvictionRequest, owner: OwnerKey, pods: Sequence[Pod]
    ) -> PendingEviction | None:
        for pod in pods:
            if pod.uid == request.uid or pod.deleted is not None or pod.terminal:
                continue
            found = self.others.of_pod(owner.namespace, pod.uid, now=self._clock.now())
            if found is not None:
                message = (
                    f"EvictionRequest {found.name} of {found.requester} is evicting {pod.name} of the same {owner}"
                )
                return self._waiting.add(request, WAITING_FOR_OWNER, message, requester_of(found), now=self._now())
        return None

    def _budget_requested_by_others(self, request: EvictionRequest, budget: PodDisruptionBudget) -> list[Requester]:
        """Return the requesters of other pods of a budget that run and whose disruption its status does not show."""
        if request.deadline is not None:
            return []
        found = []
        for each in self.others.of_namespace(request.namespace, now=self._clock.now()):
            pod = None if each.pod_uid == request.uid else self._view.pod(each.pod_key)
            if pod is None or pod.uid != each.pod_uid or pod.deleted is not None or pod.name in budget.disrupted_pods:
                continue
            if self.budgets.budget_of(pod) is budget:
                found.append(requester_of(each))
        return found

    def _budget(self, request: EvictionRequest, pod: Pod, now: float) -> PendingEviction | None:
        if request.how != "Evict" or request.overdue:
            return None
        budget = self.budgets.budget_of(pod)
        if budget is None:
            return None
        scope = (BUDGET, budget.key)
        found = self.budgets.exhausted(pod, now=now)
        others = [] if found is not None else self._budget_requested_by_others(request, budget)
        if found is not None:
            message, requester = found.message, found.requester
        elif others and budget.disruptions_allowed <= len(others) + self.budgets.outstanding(budget, pod, now=now):
            message = (
                f"PodDisruptionBudget {budget.name} allows {budget.disruptions_allowed} disruptions, and "
                f"{len(others)} EvictionRequests are for other pods of it"
            )
            requester = others[0]
        else:
            ahead = self._waiting.ahead(request, BUDGET, scope, now)
            if not ahead or budget.disruptions_allowed > len(ahead) + self.budgets.outstanding(budget, pod, now=now):
                return None
            first = ahead[0].request
            message = f"PodDisruptionBudget {budget.name} must first allow the eviction of {first.pod}"
            requester = first.requester
        return self._waiting.add(request, WAITING_FOR_BUDGET, message, requester, limit=BUDGET, scope=scope, now=now)

    def _clean_up(self, now: float) -> None:
        if now < self._cleanup_at:
            return
        self._cleanup_at = now + CLEANUP_PERIOD
        self._in_progress.drop_ended(now)
        self._waiting.drop_expired(now)
        self._unanswered = {uid: sent for uid, sent in self._unanswered.items() if now - sent[1] < WATCH_LAG}
        self._marks.drop_expired(now)
        self._operator_limits.drop_expired(now)

    def _now(self) -> float:
        return self._clock.monotonic()
