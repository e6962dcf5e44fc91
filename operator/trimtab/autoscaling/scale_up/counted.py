"""Options for classes that can be counted, and what is done with the one that is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trimtab.autoscaling.scale_up.balancing import Finder
from trimtab.autoscaling.scale_up.classes import Clashes, PodClass
from trimtab.autoscaling.scale_up.limits import Headroom
from trimtab.autoscaling.scale_up.option import Candidate, Option
from trimtab.autoscaling.scale_up.packing import Ask, Packing, pack
from trimtab.autoscaling.scale_up.waiting import Waiting
from trimtab.cluster.resources import IntArray
from trimtab.kube.objects import Pod


class CountedOption(Option, frozen=True, eq=False):
    """An option with its packing."""

    packing: Packing = Packing()


class Counting:
    """Makes options out of counts; groups with equal nodes and equal pods are packed once.

    Args:
        fits: the groups' ids whose nodes take a pod of a class, by the class' number.
        rows: what a pod of a class takes, by the class' number.
        clashes: which classes must not share a node.
        finder: of groups that share new nodes.
    """

    def __init__(
        self,
        fits: Mapping[int, frozenset[str]],
        rows: Mapping[int, IntArray],
        clashes: Clashes,
        finder: Finder,
    ) -> None:
        suiting: dict[str, list[int]] = {}
        for number in sorted(fits):
            for id_ in fits[number]:
                suiting.setdefault(id_, []).append(number)
        self._suiting = {id_: tuple(numbers) for id_, numbers in suiting.items()}
        self._sets = frozenset(self._suiting.values())  # of hundreds of groups few differ in whom they take
        self._rows = rows
        self._clashes = clashes
        self._finder = finder

    def options(self, candidates: Sequence[Candidate], waiting: Waiting, headroom: Headroom) -> list[CountedOption]:
        """What each group could do for the pods that are left; groups that can do nothing are left out."""
        classes = {each.number: each for each in waiting.classes(counted=True)}
        counts = {number: waiting.count(number) for number in classes}
        left = {numbers: tuple([each for each in numbers if each in classes]) for numbers in self._sets}
        pods = {numbers: sum([counts[each] for each in numbers]) for numbers in left.values()}

        def helped(candidate: Candidate) -> tuple[int, ...]:
            return left.get(self._suiting.get(candidate.group.id, ()), ())

        known: dict[tuple[bytes, tuple[int, ...], int], tuple[Packing, IntArray]] = {}
        found = []
        for candidate in candidates:
            taken = helped(candidate)
            if not taken:
                continue
            alike = self._finder.similar(candidate, helped)
            room = sum([headroom.room(each.group) for each in alike])
            most = min(room, headroom.in_cluster(candidate.template.node), pods[taken])
            if not most:
                continue
            key = (candidate.free.tobytes(), taken, most)
            packed = known.get(key)
            if packed is None:
                asks = [self._ask(classes[each], counts[each]) for each in taken]
                packing = pack(asks, candidate.free, most=most, clashes=self._clashes)
                packed = known[key] = packing, self._amounts(packing, candidate)
            packing, amounts = packed
            if packing.nodes:
                found.append(CountedOption(candidate, packing.nodes, packing.pods, amounts, alike, packing))
        return found

    def _ask(self, each: PodClass, count: int) -> Ask:
        return Ask(each.number, count, self._rows[each.number], each.first.priority, each.most)

    def _amounts(self, packing: Packing, candidate: Candidate) -> IntArray:
        """What the pods of a packing request in all."""
        taken = np.zeros_like(candidate.free)
        for number, count in packing.placed.items():
            taken += count * self._rows[number]
        return taken


def filled(packing: Packing, waiting: Waiting) -> list[tuple[Pod, ...]]:
    """The pods of each node of a packing, taken from those that wait."""
    return [
        tuple(pod for number, count in content.pods.items() for pod in waiting.take(number, count))
        for content in packing.contents
        for _ in range(content.nodes)
    ]
