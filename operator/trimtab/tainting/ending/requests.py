"""The requests that end a pod, each once. None of them raises for what the server says or does not say."""

from __future__ import annotations

from typing import Final

from trimtab.api import reasons
from trimtab.api.plan import rfc3339
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.eviction import evict as ask_for_eviction
from trimtab.kube.resources import PODS
from trimtab.tainting.deadlines.rule import Deadline
from trimtab.tainting.ending.answer import Answer, answer_to, answer_to_eviction
from trimtab.tainting.ending.outcome import What

DISRUPTION_TARGET: Final = "DisruptionTarget"
MESSAGE: Final = "Taint manager: deleting due to NoExecute taint"
"""Upstream's words in the condition."""

TIMEOUT: Final = 30.0
"""Seconds for a request: as long as a webhook may take at most."""

_PARAMS: Final = {"fieldManager": verbs.FIELD_MANAGER}


async def mark(api: Api, deadline: Deadline, *, now: float) -> Answer | None:
    """Write on a pod that it is deleted because of a taint: Jobs and owners do not hold that against it.

    Returns:
        ``None`` once it is written; else what was in the way.
    """
    namespace, _, name = deadline.key.partition("/")
    condition = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": reasons.DELETION_BY_TAINT_MANAGER,
        "message": MESSAGE,
        "lastTransitionTime": rfc3339(now),
    }
    body = {"metadata": {"uid": deadline.uid}, "status": {"conditions": [condition]}}  # another uid is refused
    try:
        await api.request(
            "PATCH",
            PODS.path(name, namespace=namespace, subresource="status"),
            params=_PARAMS,
            body=body,
            content_type=verbs.STRATEGIC_PATCH,
            accept=verbs.METADATA,
            timeout=TIMEOUT,
        )
    except (ApiError, Unreachable) as error:
        return answer_to(error)
    return None


async def delete(api: Api, deadline: Deadline) -> Answer:
    """Delete exactly this pod, with its own grace period."""
    namespace, _, name = deadline.key.partition("/")
    try:
        await verbs.delete(
            api, PODS, name, namespace=namespace, uid=deadline.uid, accept=verbs.METADATA, timeout=TIMEOUT
        )
    except (ApiError, Unreachable) as error:
        return answer_to(error)
    return Answer(What.DELETED, reasons.NO_EXECUTE_TAINT, "the API server took the deletion")


async def evict(api: Api, deadline: Deadline) -> Answer:
    """Evict exactly this pod, as PodDisruptionBudgets allow, with its own grace period."""
    namespace, _, name = deadline.key.partition("/")
    try:
        result = await ask_for_eviction(api, namespace=namespace, name=name, uid=deadline.uid, timeout=TIMEOUT)
    except (ApiError, Unreachable) as error:
        return answer_to(error)
    return answer_to_eviction(result)
