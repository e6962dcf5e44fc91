"""Windows: the times within which a policy may act."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from trimtab.api.base import Spec, doc
from trimtab.api.scalars import (
    CRON_RULE,
    DURATION_RULE,
    TIME_ZONE_RULE,
    WINDOW_RULE,
    Cron,
    Duration,
    TimeZone,
    next_due,
    parse_duration,
)
from trimtab.api.schedule import Schedule

MAX_WINDOWS: Final = 16

STEPS: Final = 100
"""How many windows are looked into for a time of a schedule. One that meets none of them is looked for again later."""


class Window(Spec, frozen=True):
    """One window: it opens at the times of a cron expression and stays open for a while."""

    schedule: Annotated[
        Cron,
        doc(
            "When the window opens: minute, hour, day of month, month, day of week, e.g. '0 22 * * 1-5'. Names, "
            "ranges, steps, lists, L and # are understood.",
            CRON_RULE,
        ),
    ]
    duration: Annotated[
        Duration,
        doc(
            "How long it stays open, e.g. 4h; as long where daylight saving moves the clocks meanwhile.",
            DURATION_RULE,
            WINDOW_RULE,
        ),
    ]
    time_zone: Annotated[
        TimeZone, doc("The zone in which the fields of schedule are read, e.g. Europe/Berlin.", TIME_ZONE_RULE)
    ] = "UTC"

    def last_opening(self, now: float) -> float | None:
        """When the window that is open at ``now`` opened, ``None`` where none is; the first of those that overlap."""
        opened = next_due(self.schedule, self.time_zone, after=now - parse_duration(self.duration))
        return opened if opened <= now else None


def open_at(windows: Sequence[Window], now: float) -> bool:
    """Whether a policy with these windows may act at ``now`` (seconds since the epoch); without any it always may."""
    return not windows or any(window.last_opening(now) is not None for window in windows)


def closes_at(windows: Sequence[Window], now: float, *, until: float) -> float:
    """When none of the windows is open any more, looked for up to ``until``; ``now`` where none is now.

    Windows that overlap or touch are one. Both times are in seconds since the epoch.
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
    """The first time strictly after ``after`` at which one of the windows opens; ``None`` where there are none."""
    return min((next_due(each.schedule, each.time_zone, after=after) for each in windows), default=None)


def next_start(windows: Sequence[Window], schedule: Schedule | None, *, at: float) -> float:
    """The first time, from ``at`` on, at which a policy may start to act: within a window, at a time of its schedule.

    Args:
        windows: of the policy.
        schedule: of the policy; ``None`` where it has an interval, which lets it start as soon as a window opens.
        at: seconds since the epoch; a time at which the policy would start if it had no windows.

    Returns:
        Seconds since the epoch. Where the schedule meets none of the next :data:`STEPS` windows, the last time that was
        looked at: no window is open then, and whoever waits for it looks again.
    """
    for _ in range(STEPS):
        if open_at(windows, at):
            break
        opening = next_opening(windows, after=at)
        assert opening is not None
        at = opening if schedule is None else schedule.next_due(after=opening - 0.5)
    return at
