"""What a plan tells of earlier evictions: a pod that came to its node by a strategy, which wants it away from there."""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.api.descheduler_policy import Cooldown
from trimtab.api.eviction_memory import Memory, WatchedEviction
from trimtab.api.plan import Kept
from trimtab.api.reasons import COOLING_DOWN, GAVE_UP
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.memory.bounds import bounded
from trimtab.descheduling.memory.ledger import Ledger
from trimtab.descheduling.memory.owners import key
from trimtab.descheduling.strategies.registry import IN_PLACE


def second_thoughts(
    memory: Memory, kept: Iterable[Kept], snapshot: Snapshot, cooldown: Cooldown, *, now: float
) -> Memory:
    """Count it as a failure where the plan had to hold back a pod that an earlier eviction has brought.

    One a plan for each owner and strategy, however many of its pods are held back: of those that came together some may
    be well where they are. All of them have had their judgement with that. But where pods only were to start anew each
    counts by itself, wherever the others are: it is as ill as before.

    Args:
        memory: with which was planned.
        kept: what the plan left where it is.
        snapshot: on which was planned.
        cooldown: of the policy.
        now: seconds since the epoch.
    """
    landed = {(each.strategy, each.replacement): each for each in memory.watched if each.landed}
    ledger = Ledger(memory.setbacks, cooldown, now=now)
    judged: set[tuple[str, ...]] = set()
    for each in kept:
        pod = snapshot.pods.get(f"{each.namespace}/{each.name}") if each.reason in {COOLING_DOWN, GAVE_UP} else None
        eviction = landed.get((each.strategy, pod.uid)) if pod is not None else None
        if eviction is None or pod is None or pod.node != eviction.landed or _case(eviction) in judged:
            continue
        judged.add(_case(eviction))
        ledger.failed(eviction, "WantedAway", landed=eviction.landed, replacement=pod.uid)
    if not judged:
        return memory
    rest = (each for each in memory.watched if not each.landed or _case(each) not in judged)
    return bounded(memory, watched=rest, setbacks=ledger.values())


def _case(eviction: WatchedEviction) -> tuple[str, ...]:
    """What is judged as one."""
    return (*key(eviction), eviction.uid if eviction.strategy in IN_PLACE else "")
