"""Which resource stands in which column, and resource lists as rows of integers."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from trimtab.kube.frozen import ResourceList

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

CPU: Final = 0
MEMORY: Final = 1
PODS: Final = 2
_NAMES: Final = ("cpu", "memory", "pods", "ephemeral-storage")
FIXED: Final = len(_NAMES)
"""How many columns are the same in every cluster."""

SCORED: Final = 2
"""How many resources scores count in a way of their own: cpu and memory."""


class ResourceAxis:
    """Resource names as columns. The first four are fixed; extended resources get the next free one when first seen.

    Rows are ``int64`` arrays of :attr:`width` columns: millicores, bytes, pods, bytes, then units. The width grows by
    doubling, so rows made before may be narrower: :class:`~trimtab.cluster.nodes.NodeTable` widens with the axis.
    """

    def __init__(self) -> None:
        self.names: list[str] = list(_NAMES)
        self.column: dict[str, int] = {name: index for index, name in enumerate(_NAMES)}
        self.width = 8

    def index(self, name: str) -> int:
        """The column of a resource, a new one if it was never seen."""
        found = self.column.get(name)
        if found is None:
            found = self.column[name] = len(self.names)
            self.names.append(name)
            if found >= self.width:
                self.width *= 2
        return found

    def row(self, amounts: ResourceList) -> IntArray:
        """A resource list as a row of shape ``(width,)``, dtype int64."""
        columns = [self.index(name) for name in amounts]  # may widen: before the row is made
        row = np.zeros(self.width, dtype=np.int64)
        for column, amount in zip(columns, amounts.values(), strict=True):
            row[column] = amount
        return row
