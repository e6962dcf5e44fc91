"""Estimates scale-up options for pods whose placement depends on other pods or nodes.

These are pods with pod affinity, anti-affinity, zonal topology spread or volumes, for which counting resources is not
enough. Template nodes are added to the snapshot one after another. The scheduler's filters place one pod at a time, and
each placed pod is added to the snapshot.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from trimtab.autoscaling.scale_up.limits import Headroom
from trimtab.autoscaling.scale_up.options import ScaleUpCandidate, ScaleUpOption
from trimtab.autoscaling.scale_up.pod_classes import PodClass, UnplacedPods
from trimtab.autoscaling.scale_up.upcoming_nodes import add_template_node
from trimtab.cluster.resources import CPU, MEMORY, IntArray
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer
from trimtab.placement.plan_budget import UNLIMITED, PlanBudget

Nodes = list[tuple[str, list[Pod]]]

FilledNodes = tuple[tuple[tuple[int, Pod], ...], ...]
"""The pods of each new node, as pairs of class number and pod."""


class CoscheduledOption(ScaleUpOption, frozen=True, eq=False):
    """A scale-up option that lists the pods for each of its nodes, as pairs of class number and pod."""

    filled: FilledNodes = ()


class CoschedulingEstimator:
    """Places pods on planned nodes, and estimates the scale-up options of groups for the remaining pods.

    Args:
        placer: places pods on the snapshot with all planned nodes. The placements remain in that snapshot.
        headroom: what remains of the limits.
        candidates: groups that can be scaled up.
        fits: for each class number, the ids of the groups whose empty nodes fit the class.
        opened: the number of nodes planned so far.
        budget: the plan's time budget.
    """

    def __init__(
        self,
        placer: Placer,
        headroom: Headroom,
        candidates: Sequence[ScaleUpCandidate],
        fits: Mapping[int, frozenset[str]],
        *,
        opened: int,
        budget: PlanBudget = UNLIMITED,
    ) -> None:
        self._budget = budget
        self._placer = placer
        self._snapshot = placer.snapshot
        self._headroom = headroom
        self._candidates = candidates
        self._fits = fits
        self._opened = opened

    def join(
        self, waiting: UnplacedPods, names: Sequence[str], *, countable: bool | None = False
    ) -> list[tuple[int, Pod]]:
        """Place unplaced pods on planned nodes. Each pod is placed on the first node that fits.

        Args:
            waiting: the unplaced pods. Placed pods are removed from it.
            names: names of the planned nodes.
            countable: whether to place only countable classes or only the others; ``None`` for both.

        Returns:
            Pairs of the index of a node in ``names`` and a pod placed on it.
        """
        found = []
        place_of = {self._snapshot.nodes.slot_of[name]: place for place, name in enumerate(names)}
        slots = np.array(list(place_of), dtype=np.int64)
        for each in waiting.classes(countable=countable) if len(slots) else ():
            placed: list[Pod] = []
            if not self._have_room(slots, self._snapshot.row(each.first.spec)):
                continue  # common once nodes are full; saves running the filters
            for pod in waiting.pods(each.number):
                if self._budget.exceeded(pod.namespace):
                    break
                with self._budget.charged(pod.namespace):
                    fitting = self._placer.feasible_among(pod, slots)
                    if not len(fitting):
                        break
                    self._placer.reserve(pod, int(fitting[0]))
                placed.append(pod)
                found.append((place_of[int(fitting[0])], pod))
            waiting.remove(each.number, placed)
        return found

    def _have_room(self, slots: npt.NDArray[np.int64], row: IntArray) -> bool:
        nodes = self._snapshot.nodes
        free = nodes.allocatable[slots] - nodes.requested[slots]
        return bool((free >= row).all(axis=1).any())

    def options(self, waiting: UnplacedPods) -> list[CoscheduledOption]:
        """Return one option for each candidate group whose nodes fit at least one unplaced pod."""
        classes = waiting.classes(countable=False)
        simulated: dict[Hashable, FilledNodes] = {}
        found = []
        for candidate in self._candidates:
            classes_that_fit = [each for each in classes if candidate.group.id in self._fits[each.number]]
            max_nodes = self._headroom.allowed(candidate.group, candidate.template.node)
            if not classes_that_fit or not max_nodes:
                continue
            key = (candidate.template.equivalence, max_nodes, tuple(each.number for each in classes_that_fit))
            filled = simulated.get(key)
            if filled is None:  # groups of the same zone and instance type often have equal templates
                in_order = _in_order(classes_that_fit, candidate, self._snapshot.row)
                filled = simulated[key] = self._simulate(candidate, in_order, waiting, max_nodes)
            if filled:
                rows = [self._snapshot.row(pod.spec) for node in filled for _, pod in node]
                option = CoscheduledOption(
                    candidate, len(filled), len(rows), np.sum(rows, axis=0), (candidate,), filled
                )
                found.append(option)
        return found

    def commit(self, option: CoscheduledOption, waiting: UnplacedPods) -> Iterator[tuple[str, tuple[Pod, ...]]]:
        """Add the nodes of an option to the snapshot, and yield the name and the pods of each node."""
        for node in option.filled:
            name = self._add(option.candidate)
            for number, pod in node:
                self._placer.reserve(pod, self._snapshot.nodes.slot_of[name])
                waiting.remove(number, (pod,))
            yield name, tuple(pod for _, pod in node)

    def _simulate(
        self, candidate: ScaleUpCandidate, classes: Sequence[PodClass], waiting: UnplacedPods, max_nodes: int
    ) -> FilledNodes:
        """Place pods first-fit on new nodes of a group.

        A node is opened if a pod fits on none of the open nodes, but fits on an empty one.
        """
        opened = self._opened
        filled: dict[int, list[tuple[int, Pod]]] = {}
        with self._snapshot.fork():
            for each in classes:
                for pod in waiting.pods(each.number):
                    if self._budget.exceeded(pod.namespace):
                        break
                    with self._budget.charged(pod.namespace):
                        slot = self._first_fitting_slot(pod, filled)
                        if slot is None and len(filled) < max_nodes:
                            slot = self._open(candidate, pod)
                        if slot is None:
                            break
                        self._placer.reserve(pod, slot)
                    filled.setdefault(slot, []).append((each.number, pod))
        self._opened = opened
        return tuple(tuple(node) for node in filled.values())

    def _first_fitting_slot(self, pod: Pod, filled: Mapping[int, object]) -> int | None:
        fitting = self._placer.feasible_among(pod, np.array(list(filled), dtype=np.int64))
        return int(fitting[0]) if len(fitting) else None

    def _open(self, candidate: ScaleUpCandidate, pod: Pod) -> int | None:
        """Add a new node for the candidate if the pod fits on it.

        Returns:
            Slot of the new node, or ``None`` if the pod does not fit.
        """
        mark = self._snapshot.mark()
        slot = self._snapshot.nodes.slot_of[self._add(candidate)]
        if len(self._placer.feasible_among(pod, np.array([slot], dtype=np.int64))):
            self._snapshot.commit(mark)
            return slot
        self._snapshot.undo(mark)
        return None

    def _add(self, candidate: ScaleUpCandidate) -> str:
        self._opened += 1
        name = f"new-{self._opened:06}-of-{candidate.group.id}"
        add_template_node(self._snapshot, candidate.template, name)
        return name


def _in_order(classes: Sequence[PodClass], candidate: ScaleUpCandidate, row: object) -> list[PodClass]:
    """Return the classes by descending priority, then by the share of a node that one pod requests, largest first."""

    def rank(each: PodClass) -> tuple[int, float, int]:
        requested: IntArray = row(each.first.spec)  # type: ignore[operator]
        share = sum(float(requested[column]) / max(1, int(candidate.free[column])) for column in (CPU, MEMORY))
        return -each.first.priority, -share, each.number

    return sorted(classes, key=rank)
