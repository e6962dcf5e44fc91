"""What a plan tells of earlier evictions: a pod that came to its node by a strategy, which wants it away from there."""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.api.descheduler_policy import Cooldown
from trimtab.api.eviction_memory import Memory
from trimtab.api.plan import Kept
from trimtab.api.reasons import COOLING_DOWN, GAVE_UP
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.memory.bounds import bounded
from trimtab.descheduling.memory.ledger import Ledger


def second_thoughts(
    memory: Memory, kept: Iterable[Kept], snapshot: Snapshot, cooldown: Cooldown, *, now: float
) -> Memory:
    """Count the evictions as failed whose replacements the plan had to hold back.

    Args:
        memory: with which was planned.
        kept: what the plan left where it is.
        snapshot: on which was planned.
        cooldown: of the policy.
        now: seconds since the epoch.
    """
    landed = {(each.strategy, each.replacement): each for each in memory.watched if each.landed}
    ledger = Ledger(memory.setbacks, cooldown, now=now)
    wanted: set[tuple[str, str]] = set()
    for each in kept:
        if each.reason not in {COOLING_DOWN, GAVE_UP}:
            continue
        pod = snapshot.pods.get(f"{each.namespace}/{each.name}")
        place = (each.strategy, pod.uid) if pod is not None else ("", "")
        if place in landed and place not in wanted and pod is not None and pod.node == landed[place].landed:
            wanted.add(place)
            ledger.failed(landed[place], "WantedAway", landed=landed[place].landed, replacement=pod.uid)
    if not wanted:
        return memory
    rest = (each for each in memory.watched if (each.strategy, each.replacement) not in wanted)
    return bounded(memory, watched=rest, setbacks=ledger.values())
