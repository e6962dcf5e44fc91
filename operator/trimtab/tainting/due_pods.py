"""Due pods: the decision what to do with a due pod, and the result of an attempt to evict it, without side effects."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.taint_manager import EVICT, TaintManagerSpec
from trimtab.disruption.evictor.requests import EvictionResponse, ResponseCode
from trimtab.kube.objects import Pod
from trimtab.tainting.deadlines import Deadline, subject_to_taints

MARK_TRIES: Final = 3
"""Maximum attempts to write the condition DisruptionTarget. If all fail, the pod is deleted without the condition."""


class DuePodResult(enum.Enum):
    """The result of an attempt to evict a due pod."""

    DELETED = "Deleted"  # the API server granted the deletion, or the response was lost and the pod no longer exists
    EVICTED = "Evicted"  # the API server granted the eviction, or the response was lost and the pod no longer exists
    GONE = "Gone"  # another client had already deleted the pod, so no request was necessary
    NOT_DUE = "NotDue"  # the deadline was cancelled or postponed, so no request was sent
    REFUSED = "Refused"  # refused by a webhook, a PodDisruptionBudget or RBAC; retried
    FAILED = "Failed"  # no response, or an error of the API server; retried


_MEANING: Final = {
    ResponseCode.GONE: (DuePodResult.GONE, reasons.ALREADY_GONE),
    ResponseCode.BUDGET: (DuePodResult.REFUSED, reasons.DISRUPTION_BUDGET),
    ResponseCode.SEVERAL_BUDGETS: (DuePodResult.REFUSED, reasons.DISRUPTION_BUDGET),
    ResponseCode.BACKGROUND: (DuePodResult.REFUSED, reasons.EVICTION_IN_BACKGROUND),
    ResponseCode.REFUSED: (DuePodResult.REFUSED, reasons.DELETION_REFUSED),
    ResponseCode.REJECTED: (DuePodResult.REFUSED, reasons.DELETION_REFUSED),
}
"""The result and the reason for each response code. Other codes of failures mean Failed and DeletionFailed."""


class DuePodOutcome(Struct, frozen=True, gc=False):
    """The outcome of an attempt to evict a due pod, or of finding that none is necessary.

    Attributes:
        result: whether the pod was evicted, or what prevented the eviction.
        reason: a reason code of :mod:`trimtab.api.reasons`.
        message: details, or the API server's message if it refused the request.
        refuser: name of the webhook that refused the request, or ``PodDisruptionBudget``; ``""`` if none or unknown.
        retry_after: delay in seconds that the API server requested; ``None`` if it requested none.
        uncertain: whether no response arrived, so that the API server may have processed the request.
    """

    result: DuePodResult
    reason: str
    message: str
    refuser: str = ""
    retry_after: float | None = None
    uncertain: bool = False


class DuePodReport(Struct, frozen=True, gc=False):
    """The outcome of an attempt to evict a due pod, as reported to events and metrics.

    ``attempts`` is the number of attempts for this pod, including this one, and ``at`` is the time of the result in
    seconds since the epoch. userTaintRates delayed the pod for ``held`` seconds, which are part of the lateness.
    """

    deadline: Deadline
    outcome: DuePodOutcome
    attempts: int
    at: float
    held: float = 0.0

    @property
    def result(self) -> DuePodResult:
        """Return the result of the attempt."""
        return self.outcome.result

    @property
    def lateness(self) -> float:
        """Return the seconds from the pod's deadline to the result, at least 0."""
        return max(0.0, self.at - self.deadline.due)


def outcome_of(response: EvictionResponse, *, done: DuePodResult) -> DuePodOutcome:
    """Convert the response to a request into an outcome, whose result is ``done`` if the request was granted."""
    if response.granted:
        granted = "deletion" if done is DuePodResult.DELETED else "eviction"
        return DuePodOutcome(done, reasons.NO_EXECUTE_TAINT, f"the API server granted the {granted}")
    result, reason = _MEANING.get(response.code, (DuePodResult.FAILED, reasons.DELETION_FAILED))
    uncertain = response.code is ResponseCode.IN_DOUBT
    return DuePodOutcome(result, reason, response.message, response.refuser, response.retry_after, uncertain)


def not_due(message: str) -> DuePodOutcome:
    """Return the outcome for a pod whose deadline was cancelled or postponed."""
    return DuePodOutcome(DuePodResult.NOT_DUE, reasons.NO_LONGER_DUE, message)


Flow = tuple[str, str, str]
"""The keys of a pod in the three limits of userTaintRates: ``""``, its zone and its namespace."""


@dataclass(slots=True, eq=False)
class DuePod:
    """A due pod in the queue. It is in memory only: a restarted process queues the pod again because of its deadline.

    Times are seconds on the monotonic clock.

    Attributes:
        deadline: the pod's deadline at its last evaluation.
        attempts: number of attempts so far.
        processing: whether a worker is processing the pod.
        ended: whether the API server has granted the eviction or deletion, or answered that the pod does not exist. The
            pod is retried unless the watch shows that.
        last: the outcome of the last attempt that did not remove the pod.
        lost_response: the result that a request had if the API server granted it, although its response was lost;
            ``None`` if no response was lost.
        failed_marks: number of failed attempts to write the condition DisruptionTarget.
        rate_tokens: the flow whose rate limit tokens the pod has taken, and the time; ``None`` if it has taken none.
        held_since: when a rate limit began to delay the pod; ``None`` if none delays it.
        held: seconds of previous delays by rate limits.
        evicting: whether the last attempt was an eviction, as opposed to a deletion.
        eviction_requested: whether any attempt was an eviction.
    """

    deadline: Deadline
    attempts: int = 0
    processing: bool = False
    ended: bool = False
    last: DuePodOutcome | None = None
    lost_response: DuePodResult | None = None
    failed_marks: int = 0
    rate_tokens: tuple[Flow, float] | None = None
    held_since: float | None = None
    held: float = 0.0
    evicting: bool = False
    eviction_requested: bool = False


def must_retry_mark(entry: DuePod, failed: DuePodOutcome) -> bool:
    """Count a failed attempt to write the condition DisruptionTarget, and return whether to retry before the deletion.

    If the API server refuses the write, the pod is deleted without the condition, because a missing permission must not
    prevent the deletion.
    """
    if failed.result is DuePodResult.GONE:
        return True
    entry.failed_marks += 1
    return failed.result is DuePodResult.FAILED and entry.failed_marks < MARK_TRIES


class EvictionDecision(Struct, frozen=True, gc=False):
    """The decision on a due pod.

    Attributes:
        action: whether to evict or to delete the pod; ``None`` to send no request now.
        deadline: the pod's current deadline.
        evict_until: for Evict, the time after which the pod is deleted instead, in seconds since the epoch.
        waited: whether the pod is deleted because its evictions were refused for ``maximumWait``.
        why: the outcome to report if no request will be necessary; ``None`` if the pod is due, or will be due later.
    """

    action: Literal["Delete", "Evict"] | None
    deadline: Deadline
    evict_until: float = 0.0
    waited: bool = False
    why: DuePodOutcome | None = None


def maximum_waits(spec: TaintManagerSpec) -> dict[str, float]:
    """Return ``maximumWait`` in seconds for each taint key with policy Evict. For others, pods are deleted at once."""
    return {each.key: float(each.maximum_wait_seconds) for each in spec.taints if each.policy == EVICT}


def decide(
    former: Deadline,
    current: Deadline | None,
    pod: Pod | None,
    *,
    maximum_waits: Mapping[str, float],
    now: float,
    deadlines_by_taint: Callable[[Pod], Iterable[Deadline]] = lambda _: (),
) -> EvictionDecision:
    """Decide what to do with a pod whose ``former`` deadline was due.

    A pod whose eviction is refused is deleted as soon as any of its deadlines requires a deletion, for example because
    its node has failed in the meantime.

    Args:
        former: the deadline that was due.
        current: the pod's current deadline, if it has one.
        pod: the current pod with that name, if it still exists.
        maximum_waits: see :func:`maximum_waits`.
        now: the current time in seconds since the epoch.
        deadlines_by_taint: :meth:`~trimtab.tainting.deadlines.TaintDeadlineTracker.deadlines_of` of the pod.
    """
    why = None
    if pod is None:
        why = _gone("the pod no longer exists")
    elif pod.uid != former.uid:
        why = _gone("a new pod has the same name")
    elif pod.deleted is not None:
        why = _gone("the pod is already terminating")
    elif current is None or current.uid != former.uid or current.node != pod.node or not subject_to_taints(pod):
        why = not_due("no taint sets a deadline for the pod any more")
    if pod is None or current is None or why is not None:
        return EvictionDecision(None, former, why=why)
    if current.due > now:
        return EvictionDecision(None, current)
    if current.taint.key not in maximum_waits:
        return EvictionDecision("Delete", current)
    ends = (
        (one.due + maximum_waits.get(one.taint.key, 0.0), one.taint.key in maximum_waits)
        for one in (current, *deadlines_by_taint(pod))
    )
    evict_until, by_waiting = min(ends)
    if now < evict_until:
        return EvictionDecision("Evict", current, evict_until)
    return EvictionDecision("Delete", current, evict_until, waited=by_waiting)


def _gone(message: str) -> DuePodOutcome:
    return DuePodOutcome(DuePodResult.GONE, reasons.ALREADY_GONE, message)
