"""NodeResourcesFit's MostAllocated: the fuller the node would be, the better."""

from __future__ import annotations

import numpy as np

from trimtab.cluster.resources import IntArray
from trimtab.placement.scores.allocated import Allocated


class MostAllocated(Allocated):
    """What would be requested, for schedulers that are set up to fill nodes (``mostResourceScorer``)."""

    def counted(self, have: IntArray, taken: IntArray) -> IntArray:
        """See :meth:`~trimtab.placement.scores.allocated.Allocated.counted`."""
        held: IntArray = np.minimum(taken, have)
        return held
