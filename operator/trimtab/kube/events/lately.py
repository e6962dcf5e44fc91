"""What was told a short while ago, so that it is not told again: a bounded memory of texts."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

WINDOW: Final = 300.0
"""Seconds for which the same is not told again; upstream's."""

MOST: Final = 20_000


class Lately:
    """Remembers what was last told of each thing, and when.

    Args:
        window: seconds for which the same is not told again.
        most: how many things are remembered; those told of longest ago are forgotten.
    """

    def __init__(self, *, window: float = WINDOW, most: int = MOST) -> None:
        self._window = window
        self._most = most
        self._told: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._told)

    def last(self, key: str) -> float:
        """When something was last told of it, 0 where nothing was."""
        return self._told.get(key, ("", 0.0))[1]

    def is_news(self, key: str, text: str, *, now: float) -> bool:
        """Whether to tell a text of a thing."""
        told, at = self._told.get(key, ("", -self._window))
        return told != text or now - at >= self._window

    def note(self, key: str, text: str, *, now: float) -> None:
        """It was told."""
        self._told[key] = (text, now)
        self._told.move_to_end(key)
        while len(self._told) > self._most:
            self._told.popitem(last=False)
