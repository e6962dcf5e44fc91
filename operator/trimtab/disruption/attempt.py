"""One try at one eviction: what the API server's answer, or its silence, means for the action."""

from __future__ import annotations

from typing import Any, Final

from trimtab.api.plan import Evict
from trimtab.api.reasons import (
    ALREADY_GONE,
    DISRUPTION_BUDGET,
    EVICTION_FAILED,
    EVICTION_IN_BACKGROUND,
    EVICTION_REFUSED,
)
from trimtab.api.reasons import EVICTED as EVICTED_REASON
from trimtab.disruption.answer import Answer as Answer
from trimtab.disruption.outcome import EVICTED, FAILED, GONE, REFUSED, STARTED
from trimtab.kube import eviction, verbs
from trimtab.kube.api import Api, ApiError, Conflict, NotFound, ServerError, TooManyRequests, Unreachable
from trimtab.kube.resources import PODS

EVICTION_CONDITION: Final = ("DisruptionTarget", "EvictionByEvictionAPI")
"""Type and reason of the condition that the API server puts on a pod whose eviction it grants."""


LOST_ANSWER: Final = Answer(
    EVICTED, EVICTED_REASON, "the eviction was asked for, its answer was lost, and the pod has been evicted since"
)


async def attempt(api: Api, action: Evict, *, timeout: float, grace_period: int | None = None) -> Answer:
    """Ask for the eviction once. Never raises for what the server says or does not say.

    Args:
        api: the API server.
        action: what to evict; its ``uid`` is the precondition.
        timeout: seconds for each request.
        grace_period: seconds for the pod to end; ``None`` for its own.
    """
    name, namespace, uid = action.pod, action.namespace, action.uid
    try:
        result = await eviction.evict(
            api, namespace=namespace, name=name, uid=uid, grace_period=grace_period, timeout=timeout
        )
    except TooManyRequests as error:
        return Answer(REFUSED, EVICTION_REFUSED, error.message, again=True, retry_after=error.retry_after)
    except Conflict as error:
        return Answer(FAILED, EVICTION_FAILED, error.message, again=True)
    except (ServerError, Unreachable) as error:
        return await _after_silence(api, action, error, timeout)
    except ApiError as error:
        return Answer(FAILED, EVICTION_FAILED, error.message)
    match result.outcome:
        case eviction.GRANTED:
            return Answer(EVICTED, EVICTED_REASON, "the API server granted the eviction")
        case eviction.BEGUN:
            return Answer(STARTED, EVICTION_IN_BACKGROUND, result.message)
        case eviction.GONE:
            return Answer(GONE, ALREADY_GONE, result.message)
        case eviction.REFUSED:
            return Answer(REFUSED, DISRUPTION_BUDGET, result.message, again=True, retry_after=result.retry_after)
    return Answer(REFUSED, DISRUPTION_BUDGET, result.message)


async def look_again(api: Api, action: Evict, *, timeout: float) -> Answer:
    """After a lost answer, see what became of the pod.

    Returns:
        Evicted, if the pod has gone or is going by an eviction; Gone, if something else is deleting it; and otherwise
        an answer with ``again``, which is in ``doubt`` as long as nobody answers.
    """
    try:
        found = await verbs.get(api, PODS, action.pod, namespace=action.namespace, timeout=timeout)
    except NotFound:
        return LOST_ANSWER
    except (ApiError, Unreachable) as error:
        message = f"no answer came to the eviction, nor when looking for what became of it: {error}"
        return Answer(FAILED, EVICTION_FAILED, message, again=True, doubt=True)
    metadata = found.get("metadata", {})
    if metadata.get("uid") != action.uid:
        return LOST_ANSWER
    if not metadata.get("deletionTimestamp"):
        return Answer(FAILED, EVICTION_FAILED, "no answer came to the eviction, and the pod is still there", again=True)
    if _evicted(found):
        return LOST_ANSWER
    return Answer(GONE, ALREADY_GONE, "the pod is being deleted, but not by an eviction")


async def _after_silence(api: Api, action: Evict, error: Exception, timeout: float) -> Answer:
    """An error or no answer: the server may have deleted the pod before something broke."""
    seen = await look_again(api, action, timeout=timeout)
    if not seen.again:
        return seen
    # Still in doubt even if the pod is there: a request that timed out here may be carried out there a moment later.
    return Answer(FAILED, EVICTION_FAILED, str(error), again=True, doubt=True)


def _evicted(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return any((each.get("type"), each.get("reason")) == EVICTION_CONDITION for each in conditions)
