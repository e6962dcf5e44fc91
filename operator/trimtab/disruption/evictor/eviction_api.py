"""Sends eviction and deletion requests to the API server and interprets the responses.

No other module sends these requests. Every request carries the UID of the planned pod as a precondition, so that a new
pod with the same name (for example of a StatefulSet) is never evicted by mistake. No function raises an exception for
an API error or a missing response. It returns a :class:`~trimtab.disruption.evictor.requests.ResponseCode` instead, and
the requester decides how to react.
"""

from __future__ import annotations

import re
from typing import Any, Final

from trimtab.api.plan import rfc3339
from trimtab.api.reasons import (
    ALREADY_GONE,
    DISRUPTION_BUDGET,
    EVICTION_FAILED,
    EVICTION_IN_BACKGROUND,
    EVICTION_REFUSED,
)
from trimtab.api.reasons import EVICTED as EVICTED_REASON
from trimtab.cluster.disruption_signals import DISRUPTION_TARGET
from trimtab.disruption.evictor.requests import (
    BUDGET_REFUSER,
    DOUBTFUL,
    EVICTION_CONDITION,
    EvictionRequest,
    EvictionResponse,
    ResponseCode,
    Way,
)
from trimtab.disruption.outcome import (
    DELETED,
    EVICTED,
    EVICTED_RESPONSE_LOST,
    FAILED,
    GONE,
    REFUSED,
    STARTED,
    AttemptResult,
)
from trimtab.kube import verbs
from trimtab.kube.api import (
    Api,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotLeading,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from trimtab.kube.resources import PODS

TAKEN_OVER: Final = "Eviction triggered evacuation"
"""Message of KubeVirt's webhook in a 429 response, which means that KubeVirt carries out the eviction itself.

The upstream descheduler matches the same string (KEP-1397).
"""

_REFUSERS: Final = (
    re.compile(r'webhook "([^"]+)"'),  # "denied the request" and "failed calling"
    re.compile(r"(ValidatingAdmissionPolicy '[^']+')"),
)


async def send_eviction(api: Api, request: EvictionRequest, *, timeout: float) -> EvictionResponse:
    """Send one eviction request (policy/v1 Eviction), which respects PodDisruptionBudgets.

    Args:
        api: the API server.
        request: the request. Its ``uid`` is the precondition.
        timeout: timeout of the request in seconds.
    """
    options: dict[str, Any] = {"preconditions": {"uid": request.uid}}
    if request.grace_period is not None:
        options["gracePeriodSeconds"] = request.grace_period
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": request.pod, "namespace": request.namespace},
        "deleteOptions": options,
    }
    path = PODS.path(request.pod, namespace=request.namespace, subresource="eviction")
    try:
        await api.request("POST", path, body=body, timeout=timeout)
    except (ApiError, Unreachable) as error:
        return response_of(error)
    return EvictionResponse(ResponseCode.GRANTED)


async def send_deletion(api: Api, request: EvictionRequest, *, timeout: float) -> EvictionResponse:
    """Send one deletion request. PodDisruptionBudgets do not apply to deletions.

    Args:
        api: the API server.
        request: the request. Its ``uid`` is the precondition, and its ``grace_period`` replaces that of the pod.
        timeout: timeout of the request in seconds.
    """
    try:
        await verbs.delete(
            api,
            PODS,
            request.pod,
            namespace=request.namespace,
            uid=request.uid,
            grace_period=request.grace_period,
            accept=verbs.METADATA_ONLY,
            timeout=timeout,
        )
    except (ApiError, Unreachable) as error:
        return response_of(error)
    return EvictionResponse(ResponseCode.GRANTED)


async def mark_disrupted(
    api: Api, request: EvictionRequest, *, reason: str, message: str, now: float, timeout: float
) -> EvictionResponse | None:
    """Set the condition DisruptionTarget on a pod that is about to be deleted.

    Controllers and the pod failure policies of Jobs then do not count the deletion as a failure.

    Args:
        api: the API server.
        request: identifies the pod.
        reason: reason of the condition.
        message: message of the condition.
        now: seconds since the epoch.
        timeout: timeout of the request in seconds.

    Returns:
        ``None`` on success; otherwise the failed response.
    """
    condition = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(now),
    }
    try:
        await verbs.patch_conditions(
            api, PODS, request.pod, [condition], namespace=request.namespace, uid=request.uid, timeout=timeout
        )
    except (ApiError, Unreachable) as error:
        return response_of(error)
    return None


async def confirm_eviction(api: Api, request: EvictionRequest, *, timeout: float) -> EvictionResponse | None:
    """Read the pod to find out whether a request whose response was lost has evicted it.

    Returns:
        ``GRANTED`` if the pod no longer exists or is terminating because of an eviction, ``GONE`` if it is terminating
        for another reason, ``IN_DOUBT`` if it could not be read; ``None`` if it is still running.
    """
    try:
        found = await verbs.get(api, PODS, request.pod, namespace=request.namespace, timeout=timeout)
    except NotFound:
        return EvictionResponse(ResponseCode.GRANTED)
    except (ApiError, Unreachable) as error:
        return EvictionResponse(ResponseCode.IN_DOUBT, str(error), transient=True)
    metadata = found.get("metadata", {})
    if metadata.get("uid") != request.uid:
        return EvictionResponse(ResponseCode.GRANTED)
    if not metadata.get("deletionTimestamp"):
        return None
    conditions = found.get("status", {}).get("conditions") or []
    if any((each.get("type"), each.get("reason")) == EVICTION_CONDITION for each in conditions):
        return EvictionResponse(ResponseCode.GRANTED)
    return EvictionResponse(ResponseCode.GONE, "the pod is terminating, but not because of an eviction")


def response_of(error: ApiError | Unreachable) -> EvictionResponse:
    """Convert an error from the API server to a response, for evictions, deletions and conditions."""
    message = str(error)
    if isinstance(error, NotLeading):
        return EvictionResponse(ResponseCode.NOT_SENT, message, transient=True)
    if isinstance(error, Unreachable):
        return EvictionResponse(ResponseCode.IN_DOUBT, message, transient=True)
    message, refuser = error.message, _rejecting_webhook(error.message)
    if isinstance(error, TooManyRequests):
        if TAKEN_OVER in message:
            return EvictionResponse(ResponseCode.BACKGROUND, message, refuser, error.retry_after)
        if error.disruption_budget:
            return EvictionResponse(
                ResponseCode.BUDGET, _budget_message(error), BUDGET_REFUSER, error.retry_after, transient=True
            )
    if refuser:
        transient = isinstance(error, TooManyRequests | ServerError)
        return EvictionResponse(ResponseCode.REFUSED, message, refuser, error.retry_after, transient=transient)
    return _outcome_without_refuser(error)


def _outcome_without_refuser(error: ApiError) -> EvictionResponse:
    message, retry_after = error.message, error.retry_after
    match error:
        case NotFound():
            return EvictionResponse(ResponseCode.GONE, message)
        case Conflict() if "UID" in message:  # upper case, so that the pod name druid-0 does not match
            return EvictionResponse(ResponseCode.GONE, message)
        case Invalid() if "metadata.uid: Invalid value" in message:  # the response to a patch of another pod
            return EvictionResponse(ResponseCode.GONE, message)
        # registry/core/pod/storage/eviction.go has no code of its own for this, only a 500 with this message.
        case ServerError() if "more than one PodDisruptionBudget" in message:
            return EvictionResponse(ResponseCode.SEVERAL_BUDGETS, message, BUDGET_REFUSER)
        case ServerError():
            return EvictionResponse(ResponseCode.IN_DOUBT, message, retry_after=retry_after, transient=True)
        case TooManyRequests():
            return EvictionResponse(ResponseCode.OVERLOADED, message, retry_after=retry_after, transient=True)
        case Conflict():
            return EvictionResponse(ResponseCode.CONFLICT, message, retry_after=retry_after, transient=True)
        case Unauthorized():
            return EvictionResponse(ResponseCode.UNAUTHORIZED, message, retry_after=retry_after)
    lacks_permission = isinstance(error, Forbidden) and error.lacks_permission
    return EvictionResponse(ResponseCode.REJECTED, message, retry_after=retry_after, lacks_permission=lacks_permission)


def _rejecting_webhook(message: str) -> str:
    return next((found[1] for found in (pattern.search(message) for pattern in _REFUSERS) if found), "")


def _budget_message(error: TooManyRequests) -> str:
    """Return the error's message and those of its causes, which name the PodDisruptionBudget and its numbers."""
    causes = [cause.get("message", "") for cause in error.causes if cause.get("reason") == "DisruptionBudget"]
    return " ".join([error.message, *filter(None, causes)])


_ANSWERS: Final = {
    ResponseCode.GRANTED: (EVICTED, EVICTED_REASON),
    ResponseCode.GONE: (GONE, ALREADY_GONE),
    ResponseCode.BUDGET: (REFUSED, DISRUPTION_BUDGET),
    ResponseCode.SEVERAL_BUDGETS: (REFUSED, DISRUPTION_BUDGET),
    ResponseCode.REFUSED: (REFUSED, EVICTION_REFUSED),
    ResponseCode.OVERLOADED: (REFUSED, EVICTION_REFUSED),
    ResponseCode.BACKGROUND: (STARTED, EVICTION_IN_BACKGROUND),
}
"""Maps response codes to the result and the reason of an attempt.

All other codes result in Failed with the reason EvictionFailed.
"""


async def evict_once(api: Api, request: EvictionRequest, *, timeout: float) -> AttemptResult:
    """Send one eviction request. If the response is lost or a conflict, read the pod to see whether it was evicted.

    An API error is returned as a result and never raised.

    Args:
        api: the API server.
        request: the request.
        timeout: timeout of each request in seconds.
    """
    outcome = await send_eviction(api, request, timeout=timeout)
    if outcome.code not in DOUBTFUL:
        return attempt_result_of(outcome)
    confirmed = await resolve_lost_response(api, request, timeout=timeout)
    if not confirmed.retry:
        return confirmed
    # Without a response it is uncertain even if the pod runs: the API server may process the request after the timeout.
    uncertain = outcome.code is ResponseCode.IN_DOUBT or confirmed.uncertain
    return AttemptResult(FAILED, EVICTION_FAILED, outcome.message, retry=True, uncertain=uncertain)


async def resolve_lost_response(api: Api, request: EvictionRequest, *, timeout: float) -> AttemptResult:
    """Read the pod to find out the result of an attempt whose response was lost or a conflict.

    A pod that no longer exists counts as evicted by the attempt. Another client may have deleted it, but otherwise an
    eviction would not count toward the limits.

    Returns:
        Evicted if the pod no longer exists or is terminating because of an eviction; Gone if it is terminating for
        another reason; otherwise a result with ``retry``, which is ``uncertain`` if the API server did not respond.
    """
    confirmed = await confirm_eviction(api, request, timeout=timeout)
    if confirmed is None:
        return AttemptResult(
            FAILED, EVICTION_FAILED, "no response to the eviction, and the pod is still running", retry=True
        )
    if confirmed.granted:
        return EVICTED_RESPONSE_LOST
    if confirmed.code is ResponseCode.IN_DOUBT:
        message = f"no response to the eviction, and reading the pod failed: {confirmed.message}"
        return AttemptResult(FAILED, EVICTION_FAILED, message, retry=True, uncertain=True)
    return attempt_result_of(confirmed)


def attempt_result_of(outcome: EvictionResponse, *, how: Way = "Evict") -> AttemptResult:
    """Convert the response to a request into the result of the attempt. ``how`` is the request's ``how``."""
    if outcome.granted and how == "Delete":
        return AttemptResult(DELETED, EVICTED_REASON, "the API server granted the deletion")
    result, reason = _ANSWERS.get(outcome.code, (FAILED, EVICTION_FAILED))
    return AttemptResult(
        result,
        reason,
        outcome.message or "the API server granted the eviction",
        retry=outcome.transient,
        lacks_permission=outcome.lacks_permission,
        uncertain=outcome.code is ResponseCode.IN_DOUBT,
        retry_after=outcome.retry_after,
    )
