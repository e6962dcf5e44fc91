"""Rows of the pictures: a node each, or groups of nodes where there are too many for anybody to read."""

from __future__ import annotations

from math import ceil, isnan
from typing import Final

import numpy as np
from msgspec import Struct

from trimtab.cli.report.content import Usage
from trimtab.descheduling.utilization import FloatArray

SINGLE: Final = 80
"""Nodes up to which each has a row of its own."""

GROUPS: Final = 40
"""Rows at most where it is groups."""

BINS: Final = 11
"""Ranges of ten percent that nodes are counted in, and one for all beyond 100."""


class Row(Struct, frozen=True):
    """A node, or the mean of some.

    Attributes:
        label: what it is called.
        detail: what it is, in more words.
        nodes: how many it stands for.
        before: percent by resource, ``None`` where no node has it.
        after: likewise, and ``None`` of a node that goes.
        leaving: pods that the plan moves away.
        arriving: pods that it moves there.
    """

    label: str
    detail: str
    nodes: int
    before: tuple[float | None, ...]
    after: tuple[float | None, ...]
    leaving: int
    arriving: int


def rows(usage: Usage) -> tuple[Row, ...]:
    """The nodes by name; more than :data:`SINGLE` in groups of equal size by how full they are before, fullest first.

    Groups by name or zone would be equally full on average, which says nothing. What a node has most of, in percent,
    is how full it is: that is what keeps pods from it.
    """
    if len(usage.names) <= SINGLE:
        return tuple(_node(usage, index) for index in range(len(usage.names)))
    fullest = np.nan_to_num(usage.before, nan=0.0).max(axis=1, initial=0.0)
    order = np.argsort(-fullest, kind="stable")  # names are in order already: ties go by them
    size = ceil(len(order) / GROUPS)
    return tuple(_group(usage, order[start : start + size], start) for start in range(0, len(order), size))


def _node(usage: Usage, index: int) -> Row:
    name = usage.names[index]
    told = [word for word, of in (("cordoned", usage.cordoned), ("goes", usage.going)) if name in of]
    return Row(
        label=name,
        detail=f"{name} ({', '.join(told)})" if told else name,
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
    told = ", ".join(names) + (", …" if many > len(names) else "")
    return Row(
        label=f"{first}\u2013{last}" if many > 1 else f"{first}",
        detail=f"{many} nodes, number {first} to {last} of the fullest: {told}",
        nodes=many,
        before=_means(usage.before[indices]),
        after=_means(usage.after[indices]),
        leaving=int(usage.leaving[indices].sum()),
        arriving=int(usage.arriving[indices].sum()),
    )


def _means(shares: FloatArray) -> tuple[float | None, ...]:
    have = ~np.isnan(shares)
    numbers = have.sum(axis=0)
    sums = np.where(have, shares, 0.0).sum(axis=0)
    return tuple(
        round(total / count, 6) if count else None for total, count in zip(sums.tolist(), numbers.tolist(), strict=True)
    )


def _percent(value: float) -> float | None:
    return None if isnan(value) else value


def histogram(shares: FloatArray) -> tuple[int, ...]:
    """How many nodes are at 0 to 10 percent, at 10 to 20, …, and above 100; exactly 100 counts as below.

    Args:
        shares: float64, shape (nodes,); NaN for nodes that do not have the resource, which count nowhere.
    """
    have = shares[~np.isnan(shares)]
    bins = np.minimum(have // 10, BINS - 1).astype(np.int64)
    bins[have == 100.0] = BINS - 2
    return tuple(np.bincount(bins, minlength=BINS).tolist())
