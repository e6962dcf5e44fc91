"""Leaving a group alone for a while after it failed, each time in a row for twice as long."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from trimtab.autoscaling.memory.state import GroupRecord, State, Trouble

INITIAL: Final = 300.0
"""Seconds after a first failure (upstream's ``initial-node-group-backoff-duration``)."""
LONGEST: Final = 1800.0
"""Seconds at most (upstream's ``max-node-group-backoff-duration``)."""
RESET: Final = 10800.0
"""Seconds without a failure after which the next one is a first one (``node-group-backoff-reset-timeout``)."""


def backs_off(record: GroupRecord, now: float) -> bool:
    """Whether the group is left alone at that time."""
    return record.backoff_until is not None and now < record.backoff_until


def failed(record: GroupRecord, trouble: Trouble, now: float) -> GroupRecord:
    """The record after a failure.

    What fails while the group backs off was asked for before that: it is told, and does not make the time longer
    (upstream's rule: scale-ups that fail together are one failure).
    """
    if backs_off(record, now):
        return replace(record, last_error=trouble)
    failures = settled(record, now).failures + 1
    seconds = min(INITIAL * 2 ** min(failures - 1, 16), LONGEST)
    return replace(record, failures=failures, backoff_until=now + seconds, last_error=trouble)


def settled(record: GroupRecord, now: float) -> GroupRecord:
    """The record as it is at that time: times ahead brought back, and failures forgotten after :data:`RESET`."""
    until, error = record.backoff_until, record.last_error
    if error is not None and error.time > now:
        error = replace(error, time=now)
    if until is not None and until > now + LONGEST:
        until = now + LONGEST
    last = max([time for time in (until, None if error is None else error.time) if time is not None], default=None)
    if last is not None and now - last >= RESET:
        return replace(record, failures=0, backoff_until=None, last_error=None)
    return replace(record, backoff_until=until, last_error=error)


def backoff_words(state: State, now: float) -> dict[str, str]:
    """Why groups must not be asked for nodes, in words, by their ids: what ``Inputs.backoff`` takes.

    The words hold no running time, so that they stay the same as long as the reason does.
    """
    return {id_: _words(record) for id_, record in sorted(state.groups.items()) if backs_off(record, now)}


def _words(record: GroupRecord) -> str:
    until = "" if record.backoff_until is None else f", so nothing is asked of it until {clock(record.backoff_until)}"
    times = "" if record.failures <= 1 else f" for the {_ordinal(record.failures)} time in a row"
    error = record.last_error
    why = "" if error is None else f" ({error.reason}: {error.message})" if error.message else f" ({error.reason})"
    return f"it failed to bring nodes{times}{why}{until}"


def clock(seconds: float) -> str:
    """A time as sentences have it: ``2026-11-20T12:00:00Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
