"""When a policy's next cycle is due."""

from __future__ import annotations

from typing import Annotated

from trimtab.api.base import Spec, doc
from trimtab.api.scalars import CRON_RULE, TIME_ZONE_RULE, Cron, TimeZone, next_due


class Schedule(Spec, frozen=True):
    """Times of day and days at which a cycle starts."""

    cron: Annotated[
        Cron,
        doc(
            "Five fields: minute, hour, day of month, month, day of week, e.g. '30 2 * * 1-5'. Names (MON, JAN), "
            "ranges, steps, lists, L and # are understood.",
            CRON_RULE,
        ),
    ]
    time_zone: Annotated[
        TimeZone, doc("The zone in which the fields are read, e.g. Europe/Berlin.", TIME_ZONE_RULE)
    ] = "UTC"

    def next_due(self, *, after: float) -> float:
        """The first time strictly after ``after``; both in seconds since the epoch.

        Raises:
            ValueError: the schedule is not valid, see :func:`trimtab.api.scalars.next_due`.
        """
        return next_due(self.cron, self.time_zone, after=after)
