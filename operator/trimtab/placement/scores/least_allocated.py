"""NodeResourcesFit's LeastAllocated: the emptier the node would be, the better."""

from __future__ import annotations

import numpy as np

from trimtab.cluster.resources import IntArray
from trimtab.placement.scores.allocated import Allocated


class LeastAllocated(Allocated):
    """What would be left, 0 where the pod's share is not there any more (``leastResourceScorer``)."""

    def counted(self, have: IntArray, taken: IntArray) -> IntArray:
        """See :meth:`~trimtab.placement.scores.allocated.Allocated.counted`."""
        left: IntArray = np.maximum(have - taken, 0)
        return left
