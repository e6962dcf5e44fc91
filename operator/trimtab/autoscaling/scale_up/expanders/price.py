"""Price: the cheapest for what pods request, where prices are known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar, Final

from trimtab.autoscaling.groups.keys import PRICE
from trimtab.autoscaling.groups.node_group import NodeGroup
from trimtab.autoscaling.scale_up.expanders.expander import AnyOption, Context
from trimtab.autoscaling.scale_up.option import Option
from trimtab.cluster.resources import CPU, MEMORY

_PRICE: Final = re.compile(r"[0-9]{1,9}([.][0-9]{1,9})?")
_CORE: Final = 1000
_MEMORY_OF_A_CORE: Final = 8 << 30
"""Bytes that count as much as a core: what clouds charge for 8 GiB is about what they charge for a core."""


def price_of(group: NodeGroup) -> Fraction | None:
    """What a node of a group costs an hour; ``None`` where nobody has said it, or it cannot be read."""
    text = group.template.annotations.get(PRICE, "")
    return Fraction(text) if _PRICE.fullmatch(text) else None


class Price:
    """The lowest price for each core that pods request; 8 GiB of memory count as one.

    No machine API tells prices, so groups say them by annotation. Groups without a price are not chosen while there is
    one with; where none has one, the next expander decides. Upstream's has bounds for the size of nodes besides, which
    were made for one cloud.
    """

    name: ClassVar = "Price"

    def best(self, options: Sequence[AnyOption], context: Context) -> Sequence[AnyOption]:
        """Those with the lowest price for what is requested, compared exactly."""
        del context
        priced = [(option, price) for option in options if (price := price_of(option.group)) is not None]
        if not priced:
            return options
        costs = [price * option.nodes / _asked(option) for option, price in priced]
        least = min(costs)
        return [option for (option, _), cost in zip(priced, costs, strict=True) if cost == least]


def _asked(option: Option) -> Fraction:
    """What the pods request in cores; pods that request nothing count as a millicore each."""
    asked = Fraction(int(option.taken[CPU]), _CORE) + Fraction(int(option.taken[MEMORY]), _MEMORY_OF_A_CORE)
    return max(asked, Fraction(option.pods, _CORE))
