"""The pods for which no place has been found so far, by class, while groups are tried."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from trimtab.autoscaling.scale_up.classes import PodClass
from trimtab.kube.objects import Pod


class Waiting:
    """What is left of each class.

    Args:
        classes: all of them, in the order of their numbers.
    """

    def __init__(self, classes: Sequence[PodClass]) -> None:
        self._classes = classes
        self._left = {each.number: deque(each.pods) for each in classes}

    def __bool__(self) -> bool:
        return any(self._left.values())

    def classes(self, *, counted: bool | None = None) -> list[PodClass]:
        """The classes that still have pods; only counted ones, or only others, where that is asked."""
        return [each for each in self._classes if self._left[each.number] and counted in (None, each.counted)]

    def count(self, number: int) -> int:
        """How many pods of a class are left."""
        return len(self._left[number])

    def pods(self, number: int) -> list[Pod]:
        """The pods of a class that are left, the most important first."""
        return list(self._left[number])

    def take(self, number: int, count: int) -> list[Pod]:
        """Take pods of a class, the most important first."""
        left = self._left[number]
        return [left.popleft() for _ in range(count)]

    def remove(self, number: int, pods: Iterable[Pod]) -> None:
        """Take certain pods of a class."""
        gone = {pod.key for pod in pods}
        self._left[number] = deque(pod for pod in self._left[number] if pod.key not in gone)
