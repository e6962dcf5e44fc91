"""A seeded random source, so that a disagreement can be reproduced."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class RandomSource:
    """A random number generator with the choices that generators need.

    Args:
        seed: determines every value.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def one_in(self, number: int) -> bool:
        return self._random.randrange(number) == 0

    def pick(self, *values: T) -> T:
        return self._random.choice(values)

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def several(self, make: Callable[[], T], *numbers: int) -> list[T]:
        return [make() for _ in range(self.pick(*numbers))]

    def sample(self, values: Sequence[T], number: int) -> list[T]:
        return self._random.sample(values, min(number, len(values)))

    def fork(self) -> RandomSource:
        """An independent generator: values drawn from it do not change later values of this one."""
        return RandomSource(self._random.randrange(2**32))
