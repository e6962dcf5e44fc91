"""NoExecute taints of nodes that have failed: at the rate of their zone, in the order in which they failed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct

from trimtab.api import reasons
from trimtab.kube.objects import Node, Taint
from trimtab.kube.rules.taints import NO_EXECUTE
from trimtab.tainting.conditions import READY_KEYS, TaintChange, no_execute_taints, reason_of, swap
from trimtab.tainting.health.heard import NEVER
from trimtab.tainting.lifecycle_memory import LifecycleMemory
from trimtab.tainting.lifecycle_settings import LifecycleSettings
from trimtab.tainting.queue import Queued, failed_at, latest_time, next_at, queued, spent_at
from trimtab.tainting.zones import Zone, zone_of


class Look(Struct, frozen=True):
    """What the rules look at.

    Attributes:
        nodes: by name, in its order.
        ready: the Ready status of each.
        zones: by name; as they may soon be found where that is slower.
        settings: rates.
        memory: with whether all zones are down as of now.
        now: seconds since the epoch.
        in_doubt: whether every node is down or has fallen silent.
        resting: nodes that get no taint now, and hold up nobody.
    """

    nodes: Mapping[str, Node]
    ready: Mapping[str, str | None]
    zones: Mapping[str, Zone]
    settings: LifecycleSettings
    memory: LifecycleMemory
    now: float
    in_doubt: bool = False
    resting: Collection[str] = ()


class Waiting(Struct, frozen=True, gc=False):
    """A node that has failed and has no NoExecute taint yet.

    Attributes:
        node: its name.
        zone: its zone's.
        place: in its zone's queue, from 1.
        due: when it is tainted if nothing changes, in seconds since the epoch; ``None`` while nothing is.
        reason: why it waits, one of :mod:`trimtab.api.reasons`.
        message: the numbers.
    """

    node: str
    zone: str
    place: int
    due: float | None
    reason: str
    message: str


class NoExecute(Struct, frozen=True):
    """What comes of it.

    Attributes:
        changes: taints to put on and take off.
        waiting: who waits, zone by zone, the first first.
        queue: the queue of all zones; who is being tainted stays in it until the taint is seen.
        spent: when each zone's last node was taken.
        taken: of each node that was taken now its zone, and when the zone's last one was taken before it.
    """

    changes: tuple[TaintChange, ...]
    waiting: tuple[Waiting, ...]
    queue: Mapping[str, Queued]
    spent: Mapping[str, float]
    taken: Mapping[str, tuple[str, float | None]]


def no_execute(look: Look) -> NoExecute:
    """The NoExecute taints of not-ready and unreachable.

    A node that is ready loses both at once, whatever the rates. One that has the wrong one of the two gets the right
    one at once: its outage goes on. While all zones are down none has any.
    """
    changes: list[TaintChange] = []
    failed: dict[str, Queued] = {}
    for name, node in look.nodes.items():
        status, there = look.ready[name], no_execute_taints(node)
        if look.memory.all_down:
            changes += _freed(node, there, reasons.ALL_ZONES_DOWN, "all zones are down: rather we are cut off")
        elif status == "True":
            changes += _freed(node, there, reasons.NODE_RECOVERED, "condition Ready is True")
        elif status in READY_KEYS:
            if there:
                changes += swap(node, READY_KEYS[status], there, now=look.now)
            else:
                failed[name] = Queued(node.uid, failed_at(node, status, look.now))
    queue = queued(look.memory.queue, failed, now=look.now) if not look.memory.all_down else {}
    return _served(look, queue, changes)


def _freed(node: Node, there: Mapping[str, Taint], reason: str, message: str) -> Iterator[TaintChange]:
    for key in sorted(there):
        yield TaintChange(node.name, Taint(key, NO_EXECUTE), False, reason, message)


def _served(look: Look, queue: Mapping[str, Queued], changes: list[TaintChange]) -> NoExecute:
    lines: dict[str, list[str]] = {}
    for name in queue:
        lines.setdefault(zone_of(look.nodes[name].labels), []).append(name)
    spent = _spent(look)
    waiting: list[Waiting] = []
    taken: dict[str, tuple[str, float | None]] = {}
    for zone in sorted(lines):
        line = lines[zone]
        at, held = _open_at(look, look.zones[zone], spent.get(zone))
        free = (name for name in tuple(line) if name not in look.resting)
        while at is not None and not held and at <= look.now and (first := next(free, None)) is not None:
            line.remove(first)
            changes.append(_taint(look, look.zones[zone], first, queue[first]))
            taken[first] = (zone, spent.get(zone))
            spent[zone] = spent_at(at, look.zones[zone].rate, now=look.now)
            at = next_at(spent[zone], look.zones[zone].rate, now=look.now)
        waiting += _waiting(look, look.zones[zone], line, at, held)
    return NoExecute(tuple(changes), tuple(waiting), queue, spent, taken)


def _spent(look: Look) -> dict[str, float]:
    """When each zone's last node was taken: as remembered, or as a taint says that is younger than the memory.

    The taints stand in for a record that was lost, or that a kill kept from being written: nothing goes faster for it.
    A time ahead of ours was written by another clock, or before ours was set back, and says nothing. Of zones that are
    gone nothing is kept.
    """
    spent = {zone: time for zone, time in look.memory.spent.items() if zone in look.zones}
    for node in look.nodes.values():
        if not node.taints:
            continue
        time = latest_time(node)
        zone = zone_of(node.labels)
        if time is not None and spent.get(zone, NEVER) < time <= look.now + 1.0:
            spent[zone] = min(look.now, time + 1.0)  # taints have whole seconds: it may have been up to one later
    return dict(sorted(spent.items()))


def _open_at(look: Look, zone: Zone, spent: float | None) -> tuple[float | None, str]:
    """When a zone's next node may be taken (``None`` for not), and why none may be whatever the rate."""
    at = next_at(spent, zone.rate, now=look.now)
    if look.in_doubt:
        return None, reasons.ALL_NODES_IN_DOUBT
    back = look.memory.back
    if back is not None and look.now < back + look.settings.node_monitor_grace_period:
        again = back + look.settings.node_monitor_grace_period
        return (None if at is None else max(at, again)), reasons.OUTAGE_ENDED
    return at, ""


def _taint(look: Look, zone: Zone, name: str, place: Queued) -> TaintChange:
    status = look.ready[name]
    key = READY_KEYS["Unknown" if status == "Unknown" else "False"]
    message = (
        f"condition Ready is {status} for {look.now - place.since:.0f}s; zone {zone.name or 'without a name'} is "
        f"{zone.state}, {zone.not_ready} of {zone.nodes} nodes not ready, {zone.rate:g} nodes/s"
    )
    return TaintChange(name, Taint(key, NO_EXECUTE, "", look.now), True, reason_of(key), message)


def _waiting(look: Look, zone: Zone, line: list[str], at: float | None, held: str) -> Iterator[Waiting]:
    reason = held or (reasons.ZONE_DISRUPTED if at is None else reasons.EVICTION_RATE_LIMITED)
    for place, name in enumerate(line, start=1):
        due = None if at is None else max(at, look.now) + (place - 1) / zone.rate
        message = (
            f"{place} of {len(line)} in zone {zone.name or 'without a name'}, which is {zone.state} "
            f"({zone.not_ready} of {zone.nodes} nodes not ready): {zone.rate:g} nodes/s"
        )
        yield Waiting(name, zone.name, place, due, reason, message)
