"""NodeResourcesFit's MostAllocated: the fuller the node would be, the better."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement.framework import MAX_SCORE
from trimtab.placement.kept import Kept, Points, Slots
from trimtab.placement.scores.least_allocated import SCORED


class MostAllocated:
    """The mean over cpu and memory of what would be requested, in percent of allocatable, each rounded down.

    For schedulers that are set up to fill nodes (kube-scheduler v1.36 ``mostResourceScorer``).
    """

    name: ClassVar = "NodeResourcesFit"
    weight: ClassVar = 1

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._kept: Kept[tuple[int, int], np.int8] = Kept(snapshot.nodes, self._compute)

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        """See :meth:`~trimtab.placement.framework.Score.scores`; not normalized."""
        del among
        return self._kept.of(self._snapshot.amounts(pod.spec).scored).astype(np.int64)

    def _compute(self, scored: tuple[int, int], slots: Slots) -> Points:
        nodes = self._snapshot.nodes
        have = nodes.allocatable[slots, SCORED]
        taken = np.minimum(nodes.nonzero[slots] + scored, have)
        each = taken * MAX_SCORE // np.maximum(have, 1)
        found: IntArray = each.sum(axis=1) // np.maximum((have > 0).sum(axis=1), 1)
        return found.astype(np.int8)
