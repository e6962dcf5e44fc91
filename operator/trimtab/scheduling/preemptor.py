"""Carries out preemptions: nominates the preemptor and removes the victims from its node.

    preemptor = PreemptionExecutor(api=api, evictor=evictor, lister=lister, ...)
    preemptor.start(preemption, message, displaced, ended)   # returns at once; calls `ended` after the last response

Source: kube-scheduler v1.36 ``framework/preemption/executor.go``. The steps of a preemption are, in this order:

1. The preemptor is nominated to the node (``status.nominatedNodeName``). As in kube-scheduler, the same request writes
   the condition PodScheduled. No victim is removed before the API server has stored the nomination. After a restart,
   the scheduler can therefore find the preemptor for which each victim is terminating.
2. The nomination of pods of lower priority that are nominated to the same node is cleared.
3. The victims are removed concurrently, and each is removed only while the preemptor still needs the node.
4. The executor waits until the watch shows that the victims are terminating. The executor does not wait for their
graceful termination: the preemptor is scheduled again when they are deleted, and preempts no further pods before that
(``PodEligibleToPreemptOthers``).

A preemption ends early if a request fails, or if the preemptor has been deleted, bound or gated in the meantime. In
that case no further victim is removed.

**PodDisruptionBudgets.** kube-scheduler chooses victims whose removal violates no budget if possible, and deletes all
victims. Here, a victim is evicted, so that the API server counts the disruption atomically against the budget, which
other requesters may be using at the same time. Only a victim that was chosen although its removal violates a budget is
deleted. If the API server refuses an eviction because of a budget although the plan expected otherwise, the preemptor
is scheduled again, possibly to another node. If the same victim is chosen again, it is deleted.

**Conditions.** Before a deletion, the victim gets the condition DisruptionTarget with the reason PreemptionByScheduler.
The Eviction API writes this condition itself with a different reason, which the executor corrects afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct, field

from trimtab.api.reasons import PREEMPTED, PREEMPTION_BY_SCHEDULER, UNSCHEDULABLE
from trimtab.cluster.lister import Lister
from trimtab.cluster.workloads.owners import owner_key
from trimtab.controller.loop import BackgroundTasks
from trimtab.disruption.evictor import Evictor, PendingEviction, Permit
from trimtab.disruption.evictor.requests import (
    SCHEDULING,
    EvictionRequest,
    EvictionResponse,
    Requester,
    ResponseCode,
    Way,
)
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Conflict, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.objects import Pod
from trimtab.kube.resources import PODS
from trimtab.scheduling.dependencies import SchedulingReporter
from trimtab.scheduling.planner import scheduler_of
from trimtab.scheduling.preemption import Preemption
from trimtab.scheduling.report import pod_scheduled_false

log = logging.getLogger(__name__)

CONCURRENCY: Final = 32
"""Maximum number of concurrent requests for all preemptions. All controllers share the connections to the API server.
"""

TIMEOUT: Final = 30.0
"""Timeout of one request in seconds. It is the maximum timeout of an admission webhook."""

TRIES: Final = 4
"""Maximum attempts of a request after transient failures. After the last one, the preemptor is scheduled again."""

OVERDUE: Final = 5.0
"""Seconds for which an eviction waits for outstanding disruptions of its budget. After that, the API server decides."""

REFUSAL_EXPIRY: Final = 120.0
"""Seconds for which a refusal by a PodDisruptionBudget is remembered. Pods are retried after at most 10 s."""

CONFIRM_TIMEOUT: Final = 10.0
"""Seconds within which the watch should show that the victims are terminating. After that, the preemptor continues."""

CONFIRM_PERIOD: Final = 0.05
"""Seconds between two checks of whether the victims are terminating."""


class _Running(Struct, eq=False):
    """A preemption that is being carried out.

    Attributes:
        preemption: the plan.
        message: the message for the preemptor's condition PodScheduled.
        began: the time of its start in seconds since the epoch.
        failed: whether a request has failed, so that no further victim is removed.
        granted: the victims whose eviction or deletion the API server has granted.
    """

    preemption: Preemption
    message: str
    began: float
    failed: bool = False
    granted: list[Pod] = field(default_factory=list)


class PreemptionExecutor:
    """Carries out preemptions in the background (:class:`~trimtab.scheduling.dependencies.Preemptor`).

    Args:
        api: the API client. It sends no request once another process may be the leader.
        evictor: admits and sends the evictions and deletions of all controllers.
        lister: the cache of pods.
        clock: the wall clock and the monotonic clock.
        stale: returns the reason why the cache is too old to act on; ``None`` if it is up to date.
        reporter: reports the victims.
        cancel_binding: cancels the binding of a pod that has a node only in the scheduler's memory, for example while
            its volumes are bound. It returns whether the binding was cancelled; ``False`` if it has already been sent.
    """

    def __init__(
        self,
        *,
        api: Api,
        evictor: Evictor,
        lister: Lister,
        clock: Clock,
        stale: Callable[[], str | None],
        reporter: SchedulingReporter,
        cancel_binding: Callable[[Pod], bool],
    ) -> None:
        self._api = api
        self._evictor = evictor
        self._lister = lister
        self._clock = clock
        self._stale = stale
        self._reporter = reporter
        self._cancel_binding = cancel_binding
        self._slots = asyncio.Semaphore(min(CONCURRENCY, evictor.limits.max_concurrent or CONCURRENCY))
        self._tasks = BackgroundTasks()
        self._refused: dict[str, float] = {}
        self._stopping = False

    def start(
        self, preemption: Preemption, message: str, displaced: Sequence[Pod], ended: Callable[[bool], None]
    ) -> None:
        """See :meth:`~trimtab.scheduling.dependencies.Preemptor.start`."""
        running = _Running(preemption, message, self._clock.now())
        self._tasks.start(self._run(running, displaced, ended), f"preemption for {preemption.pod.key}")

    def clear_nomination(self, pod: Pod) -> None:
        """See :meth:`~trimtab.scheduling.dependencies.Preemptor.clear_nomination`."""
        self._tasks.start(self._clear_nomination(pod), f"clear the nomination of {pod.key}")

    async def stop(self, seconds: float) -> None:
        """See :meth:`~trimtab.scheduling.dependencies.Preemptor.stop`."""
        self._stopping = True
        await self._tasks.stop(seconds)

    async def _run(self, running: _Running, displaced: Sequence[Pod], ended: Callable[[bool], None]) -> None:
        done = False
        try:
            done = await self._prepare(running, displaced)
        except Exception:  # a bug must not keep the preemptor out of the queue
            log.exception(
                "Failed to preempt pods to make room for pod %s: unexpected error", running.preemption.pod.key
            )
        finally:
            for victim in running.preemption.victims:
                self._evictor.withdraw(victim.uid, _requester_of(running.preemption))
            ended(done)

    async def _prepare(self, running: _Running, displaced: Sequence[Pod]) -> bool:
        """Make room for the preemptor (``prepareCandidate``), and return whether all requests succeeded."""
        preemption = running.preemption
        if not await self._nominate(running):
            return False
        clearing = [self._clear_nomination(pod) for pod in displaced]
        removing = [self._remove(running, victim) for victim in preemption.victims]
        results = await asyncio.gather(*clearing, *removing)
        if not all(results[len(clearing) :]):
            return False
        await self._confirm(running.granted)
        return True

    # --- nominations ----------------------------------------------------------------------------------------------

    async def _nominate(self, running: _Running) -> bool:
        """Nominate the preemptor to its node, and return whether it still is a pending pod."""
        pod, node = running.preemption.pod, running.preemption.node
        if not self._needed(running):
            return False
        current = self._lister.pod(pod.key)
        if current is not None and current.nominated_node == node:
            return True
        try:
            async with self._slots:
                stored = await self._store_nomination(pod, node, running.message)
        except (ApiError, Unreachable) as error:
            log.warning("Failed to set the nominated node of pod %s to %s: %s", pod.key, node, error)
            return False
        # The response is newer than the cache: another scheduler may just have bound the pod.
        pending = not stored.get("spec", {}).get("nodeName") and not stored["metadata"].get("deletionTimestamp")
        return pending and self._needed(running)

    async def _store_nomination(self, pod: Pod, node: str, message: str) -> dict[str, Any]:
        """Write the nomination, and the condition PodScheduled if it changes; return the pod as it is stored.

        The condition is written only to the version of the pod that the watch last reported. So it cannot reset the
        condition of a pod that has just been bound. If the pod has changed, only the nomination is written.
        """
        current = self._lister.pod(pod.key) or pod
        condition = pod_scheduled_false(current, UNSCHEDULABLE, message, self._clock.now())
        if condition is not None and current.uid == pod.uid and not current.node:
            with suppress(Conflict):
                return await verbs.strategic_patch(
                    self._api,
                    PODS,
                    pod.name,
                    {
                        "metadata": {"uid": pod.uid, "resourceVersion": current.resource_version},
                        "status": {"nominatedNodeName": node, "conditions": [condition]},
                    },
                    namespace=pod.namespace,
                    subresource="status",
                    timeout=TIMEOUT,
                )
        return await self._patch_nomination(pod, node)

    async def _clear_nomination(self, pod: Pod) -> bool:
        """Clear the nomination of a pod.

        A failure is not critical, because the pod loses the reserved capacity in any case.
        """
        try:
            async with self._slots:
                await self._patch_nomination(pod, None)
        except (ApiError, Unreachable) as error:
            log.info("Failed to clear the nominated node of pod %s (%s): %s", pod.key, pod.nominated_node, error)
            return False
        return True

    async def _patch_nomination(self, pod: Pod, node: str | None) -> dict[str, Any]:
        """Write ``status.nominatedNodeName``. The API server refuses the patch if the pod's UID is different."""
        return await verbs.merge_patch(
            self._api,
            PODS,
            pod.name,
            {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}},
            namespace=pod.namespace,
            subresource="status",
            timeout=TIMEOUT,
        )

    # --- victims --------------------------------------------------------------------------------------------------

    async def _remove(self, running: _Running, victim: Pod) -> bool:
        """Remove one victim, and return whether it no longer needs room on the node."""
        tries = 1
        while True:
            async with self._slots:
                if not self._needed(running):
                    return False
                current = self._lister.pod(victim.key)
                elsewhere = current is not None and current.node not in ("", running.preemption.node)
                if current is None or _leaving(current, victim) or elsewhere:
                    return True
                if not current.node and self._cancel_binding(current):
                    self._report(running, current)
                    return True
                answer = await self._request(running, current)
            if isinstance(answer, PendingEviction):
                await self._clock.sleep(answer.retry_after)
                continue
            if answer.granted or answer.code in (ResponseCode.GONE, ResponseCode.BACKGROUND):
                return True
            if answer.code is ResponseCode.SEVERAL_BUDGETS:
                self._remember_refusal(victim)  # the Eviction API grants no eviction of such a pod
                continue
            if answer.code is ResponseCode.BUDGET:
                self._remember_refusal(victim)
            elif answer.transient and tries < TRIES:
                requester = _requester_of(running.preemption)
                delay = self._evictor.retry_delay(
                    victim.uid, requester, by_budget=False, retry_after=answer.retry_after
                )
                await self._clock.sleep(delay)
                tries += 1
                continue
            running.failed = True
            log.warning(
                "Failed to evict pod %s from node %s to make room for pod %s (%s): %s",
                victim.key, running.preemption.node, running.preemption.pod.key, answer.code.value, answer.message,
            )  # fmt: skip
            return False

    async def _request(self, running: _Running, victim: Pod) -> EvictionResponse | PendingEviction:
        """Send the request that removes a victim, if the evictor admits it."""
        request = self._request_for(running, victim)
        permit = self._evictor.admit(request, victim)
        if isinstance(permit, PendingEviction):
            return permit
        if request.how == "Delete":
            failed = await self._mark(running, permit)
            if failed is None and not self._needed(running):
                failed = EvictionResponse(ResponseCode.NOT_SENT, "the preemption was stopped")
            if failed is not None:
                self._evictor.cancel(permit)
                return failed
        answer = await self._evictor.send(permit, self._api, timeout=TIMEOUT)
        if answer.granted:
            running.granted.append(victim)
            self._report(running, victim)
            if request.how == "Evict":
                await self._mark(running, permit)
        return answer

    def _request_for(self, running: _Running, victim: Pod) -> EvictionRequest:
        preemption = running.preemption
        refused = self._clock.monotonic() - self._refused.get(victim.uid, -REFUSAL_EXPIRY) < REFUSAL_EXPIRY
        how: Way = "Delete" if refused or victim.key in preemption.violating else "Evict"
        return EvictionRequest(
            namespace=victim.namespace,
            pod=victim.name,
            uid=victim.uid,
            requester=_requester_of(preemption),
            node=preemption.node,
            owner=owner_key(victim),
            how=how,
            reason=PREEMPTED,
            message=f"makes room for pod {preemption.pod.key}",
            deadline=running.began,
            overdue=self._clock.now() - running.began > OVERDUE,
        )

    async def _mark(self, running: _Running, permit: Permit) -> EvictionResponse | None:
        """Write the condition DisruptionTarget; return the failed response, or ``None`` on success."""
        name = scheduler_of(running.preemption.pod)
        return await self._evictor.mark_disruption_target(
            permit,
            self._api,
            reason=PREEMPTION_BY_SCHEDULER,
            message=f"{name}: preempting to accommodate a higher priority pod",
            timeout=TIMEOUT,
        )

    def _needed(self, running: _Running) -> bool:
        """Return whether victims may be removed: the preemptor is still a pending pod, and nothing has failed."""
        if self._stopping or running.failed or self._stale() is not None:
            return False
        pod = running.preemption.pod
        current = self._lister.pod(pod.key)
        return (
            current is not None
            and current.uid == pod.uid
            and current.deleted is None
            and not current.node
            and not current.spec.scheduling_gates
        )

    async def _confirm(self, victims: Sequence[Pod]) -> None:
        """Wait until the cache shows that the victims are terminating, so that no later plan counts on them."""
        until = self._clock.monotonic() + CONFIRM_TIMEOUT
        left = list(victims)
        while True:
            left = [each for each in left if not _leaving(self._lister.pod(each.key), each)]
            if not left or self._stopping or self._clock.monotonic() >= until:
                return
            await self._clock.sleep(CONFIRM_PERIOD)

    def _remember_refusal(self, victim: Pod) -> None:
        now = self._clock.monotonic()
        self._refused = {uid: at for uid, at in self._refused.items() if now - at < REFUSAL_EXPIRY}
        self._refused[victim.uid] = now

    def _report(self, running: _Running, victim: Pod) -> None:
        self._reporter.preempted(victim, running.preemption.pod, running.preemption.node)


def _requester_of(preemption: Preemption) -> Requester:
    return Requester(SCHEDULING, scheduler_of(preemption.pod))


def _leaving(current: Pod | None, victim: Pod) -> bool:
    """Return whether a victim is terminating, has terminated, or no longer exists."""
    return current is None or current.uid != victim.uid or current.deleted is not None or current.terminal
