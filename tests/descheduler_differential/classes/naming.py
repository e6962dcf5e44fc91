"""What a class of differences is: a name that docs/compatibility.md explains, and a proof that it applies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.descheduler_differential.facts import Case, Difference, Side

Proof = Callable[[Case, Difference], bool]


@dataclass(frozen=True)
class Named:
    """One class.

    Attributes:
        name: as the table has it.
        side: whose evictions it explains: pods that only they evict, or that only we do.
        proof: whether a difference is of the class; it looks at facts, and takes nobody's word.
        strategies: for which strategies; empty for all.
    """

    name: str
    side: Side
    proof: Proof
    strategies: frozenset[str] = frozenset()

    def explains(self, case: Case, difference: Difference) -> bool:
        """Whether the difference is of this class."""
        if difference.side != self.side or (self.strategies and difference.strategy not in self.strategies):
            return False
        return self.proof(case, difference)
