"""Everything that is drawn follows from one seed, so that a disagreement can be had again."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Chance:
    """Draws.

    Args:
        seed: what all follows from.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def one_in(self, number: int) -> bool:
        return self._random.randrange(number) == 0

    def pick(self, *values: T) -> T:
        return self._random.choice(values)

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def some(self, make: Callable[[], T], *numbers: int) -> list[T]:
        return [make() for _ in range(self.pick(*numbers))]

    def sample(self, values: Sequence[T], number: int) -> list[T]:
        return self._random.sample(values, min(number, len(values)))

    def fork(self) -> Chance:
        """Another one that follows from this one: what is drawn of it changes nothing of what is drawn of this one."""
        return Chance(self._random.randrange(2**32))
