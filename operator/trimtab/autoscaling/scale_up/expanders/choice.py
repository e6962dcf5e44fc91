"""How the groups among which expanders chose compare, for messages and explanations."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from msgspec import Struct

MAX_NAMED: Final = 3
"""Maximum number of other groups that a message names for each expander."""


class Measure(Struct, frozen=True, order=True):
    """The value of an option by which an expander compares it. The smallest ``rank`` is the best.

    Attributes:
        rank: the value to compare.
        text: the value for messages, with its unit.
    """

    rank: Fraction | int
    text: str


NO_MEASURE: Final = Measure(0, "")
"""The measure of expanders that do not compare values."""


class ComparedOption(Struct, frozen=True):
    """An option in comparison with the one that was chosen.

    Attributes:
        group: the id of the group.
        key: the group as ``namespace/name``.
        nodes: the number of nodes to add.
        pods: the number of pods that fit on them.
        expander: the expander that preferred another option; empty for the chosen option, and if the group id decided.
        measure: the value of this option for that expander.
        best: the value of the chosen option for that expander.
    """

    group: str
    key: str
    nodes: int
    pods: int
    expander: str = ""
    measure: Measure = NO_MEASURE
    best: Measure = NO_MEASURE


class ExpanderChoice(Struct, frozen=True):
    """One decision of a chain of expanders.

    Attributes:
        chosen: the chosen option.
        by: the expander that decided, with a note about an external expander that made no choice; empty if there was
            only one option, or if the group id decided.
        others: the other options, those that the deciding expander rejected first, then the best ones.
        owners: the ids of the groups to which the nodes are added: the chosen one and similar ones.
    """

    chosen: ComparedOption
    by: str = ""
    others: tuple[ComparedOption, ...] = ()
    owners: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return which groups the chosen one was preferred to, and by how much; empty if there were no others.

        Each expander of the chain that rejected groups is named, the deciding one first, with at most
        :data:`MAX_NAMED` groups.
        """
        parts = []
        others = [each for each in self.others if each.expander and each.group not in self.owners]
        for expander in dict.fromkeys(each.expander for each in others):
            found = [each for each in others if each.expander == expander]
            name = self.by if self.by.startswith(expander) else expander
            names = ", ".join(f"{each.key}{_in_parentheses(each.measure)}" for each in found[:MAX_NAMED])
            more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
            parts.append(f"{name} chose it{_in_parentheses(found[0].best)} over {names}{more}")
        return "; ".join(parts)


def _in_parentheses(measure: Measure) -> str:
    return f" ({measure.text})" if measure.text else ""
