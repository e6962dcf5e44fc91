"""What the API server's answer to a deletion or eviction, or its silence, means for the pod. Pure."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.kube import eviction
from trimtab.kube.api import (
    ApiError,
    Conflict,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from trimtab.kube.eviction import EvictionResult
from trimtab.kube.guarded import NotLeading
from trimtab.tainting.ending.outcome import What

BUDGET: Final = "PodDisruptionBudget"
"""The refuser where a budget refuses an eviction."""

_REFUSERS: Final = (
    re.compile(r'webhook "([^"]+)"'),  # denied the request, and: failed calling
    re.compile(r"(ValidatingAdmissionPolicy '[^']+')"),
)


class Answer(Struct, frozen=True, gc=False):
    """What one try came to; attributes as of :class:`~trimtab.tainting.ending.outcome.Ended`.

    Attributes:
        what: how the pod ended, or what was in the way.
        reason: a code of :mod:`trimtab.api.reasons`.
        message: in words.
        refuser: who refused.
        retry_after: seconds that the server asks to wait.
        doubt: whether the server may have done it all the same.
    """

    what: What
    reason: str
    message: str
    refuser: str = ""
    retry_after: float | None = None
    doubt: bool = False

    @property
    def again(self) -> bool:
        """Whether the pod is to be tried again."""
        return self.what in (What.REFUSED, What.FAILED)


def gone(message: str) -> Answer:
    """The pod was not there to be ended."""
    return Answer(What.GONE, reasons.ALREADY_GONE, message)


def after_waiting(deleted: Answer, *, seconds: float) -> Answer:
    """A pod was deleted that was to be evicted, after it had been refused for so long."""
    words = f"the pod was not evicted for {seconds:.0f}s, and so it is deleted"
    return Answer(deleted.what, reasons.MAXIMUM_WAIT_OVER, words)


def answer_to(error: ApiError | Unreachable) -> Answer:
    """What an error says of the pod."""
    if isinstance(error, Unreachable):
        return Answer(
            What.FAILED, reasons.DELETION_FAILED, f"no answer: {error}", doubt=not isinstance(error, NotLeading)
        )
    refuser = _refuser(error.message)
    if refuser:
        return Answer(What.REFUSED, reasons.DELETION_REFUSED, error.message, refuser, error.retry_after)
    match error:
        case NotFound():
            return gone(error.message)
        case Conflict() if "UID" in error.message:  # names are of lower case: no pod is mistaken for that
            return gone(error.message)
        case Invalid() if "metadata.uid: Invalid value" in error.message:  # what a patch of another pod is told
            return gone(error.message)
        case Conflict() | TooManyRequests() | Unauthorized():
            return Answer(What.FAILED, reasons.DELETION_FAILED, error.message, retry_after=error.retry_after)
        case ServerError():
            return Answer(
                What.FAILED, reasons.DELETION_FAILED, error.message, retry_after=error.retry_after, doubt=True
            )
    return Answer(What.REFUSED, reasons.DELETION_REFUSED, error.message)


def answer_to_eviction(result: EvictionResult) -> Answer:
    """What the eviction API said."""
    match result.outcome:
        case eviction.GRANTED:
            return Answer(What.EVICTED, reasons.NO_EXECUTE_TAINT, "the API server granted the eviction")
        case eviction.GONE:
            return gone(result.message)
        case eviction.BEGUN:
            return Answer(What.REFUSED, reasons.EVICTION_IN_BACKGROUND, result.message, _refuser(result.message))
    return Answer(What.REFUSED, reasons.DISRUPTION_BUDGET, result.message, BUDGET, result.retry_after)


def _refuser(message: str) -> str:
    return next((found[1] for found in (pattern.search(message) for pattern in _REFUSERS) if found), "")
