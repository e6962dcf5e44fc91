"""NodeResourcesBalancedAllocation: the more evenly cpu and memory would be used, the better."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement.framework import MAX_SCORE
from trimtab.placement.kept import Kept, Points, Slots
from trimtab.placement.scores.allocated import SCORED

_HALF: Final = MAX_SCORE // 2


class BalancedAllocation:
    """What the pod does to the balance of cpu and memory on the node: about 75 where nothing, 100 at best.

    Requests are counted as they are stated, without defaults; a pod that requests neither is not scored
    (kube-scheduler v1.36 ``balancedResourceScorer``).
    """

    name: ClassVar = "NodeResourcesBalancedAllocation"
    weight: ClassVar = 1

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._kept: Kept[tuple[int, int], np.int8] = Kept(snapshot.nodes, self._compute)

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        """See :meth:`~trimtab.placement.framework.Score.scores`; not normalized."""
        del among
        requests = pod.spec.requests
        asked = requests.get("cpu", 0), requests.get("memory", 0)
        return self._kept.of(asked).astype(np.int64) if any(asked) else 0

    def _compute(self, asked: tuple[int, int], slots: Slots) -> Points:
        nodes = self._snapshot.nodes
        have = nodes.allocatable[slots, SCORED]
        taken = nodes.requested[slots, SCORED]
        found: IntArray = _HALF + (_HALF + _balance(taken + asked, have) - _balance(taken, have)) // 2
        return found.astype(np.int8)


def _balance(taken: IntArray, have: IntArray) -> IntArray:
    """100 less the deviation between both fractions, which of two is half their difference; 100 where one is missing.

    Args:
        taken: int64, shape (n, 2).
        have: the same.
    """
    fractions: npt.NDArray[np.float64] = np.minimum(taken / np.maximum(have, 1), 1.0)
    deviation = np.where((have > 0).all(axis=1), np.abs((fractions[:, 0] - fractions[:, 1]) / 2), 0.0)
    found: IntArray = ((1 - deviation) * float(MAX_SCORE)).astype(np.int64)
    return found
