"""Options for classes that cannot be counted: whose pods look beyond their own node.

Pod affinity, anti-affinity and spread over zones, volumes: what one pod may do depends on where others are. So template
nodes are put into the picture one after the other, and the filters place pod after pod, each reserving its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from trimtab.autoscaling.scale_up.classes import PodClass
from trimtab.autoscaling.scale_up.limits import Headroom
from trimtab.autoscaling.scale_up.option import Candidate, Option
from trimtab.autoscaling.scale_up.standing_in import add
from trimtab.autoscaling.scale_up.waiting import Waiting
from trimtab.cluster.resources import CPU, MEMORY, IntArray
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

Nodes = list[tuple[str, list[Pod]]]


class TogetherOption(Option, frozen=True, eq=False):
    """An option with what its nodes would hold, by class number and node."""

    filled: tuple[tuple[tuple[int, Pod], ...], ...] = ()


class Together:
    """Places pods on nodes that are planned, and makes options of what one group more could do.

    Args:
        placer: on the picture with all nodes that have been planned; what is done here stays in it.
        headroom: what of the limits is left.
        candidates: the groups that may grow.
        fits: the groups' ids whose nodes suit a class, however full they are, by the class' number.
        opened: how many nodes have been planned.
    """

    def __init__(
        self,
        placer: Placer,
        headroom: Headroom,
        candidates: Sequence[Candidate],
        fits: Mapping[int, frozenset[str]],
        *,
        opened: int,
    ) -> None:
        self._placer = placer
        self._snapshot = placer.snapshot
        self._headroom = headroom
        self._candidates = candidates
        self._fits = fits
        self._opened = opened

    def join(self, waiting: Waiting, names: Sequence[str]) -> list[tuple[int, Pod]]:
        """Put pods on nodes that are planned already, the first that takes each.

        Returns:
            The places of the nodes in ``names``, with the pods.
        """
        found = []
        place_of = {self._snapshot.nodes.slot_of[name]: place for place, name in enumerate(names)}
        slots = np.array(list(place_of), dtype=np.int64)
        for each in waiting.classes(counted=False) if len(slots) else ():
            gone = []
            for pod in waiting.pods(each.number):
                there = slots[self._placer.feasible(pod)[slots]]
                if not len(there):
                    break
                self._placer.reserve(pod, int(there[0]))
                gone.append(pod)
                found.append((place_of[int(there[0])], pod))
            waiting.remove(each.number, gone)
        return found

    def options(self, waiting: Waiting) -> list[TogetherOption]:
        """What each group could do for the pods that are left; groups that can do nothing are left out."""
        classes = waiting.classes(counted=False)
        found = []
        for candidate in self._candidates:
            taken = [each for each in classes if candidate.group.id in self._fits[each.number]]
            most = self._headroom.allowed(candidate.group, candidate.template.node)
            if not taken or not most:
                continue
            filled = self._simulate(candidate, _in_order(taken, candidate, self._snapshot.row), waiting, most)
            if filled:
                rows = [self._snapshot.row(pod.spec) for node in filled for _, pod in node]
                option = TogetherOption(candidate, len(filled), len(rows), np.sum(rows, axis=0), (candidate,), filled)
                found.append(option)
        return found

    def commit(self, option: TogetherOption, waiting: Waiting) -> Iterator[tuple[str, tuple[Pod, ...]]]:
        """Keep an option; gives the names of the nodes, as they are in the picture, with their pods."""
        for node in option.filled:
            name = self._add(option.candidate)
            for number, pod in node:
                self._placer.reserve(pod, self._snapshot.nodes.slot_of[name])
                waiting.remove(number, (pod,))
            yield name, tuple(pod for _, pod in node)

    def _simulate(
        self, candidate: Candidate, classes: Sequence[PodClass], waiting: Waiting, most: int
    ) -> tuple[tuple[tuple[int, Pod], ...], ...]:
        """First-fit on new nodes of a group, another one whenever no open one takes a pod that an empty one takes."""
        opened = self._opened
        filled: dict[int, list[tuple[int, Pod]]] = {}
        with self._snapshot.fork():
            for each in classes:
                for pod in waiting.pods(each.number):
                    slot = self._first(pod, filled)
                    if slot is None and len(filled) < most:
                        slot = self._open(candidate, pod)
                    if slot is None:
                        break
                    self._placer.reserve(pod, slot)
                    filled.setdefault(slot, []).append((each.number, pod))
        self._opened = opened
        return tuple(tuple(node) for node in filled.values())

    def _first(self, pod: Pod, filled: Mapping[int, object]) -> int | None:
        slots = np.array(list(filled), dtype=np.int64)
        there = slots[self._placer.feasible(pod)[slots]] if len(slots) else slots
        return int(there[0]) if len(there) else None

    def _open(self, candidate: Candidate, pod: Pod) -> int | None:
        """Add a node if it takes the pod."""
        mark = self._snapshot.mark()
        slot = self._snapshot.nodes.slot_of[self._add(candidate)]
        if self._placer.feasible(pod)[slot]:
            self._snapshot.commit(mark)
            return slot
        self._snapshot.undo(mark)
        return None

    def _add(self, candidate: Candidate) -> str:
        self._opened += 1
        name = f"new-{self._opened:06}-of-{candidate.group.id}"
        add(self._snapshot, candidate.template, name)
        return name


def _in_order(classes: Sequence[PodClass], candidate: Candidate, row: object) -> list[PodClass]:
    """The most important classes first, of equals those that take the largest share of a node."""

    def rank(each: PodClass) -> tuple[int, float, int]:
        taken: IntArray = row(each.first.spec)  # type: ignore[operator]
        share = sum(float(taken[column]) / max(1, int(candidate.free[column])) for column in (CPU, MEMORY))
        return -each.first.priority, -share, each.number

    return sorted(classes, key=rank)
