"""Packs pods by counting: computes how many new nodes of a group the pods of all classes need.

The algorithm is first-fit-decreasing, as in cluster-autoscaler's estimator, but it works on counts. Nodes with
identical contents are one entry with a count, and the pods of a class are placed on all of them at once. So the cost
depends on the number of classes and of entries, not on the number of pods and nodes. The result is the same as if the
pods were placed one by one. Several orders of classes are tried and the best result is used, so it is never worse than
cluster-autoscaler's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from trimtab.autoscaling.scale_up.balancing import SimilarGroupFinder
from trimtab.autoscaling.scale_up.coscheduling import CoscheduledOption
from trimtab.autoscaling.scale_up.limits import Headroom
from trimtab.autoscaling.scale_up.options import ScaleUpCandidate, ScaleUpOption
from trimtab.autoscaling.scale_up.pod_classes import ClassConflicts, PodClass, UnplacedPods
from trimtab.cluster.resources import CPU, MEMORY, IntArray
from trimtab.kube.objects import Pod

_UNLIMITED: Final = np.iinfo(np.int64).max

Shares = npt.NDArray[np.float64]

_SIZE_MEASURES: Final[tuple[Callable[[Shares], float], ...]] = (
    lambda share: float(share[CPU] + share[MEMORY]),
    lambda share: float(share.sum()),
    lambda share: float(share.max(initial=0.0)),
)
"""Functions that compute the size of a pod from its shares of a node's resources.

These are cpu plus memory as in upstream, the sum of all resources, and the largest share.
"""


class PodDemand(Struct, frozen=True, eq=False):
    """The pods of one class that need nodes.

    Attributes:
        number: the class number.
        count: number of pods to place.
        row: int64, shape (resources,): the requests of one pod, with 1 in the column ``pods``.
        priority: priority of the pods.
        max_per_node: the maximum number of these pods on one node; 0 for no maximum.
    """

    number: int
    count: int
    row: IntArray
    priority: int = 0
    max_per_node: int = 0


class NodeContent(Struct, frozen=True):
    """New nodes with identical contents: the number of pods on each node by class number, and the number of nodes."""

    pods: Mapping[int, int]
    nodes: int


class Packing(Struct, frozen=True):
    """New nodes of one group with the pods on them, in the order in which the nodes were opened.

    Attributes:
        contents: the contents of the nodes. Nodes with identical contents are one entry.
        nodes: the number of nodes.
        placed: number of placed pods by class number.
    """

    contents: tuple[NodeContent, ...] = ()
    nodes: int = 0
    placed: Mapping[int, int] = {}

    @property
    def pods(self) -> int:
        """Return the total number of placed pods."""
        return sum(self.placed.values())


def pack(demands: Sequence[PodDemand], free: IntArray, *, max_nodes: int, conflicts: ClassConflicts) -> Packing:
    """Pack pods onto new nodes.

    Args:
        demands: the classes that fit on an empty new node; their order does not matter.
        free: int64, shape (resources,): free capacity of a new node after its DaemonSet and static pods.
        max_nodes: the maximum number of nodes.
        conflicts: classes that must not share a node.

    Returns:
        The packing with the most pods; among packings with equally many pods, the one with the fewest nodes. If
        ``max_nodes`` does not suffice for all pods, pods of higher priority are packed first.
    """
    wanted = sum(demand.count for demand in demands)
    made = [_pack(order, free, max_nodes, conflicts) for order in _orders(demands, free)]
    best = max(made, key=lambda packing: (packing.pods, -packing.nodes), default=Packing())
    if best.pods == wanted or best.nodes < max_nodes or len({demand.priority for demand in demands}) < 2:
        return best
    first = _orders(demands, free)[0]
    return _pack(sorted(first, key=lambda demand: -demand.priority), free, max_nodes, conflicts)


def _orders(demands: Sequence[PodDemand], free: IntArray) -> list[list[PodDemand]]:
    """Return the classes in descending order of size, one order for each measure of size."""
    room = np.maximum(free, 1).astype(np.float64)
    shares = [(demand, demand.row / room) for demand in sorted(demands, key=lambda demand: demand.number)]
    found = []
    for measure in _SIZE_MEASURES:
        order = [demand for demand, share in sorted(shares, key=lambda each: -measure(each[1]))]
        if order not in found:
            found.append(order)
    return found


def _pack(order: Collection[PodDemand], free: IntArray, max_nodes: int, conflicts: ClassConflicts) -> Packing:
    opened = _OpenedNodes(free, max_nodes, conflicts)
    for demand in order:
        left = opened.fill(demand)
        if left:
            opened.open(demand, left)
    return opened.packing()


class _OpenedNodes:
    """The nodes opened so far. Nodes with identical contents are one entry."""

    def __init__(self, free: IntArray, max_nodes: int, conflicts: ClassConflicts) -> None:
        self._new = free
        self._left = max_nodes
        self._conflicts = conflicts
        self._free: IntArray = np.zeros((16, len(free)), dtype=np.int64)
        self._pods: list[dict[int, int]] = []
        self._nodes: list[int] = []

    def fill(self, demand: PodDemand) -> int:
        """Place pods on the open nodes, oldest first, and return the number of pods that did not fit."""
        left, entries = demand.count, len(self._pods)
        if not entries:
            return left
        fits = _times(self._free[:entries], demand.row)
        for place in np.flatnonzero(fits).tolist():
            fit = self._limited(demand, int(fits[place]), self._pods[place])
            if fit:
                left -= self._put(place, demand, left, fit)
            if not left:
                break
        return left

    def open(self, demand: PodDemand, left: int) -> None:
        """Open as many nodes as the remaining ``left`` pods need, up to the maximum number of nodes."""
        if not self._left:
            return
        fit = self._limited(demand, int(_times(self._new[None, :], demand.row)[0]), {})
        if not fit:
            return
        nodes = min(-(-left // fit), self._left)
        self._left -= nodes
        self._append(self._new, {}, nodes)
        self._put(len(self._pods) - 1, demand, left, fit)

    def packing(self) -> Packing:
        """Return the packing of all opened nodes."""
        placed: dict[int, int] = {}
        for pods, nodes in zip(self._pods, self._nodes, strict=True):
            for number, count in pods.items():
                placed[number] = placed.get(number, 0) + count * nodes
        contents = tuple(NodeContent(pods, nodes) for pods, nodes in zip(self._pods, self._nodes, strict=True))
        return Packing(contents, sum(self._nodes), placed)

    def _limited(self, demand: PodDemand, fit: int, pods: Mapping[int, int]) -> int:
        against = self._conflicts.get(demand.number)
        if against:
            if not against.isdisjoint(pods):
                return 0
            if demand.number in against:
                fit = min(fit, 1)
        return min(fit, demand.max_per_node) if demand.max_per_node else fit

    def _put(self, place: int, demand: PodDemand, left: int, fit: int) -> int:
        """Place up to ``left`` pods on the nodes of an entry, ``fit`` per node.

        Returns:
            The number of placed pods.
        """
        nodes, pods = self._nodes[place], self._pods[place]
        if nodes == 1:  # common case: the entry need not be split
            count = min(left, fit)
            self._free[place] -= count * demand.row
            pods[demand.number] = count
            return count
        free = self._free[place].copy()
        full = min(nodes, left // fit)
        rest = left - full * fit if full < nodes else 0
        parts = [(count, size) for count, size in ((fit, full), (rest, 1)) if count and size]
        for position, (count, size) in enumerate(parts):
            content = {**pods, demand.number: count}
            if position == 0:
                self._free[place], self._pods[place], self._nodes[place] = free - count * demand.row, content, size
            else:
                self._append(free - count * demand.row, content, size)
            nodes -= size
        if nodes:
            self._append(free, pods, nodes)
        return full * fit + rest

    def _append(self, free: IntArray, pods: dict[int, int], nodes: int) -> None:
        place = len(self._pods)
        if place == len(self._free):
            self._free = np.pad(self._free, ((0, place), (0, 0)))
        self._free[place] = free
        self._pods.append(pods)
        self._nodes.append(nodes)


def _times(free: IntArray, row: IntArray) -> IntArray:
    """Return how many pods with these requests fit into each row of free capacity: int64, shape (len(free),)."""
    wanted = row > 0
    if not wanted.any():
        return np.full(len(free), _UNLIMITED, dtype=np.int64)
    found: IntArray = np.maximum((free[:, wanted] // row[wanted]).min(axis=1), 0)
    return found


class CountedOption(ScaleUpOption, frozen=True, eq=False):
    """A scale-up option that was computed by counting, with its packing."""

    packing: Packing = Packing()


class CountingEstimator:
    """Estimates scale-up options by counting resources instead of placing pods one by one.

    Groups with identical nodes and the same matching pods are packed only once.

    Args:
        fits: for each class number, the ids of the groups whose nodes fit the class.
        rows: int64, shape (resources,): the requests of one pod of a class, by class number.
        conflicts: classes that must not share a node.
        finder: finds similar groups.
    """

    def __init__(
        self,
        fits: Mapping[int, frozenset[str]],
        rows: Mapping[int, IntArray],
        conflicts: ClassConflicts,
        finder: SimilarGroupFinder,
    ) -> None:
        numbers_by_group: dict[str, list[int]] = {}
        for number in sorted(fits):
            for id_ in fits[number]:
                numbers_by_group.setdefault(id_, []).append(number)
        self._numbers_by_group = {id_: tuple(numbers) for id_, numbers in numbers_by_group.items()}
        self._number_sets = frozenset(self._numbers_by_group.values())  # most groups fit the same classes as others
        self._rows = rows
        self._conflicts = conflicts
        self._finder = finder

    def options(
        self, candidates: Sequence[ScaleUpCandidate], waiting: UnplacedPods, headroom: Headroom
    ) -> list[CountedOption]:
        """Return one option for each candidate group whose nodes fit at least one unplaced pod."""
        classes = {each.number: each for each in waiting.classes(countable=True)}
        counts = {number: waiting.count(number) for number in classes}
        left = {numbers: tuple([each for each in numbers if each in classes]) for numbers in self._number_sets}
        pods = {numbers: sum([counts[each] for each in numbers]) for numbers in left.values()}

        def helped(candidate: ScaleUpCandidate) -> tuple[int, ...]:
            return left.get(self._numbers_by_group.get(candidate.group.id, ()), ())

        known: dict[tuple[bytes, tuple[int, ...], int], tuple[Packing, IntArray]] = {}
        found = []
        for candidate in candidates:
            numbers = helped(candidate)
            if not numbers:
                continue
            similar = self._finder.similar(candidate, helped)
            room = sum([headroom.room(each.group) for each in similar])
            max_nodes = min(room, headroom.cluster_room(candidate.template.node), pods[numbers])
            if not max_nodes:
                continue
            key = (candidate.free.tobytes(), numbers, max_nodes)
            packed = known.get(key)
            if packed is None:
                demands = [self._demand(classes[each], counts[each]) for each in numbers]
                packing = pack(demands, candidate.free, max_nodes=max_nodes, conflicts=self._conflicts)
                packed = known[key] = packing, self._amounts(packing, candidate)
            packing, amounts = packed
            if packing.nodes:
                found.append(CountedOption(candidate, packing.nodes, packing.pods, amounts, similar, packing))
        return found

    def _demand(self, each: PodClass, count: int) -> PodDemand:
        return PodDemand(each.number, count, self._rows[each.number], each.first.priority, each.max_per_node)

    def _amounts(self, packing: Packing, candidate: ScaleUpCandidate) -> IntArray:
        """Return the total requests of the pods of a packing."""
        taken = np.zeros_like(candidate.free)
        for number, count in packing.placed.items():
            taken += count * self._rows[number]
        return taken


def assign_pods(packing: Packing, waiting: UnplacedPods) -> list[tuple[Pod, ...]]:
    """Choose unplaced pods for each node of a packing, remove them from ``waiting``, and return them by node."""
    return [
        tuple(pod for number, count in content.pods.items() for pod in waiting.take(number, count))
        for content in packing.contents
        for _ in range(content.nodes)
    ]


def pods_of_option(option: ScaleUpOption, waiting: UnplacedPods) -> Iterator[Pod]:
    """Yield the unplaced pods that an option would place."""
    if isinstance(option, CoscheduledOption):
        return (pod for node in option.filled for _, pod in node)
    if isinstance(option, CountedOption):
        placed = option.packing.placed.items()
        return chain.from_iterable(islice(waiting.pods(number), count) for number, count in placed)
    return iter(())
