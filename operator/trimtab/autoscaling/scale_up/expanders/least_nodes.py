"""LeastNodes: fewest nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from trimtab.autoscaling.scale_up.expanders.expander import AnyOption, Context


class LeastNodes:
    """The groups that add the fewest nodes, however many pods these take (upstream's ``least-nodes``).

    Put MostPods before it where groups differ in which pods they take: one that takes a single pod adds one node.
    """

    name: ClassVar = "LeastNodes"

    def best(self, options: Sequence[AnyOption], context: Context) -> Sequence[AnyOption]:
        """Those with the fewest nodes."""
        del context
        fewest = min(option.nodes for option in options)
        return [option for option in options if option.nodes == fewest]
