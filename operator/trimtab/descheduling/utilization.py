"""How full nodes are by what their pods request, against a policy's thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import fsum
from typing import Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from trimtab.api.strategies import UtilizationThresholds
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot

FloatArray = npt.NDArray[np.float64]


class Axis(Protocol):
    """Which resource stands in which column."""

    @property
    def column(self) -> Mapping[str, int]:
        """By the resource's name."""
        ...


class Table(Protocol):
    """What is read here of a :class:`~trimtab.cluster.nodes.NodeTable`, so that others can stand in for it."""

    @property
    def axis(self) -> Axis:
        """The columns."""
        ...

    @property
    def capacity(self) -> int:
        """How many slots there are."""
        ...

    @property
    def used(self) -> BoolArray:
        """Which of them hold a node: bool, shape (capacity,)."""
        ...

    @property
    def allocatable(self) -> IntArray:
        """What nodes have: int64, shape (capacity, columns)."""
        ...

    @property
    def requested(self) -> IntArray:
        """What weighs on them, of the same shape."""
        ...


class Level(Struct, frozen=True):
    """One resource's marks in percent of allocatable.

    Attributes:
        resource: its name.
        column: where it stands in the node table.
        threshold: a node is underutilized only at or below it; ``None`` where the policy names no such resource.
        target: a node is overutilized above it; 100 where the policy does not name the resource there.
    """

    resource: str
    column: int
    threshold: float | None
    target: float


class Excess(Struct, frozen=True):
    """How far a node is above a target.

    Attributes:
        level: the target.
        share: used, in percent of allocatable.
        amount: requested beyond the target, in the resource's unit, rounded up; at least 1.
    """

    level: Level
    share: float
    amount: int

    def __str__(self) -> str:
        share = percent(self.share, self.level.target)
        return f"{self.level.resource} {share}% is above its target {percent(self.level.target)}%"


def levels_of(
    thresholds: UtilizationThresholds,
    nodes: Table,
    among: BoolArray | None = None,
    requested: IntArray | None = None,
) -> tuple[Level, ...]:
    """The marks of every resource that is named, by name; resources that no node and no pod knows are left out.

    Args:
        thresholds: as the policy gives them.
        nodes: the node table.
        among: bool, shape (nodes.capacity,); the nodes whose mean deviations are counted from; all without it.
        requested: int64, shape (nodes.capacity, axis.width), instead of the table's.
    """
    targets = thresholds.target_thresholds or {}
    names = sorted({*thresholds.thresholds, *targets})
    levels = tuple(
        Level(
            resource=name,
            column=nodes.axis.column[name],
            threshold=thresholds.thresholds.get(name),
            target=targets.get(name, 100.0),
        )
        for name in names
        if name in nodes.axis.column
    )
    if not thresholds.use_deviation_thresholds:
        return levels
    which = nodes.used if among is None else among
    return tuple(
        _around(level, mean(nodes, level, which, requested), named=level.resource in targets) for level in levels
    )


def _around(level: Level, middle: float, *, named: bool) -> Level:
    """Deviations as marks; a resource that has no target is too much only beyond all of it, as it always is."""
    return Level(
        resource=level.resource,
        column=level.column,
        threshold=None if level.threshold is None else max(0.0, middle - level.threshold),
        target=min(100.0, middle + level.target) if named else 100.0,
    )


def mean(nodes: Table, level: Level, among: BoolArray, requested: IntArray | None = None) -> float:
    """The mean percentage requested of a resource, over those nodes that have it; 0 where none has.

    Every node counts the same, whatever its size, as it always has. Summed exactly, so that the order in which nodes
    arrived leaves no trace in the last digit.
    """
    have = among & nodes.used & (nodes.allocatable[:, level.column] > 0)
    shares = share(nodes, level, requested)[have].tolist()
    return fsum(shares) / len(shares) if shares else 0.0


def on_their_way_out(snapshot: Snapshot) -> dict[int, IntArray]:
    """What terminating pods request, by slot: int64, shape (axis.width,)."""
    found: dict[int, IntArray] = {}
    for pod in snapshot.pods.values():
        if pod.deleted is not None and not pod.terminal:
            slot = snapshot.slot(pod)
            if slot is not None:
                row = snapshot.row(pod.spec)
                found[slot] = found[slot] + row if slot in found else row
    return found


def underutilized(nodes: Table, levels: Sequence[Level], requested: IntArray | None = None) -> BoolArray:
    """Which slots are at or below every threshold: bool, shape (nodes.capacity,).

    Equality counts: the strategy's documentation says "below", but its code has always taken a node at 20% of a
    threshold of 20 for underutilized (sigs.k8s.io/descheduler v0.6 to v0.36), and users' thresholds rely on it. What
    a node does not have is not used: 0 percent.

    Args:
        nodes: the node table.
        levels: the thresholds.
        requested: int64, shape (nodes.capacity, axis.width), instead of the table's.
    """
    below: BoolArray = nodes.used.copy()
    for level in levels:
        if level.threshold is not None:
            below &= share(nodes, level, requested) <= level.threshold
    return below


def above(nodes: Table, levels: Sequence[Level], requested: IntArray | None = None) -> FloatArray:
    """By how many percent points slots are above targets, summed over resources: float64, shape (nodes.capacity,).

    Percent and not amounts: a sum of bytes and millicores would order nodes by their memory alone.

    Args:
        nodes: the node table.
        levels: the targets.
        requested: int64, shape (nodes.capacity, axis.width), instead of the table's.
    """
    total: FloatArray = np.zeros(nodes.capacity, dtype=np.float64)
    for level in levels:
        total += np.maximum(share(nodes, level, requested) - level.target, 0.0)
    return total


def share(nodes: Table, level: Level, requested: IntArray | None = None) -> FloatArray:
    """Requested in percent of allocatable: float64, shape (nodes.capacity,); 0 where a node lacks the resource."""
    have = nodes.allocatable[:, level.column]
    want = (nodes.requested if requested is None else requested)[:, level.column]
    shares: FloatArray = np.zeros(nodes.capacity, dtype=np.float64)
    np.divide(100.0 * want, have, out=shares, where=have > 0)
    return shares


def room_below_target(allocatable: IntArray, target: float) -> IntArray:
    """The most that may be requested without being above the target: int64."""
    return np.asarray(np.floor(allocatable * target / 100.0), dtype=np.int64)


def excesses(
    allocatable: IntArray | Sequence[int], requested: IntArray | Sequence[int], levels: Sequence[Level]
) -> list[Excess]:
    """Where a node is above its targets, the farthest first, then by resource name.

    Args:
        allocatable: the node's row of the table.
        requested: likewise.
        levels: the targets.
    """
    found = []
    for level in levels:
        have, want = int(allocatable[level.column]), int(requested[level.column])
        if have > 0 and 100.0 * want > level.target * have:
            amount = want - int(level.target * have // 100.0)
            found.append(Excess(level, 100.0 * want / have, amount))
    if len(found) > 1:
        found.sort(key=lambda excess: (excess.level.target - excess.share, excess.level.resource))
    return found


@lru_cache(maxsize=4096)
def percent(value: float, other: float | None = None) -> str:
    """A percentage with as few digits as it takes to tell it from ``other``: ``92``, ``50.4``, ``50.001``."""
    for digits in (0, 1, 3, 6):
        text = f"{value:.{digits}f}"
        if other is None and float(text) == value:
            break
        if other is not None and float(text) != other:
            break
    return text.rstrip("0").rstrip(".") if "." in text else text
