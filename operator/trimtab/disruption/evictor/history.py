"""Describes the results of eviction requests for the history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trimtab.api.history_record import Action, Controller, HistoryEntry, Result
from trimtab.api.reasons import PREEMPTED
from trimtab.api.scalars import to_time
from trimtab.disruption.evictor.requests import (
    AUTOSCALER,
    DESCHEDULER,
    PRESSURE,
    SCHEDULING,
    TAINTING,
    EvictionRequest,
)
from trimtab.disruption.outcome import DELETED, EVICTED, FAILED, REFUSED, STARTED, AttemptResult
from trimtab.kube.objects import Pod

_CONTROLLERS: Final[Mapping[str, Controller]] = {
    DESCHEDULER: "descheduler",
    AUTOSCALER: "autoscaler",
    TAINTING: "tainting",
    SCHEDULING: "scheduler",
    PRESSURE: "pressure",
}
_RESULTS: Final[Mapping[str, Result]] = {
    EVICTED: "Succeeded",
    DELETED: "Succeeded",
    STARTED: "Started",
    REFUSED: "Refused",
    FAILED: "Failed",
}


def history_entry(request: EvictionRequest, answer: AttemptResult, pod: Pod, *, now: float) -> HistoryEntry | None:
    """Return the entry for the result of a request; ``None`` if the request did not reach the pod.

    Args:
        request: the request.
        answer: its result.
        pod: the pod as it was before the request.
        now: the time of the result in seconds since the epoch.
    """
    result = _RESULTS.get(answer.result)
    if result is None or (answer.uncertain and answer.retry):
        return None
    succeeded, requester = result in ("Succeeded", "Started"), request.requester
    controller = pod.controller
    return HistoryEntry(
        time=to_time(now),
        controller=_CONTROLLERS[requester.controller],
        action=_action(request),
        reason=request.reason or answer.reason,
        result=result,
        message=request.message,
        result_reason=None if succeeded else answer.reason,
        result_message="" if succeeded else answer.message,
        # The autoscaler evicts on behalf of a node group, and the taint manager has one object only.
        policy=requester.name if requester.controller in (DESCHEDULER, SCHEDULING, PRESSURE) else "",
        strategy=requester.strategy,
        namespace=request.namespace,
        pod=request.pod,
        uid=request.uid,
        owner="" if controller is None else controller.qualified_name,
        node=request.node,
        target=request.target,
    )


def _action(request: EvictionRequest) -> Action:
    if request.reason == PREEMPTED:
        return "Preempt"
    return "Delete" if request.how == "Delete" else "Evict"
