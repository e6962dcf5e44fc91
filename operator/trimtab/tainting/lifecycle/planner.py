"""Plans which nodes to probe, to set to Unknown, to taint and to untaint, without side effects.

One iteration plans all nodes from one state of the caches. The zones are assessed before any taint is planned, so an
iteration that finds all zones down adds no taint (upstream has a race here). The plan is carried out in this order:
probe nodes, set conditions to Unknown, patch taints, set pods to not ready. Each write has the observed state as a
precondition. The next iteration plans failed writes again. All times are seconds since the epoch.

Conditions result in NoSchedule taints immediately and without a rate limit, as in nodelifecycle (v1.36). The Ready
condition also results in a NoExecute taint, which the rate of the node's zone limits (see :mod:`.zones`). Only the keys
of the tables below are changed, and for each key only the effect that the node lifecycle manages. Taints of other
controllers and of administrators are preserved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.plan import rfc3339
from trimtab.api.taint_manager import NodeLifecycle, ZoneStatus
from trimtab.kube.objects import Lease, Node, Taint
from trimtab.kube.rules.taints import (
    DISK_PRESSURE,
    MEMORY_PRESSURE,
    NETWORK_UNAVAILABLE,
    NO_EXECUTE,
    NO_SCHEDULE,
    NOT_READY,
    PID_PRESSURE,
    UNREACHABLE,
    UNSCHEDULABLE,
)
from trimtab.tainting.deadlines import SWAPPED
from trimtab.tainting.lifecycle.node_health import (
    NEVER,
    STALE_WATCH_AFTER,
    UNKNOWN,
    HealthAssessment,
    HealthVerdict,
    MarkUnknown,
    ProbeResult,
    assess_health,
    extend_health,
    mark_unknown,
    update_health,
)
from trimtab.tainting.lifecycle.record import LifecycleState
from trimtab.tainting.lifecycle.zones import (
    QueuedNode,
    TakenToken,
    WaitingNode,
    all_down,
    answered_at,
    describe_zone,
    failed_at,
    next_at,
    queued,
    spent_at,
    zone_name,
    zone_of,
    zones,
)

OUT_OF_DISK: Final = "node.kubernetes.io/out-of-disk"
"""The taint key for the condition OutOfDisk, which only kubelets before v1.13 report."""

READY_KEYS: Final = {"False": NOT_READY, "Unknown": UNREACHABLE}
"""The taint key for each status of the Ready condition. It is the same for NoSchedule and NoExecute."""

PRESSURE_KEYS: Final = {
    "MemoryPressure": MEMORY_PRESSURE,
    "DiskPressure": DISK_PRESSURE,
    "PIDPressure": PID_PRESSURE,
    "NetworkUnavailable": NETWORK_UNAVAILABLE,
    "OutOfDisk": OUT_OF_DISK,
}
"""The NoSchedule taint key for each other condition with status True."""

NO_SCHEDULE_KEYS: Final = frozenset({*READY_KEYS.values(), *PRESSURE_KEYS.values(), UNSCHEDULABLE})
NO_EXECUTE_KEYS: Final = frozenset(READY_KEYS.values())
"""The keys of the NoExecute taints of failed nodes. Other NoExecute taints are those of users."""


class TaintChange(Struct, frozen=True, gc=False):
    """A taint to add to or to remove from a node, and the condition or state that causes the change.

    Of a taint to remove, only key and effect are set. ``reason`` is a code of :mod:`trimtab.api.reasons`.
    """

    node: str
    taint: Taint
    add: bool
    reason: str
    message: str


class LifecyclePlan(Struct, frozen=True, kw_only=True):
    """The writes of one iteration, in the order in which they are carried out.

    Attributes:
        now: the time of the plan.
        held: a reason code of :mod:`trimtab.api.reasons` if the node lifecycle is paused and nothing is done; else
            ``""``.
        probes: the nodes to probe before they are set to Unknown, with the seconds since their last heartbeat. The
            reads bypass every cache (no ``resourceVersion=0``).
        unknown: the patches that set the conditions of nodes to Unknown.
        taints: taints to add and to remove, sorted by node and key.
        failed: the time at which each not-ready node stopped being ready, by name. The pods on these nodes must be set
            to not ready. They are read later, node by node, because in a full outage they are all pods of the cluster.
        waiting: nodes that stay in the queue, zone by zone, in its order.
        taken: the tokens of the nodes that were taken from the queue in this iteration, by node name.
        zones: the zones by name.
        memory: the state for the next iteration.
        next_iteration: the latest time of the next iteration even if nothing changes; ``None`` if only a change
            requires one.
    """

    now: float
    held: str = ""
    probes: Mapping[str, float] = {}
    unknown: tuple[MarkUnknown, ...] = ()
    taints: tuple[TaintChange, ...] = ()
    failed: Mapping[str, float] = {}
    waiting: tuple[WaitingNode, ...] = ()
    taken: Mapping[str, TakenToken] = {}
    zones: Mapping[str, ZoneStatus] = {}
    memory: LifecycleState
    next_iteration: float | None = None


def plan_lifecycle(
    nodes: Mapping[str, Node],
    leases: Mapping[str, Lease],
    settings: NodeLifecycle,
    *,
    now: float,
    memory: LifecycleState | None = None,
    watches_verified_at: float | None = None,
    probe_results: Mapping[str, ProbeResult] = {},
    changed_at: Mapping[str, float] = {},
    resting: Collection[str] = (),
    in_flight: Mapping[str, int] = {},
) -> LifecyclePlan:
    """Plan one iteration of the node lifecycle.

    Args:
        nodes: the nodes by name. In a live cluster all nodes and Leases must have been listed, because a Lease that
            arrives later is treated as renewed.
        leases: the Leases by ``namespace/name``. Only those in kube-node-lease are used.
        settings: grace periods, thresholds and rates.
        now: the current time.
        memory: the state after the previous iteration. If it is ``None``, for example for a cluster from a file, no
            heartbeat is assessed and only the conditions of the nodes are used, because a snapshot of unknown age does
            not show how long a node has sent no heartbeat.
        watches_verified_at: the time at which the watches of nodes and Leases were last known to be up to date, because
            of an event, a bookmark, or a GET with the same result; ``None`` if nothing is watched.
        probe_results: the results of probes, by node name.
        changed_at: the time at which the last change to a node's Lease or status was observed, by node name. A change
            that is missing here is treated as observed now.
        resting: nodes that get no NoExecute taint in this iteration and do not block the queue, because their taint is
            being added or was refused repeatedly.
        in_flight: for each zone, the number of nodes that were taken from the queue and whose requests are outstanding.
    """
    nodes = dict(sorted(nodes.items()))
    if memory is None:
        return _plan_writes(nodes, {}, settings, LifecycleState(), now, resting, in_flight)
    if watches_verified_at is not None and now - watches_verified_at > STALE_WATCH_AFTER:
        blind = min(watches_verified_at, now if memory.stale_since is None else memory.stale_since)
        return LifecyclePlan(now=now, held=reasons.STALE_WATCHES, memory=replace(memory, stale_since=blind))
    if memory.stale_since is not None:  # nodes are not considered silent because the watches were stale
        blind = max(0.0, now - memory.stale_since)
        memory = replace(memory, heard=extend_health(memory.heard, blind, now=now), stale_since=None)
    heard = update_health(memory.heard, nodes.values(), leases, now=now, changed_at=changed_at)
    memory = replace(memory, heard=heard)
    assessments = {
        name: assess_health(node, heard[name], probe_results.get(name), settings, now=now)
        for name, node in nodes.items()
    }
    if any(each.verdict is HealthVerdict.WATCH_BEHIND for each in assessments.values()):
        return LifecyclePlan(now=now, held=reasons.WATCHES_BEHIND, memory=memory, next_iteration=now + 1.0)
    return _plan_writes(nodes, assessments, settings, memory, now, resting, in_flight)


def spend_token(memory: LifecycleState, token: TakenToken, in_flight: int, at: float) -> LifecycleState:
    """Return the state after the token of a taken node was spent, because its taint was or may have been written.

    Args:
        memory: the state of the plan that took the node, or a later state.
        token: the token of the node.
        in_flight: number of taken nodes in the zone at that time whose tokens are not spent yet, including this one.
        at: the time of the response or timeout.
    """
    spent = min(token.spent, at)  # later only if the clock was set back in the meantime
    before = max(spent, memory.spent.get(token.zone, spent))
    spent = answered_at(before, token.rate, in_flight=in_flight, now=at)
    return replace(memory, spent={**memory.spent, token.zone: spent})


def _plan_writes(
    nodes: Mapping[str, Node],
    assessments: Mapping[str, HealthAssessment],
    settings: NodeLifecycle,
    memory: LifecycleState,
    now: float,
    resting: Collection[str],
    in_flight: Mapping[str, int],
) -> LifecyclePlan:
    # 1. Assess the zones, as they are and as if all doubts came true.
    failing = [name for name, each in assessments.items() if each.verdict is HealthVerdict.UNKNOWN]
    ready = {name: node.ready_status for name, node in nodes.items()}
    ready.update(dict.fromkeys(failing, UNKNOWN))
    found = zones(nodes.values(), ready, settings)
    memory = _after_outage(memory, down=all_down(found.values()), now=now)
    pessimistic = _pessimistic_status(ready, memory, settings, now)
    slower = found
    if pessimistic != ready:
        worse = zones(nodes.values(), pessimistic, settings)
        slower = {name: min(zone, worse[name], key=lambda each: each.nodes_per_second) for name, zone in found.items()}
    # 2. Plan the NoExecute taints, and serve the queues of the zones.
    changes, failed = _no_execute_changes(nodes, ready, memory, now)
    queue = {} if memory.all_down else queued(memory.queue, failed, now=now)
    queues = _Queues(
        ready=ready,
        now=now,
        in_flight=in_flight,
        in_doubt="True" not in pessimistic.values(),
        open_at=None if memory.back is None else memory.back + settings.monitor_grace_seconds,
        spent=_last_taken(nodes.values(), {zone: time for zone, time in memory.spent.items() if zone in found}, now),
    )
    names: dict[str, list[str]] = {}
    for name in queue:
        names.setdefault(zone_of(nodes[name].labels), []).append(name)
    for zone in sorted(names):
        changes += queues.serve(slower[zone], names[zone], resting, queue)
    # 3. Plan the NoSchedule taints.
    for name, node in nodes.items():
        changes += no_schedule_changes(node, ready[name], now=now)
    changes.sort(key=lambda each: (each.node, each.taint.key, each.taint.effect, each.add))
    # 4. The plan changes without any event when a grace period ends, or when the rate of a zone allows the next taint.
    times = [each.due for each in assessments.values() if each.verdict is HealthVerdict.HEALTHY and each.due >= now]
    times += [each.due for each in queues.waiting if each.due is not None]
    waiting = Counter(each.zone for each in queues.waiting)
    return LifecyclePlan(
        now=now,
        probes={name: each.silent for name, each in assessments.items() if each.verdict is HealthVerdict.PROBE},
        unknown=tuple(mark_unknown(nodes[name], assessments[name], now=now) for name in failing),
        taints=tuple(changes),
        failed={
            name: failed_at(nodes[name], status, now) for name, status in ready.items() if status not in (None, "True")
        },
        waiting=tuple(queues.waiting),
        taken=queues.taken,
        zones={
            name: replace(
                zone, waiting=waiting[name], nodes_per_second=0.0 if memory.all_down else zone.nodes_per_second
            )
            for name, zone in found.items()
        },
        memory=replace(memory, queue=queue, spent=queues.spent),
        next_iteration=max(now, min(times)) if times else None,
    )


def _after_outage(memory: LifecycleState, *, down: bool, now: float) -> LifecycleState:
    """Update the state when an outage of all zones begins or ends.

    At its end, every node gets a new grace period. Upstream resets its probe timestamps likewise.
    """
    if down == memory.all_down:
        return memory
    if down:
        return replace(memory, all_down=True)
    heard = {name: replace(each, at=now) for name, each in memory.heard.items()}
    return replace(memory, all_down=False, back=now, heard=heard)


def _pessimistic_status(
    ready: Mapping[str, str | None], memory: LifecycleState, settings: NodeLifecycle, now: float
) -> Mapping[str, str | None]:
    """Return the Ready status of each node as if all nodes in doubt were not ready.

    In an outage, nodes exceed their grace period one by one, seconds apart. Without this rule the first of them would
    be tainted before it is known that most or all nodes of a zone are not ready. A node is in doubt after two missed
    renewals, or after half its grace period if that is shorter.
    """
    half = settings.monitor_grace_seconds / 2
    doubted = {
        name: UNKNOWN
        for name, each in memory.heard.items()
        if now - each.at > half and ready.get(name) == "True" and each.in_doubt(now, within=half)
    }
    return {**ready, **doubted} if doubted else ready


def _no_execute_changes(
    nodes: Mapping[str, Node], ready: Mapping[str, str | None], memory: LifecycleState, now: float
) -> tuple[list[TaintChange], dict[str, QueuedNode]]:
    """Plan the NoExecute taints to which no rate applies, and return the failed nodes that have none.

    Both taints are removed from a ready node immediately. If a node has the taint that does not match its Ready status,
    the taint is replaced immediately, because the outage continues. While all zones are down, both taints are removed
    from all nodes.
    """
    changes: list[TaintChange] = []
    failed: dict[str, QueuedNode] = {}
    for name, node in nodes.items():
        status, present = ready[name], no_execute_taints(node)
        if memory.all_down or status == "True":
            reason, message = reasons.NODE_RECOVERED, "condition Ready is True"
            if memory.all_down:
                reason = reasons.ALL_ZONES_DOWN
                message = "all zones are down: the operator is probably cut off from the nodes"
            changes += [TaintChange(name, Taint(key, NO_EXECUTE), False, reason, message) for key in sorted(present)]
        elif status in READY_KEYS and present:
            changes += replace_outage_taint(node, status, present, now=now)
        elif status in READY_KEYS:
            failed[name] = QueuedNode(node.uid, failed_at(node, status, now))
    return changes, failed


def _last_taken(nodes: Iterable[Node], spent: dict[str, float], now: float) -> dict[str, float]:
    """Return for each zone the time at which the last node was taken from the queue before this iteration.

    It is the stored time ``spent`` or the time of the zone's newest taint, whichever is later. The taints make up for a
    record that was lost or not written because the process was killed, so that no zone exceeds its rate. Times in the
    future, which occur if a clock is wrong or was set, are ignored.
    """
    for node in nodes:
        if not node.taints:
            continue
        time, zone = latest_taint_time(node), zone_of(node.labels)
        if time is not None and spent.get(zone, NEVER) < time <= now + 1.0:
            spent[zone] = min(now, time + 1.0)  # a taint time is truncated to whole seconds
    return dict(sorted(spent.items()))


class _Queues(Struct, kw_only=True):
    """Takes failed nodes from the queues of their zones, as fast as the rates of the zones allow.

    ``in_doubt`` is whether every node is not ready or has missed heartbeats. Before ``open_at`` no node is taken,
    because an outage of all zones has just ended.
    """

    ready: Mapping[str, str | None]
    now: float
    in_flight: Mapping[str, int]
    in_doubt: bool
    open_at: float | None
    spent: Mapping[str, float]
    waiting: list[WaitingNode] = field(default_factory=list)
    taken: dict[str, TakenToken] = field(default_factory=dict)

    def serve(
        self, zone: ZoneStatus, names: list[str], resting: Collection[str], queue: Mapping[str, QueuedNode]
    ) -> Iterator[TaintChange]:
        """Yield the taints of the nodes that the rate of a zone allows now; the others wait."""
        busy, rate = self.in_flight.get(zone.name, 0), zone.nodes_per_second
        at, paused = next_at(self.spent.get(zone.name), rate, in_flight=busy, now=self.now), ""
        if self.in_doubt:
            at, paused = None, reasons.ALL_NODES_IN_DOUBT
        elif self.open_at is not None and self.now < self.open_at:
            at, paused = None if at is None else max(at, self.open_at), reasons.OUTAGE_ENDED
        free = (name for name in tuple(names) if name not in resting)
        while at is not None and not paused and at <= self.now and (first := next(free, None)) is not None:
            names.remove(first)
            yield self._taint(zone, first, queue[first])
            token = self.taken[first] = TakenToken(zone.name, rate, spent_at(at, rate, now=self.now))
            busy += 1
            at = next_at(token.spent, rate, in_flight=busy, now=self.now)
        reason = paused or (reasons.ZONE_DISRUPTED if at is None else reasons.EVICTION_RATE_LIMITED)
        for place, name in enumerate(names, start=1):
            due = None if at is None else max(at, self.now) + (place - 1) / rate
            message = f"{place} of {len(names)} in zone {zone_name(zone.name)}, which is {describe_zone(zone)}"
            self.waiting.append(WaitingNode(name, zone.name, place, due, reason, message))

    def _taint(self, zone: ZoneStatus, name: str, place: QueuedNode) -> TaintChange:
        status = self.ready[name]
        key = READY_KEYS[UNKNOWN if status == UNKNOWN else "False"]
        message = (
            f"condition Ready is {status} and has not been True since {rfc3339(place.since)}; "
            f"zone {zone_name(zone.name)} is {describe_zone(zone)}"
        )
        return TaintChange(name, Taint(key, NO_EXECUTE, "", self.now), True, reason_of(key), message)


def no_schedule(node: Node, ready: str | None) -> dict[str, tuple[str, str]]:
    """Return the keys of the NoSchedule taints that a node should have, each with its reason code and message.

    A node without a Ready condition should have the not-ready taint, which the admission plugin TaintNodesByCondition
    adds to every new node. If the plugin is disabled, the node lifecycle adds it. Upstream removes it from such a node.
    The assessed status ``ready`` may be newer than the object.
    """
    wanted: dict[str, tuple[str, str]] = {}
    if ready is None:
        wanted[NOT_READY] = (reasons.NODE_NOT_READY, "the node has no Ready condition yet")
    elif ready in READY_KEYS:
        key = READY_KEYS[ready]
        wanted[key] = (reason_of(key), f"condition Ready is {ready}")
    for condition in node.conditions:
        key = PRESSURE_KEYS.get(condition.type, "")
        if key and condition.status == "True":
            wanted[key] = (reasons.NODE_CONDITION, f"condition {condition.type} is True")
    if node.unschedulable:
        wanted[UNSCHEDULABLE] = (reasons.NODE_CORDONED, "spec.unschedulable is true")
    return wanted


def no_schedule_changes(node: Node, ready: str | None, *, now: float) -> list[TaintChange]:
    """Return the changes from a node's current NoSchedule taints to those that it should have, sorted by key."""
    if ready == "True" and not node.taints and not node.unschedulable and not _any_pressure(node):
        return []  # the common case
    wanted = no_schedule(node, ready)
    there = {taint.key for taint in node.taints if taint.effect == NO_SCHEDULE and taint.key in NO_SCHEDULE_KEYS}
    changes = []
    for key in sorted(wanted.keys() ^ there):
        if key in wanted:
            changes.append(TaintChange(node.name, Taint(key, NO_SCHEDULE, "", now), True, *wanted[key]))
        else:
            changes.append(TaintChange(node.name, Taint(key, NO_SCHEDULE), False, *_why_removed(key, ready)))
    return changes


def _why_removed(key: str, ready: str | None) -> tuple[str, str]:
    """Return the reason code and the message for the removal of a NoSchedule taint."""
    if key == UNSCHEDULABLE:
        return reasons.NODE_UNCORDONED, "spec.unschedulable is false"
    if key in NO_EXECUTE_KEYS:
        reason = reasons.NODE_RECOVERED if ready == "True" else reasons.NODE_CONDITION_ENDED
        return reason, f"condition Ready is {ready}"
    [condition] = [name for name, each in PRESSURE_KEYS.items() if each == key]
    return reasons.NODE_CONDITION_ENDED, f"condition {condition} is not True"


def no_execute_taints(node: Node) -> dict[str, Taint]:
    """Return a node's NoExecute taints not-ready and unreachable, by key."""
    if not node.taints:
        return {}
    return {taint.key: taint for taint in node.taints if taint.effect == NO_EXECUTE and taint.key in NO_EXECUTE_KEYS}


def replace_outage_taint(node: Node, ready: str, there: dict[str, Taint], *, now: float) -> list[TaintChange]:
    """Return the changes that replace the NoExecute taint of a failed node with the one for its current Ready status.

    The new taint keeps the time of the old one (upstream writes the current time), because the outage continues.
    Otherwise pods would get their full toleration time again when a not-ready node becomes unreachable. ``ready`` is
    False or Unknown, and ``there`` is the result of :func:`no_execute_taints`.
    """
    key = READY_KEYS[ready]
    other = there.get(SWAPPED[key])
    if other is None:
        return []
    changes = []
    if key not in there:
        since = now if other.time_added is None else min(now, other.time_added)
        message = f"{key} replaces {other.key}: the same outage continues"
        changes.append(TaintChange(node.name, Taint(key, NO_EXECUTE, "", since), True, reason_of(key), message))
    gone = f"condition Ready is {ready}: replaced by {key}"
    changes.append(TaintChange(node.name, Taint(other.key, NO_EXECUTE), False, reasons.NODE_CONDITION_ENDED, gone))
    return changes


def reason_of(key: str) -> str:
    """Return the reason code for the taint key not-ready or unreachable."""
    return reasons.NODE_NOT_READY if key == NOT_READY else reasons.NODE_UNREACHABLE


def _any_pressure(node: Node) -> bool:
    for each in node.conditions:  # noqa: SIM110 (runs for every node in every iteration; a generator takes twice as long)
        if each.status == "True" and each.type in PRESSURE_KEYS:
            return True
    return False


def latest_taint_time(node: Node) -> float | None:
    """Return the latest ``timeAdded`` of the NoExecute taints not-ready and unreachable; ``None`` if both lack it."""
    times = [taint.time_added for taint in no_execute_taints(node).values() if taint.time_added is not None]
    return max(times, default=None)
