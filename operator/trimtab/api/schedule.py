"""The schedule of a policy's cycles, and the windows in which the policy may evict pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from trimtab.api.base import Spec, doc
from trimtab.api.cron import CRON_RULE, Cron, next_due
from trimtab.api.scalars import TIME_ZONE_RULE, WINDOW_RULE, Duration, TimeZone, duration_doc, parse_duration


class Schedule(Spec, frozen=True):
    """A cron schedule on which cycles start."""

    cron: Annotated[
        Cron,
        doc(
            "Cron expression, for example '30 2 * * 1-5'. The five fields are minute, hour, day of month, month and "
            "day of week. Names (MON, JAN), ranges, steps, lists, L and # are supported.",
            CRON_RULE,
        ),
    ]
    time_zone: Annotated[
        TimeZone, doc("Time zone in which the cron expression is evaluated, for example Europe/Berlin.", TIME_ZONE_RULE)
    ] = "UTC"

    def next_due(self, *, after: float) -> float:
        """Return the first start time strictly after ``after``; both in seconds since the epoch.

        Raises:
            ValueError: the schedule is invalid, see :func:`trimtab.api.cron.next_due`.
        """
        return next_due(self.cron, self.time_zone, after=after)


MAX_WINDOWS: Final = 16

STEPS: Final = 100
"""Maximum number of window openings that :func:`next_start` examines per call."""


class Window(Spec, frozen=True):
    """A recurring time window in which pods may be evicted."""

    schedule: Annotated[
        Cron,
        doc(
            "Cron expression that determines when the window opens, for example '0 22 * * 1-5'. The five fields are "
            "minute, hour, day of month, month and day of week. Names (MON, JAN), ranges, steps, lists, L and # are "
            "supported.",
            CRON_RULE,
        ),
    ]
    duration: Annotated[
        Duration,
        duration_doc(
            "How long the window remains open. Changes between standard time and daylight saving time "
            "do not affect the duration.",
            WINDOW_RULE,
        ),
    ]
    time_zone: Annotated[
        TimeZone, doc("Time zone in which the cron expression is evaluated, for example Europe/Berlin.", TIME_ZONE_RULE)
    ] = "UTC"

    def last_opening(self, now: float) -> float | None:
        """Return the time at which the window opened, or ``None`` if it is closed at ``now``.

        If the window opens again while it is open, the earliest opening is returned.
        """
        opened = next_due(self.schedule, self.time_zone, after=now - parse_duration(self.duration))
        return opened if opened <= now else None


def open_at(windows: Sequence[Window], now: float) -> bool:
    """Return whether a window is open at ``now`` (seconds since the epoch), or there are no windows."""
    return not windows or any(window.last_opening(now) is not None for window in windows)


def closes_at(windows: Sequence[Window], now: float, *, until: float) -> float:
    """Return the time at which the last of the windows that are open at ``now`` closes; ``now`` if all are closed.

    The result is at most ``until``. Overlapping and adjacent windows are treated as one. All times are in seconds since
    the epoch.
    """
    if not windows:
        return until
    reached = now
    while reached < until:
        ends = [
            next_due(window.schedule, window.time_zone, after=reached - seconds) + seconds
            for window in windows
            for seconds in (parse_duration(window.duration),)
            if window.last_opening(reached) is not None
        ]
        if not ends:
            return reached
        reached = max(ends)
    return until


def next_opening(windows: Sequence[Window], *, after: float) -> float | None:
    """Return the first time strictly after ``after`` at which a window opens; ``None`` if there are no windows.

    Both times are in seconds since the epoch.
    """
    return min((next_due(each.schedule, each.time_zone, after=after) for each in windows), default=None)


def next_start(windows: Sequence[Window], schedule: Schedule | None, *, at: float) -> float:
    """Return the first time, ``at`` or later, at which a cycle may start: on the policy's schedule and in a window.

    Args:
        windows: the policy's windows.
        schedule: the policy's schedule; ``None`` for a policy with an interval, whose cycles may start as soon as a
            window opens.
        at: the time at which the cycle would start if the policy had no windows, in seconds since the epoch.

    Returns:
        Seconds since the epoch. If the schedule has no time in any of the next :data:`STEPS` windows, the last time
            that was examined is returned, at which no window is open. The caller then computes the start again at that
            time.
    """
    for _ in range(STEPS):
        if open_at(windows, at):
            break
        opening = next_opening(windows, after=at)
        assert opening is not None
        at = opening if schedule is None else schedule.next_due(after=opening - 0.5)
    return at
