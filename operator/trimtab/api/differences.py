"""Differences in behaviour between documents of other programs and what they are converted to, with their severity."""

from __future__ import annotations

from typing import Final, Literal

from trimtab.api.schema import FieldError

Severity = Literal["high", "medium", "low"]
"""How much a difference matters.

For evictions, ``high``: more or other pods are evicted, at other times, or something must be set by hand before the
result is equivalent. ``medium``: something has less or another effect. ``low``: the effect on pods is the same.

For nodes, ``high``: other nodes are added or removed, or something must be set by hand before the result is
equivalent. ``medium``: the same nodes are added or removed at another time or pace, in another order, or in a similar
node group. ``low``: the effect on nodes is the same.
"""

HIGH: Final = "high"
MEDIUM: Final = "medium"
LOW: Final = "low"


class Difference(FieldError, frozen=True):
    """A difference in behaviour between a document and what it is converted to.

    Attributes:
        severity: how much it matters.
    """

    severity: Severity = MEDIUM
