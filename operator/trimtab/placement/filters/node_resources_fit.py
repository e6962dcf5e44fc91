"""NodeResourcesFit: what the pod requests must be left of the node's allocatable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

import numpy as np

from trimtab.cluster.resources import FIXED, PODS, BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod, PodSpec
from trimtab.placement.framework import Failure, Reads
from trimtab.placement.kept import Kept, Slots

_ANY: Final = np.iinfo(np.int64).min
Wanted = tuple[tuple[int, int], ...]


class NodeResourcesFit:
    """Only resources with a request above zero are compared; the number of pods always is (v1.36 ``fitsRequest``)."""

    name: ClassVar = "NodeResourcesFit"
    reads: ClassVar[Reads] = "room"

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._fits: Kept[Wanted, np.bool_] = Kept(snapshot.nodes, self._compute)

    def may_concern(self, spec: PodSpec) -> bool:
        """Always: every pod takes one of the pods that a node can hold."""
        del spec
        return True

    def concerns(self, pod: Pod) -> bool:
        """Always: every pod takes one of the pods that a node can hold."""
        del pod
        return True

    def refusal(self, pod: Pod) -> str | None:
        """Never: another node may be larger."""
        del pod
        return None

    def passing(self, pod: Pod) -> BoolArray | None:
        """Where all that the pod wants is left; one array for all pods that want the same."""
        return self._fits.of(self._snapshot.amounts(pod.spec).wanted)

    def failures(self, pod: Pod, slots: IntArray) -> Iterable[Failure]:
        """Every resource that is short, as kube-scheduler names it."""
        row = self._snapshot.row(pod.spec)
        nodes = self._snapshot.nodes
        wanted = np.array(sorted(np.flatnonzero(row > 0).tolist(), key=self._place), dtype=np.int64)
        left = nodes.allocatable[np.ix_(slots, wanted)] - nodes.requested[np.ix_(slots, wanted)]
        patterns, which = np.unique(left < row[wanted], axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            yield tuple(self._text(int(column)) for column in wanted[pattern]), slots[which.ravel() == number]

    def _compute(self, wanted: Wanted, slots: Slots) -> BoolArray:
        nodes = self._snapshot.nodes
        least = np.full(nodes.axis.width, _ANY, dtype=np.int64)
        for column, amount in wanted:
            least[column] = amount
        fits: BoolArray = np.all(nodes.allocatable[slots] - nodes.requested[slots] >= least, axis=1)
        return fits

    def _place(self, column: int) -> tuple[bool, bool, str | int]:
        """kube-scheduler's order: pods, cpu, memory, storage; the rest, which it tells in any order, by name."""
        fixed = column < FIXED
        return column != PODS, not fixed, column if fixed else self._snapshot.nodes.axis.names[column]

    def _text(self, column: int) -> str:
        return "Too many pods" if column == PODS else f"Insufficient {self._snapshot.nodes.axis.names[column]}"
