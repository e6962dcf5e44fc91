"""From one look to the TaintManager's status: pure and bounded, and cheap enough to be made every other second.

With 150,000 deadlines it takes some 15 ms, for nothing is sorted but what is told; in the worst order of them 90 ms.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from trimtab.api.bounds import fitting
from trimtab.api.conditions import ConditionStatus, Wanted, set_conditions
from trimtab.api.taint_manager_status import (
    MAX_REFUSED,
    MAX_STUCK,
    MAX_ZONES,
    PodCounts,
    TaintManagerStatus,
    ZoneStatus,
)
from trimtab.tainting.deadlines import next_deadlines, overdue
from trimtab.tainting.report.conditions import conditions_of
from trimtab.tainting.report.seen import Seen
from trimtab.tainting.zones import FULL, NORMAL, PARTIAL

LOOK_EVERY: Final = 2.0
"""Seconds between two looks: a status is made, gauges are set."""

PACE: Final = 4.0
"""Seconds between two writes for numbers and lists alone; deadlines tick all the time, and a write has some 20 kB."""

SHORTEST: Final = 1.0
"""Seconds between two writes for whatever reason."""

REFUSED_BYTES: Final = 80_000
ZONE_BYTES: Final = 40_000
STUCK_BYTES: Final = 40_000
"""Bytes of each list as it is stored; that of the next deadlines is bound by its 50 entries, of 1.5 kB at most."""

_WORST_FIRST: Final = {FULL: 0, PARTIAL: 1, NORMAL: 2}


def build_status(seen: Seen, previous: TaintManagerStatus, *, base: PodCounts) -> TaintManagerStatus:
    """The status after a look.

    Args:
        seen: the look.
        previous: the status before it: since when conditions hold stands there.
        base: what earlier processes counted, as the status had it when this one took over.
    """
    soonest, omitted = next_deadlines(seen.deadlines)
    counts = PodCounts(
        tainted_nodes=seen.tainted_nodes,
        pods_with_deadline=len(seen.deadlines),
        overdue=overdue(seen.deadlines, now=seen.now),
        held=seen.held,
        deleted=base.deleted + seen.deleted,
        evicted=base.evicted + seen.evicted,
        nodes_tainted=base.nodes_tainted + seen.nodes_tainted,
    )
    return replace(
        previous,
        observed_generation=seen.generation,
        conditions=set_conditions(
            previous.conditions, conditions_of(seen, counts), now=seen.now, generation=seen.generation
        ),
        counts=counts,
        next_deadlines=soonest,
        deadlines_omitted=omitted,
        **_zones(seen.zones),
        **_refused(seen),
        **_stuck(seen),
    )


def with_conditions(
    previous: TaintManagerStatus,
    *conditions: tuple[str, ConditionStatus | bool, str, str],
    generation: int,
    now: float,
) -> TaintManagerStatus:
    """The status where there was no look: the spec cannot be used, or another TaintManager is the one.

    Args:
        previous: the status before; all else in it stays.
        conditions: type, status, reason and message of those that change.
        generation: of the spec.
        now: seconds since the epoch.
    """
    wanted = [Wanted(*each) for each in conditions]
    return replace(
        previous,
        observed_generation=generation,
        conditions=set_conditions(previous.conditions, wanted, now=now, generation=generation),
    )


def worth_writing(old: TaintManagerStatus, new: TaintManagerStatus, *, written: float | None, now: float) -> bool:
    """Whether a status is to be written over the one that stands in the cluster.

    At once where something begins or ends: a condition, a zone's state, who is refused or stuck at all, and what
    changes after a quiet while. For numbers and the next deadlines every :data:`PACE` seconds: each of 7,200 deletions
    changes some.

    Args:
        old: what was last written, or read.
        new: what would be written.
        written: when ``old`` was written, in seconds since the epoch; ``None`` where this process has not.
        now: seconds since the epoch.
    """
    if old == new:
        return False
    if written is None:
        return True
    since = now - written
    if since < 0 or since >= PACE:  # below 0 the clock was set back
        return True
    return since >= SHORTEST and _outline(old) != _outline(new)


def _zones(zones: tuple[ZoneStatus, ...]) -> dict[str, Any]:
    worst = sorted(zones, key=lambda zone: (_WORST_FIRST[zone.state], not zone.not_ready, zone.name))
    kept = fitting(worst, limit=MAX_ZONES, budget=ZONE_BYTES)
    return {"zones": tuple(sorted(kept, key=lambda zone: zone.name)), "zones_omitted": len(zones) - len(kept)}


def _refused(seen: Seen) -> dict[str, Any]:
    kept = fitting(seen.refused, limit=MAX_REFUSED, budget=REFUSED_BYTES)
    return {"refused": kept, "refused_omitted": len(seen.refused) - len(kept)}


def _stuck(seen: Seen) -> dict[str, Any]:
    kept = fitting(seen.stuck, limit=MAX_STUCK, budget=STUCK_BYTES)
    return {"stuck_nodes": kept, "stuck_nodes_omitted": len(seen.stuck) - len(kept)}


def _outline(status: TaintManagerStatus) -> tuple[object, ...]:
    """What of a status is told without delay."""
    return (
        status.observed_generation,
        [(each.type, each.status, each.reason) for each in status.conditions],
        [(each.name, each.state) for each in status.zones],
        [each.name for each in status.stuck_nodes],
        bool(status.refused),
    )
