"""What weighs on nodes: what their pods request or, where a policy wants it, what is really used.

Strategies read utilization through one seam, :class:`Burden`. Only how full a node is and what a pod takes away from it
are asked here; whether a node takes a pod is for the placer to say, by requests, as the scheduler does.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.strategies import MetricsUtilization
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage import MEASURED, Usage
from trimtab.descheduling.utilization import Table, on_their_way_out
from trimtab.kube.objects import Pod


def measured_by(policy: DeschedulerPolicy) -> MetricsUtilization | None:
    """How a strategy of the policy wants real use measured; ``None`` where none does: then nobody is asked."""
    low = policy.spec.strategies.low_node_utilization
    return low.params.metrics_utilization if low is not None and low.enabled else None


class Burden(Protocol):
    """How full nodes are, in the units of its table.

    Attributes:
        table: what nodes have of each resource; the node table, or one of the same slots with other columns.
        measures: the resources of which real use is known; none by requests.
        guesses: whether what pods take away is only guessed, so that it must be measured again after each.
        known: bool, shape (nodes.capacity,); the nodes of which something is known.
    """

    table: Table
    measures: tuple[str, ...]
    guesses: bool
    known: BoolArray

    def present(self) -> IntArray:
        """What weighs on each node now: int64, shape (nodes.capacity, columns); not to be changed."""
        ...

    def staying(self) -> IntArray:
        """The same without pods on their way out."""
        ...

    def staying_on(self, slot: int) -> IntArray:
        """A row of :meth:`staying`."""
        ...

    def of(self, pod: Pod) -> IntArray:
        """What a pod takes away from its node: int64, shape (columns,) or less."""
        ...

    def moved(self, before: Pod, after: Pod) -> None:
        """Take note of a planned move."""
        ...


class ByRequests:
    """What pods request: the node table, which follows moves by itself."""

    measures: tuple[str, ...] = ()
    guesses = False

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.table: Table = snapshot.nodes
        self._leaving = on_their_way_out(snapshot)
        self.known: BoolArray = snapshot.nodes.used

    def present(self) -> IntArray:
        """The node table."""
        return self._snapshot.nodes.requested

    def staying(self) -> IntArray:
        """Without pods on their way out."""
        requested = self._snapshot.nodes.requested
        if self._leaving:
            requested = requested.copy()
            for slot, row in self._leaving.items():
                requested[slot] -= row
        return requested

    def staying_on(self, slot: int) -> IntArray:
        """One row of it."""
        requested: IntArray = self._snapshot.nodes.requested[slot]
        return requested - self._leaving[slot] if slot in self._leaving else requested

    def of(self, pod: Pod) -> IntArray:
        """What the pod requests."""
        return self._snapshot.row(pod.spec)

    def moved(self, before: Pod, after: Pod) -> None:
        """Nothing to count: the node table has."""


class ByUse:
    """What is used of cpu and memory, and what is requested of everything else.

    A node's use is more than that of its pods (the system, the kubelet), so it is not summed up from them. A pod that
    was not measured is taken to use what it requests. Moves are counted here, for no measurement knows of them yet.

    Args:
        snapshot: the picture.
        usage: what was measured; nothing where it could not be.
    """

    measures: tuple[str, ...] = MEASURED
    guesses = False

    def __init__(self, snapshot: Snapshot, usage: Usage) -> None:
        self._snapshot = snapshot
        self._usage = usage
        nodes = snapshot.nodes
        self.table: Table = nodes
        self._columns = [nodes.axis.column[name] for name in MEASURED]
        self.known: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        self._used: IntArray = np.zeros((nodes.capacity, len(MEASURED)), dtype=np.int64)
        for name, amounts in usage.nodes.items():
            slot = nodes.slot_of.get(name)
            if slot is not None:
                self.known[slot] = True
                self._used[slot] = [amounts[resource] for resource in MEASURED]
        self._leaving = on_their_way_out(snapshot)
        self._relief: IntArray = np.zeros_like(self._used)
        for pod in snapshot.pods.values() if self._leaving else ():
            if pod.deleted is not None and not pod.terminal and (slot := snapshot.slot(pod)) is not None:
                self._relief[slot] += self.of(pod)[self._columns]

    def present(self) -> IntArray:
        """Use, and requests of what nobody measures."""
        table = self._snapshot.nodes.requested.copy()
        table[:, self._columns] = self._used
        return table

    def staying(self) -> IntArray:
        """Without what pods on their way out use."""
        table = self._snapshot.nodes.requested.copy()
        for slot, row in self._leaving.items():
            table[slot] -= row
        table[:, self._columns] = np.maximum(self._used - self._relief, 0)
        return table

    def staying_on(self, slot: int) -> IntArray:
        """One row of it."""
        row: IntArray = self._snapshot.nodes.requested[slot].copy()
        if slot in self._leaving:
            row -= self._leaving[slot]
        row[self._columns] = np.maximum(self._used[slot] - self._relief[slot], 0)
        return row

    def of(self, pod: Pod) -> IntArray:
        """What the pod uses where it was measured, else what it requests."""
        row = self._snapshot.row(pod.spec)
        amounts = self._usage.pods.get(pod.key)
        if amounts is not None:
            row = row.copy()
            row[self._columns] = [amounts[resource] for resource in MEASURED]
        return row

    def moved(self, before: Pod, after: Pod) -> None:
        """Count the pod's use where it goes, and no more where it was."""
        use = self.of(before)[self._columns]
        for pod, sign in ((before, -1), (after, 1)):
            slot = self._snapshot.nodes.slot_of.get(pod.node)
            if slot is not None:
                self._used[slot] += sign * use
