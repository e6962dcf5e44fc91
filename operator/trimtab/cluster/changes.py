"""Logs of what changed, for those who keep something computed and bring it up to date when they are asked next."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

T = TypeVar("T")

_LOG: Final = 65_536
"""Changes that are remembered; who has not looked for longer must look at everything."""


class Changes(Generic[T]):
    """What changed, the latest last.

    Attributes:
        log: since :attr:`epoch` began; the same may be there more than once.
        epoch: rises when the log is cut.
    """

    __slots__ = ("epoch", "log")

    def __init__(self) -> None:
        self.log: list[T] = []
        self.epoch = 0

    def note(self, what: T) -> None:
        """Log a change."""
        if len(self.log) >= _LOG:
            self.log.clear()
            self.epoch += 1
        self.log.append(what)


class Reader(Generic[T]):
    """A place in a log, at its end to begin with: its owner has just looked at everything."""

    __slots__ = ("_changes", "_epoch", "_position")

    def __init__(self, changes: Changes[T]) -> None:
        self._changes = changes
        self._epoch = changes.epoch
        self._position = len(changes.log)

    def news(self) -> set[T] | None:
        """What changed since the last call, or ``None`` where that is no longer known and anything may have."""
        changes = self._changes
        end = len(changes.log)
        if self._epoch != changes.epoch:
            self._epoch, self._position = changes.epoch, end
            return None
        if self._position == end:
            return set()
        start, self._position = self._position, end
        return set(changes.log[start:])
