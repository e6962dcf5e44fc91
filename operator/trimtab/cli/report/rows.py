"""Computes the rows of the page's charts, which are nodes or groups of nodes, and excerpts of long tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import ceil, isnan
from typing import Final, TypeVar

import numpy as np
from msgspec import Struct

from trimtab.cli.report.content import Usage
from trimtab.descheduling.planning.node_usage import FloatArray

SINGLE: Final = 80
"""Maximum number of nodes for a chart with one row per node."""

GROUPS: Final = 40
"""Maximum number of rows of a chart in which nodes are grouped."""

BINS: Final = 11
"""Number of ranges of the histogram: ten of ten percent each, and one above 100."""


class Row(Struct, frozen=True):
    """A node, or the mean of a group of nodes.

    Attributes:
        label: the short name.
        detail: the full description.
        nodes: the number of nodes.
        before: utilization in percent by resource; ``None`` if no node has the resource.
        after: utilization after the plan in percent by resource; ``None`` if no node has the resource.
        leaving: number of pods that leave the nodes.
        arriving: number of pods that are moved to the nodes.
    """

    label: str
    detail: str
    nodes: int
    before: tuple[float | None, ...]
    after: tuple[float | None, ...]
    leaving: int
    arriving: int


def rows(usage: Usage) -> tuple[Row, ...]:
    """Return one row per node or, for more than :data:`SINGLE` nodes, one row per group of nodes.

    Single nodes are ordered by name. Groups contain nodes with a similar utilization before the plan, highest first.
    The utilization of a node is that of its most requested resource, because it limits further pods. Groups by name or
    zone would all have about the same mean.
    """
    if len(usage.names) <= SINGLE:
        return tuple(_node(usage, index) for index in range(len(usage.names)))
    fullest = np.nan_to_num(usage.before, nan=0.0).max(axis=1, initial=0.0)
    order = np.argsort(-fullest, kind="stable")  # the names are already sorted, so ties are broken by name
    size = ceil(len(order) / GROUPS)
    return tuple(_group(usage, order[start : start + size], start) for start in range(0, len(order), size))


def _node(usage: Usage, index: int) -> Row:
    name = usage.names[index]
    states = [word for word, of in (("cordoned", usage.cordoned), ("goes", usage.going)) if name in of]
    return Row(
        label=name,
        detail=f"{name} ({', '.join(states)})" if states else name,
        nodes=1,
        before=tuple(_percent(value) for value in usage.before[index].tolist()),
        after=tuple(_percent(value) for value in usage.after[index].tolist()),
        leaving=int(usage.leaving[index]),
        arriving=int(usage.arriving[index]),
    )


def _group(usage: Usage, indices: np.ndarray, start: int) -> Row:
    many = len(indices)
    first, last = start + 1, start + many
    names = sorted(usage.names[index] for index in indices[:3].tolist())
    examples = ", ".join(names) + (", …" if many > len(names) else "")
    return Row(
        label=f"{first}\u2013{last}" if many > 1 else f"{first}",
        detail=f"{many} nodes, number {first} to {last} of the fullest: {examples}",
        nodes=many,
        before=_mean_utilization(usage.before[indices]),
        after=_mean_utilization(usage.after[indices]),
        leaving=int(usage.leaving[indices].sum()),
        arriving=int(usage.arriving[indices].sum()),
    )


def _mean_utilization(shares: FloatArray) -> tuple[float | None, ...]:
    have = ~np.isnan(shares)
    numbers = have.sum(axis=0)
    sums = np.where(have, shares, 0.0).sum(axis=0)
    return tuple(
        round(total / count, 6) if count else None for total, count in zip(sums.tolist(), numbers.tolist(), strict=True)
    )


def _percent(value: float) -> float | None:
    return None if isnan(value) else value


def histogram(shares: FloatArray) -> tuple[int, ...]:
    """Return the number of nodes with 0 to 10 percent, 10 to 20, …, 90 to 100 (inclusive), and above 100 percent.

    Args:
        shares: float64, shape (nodes,); NaN for nodes without the resource, which are not counted.
    """
    have = shares[~np.isnan(shares)]
    bins = np.minimum(have // 10, BINS - 1).astype(np.int64)
    bins[have == 100.0] = BINS - 2
    return tuple(np.bincount(bins, minlength=BINS).tolist())


T = TypeVar("T")


def excerpt(items: Sequence[T], group: Callable[[T], str], most: int | None) -> list[tuple[int, T]]:
    """Return at most ``most`` items with their positions, in order. The first items of each group are selected.

    Small groups are shown completely, and larger groups share the remaining rows, because rare groups matter most.

    Args:
        items: the ordered items.
        group: returns the group of an item.
        most: the maximum number; ``None`` for all items.
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
    """Return the number of items to show for each group: at least one each, even if the sum then exceeds ``most``."""
    given, spare = {}, most
    in_order = sorted(sizes.items(), key=lambda size: (size[1], size[0]))
    for place, (name, size) in enumerate(in_order):
        fair = max(1, spare // (len(in_order) - place))
        given[name] = min(size, fair)
        spare -= given[name]
    return given
