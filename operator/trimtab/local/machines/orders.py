"""What machines shall do wrong, to order: annotations of a MachineSet below ``local.trimtab.dev/``.

====================  ==================================================================================================
``boot-time``         how long a machine takes from being made to its node: ``30s``; nothing unless given
``fail``              with which reason machines fail at once, and how many: ``InsufficientResources:2``; else all
``never-join``        ``true`` or a number: machines get a provider ID, and never a node
``quota``             so many machines at once; each beyond fails with InsufficientResources
``hold``              ``true``: the set makes and deletes nothing, as if its controller hung
``ignore-marks``      ``true``: the set picks machines to delete as if none were marked
``status-replicas``   the number that its status tells, whatever is true
====================  ==================================================================================================

They hold for machines that are made from then on: what a machine is to do is written on the machine itself, as
``boot-time``, ``fail`` and ``never-join``. Who makes a Machine without a set may put these three there by hand. Numbers
of ``fail`` and ``never-join`` count down on the set, so that a restart forgets nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from trimtab.api.go_durations import parse_go_duration

PREFIX: Final = "local.trimtab.dev/"
BOOT_TIME: Final = f"{PREFIX}boot-time"
FAIL: Final = f"{PREFIX}fail"
NEVER_JOIN: Final = f"{PREFIX}never-join"
QUOTA: Final = f"{PREFIX}quota"
HOLD: Final = f"{PREFIX}hold"
IGNORE_MARKS: Final = f"{PREFIX}ignore-marks"
STATUS_REPLICAS: Final = f"{PREFIX}status-replicas"

KEYS: Final = (BOOT_TIME, FAIL, NEVER_JOIN, QUOTA, HOLD, IGNORE_MARKS, STATUS_REPLICAS)

_COUNT: Final = re.compile("[0-9]{1,9}")
_FAIL: Final = re.compile("(?P<reason>[A-Za-z][A-Za-z0-9]{0,63})(?::(?P<count>[0-9]{1,9}))?")
_SWITCH: Final = {"true": True, "false": False}


class Some(Struct, frozen=True):
    """So many of the next machines; ``None`` for all."""

    count: int | None = 0

    def of_next(self, taken: int) -> bool:
        """Whether it holds for the next machine, where it held for ``taken`` before it."""
        return self.count is None or taken < self.count


class Orders(Struct, frozen=True):
    """The orders of one set, or of one machine.

    Attributes:
        boot_seconds: from a machine's creation to its node.
        fail: which of the next machines fail.
        fail_reason: with which ``errorReason``.
        never_join: which of the next machines never get a node.
        quota: machines at once; ``None`` for no end.
        hold: nothing is made or deleted.
        ignore_marks: marks have no say in which machine goes.
        status_replicas: what the status tells; ``None`` for the truth.
        problems: what of the annotations cannot be read, in words.
    """

    boot_seconds: float = 0.0
    fail: Some = Some()
    fail_reason: str = ""
    never_join: Some = Some()
    quota: int | None = None
    hold: bool = False
    ignore_marks: bool = False
    status_replicas: int | None = None
    problems: tuple[str, ...] = ()


def read_orders(annotations: Mapping[str, str]) -> Orders:
    """The orders that annotations give. Those that cannot be read are among the problems, and do not count."""
    reading = _Reading(annotations, [])
    fail = reading.match(FAIL, _FAIL, "a reason, or a reason and how often: InsufficientResources:2")
    known = ", ".join(key.removeprefix(PREFIX) for key in KEYS)
    reading.problems += [
        f"annotation {key} is no order; after {PREFIX} there may be {known}"
        for key in sorted(annotations)
        if key.startswith(PREFIX) and key not in KEYS
    ]
    return Orders(
        boot_seconds=reading.seconds(BOOT_TIME),
        fail=Some() if fail is None else Some(None if fail["count"] is None else int(fail["count"])),
        fail_reason="" if fail is None else fail["reason"],
        never_join=reading.some(NEVER_JOIN),
        quota=reading.count(QUOTA),
        hold=reading.switch(HOLD),
        ignore_marks=reading.switch(IGNORE_MARKS),
        status_replicas=reading.count(STATUS_REPLICAS),
        problems=tuple(reading.problems),
    )


class _Reading(Struct):
    """Annotations, and what of them cannot be read."""

    annotations: Mapping[str, str]
    problems: list[str]

    def _blame(self, key: str, allowed: str) -> None:
        self.problems.append(f"annotation {key} must be {allowed}; not {self.annotations[key]!r}")

    def match(self, key: str, pattern: re.Pattern[str], allowed: str) -> re.Match[str] | None:
        """The match of the whole text; ``None`` where the annotation is not there or is not so."""
        text = self.annotations.get(key)
        if text is None:
            return None
        found = pattern.fullmatch(text)
        if found is None:
            self._blame(key, allowed)
        return found

    def count(self, key: str) -> int | None:
        found = self.match(key, _COUNT, "a whole number from 0 on")
        return None if found is None else int(found[0])

    def switch(self, key: str) -> bool:
        text = self.annotations.get(key, "false")
        if text not in _SWITCH:
            self._blame(key, "true or false")
        return _SWITCH.get(text, False)

    def some(self, key: str) -> Some:
        text = self.annotations.get(key, "false")
        if _COUNT.fullmatch(text):
            return Some(int(text))
        if text not in _SWITCH:
            self._blame(key, "true, false or a whole number from 0 on")
        return Some(None) if _SWITCH.get(text) else Some()

    def seconds(self, key: str) -> float:
        text = self.annotations.get(key)
        try:
            return 0.0 if text is None else parse_go_duration(text)
        except ValueError as error:
            self.problems.append(f"annotation {key} {error}")
            return 0.0
