"""LeastWaste: the least cpu and memory left over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from trimtab.autoscaling.scale_up.expanders.expander import AnyOption, Context


class LeastWaste:
    """The shares of the new nodes' cpu and memory that pods do not request, added (upstream's ``least-waste``)."""

    name: ClassVar = "LeastWaste"

    def best(self, options: Sequence[AnyOption], context: Context) -> Sequence[AnyOption]:
        """Those with the least waste, compared exactly."""
        del context
        wastes = [option.waste for option in options]
        least = min(wastes)
        return [option for option, waste in zip(options, wastes, strict=True) if waste == least]
