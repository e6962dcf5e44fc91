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
        self._fits = fits
        self._rows = rows
        self._clashes = clashes
        self._finder = finder

    def options(self, candidates: Sequence[Candidate], waiting: Waiting, headroom: Headroom) -> list[CountedOption]:
        """What each group could do for the pods that are left; groups that can do nothing are left out."""
        classes = waiting.classes(counted=True)
        helped: dict[str, list[int]] = {}
        for each in classes:
            for id_ in self._fits[each.number]:
                helped.setdefault(id_, []).append(each.number)
        known: dict[tuple[bytes, tuple[int, ...], int], Packing] = {}
        found = []
        for candidate in candidates:
            taken = [each for each in classes if candidate.group.id in self._fits[each.number]]
            if not taken:
                continue
            alike = self._finder.similar(candidate, lambda each: helped.get(each.group.id))
            room = sum(headroom.room(each.group) for each in alike)
            most = min(room, headroom.in_cluster(candidate.template.node))
            most = min(most, sum(waiting.count(each.number) for each in taken))
            if not most:
                continue
            key = (candidate.free.tobytes(), tuple(each.number for each in taken), most)
            packing = known.get(key)
            if packing is None:
                asks = [self._ask(each, waiting) for each in taken]
                packing = known[key] = pack(asks, candidate.free, most=most, clashes=self._clashes)
            if packing.nodes:
                found.append(self._option(candidate, packing, alike))
        return found

    def _ask(self, each: PodClass, waiting: Waiting) -> Ask:
        return Ask(each.number, waiting.count(each.number), self._rows[each.number], each.first.priority, each.most)

    def _option(self, candidate: Candidate, packing: Packing, alike: tuple[Candidate, ...]) -> CountedOption:
        taken = np.zeros_like(candidate.free)
        for number, count in packing.placed.items():
            taken += count * self._rows[number]
        return CountedOption(candidate, packing.nodes, packing.pods, taken, alike, packing)


def filled(packing: Packing, waiting: Waiting) -> list[tuple[Pod, ...]]:
    """The pods of each node of a packing, taken from those that wait."""
    return [
        tuple(pod for number, count in content.pods.items() for pod in waiting.take(number, count))
        for content in packing.contents
        for _ in range(content.nodes)
    ]
