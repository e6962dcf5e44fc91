"""NodeResourcesFit: what the pod requests must be left of the node's allocatable."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from trimtab.cluster.resources import PODS, BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod


class NodeResourcesFit:
    """Only resources with a request above zero are compared; the number of pods always is (v1.36 ``fitsRequest``)."""

    name: ClassVar = "NodeResourcesFit"

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def passing(self, pod: Pod) -> BoolArray | None:
        """Compare the wanted columns of all nodes at once."""
        row, wanted = self._wanted(pod)
        nodes = self._snapshot.nodes
        left = nodes.allocatable[:, wanted] - nodes.requested[:, wanted]
        return np.asarray((left >= row[wanted]).all(axis=1), dtype=np.bool_)

    def reasons(self, pod: Pod, slot: int) -> tuple[str, ...]:
        """Every resource that is short, as kube-scheduler names it."""
        row, wanted = self._wanted(pod)
        nodes = self._snapshot.nodes
        left = nodes.allocatable[slot] - nodes.requested[slot]
        short = [int(column) for column in wanted if row[column] > left[column]]
        return tuple(
            "Too many pods" if column == PODS else f"Insufficient {nodes.axis.names[column]}" for column in short
        )

    def _wanted(self, pod: Pod) -> tuple[IntArray, IntArray]:
        row = self._snapshot.row(pod.spec)
        return row, np.flatnonzero(row > 0)
