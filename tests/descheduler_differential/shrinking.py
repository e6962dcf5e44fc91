"""Shrinks a test case: removes pods, then other objects, as long as an unexplained difference remains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from tests.descheduler_differential.case import Case, Difference
from tests.descheduler_differential.classes.table import class_of
from tests.descheduler_differential.descheduler import Descheduler
from tests.descheduler_differential.environment import Environment
from tests.descheduler_differential.report import Unexplained, trimtab_decision
from tests.descheduler_differential.suite import ClusterComparison
from tests.differential.api_client import Manifest
from tests.differential.delta_debugging import minimize

ATTEMPTS: Final = 80
"""Maximum number of comparisons per difference; each takes about a second."""

_ORDER: Final = ("Pod", "PodDisruptionBudget", "Node", "Pod")


def shrink_case(environment: Environment, descheduler: Descheduler, found: Unexplained) -> Unexplained:
    """Return the smallest case found, or the case with a note if it is not reproducible."""
    return _Shrinker(environment, descheduler, found).run()


class _Shrinker:
    def __init__(self, environment: Environment, descheduler: Descheduler, found: Unexplained) -> None:
        self._environment = environment
        self._descheduler = descheduler
        self._found = found
        self._attempts_left = ATTEMPTS

    def run(self) -> Unexplained:
        if not self._reproduces(self._found.objects):
            return replace(self._found, decision=f"{self._found.decision} (not reproduced)")
        for kind in _ORDER:
            minimize(self._found.objects, _of(kind), self._reproduces)
        return self._found

    def _reproduces(self, objects: Sequence[Manifest]) -> bool:
        """Whether a smaller cluster has an unexplained difference of the same strategy and side."""
        if not self._attempts_left or not _is_valid(objects):
            return False
        self._attempts_left -= 1
        case = ClusterComparison(self._environment, self._descheduler, objects).compare(self._found.policy)
        for difference in case.differences:
            if self._is_alike(case, difference):
                decision = trimtab_decision(case, difference)
                self._found = replace(self._found, objects=list(objects), difference=difference, decision=decision)
                return True
        return False

    def _is_alike(self, case: Case, difference: Difference) -> bool:
        before = self._found.difference
        alike = (difference.strategy, difference.side) == (before.strategy, before.side)
        return alike and class_of(case, difference) is None


def _of(kind: str) -> Callable[[Manifest], bool]:
    return lambda each: bool(each["kind"] == kind)


def _is_valid(objects: Sequence[Manifest]) -> bool:
    """Whether the nodes of all pods exist, and at least the two nodes that the descheduler requires."""
    nodes = {each["metadata"]["name"] for each in objects if each["kind"] == "Node"}
    return len(nodes) > 1 and all(each["spec"].get("nodeName") in nodes for each in objects if each["kind"] == "Pod")
