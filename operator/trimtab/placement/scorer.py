"""How well nodes suit a pod: the weighted sum of all scores, as kube-scheduler's ``prioritizeNodes`` has it."""

from __future__ import annotations

import numpy as np

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement.framework import Score


class Scorer:
    """Compares nodes on one snapshot; keep it as long as the snapshot, for its caches.

    Args:
        snapshot: the picture; changes to it are seen at once.
        scores: what counts.
    """

    def __init__(self, snapshot: Snapshot, scores: tuple[type[Score], ...]) -> None:
        self._nodes = snapshot.nodes
        self._scores: tuple[Score, ...] = tuple(kind(snapshot) for kind in scores)

    def totals(self, pod: Pod, among: BoolArray) -> IntArray:
        """The weighted sum of all scores: int64, shape (capacity,), -1 outside ``among``.

        Args:
            pod: the pod, not counted on any node.
            among: bool, shape (capacity,): the nodes that pass all filters, or those of them that are to be compared.
        """
        flat = 0
        total: IntArray | None = None
        for score in self._scores:
            found = score.scores(pod, among)
            if isinstance(found, int):
                flat += score.weight * found
            else:
                weighted = found if score.weight == 1 else found * score.weight
                total = weighted if total is None else total + weighted
        if total is None:
            return np.where(among, flat, -1)
        return np.where(among, total + flat, -1)

    def best(self, pod: Pod, among: BoolArray) -> IntArray:
        """The slots that score highest, by node name: int64; the scheduler draws one of them."""
        if not among.any():
            return np.empty(0, dtype=np.int64)
        totals = self.totals(pod, among)
        top = np.flatnonzero(totals == totals.max())
        if len(top) > 1:
            top = top[np.argsort(self._nodes.rank()[top])]
        return top

    def first(self, pod: Pod, among: BoolArray) -> int | None:
        """The first of :meth:`best`, ``None`` where there is none."""
        totals = self.totals(pod, among)
        if not len(totals):
            return None
        highest = int(totals.argmax())
        if totals[highest] < 0:
            return None
        top = np.flatnonzero(totals == totals[highest])
        return highest if len(top) == 1 else int(top[np.argmin(self._nodes.rank()[top])])

    def breakdown(self, pod: Pod, among: BoolArray) -> dict[str, IntArray]:
        """Every score's weighted points by its name, each int64, shape (capacity,); they add up to :meth:`totals`."""
        found = {}
        for score in self._scores:
            points = score.scores(pod, among)
            column = np.full(len(among), points, dtype=np.int64) if isinstance(points, int) else points
            found[score.name] = np.where(among, column * score.weight, 0)
        return found
