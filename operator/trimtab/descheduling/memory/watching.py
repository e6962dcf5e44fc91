"""From planned evictions to watched ones: noted before the first is sent, so that a crash in between loses none."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trimtab.api.eviction_memory import MAX_WATCHED, Memory, WatchedEviction
from trimtab.api.plan import SURGE, Evict
from trimtab.api.reasons import EVICTION_IN_BACKGROUND
from trimtab.api.scalars import to_time
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads import Workloads
from trimtab.descheduling.memory.bounds import bounded
from trimtab.descheduling.memory.owners import owned
from trimtab.disruption.outcome import EVICTED, FAILED, STARTED, Outcome


def recall(memory: Memory, *, generation: int, asked: str) -> Memory:
    """The memory as far as it still holds.

    With another spec, or when somebody asks for it anew, everyone gets another chance. What is on its way is watched
    on: it was done under the old spec, but tells of the new one too.

    Args:
        memory: as it was written.
        generation: of the policy's spec now.
        asked: the value of the policy's annotation ``trimtab.dev/try-again``, empty where there is none.
    """
    if memory.generation == generation and (not asked or asked == memory.asked):
        return memory
    on_their_way = tuple(each for each in memory.watched if each.landed_time is None)
    return msgspec.structs.replace(
        memory, generation=generation, asked=asked[:253] or memory.asked, watched=on_their_way, setbacks=()
    )


def intend(memory: Memory, actions: Iterable[Evict], snapshot: Snapshot, *, now: float) -> Memory:
    """Watch the pods that are about to be evicted.

    What has run to its end is not watched: it needs no place, and its replacement came before its removal.

    Args:
        memory: as it was.
        actions: what is to be carried out, in order; what is beyond the bound is not watched.
        snapshot: on which it was planned.
        now: seconds since the epoch.
    """
    workloads = Workloads(snapshot)
    watched = {each.uid: each for each in memory.watched}
    for action in list(actions)[:MAX_WATCHED]:
        pod = snapshot.pods.get(action.key)
        whose = owned(pod, action.strategy) if pod is not None and action.target else None
        if pod is None or whose is None:
            continue
        newest = workloads.newest((whose.namespace, whose.kind, whose.name))
        watched[pod.uid] = WatchedEviction(
            strategy=whose.strategy,
            namespace=whose.namespace,
            kind=whose.kind,
            name=whose.name,
            template=whose.template,
            pod=pod.name,
            uid=pod.uid,
            node=pod.node,
            target=action.target,
            time=to_time(now),
            after=None if newest is None else to_time(newest),
        )
    return bounded(memory, watched=watched.values(), setbacks=memory.setbacks)


def send(memory: Memory, action: Evict, snapshot: Snapshot) -> Memory:
    """Note how new the owner's pods are right before the eviction is asked for: its replacement is newer still."""
    watched = next((each for each in memory.watched if each.uid == action.uid), None)
    if watched is None:
        return memory
    newest = Workloads(snapshot).newest((watched.namespace, watched.kind, watched.name))
    if newest is None:
        return memory
    return _with(memory, msgspec.structs.replace(watched, after=to_time(newest)))


def settle(memory: Memory, outcome: Outcome) -> Memory:
    """Take in how an eviction ended; one that was not made is no longer watched.

    One that failed is: its answer may have been lost. If the pod is still there, that is found out.
    """
    watched = next((each for each in memory.watched if each.uid == outcome.action.uid), None)
    if watched is None or outcome.result == FAILED:
        return memory
    if outcome.result in {EVICTED, STARTED}:
        changed = msgspec.structs.replace(
            watched,
            time=to_time(outcome.at),
            background=outcome.reason == EVICTION_IN_BACKGROUND,
            restarted=outcome.result == STARTED and outcome.action.how == SURGE,
        )
        return _with(memory, changed)
    rest = tuple(each for each in memory.watched if each.uid != watched.uid)
    return msgspec.structs.replace(memory, watched=rest)


def _with(memory: Memory, changed: WatchedEviction) -> Memory:
    watched = (changed if each.uid == changed.uid else each for each in memory.watched)
    return bounded(memory, watched=watched, setbacks=memory.setbacks)
