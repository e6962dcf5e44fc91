"""LeastWaste: the least cpu and memory left over."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

from trimtab.autoscaling.scale_up.expanders.expander import AnyOption, Context


class LeastWaste:
    """The shares of the new nodes' cpu and memory that pods do not request, added (upstream's ``least-waste``)."""

    name: ClassVar = "LeastWaste"

    def best(self, options: Sequence[AnyOption], context: Context) -> Sequence[AnyOption]:
        """Those with the least waste, compared exactly."""
        del context
        known: dict[tuple[int, bytes, int, int], Fraction] = {}  # of hundreds of groups many are of one kind
        wastes = []
        for option in options:
            amounts = option.candidate.amounts
            key = option.nodes, option.taken.tobytes(), amounts.get("cpu", 0), amounts.get("memory", 0)
            if key not in known:
                known[key] = option.waste
            wastes.append(known[key])
        least = min(wastes)
        return [option for option, waste in zip(options, wastes, strict=True) if waste == least]
