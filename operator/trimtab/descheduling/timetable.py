"""When a policy's next cycle is due. Pure: it is told the time, and waits for nothing."""

from __future__ import annotations

from typing import Final

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.windows import next_start, open_at
from trimtab.descheduling.report import CycleResult

LATEST_START: Final = 60.0
"""Seconds that a scheduled cycle may start late. An operator that was away must not act at noon what was asked for at
night."""

SOON: Final = 1.0
"""Seconds until the next cycle where the last one ended with work left that only wanted time."""

AFTER_FAILURE: Final = 30.0
"""Seconds until a cycle that failed is tried again; one that has a schedule waits for its next time."""

MINUTE: Final = 60.0
"""What ``perMinute`` counts in. How many evictions an earlier process made within the last one is not known here."""


class Timetable:
    """What one policy's next start follows from: when the last cycle started, and how it ended.

    All times are seconds since the epoch.
    """

    def __init__(self) -> None:
        self._last_start: float | None = None
        self._out_of_turn: tuple[DeschedulerPolicySpec, float] | None = None  # work was left, or the cycle failed
        self._act_from = 0.0
        self._retry_run = 0.0

    def take_up(self, last_start: float | None, last_eviction: float) -> None:
        """Go on where an earlier process ended.

        Args:
            last_start: when its last cycle started; ``None`` where there was none.
            last_eviction: when it may last have evicted a pod; what it evicted in that minute counts as a full one.
        """
        self._last_start = last_start
        self._act_from = last_eviction + MINUTE

    def cycle_begins(self) -> None:
        """What was due out of turn has come."""
        self._out_of_turn = None

    def cycle_failed(self, spec: DeschedulerPolicySpec, *, started: float, now: float) -> None:
        """A cycle that started then has just ended with an error."""
        self._last_start = started
        self._retry_run = now + AFTER_FAILURE
        if spec.schedule is None:
            self._out_of_turn = spec, now + AFTER_FAILURE

    def cycle_ended(self, spec: DeschedulerPolicySpec, result: CycleResult) -> float:
        """A cycle has ended; when the next one is due."""
        self._last_start = result.started
        self._retry_run = result.finished + SOON
        due = spec.next_due(last=result.started)
        if result.unfinished and spec.schedule is None:
            due = min(due, result.finished + SOON)
            self._out_of_turn = spec, due
        return due

    def run_due(self, spec: DeschedulerPolicySpec, *, now: float) -> float:
        """When the run that is approved is carried out: at once, but within a window and not soon after a failure."""
        due = max(self._act_from, min(self._retry_run, now + AFTER_FAILURE))
        return due if open_at(spec.windows, max(due, now)) else next_start(spec.windows, None, at=max(due, now))

    def cycle_due(self, spec: DeschedulerPolicySpec, *, now: float, reported: bool) -> float:
        """When the next cycle is due.

        Args:
            spec: of the policy.
            now: the time.
            reported: whether a cycle of this generation of the spec has ended; the first one is due at once.
        """
        due = self._without_windows(spec, now, reported=reported)
        if spec.mode != "Act" or open_at(spec.windows, max(due, now)):
            return due
        return next_start(spec.windows, spec.schedule, at=max(due, now))

    def _without_windows(self, spec: DeschedulerPolicySpec, now: float, *, reported: bool) -> float:
        if self._last_start is not None:
            self._last_start = min(self._last_start, now)  # the clock was set back: nothing is due from a time to come
        if self._out_of_turn is not None and self._out_of_turn[0] is spec:  # a new spec has a turn of its own
            self._out_of_turn = spec, min(self._out_of_turn[1], now + AFTER_FAILURE)
            return self._out_of_turn[1]
        return max(self._by_spec(spec, now, reported=reported), self._act_from if spec.mode == "Act" else 0.0)

    def _by_spec(self, spec: DeschedulerPolicySpec, now: float, *, reported: bool) -> float:
        if spec.schedule is not None:
            return spec.next_due(last=max(self._last_start or 0.0, now - LATEST_START))
        if self._last_start is None or not reported:
            return 0.0
        return spec.next_due(last=self._last_start)
