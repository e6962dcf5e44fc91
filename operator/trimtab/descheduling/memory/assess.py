"""Assesses observed evictions: counts consecutive failures and computes cooldowns."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec

from trimtab.api.bounds import fitting
from trimtab.api.descheduler_policy import Cooldown, DeschedulerPolicySpec
from trimtab.api.descheduler_status import (
    MAX_SETBACKS,
    MAX_WATCHED,
    EvictionMemory,
    FailureKind,
    Setback,
    WatchedEviction,
)
from trimtab.api.scalars import to_time
from trimtab.api.strategies import PodLifeTimeParams
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.deployments import Workloads
from trimtab.descheduling.memory.cooldown import moved_owner_key, template_digest, workload_of
from trimtab.descheduling.strategies.registry import IN_PLACE
from trimtab.disruption.background_evictions import is_evicted_in_background
from trimtab.disruption.outcome import Outcome
from trimtab.kube.objects import Pod

WATCHED_BYTES: Final = 96 * 1024
SETBACKS_BYTES: Final = 96 * 1024
"""Maximum size of each of the memory's lists in the policy's status, in bytes of JSON."""


def trimmed_memory(
    memory: EvictionMemory, *, watched: Iterable[WatchedEviction], setbacks: Iterable[Setback]
) -> EvictionMemory:
    """Return the memory with these lists, from which the least important entries are dropped if a list is too long.

    The memory's count of dropped entries is increased. Later evictions are more important than earlier ones, and
    evictions whose replacement was scheduled elsewhere are the least important. The most important setbacks are
    permanent ones, then those with the most failures, then the latest. The lists are sorted by fixed keys, so that
    memories with the same entries compare as equal.
    """
    all_watched, all_setbacks = list(watched), list(setbacks)
    by_landing = sorted(
        all_watched, key=lambda each: (bool(each.landed), -each.time.timestamp(), *moved_owner_key(each), each.uid)
    )
    by_weight = sorted(
        all_setbacks,
        key=lambda each: (not each.gave_up, -each.failures, -each.time.timestamp(), *moved_owner_key(each)),
    )
    kept_watched = fitting(by_landing, limit=MAX_WATCHED, budget=WATCHED_BYTES)
    kept_setbacks = fitting(by_weight, limit=MAX_SETBACKS, budget=SETBACKS_BYTES)
    dropped = len(all_watched) - len(kept_watched) + len(all_setbacks) - len(kept_setbacks)
    return msgspec.structs.replace(
        memory,
        watched=tuple(sorted(kept_watched, key=lambda each: (each.time, *moved_owner_key(each), each.uid))),
        setbacks=tuple(sorted(kept_setbacks, key=moved_owner_key)),
        forgotten=memory.forgotten + dropped,
    )


class SetbackLedger:
    """Stores the setbacks by owner, strategy and pod template.

    Args:
        setbacks: the initial setbacks.
        cooldown: the policy's cooldown.
        now: seconds since the epoch.
    """

    def __init__(self, setbacks: Iterable[Setback], cooldown: Cooldown, *, now: float) -> None:
        self._all = {moved_owner_key(each): each for each in setbacks}
        self._cooldown = cooldown
        self._now = now

    def values(self) -> list[Setback]:
        """Return the current setbacks."""
        return list(self._all.values())

    def record_failure(self, watched: WatchedEviction, trouble: FailureKind, *, landed: str, replacement: str) -> None:
        """Record an eviction that did not help, which doubles the cooldown or makes it permanent."""
        before = self._all.get(moved_owner_key(watched))
        failures = 1 if before is None else before.failures + 1
        until = to_time(self._now + self._cooldown.seconds(failures))
        self._all[moved_owner_key(watched)] = Setback(
            strategy=watched.strategy,
            namespace=watched.namespace,
            kind=watched.kind,
            name=watched.name,
            template=watched.template,
            failures=failures,
            time=to_time(self._now),
            until=until if before is None else max(until, before.until),
            trouble=trouble,
            node=watched.node,
            landed=landed,
            replacement=replacement,
            gave_up=failures >= self._cooldown.attempts or (before is not None and before.gave_up),
        )

    def record_success(self, watched: WatchedEviction) -> None:
        """Record an eviction that helped, which resets the failures unless the setback is permanent."""
        before = self._all.get(moved_owner_key(watched))
        if before is not None and not before.gave_up and before.time <= (watched.landed_time or watched.time):
            del self._all[moved_owner_key(watched)]

    def keep(self, setback: Setback) -> None:
        """Store a setback. It replaces an earlier one for the same owner, strategy and template."""
        self._all[moved_owner_key(setback)] = setback

    def forget(self, setback: Setback) -> None:
        """Let the strategy evict pods of the owner again, as if no eviction had been ineffective."""
        del self._all[moved_owner_key(setback)]

    def within_reach(self) -> None:
        """Shorten each cooldown to the configured maximum from now. It can be longer if the clock was set back."""
        latest = to_time(self._now + self._cooldown.seconds(33))
        for each in self.values():
            if each.until > latest:
                self.keep(msgspec.structs.replace(each, until=latest))


NONE: Final[frozenset[str]] = frozenset()


def repeating_strategies(spec: DeschedulerPolicySpec) -> frozenset[str]:
    """Return the policy's strategies for which repeated evictions of the same owner are intended."""
    enabled: dict[str, Any] = dict(spec.strategies.enabled())
    found = enabled.get("PodLifeTime")
    if found is None:
        return NONE
    params: PodLifeTimeParams = found.params
    by_state = params.states or params.conditions or params.exit_codes
    return NONE if by_state else frozenset({"PodLifeTime"})


PROVEN_AFTER: Final = 3600.0
"""Seconds after which a replacement on another node counts as a success, unless the strategy would evict it again."""

NO_REPLACEMENT: Final = 3600.0
"""Seconds after which an eviction without a replacement is no longer observed. Its owner was probably scaled down."""

NOT_EVICTED: Final = 600.0
"""Seconds after which a pod that still exists counts as not evicted.

This is longer than the acting phase of any cycle. It is also the time after which a background eviction is treated as
failed if the pod has no annotation that shows its progress.
"""

GONE: Final = 3600.0
"""Seconds after which the setbacks of an owner that has no pods are removed.

After the eviction of a single replica, an owner usually has no pods for a shorter time.
"""


def assess(
    memory: EvictionMemory, snapshot: Snapshot, cooldown: Cooldown, *, now: float, routine: Collection[str] = NONE
) -> EvictionMemory:
    """Check which observed evictions helped, and return the updated memory."""
    if not memory.watched and not memory.setbacks:
        return memory
    assessment = _Assessment(memory, snapshot, cooldown, now, routine)
    watched = [left for each in memory.watched if (left := assessment.judge(each)) is not None]
    for setback in assessment.ledger.values():
        assessment.review(setback)
    assessment.ledger.within_reach()
    return trimmed_memory(memory, watched=watched, setbacks=assessment.ledger.values())


def record_not_evicted(memory: EvictionMemory, outcome: Outcome, cooldown: Cooldown) -> EvictionMemory:
    """Record a failure if the component that had taken over a background eviction has abandoned it."""
    watched = next((each for each in memory.watched if each.uid == outcome.action.uid), None)
    if watched is None:
        return memory
    ledger = SetbackLedger(memory.setbacks, cooldown, now=outcome.at)
    ledger.record_failure(watched, "Stayed", landed="", replacement="")
    return trimmed_memory(memory, watched=memory.watched, setbacks=ledger.values())


class _Assessment:
    """Assesses all observed evictions once.

    Each pod counts as the replacement for only one eviction: the earliest one that it can belong to.
    """

    def __init__(
        self, memory: EvictionMemory, snapshot: Snapshot, cooldown: Cooldown, now: float, routine: Collection[str]
    ) -> None:
        self.ledger = SetbackLedger(memory.setbacks, cooldown, now=now)
        self._snapshot = snapshot
        self._workloads = Workloads(snapshot)
        self._pending_seconds = cooldown.pending_seconds
        self._now = now
        self._routine = routine
        self._taken = {each.replacement for each in memory.watched} | {each.replacement for each in memory.setbacks}

    def judge(self, watched: WatchedEviction) -> WatchedEviction | None:
        """Return the eviction if it must still be observed; ``None`` if its result is known."""
        if watched.landed_time is not None:
            if self._now - watched.landed_time.timestamp() < PROVEN_AFTER:
                return watched
            self.ledger.record_success(watched)
            return None
        age = self._now - watched.time.timestamp()
        victim = self._victim(watched)
        if victim is not None and victim.deleted is None and not victim.terminal:
            return self._judge_leaving(watched, victim, age)
        found = self._replacement(watched)
        if found is None:
            return watched if age < NO_REPLACEMENT or self._is_leaving(watched) else None
        self._taken.add(found.uid)
        return self._judge_place(watched, found)

    def _judge_leaving(self, watched: WatchedEviction, victim: Pod, age: float) -> WatchedEviction | None:
        """Assess an eviction whose pod still exists.

        Such a pod was not evicted, or it is still being replaced by a rollout or by another component in the
        background.
        """
        found = self._replacement(watched)
        rolling = found is not None and found.controller != victim.controller
        if found is not None and rolling and not found.node:
            # A rollout creates its new pod first, in another ReplicaSet, and waits if that pod is Pending.
            return self._judge_place(watched, found)
        goes_on = (watched.background and is_evicted_in_background(victim)) or (watched.restarted and rolling)
        if goes_on or age < NOT_EVICTED:
            return watched
        if watched.background or watched.restarted:
            self.ledger.record_failure(watched, "Stayed", landed="", replacement="")
        return None

    def _judge_place(self, watched: WatchedEviction, found: Pod) -> WatchedEviction | None:
        if not found.node:
            if self._now - (found.created or self._now) < self._pending_seconds:
                return watched
            self.ledger.record_failure(watched, "Pending", landed="", replacement=found.uid)
        elif watched.strategy in self._routine:
            self.ledger.record_success(msgspec.structs.replace(watched, landed_time=to_time(self._now)))
        elif found.node == watched.node and watched.strategy not in IN_PLACE:
            self.ledger.record_failure(watched, "CameBack", landed=found.node, replacement=found.uid)
        else:
            return msgspec.structs.replace(
                watched, replacement=found.uid, landed=found.node, landed_time=to_time(self._now)
            )
        return None

    def review(self, setback: Setback) -> None:
        """Remove a setback if its owner has a new template, or has had no pods for :data:`GONE`."""
        pods = self._workloads.pods(workload_of(setback))
        if any(template_digest(pod) == setback.template for pod in pods):
            if setback.gone_time is not None:
                self.ledger.keep(msgspec.structs.replace(setback, gone_time=None))
        elif pods or (setback.gone_time is not None and self._now - setback.gone_time.timestamp() >= GONE):
            self.ledger.forget(setback)
        elif setback.gone_time is None:
            self.ledger.keep(msgspec.structs.replace(setback, gone_time=to_time(self._now)))

    def _victim(self, watched: WatchedEviction) -> Pod | None:
        pod = self._snapshot.pods.get(f"{watched.namespace}/{watched.pod}")
        return pod if pod is not None and pod.uid == watched.uid else None

    def _is_leaving(self, watched: WatchedEviction) -> bool:
        return self._victim(watched) is not None

    def _replacement(self, watched: WatchedEviction) -> Pod | None:
        found = [
            pod
            for pod in self._workloads.pods(workload_of(watched))
            if _is_newer(pod, watched)
            and pod.uid not in self._taken
            and pod.deleted is None
            and not pod.terminal
            and template_digest(pod) == watched.template
        ]
        return min(found, key=lambda pod: (pod.created or 0.0, pod.name), default=None)


def _is_newer(pod: Pod, watched: WatchedEviction) -> bool:
    """Return whether the pod was created after the eviction.

    Creation times of the owner's pods are compared, because the local clock may differ from the API server's.
    """
    if pod.created is None or pod.uid == watched.uid:
        return False
    if watched.after is not None:
        return pod.created > watched.after.timestamp()
    return pod.created >= watched.time.timestamp()
