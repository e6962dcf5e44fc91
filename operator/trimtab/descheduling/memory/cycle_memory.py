"""Maintains a policy's memory during a cycle.

Evictions are persisted before the first request is sent, and each is updated when its outcome is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from trimtab.api.descheduler_policy import Cooldown
from trimtab.api.descheduler_status import MAX_WATCHED, EvictionMemory, Setback, WatchedEviction
from trimtab.api.plan import SURGE, Evict, Kept, Plan
from trimtab.api.reasons import COOLING_DOWN, EVACUATION_FAILED, EVICTION_IN_BACKGROUND, GAVE_UP
from trimtab.api.scalars import to_time
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.deployments import Workloads
from trimtab.descheduling.memory.assess import NONE, SetbackLedger, assess, record_not_evicted, trimmed_memory
from trimtab.descheduling.memory.cooldown import CooldownIndex, gave_up_since, moved_owner, moved_owner_key, workload_of
from trimtab.descheduling.memory.holds import record_holds
from trimtab.descheduling.strategies.registry import IN_PLACE
from trimtab.disruption.outcome import EVICTED, FAILED, STARTED, Outcome, Refusal
from trimtab.kube.objects import Pod


def valid_memory(memory: EvictionMemory, *, generation: int, try_again: str) -> EvictionMemory:
    """Return the part of the memory that is valid for this generation of the spec.

    A new spec, or a new value of the annotation, discards all setbacks. Evictions whose replacement is not scheduled
    yet are still observed, because their results also show whether evictions help under the new spec.

    Args:
        memory: the persisted memory.
        generation: the current generation of the policy's spec.
        try_again: the value of the policy's annotation ``trimtab.dev/try-again``; empty if it is unset.
    """
    if memory.generation == generation and (not try_again or try_again == memory.try_again):
        return memory
    on_their_way = tuple(each for each in memory.watched if each.landed_time is None)
    return msgspec.structs.replace(
        memory, generation=generation, try_again=try_again[:253] or memory.try_again, watched=on_their_way, setbacks=()
    )


def watch_evictions(
    memory: EvictionMemory, actions: Iterable[Evict], snapshot: Snapshot, *, now: float
) -> EvictionMemory:
    """Add the pods that are about to be evicted to the observed evictions.

    Terminated pods are not observed, because they use no resources and their controllers have already replaced them.

    Args:
        memory: the current memory.
        actions: the actions to execute, in order. If there are too many to store, the last ones are not observed.
        snapshot: the snapshot that was planned on.
        now: seconds since the epoch.
    """
    workloads = Workloads(snapshot)
    watched = {each.uid: each for each in memory.watched}
    for action in list(actions)[:MAX_WATCHED]:
        pod = snapshot.pods.get(action.key)
        whose = moved_owner(pod, action.strategy) if pod is not None and action.target else None
        if pod is None or whose is None:
            continue
        newest = workloads.newest(workload_of(whose))
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
    return trimmed_memory(memory, watched=watched.values(), setbacks=memory.setbacks)


def note_request(memory: EvictionMemory, action: Evict, snapshot: Snapshot) -> EvictionMemory:
    """Record the creation time of the owner's newest pod just before the eviction.

    The replacement is recognized by its later creation time.
    """
    watched = next((each for each in memory.watched if each.uid == action.uid), None)
    if watched is None:
        return memory
    newest = Workloads(snapshot).newest(workload_of(watched))
    if newest is None:
        return memory
    return _with(memory, msgspec.structs.replace(watched, after=to_time(newest)))


def settle_eviction(memory: EvictionMemory, outcome: Outcome) -> EvictionMemory:
    """Record the outcome of an eviction.

    An eviction that was not made is no longer observed. A failed eviction is still observed, because possibly only its
    response was lost.
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


def _with(memory: EvictionMemory, changed: WatchedEviction) -> EvictionMemory:
    watched = (changed if each.uid == changed.uid else each for each in memory.watched)
    return trimmed_memory(memory, watched=watched, setbacks=memory.setbacks)


def count_unwanted_targets(
    memory: EvictionMemory, kept: Iterable[Kept], snapshot: Snapshot, cooldown: Cooldown, *, now: float
) -> EvictionMemory:
    """Count an eviction as failed if the plan would evict its replacement again.

    Each plan counts at most one failure per owner and strategy, regardless of how many pods it would evict again,
    because some of the pods that were moved together may be well placed. All of these evictions are then no longer
    observed. For strategies that only restart pods, each eviction counts separately.

    Args:
        memory: the memory that the plan was made with.
        kept: the candidates that the plan keeps.
        snapshot: the snapshot that was planned on.
        cooldown: the policy's cooldown.
        now: seconds since the epoch.
    """
    rescheduled = {(each.strategy, each.replacement): each for each in memory.watched if each.landed}
    ledger = SetbackLedger(memory.setbacks, cooldown, now=now)
    judged: set[tuple[str, ...]] = set()
    for each in kept:
        pod = snapshot.pods.get(f"{each.namespace}/{each.name}") if each.reason in {COOLING_DOWN, GAVE_UP} else None
        eviction = rescheduled.get((each.strategy, pod.uid)) if pod is not None else None
        if eviction is None or pod is None or pod.node != eviction.landed or _case(eviction) in judged:
            continue
        judged.add(_case(eviction))
        ledger.record_failure(eviction, "WantedAway", landed=eviction.landed, replacement=pod.uid)
    if not judged:
        return memory
    rest = (each for each in memory.watched if not each.landed or _case(each) not in judged)
    return trimmed_memory(memory, watched=rest, setbacks=ledger.values())


def _case(eviction: WatchedEviction) -> tuple[str, ...]:
    """Return the key of the group of evictions that together count as one failure."""
    return (*moved_owner_key(eviction), eviction.uid if eviction.strategy in IN_PLACE else "")


class CycleMemory:
    """A policy's memory of evictions during one cycle.

    Args:
        memory: the memory at the start of the cycle.
        cooldown: the policy's cooldown.
        routine: the policy's strategies for which repeated evictions of an owner are intended.
        max_hold: ``protections.maxHold`` in seconds; ``None`` if it is unset.

    Attributes:
        memory: the current memory.
    """

    def __init__(
        self,
        memory: EvictionMemory,
        cooldown: Cooldown,
        *,
        routine: frozenset[str] = NONE,
        max_hold: float | None = None,
    ) -> None:
        self.memory = memory
        self._before = memory
        self._cooldown = cooldown
        self._routine = routine
        self._max_hold = max_hold
        self._judged: set[str] = set()
        self._lent = False
        self._ended_meanwhile: list[Outcome] = []

    @contextmanager
    def lent_to_thread(self) -> Iterator[None]:
        """Allow another thread to use the memory. Outcomes that arrive meanwhile are recorded afterwards."""
        self._lent = True
        try:
            yield
        finally:
            self._lent = False
            ended, self._ended_meanwhile = self._ended_meanwhile, []
            for outcome in ended:
                self.ended(outcome)

    def assess(self, snapshot: Snapshot, *, now: float) -> EvictionMemory:
        """Assess earlier evictions and return the memory to plan with."""
        self.memory = assess(self.memory, snapshot, self._cooldown, now=now, routine=self._routine)
        return self.memory

    def planned(self, plan: Plan, snapshot: Snapshot, *, now: float) -> None:
        """Update the memory after planning.

        Evictions whose replacement the plan would evict again count as failures, and workloads that annotations protect
        are recorded.
        """
        self._judged |= {each.replacement for each in self.memory.watched if each.landed}
        self.memory = count_unwanted_targets(self.memory, plan.kept, snapshot, self._cooldown, now=now)
        self.memory = record_holds(self.memory, plan, snapshot, self._max_hold, now=now)

    def begin(self, actions: Sequence[Evict], snapshot: Snapshot, *, now: float) -> EvictionMemory:
        """Start observing the planned evictions, and return the memory to persist before the first one."""
        self.memory = watch_evictions(self.memory, actions, snapshot, now=now)
        return self.memory

    def recheck(
        self, action: Evict, snapshot: Snapshot, *, now: float, judge: Callable[[EvictionMemory], Plan]
    ) -> Refusal | None:
        """Return the reason why an eviction would not help, or ``None``.

        If a replacement of this cycle's earlier evictions was scheduled to another node than planned, the strategy
        plans again before the owner's next pod is evicted. Otherwise all pods of an owner could follow the first one to
        a node from which they would be evicted again. The deletion of a terminated pod is always allowed.

        Args:
            action: the action to execute next.
            snapshot: the current cluster.
            now: seconds since the epoch.
            judge: plans for the action's strategy with the given memory.
        """
        pod = snapshot.pods.get(action.key)
        if not action.target or pod is None:
            return None
        self.assess(snapshot, now=now)
        if self._was_scheduled_elsewhere(pod, action.strategy):
            self.planned(judge(self.memory), snapshot, now=now)
        known = CooldownIndex(self.memory, self._cooldown, now=now, in_place=IN_PLACE)
        return known.refusal(pod, action.strategy)

    def _was_scheduled_elsewhere(self, pod: Pod, strategy: str) -> bool:
        """Return whether, since the last plan, a pod of the owner was scheduled to another node than planned."""
        whose = moved_owner(pod, strategy)
        return whose is not None and any(
            each.landed not in ("", each.target)
            and each.replacement not in self._judged
            and moved_owner_key(each) == moved_owner_key(whose)
            for each in self.memory.watched
        )

    def sent(self, action: Evict, snapshot: Snapshot) -> None:
        """Record that the eviction request is about to be sent."""
        self.memory = note_request(self.memory, action, snapshot)

    def ended(self, outcome: Outcome) -> None:
        """Record the outcome of an eviction that has ended."""
        if self._lent:
            self._ended_meanwhile.append(outcome)
            return
        if outcome.reason == EVACUATION_FAILED:
            self.memory = record_not_evicted(self.memory, outcome, self._cooldown)
        self.memory = settle_eviction(self.memory, outcome)

    @property
    def gave_up(self) -> list[Setback]:
        """Return the setbacks that became permanent in this cycle."""
        return gave_up_since(self._before, self.memory)
