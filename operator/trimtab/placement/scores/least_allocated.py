"""NodeResourcesFit's LeastAllocated: the emptier the node would be, the better."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from trimtab.cluster.resources import CPU, MEMORY, BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement.framework import MAX_SCORE
from trimtab.placement.kept import Kept, Points, Slots

SCORED = slice(CPU, MEMORY + 1)
"""The columns that the default profile scores by."""


class LeastAllocated:
    """The mean over cpu and memory of what would be left, in percent of allocatable, each rounded down.

    Requests are counted with defaults where containers state none; a resource the node does not have is left out
    (kube-scheduler v1.36 ``leastResourceScorer``).
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
        left = have - nodes.nonzero[slots] - scored
        each = np.maximum(left, 0) * MAX_SCORE // np.maximum(have, 1)
        found: IntArray = each.sum(axis=1) // np.maximum((have > 0).sum(axis=1), 1)
        return found.astype(np.int8)
