"""Ready, Progressing and Degraded of a TaintManager, in one sentence each. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trimtab.api import reasons
from trimtab.api.bounds import named, plural, short
from trimtab.api.conditions import DEGRADED, PROGRESSING, READY, ConditionStatus, Wanted
from trimtab.api.plan import rfc3339
from trimtab.api.taint_manager import OBSERVE, OWN
from trimtab.api.taint_manager_status import PodCounts, ZoneStatus
from trimtab.tainting.report.seen import Seen
from trimtab.tainting.zones import FULL, NORMAL

LONGEST: Final = 1500
"""Bytes of a condition's message."""


def conditions_of(seen: Seen, counts: PodCounts) -> tuple[Wanted, Wanted, Wanted]:
    """The three conditions after a look.

    Args:
        seen: the look.
        counts: of it.
    """
    return _ready(seen, counts), _progressing(seen), _degraded(seen)


def zone_in_words(zone: ZoneStatus) -> str:
    """``eu/a``; of nodes without labels that they have none."""
    return zone.name or "without a name"


def _ready(seen: Seen, counts: PodCounts) -> Wanted:
    if not seen.looked:
        message = seen.stale or "nodes and pods have not all been seen yet"
        return _wanted(READY, "Unknown", reasons.WAITING_FOR_FIRST_LOOK, message)
    if seen.stale:
        return _wanted(READY, False, reasons.CLUSTER_UNREACHABLE, f"nothing is done: {seen.stale}")
    if seen.missing_rights:
        return _wanted(READY, False, reasons.RIGHTS_MISSING, _rights(seen))
    parts = [
        f"{plural(counts.tainted_nodes, 'node')} with NoExecute taints",
        f"{plural(counts.pods_with_deadline, 'pod')} with a deadline",
    ]
    if counts.overdue:
        parts.append(f"{counts.overdue} of them overdue")
    parts += _zones(seen)
    if seen.mode == OBSERVE:
        return _wanted(READY, True, reasons.OBSERVING, f"{', '.join(parts)}; spec.mode is Observe: nothing is done")
    return _wanted(READY, True, reasons.MANAGING_TAINTS, ", ".join(parts))


def _rights(seen: Seen) -> str:
    """All of them: whoever gives rights wants the list."""
    return f"mode {seen.mode} needs rights that trimtab does not have: {', '.join(seen.missing_rights)}"


def _zones(seen: Seen) -> Iterator[str]:
    """What is to be known of zones: those that are not as they should be."""
    if seen.mode != OWN or not seen.zones:
        return
    counted = [zone for zone in seen.zones if zone.nodes]
    if counted and all(zone.state == FULL for zone in counted):
        yield "all zones are down: no node is tainted"
        return
    ill = [f"{zone_in_words(zone)} is {zone.state}" for zone in seen.zones if zone.state != NORMAL]
    if ill:
        yield f"of {plural(len(seen.zones), 'zone')} {named(ill)}"


def _progressing(seen: Seen) -> Wanted:
    lines = [zone for zone in seen.zones if zone.waiting]
    parts = []
    if seen.waiting:
        told = [f"{seen.held} held back by userTaintRates"] * bool(seen.held)
        told += [f"{len(seen.refused)} refused"] * bool(seen.refused)
        detail = f" ({', '.join(told)})" if told else ""
        parts.append(f"ending {plural(seen.waiting, 'pod')} whose time is over{detail}")
    if lines:
        waiting = [f"{zone_in_words(zone)} {zone.waiting} at {zone.nodes_per_second:g} nodes/s" for zone in lines]
        total = sum(zone.waiting for zone in lines)
        parts.append(f"{plural(total, 'node')} wait{'s' * (total == 1)} for the taint: zone {named(waiting)}")
    if not parts:
        idle = "no pod's time is over" + (", no node waits for its taint" if seen.mode == OWN else "")
        nothing = "spec.mode is Observe: nothing is done" if seen.mode == OBSERVE else idle
        return _wanted(PROGRESSING, False, reasons.IDLE, nothing)
    reason = reasons.ENDING_PODS if seen.waiting else reasons.TAINTING_NODES
    return _wanted(PROGRESSING, True, reason, "; ".join(parts))


def _degraded(seen: Seen) -> Wanted:
    """The worst of what is wrong gives the reason; the message has all of it."""
    wrong: list[tuple[str, str]] = []
    if seen.stale:
        wrong.append((reasons.CLUSTER_UNREACHABLE, seen.stale))
    if seen.missing_rights:
        wrong.append((reasons.RIGHTS_MISSING, _rights(seen)))
    if seen.failed:
        wrong.append((reasons.PASS_FAILED, seen.failed))
    if seen.problem:
        wrong.append((reasons.NODE_LIFECYCLE_FAILED, f"node lifecycle: {seen.problem}"))
    if seen.refused:
        first = seen.refused[0]
        since = rfc3339(first.due.timestamp())
        verb = "is" if len(seen.refused) == 1 else "are"
        message = (
            f"{plural(len(seen.refused), 'pod')} whose time is over {verb} not let go: "
            f"{first.namespace}/{first.pod}, due {since}: {first.message}"
        )
        wrong.append((reasons.PODS_REFUSED, message))
    if seen.stuck:
        first_node = seen.stuck[0]
        message = (
            f"pods cannot end on {plural(len(seen.stuck), 'dead node')} "
            f"({named([each.name for each in seen.stuck])}); {first_node.name}: {first_node.message}"
        )
        wrong.append((reasons.PODS_STUCK, message))
    if not wrong:
        return _wanted(DEGRADED, False, reasons.ALL_WELL, "nothing keeps pods from going when their time is over")
    return _wanted(DEGRADED, True, wrong[0][0], "; ".join(message for _, message in wrong))


def _wanted(type_: str, status: ConditionStatus | bool, reason: str, message: str) -> Wanted:
    return Wanted(type_, status, reason, short(message, LONGEST))
