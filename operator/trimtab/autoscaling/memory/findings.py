"""Findings: what a pass learned about what was asked for before, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from trimtab.autoscaling.groups import GroupMachine


class Finding(Struct, frozen=True):
    """Something that is new about a group: told once, as an event.

    Attributes:
        group: its id.
        reason: a code of :mod:`trimtab.api.reasons`.
        message: in words, with numbers and names.
        count: of how many nodes it is about.
        failure: whether the group backs off for it.
    """

    group: str
    reason: str
    message: str
    count: int = 0
    failure: bool = False


class Findings(Struct, frozen=True):
    """What a pass learned.

    Attributes:
        told: what is new, by group.
        upcoming: how many nodes are really on their way, by group, where the group's own count says otherwise:
            ones that nobody waits for any more are not, ones that were asked for a moment ago are. For planning.
        asked: groups whose targets do not show yet what they were asked for, in words: nothing more is asked of them
            until they do. For planning.
        hopeless: machines without a node that failed, or were given up: to be taken away. By group, in their order.
        shortfall: how far the target is to be lowered, for no machine was made for it and nobody waits any more.
    """

    told: tuple[Finding, ...] = ()
    upcoming: Mapping[str, int] = {}
    asked: Mapping[str, str] = {}
    hopeless: Mapping[str, tuple[GroupMachine, ...]] = {}
    shortfall: Mapping[str, int] = {}

    def of(self, reason: str) -> dict[str, str]:
        """What was told for one reason, in words, by group."""
        return {each.group: each.message for each in self.told if each.reason == reason}
