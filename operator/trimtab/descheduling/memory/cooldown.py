"""Determines from the memory whether a strategy may evict an owner's pods, and computes the Effective condition."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from trimtab.api import reasons
from trimtab.api.conditions import EFFECTIVE, ConditionUpdate
from trimtab.api.descheduler_policy import Cooldown
from trimtab.api.descheduler_status import TRY_AGAIN, EvictionMemory, MovedOwner, Setback, WatchedEviction
from trimtab.api.plan import rfc3339
from trimtab.api.reasons import COOLING_DOWN, GAVE_UP, ROLLOUT_IN_PROGRESS
from trimtab.cluster.workloads.deployments import workload
from trimtab.cluster.workloads.owners import OwnerKey
from trimtab.controller.reporter import condition
from trimtab.disruption.outcome import Refusal
from trimtab.kube.objects import Pod


def template_digest(pod: Pod) -> str:
    """Return a hash of the parts of a pod's template that schedulers and kubelets read.

    Volumes and resource claims are left out, because each pod of a StatefulSet has its own.
    """
    spec = msgspec.structs.replace(pod.spec, volumes=(), resource_claims=())
    return hashlib.sha256(msgspec.json.encode(spec, order="deterministic")).hexdigest()[:16]


def moved_owner(pod: Pod, strategy: str) -> MovedOwner | None:
    """Return the pod's owner in the form that the memory stores; ``None`` for a pod without a controller."""
    owner = workload(pod)
    if owner is None:
        return None
    return MovedOwner(
        strategy=strategy,
        namespace=owner.namespace,
        kind=owner.kind,
        name=owner.name,
        template=template_digest(pod),
    )


def workload_of(owned: MovedOwner) -> OwnerKey:
    """Return the workload of a memory entry. One that is created again under the same name is the same."""
    return OwnerKey(owned.namespace, owned.kind, owned.name)


def moved_owner_key(owned: MovedOwner) -> tuple[str, str, str, str, str]:
    """Return the key of a memory entry: strategy, namespace, kind, name and template."""
    return owned.strategy, owned.namespace, owned.kind, owned.name, owned.template


def owner_name(owned: MovedOwner) -> str:
    """Return the owner's kind, namespace and name, such as ``Deployment shop/web``."""
    return f"{owned.kind} {owned.namespace}/{owned.name}"


UNTIL_CHANGED: Final = (
    "no eviction until the pod template or the policy's spec changes, or the policy's annotation "
    f"{TRY_AGAIN} gets another value"
)


class CooldownIndex:
    """An index of a memory by owner and strategy.

    If a strategy would evict the replacement of its own earlier eviction, no pod of the owner is evicted for the rest
    of the plan. Otherwise the strategy would evict another pod of the owner instead.

    If a strategy restarts pods, it takes some time to determine whether an eviction helped. After failures, such a
    strategy therefore evicts at most as many pods of an owner at once as it has attempts left. It then waits until the
    results of these evictions are known.

    Args:
        memory: the policy's memory after its assessment (:func:`~.assess.assess`).
        cooldown: the policy's cooldown.
        now: seconds since the epoch.
        in_place: the names of the strategies that restart pods, whose replacements may run on the same node.
    """

    def __init__(
        self, memory: EvictionMemory, cooldown: Cooldown, *, now: float, in_place: Collection[str] = frozenset()
    ) -> None:
        self._cooldown = cooldown
        self._now = now
        self._doubted: dict[tuple[str, OwnerKey, str], Refusal] = {}
        self._rescheduled = {(each.strategy, each.replacement): each for each in memory.watched if each.landed}
        going = [each for each in memory.watched if each.restarted and not each.landed]
        self._restarted = {each.uid: each for each in going}
        self._rolling = {(each.strategy, workload_of(each)): each for each in going}
        self._unproven = Counter(
            moved_owner_key(each) for each in memory.watched if each.landed and each.strategy in in_place
        )
        self._setbacks: dict[tuple[str, OwnerKey], dict[str, Setback]] = {}
        for each in memory.setbacks:
            place = each.strategy, workload_of(each)
            self._setbacks.setdefault(place, {})[each.template] = each

    def refusal(self, pod: Pod, strategy: str) -> Refusal | None:
        """Return the reason why the strategy must not evict the pod now, or ``None``."""
        if self._restarted:
            rolling = self._unfinished(pod, strategy)
            if rolling is not None:
                return rolling
        setback = self._setback(pod, strategy) if self._setbacks else None
        if self._rescheduled:
            doubt = self._doubt(pod, strategy, setback)
            if doubt is not None:
                return doubt
        if setback is None:
            return None
        if setback.gave_up:
            return Refusal(GAVE_UP, f"{describe_setback(setback)}; {UNTIL_CHANGED}")
        if self._now < setback.until.timestamp():
            return Refusal(
                COOLING_DOWN, f"{describe_setback(setback)}; no eviction before {rfc3339(setback.until.timestamp())}"
            )
        unproven = self._unproven[moved_owner_key(setback)]
        if unproven >= self._cooldown.attempts - setback.failures:
            which = "the eviction since then has" if unproven == 1 else f"the {unproven} evictions since then have"
            return Refusal(COOLING_DOWN, f"{describe_setback(setback)}; it is not known yet whether {which} helped")
        return None

    def _unfinished(self, pod: Pod, strategy: str) -> Refusal | None:
        """Return a refusal if a rollout was started for the pod or its predecessor and has not finished yet.

        No strategy may evict the pod that the rollout replaces. In addition, the strategy that started the rollout must
        not evict the new pod. Otherwise the result is ``None``.
        """
        owner = workload(pod)
        found = self._restarted.get(pod.uid) or (self._rolling.get((strategy, owner)) if owner is not None else None)
        if found is None:
            return None
        since = rfc3339(found.time.timestamp())
        text = f"Deployment {found.name} was restarted by {since} and the rollout has not finished"
        return Refusal(ROLLOUT_IN_PROGRESS, text)

    def _setback(self, pod: Pod, strategy: str) -> Setback | None:
        owner = workload(pod)
        found = self._setbacks.get((strategy, owner)) if owner is not None else None
        return None if found is None else found.get(template_digest(pod))

    def _doubt(self, pod: Pod, strategy: str, setback: Setback | None) -> Refusal | None:
        eviction = self._rescheduled.get((strategy, pod.uid))
        owner = workload(pod)
        if owner is None:
            return None
        if eviction is not None and pod.node == eviction.landed:
            doubt = self._wanted_away(eviction, setback)
            return self._doubted.setdefault((strategy, owner, eviction.template), doubt)
        return self._doubted.get((strategy, owner, template_digest(pod))) if self._doubted else None

    def _wanted_away(self, eviction: WatchedEviction, setback: Setback | None) -> Refusal:
        """Return the refusal to evict a replacement pod whose predecessor the same strategy has evicted."""
        failures = 1 if setback is None else setback.failures + 1
        count = f"{failures} consecutive evictions" if failures > 1 else "an eviction"
        text = f"{count} of {owner_name(eviction)}'s pods did not help: {_wanted_away(eviction)}"
        if failures >= self._cooldown.attempts or (setback is not None and setback.gave_up):
            return Refusal(GAVE_UP, f"{text}; {UNTIL_CHANGED}")
        until = rfc3339(self._now + self._cooldown.seconds(failures))
        return Refusal(COOLING_DOWN, f"{text}; no eviction before {until}")


def describe_setback(setback: Setback) -> str:
    """Return a description of how many of the owner's evictions did not help, and of the last one's result."""
    count = f"{setback.failures} consecutive evictions" if setback.failures > 1 else "an eviction"
    ends = {
        "CameBack": f"the last replacement was scheduled to {setback.node}",
        "Pending": "the last replacement stayed Pending",
        "Stayed": f"another component took over the last eviction and did not move the pod from {setback.node}",
        "WantedAway": _wanted_away(setback),
    }
    return f"{count} of {owner_name(setback)}'s pods did not help: {ends[setback.trouble]}"


def _wanted_away(found: WatchedEviction | Setback) -> str:
    """Return a description of the node from which the replacement would be evicted again.

    If the strategy restarts pods, it may be the node of the evicted pod.
    """
    if found.landed == found.node:
        return f"{found.strategy} would evict the last replacement on {found.landed} again"
    moved = f"the last pod was moved from {found.node} to {found.landed}"
    return f"{moved}, where {found.strategy} would evict its replacement again"


SHOWN: Final = 10


def effective_condition(memory: EvictionMemory, *, now: float) -> ConditionUpdate:
    """Return the condition ``Effective``."""
    gave_up = [each for each in memory.setbacks if each.gave_up]
    if gave_up:
        message = f"stopped evicting pods of {_owners(gave_up)}: {_list(gave_up)}; {UNTIL_CHANGED}"
        return condition(EFFECTIVE, False, reasons.GAVE_UP, message)
    waiting = [each for each in memory.setbacks if now < each.until.timestamp()]
    if waiting:
        message = f"waiting before evicting pods of {_owners(waiting)} again: {_list(waiting, until=True)}"
        return condition(EFFECTIVE, True, reasons.COOLING_DOWN, message)
    return condition(EFFECTIVE, True, reasons.ALL_WELL, "all known evictions helped or are still being observed")


def gave_up_since(before: EvictionMemory, after: EvictionMemory) -> list[Setback]:
    """Return the setbacks that are permanent in ``after`` but not in ``before``."""
    known = {(each.strategy, each.namespace, each.kind, each.name) for each in before.setbacks if each.gave_up}
    return [
        each
        for each in after.setbacks
        if each.gave_up and (each.strategy, each.namespace, each.kind, each.name) not in known
    ]


def _owners(setbacks: Sequence[Setback]) -> str:
    return "1 owner" if len(setbacks) == 1 else f"{len(setbacks)} owners"


def _list(setbacks: Sequence[Setback], *, until: bool = False) -> str:
    ordered = sorted(setbacks, key=lambda each: (-each.time.timestamp(), each.strategy, each.namespace, each.name))
    shown = [
        f"{each.strategy}: {describe_setback(each)}" + (f", until {rfc3339(each.until.timestamp())}" if until else "")
        for each in ordered[:SHOWN]
    ]
    more = f"; and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else ""
    return "; ".join(shown) + more
