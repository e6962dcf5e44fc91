"""What a plan asks of a memory: may this strategy move this pod?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from trimtab.api.descheduler_policy import Cooldown
from trimtab.api.eviction_memory import TRY_AGAIN, Memory, Setback, WatchedEviction
from trimtab.api.plan import rfc3339
from trimtab.api.reasons import COOLING_DOWN, GAVE_UP, ROLLOUT_IN_PROGRESS
from trimtab.cluster.owners import OwnerKey
from trimtab.cluster.workloads import workload
from trimtab.descheduling.memory.owners import key, template, words
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod

UNTIL_CHANGED: Final = (
    "not again until the pod template or the policy's spec changes, or the policy's annotation "
    f"{TRY_AGAIN} gets another value"
)


class Recollection:
    """A memory laid out for looking up; most plans have none, and ask nothing more than that.

    Once a strategy wants a pod away from where it has brought it, it leaves all of the owner's pods alone for the rest
    of the plan: else another one would go in its stead.

    After evictions that did not help a strategy that lets pods start where they were has no other sign of success than
    time. So it gets no more tries at once than are left to it: the replacements are waited for to prove themselves.

    Args:
        memory: of the policy, assessed.
        cooldown: of the policy.
        now: seconds since the epoch.
        in_place: the names of those strategies.
    """

    def __init__(
        self, memory: Memory, cooldown: Cooldown, *, now: float, in_place: Collection[str] = frozenset()
    ) -> None:
        self._cooldown = cooldown
        self._now = now
        self._doubted: dict[tuple[str, OwnerKey, str], Refusal] = {}
        self._landed = {(each.strategy, each.replacement): each for each in memory.watched if each.landed}
        going = [each for each in memory.watched if each.restarted and not each.landed]
        self._restarted = {each.uid: each for each in going}
        self._rolling = {(each.strategy, (each.namespace, each.kind, each.name)): each for each in going}
        self._unproven = Counter(key(each) for each in memory.watched if each.landed and each.strategy in in_place)
        self._setbacks: dict[tuple[str, OwnerKey], dict[str, Setback]] = {}
        for each in memory.setbacks:
            place = each.strategy, (each.namespace, each.kind, each.name)
            self._setbacks.setdefault(place, {})[each.template] = each

    def refusal(self, pod: Pod, strategy: str) -> Refusal | None:
        """Why the strategy leaves the pod alone, or ``None``."""
        if self._restarted:
            rolling = self._unfinished(pod, strategy)
            if rolling is not None:
                return rolling
        setback = self._setback(pod, strategy) if self._setbacks else None
        if self._landed:
            doubt = self._doubt(pod, strategy, setback)
            if doubt is not None:
                return doubt
        if setback is None:
            return None
        if setback.gave_up:
            return Refusal(GAVE_UP, f"{told(setback)}; {UNTIL_CHANGED}")
        if self._now < setback.until.timestamp():
            return Refusal(COOLING_DOWN, f"{told(setback)}; not again before {rfc3339(setback.until.timestamp())}")
        unproven = self._unproven[key(setback)]
        if unproven >= self._cooldown.attempts - setback.failures:
            which = "the last one since then has" if unproven == 1 else f"the last {unproven} since then have"
            return Refusal(COOLING_DOWN, f"{told(setback)}; it is yet to be seen whether {which} helped")
        return None

    def _unfinished(self, pod: Pod, strategy: str) -> Refusal | None:
        """Its Deployment was restarted for it, or for the pod that it is to replace; were it undone, that would go on.

        The pod that is renewed is left alone by every strategy, its successor by the one that asked for it.
        """
        owner = workload(pod)
        found = self._restarted.get(pod.uid) or (self._rolling.get((strategy, owner)) if owner is not None else None)
        if found is None:
            return None
        since = rfc3339(found.time.timestamp())
        text = f"Deployment {found.name} was restarted by {since}; it is yet to be seen what comes of that"
        return Refusal(ROLLOUT_IN_PROGRESS, text)

    def _setback(self, pod: Pod, strategy: str) -> Setback | None:
        owner = workload(pod)
        found = self._setbacks.get((strategy, owner)) if owner is not None else None
        return None if found is None else found.get(template(pod))

    def _doubt(self, pod: Pod, strategy: str, setback: Setback | None) -> Refusal | None:
        landed = self._landed.get((strategy, pod.uid))
        owner = workload(pod)
        if owner is None:
            return None
        if landed is not None and pod.node == landed.landed:
            doubt = self._wanted_away(landed, setback)
            return self._doubted.setdefault((strategy, owner, landed.template), doubt)
        return self._doubted.get((strategy, owner, template(pod))) if self._doubted else None

    def _wanted_away(self, landed: WatchedEviction, setback: Setback | None) -> Refusal:
        """The pod came here by this very strategy, which would evict it again: so that was no help."""
        failures = 1 if setback is None else setback.failures + 1
        count = f"{failures} evictions in a row" if failures > 1 else "an eviction"
        text = f"{count} of {words(landed)}'s pods did not help: {_wanted_away(landed)}"
        if failures >= self._cooldown.attempts or (setback is not None and setback.gave_up):
            return Refusal(GAVE_UP, f"{text}; {UNTIL_CHANGED}")
        until = rfc3339(self._now + self._cooldown.seconds(failures))
        return Refusal(COOLING_DOWN, f"{text}; not again before {until}")


def told(setback: Setback) -> str:
    """How often evictions did not help, and what became of the last one."""
    count = f"{setback.failures} evictions in a row" if setback.failures > 1 else "an eviction"
    ends = {
        "CameBack": f"the last one's replacement came back to {setback.node}",
        "Pending": "the last one's replacement found no node",
        "Stayed": f"the last one was to go on by itself, and left the pod on {setback.node}",
        "WantedAway": _wanted_away(setback),
    }
    return f"{count} of {words(setback)}'s pods did not help: {ends[setback.trouble]}"


def _wanted_away(found: WatchedEviction | Setback) -> str:
    """Where the replacement is from which it is wanted away: one that only was to start anew may be where it was."""
    if found.landed == found.node:
        return f"{found.strategy} would evict the last one's replacement on {found.landed} again"
    return f"the last one went from {found.node} to {found.landed}, where {found.strategy} would evict it again"
