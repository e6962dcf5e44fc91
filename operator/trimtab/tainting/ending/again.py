"""When a pod that did not go is tried again, and whether it has to be marked first. Pure, but for the jitter."""

from __future__ import annotations

from typing import Final

from trimtab.api import reasons
from trimtab.kube.objects import Pod
from trimtab.kube.retry import Backoff
from trimtab.tainting.ending.answer import BUDGET, Answer
from trimtab.tainting.ending.job import Job
from trimtab.tainting.ending.outcome import What
from trimtab.tainting.ending.requests import DISRUPTION_TARGET

RETRY: Final = Backoff(initial=0.2, maximum=5.0)
RETRY_BUDGET: Final = Backoff(initial=1.0, maximum=10.0)
"""Of evictions that a PodDisruptionBudget refuses: pods must become ready elsewhere first."""

CROWD: Final = 200
"""Tries a second of pods that did not go, at most: thousands that one webhook refuses would be a load for it. Once it
lets one go, the others are tried at once."""

REMARK: Final = 60.0
"""Seconds for which a mark on a pod is taken as still there though the watch does not show it."""

MARK_TRIES: Final = 3
"""Tries to mark a pod while the API server fails, before it is deleted without a mark."""


def delay(job: Job, answer: Answer, *, others: int, left: float | None) -> float:
    """Seconds until the next try of a pod.

    Args:
        job: with this try counted.
        answer: to it.
        others: how many pods are tried again after a while.
        left: seconds for which it is evicted still and not deleted; ``None`` where it is deleted already.
    """
    backoff = RETRY_BUDGET if answer.refuser == BUDGET else RETRY
    seconds = max(backoff.delay(max(0, job.attempts - 1)), others / CROWD, answer.retry_after or 0.0)
    return seconds if left is None else max(0.0, min(seconds, left))


def marked(job: Job, pod: Pod | None, *, now: float) -> bool:
    """Whether a pod says already that it is deleted because of a taint (``now`` is the monotonic clock's).

    The disruption controller takes such a mark away after two minutes: of a pod that is refused it is written again.
    """
    if job.marked is not None and now - job.marked < REMARK:
        return True
    conditions = () if pod is None else pod.conditions
    return any(
        (each.type, each.status, each.reason) == (DISRUPTION_TARGET, "True", reasons.DELETION_BY_TAINT_MANAGER)
        for each in conditions
    )


def waits_for_mark(job: Job, answer: Answer) -> bool:
    """Whether a pod that could not be marked is to be marked before it is deleted; counts the failure.

    Where that was refused it is deleted all the same: a mark that nobody lets us write must not keep a pod for ever.
    """
    if answer.what is What.GONE:
        return True
    job.marks_failed += 1
    return answer.what is What.FAILED and job.marks_failed < MARK_TRIES
