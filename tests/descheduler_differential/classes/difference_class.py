"""Classes of differences: a name that docs/compatibility.md explains, and a proof that it applies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.descheduler_differential.case import Case, Difference, Side

Proof = Callable[[Case, Difference], bool]


@dataclass(frozen=True)
class DifferenceClass:
    """One class of differences.

    Attributes:
        name: the name in the table of docs/compatibility.md.
        side: the side whose additional evictions the class explains.
        proof: whether a difference belongs to the class, from facts about the cluster.
        strategies: the strategies to which the class applies; empty for all.
    """

    name: str
    side: Side
    proof: Proof
    strategies: frozenset[str] = frozenset()

    def explains(self, case: Case, difference: Difference) -> bool:
        """Whether the difference belongs to this class."""
        if difference.side != self.side or (self.strategies and difference.strategy not in self.strategies):
            return False
        return self.proof(case, difference)
