"""The node lifecycle: which nodes are asked after, marked Unknown, tainted and freed of taints, and why. Pure.

One pass over the nodes plans all of it on one picture: the zones are judged before any taint is placed, so that none is
placed in the pass that finds all zones down (upstream races with itself there). Acting goes in the plan's order: ask,
mark nodes, patch taints, mark pods; each is guarded by what was seen, and what fails is found undone by the next pass.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from trimtab.api import reasons
from trimtab.kube.objects import Node
from trimtab.tainting.conditions import UNKNOWN, TaintChange, no_schedule_changes, ready_status
from trimtab.tainting.health import (
    Answer,
    AskFirst,
    Heard,
    Judgement,
    MarkUnknown,
    Verdict,
    excused,
    judge,
    listen,
    mark_unknown,
)
from trimtab.tainting.health.judging import ask_first
from trimtab.tainting.lifecycle_memory import LifecycleMemory
from trimtab.tainting.lifecycle_settings import LifecycleSettings
from trimtab.tainting.no_execute import Look, NoExecute, Waiting, no_execute
from trimtab.tainting.queue import failed_at
from trimtab.tainting.sight import Sight
from trimtab.tainting.zones import Zone, all_down, zones

_NO_ANSWERS: Final[Mapping[str, Answer]] = {}
_NO_NEWS: Final[Mapping[str, float]] = {}


class LifecyclePlan(Struct, frozen=True, kw_only=True):
    """What is to be done about the nodes, in the order of acting.

    Attributes:
        now: for when it was made, in seconds since the epoch.
        held: why nothing is done at all, one of :mod:`trimtab.api.reasons`; empty where it is.
        ask: nodes to read from the API server before they count as Unknown.
        unknown: nodes whose conditions become Unknown.
        taints: to put on and take off, by node and then key; see :func:`trimtab.tainting.patches.patches`.
        failed: since when each node is down that has said or is found to be, by name: its pods are not ready either,
            see :func:`~trimtab.tainting.health.marks.pods_not_ready`. Who they are is asked node by node while acting:
            in an outage of everything they are all pods of the cluster.
        waiting: nodes that are to be tainted later, the first first.
        taken: of each node that the queue gave free in this pass, what :func:`given_back` needs.
        zones: by name.
        memory: for the next pass.
        next_look: when the next pass is worth while though nothing changes; ``None`` for never.
    """

    now: float
    held: str = ""
    ask: tuple[AskFirst, ...] = ()
    unknown: tuple[MarkUnknown, ...] = ()
    taints: tuple[TaintChange, ...] = ()
    failed: Mapping[str, float] = {}
    waiting: tuple[Waiting, ...] = ()
    taken: Mapping[str, tuple[str, float | None]] = {}
    zones: Mapping[str, Zone] = {}
    memory: LifecycleMemory
    next_look: float | None = None


def plan_lifecycle(
    sight: Sight,
    settings: LifecycleSettings,
    *,
    now: float,
    memory: LifecycleMemory | None = None,
    watching: float | None = None,
    answers: Mapping[str, Answer] = _NO_ANSWERS,
    news: Mapping[str, float] = _NO_NEWS,
    resting: Collection[str] = (),
) -> LifecyclePlan:
    """Plan one pass.

    Args:
        sight: nodes and their Leases; of a live cluster not before all of them have been listed, for a Lease that comes
            late is taken for one that was renewed.
        settings: grace periods, thresholds, rates.
        now: seconds since the epoch.
        memory: of the last pass. Without one, as for a cluster from a file, nodes are what their conditions say: how
            long ago they were heard of cannot be told from a picture of unknown age.
        watching: when our watches of nodes and Leases last proved that they work (an event, a bookmark, a GET that
            agreed); ``None`` where nothing is watched.
        answers: what the API server said of nodes that were asked after, by node.
        news: when the last change of a node's Lease or status was seen, by node, in seconds since the epoch; what is
            seen to have changed and is not in it was seen just now.
        resting: nodes that get no NoExecute taint in this pass, so that those behind them need not wait: one is being
            put on them already, or was refused again and again.
    """
    live, memory = memory is not None, memory or LifecycleMemory()
    if watching is not None and now - watching > settings.stale_watch_after:
        blind = watching if memory.blind_since is None else min(memory.blind_since, watching)
        held = msgspec.structs.replace(memory, blind_since=blind)
        return LifecyclePlan(now=now, held=reasons.STALE_WATCHES, memory=held)
    nodes = dict(sorted(sight.nodes.items()))
    if not live:
        return _act(nodes, {}, settings, memory, now, resting)
    memory = _seeing(memory, now)
    heard = listen(memory.heard, nodes.values(), sight.leases, now=now, news=news)
    memory = msgspec.structs.replace(memory, heard=heard)
    judged = {name: judge(node, heard[name], answers.get(name), settings, now=now) for name, node in nodes.items()}
    if any(each.verdict is Verdict.BEHIND for each in judged.values()):
        return LifecyclePlan(now=now, held=reasons.WATCHES_BEHIND, memory=memory, next_look=now + 1.0)
    return _act(nodes, judged, settings, memory, now, resting)


def given_back(memory: LifecycleMemory, plan: LifecyclePlan, node: str) -> LifecycleMemory:
    """The memory where a node's NoExecute taint was refused for certain: its zone need not wait for it.

    Of a patch without an answer nobody knows; what it took stays taken.

    Args:
        memory: of the plan, or what has become of it since.
        plan: that took the node from the queue.
        node: its name.
    """
    taken = plan.taken.get(node)
    if taken is None or memory.spent.get(taken[0]) != plan.now:
        return memory
    zone, before = taken
    spent = {**memory.spent, zone: before} if before is not None else dict(memory.spent)
    if before is None:
        del spent[zone]
    return msgspec.structs.replace(memory, spent=spent)


def _seeing(memory: LifecycleMemory, now: float) -> LifecycleMemory:
    """The memory once our watches work again: the time in between counts as nobody's silence."""
    if memory.blind_since is None:
        return memory
    blind = max(0.0, now - memory.blind_since)
    return msgspec.structs.replace(memory, heard=excused(memory.heard, blind, now=now), blind_since=None)


def _act(
    nodes: Mapping[str, Node],
    judged: Mapping[str, Judgement],
    settings: LifecycleSettings,
    memory: LifecycleMemory,
    now: float,
    resting: Collection[str],
) -> LifecyclePlan:
    ready = {name: _ready(node, judged.get(name)) for name, node in nodes.items()}
    found = zones(nodes.values(), ready, settings)
    memory = _after_outage(memory, down=all_down(found.values()), now=now)
    feared = _feared(ready, memory.heard, settings, now)
    look = Look(
        nodes,
        ready,
        zones=_slower(found, zones(nodes.values(), feared, settings)) if feared != ready else found,
        settings=settings,
        memory=memory,
        now=now,
        in_doubt="True" not in feared.values(),
        resting=resting,
    )
    executed = no_execute(look)
    changes = list(executed.changes)
    for name, node in nodes.items():
        changes += no_schedule_changes(node, ready[name], now=now)
    changes.sort(key=lambda each: (each.node, each.taint.key, each.taint.effect, each.add))
    return LifecyclePlan(
        now=now,
        ask=tuple(ask_first(nodes[name], each) for name, each in judged.items() if each.verdict is Verdict.ASK),
        unknown=tuple(
            mark
            for name, each in judged.items()
            if each.verdict is Verdict.UNKNOWN and (mark := mark_unknown(nodes[name], each, now=now)) is not None
        ),
        taints=tuple(changes),
        failed=_failed(nodes, ready, now),
        waiting=executed.waiting,
        taken=executed.taken,
        zones=found,
        memory=msgspec.structs.replace(memory, queue=executed.queue, spent=executed.spent),
        next_look=_next_look(judged, executed, now),
    )


def _ready(node: Node, judgement: Judgement | None) -> str | None:
    if judgement is not None and judgement.verdict is Verdict.UNKNOWN:
        return "Unknown"
    return ready_status(node)


def _after_outage(memory: LifecycleMemory, *, down: bool, now: float) -> LifecycleMemory:
    """The memory with what the end of an outage of everything means: every node is given its grace period anew.

    Upstream resets the times of its probes likewise.
    """
    if down == memory.all_down:
        return memory
    if down:
        return msgspec.structs.replace(memory, all_down=True)
    heard = {name: msgspec.structs.replace(each, at=now) for name, each in memory.heard.items()}
    return msgspec.structs.replace(memory, all_down=False, back=now, heard=heard)


def _feared(
    ready: Mapping[str, str | None], heard: Mapping[str, Heard], settings: LifecycleSettings, now: float
) -> Mapping[str, str | None]:
    """The Ready status of each node if all that are in doubt turn out to be down.

    Nodes of one outage pass their grace period one by one, some seconds apart; the first of them would be tainted
    before the last tells that it is most of a zone, or all of them. A node is in doubt that has been silent for two
    renewals, or for half its grace period where that is shorter.
    """
    half = settings.node_monitor_grace_period / 2
    doubted = {
        name: UNKNOWN
        for name, each in heard.items()
        if now - each.at > half and ready.get(name) == "True" and each.in_doubt(now, within=half)
    }
    return {**ready, **doubted} if doubted else ready


def _slower(found: Mapping[str, Zone], feared: Mapping[str, Zone]) -> dict[str, Zone]:
    """Of each zone as it is and as it may be the one that is tainted more slowly."""
    return {name: min(zone, feared[name], key=lambda each: each.rate) for name, zone in found.items()}


def _failed(nodes: Mapping[str, Node], ready: Mapping[str, str | None], now: float) -> dict[str, float]:
    return {
        name: failed_at(node, status, now)
        for name, node in nodes.items()
        if (status := ready[name]) is not None and status != "True"
    }


def _next_look(judged: Mapping[str, Judgement], executed: NoExecute, now: float) -> float | None:
    """The next moment at which time alone changes something: a grace period ends, or a zone may go on."""
    times = [each.due for each in judged.values() if each.verdict is Verdict.HEARD and each.due >= now]
    times += [each.due for each in executed.waiting if each.due is not None]
    return max(now, min(times)) if times else None
