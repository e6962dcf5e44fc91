"""What weighs on nodes as a query says it: one share a node, and what each pod has to do with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from trimtab.api.strategies import METRIC_RESOURCE, PROMETHEUS, MetricsUtilization
from trimtab.cluster.resources import CPU, MEMORY, PODS, BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage import WHOLE, Usage
from trimtab.descheduling.burden import Burden, ByRequests, ByUse
from trimtab.descheduling.utilization import Table
from trimtab.kube.objects import Pod

_ASKED: Final = [CPU, MEMORY, PODS]
"""What a pod's part in its node is guessed from. All ask for a place as a pod, so that none has no part at all."""


_LARGEST: Final = 2**33
"""Millicores above which a node's size is none: no machine has a million cores, and loads must stay within int64."""


class OneColumn(Struct, frozen=True):
    """The axis of a table that knows nothing but :data:`~trimtab.api.strategies.METRIC_RESOURCE`."""

    column: Mapping[str, int]


class MetricTable(Struct, frozen=True):
    """Nodes by what a query says of them; a :class:`~trimtab.descheduling.utilization.Table`."""

    capacity: int
    used: BoolArray
    allocatable: IntArray
    requested: IntArray
    axis: OneColumn


class ByQuery:
    """What a query gives for nodes, shared out among their pods.

    A share is turned into a load by the cpu that its node has, so that a pod that fills a tenth of a small node fills a
    twentieth of one that is twice as large. A pod's part is what the query for pods says, else the mean of its shares
    of what is requested on its node: of cpu, of memory, of pods. Moves are counted here, for no measurement knows of
    them yet.

    Args:
        snapshot: the picture.
        usage: what was measured; nothing where it could not be.
    """

    measures: tuple[str, ...] = (METRIC_RESOURCE,)

    def __init__(self, snapshot: Snapshot, usage: Usage) -> None:
        nodes = snapshot.nodes
        self._snapshot = snapshot
        self._pods = usage.pods
        self.guesses = not usage.pods
        self._size: IntArray = nodes.allocatable[:, CPU].copy()
        self._requested: IntArray = nodes.requested[:, _ASKED].copy()
        self.known: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        self._load: IntArray = np.zeros((nodes.capacity, 1), dtype=np.int64)
        for name, amounts in usage.nodes.items():
            slot = nodes.slot_of.get(name)
            if slot is not None and 0 < self._size[slot] <= _LARGEST:
                self.known[slot] = True
                self._load[slot, 0] = amounts[METRIC_RESOURCE] * self._size[slot]
        self._first: IntArray = self._load.copy()
        self.table: Table = MetricTable(
            capacity=nodes.capacity,
            used=nodes.used,
            allocatable=np.where(self.known, self._size * WHOLE, 0)[:, np.newaxis],
            requested=self._load,
            axis=OneColumn({METRIC_RESOURCE: 0}),
        )
        self._parts: dict[str, int] = {}
        self._relief: IntArray = np.zeros_like(self._load)
        for pod in snapshot.pods.values():
            if pod.deleted is not None and not pod.terminal and (where := snapshot.slot(pod)) is not None:
                self._relief[where] += self.of(pod)

    def present(self) -> IntArray:
        """The nodes' loads."""
        return self._load

    def staying(self) -> IntArray:
        """Without the parts of pods on their way out."""
        staying: IntArray = np.maximum(self._load - self._relief, 0)
        return staying

    def staying_on(self, slot: int) -> IntArray:
        """One row of it."""
        row: IntArray = np.maximum(self._load[slot] - self._relief[slot], 0)
        return row

    def of(self, pod: Pod) -> IntArray:
        """The pod's part in the load of the node that it was on when the plan began."""
        part = self._parts.get(pod.key)
        if part is None:  # every pod that is moved is asked for before: moved() does
            part = self._parts[pod.key] = self._part(pod)
        return np.array([part], dtype=np.int64)

    def moved(self, before: Pod, after: Pod) -> None:
        """Count the pod's part where it goes, and no more where it was."""
        part = self.of(before)
        for pod, sign in ((before, -1), (after, 1)):
            slot = self._snapshot.nodes.slot_of.get(pod.node)
            if slot is not None and self.known[slot]:
                self._load[slot] += sign * part

    def _part(self, pod: Pod) -> int:
        slot = self._snapshot.nodes.slot_of.get(pod.node)
        if slot is None or not self.known[slot]:
            return 0
        measured = self._pods.get(pod.key)
        if measured is not None:
            return int(min(measured[METRIC_RESOURCE] * self._size[slot], self._first[slot, 0]))
        row, there = self._snapshot.row(pod.spec)[_ASKED], self._requested[slot]
        asked = there > 0
        if not asked.any():
            return 0
        return int(self._first[slot, 0] * float((row[asked] / there[asked]).mean()))


def burden_by(metrics: MetricsUtilization | None, snapshot: Snapshot, usage: Usage | None) -> Burden:
    """The burden as a policy wants it judged.

    Args:
        metrics: how real use is measured; ``None`` to judge by requests.
        snapshot: the picture.
        usage: what was measured; ``None`` where nobody was asked.
    """
    if metrics is None:
        return ByRequests(snapshot)
    kind = ByQuery if metrics.source == PROMETHEUS else ByUse
    return kind(snapshot, usage or Usage(problem="nobody has measured"))
