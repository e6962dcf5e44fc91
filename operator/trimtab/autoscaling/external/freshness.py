"""Whether what was read of a group is newer than what was done to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Doing:
    """Something that is done to a group.

    Attributes:
        target: the size that the group has by that, where it is known; to be set by whoever does it.
    """

    target: int | None = None


class Freshness:
    """Counts readings and doings.

    A provider is told to add three nodes, not to have five. If a size that was read before that is planned on, three
    more are added. So a group that was acted on is left alone until it has been read anew.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._acted: dict[str, int] = {}
        self._acting: Counter[str] = Counter()
        self._targets: dict[str, int] = {}

    def reading(self) -> int:
        """A reading begins; returns its number for :meth:`holds`."""
        self._turn += 1
        return self._turn

    @contextmanager
    def acting(self, group: str) -> Iterator[Doing]:
        """While something is done to a group."""
        self._acting[group] += 1
        doing = Doing()
        try:
            yield doing
        finally:
            if doing.target is not None:
                self._targets[group] = doing.target
            self._acting[group] -= 1
            self._turn += 1
            self._acted[group] = self._turn

    def holds(self, group: str, reading: int) -> bool:
        """Whether a reading tells the group as it is after all that was done to it."""
        return not self._acting[group] and reading > self._acted.get(group, 0)

    def target(self, group: str, read: int) -> int:
        """The size of a group whose reading does not hold: what it was set to since, else what was read."""
        return self._targets.get(group, read)
