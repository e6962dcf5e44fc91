"""The smallest cluster that shows a difference without a name: pods go, then other objects, as long as it stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from tests.descheduler_differential.classes.table import name_of
from tests.descheduler_differential.facts import Case, Difference
from tests.descheduler_differential.report import Unexplained, words
from tests.descheduler_differential.suite import Examination
from tests.descheduler_differential.theirs import Descheduler
from tests.descheduler_differential.world import World
from tests.differential.dropping import dropped
from tests.differential.server import Manifest

ATTEMPTS: Final = 80
"""How often both are asked for one difference, at a second each."""

_ORDER: Final = ("Pod", "PodDisruptionBudget", "Node", "Pod")


def shrunk(world: World, descheduler: Descheduler, found: Unexplained) -> Unexplained:
    """The smallest case found, or the case itself where it does not show again."""
    return _Shrinker(world, descheduler, found).run()


class _Shrinker:
    def __init__(self, world: World, descheduler: Descheduler, found: Unexplained) -> None:
        self._world = world
        self._descheduler = descheduler
        self._found = found
        self._left = ATTEMPTS

    def run(self) -> Unexplained:
        if not self._holds(self._found.objects):
            return replace(self._found, words=f"{self._found.words} (it did not show again)")
        for kind in _ORDER:
            dropped(self._found.objects, _of(kind), self._holds)
        return self._found

    def _holds(self, objects: Sequence[Manifest]) -> bool:
        """Whether a difference of the same strategy and side is without a name in a smaller cluster."""
        if not self._left or not _whole(objects):
            return False
        self._left -= 1
        case = Examination(self._world, self._descheduler, objects).ask(self._found.policy)
        for difference in case.differences:
            if self._is_alike(case, difference):
                said = words(case, difference)
                self._found = replace(self._found, objects=list(objects), difference=difference, words=said)
                return True
        return False

    def _is_alike(self, case: Case, difference: Difference) -> bool:
        before = self._found.difference
        alike = (difference.strategy, difference.side) == (before.strategy, before.side)
        return alike and name_of(case, difference) is None


def _of(kind: str) -> Callable[[Manifest], bool]:
    return lambda each: bool(each["kind"] == kind)


def _whole(objects: Sequence[Manifest]) -> bool:
    """Whether all pods' nodes are there, and enough nodes for the descheduler to do anything."""
    nodes = {each["metadata"]["name"] for each in objects if each["kind"] == "Node"}
    return len(nodes) > 1 and all(each["spec"].get("nodeName") in nodes for each in objects if each["kind"] == "Pod")
