"""Which rows a page shows where there are more than anybody reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def excerpt(items: Sequence[T], group: Callable[[T], str], most: int | None) -> list[tuple[int, T]]:
    """At most so many of the items, in their order, with their places: of each group the first, all groups alike.

    Small groups are shown whole and leave what they do not need to the others: the rare is what one looks for.

    Args:
        items: in order.
        group: the group of an item.
        most: how many; ``None`` for all.
    """
    if most is None or len(items) <= most:
        return list(enumerate(items))
    groups = [group(item) for item in items]
    left = shares(Counter(groups), most)
    shown = []
    for place, item in enumerate(items):
        if left[groups[place]] > 0:
            left[groups[place]] -= 1
            shown.append((place, item))
    return shown


def shares(sizes: Counter[str], most: int) -> dict[str, int]:
    """How many of each group are shown; at least one of each, whatever ``most`` is."""
    given, spare = {}, most
    in_order = sorted(sizes.items(), key=lambda size: (size[1], size[0]))
    for place, (name, size) in enumerate(in_order):
        fair = max(1, spare // (len(in_order) - place))
        given[name] = min(size, fair)
        spare -= given[name]
    return given
