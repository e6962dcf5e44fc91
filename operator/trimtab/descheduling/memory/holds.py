"""Limits the time for which annotations protect pods that a strategy wants to evict (``protections.maxHold``).

The start of the period is recorded in the policy's memory per workload, so a rollout, another annotation value or
another pod does not start a new period. A period ends if no strategy has wanted to evict a pod of the workload for
``maxHold``. Pods without a controller are never evicted, so nothing is recorded for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from trimtab.api import reasons
from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.descheduler_status import MAX_HELD, EvictionMemory, HeldWorkload
from trimtab.api.plan import Plan
from trimtab.api.scalars import to_time
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.deployments import workload
from trimtab.cluster.workloads.owners import OwnerKey

ANNOTATION_HOLDS: Final = frozenset({reasons.EVICT_ANNOTATION, reasons.NO_EVICTION_ANNOTATION})
"""Reason codes of the protections whose duration ``maxHold`` limits."""


def held_too_long(memory: EvictionMemory, spec: DeschedulerPolicySpec, *, now: float) -> frozenset[OwnerKey]:
    """Return the workloads whose pods annotations have protected for at least ``maxHold``.

    The result is empty if ``maxHold`` is unset.

    Args:
        memory: the policy's memory.
        spec: the policy's spec.
        now: seconds since the epoch.
    """
    longest = spec.protections.max_hold_seconds
    if longest is None:
        return frozenset()
    return frozenset(_key(each) for each in memory.held if now - each.since.timestamp() >= longest)


def record_holds(
    memory: EvictionMemory, plan: Plan, snapshot: Snapshot, longest: float | None, *, now: float
) -> EvictionMemory:
    """Return the memory, updated with the workloads whose pods the plan keeps only because of an annotation.

    Args:
        memory: the current memory.
        plan: the plan, which contains the kept candidates and their reasons.
        snapshot: the snapshot that was planned on.
        longest: ``maxHold`` in seconds; ``None`` if it is unset.
        now: seconds since the epoch.
    """
    if longest is None:
        return msgspec.structs.replace(memory, held=()) if memory.held else memory
    wanted = {(action.namespace, action.pod): False for action in plan.actions}
    for each in plan.kept:  # another strategy may keep the pod for another reason
        if each.kind == "Pod":
            key = each.namespace, each.name
            wanted[key] = wanted.get(key, False) or each.reason in ANNOTATION_HOLDS
    known = {_key(each): each for each in memory.held}
    seen: set[OwnerKey] = set()
    for (namespace, name), is_held in wanted.items():
        pod = snapshot.pods.get(f"{namespace}/{name}")
        owner = None if pod is None else workload(pod)
        if owner is not None and (is_held or owner in known):
            seen.add(owner)
    time = to_time(now)
    found = [
        each
        for key, each in known.items()
        if key not in seen and now - each.seen.timestamp() < longest and each.since <= time
    ]
    for owner in seen:
        since = known[owner].since if owner in known else time
        found.append(HeldWorkload(owner.namespace, owner.kind, owner.name, since=min(since, time), seen=time))
    return msgspec.structs.replace(memory, held=_longest(found))


def _key(found: HeldWorkload) -> OwnerKey:
    return OwnerKey(found.namespace, found.kind, found.name)


def _longest(found: Iterable[HeldWorkload]) -> tuple[HeldWorkload, ...]:
    return tuple(sorted(found, key=lambda each: (each.since, _key(each)))[:MAX_HELD])
