"""What became of watched evictions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from trimtab.api.descheduler_policy import Cooldown
from trimtab.api.eviction_memory import Memory, Setback, WatchedEviction
from trimtab.api.scalars import to_time
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads import Workloads
from trimtab.descheduling.memory.bounds import bounded
from trimtab.descheduling.memory.ledger import Ledger
from trimtab.descheduling.memory.owners import template
from trimtab.descheduling.memory.routine import NONE
from trimtab.descheduling.strategies.registry import IN_PLACE
from trimtab.disruption.background import underway
from trimtab.disruption.outcome import Outcome
from trimtab.kube.objects import Pod

PROVEN_AFTER: Final = 3600.0
"""Seconds after which a pod that came to another node counts as helped, if its strategy did not want it away."""

NO_REPLACEMENT: Final = 3600.0
"""Seconds after which an eviction without a replacement is no longer watched: the owner was scaled down."""

NOT_EVICTED: Final = 600.0
"""Seconds after which a pod that was to be evicted and is still there was not: longer than any cycle acts, and as long
as an eviction in the background may take where nothing at the pod says that it goes on."""

GONE: Final = 3600.0
"""Seconds without pods after which an owner is forgotten; while one is evicted a single replica has none, too."""


def assess(
    memory: Memory, snapshot: Snapshot, cooldown: Cooldown, *, now: float, routine: Collection[str] = NONE
) -> Memory:
    """Find out what became of the watched evictions, and judge it.

    The replacement is a pod of the same owner and template, newer than all that there were. Where it is on the same
    node, or on none for too long, the eviction did not help. Where it is on another one, that counts as help once it
    has stayed there (:data:`PROVEN_AFTER`). Strategies that only want a pod to start anew are helped by any node, if
    they do not want the same of the next one so soon.

    Args:
        memory: as it was.
        snapshot: the cluster as it is now.
        cooldown: of the policy.
        now: seconds since the epoch.
        routine: strategies that are helped by any next pod (:func:`~trimtab.descheduling.memory.routine.routine`).
    """
    if not memory.watched and not memory.setbacks:
        return memory
    look = _Look(memory, snapshot, cooldown, now, routine)
    watched = [left for each in memory.watched if (left := look.judge(each)) is not None]
    for setback in look.ledger.values():
        look.review(setback)
    look.ledger.within_reach()
    return bounded(memory, watched=watched, setbacks=look.ledger.values())


def stayed(memory: Memory, outcome: Outcome, cooldown: Cooldown) -> Memory:
    """Who had taken an eviction over has given it up: it did not help."""
    watched = next((each for each in memory.watched if each.uid == outcome.action.uid), None)
    if watched is None:
        return memory
    ledger = Ledger(memory.setbacks, cooldown, now=outcome.at)
    ledger.failed(watched, "Stayed", landed="", replacement="")
    return bounded(memory, watched=memory.watched, setbacks=ledger.values())


class _Look:
    """One look at the cluster: each pod is the replacement of one eviction only, the earlier evictions first."""

    def __init__(
        self, memory: Memory, snapshot: Snapshot, cooldown: Cooldown, now: float, routine: Collection[str]
    ) -> None:
        self.ledger = Ledger(memory.setbacks, cooldown, now=now)
        self._snapshot = snapshot
        self._workloads = Workloads(snapshot)
        self._pending_seconds = cooldown.pending_seconds
        self._now = now
        self._routine = routine
        self._taken = {each.replacement for each in memory.watched} | {each.replacement for each in memory.setbacks}

    def judge(self, watched: WatchedEviction) -> WatchedEviction | None:
        """What is left to watch of an eviction; ``None`` once it is judged."""
        if watched.landed_time is not None:
            if self._now - watched.landed_time.timestamp() < PROVEN_AFTER:
                return watched
            self.ledger.helped(watched)
            return None
        age = self._now - watched.time.timestamp()
        victim = self._victim(watched)
        if victim is not None and victim.deleted is None and not victim.terminal:
            return self._judge_leaving(watched, victim, age)
        found = self._replacement(watched)
        if found is None:
            return watched if age < NO_REPLACEMENT or self._going(watched) else None
        self._taken.add(found.uid)
        return self._judge_place(watched, found)

    def _judge_leaving(self, watched: WatchedEviction, victim: Pod, age: float) -> WatchedEviction | None:
        """The pod is still there: it was not evicted, or who has taken the eviction over, or a rollout, is not done."""
        found = self._replacement(watched)
        rolling = found is not None and found.controller != victim.controller
        if found is not None and rolling and not found.node:
            # A rollout makes its new pod first, under another ReplicaSet; and for want of a place gets no further.
            return self._judge_place(watched, found)
        goes_on = (watched.background and underway(victim)) or (watched.restarted and rolling)
        if goes_on or age < NOT_EVICTED:
            return watched
        if watched.background or watched.restarted:
            self.ledger.failed(watched, "Stayed", landed="", replacement="")
        return None

    def _judge_place(self, watched: WatchedEviction, found: Pod) -> WatchedEviction | None:
        if not found.node:
            if self._now - (found.created or self._now) < self._pending_seconds:
                return watched
            self.ledger.failed(watched, "Pending", landed="", replacement=found.uid)
        elif watched.strategy in self._routine:
            self.ledger.helped(msgspec.structs.replace(watched, landed_time=to_time(self._now)))
        elif found.node == watched.node and watched.strategy not in IN_PLACE:
            self.ledger.failed(watched, "CameBack", landed=found.node, replacement=found.uid)
        else:
            return msgspec.structs.replace(
                watched, replacement=found.uid, landed=found.node, landed_time=to_time(self._now)
            )
        return None

    def review(self, setback: Setback) -> None:
        """Forget a setback whose owner has another template now, or no pods for long."""
        pods = self._workloads.pods((setback.namespace, setback.kind, setback.name))
        if any(template(pod) == setback.template for pod in pods):
            if setback.gone_time is not None:
                self.ledger.keep(msgspec.structs.replace(setback, gone_time=None))
        elif pods or (setback.gone_time is not None and self._now - setback.gone_time.timestamp() >= GONE):
            self.ledger.forget(setback)
        elif setback.gone_time is None:
            self.ledger.keep(msgspec.structs.replace(setback, gone_time=to_time(self._now)))

    def _victim(self, watched: WatchedEviction) -> Pod | None:
        pod = self._snapshot.pods.get(f"{watched.namespace}/{watched.pod}")
        return pod if pod is not None and pod.uid == watched.uid else None

    def _going(self, watched: WatchedEviction) -> bool:
        return self._victim(watched) is not None

    def _replacement(self, watched: WatchedEviction) -> Pod | None:
        found = [
            pod
            for pod in self._workloads.pods((watched.namespace, watched.kind, watched.name))
            if _is_newer(pod, watched)
            and pod.uid not in self._taken
            and pod.deleted is None
            and not pod.terminal
            and template(pod) == watched.template
        ]
        return min(found, key=lambda pod: (pod.created or 0.0, pod.name), default=None)


def _is_newer(pod: Pod, watched: WatchedEviction) -> bool:
    """Whether the pod was created since; told by the owner's pods, as our clock need not be the API server's."""
    if pod.created is None or pod.uid == watched.uid:
        return False
    if watched.after is not None:
        return pod.created > watched.after.timestamp()
    return pod.created >= watched.time.timestamp()
