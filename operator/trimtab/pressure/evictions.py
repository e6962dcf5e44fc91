"""Evicts pods from nodes under pressure, one pod per node at a time.

    evictions.start(EvictionJob(policy, node, candidates, …))   # returns at once
    leaving = evictions.leaving("n1")     # the pod that is being evicted from n1, until it no longer exists

The planner decides in each interval whether a pod must leave a node, and which one. An eviction has these steps:

1. Wait until the node's state names the pod. After a restart, the next process therefore waits for the same pod.
2. Ask the evictor for admission. It knows the evictions of all controllers and their PodDisruptionBudgets. The eviction
   has a deadline, so that it does not wait for rate limits of voluntary evictions.
3. Send the request. If the API server refuses it, the next candidate is tried. A refused pod is tried again with
   backoff.

The node is busy until the pod no longer exists, but at most until
:data:`~trimtab.pressure.planner.POD_CLEANUP_TIMEOUT` seconds after its grace period, as in the kubelet.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.cluster.lister import Lister
from trimtab.cluster.workloads.owners import owner_key
from trimtab.controller.loop import BackgroundTasks
from trimtab.disruption.evictor import Evictor, Permit
from trimtab.disruption.evictor.requests import PRESSURE, EvictionRequest, EvictionResponse, Requester, ResponseCode
from trimtab.disruption.outcome import Refusal
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.objects import Pod
from trimtab.kube.resources import ObjectReference
from trimtab.kube.retry import Backoff
from trimtab.kube.token_bucket import TokenBucket
from trimtab.pressure.planner import POD_CLEANUP_TIMEOUT, STRATEGY, PlannedEviction
from trimtab.pressure.report import PressureReporter

log = logging.getLogger(__name__)

CONCURRENCY: Final = 32
"""Maximum number of concurrent requests for all nodes. All controllers share the connections to the API server."""

TIMEOUT: Final = 30.0
"""Timeout of one request in seconds. It is the maximum timeout of an admission webhook."""

ADMISSION_TIMEOUT: Final = 30.0
"""Seconds after which an eviction that the evictor does not admit is left to the next plan."""

OVERDUE: Final = 5.0
"""Seconds for which an eviction waits for outstanding disruptions of its budget. After that, the API server decides."""

RETRY: Final = Backoff(initial=5.0, maximum=20.0, jitter=0.2)
"""Backoff of a pod whose eviction was refused. Pods are tried again in the interval after it. It is short, because the
memory of a node may be used up a minute after its budget allows an eviction again."""

LOST_REQUEST: Final = 30.0
"""Seconds for which the API server may still carry out a request after :data:`TIMEOUT`. It ends requests after 60 s."""

MAX_LOST: Final = 3
"""Number of attempts without an answer after which other pods are tried."""

MAX_TRIES: Final = 6
"""Maximum number of pods that one eviction tries for the first time, and of refused pods that it tries again. The
budget of one app may refuse dozens of pods on a node."""

REFUSAL_EXPIRY: Final = 600.0
"""Seconds after the last attempt for which a refused pod is remembered."""

BACKGROUND_TIMEOUT: Final = 120.0
"""Seconds for which the node is busy if a webhook carries out the eviction in the background."""

FAILED_PODS_PER_SECOND: Final = 5.0
FAILED_PODS_BURST: Final = 20.0
"""The rate at which failed pods are deleted, for all policies together."""

MAX_FAILED_PODS: Final = 50
"""Maximum number of failed pods that one iteration of a policy deletes."""

_REFUSED: Final = frozenset(
    {ResponseCode.BUDGET, ResponseCode.SEVERAL_BUDGETS, ResponseCode.REFUSED, ResponseCode.REJECTED}
)


class EvictionJob(Struct, frozen=True, eq=False):
    """A pod to evict from a node.

    Attributes:
        policy: the policy.
        node: name of the node.
        candidates: the pod to evict, then the pods to try if it is refused.
        record_eviction: stores in the node's state that a pod, given by its UID, is being evicted.
        record_refusal: stores in the node's state that the API server has refused to evict a pod, given by its UID.
        still_needed: returns whether a candidate must still be evicted. The policy, the node or its kubelet may have
            changed since the plan.
    """

    policy: ObjectReference
    node: str
    candidates: Sequence[PlannedEviction]
    record_eviction: Callable[[str], Awaitable[bool]]
    record_refusal: Callable[[str], None]
    still_needed: Callable[[PlannedEviction], bool]


class RefusedPod(Struct, frozen=True):
    """A pod whose eviction the API server has refused.

    Attributes:
        key: the pod's ``namespace/name``.
        policy: name of the policy.
        reason: a reason code.
        message: the API server's message.
        attempts: number of attempts.
        uncertain: whether the API server may still evict the pod, because it did not answer.
        at: the time of the last attempt on the monotonic clock.
        retry_at: the time of the next attempt on the monotonic clock.
    """

    key: str
    policy: str
    reason: str
    message: str
    attempts: int
    uncertain: bool
    at: float
    retry_at: float


class _Leaving(Struct, frozen=True):
    """A pod whose eviction was granted, and until when its node is busy, on the monotonic clock."""

    pod: Pod
    until: float


class _Running(Struct, eq=False):
    """An eviction in progress, which the API server has neither granted nor refused yet.

    Attributes:
        job: the eviction.
        pod: the candidate that is being tried.
        sent: whether a request is in flight.
        withdrawn: whether the pod need not be evicted any more.
    """

    job: EvictionJob
    pod: Pod
    sent: bool = False
    withdrawn: bool = False


class NodeEvictions:
    """Carries out the evictions of all policies.

    Args:
        api: the API client. It sends no request once another process may be the leader.
        evictor: admits and sends the evictions and deletions of all controllers.
        lister: the cache of pods.
        clock: the wall clock and the monotonic clock.
        stale: returns the reason why the cache is too old to act on; ``None`` if it is up to date.
        reporter: reports the results.
    """

    def __init__(
        self,
        *,
        api: Api,
        evictor: Evictor,
        lister: Lister,
        clock: Clock,
        stale: Callable[[], str | None],
        reporter: PressureReporter,
    ) -> None:
        self._api = api
        self._evictor = evictor
        self._lister = lister
        self._clock = clock
        self._stale = stale
        self._reporter = reporter
        self._running: dict[str, _Running] = {}
        self._leaving: dict[str, _Leaving] = {}
        self._refused: dict[str, RefusedPod] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._cleaning: dict[str, str] = {}
        self._pace = TokenBucket(rate=FAILED_PODS_PER_SECOND, burst=FAILED_PODS_BURST, now=clock.monotonic())
        self._slots = asyncio.Semaphore(min(CONCURRENCY, evictor.limits.max_concurrent or CONCURRENCY))
        self._tasks = BackgroundTasks()
        self._stopping = False

    # --- for the controllers ----------------------------------------------------------------------------------------

    def leaving(self, node: str) -> Pod | None:
        """Return the pod that is being evicted from a node; ``None`` if there is none."""
        running = self._running.get(node)
        if running is not None:
            return self._lister.pod(running.pod.key) or running.pod
        return self.granted(node)

    def granted(self, node: str) -> Pod | None:
        """Return the pod on a node whose eviction the API server has granted; ``None`` if there is none."""
        found = self._leaving.get(node)
        if found is None:
            return None
        pod = self._lister.pod(found.pod.key)
        if pod is not None and pod.uid == found.pod.uid and not pod.terminal and self._now() < found.until:
            return pod
        del self._leaving[node]
        return None

    def forget_departed_pods(self) -> None:
        """Drop the evictions of pods that have left. :meth:`granted` does so only for nodes that still exist."""
        for node in list(self._leaving):
            self.granted(node)

    def ready(self, candidates: Iterable[PlannedEviction]) -> list[PlannedEviction]:
        """Return the candidates to try now, in their order: those that were not refused, or whose backoff has passed.

        Of the refused pods whose backoff has passed, the one that is ranked first is tried, so that any number of
        others does not delay it. Of the others, those whose backoff passed first are tried, so that each of them is
        tried again. Refused pods do not count toward the number of the other candidates. Otherwise, they would keep
        pods without a budget from being tried.

        As long as the API server may still evict one of them, no other one is tried.
        """
        now, candidates = self._now(), list(candidates)
        candidates = [each for each in candidates if self._may_be_evicted(each.pod, now)] or candidates
        retries = {
            each.pod.uid: refused.retry_at
            for each in candidates
            if each.how != "Delete" and (refused := self._refused.get(each.pod.uid)) is not None
        }
        first = [each.pod.uid for each in candidates if each.pod.uid not in retries]
        due = [uid for uid, retry_at in retries.items() if retry_at <= now]
        again = dict.fromkeys([*due[:1], *sorted(due, key=retries.__getitem__)])
        tried = {*first[:MAX_TRIES], *list(again)[:MAX_TRIES]}
        return [each for each in candidates if each.pod.uid in tried]

    def _may_be_evicted(self, pod: Pod, now: float) -> bool:
        found = self._refused.get(pod.uid)
        return found is not None and found.uncertain and now < found.at + LOST_REQUEST

    def refusal(self, pod: Pod) -> Refusal | None:
        """Return why the last attempt to evict a pod was refused; ``None`` if there was none."""
        found = self._refused.get(pod.uid)
        return None if found is None else Refusal(found.reason, f"pod {pod.key}: {found.message}")

    def start(self, job: EvictionJob) -> None:
        """Start an eviction in the background. No-op while another pod is being evicted from the node."""
        leaving, first = self.leaving(job.node), job.candidates[0]
        again = (
            first.shortens and job.node not in self._running and leaving is not None and leaving.uid == first.pod.uid
        )
        if self._stopping or (leaving is not None and not again):
            return
        running = self._running[job.node] = _Running(job, job.candidates[0].pod)
        self._tasks.start(self._run(running), f"evict a pod from node {job.node}")

    def withdraw(self, node: str) -> None:
        """Cancel an eviction that is not sent yet, because no pod needs to leave the node any more."""
        running = self._running.get(node)
        if running is not None:
            running.withdrawn = True

    def refused_pods(self, policy: str) -> list[RefusedPod]:
        """Return the pods of a policy whose eviction was refused, sorted by key. Pods that have left are dropped."""
        now = self._now()
        self._refused = {
            uid: each
            for uid, each in self._refused.items()
            if (pod := self._lister.pod(each.key)) is not None
            and pod.uid == uid
            and pod.deleted is None
            and now - each.at < REFUSAL_EXPIRY
        }
        return sorted((each for each in self._refused.values() if each.policy == policy), key=lambda each: each.key)

    def counts(self, policy_uid: str) -> Mapping[str, int]:
        """Return the numbers of pods that this process has ``Evicted``, ``Deleted`` and ``CleanedUp`` for a policy."""
        return {result: self._counts[policy_uid, result] for result in ("Evicted", "Deleted", "CleanedUp")}

    def delete_failed_pods(self, policy: ObjectReference, pods: Sequence[Pod], *, wanted: Callable[[], bool]) -> None:
        """Delete failed pods in the background, at a limited rate, as long as ``wanted`` returns true."""
        started = len([uid for uid, name in self._cleaning.items() if name == policy.name])
        for pod in pods[: MAX_FAILED_PODS - started]:
            if pod.uid not in self._cleaning and self._pace.take(self._now()):
                self._cleaning[pod.uid] = policy.name
                self._tasks.start(self._delete_failed(policy, pod, wanted), f"delete failed pod {pod.key}")

    async def stop(self, seconds: float) -> None:
        """Start no further request, and wait up to ``seconds`` for those in flight."""
        self._stopping = True
        await self._tasks.stop(seconds)

    # --- one eviction -----------------------------------------------------------------------------------------------

    async def _run(self, running: _Running) -> None:
        job = running.job
        try:
            for planned in job.candidates:
                running.pod = planned.pod
                if not await self._try(running, planned):
                    return
        except Exception:  # the next plan tries again
            log.exception("Failed to evict pod %s from node %s: unexpected error", running.pod.key, job.node)
        finally:
            del self._running[job.node]
            for planned in job.candidates:
                self._evictor.withdraw(planned.pod.uid, _requester_of(job))

    async def _try(self, running: _Running, planned: PlannedEviction) -> bool:
        """Try to evict one candidate, and return whether to try the next one, because it was refused."""
        job, pod = running.job, planned.pod
        if not self._needed(running, planned) or not await job.record_eviction(pod.uid):
            return False
        answer = await self._request(running, planned)
        if answer is None:
            return False
        if answer.granted or answer.code is ResponseCode.BACKGROUND:
            self._granted(job, planned, in_background=not answer.granted)
            return False
        if answer.code is ResponseCode.GONE:
            return False
        self._note_refusal(job, planned, answer)
        return answer.code in _REFUSED

    async def _request(self, running: _Running, planned: PlannedEviction) -> EvictionResponse | None:
        """Send the request; return ``None`` if the pod need not be evicted any more, or is not admitted in time."""
        began, due = self._now(), self._clock.now()
        while self._needed(running, planned):
            waited = self._now() - began
            if waited > ADMISSION_TIMEOUT:
                return None
            async with self._slots:
                if not self._needed(running, planned):
                    return None
                request = self._request_for(running.job, planned, due=due, overdue=waited > OVERDUE)
                found = self._evictor.admit(request, planned.pod)
                if isinstance(found, Permit):
                    running.sent = True
                    return await self._send(running, found, planned)
            await self._clock.sleep(found.retry_after)
        return None

    async def _send(self, running: _Running, permit: Permit, planned: PlannedEviction) -> EvictionResponse | None:
        if planned.how == "Delete":
            await self._evictor.mark_disruption_target(
                permit,
                self._api,
                reason=reasons.DELETION_BY_NODE_PRESSURE,
                message=f"trimtab: {planned.message}",
                timeout=TIMEOUT,
            )
            if not self._needed(running, planned):
                self._evictor.cancel(permit)
                return None
        return await self._evictor.send(permit, self._api, timeout=TIMEOUT)

    def _request_for(self, job: EvictionJob, planned: PlannedEviction, *, due: float, overdue: bool) -> EvictionRequest:
        pod = planned.pod
        return EvictionRequest(
            namespace=pod.namespace,
            pod=pod.name,
            uid=pod.uid,
            requester=_requester_of(job),
            node=job.node,
            owner=owner_key(pod),
            how=planned.how,
            reason=planned.reason,
            message=planned.message,
            grace_period=planned.grace_period,
            deadline=due,
            overdue=overdue,
        )

    def _needed(self, running: _Running, planned: PlannedEviction) -> bool:
        if self._stopping or running.withdrawn or self._stale() is not None or not running.job.still_needed(planned):
            return False
        pod = planned.pod
        current = self._lister.pod(pod.key)
        if current is None or current.uid != pod.uid or current.terminal:
            return False
        return current.deleted is None or planned.shortens

    def _granted(self, job: EvictionJob, planned: PlannedEviction, *, in_background: bool) -> None:
        pod = planned.pod
        seconds = BACKGROUND_TIMEOUT if in_background else planned.grace_period + POD_CLEANUP_TIMEOUT
        self._leaving[job.node] = _Leaving(pod, self._now() + seconds)
        self._refused.pop(pod.uid, None)
        if planned.shortens:  # the pod was counted when its eviction was granted
            log.info(
                "Shortened the grace period of terminating pod %s on node %s: %s", pod.key, job.node, planned.message
            )
        if in_background or planned.shortens:
            return
        result = "Deleted" if planned.how == "Delete" else "Evicted"
        self._counts[job.policy.uid, result] += 1
        self._reporter.evicted(job.policy, job.node, planned)

    def _note_refusal(self, job: EvictionJob, planned: PlannedEviction, answer: EvictionResponse) -> None:
        pod, now = planned.pod, self._now()
        known = self._refused.get(pod.uid)
        attempts = 0 if known is None else known.attempts
        refusal = answer.code in _REFUSED
        if refusal:
            job.record_refusal(pod.uid)
        reason = _reason_of(answer)
        self._refused[pod.uid] = RefusedPod(
            key=pod.key,
            policy=job.policy.name,
            reason=reason,
            message=answer.message,
            attempts=attempts + 1,
            uncertain=answer.code is ResponseCode.IN_DOUBT and attempts < MAX_LOST,
            at=now,
            retry_at=now + RETRY.delay(attempts),
        )
        self._reporter.refused(job.policy, job.node, planned, reason=reason, message=answer.message)

    # --- failed pods ------------------------------------------------------------------------------------------------

    async def _delete_failed(self, policy: ObjectReference, pod: Pod, wanted: Callable[[], bool]) -> None:
        """Delete a pod that the kubelet evicted. It runs no container, so no grace period and no budget applies."""
        request = EvictionRequest(
            namespace=pod.namespace,
            pod=pod.name,
            uid=pod.uid,
            requester=Requester(PRESSURE, policy.name, reasons.FAILED_POD_CLEANUP),
            node=pod.node,
            how="Delete",
            reason=reasons.FAILED_POD_CLEANUP,
        )
        try:
            async with self._slots:
                if self._stopping or self._stale() is not None or not wanted():
                    return
                permit = self._evictor.admit(request, pod)
                if not isinstance(permit, Permit):
                    return  # the next iteration tries again
                answer = await self._evictor.send(permit, self._api, timeout=TIMEOUT)
        finally:
            del self._cleaning[pod.uid]
        if answer.granted:
            self._counts[policy.uid, "CleanedUp"] += 1
            self._reporter.cleaned_up(policy, pod)
        elif answer.code is not ResponseCode.GONE:
            log.info("Failed to delete failed pod %s: %s", pod.key, answer.message)

    def _now(self) -> float:
        return self._clock.monotonic()


def _requester_of(job: EvictionJob) -> Requester:
    return Requester(PRESSURE, job.policy.name, STRATEGY)


def _reason_of(answer: EvictionResponse) -> str:
    if answer.code in (ResponseCode.BUDGET, ResponseCode.SEVERAL_BUDGETS):
        return reasons.DISRUPTION_BUDGET
    return reasons.EVICTION_REFUSED if answer.code is ResponseCode.REFUSED else reasons.EVICTION_FAILED


def candidates_of(evict: PlannedEviction | None, alternatives: Sequence[PlannedEviction]) -> list[PlannedEviction]:
    """Return the pod to evict, followed by the pods to try if it is refused."""
    return [] if evict is None else [evict, *alternatives]
