"""Plans which nodes to probe, to set to Unknown, to taint and to untaint, without side effects.

One iteration plans all nodes from one state of the caches. The zones are assessed before any taint is planned, so an
iteration that finds all zones down adds no taint (upstream has a race here). The plan is carried out in this order:
probe nodes, set conditions to Unknown, patch taints, set pods to not ready. Each write has the observed state as a
precondition. The next iteration plans failed writes again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
from msgspec import Struct

from trimtab.api import reasons
from trimtab.kube.objects import Lease, Node
from trimtab.tainting.lifecycle.node_health import (
    UNKNOWN,
    HealthAssessment,
    HealthVerdict,
    MarkUnknown,
    NodeHealth,
    ProbeResult,
    TaintChange,
    assess_health,
    extend_health,
    failed_at,
    mark_unknown,
    no_schedule_changes,
    ready_status,
    update_health,
)
from trimtab.tainting.lifecycle.record import LifecycleState
from trimtab.tainting.lifecycle.settings import STALE_WATCH_AFTER, LifecycleSettings
from trimtab.tainting.lifecycle.zones import (
    NoExecuteInput,
    NoExecuteResult,
    TakenToken,
    WaitingNode,
    Zone,
    all_down,
    answered_at,
    plan_no_execute,
    zones,
)


class LifecyclePlan(Struct, frozen=True, kw_only=True):
    """The writes of one iteration, in the order in which they are carried out.

    Attributes:
        now: the time of the plan in seconds since the epoch.
        held: a reason code of :mod:`trimtab.api.reasons` if the node lifecycle is paused and nothing is done; else
            ``""``.
        probes: the nodes to probe before they are set to Unknown, with the seconds since their last heartbeat. The
            reads bypass every cache (no ``resourceVersion=0``).
        unknown: the patches that set the conditions of nodes to Unknown.
        taints: taints to add and to remove, sorted by node and key.
        failed: the time at which each not-ready node stopped being ready, by name. The pods on these nodes must be set
            to not ready. They are read later, node by node, because in a full outage they are all pods of the cluster.
        waiting: nodes that are queued for tainting, in the order of the queue.
        taken: the tokens of the nodes that were taken from the queue in this iteration, by node name.
        zones: the zones by name.
        memory: the state for the next iteration.
        next_iteration: the latest time of the next iteration even if nothing changes, in seconds since the epoch;
            ``None`` if only a change requires one.
    """

    now: float
    held: str = ""
    probes: Mapping[str, float] = {}
    unknown: tuple[MarkUnknown, ...] = ()
    taints: tuple[TaintChange, ...] = ()
    failed: Mapping[str, float] = {}
    waiting: tuple[WaitingNode, ...] = ()
    taken: Mapping[str, TakenToken] = {}
    zones: Mapping[str, Zone] = {}
    memory: LifecycleState
    next_iteration: float | None = None


def plan_lifecycle(
    nodes: Mapping[str, Node],
    leases: Mapping[str, Lease],
    settings: LifecycleSettings,
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
        now: the current time in seconds since the epoch.
        memory: the state after the previous iteration. If it is ``None``, for example for a cluster from a file, no
            heartbeat is assessed and only the conditions of the nodes are used, because a snapshot of unknown age does
            not show how long a node has sent no heartbeat.
        watches_verified_at: the time at which the watches of nodes and Leases were last known to be up to date, because
            of an event, a bookmark, or a GET with the same result; ``None`` if nothing is watched.
        probe_results: the results of probes, by node name.
        changed_at: the time at which the last change to a node's Lease or status was observed, by node name, in seconds
            since the epoch. A change that is missing here is treated as observed now.
        resting: nodes that get no NoExecute taint in this iteration and do not block the queue, because their taint is
            being added or was refused repeatedly.
        in_flight: for each zone, the number of nodes that were taken from the queue and whose requests are outstanding.
    """
    live, memory = memory is not None, memory or LifecycleState()
    if watches_verified_at is not None and now - watches_verified_at > STALE_WATCH_AFTER:
        blind = min(watches_verified_at, now if memory.stale_since is None else memory.stale_since)
        stale = msgspec.structs.replace(memory, stale_since=blind)
        return LifecyclePlan(now=now, held=reasons.STALE_WATCHES, memory=stale)
    nodes = dict(sorted(nodes.items()))
    if not live:
        return _plan_writes(nodes, {}, settings, memory, now, resting, in_flight)
    memory = _after_stale_watches(memory, now)
    heard = update_health(memory.heard, nodes.values(), leases, now=now, changed_at=changed_at)
    memory = msgspec.structs.replace(memory, heard=heard)
    assessments = {
        name: assess_health(node, heard[name], probe_results.get(name), settings, now=now)
        for name, node in nodes.items()
    }
    if any(each.verdict is HealthVerdict.WATCH_BEHIND for each in assessments.values()):
        return LifecyclePlan(now=now, held=reasons.WATCHES_BEHIND, memory=memory, next_iteration=now + 1.0)
    return _plan_writes(nodes, assessments, settings, memory, now, resting, in_flight)


def spend_token(memory: LifecycleState, token: TakenToken, in_flight: int, at: float) -> LifecycleState:
    """Return the state after the request of a taken node was answered or timed out.

    If the node's NoExecute taint was definitely not written, the token is not spent. A patch without a response may
    have been applied, so its token is.

    Args:
        memory: the state of the plan that took the node, or a later state.
        token: the token of the node.
        in_flight: number of taken nodes in the zone at that time whose tokens are not spent yet, including this one.
        at: the time of the response or timeout, in seconds since the epoch.
    """
    spent = min(token.spent, at)  # later only if the clock was set back in the meantime
    before = max(spent, memory.spent.get(token.zone, spent))
    spent = answered_at(before, token.rate, in_flight=in_flight, now=at)
    return msgspec.structs.replace(memory, spent={**memory.spent, token.zone: spent})


def _after_stale_watches(memory: LifecycleState, now: float) -> LifecycleState:
    """Return the state after stale watches have recovered.

    The time during which the watches were stale is not treated as time without heartbeats.
    """
    if memory.stale_since is None:
        return memory
    blind = max(0.0, now - memory.stale_since)
    return msgspec.structs.replace(memory, heard=extend_health(memory.heard, blind, now=now), stale_since=None)


def _plan_writes(
    nodes: Mapping[str, Node],
    assessments: Mapping[str, HealthAssessment],
    settings: LifecycleSettings,
    memory: LifecycleState,
    now: float,
    resting: Collection[str],
    in_flight: Mapping[str, int],
) -> LifecyclePlan:
    ready = {name: _ready(node, assessments.get(name)) for name, node in nodes.items()}
    found = zones(nodes.values(), ready, settings)
    memory = _after_outage(memory, down=all_down(found.values()), now=now)
    pessimistic = _pessimistic_status(ready, memory.heard, settings, now)
    inputs = NoExecuteInput(
        nodes,
        ready,
        zones=_lower_rates(found, zones(nodes.values(), pessimistic, settings)) if pessimistic != ready else found,
        settings=settings,
        memory=memory,
        now=now,
        in_doubt="True" not in pessimistic.values(),
        resting=resting,
        in_flight=in_flight,
    )
    no_execute = plan_no_execute(inputs)
    changes = list(no_execute.changes)
    for name, node in nodes.items():
        changes += no_schedule_changes(node, ready[name], now=now)
    changes.sort(key=lambda each: (each.node, each.taint.key, each.taint.effect, each.add))
    return LifecyclePlan(
        now=now,
        probes={name: each.silent for name, each in assessments.items() if each.verdict is HealthVerdict.PROBE},
        unknown=tuple(
            mark
            for name, each in assessments.items()
            if each.verdict is HealthVerdict.UNKNOWN and (mark := mark_unknown(nodes[name], each, now=now)) is not None
        ),
        taints=tuple(changes),
        failed=_not_ready_since(nodes, ready, now),
        waiting=no_execute.waiting,
        taken=no_execute.taken,
        zones=found,
        memory=msgspec.structs.replace(memory, queue=no_execute.queue, spent=no_execute.spent),
        next_iteration=_next_iteration(assessments, no_execute, now),
    )


def _ready(node: Node, assessment: HealthAssessment | None) -> str | None:
    if assessment is not None and assessment.verdict is HealthVerdict.UNKNOWN:
        return "Unknown"
    return ready_status(node)


def _after_outage(memory: LifecycleState, *, down: bool, now: float) -> LifecycleState:
    """Update the state when an outage of all zones begins or ends.

    At its end, every node gets a new grace period. Upstream resets its probe timestamps likewise.
    """
    if down == memory.all_down:
        return memory
    if down:
        return msgspec.structs.replace(memory, all_down=True)
    heard = {name: msgspec.structs.replace(each, at=now) for name, each in memory.heard.items()}
    return msgspec.structs.replace(memory, all_down=False, back=now, heard=heard)


def _pessimistic_status(
    ready: Mapping[str, str | None], heard: Mapping[str, NodeHealth], settings: LifecycleSettings, now: float
) -> Mapping[str, str | None]:
    """Return the Ready status of each node as if all nodes in doubt were not ready.

    In an outage, nodes exceed their grace period one by one, seconds apart. Without this rule the first of them would
    be tainted before it is known that most or all nodes of a zone are not ready. A node is in doubt after two missed
    renewals, or after half its grace period if that is shorter.
    """
    half = settings.node_monitor_grace_period / 2
    doubted = {
        name: UNKNOWN
        for name, each in heard.items()
        if now - each.at > half and ready.get(name) == "True" and each.in_doubt(now, within=half)
    }
    return {**ready, **doubted} if doubted else ready


def _lower_rates(found: Mapping[str, Zone], pessimistic: Mapping[str, Zone]) -> dict[str, Zone]:
    """Return for each zone the state with the lower rate: its current state, or the one if all doubts come true."""
    return {name: min(zone, pessimistic[name], key=lambda each: each.rate) for name, zone in found.items()}


def _not_ready_since(nodes: Mapping[str, Node], ready: Mapping[str, str | None], now: float) -> dict[str, float]:
    return {
        name: failed_at(node, status, now)
        for name, node in nodes.items()
        if (status := ready[name]) is not None and status != "True"
    }


def _next_iteration(
    assessments: Mapping[str, HealthAssessment], no_execute: NoExecuteResult, now: float
) -> float | None:
    """Return the time at which the plan changes without any event; ``None`` for never.

    That is the end of a grace period, or the time at which the rate of a zone allows the next taint.
    """
    times = [each.due for each in assessments.values() if each.verdict is HealthVerdict.HEALTHY and each.due >= now]
    times += [each.due for each in no_execute.waiting if each.due is not None]
    return max(now, min(times)) if times else None
