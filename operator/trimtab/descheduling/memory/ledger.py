"""The setbacks while they are added to: how often in a row, until when, and whether that is the end."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trimtab.api.descheduler_policy import Cooldown
from trimtab.api.eviction_memory import Setback, Trouble, WatchedEviction
from trimtab.api.scalars import to_time
from trimtab.descheduling.memory.owners import key


class Ledger:
    """Setbacks by owner, strategy and template.

    Args:
        setbacks: as they were.
        cooldown: of the policy.
        now: seconds since the epoch.
    """

    def __init__(self, setbacks: Iterable[Setback], cooldown: Cooldown, *, now: float) -> None:
        self._all = {key(each): each for each in setbacks}
        self._cooldown = cooldown
        self._now = now

    def values(self) -> list[Setback]:
        """The setbacks as they are now."""
        return list(self._all.values())

    def failed(self, watched: WatchedEviction, trouble: Trouble, *, landed: str, replacement: str) -> None:
        """An eviction did not help: leave the owner alone, twice as long as the last time, or for good."""
        before = self._all.get(key(watched))
        failures = 1 if before is None else before.failures + 1
        until = to_time(self._now + self._cooldown.seconds(failures))
        self._all[key(watched)] = Setback(
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

    def helped(self, watched: WatchedEviction) -> None:
        """An eviction helped: what did not before it is no longer in a row. What was given up stays so."""
        before = self._all.get(key(watched))
        if before is not None and not before.gave_up and before.time <= (watched.landed_time or watched.time):
            del self._all[key(watched)]

    def keep(self, setback: Setback) -> None:
        """Note a setback with another state of its owner."""
        self._all[key(setback)] = setback

    def forget(self, setback: Setback) -> None:
        """Drop a setback whose owner is no more."""
        del self._all[key(setback)]

    def within_reach(self) -> None:
        """Let no cool-down end later than the longest one from now: the clock may have been set back."""
        latest = to_time(self._now + self._cooldown.seconds(33))
        for each in self.values():
            if each.until > latest:
                self.keep(msgspec.structs.replace(each, until=latest))
