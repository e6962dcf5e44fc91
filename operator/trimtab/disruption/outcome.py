"""Defines the refusal of an eviction, the result of one attempt, and the outcome of an action of a plan."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.plan import Evict

EVICTED: Final = "Evicted"
"""The API server granted the eviction."""

STARTED: Final = "Started"
"""The eviction had started but not finished when the cycle ended: a rollout, or an eviction in the background."""

REFUSED: Final = "Refused"
"""A PodDisruptionBudget, a webhook or the recheck refused the eviction."""

GONE: Final = "Gone"
"""The pod no longer existed, or a new pod had the same name."""

SKIPPED: Final = "Skipped"
"""The eviction was not attempted: time ran out, or the plan was outdated for the pod."""

FAILED: Final = "Failed"
"""The eviction was attempted and failed for a reason other than a refusal."""


DELETED: Final = "Deleted"
"""The API server granted the deletion of a pod, for example on a tainted node after its deadline. Deletions ignore
PodDisruptionBudgets."""


class AttemptResult(Struct, frozen=True):
    """The result of one attempt to evict a pod.

    Attributes:
        result: the result of the action if it is not retried; one of this module's constants.
        reason: a reason code from :mod:`trimtab.api.reasons`.
        message: description with names and numbers; the API server's message if it refused the eviction.
        retry: whether the attempt must be repeated.
        uncertain: whether the API server may have evicted the pod although its response was lost.
        retry_after: seconds to wait, as requested by the API server; ``None`` if it requested nothing.
        lacks_permission: whether an authorizer denied the request, so that it succeeds once the permission is granted.
    """

    result: str
    reason: str
    message: str
    retry: bool = False
    uncertain: bool = False
    retry_after: float | None = None
    lacks_permission: bool = False


class Refusal(Struct, frozen=True):
    """A reason not to evict a pod.

    Attributes:
        reason: a reason code from :mod:`trimtab.api.reasons`.
        message: description with the names and numbers that were compared.
    """

    reason: str
    message: str


EVICTED_RESPONSE_LOST: Final = AttemptResult(
    EVICTED, reasons.EVICTED, "the response to the eviction was lost, and the pod has been evicted"
)


class Outcome(Struct, frozen=True):
    """The final result of one action of a plan.

    Attributes:
        action: the planned eviction.
        result: one of this module's constants.
        reason: a reason code from :mod:`trimtab.api.reasons`.
        message: description with names and numbers; the API server's message if it refused the eviction.
        at: the time of the outcome in seconds since the epoch.
    """

    action: Evict
    result: str
    reason: str
    message: str
    at: float
