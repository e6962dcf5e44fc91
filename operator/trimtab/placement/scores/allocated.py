"""What scores share that go by how full a node would be."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from trimtab.cluster.resources import CPU, MEMORY, BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement.framework import MAX_SCORE
from trimtab.placement.kept import Kept, Points, Slots

SCORED: Final = slice(CPU, MEMORY + 1)
"""The columns that the default profile scores by."""


class Allocated:
    """The mean of a share of cpu and memory in percent of allocatable, each rounded down.

    Requests are counted with defaults where containers state none; a resource that the node does not have is left out.
    It is not normalized. Source: kube-scheduler v1.36 ``noderesources``.
    """

    name: ClassVar = "NodeResourcesFit"
    weight: ClassVar = 1

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._kept: Kept[tuple[int, int], np.int8] = Kept(snapshot.nodes, self._compute)

    def counted(self, have: IntArray, taken: IntArray) -> IntArray:
        """The amounts whose share counts, at most what a node has.

        Args:
            have: allocatable, int64, shape (n, 2).
            taken: what would be requested with the pod; the same.
        """
        raise NotImplementedError

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        """See :meth:`~trimtab.placement.framework.Score.scores`."""
        del among
        return self._kept.of(self._snapshot.amounts(pod.spec).scored).astype(np.int64)

    def _compute(self, scored: tuple[int, int], slots: Slots) -> Points:
        nodes = self._snapshot.nodes
        have = nodes.allocatable[slots, SCORED]
        each = self.counted(have, nodes.nonzero[slots] + scored) * MAX_SCORE // np.maximum(have, 1)
        found: IntArray = each.sum(axis=1) // np.maximum((have > 0).sum(axis=1), 1)
        return found.astype(np.int8)
