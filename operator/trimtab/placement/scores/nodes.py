"""Score plugins that depend only on the node: taints, labels and allocated resources."""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from trimtab.cluster.resources import CPU, FIXED, MEMORY, BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod, PreferredNodeTerm, Taint, Toleration
from trimtab.kube.rules.taints import PREFER_NO_SCHEDULE, tolerates
from trimtab.placement.interface import MAX_SCORE, NO_KEYS, normalized
from trimtab.placement.node_masks import term_mask
from trimtab.placement.slot_cache import Points, SlotCache, Slots

_MAX_KEPT: Final = 256
"""Maximum number of cached entries: at most 32 MiB for 8,192 slots."""


class _Entry:
    """The cached raw scores of one key (``None`` if all are 0), and the scores scaled with the most recent maximum."""

    __slots__ = ("largest", "points", "scaled")

    def __init__(self, points: IntArray | None) -> None:
        self.points = points
        self.largest = 0
        self.scaled: IntArray | int = 0


class StaticScore:
    """Base class of scores that depend only on the node.

    They are computed once per :meth:`key` and cached until a node changes.

    Raw scores are scaled to 0 to ``best`` by the maximum among the candidates. The scaled scores are cached as well,
    because the maximum rarely changes between two decisions.

    Args:
        snapshot: the cluster.
        best: the highest score.
    """

    reverse: ClassVar[bool] = False
    """Whether nodes with higher raw scores are worse."""

    def __init__(self, snapshot: Snapshot, *, best: int = MAX_SCORE) -> None:
        self.snapshot = snapshot
        self._best = best
        self._kept: dict[Hashable, _Entry] = {}
        self._version = -1
        snapshot.nodes.caches.add(self)

    def forget_removed(self, used: Set[int]) -> None:
        """See :class:`~trimtab.cluster.node_table.SpecCache`."""
        self._kept.clear()

    def key(self, pod: Pod) -> Hashable | None:
        raise NotImplementedError

    def points(self, pod: Pod) -> IntArray:
        raise NotImplementedError

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        flat = self._best if self.reverse else 0
        key = self.key(pod)
        if key is None:
            return flat
        entry = self._entry(key, pod)
        if entry.points is None:
            return flat
        largest = int(np.where(among, entry.points, 0).max())
        if largest == 0:
            return flat
        if entry.largest != largest:
            entry.largest = largest
            entry.scaled = normalized(entry.points, among, reverse=self.reverse, best=self._best)
        return entry.scaled

    def coupled_by(self, pod: Pod) -> frozenset[str]:
        return NO_KEYS

    def _entry(self, key: Hashable, pod: Pod) -> _Entry:
        version = self.snapshot.nodes.version
        if self._version != version or len(self._kept) >= _MAX_KEPT:
            self._kept.clear()
            self._version = version
        found = self._kept.get(key)
        if found is None:
            points = self.points(pod)
            found = self._kept[key] = _Entry(points if np.any(points) else None)
        return found


class TaintToleration(StaticScore):
    """Prefers nodes with fewer untolerated PreferNoSchedule taints. None scores 100, the most among the candidates 0.

    Two taints with the same key and different values are both counted. Source: kube-scheduler v1.36
    ``tainttoleration``.
    """

    name: ClassVar = "TaintToleration"
    weight: ClassVar = 3
    reverse: ClassVar = True

    def key(self, pod: Pod) -> Hashable | None:
        return _soft(pod.spec.tolerations)

    def points(self, pod: Pod) -> IntArray:
        tolerations = _soft(pod.spec.tolerations)
        nodes = self.snapshot.nodes
        counts = [sum(_minds(taint, tolerations) for taint in taints) for taints in nodes.taint_sets]
        found: IntArray = np.array(counts, dtype=np.int64)[nodes.taints]
        return found


def _soft(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    return tuple(each for each in tolerations if each.effect in ("", PREFER_NO_SCHEDULE))


def _minds(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return taint.effect == PREFER_NO_SCHEDULE and not any(tolerates(each, taint) for each in tolerations)


class NodeAffinity(StaticScore):
    """Sums the weights of the preferred node affinity terms that match the node.

    The highest sum among the candidates scores 100.

    If no node matches any term, all nodes score 0, as for a pod without preferences, which kube-scheduler v1.36 does
    not score. An empty term matches no node.

    kube-scheduler fails on an invalid preference that the API server permits (``Gt`` without an integer). It therefore
    schedules such a pod only if exactly one node is feasible, so that no score is needed. In trimtab the invalid term
    matches no node, and the other terms are used.

    Args:
        snapshot: the cluster.
        best: the highest score.
        added: preferred terms that every pod has in addition to its own (``addedAffinity``).
    """

    name: ClassVar = "NodeAffinity"
    weight: ClassVar = 2

    def __init__(self, snapshot: Snapshot, *, best: int = MAX_SCORE, added: tuple[PreferredNodeTerm, ...] = ()) -> None:
        super().__init__(snapshot, best=best)
        self._added = added

    def key(self, pod: Pod) -> Hashable | None:
        preferred = pod.spec.affinity.node.preferred
        return preferred if preferred or self._added else None

    def points(self, pod: Pod) -> IntArray:
        found: IntArray = np.zeros(self.snapshot.nodes.capacity, dtype=np.int64)
        for preference in (*self._added, *pod.spec.affinity.node.preferred):
            found += preference.weight * term_mask(self.snapshot, preference.term)
        return found


SCORED: Final = slice(CPU, MEMORY + 1)
"""The columns of the resources that the default profile scores."""


class Allocated:
    """Base class of scores for the mean of cpu and memory requests in percent of allocatable, rounded down.

    Containers without requests count with default requests. Resources that the node lacks are ignored. The score is not
    normalized. Source: kube-scheduler v1.36 ``noderesources``.
    """

    name: ClassVar = "NodeResourcesFit"
    weight: ClassVar = 1

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._kept: SlotCache[tuple[int, int], np.int8] = SlotCache(snapshot.nodes)

    def counted(self, have: IntArray, taken: IntArray) -> IntArray:
        raise NotImplementedError

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        return self._kept.of(self._snapshot.amounts(pod.spec).scored, self._compute).astype(np.int64)

    def coupled_by(self, pod: Pod) -> frozenset[str]:
        return NO_KEYS

    def _compute(self, scored: tuple[int, int], slots: Slots) -> Points:
        nodes = self._snapshot.nodes
        have = nodes.allocatable[slots, SCORED]
        each = self.counted(have, nodes.nonzero[slots] + scored) * MAX_SCORE // np.maximum(have, 1)
        found: IntArray = each.sum(axis=1) // np.maximum((have > 0).sum(axis=1), 1)
        return found.astype(np.int8)


class LeastAllocated(Allocated):
    """Prefers nodes with more free cpu and memory after placing the pod (``leastResourceScorer``)."""

    def counted(self, have: IntArray, taken: IntArray) -> IntArray:
        left: IntArray = np.maximum(have - taken, 0)
        return left


class MostAllocated(Allocated):
    """Prefers nodes with more requested cpu and memory after placing the pod (``mostResourceScorer``)."""

    def counted(self, have: IntArray, taken: IntArray) -> IntArray:
        used: IntArray = np.minimum(taken, have)
        return used


_HALF: Final = MAX_SCORE // 2


_COUNTED_WITH_DEFAULTS: Final = ("cpu", "memory")
"""The resources for which a default amount is assumed if a container has no request."""

Asked = tuple[tuple[int, int, int], ...]
"""The column, the requested amount and the weight of each scored resource."""


def score_on_line(shape: Sequence[tuple[int, int]], percent: int) -> int:
    """Return the score of a utilization, by a piecewise linear function (``BuildBrokenLinearFunction``).

    The score is truncated toward 0, as Go's integer division does.

    Args:
        shape: the points (utilization, score) in ascending order of utilization. The score is linear between them.
        percent: the utilization, 0 to 100.
    """
    before = shape[0]
    if percent <= before[0]:
        return before[1]
    for point in shape[1:]:
        if percent <= point[0]:
            rise = (point[1] - before[1]) * (percent - before[0])
            steps = abs(rise) // (point[0] - before[0])
            return before[1] + (steps if rise >= 0 else -steps)
        before = point
    return before[1]


class BalancedAllocation:
    """Prefers nodes on which the pod improves the balance of cpu and memory: about 75 for no change, at most 100.

    Default requests are not assumed. A pod that requests neither resource is not scored. Source: kube-scheduler v1.36
    ``balancedResourceScorer``.
    """

    name: ClassVar = "NodeResourcesBalancedAllocation"
    weight: ClassVar = 1

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._kept: SlotCache[tuple[int, int], np.int8] = SlotCache(snapshot.nodes)

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        requests = pod.spec.requests
        asked = requests.get("cpu", 0), requests.get("memory", 0)
        return self._kept.of(asked, self._compute).astype(np.int64) if any(asked) else 0

    def coupled_by(self, pod: Pod) -> frozenset[str]:
        return NO_KEYS

    def _compute(self, asked: tuple[int, int], slots: Slots) -> Points:
        nodes = self._snapshot.nodes
        have = nodes.allocatable[slots, SCORED]
        taken = nodes.requested[slots, SCORED]
        found: IntArray = _HALF + (_HALF + _balance(taken + asked, have) - _balance(taken, have)) // 2
        return found.astype(np.int8)


def _balance(taken: IntArray, have: IntArray) -> IntArray:
    """Return the balance of cpu and memory: 100 minus the standard deviation of their utilizations in percent.

    For two values, the standard deviation is half of their difference. The balance is 100 if the node lacks one of
    them.

    Args:
        taken: the requested amounts: int64, shape (n, 2).
        have: the allocatable amounts: int64, shape (n, 2).
    """
    fractions: npt.NDArray[np.float64] = np.minimum(taken / np.maximum(have, 1), 1.0)
    deviation = np.where((have > 0).all(axis=1), np.abs((fractions[:, 0] - fractions[:, 1]) / 2), 0.0)
    found: IntArray = ((1 - deviation) * float(MAX_SCORE)).astype(np.int64)
    return found


class ResourceBalance:
    """Prefers nodes on which the pod improves the balance of resources (``NodeResourcesBalancedAllocationArgs``).

    The balance is 100 minus the standard deviation of the resources' utilization by requests, in percent. Resources
    that the node lacks are ignored, and so are extended resources that the pod does not request.
    :class:`BalancedAllocation` is the faster special case for cpu and memory.

    Args:
        snapshot: the cluster.
        resources: the names of the resources.
    """

    name: ClassVar = "NodeResourcesBalancedAllocation"
    weight: ClassVar = 1

    def __init__(self, snapshot: Snapshot, *, resources: tuple[str, ...]) -> None:
        self._snapshot = snapshot
        self._resources = resources
        self._kept: SlotCache[tuple[tuple[int, int], ...], np.int8] = SlotCache(snapshot.nodes)

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        requests, columns = pod.spec.requests, self._snapshot.nodes.axis.column
        if not any(requests.get(name, 0) for name in self._resources):
            return 0
        asked = tuple(
            (column, requests.get(name, 0))
            for name in self._resources
            if (column := columns.get(name)) is not None and (column < FIXED or requests.get(name, 0))
        )
        return self._kept.of(asked, self._compute).astype(np.int64)

    def coupled_by(self, pod: Pod) -> frozenset[str]:
        return NO_KEYS

    def _compute(self, asked: tuple[tuple[int, int], ...], slots: Slots) -> Points:
        nodes = self._snapshot.nodes
        columns = [column for column, _ in asked]
        have = nodes.allocatable[slots][:, columns]
        taken = nodes.requested[slots][:, columns]
        amounts: IntArray = np.array([amount for _, amount in asked], dtype=np.int64)
        found: IntArray = _HALF + (_HALF + _balance_of(taken + amounts, have) - _balance_of(taken, have)) // 2
        return found.astype(np.int8)


def _balance_of(taken: IntArray, have: IntArray) -> IntArray:
    """Return the balance of any number of resources (see :func:`_balance`).

    The resources are added in the same order as in Go, because other orders may round differently.

    Args:
        taken: the requested amounts: int64, shape (n, resources).
        have: the allocatable amounts: int64, shape (n, resources).
    """
    counts = (have > 0).sum(axis=1)
    number = np.maximum(counts, 1)
    fractions: npt.NDArray[np.float64] = np.where(have > 0, np.minimum(taken / np.maximum(have, 1), 1.0), 0.0)
    mean = np.zeros(len(have), dtype=np.float64)
    for column in range(have.shape[1]):
        mean += fractions[:, column]
    mean /= number
    squares = np.zeros(len(have), dtype=np.float64)
    for column in range(have.shape[1]):
        squares += np.where(have[:, column] > 0, (fractions[:, column] - mean) ** 2, 0.0)
    deviation = np.sqrt(squares / number)
    if have.shape[1] > 1:  # of two fractions, kube-scheduler takes half of the difference, which rounds otherwise
        low = np.where(have > 0, fractions, 2.0).min(axis=1)
        deviation = np.where(counts == 2, np.abs((fractions.max(axis=1) - low) / 2), deviation)
    found: IntArray = ((1 - np.where(counts > 1, deviation, 0.0)) * float(MAX_SCORE)).astype(np.int64)
    return found


class ResourceAllocation:
    """Scores nodes with a scoring strategy for weighted resources, as NodeResourcesFit does (``NodeResourcesFitArgs``).

    The score of a node is the weighted mean of the scores of its resources. Resources that the node lacks are ignored,
    and so are extended resources that the pod does not request. Source: kube-scheduler v1.36 ``noderesources``
    ``resource_allocation.go``, ``least_allocated.go``, ``most_allocated.go`` and ``requested_to_capacity_ratio.go``.

    Args:
        snapshot: the cluster.
        resources: the name and weight of each resource.
        strategy: LeastAllocated, MostAllocated or RequestedToCapacityRatio.
        shape: for RequestedToCapacityRatio only: the points (utilization 0 to 100, score 0 to 100) in ascending order
            of utilization.
    """

    name: ClassVar = "NodeResourcesFit"
    weight: ClassVar = 1

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        resources: tuple[tuple[str, int], ...],
        strategy: str,
        shape: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self._snapshot = snapshot
        self._resources = resources
        self._strategy = strategy
        self._line: IntArray = np.array([score_on_line(shape, percent) for percent in range(101)] if shape else [])
        self._kept: SlotCache[Asked, np.int8] = SlotCache(snapshot.nodes)

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        axis = self._snapshot.nodes.axis
        scored = self._snapshot.amounts(pod.spec).scored
        asked = []
        for name, weight in self._resources:
            if name in _COUNTED_WITH_DEFAULTS:
                column = _COUNTED_WITH_DEFAULTS.index(name)
                asked.append((column, scored[column], weight))
                continue
            found, amount = axis.column.get(name), pod.spec.requests.get(name, 0)
            if found is not None and (amount or found < FIXED):
                asked.append((found + len(_COUNTED_WITH_DEFAULTS), amount, weight))
        return self._kept.of(tuple(asked), self._compute).astype(np.int64) if asked else 0

    def coupled_by(self, pod: Pod) -> frozenset[str]:
        return NO_KEYS

    def _compute(self, asked: Asked, slots: Slots) -> Points:
        nodes = self._snapshot.nodes
        total: IntArray | None = None
        weights: IntArray | int = 0
        for column, amount, weight in asked:
            if column < len(_COUNTED_WITH_DEFAULTS):
                have, taken = nodes.allocatable[slots, CPU + column], nodes.nonzero[slots, column] + amount
            else:
                column -= len(_COUNTED_WITH_DEFAULTS)
                have, taken = nodes.allocatable[slots, column], nodes.requested[slots, column] + amount
            points = self._points(have, taken)
            counts: BoolArray = (have > 0) & (points > 0) if len(self._line) else have > 0
            added = np.where(counts, points * weight, 0)
            total = added if total is None else total + added
            weights = weights + np.where(counts, weight, 0)
        assert total is not None
        divisor = np.maximum(weights, 1)
        found: IntArray = (2 * total + divisor) // (2 * divisor) if len(self._line) else total // divisor
        return found.astype(np.int8)

    def _points(self, have: IntArray, taken: IntArray) -> IntArray:
        if self._strategy == "LeastAllocated":
            left: IntArray = np.maximum(have - taken, 0) * MAX_SCORE // np.maximum(have, 1)
            return left
        if self._strategy == "MostAllocated":
            used: IntArray = np.minimum(taken, have) * MAX_SCORE // np.maximum(have, 1)
            return used
        percent = np.where(taken > have, MAX_SCORE, taken * MAX_SCORE // np.maximum(have, 1))
        found: IntArray = self._line[np.minimum(percent, MAX_SCORE)]
        return found
