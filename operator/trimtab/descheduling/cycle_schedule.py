"""Computes the time at which a policy's next cycle is due. No function reads a clock."""

from __future__ import annotations

from typing import Final

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.schedule import next_start, open_at
from trimtab.descheduling.report.status import CycleResult

STARTING_DEADLINE: Final = 60.0
"""Maximum delay of a scheduled cycle's start, in seconds.

If the operator was unavailable for longer, the start is skipped, so that a cycle scheduled for the night does not run
at noon.
"""

SOON: Final = 1.0
"""Seconds until the next cycle if the last one ran out of time before it had made all its evictions."""

RETRY_DELAY: Final = 30.0
"""Seconds until a failed cycle is retried. A policy with a schedule waits for its next scheduled start instead."""

MINUTE: Final = 60.0
"""The period of ``perMinute``, in seconds.

After a restart, no pod is evicted for this time, because the number of evictions that the earlier process made in the
last minute is unknown.
"""


class CycleSchedule:
    """Computes the time of a policy's next cycle from the start and the outcome of its last cycle.

    All times are seconds since the epoch.
    """

    def __init__(self) -> None:
        self._last_start: float | None = None
        self._extra_cycle: tuple[DeschedulerPolicySpec, float] | None = None  # a continuation or a retry
        self._act_from = 0.0
        self._retry_run = 0.0

    def restore(self, last_start: float | None, last_eviction: float) -> None:
        """Restore the state of an earlier process.

        Args:
            last_start: the time at which its last cycle started; ``None`` if there was none.
            last_eviction: the latest time at which it may have evicted a pod. No pod is evicted in the minute after
                that time, because the process may have used the whole rate limit.
        """
        self._last_start = last_start
        self._act_from = last_eviction + MINUTE

    def cycle_started(self) -> None:
        """Record that a cycle has started, which replaces a pending continuation or retry."""
        self._extra_cycle = None

    def cycle_failed(self, spec: DeschedulerPolicySpec, *, started: float, now: float) -> None:
        """Record that a cycle failed."""
        self._last_start = started
        self._retry_run = now + RETRY_DELAY
        if spec.schedule is None:
            self._extra_cycle = spec, now + RETRY_DELAY

    def cycle_ended(self, spec: DeschedulerPolicySpec, result: CycleResult) -> float:
        """Record that a cycle has ended, and return the time at which the next one is due."""
        self._last_start = result.started
        self._retry_run = result.finished + SOON
        due = spec.next_due(last=result.started)
        if result.unfinished and spec.schedule is None:
            due = min(due, result.finished + SOON)
            self._extra_cycle = spec, due
        return due

    def run_due(self, spec: DeschedulerPolicySpec, *, now: float) -> float:
        """Return the time at which the approved run is executed.

        It is executed at once if a window is open, and after a delay if the last cycle failed.
        """
        due = max(self._act_from, min(self._retry_run, now + RETRY_DELAY))
        return due if open_at(spec.windows, max(due, now)) else next_start(spec.windows, None, at=max(due, now))

    def cycle_due(self, spec: DeschedulerPolicySpec, *, now: float, reported: bool, asked: bool = False) -> float:
        """Return the time at which the next cycle is due.

        Args:
            spec: the policy's spec.
            now: the current time.
            reported: whether a cycle of this generation has ended. If not, the cycle is due at once.
            asked: whether a user has asked for a cycle. It does not wait for the interval or the schedule, but for a
                window and, after a restart, for the limit per minute.
        """
        due = self._without_windows(spec, now, reported=reported)
        if asked:
            due = min(due, max(now, self._act_from if spec.mode == "Act" else 0.0))
        if spec.mode != "Act" or open_at(spec.windows, max(due, now)):
            return due
        return next_start(spec.windows, None if asked else spec.schedule, at=max(due, now))

    def _without_windows(self, spec: DeschedulerPolicySpec, now: float, *, reported: bool) -> float:
        if self._last_start is not None:
            self._last_start = min(self._last_start, now)  # the clock may have been set back
        if (
            self._extra_cycle is not None and self._extra_cycle[0] is spec
        ):  # it applies only to the spec it was computed for
            self._extra_cycle = spec, min(self._extra_cycle[1], now + RETRY_DELAY)
            return self._extra_cycle[1]
        return max(self._by_spec(spec, now, reported=reported), self._act_from if spec.mode == "Act" else 0.0)

    def _by_spec(self, spec: DeschedulerPolicySpec, now: float, *, reported: bool) -> float:
        if spec.schedule is not None:
            return spec.next_due(last=max(self._last_start or 0.0, now - STARTING_DEADLINE))
        if self._last_start is None or not reported:
            return 0.0
        return spec.next_due(last=self._last_start)
