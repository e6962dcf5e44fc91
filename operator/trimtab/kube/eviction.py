"""The Eviction API: ask the server to let a pod go, under its PodDisruptionBudgets.

What the server says to that is an outcome, not an accident, so it comes back as a value. Only what has nothing to do
with this pod (forbidden, unreachable, an overloaded server) is raised.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from trimtab.kube.api import Api, ApiError, Conflict, NotFound, ServerError, TooManyRequests
from trimtab.kube.resources import PODS

GRANTED: Final = "Granted"
"""The server took it: the pod is being deleted."""

REFUSED: Final = "Refused"
"""A PodDisruptionBudget allows no disruption now; later it may."""

SEVERAL_BUDGETS: Final = "SeveralBudgets"
"""More than one PodDisruptionBudget selects the pod, which the Eviction API never grants."""

BEGUN: Final = "Begun"
"""No refusal: a webhook took the eviction over and carries it out in the background (:data:`TAKEN_OVER`)."""

TAKEN_OVER: Final = "Eviction triggered evacuation"
"""What KubeVirt's webhook says then, with 429; the descheduler project knows it by these words, too (KEP-1397)."""

GONE: Final = "Gone"
"""The pod is gone already, or another pod has its name by now. Nothing was evicted."""


class EvictionResult(Struct, frozen=True):
    """What the server said.

    Attributes:
        outcome: one of the constants of this module.
        message: the server's words; ``""`` if granted.
        retry_after: seconds the server asks to wait before asking again, or ``None``.
    """

    outcome: str
    message: str = ""
    retry_after: float | None = None

    @property
    def granted(self) -> bool:
        """Whether the pod is on its way out because of us."""
        return self.outcome == GRANTED


async def evict(
    api: Api,
    *,
    namespace: str,
    name: str,
    uid: str,
    grace_period: int | None = None,
    dry_run: bool = False,
    timeout: float = 30.0,
) -> EvictionResult:
    """Ask for the eviction of exactly this pod (policy/v1 Eviction). Never repeated by itself: the caller has the time.

    Args:
        api: the API server.
        namespace: of the pod.
        name: of the pod.
        uid: of the pod that was judged; a successor of the same name (a StatefulSet's) must not pay for it.
        grace_period: seconds for the pod to end; ``None`` for its own ``terminationGracePeriodSeconds``.
        dry_run: let the server judge, but change nothing.
        timeout: seconds.

    Raises:
        ApiError: the server refused for another cause: RBAC, admission, overload (429 without a budget).
        Unreachable: no answer came; the pod may or may not have been evicted.
    """
    options: dict[str, Any] = {"preconditions": {"uid": uid}}
    if grace_period is not None:
        options["gracePeriodSeconds"] = grace_period
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": options,
    }
    try:
        await api.request(
            "POST",
            PODS.path(name, namespace=namespace, subresource="eviction"),
            params={"dryRun": "All"} if dry_run else None,
            body=body,
            timeout=timeout,
        )
    except ApiError as error:
        answer = _answer(error)
        if answer is None:
            raise
        return answer
    return EvictionResult(outcome=GRANTED)


def _answer(error: ApiError) -> EvictionResult | None:
    """What an error says of the pod; ``None`` for one that has nothing to do with it."""
    if isinstance(error, TooManyRequests):
        if TAKEN_OVER in error.message:
            return EvictionResult(outcome=BEGUN, message=error.message)
        if error.disruption_budget:
            return EvictionResult(outcome=REFUSED, message=_words(error), retry_after=error.retry_after)
    elif isinstance(error, NotFound):
        return EvictionResult(outcome=GONE, message=error.message)
    elif isinstance(error, Conflict):
        if "UID" in error.message:  # names are of lower case, so that a pod called druid-0 is not mistaken for one
            return EvictionResult(outcome=GONE, message=error.message)
    # registry/core/pod/storage/eviction.go has no code of its own for this, only a 500 with these words.
    elif isinstance(error, ServerError) and "more than one PodDisruptionBudget" in error.message:
        return EvictionResult(outcome=SEVERAL_BUDGETS, message=error.message)
    return None


def _words(error: TooManyRequests) -> str:
    """The cause says which budget and its numbers, the message only that there is one."""
    causes = [cause.get("message", "") for cause in error.causes if cause.get("reason") == "DisruptionBudget"]
    return " ".join([error.message, *filter(None, causes)])
