"""Determines the state of each zone, and which of its failed nodes is tainted next, without side effects.

The states and rates of zones are those of nodelifecycle (v1.36). The queue of a zone is first in, first out. Upstream
removes a waiting node from its queue and adds it again every 5 seconds, so a slow zone taints its nodes in no
particular order, and a restarted process starts with a full bucket. Here the time at which a node failed determines its
position in the queue. The token bucket of a zone has a capacity of one, so its state is the time at which the last node
was taken from the queue. A token is considered spent when the response arrives, because the API server may process the
request at any moment until then. All times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.plan import rfc3339
from trimtab.api.taint_manager import ZoneState
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Node, Taint
from trimtab.kube.rules.node_labels import BETA_REGION, BETA_ZONE, REGION, ZONE
from trimtab.kube.rules.taints import NO_EXECUTE
from trimtab.tainting.lifecycle.node_health import (
    NEVER,
    READY_KEYS,
    QueuedNode,
    TaintChange,
    failed_at,
    no_execute_taints,
    reason_of,
    swap,
)
from trimtab.tainting.lifecycle.record import LifecycleState
from trimtab.tainting.lifecycle.settings import LifecycleSettings

NORMAL: Final = "Normal"
PARTIAL: Final = "PartialDisruption"
FULL: Final = "FullDisruption"

EXCLUDE: Final = "node.kubernetes.io/exclude-disruption"
"""A node with this label, regardless of its value, is not counted in its zone. It is tainted like other nodes."""

MIN_NOT_READY: Final = 3
"""Minimum number of not-ready nodes in a zone in state PartialDisruption."""


class Zone(Struct, frozen=True, gc=False):
    """The state of a zone, and the node counts that determine it.

    Attributes:
        name: ``region/zone`` from the node labels; ``""`` for nodes without these labels, which form a zone of their
            own.
        state: one of :data:`NORMAL`, :data:`PARTIAL`, :data:`FULL`.
        ready: number of ready nodes.
        not_ready: number of nodes that are not ready or have no Ready condition.
        rate: nodes per second that may get a NoExecute taint.
    """

    name: str
    state: ZoneState
    ready: int
    not_ready: int
    rate: float

    @property
    def nodes(self) -> int:
        """Return the number of counted nodes."""
        return self.ready + self.not_ready

    @property
    def description(self) -> str:
        """Return the state and the rate of the zone for messages."""
        return (
            f"{self.state} ({self.not_ready} of {self.nodes} nodes not ready); "
            f"failed nodes of the zone are tainted at a rate of at most {self.rate:g} per second"
        )


def zone_name(name: str) -> str:
    """Return the name of a zone for messages. Nodes without zone labels form a zone without a name."""
    return name or "without a name"


def zone_of(labels: Labels) -> str:
    """Return the zone of a node from its region and zone labels.

    Label values contain no slash, so the name is unique.
    """
    region = labels.get(BETA_REGION) or labels.get(REGION) or ""
    zone = labels.get(BETA_ZONE) or labels.get(ZONE) or ""
    return f"{region}/{zone}" if region or zone else ""


def zones(nodes: Iterable[Node], ready: Mapping[str, str | None], settings: LifecycleSettings) -> dict[str, Zone]:
    """Return every zone that has a node, sorted by name, from all nodes and their assessed Ready status."""
    counts: dict[str, list[int]] = {}
    for node in nodes:
        labels = node.labels
        name = zone_of(labels)
        count = counts.get(name)
        if count is None:
            count = counts[name] = [0, 0]
        if EXCLUDE not in labels:
            count[ready[node.name] != "True"] += 1
    found = {}
    for name in sorted(counts):
        good, bad = counts[name]
        state = state_of(good, bad, settings)
        found[name] = Zone(name, state, good, bad, rate_of(state, good + bad, settings))
    return found


def state_of(ready: int, not_ready: int, settings: LifecycleSettings) -> ZoneState:
    """Return the state of a zone with these numbers of ready and not-ready nodes."""
    if not_ready and not ready:
        return FULL
    if not_ready >= MIN_NOT_READY and not_ready / (ready + not_ready) >= settings.unhealthy_zone_threshold:
        return PARTIAL
    return NORMAL


def rate_of(state: ZoneState, nodes: int, settings: LifecycleSettings) -> float:
    """Return the nodes per second that may be tainted in a zone of this state and size, unless all zones are down."""
    if state == FULL:
        return settings.full_disruption_eviction_rate
    if state == NORMAL:
        return settings.node_eviction_rate
    return settings.secondary_node_eviction_rate if nodes > settings.large_cluster_size_threshold else 0.0


def all_down(found: Iterable[Zone]) -> bool:
    """Return whether all zones that have counted nodes are in FullDisruption.

    In that case the operator has probably lost its own connectivity, so no node is tainted. This includes clusters with
    a single node or a single zone.
    """
    counted = [zone.state for zone in found if zone.nodes]
    return bool(counted) and all(state == FULL for state in counted)


BURST: Final = 0.25
"""Maximum delay, in seconds, that one iteration makes up for at a fast rate. Iterations are at least 0.2 s apart."""


def queued(before: Mapping[str, QueuedNode], failed: Mapping[str, QueuedNode], *, now: float) -> dict[str, QueuedNode]:
    """Return the queue of all failed nodes, sorted by their time of failure.

    ``failed`` has the transition time of their Ready condition. A node whose Ready condition changes from False to
    Unknown keeps its position in the queue ``before``.
    """
    places: dict[str, QueuedNode] = {}
    for name, place in failed.items():
        known = before.get(name)
        same = known is not None and known.uid == place.uid
        places[name] = QueuedNode(place.uid, min(now, place.since, known.since if known is not None and same else now))
    return dict(sorted(places.items(), key=lambda item: (item[1].since, item[0])))


def next_at(spent: float | None, rate: float, *, now: float) -> float | None:
    """Return the time from which the next node may be tainted; ``None`` if the rate is 0.

    Args:
        spent: the time at which the last node was tainted; ``None`` if none ever was, so that the bucket is full.
        rate: nodes per second. After a change of the rate, the new rate applies from the last tainted node.
        now: the current time, which replaces a later ``spent`` if the clock was set back.
    """
    if rate <= 0.0:
        return None
    return now if spent is None else min(spent, now) + 1.0 / rate


def spent_at(at: float, rate: float, *, now: float) -> float:
    """Return the time to store for a node that is taken from the queue now.

    At a slow rate it is ``now``. At a rate of several nodes per iteration it may be earlier, but not before the time
    ``at`` from which the node could have been taken, so that one iteration can take several nodes.
    """
    return now if 1.0 / rate >= BURST else max(at, now - BURST)


def answered_at(spent: float | None, rate: float, *, in_flight: int, now: float) -> float:
    """Return the time to store after the request for a taken node was answered or timed out.

    At a slow rate it is ``now``. At a rate of several nodes per iteration it is earlier, by the part of the burst that
    the taken nodes (including this one) do not use, because the API server may still process requests for them.
    """
    latest = now - max(0.0, BURST - in_flight / rate) if rate > 0.0 else now
    return latest if spent is None else max(spent, latest)


def latest_taint_time(node: Node) -> float | None:
    """Return the latest ``timeAdded`` of the NoExecute taints not-ready and unreachable; ``None`` if both lack it."""
    times = [taint.time_added for taint in no_execute_taints(node).values() if taint.time_added is not None]
    return max(times, default=None)


class NoExecuteInput(Struct, frozen=True):
    """The input of :func:`plan_no_execute`.

    Attributes:
        nodes: the nodes by name, sorted.
        ready: the assessed Ready status of each node.
        zones: the zones by name. Each is in its current state, or in the state that it may soon have if that state has
            a lower rate.
        settings: the settings of the node lifecycle.
        memory: the state of the node lifecycle, in which ``all_down`` is current.
        now: the time of the plan.
        in_doubt: whether every node is not ready or has missed heartbeats.
        resting: see :func:`~trimtab.tainting.lifecycle.planner.plan_lifecycle`.
        in_flight: likewise.
    """

    nodes: Mapping[str, Node]
    ready: Mapping[str, str | None]
    zones: Mapping[str, Zone]
    settings: LifecycleSettings
    memory: LifecycleState
    now: float
    in_doubt: bool = False
    resting: Collection[str] = ()
    in_flight: Mapping[str, int] = {}


class WaitingNode(Struct, frozen=True, gc=False):
    """A failed node that is queued for tainting.

    Attributes:
        node: name of the node.
        zone: name of the node's zone.
        place: position in the queue of the zone, starting at 1.
        due: the time at which the node will be tainted if nothing changes, in seconds since the epoch; ``None`` while
            the rate is 0 or tainting is paused.
        reason: a reason code of :mod:`trimtab.api.reasons` for the delay.
        message: describes the position, and the state and rate of the zone.
    """

    node: str
    zone: str
    place: int
    due: float | None
    reason: str
    message: str


class TakenToken(Struct, frozen=True, gc=False):
    """The rate limit token with which a node is taken from the queue of its zone.

    Attributes:
        zone: name of the zone.
        rate: rate of the zone in nodes per second.
        spent: the time to store for the zone once the token is spent, or a later one; see :func:`spent_at`.
    """

    zone: str
    rate: float
    spent: float


class NoExecuteResult(Struct, frozen=True):
    """The result of :func:`plan_no_execute`.

    Attributes:
        changes: the taints to add and to remove.
        waiting: the nodes that stay in the queue, zone by zone, in its order.
        queue: the queue of all zones. A node that is being tainted stays in the queue until the watch shows its taint.
        spent: for each zone, the time at which the last node was tainted. It does not include ``taken``.
        taken: the tokens of the nodes that are taken from the queue in this iteration, by node name.
    """

    changes: tuple[TaintChange, ...]
    waiting: tuple[WaitingNode, ...]
    queue: Mapping[str, QueuedNode]
    spent: Mapping[str, float]
    taken: Mapping[str, TakenToken]


def plan_no_execute(inputs: NoExecuteInput) -> NoExecuteResult:
    """Plan the NoExecute taints not-ready and unreachable.

    Both taints are removed from a ready node immediately, regardless of rates. If a node has the taint that does not
    match its Ready status, the taint is replaced immediately, because the outage continues. While all zones are down,
    both taints are removed from all nodes.
    """
    changes: list[TaintChange] = []
    failed: dict[str, QueuedNode] = {}
    for name, node in inputs.nodes.items():
        status, present = inputs.ready[name], no_execute_taints(node)
        if inputs.memory.all_down:
            changes += _removals(
                node,
                present,
                reasons.ALL_ZONES_DOWN,
                "all zones are down: the operator is probably cut off from the nodes",
            )
        elif status == "True":
            changes += _removals(node, present, reasons.NODE_RECOVERED, "condition Ready is True")
        elif status in READY_KEYS:
            if present:
                changes += swap(node, status, present, now=inputs.now)
            else:
                failed[name] = QueuedNode(node.uid, failed_at(node, status, inputs.now))
    queue = queued(inputs.memory.queue, failed, now=inputs.now) if not inputs.memory.all_down else {}
    return _serve_queues(inputs, queue, changes)


def _removals(node: Node, present: Mapping[str, Taint], reason: str, message: str) -> Iterator[TaintChange]:
    for key in sorted(present):
        yield TaintChange(node.name, Taint(key, NO_EXECUTE), False, reason, message)


def _serve_queues(
    inputs: NoExecuteInput, queue: Mapping[str, QueuedNode], changes: list[TaintChange]
) -> NoExecuteResult:
    queues: dict[str, list[str]] = {}
    for name in queue:
        queues.setdefault(zone_of(inputs.nodes[name].labels), []).append(name)
    spent = _last_taken(inputs)
    waiting: list[WaitingNode] = []
    taken: dict[str, TakenToken] = {}
    for zone in sorted(queues):
        line = queues[zone]
        at, paused = _zone_open_at(inputs, inputs.zones[zone], spent.get(zone))
        busy = inputs.in_flight.get(zone, 0)
        free = (name for name in tuple(line) if name not in inputs.resting)
        while at is not None and not paused and at <= inputs.now and (first := next(free, None)) is not None:
            line.remove(first)
            changes.append(_taint_change(inputs, inputs.zones[zone], first, queue[first]))
            rate = inputs.zones[zone].rate
            taken[first] = TakenToken(zone, rate, spent_at(at, rate, now=inputs.now))
            busy += 1
            at = _next_at(inputs, inputs.zones[zone], taken[first].spent, busy)
        waiting += _waiting_nodes(inputs, inputs.zones[zone], line, at, paused)
    return NoExecuteResult(tuple(changes), tuple(waiting), queue, spent, taken)


def _last_taken(inputs: NoExecuteInput) -> dict[str, float]:
    """Return for each zone the time at which the last node was taken from the queue.

    It is the stored time or the time of the zone's newest taint, whichever is later. The taints make up for a record
    that was lost or not written because the process was killed, so that no zone exceeds its rate. Times in the future,
    which occur if a clock is wrong or was set, are ignored. Zones without nodes are omitted.
    """
    spent = {zone: time for zone, time in inputs.memory.spent.items() if zone in inputs.zones}
    for node in inputs.nodes.values():
        if not node.taints:
            continue
        time = latest_taint_time(node)
        zone = zone_of(node.labels)
        if time is not None and spent.get(zone, NEVER) < time <= inputs.now + 1.0:
            spent[zone] = min(inputs.now, time + 1.0)  # a taint time is truncated to whole seconds
    return dict(sorted(spent.items()))


def _zone_open_at(inputs: NoExecuteInput, zone: Zone, spent: float | None) -> tuple[float | None, str]:
    """Return the time from which the next node of a zone may be tainted, and the reason if tainting is paused.

    The time is ``None`` for never. The reason is ``""`` if tainting is not paused.
    """
    at = _next_at(inputs, zone, spent, inputs.in_flight.get(zone.name, 0))
    if inputs.in_doubt:
        return None, reasons.ALL_NODES_IN_DOUBT
    back = inputs.memory.back
    if back is not None and inputs.now < back + inputs.settings.node_monitor_grace_period:
        again = back + inputs.settings.node_monitor_grace_period
        return (None if at is None else max(at, again)), reasons.OUTAGE_ENDED
    return at, ""


def _next_at(inputs: NoExecuteInput, zone: Zone, spent: float | None, in_flight: int) -> float | None:
    """Return the time from which the next node of a zone may be tainted, taking outstanding requests into account."""
    if in_flight:
        spent = answered_at(spent, zone.rate, in_flight=in_flight, now=inputs.now)
    return next_at(spent, zone.rate, now=inputs.now)


def _taint_change(inputs: NoExecuteInput, zone: Zone, name: str, place: QueuedNode) -> TaintChange:
    status = inputs.ready[name]
    key = READY_KEYS["Unknown" if status == "Unknown" else "False"]
    message = (
        f"condition Ready is {status} and has not been True since {rfc3339(place.since)}; "
        f"zone {zone_name(zone.name)} is {zone.description}"
    )
    return TaintChange(name, Taint(key, NO_EXECUTE, "", inputs.now), True, reason_of(key), message)


def _waiting_nodes(
    inputs: NoExecuteInput, zone: Zone, line: list[str], at: float | None, paused: str
) -> Iterator[WaitingNode]:
    reason = paused or (reasons.ZONE_DISRUPTED if at is None else reasons.EVICTION_RATE_LIMITED)
    for place, name in enumerate(line, start=1):
        due = None if at is None else max(at, inputs.now) + (place - 1) / zone.rate
        message = f"{place} of {len(line)} in zone {zone_name(zone.name)}, which is {zone.description}"
        yield WaitingNode(name, zone.name, place, due, reason, message)
