"""Simulated failures and delays of machines, as annotations of a MachineSet with the prefix ``local.trimtab.dev/``.

- ``boot-time``: time from a machine's creation until its node registers, such as ``30s``; default 0
- ``fail``: ``errorReason`` of machines that fail at once, and their number: ``InsufficientResources:2``; default all
- ``never-join``: ``true`` or a number: machines get a provider ID but never a node
- ``quota``: maximum number of machines; further ones fail with InsufficientResources
- ``hold``: ``true``: no machine is created or deleted, as if the controller hung
- ``ignore-marks``: ``true``: machines to delete are chosen without regard to deletion annotations
- ``mark-lag``: time until the controller sees changed deletion annotations, such as ``10s``
- ``size-lag``: time until the controller sees changed replicas, such as ``2s``
- ``status-replicas``: number of replicas in the status, regardless of the actual number

They apply to machines that are created later. ``boot-time``, ``fail`` and ``never-join`` are copied to the machine. To
use them for a Machine without a MachineSet, add these three annotations to the machine. The numbers of ``fail`` and
``never-join`` are counted down on the MachineSet, so that they survive a restart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from trimtab.api.scalars import parse_go_duration

PREFIX: Final = "local.trimtab.dev/"
BOOT_TIME: Final = f"{PREFIX}boot-time"
FAIL: Final = f"{PREFIX}fail"
NEVER_JOIN: Final = f"{PREFIX}never-join"
QUOTA: Final = f"{PREFIX}quota"
HOLD: Final = f"{PREFIX}hold"
IGNORE_MARKS: Final = f"{PREFIX}ignore-marks"
MARK_LAG: Final = f"{PREFIX}mark-lag"
SIZE_LAG: Final = f"{PREFIX}size-lag"
STATUS_REPLICAS: Final = f"{PREFIX}status-replicas"

KEYS: Final = (BOOT_TIME, FAIL, NEVER_JOIN, QUOTA, HOLD, IGNORE_MARKS, MARK_LAG, SIZE_LAG, STATUS_REPLICAS)

_COUNT: Final = re.compile("[0-9]{1,9}")
_FAIL: Final = re.compile("(?P<reason>[A-Za-z][A-Za-z0-9]{0,63})(?::(?P<count>[0-9]{1,9}))?")
_SWITCH: Final = {"true": True, "false": False}


class NextMachines(Struct, frozen=True):
    """A number of the next machines; ``None`` for all."""

    count: int | None = 0

    def of_next(self, taken: int) -> bool:
        """Return whether the next machine is included, after ``taken`` machines were included."""
        return self.count is None or taken < self.count


class Orders(Struct, frozen=True):
    """The simulated failures and delays of one MachineSet or one machine.

    Attributes:
        boot_seconds: the time from a machine's creation until its node registers.
        fail: which of the next machines fail.
        fail_reason: the ``errorReason`` of failed machines.
        never_join: which of the next machines never get a node.
        quota: the maximum number of machines; ``None`` for no limit.
        hold: whether no machine is created or deleted.
        ignore_marks: whether deletion annotations are ignored when machines to delete are chosen.
        mark_lag: seconds until the controller sees changed deletion annotations.
        size_lag: seconds until the controller sees changed replicas.
        status_replicas: the number of replicas in the status; ``None`` for the actual number.
        problems: a message for each invalid annotation.
    """

    boot_seconds: float = 0.0
    fail: NextMachines = NextMachines()
    fail_reason: str = ""
    never_join: NextMachines = NextMachines()
    quota: int | None = None
    hold: bool = False
    ignore_marks: bool = False
    mark_lag: float = 0.0
    size_lag: float = 0.0
    status_replicas: int | None = None
    problems: tuple[str, ...] = ()


def read_orders(annotations: Mapping[str, str]) -> Orders:
    """Parse the annotations. Invalid ones are ignored and reported in ``problems``."""
    reading = _AnnotationParser(annotations, [])
    fail = reading.match(FAIL, _FAIL, "a reason, or a reason and how often: InsufficientResources:2")
    known = ", ".join(key.removeprefix(PREFIX) for key in KEYS)
    reading.problems += [
        f"annotation {key} is no order; after {PREFIX} there may be {known}"
        for key in sorted(annotations)
        if key.startswith(PREFIX) and key not in KEYS
    ]
    return Orders(
        boot_seconds=reading.seconds(BOOT_TIME),
        fail=NextMachines() if fail is None else NextMachines(None if fail["count"] is None else int(fail["count"])),
        fail_reason="" if fail is None else fail["reason"],
        never_join=reading.some(NEVER_JOIN),
        quota=reading.count(QUOTA),
        hold=reading.switch(HOLD),
        ignore_marks=reading.switch(IGNORE_MARKS),
        mark_lag=reading.seconds(MARK_LAG),
        size_lag=reading.seconds(SIZE_LAG),
        status_replicas=reading.count(STATUS_REPLICAS),
        problems=tuple(reading.problems),
    )


class _AnnotationParser(Struct):
    """Parses annotations and collects messages about invalid ones."""

    annotations: Mapping[str, str]
    problems: list[str]

    def _blame(self, key: str, allowed: str) -> None:
        self.problems.append(f"annotation {key} must be {allowed}; not {self.annotations[key]!r}")

    def match(self, key: str, pattern: re.Pattern[str], allowed: str) -> re.Match[str] | None:
        """Return the match of an annotation's whole value; ``None`` if it is missing or does not match."""
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

    def some(self, key: str) -> NextMachines:
        text = self.annotations.get(key, "false")
        if _COUNT.fullmatch(text):
            return NextMachines(int(text))
        if text not in _SWITCH:
            self._blame(key, "true, false or a whole number from 0 on")
        return NextMachines(None) if _SWITCH.get(text) else NextMachines()

    def seconds(self, key: str) -> float:
        text = self.annotations.get(key)
        try:
            return 0.0 if text is None else parse_go_duration(text)
        except ValueError as error:
            self.problems.append(f"annotation {key} {error}")
            return 0.0
