"""What the policy's condition says of its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trimtab.api import reasons
from trimtab.api.conditions import EFFECTIVE
from trimtab.api.eviction_memory import Memory, Setback
from trimtab.api.plan import rfc3339
from trimtab.descheduling.memory.recollection import UNTIL_CHANGED, told

SHOWN: Final = 10


def verdict(memory: Memory, *, now: float) -> tuple[str, bool, str, str]:
    """Type, status, reason and message of the condition that says whether evictions help."""
    gave_up = [each for each in memory.setbacks if each.gave_up]
    if gave_up:
        message = f"gave up on {len(gave_up)}: {_list(gave_up)}; {UNTIL_CHANGED}"
        return EFFECTIVE, False, reasons.GAVE_UP, message
    waiting = [each for each in memory.setbacks if now < each.until.timestamp()]
    if waiting:
        message = f"leaves {len(waiting)} alone for a while: {_list(waiting, until=True)}"
        return EFFECTIVE, True, reasons.COOLING_DOWN, message
    return EFFECTIVE, True, reasons.ALL_WELL, "no eviction is known not to have helped"


def gave_up_since(before: Memory, after: Memory) -> list[Setback]:
    """What was given up between the two."""
    known = {(each.strategy, each.namespace, each.kind, each.name) for each in before.setbacks if each.gave_up}
    return [
        each
        for each in after.setbacks
        if each.gave_up and (each.strategy, each.namespace, each.kind, each.name) not in known
    ]


def _list(setbacks: Sequence[Setback], *, until: bool = False) -> str:
    ordered = sorted(setbacks, key=lambda each: (-each.time.timestamp(), each.strategy, each.namespace, each.name))
    shown = [
        f"{each.strategy}: {told(each)}" + (f", until {rfc3339(each.until.timestamp())}" if until else "")
        for each in ordered[:SHOWN]
    ]
    more = f"; and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else ""
    return "; ".join(shown) + more
