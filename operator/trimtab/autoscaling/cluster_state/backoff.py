"""Exponential backoff of node groups after failed scale-ups, as in cluster-autoscaler."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from trimtab.autoscaling.cluster_state.state import AutoscalerState, GroupError, GroupRecord

INITIAL: Final = 300.0
"""Seconds of backoff after the first failure (upstream's ``initial-node-group-backoff-duration``)."""
LONGEST: Final = 1800.0
"""Maximum seconds of backoff (upstream's ``max-node-group-backoff-duration``)."""
RESET: Final = 10800.0
"""Seconds without a failure after which the failure count is reset.

This is upstream's ``node-group-backoff-reset-timeout``.
"""

MAX_VALUE: Final = 253
"""Characters of the annotation ``trimtab.dev/try-again`` that the status stores."""


def is_backing_off(record: GroupRecord, now: float) -> bool:
    """Return whether the group is in backoff at the given time."""
    return record.backoff_until is not None and now < record.backoff_until


def record_failure(record: GroupRecord, error: GroupError, now: float) -> GroupRecord:
    """Return the group's record with a failure added.

    Requests that fail during the backoff were sent before it. Their error is recorded, but it does not extend the
    backoff (upstream's rule: scale-ups that fail together count as one failure).
    """
    if is_backing_off(record, now):
        return replace(record, last_error=error)
    failures = with_expired_failures(record, now).failures + 1
    seconds = min(INITIAL * 2 ** min(failures - 1, 16), LONGEST)
    return replace(record, failures=failures, backoff_until=now + seconds, last_error=error)


def with_expired_failures(record: GroupRecord, now: float) -> GroupRecord:
    """Return the group's record with failures older than :data:`RESET` removed and implausible times corrected.

    A time in the future can only come from an edited status or a changed clock.
    """
    until, error = record.backoff_until, record.last_error
    if error is not None and error.time > now:
        error = replace(error, time=now)
    if until is not None and until > now + LONGEST:
        until = now + LONGEST
    last = max([time for time in (until, None if error is None else error.time) if time is not None], default=None)
    if last is not None and now - last >= RESET:
        return replace(record, failures=0, backoff_until=None, last_error=None)
    return replace(record, backoff_until=until, last_error=error)


def clear_backoffs(state: AutoscalerState, try_again: str) -> AutoscalerState:
    """Return the state without backoffs and failure counts of groups, if the user asked for that.

    Machines that have been counted as failures are not counted again, and open scale-ups continue.

    Args:
        state: the state, with the last processed value.
        try_again: the value of the ClusterAutoscaler's annotation ``trimtab.dev/try-again``; empty if it is unset.

    Returns:
        The same state if the value is empty or was processed before, possibly by an earlier process.
    """
    value = try_again[:MAX_VALUE]
    if not value or value == state.try_again:
        return state
    groups = {
        id_: replace(record, failures=0, backoff_until=None, last_error=None) for id_, record in state.groups.items()
    }
    return replace(state, groups=groups, try_again=value)


def backoff_messages(state: AutoscalerState, now: float) -> dict[str, str]:
    """Return, for each group in backoff, the reason why it is not scaled up, by group id (``PlanInputs.backoff``).

    The messages contain no elapsed times, so that they do not change while the reason stays the same.
    """
    return {
        id_: _describe_backoff(record) for id_, record in sorted(state.groups.items()) if is_backing_off(record, now)
    }


def _describe_backoff(record: GroupRecord) -> str:
    until = "" if record.backoff_until is None else f"; it is in backoff until {format_time(record.backoff_until)}"
    times = "" if record.failures <= 1 else f" for the {_ordinal(record.failures)} time"
    error = record.last_error
    why = "" if error is None else f" ({error.reason}: {error.message})" if error.message else f" ({error.reason})"
    return f"its scale-up failed{times}{why}{until}"


def format_time(seconds: float) -> str:
    """Format a time for a message, for example as ``2026-11-20T12:00:00Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
