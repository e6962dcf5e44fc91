"""Computes the utilization of nodes and compares it with a policy's thresholds.

Strategies read utilization through the protocol :class:`NodeUsage`, which returns the utilization of nodes and the
contribution of pods. The values are computed from requests or, if the policy configures ``metricsUtilization``,
measured by metrics.k8s.io or a Prometheus query. Whether a node can run a pod is decided by the placer from requests,
as in the scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import fsum
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.strategies import METRIC_RESOURCE, PROMETHEUS, MetricsUtilization, UtilizationThresholds
from trimtab.cluster.resources import CPU, MEMORY, PODS, BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage.measurement import FULL_SHARE, MEASURED, Usage
from trimtab.kube.objects import Pod

FloatArray = npt.NDArray[np.float64]


class ResourceColumns(Protocol):
    """Maps resources to the columns of a table."""

    @property
    def column(self) -> Mapping[str, int]:
        """Return the column of each resource name."""
        ...


class UsageTable(Protocol):
    """The attributes of a :class:`~trimtab.cluster.node_table.NodeTable` that this module reads."""

    @property
    def axis(self) -> ResourceColumns:
        """Return the mapping of resources to columns."""
        ...

    @property
    def capacity(self) -> int:
        """Return the number of slots."""
        ...

    @property
    def used(self) -> BoolArray:
        """Return the slots that contain a node: bool, shape (capacity,)."""
        ...

    @property
    def allocatable(self) -> IntArray:
        """Return the allocatable amounts: int64, shape (capacity, columns)."""
        ...

    @property
    def requested(self) -> IntArray:
        """Return the requested amounts: int64, shape (capacity, columns)."""
        ...


class UtilizationLevel(Struct, frozen=True):
    """The threshold and the target of one resource, in percent of allocatable.

    Attributes:
        resource: the resource name.
        column: its column in the node table.
        threshold: a node is underutilized only if it is at or below this percentage; ``None`` if the policy sets no
            threshold.
        target: a node is overutilized above this percentage; 100 if the policy sets no target.
    """

    resource: str
    column: int
    threshold: float | None
    target: float


class TargetExcess(Struct, frozen=True):
    """The amount by which a node exceeds the target of one resource.

    Attributes:
        level: the threshold and target of the resource.
        share: the utilization in percent of allocatable.
        amount: the requested amount beyond the target, in the resource's unit, rounded up; at least 1.
    """

    level: UtilizationLevel
    share: float
    amount: int

    def __str__(self) -> str:
        share = percent(self.share, self.level.target)
        return f"{self.level.resource} utilization {share}% is above the target of {percent(self.level.target)}%"


def utilization_levels(
    thresholds: UtilizationThresholds,
    nodes: UsageTable,
    among: BoolArray | None = None,
    requested: IntArray | None = None,
) -> tuple[UtilizationLevel, ...]:
    """Return the thresholds and targets of every resource that the policy names, sorted by name.

    Resources that neither a node provides nor a pod requests are omitted.

    Args:
        thresholds: the policy's thresholds.
        nodes: the node table.
        among: bool, shape (nodes.capacity,); the nodes over which the mean is computed if the thresholds are deviations
            from it; all nodes if ``None``.
        requested: requested amounts, int64, shape (nodes.capacity, axis.width); the table's if ``None``.
    """
    targets = thresholds.target_thresholds or {}
    names = sorted({*thresholds.thresholds, *targets})
    levels = tuple(
        UtilizationLevel(
            resource=name,
            column=nodes.axis.column[name],
            threshold=thresholds.thresholds.get(name),
            target=targets.get(name, 100.0),
        )
        for name in names
        if name in nodes.axis.column
    )
    if not thresholds.use_deviation_thresholds:
        return levels
    which = nodes.used if among is None else among
    return tuple(
        _relative_to_mean(level, mean_utilization(nodes, level, which, requested), named=level.resource in targets)
        for level in levels
    )


def _relative_to_mean(level: UtilizationLevel, middle: float, *, named: bool) -> UtilizationLevel:
    """Convert deviations from the mean to percentages. If a resource has no target, the target is 100."""
    return UtilizationLevel(
        resource=level.resource,
        column=level.column,
        threshold=None if level.threshold is None else max(0.0, middle - level.threshold),
        target=min(100.0, middle + level.target) if named else 100.0,
    )


def mean_utilization(
    nodes: UsageTable, level: UtilizationLevel, among: BoolArray, requested: IntArray | None = None
) -> float:
    """Return the mean utilization of a resource in percent over the nodes that have it; 0 if no node has it.

    Every node has the same weight, regardless of its size. The sum is exact, so that the order of the nodes does not
    affect the result.
    """
    have = among & nodes.used & (nodes.allocatable[:, level.column] > 0)
    shares = utilization_percent(nodes, level, requested)[have].tolist()
    return fsum(shares) / len(shares) if shares else 0.0


def terminating_requests(snapshot: Snapshot) -> dict[int, IntArray]:
    """Return the sum of the requests of terminating pods for each slot that has any: int64, shape (axis.width,)."""
    found: dict[int, IntArray] = {}
    for pod in snapshot.pods.values():
        if pod.deleted is not None and not pod.terminal:
            slot = snapshot.slot(pod)
            if slot is not None:
                row = snapshot.row(pod.spec)
                found[slot] = found[slot] + row if slot in found else row
    return found


def underutilized(
    nodes: UsageTable, levels: Sequence[UtilizationLevel], requested: IntArray | None = None
) -> BoolArray:
    """Return the slots that are at or below every threshold: bool, shape (nodes.capacity,).

    A node at exactly the threshold is underutilized. Upstream's documentation says "below", but its code has always
    included equality (sigs.k8s.io/descheduler v0.6 to v0.36), and users' thresholds rely on that. The utilization of a
    resource that a node does not have is 0 percent.

    Args:
        nodes: the node table.
        levels: the thresholds.
        requested: requested amounts, int64, shape (nodes.capacity, axis.width); the table's if ``None``.
    """
    below: BoolArray = nodes.used.copy()
    for level in levels:
        if level.threshold is not None:
            below &= utilization_percent(nodes, level, requested) <= level.threshold
    return below


def percent_above_targets(
    nodes: UsageTable, levels: Sequence[UtilizationLevel], requested: IntArray | None = None
) -> FloatArray:
    """Return the number of percentage points by which each slot exceeds its targets, summed over resources.

    The result is float64 of shape (nodes.capacity,). Percentages are summed instead of amounts, because bytes would
    outweigh millicores.

    Args:
        nodes: the node table.
        levels: the targets.
        requested: requested amounts, int64, shape (nodes.capacity, axis.width); the table's if ``None``.
    """
    total: FloatArray = np.zeros(nodes.capacity, dtype=np.float64)
    for level in levels:
        total += np.maximum(utilization_percent(nodes, level, requested) - level.target, 0.0)
    return total


def utilization_percent(nodes: UsageTable, level: UtilizationLevel, requested: IntArray | None = None) -> FloatArray:
    """Return the requested amount of a resource in percent of allocatable: float64, shape (nodes.capacity,).

    The value is 0 for slots that do not have the resource.
    """
    have = nodes.allocatable[:, level.column]
    want = (nodes.requested if requested is None else requested)[:, level.column]
    shares: FloatArray = np.zeros(nodes.capacity, dtype=np.float64)
    np.divide(100.0 * want, have, out=shares, where=have > 0)
    return shares


def room_below_target(allocatable: IntArray, target: float) -> IntArray:
    """Return the largest requested amount that does not exceed the target: int64, shape of ``allocatable``."""
    return np.asarray(np.floor(allocatable * target / 100.0), dtype=np.int64)


def target_excesses(
    allocatable: IntArray | Sequence[int], requested: IntArray | Sequence[int], levels: Sequence[UtilizationLevel]
) -> list[TargetExcess]:
    """Return the excess for each target that a node exceeds, sorted by size, largest first, then by resource name.

    Args:
        allocatable: the node's allocatable amounts by column.
        requested: the node's requested amounts by column.
        levels: the targets.
    """
    found = []
    for level in levels:
        have, want = int(allocatable[level.column]), int(requested[level.column])
        if have > 0 and 100.0 * want > level.target * have:
            amount = want - int(level.target * have // 100.0)
            found.append(TargetExcess(level, 100.0 * want / have, amount))
    if len(found) > 1:
        found.sort(key=lambda excess: (excess.level.target - excess.share, excess.level.resource))
    return found


@lru_cache(maxsize=4096)
def percent(value: float, other: float | None = None) -> str:
    """Format a percentage with the fewest digits that distinguish it from ``other``: ``92``, ``50.4``, ``50.001``."""
    for digits in (0, 1, 3, 6):
        text = f"{value:.{digits}f}"
        if other is None and float(text) == value:
            break
        if other is not None and float(text) != other:
            break
    return text.rstrip("0").rstrip(".") if "." in text else text


def metrics_utilization_of(policy: DeschedulerPolicy) -> MetricsUtilization | None:
    """Return the source of measurements that the policy's strategies use; ``None`` if they use requests."""
    low = policy.spec.strategies.low_node_utilization
    return low.params.metrics_utilization if low is not None and low.enabled else None


class NodeUsage(Protocol):
    """The utilization of nodes, in the units of its table.

    Attributes:
        table: contains the allocatable amounts. It is the node table, or a table with the same slots and other columns.
        resources: the resources that are measured; empty if utilization is computed from requests.
        is_estimate: whether the contribution of each pod is only an estimate. If so, each eviction requires a new
            measurement.
        known_nodes: bool, shape (nodes.capacity,); the nodes whose utilization is known.
    """

    table: UsageTable
    resources: tuple[str, ...]
    is_estimate: bool
    known_nodes: BoolArray

    def current(self) -> IntArray:
        """Return the current usage of each node: int64, shape (nodes.capacity, columns); read-only."""
        ...

    def without_terminating(self) -> IntArray:
        """Return the usage minus that of terminating pods: int64, shape (nodes.capacity, columns)."""
        ...

    def without_terminating_on(self, slot: int) -> IntArray:
        """Return one row of :meth:`without_terminating`."""
        ...

    def of_pod(self, pod: Pod) -> IntArray:
        """Return the contribution of a pod to its node's usage: int64, shape (columns,) or shorter."""
        ...

    def pod_moved(self, before: Pod, after: Pod) -> None:
        """Update the usage after a planned move."""
        ...


class UsageByRequests:
    """Utilization computed from the requests in the node table, which planned moves update."""

    resources: tuple[str, ...] = ()
    is_estimate = False

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.table: UsageTable = snapshot.nodes
        self._leaving = terminating_requests(snapshot)
        self.known_nodes: BoolArray = snapshot.nodes.used

    def current(self) -> IntArray:
        """Return the requested amounts from the node table."""
        return self._snapshot.nodes.requested

    def without_terminating(self) -> IntArray:
        """Return the requested amounts, excluding those of terminating pods."""
        requested = self._snapshot.nodes.requested
        if self._leaving:
            requested = requested.copy()
            for slot, row in self._leaving.items():
                requested[slot] -= row
        return requested

    def without_terminating_on(self, slot: int) -> IntArray:
        """Return one row of :meth:`without_terminating`."""
        requested: IntArray = self._snapshot.nodes.requested[slot]
        return requested - self._leaving[slot] if slot in self._leaving else requested

    def of_pod(self, pod: Pod) -> IntArray:
        """Return the pod's requests."""
        return self._snapshot.row(pod.spec)

    def pod_moved(self, before: Pod, after: Pod) -> None:
        """Do nothing, because planned moves have already updated the node table."""


class MeasuredUsage:
    """Measured usage of cpu and memory, and requests of all other resources.

    The usage of a node exceeds the sum over its pods, because the system and the kubelet use resources as well. If a
    pod was not measured, its requests are used. Planned moves are applied to the measurement, which does not contain
    them.

    Args:
        snapshot: the cluster.
        usage: the measurement; empty if there is none.
    """

    resources: tuple[str, ...] = MEASURED
    is_estimate = False

    def __init__(self, snapshot: Snapshot, usage: Usage) -> None:
        self._snapshot = snapshot
        self._usage = usage
        nodes = snapshot.nodes
        self.table: UsageTable = nodes
        self._columns = [nodes.axis.column[name] for name in MEASURED]
        self.known_nodes: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        self._used: IntArray = np.zeros((nodes.capacity, len(MEASURED)), dtype=np.int64)
        for name, amounts in usage.nodes.items():
            slot = nodes.slot_of.get(name)
            if slot is not None:
                self.known_nodes[slot] = True
                self._used[slot] = [amounts[resource] for resource in MEASURED]
        self._leaving = terminating_requests(snapshot)
        self._relief: IntArray = np.zeros_like(self._used)
        for pod in snapshot.pods.values() if self._leaving else ():
            if pod.deleted is not None and not pod.terminal and (slot := snapshot.slot(pod)) is not None:
                self._relief[slot] += self.of_pod(pod)[self._columns]

    def current(self) -> IntArray:
        """Return the measured usage of cpu and memory, and the requests of other resources."""
        table = self._snapshot.nodes.requested.copy()
        table[:, self._columns] = self._used
        return table

    def without_terminating(self) -> IntArray:
        """Return the usage, excluding that of terminating pods."""
        table = self._snapshot.nodes.requested.copy()
        for slot, row in self._leaving.items():
            table[slot] -= row
        table[:, self._columns] = np.maximum(self._used - self._relief, 0)
        return table

    def without_terminating_on(self, slot: int) -> IntArray:
        """Return one row of :meth:`without_terminating`."""
        row: IntArray = self._snapshot.nodes.requested[slot].copy()
        if slot in self._leaving:
            row -= self._leaving[slot]
        row[self._columns] = np.maximum(self._used[slot] - self._relief[slot], 0)
        return row

    def of_pod(self, pod: Pod) -> IntArray:
        """Return the pod's measured usage, or its requests if it was not measured."""
        row = self._snapshot.row(pod.spec)
        amounts = self._usage.pods.get(pod.key)
        if amounts is not None:
            row = row.copy()
            row[self._columns] = [amounts[resource] for resource in MEASURED]
        return row

    def pod_moved(self, before: Pod, after: Pod) -> None:
        """Subtract the pod's usage from its old node and add it to the new one."""
        use = self.of_pod(before)[self._columns]
        for pod, sign in ((before, -1), (after, 1)):
            slot = self._snapshot.nodes.slot_of.get(pod.node)
            if slot is not None:
                self._used[slot] += sign * use


_ASKED: Final = [CPU, MEMORY, PODS]
"""The resources whose requests are used to estimate a pod's share of its node's load.

Every pod requests one unit of ``pods``.
"""


_LARGEST: Final = 2**33
"""Millicores above which a node's cpu capacity is ignored as invalid, so that loads fit into int64."""


class OneColumn(Struct, frozen=True):
    """The columns of a table whose only resource is :data:`~trimtab.api.strategies.METRIC_RESOURCE`."""

    column: Mapping[str, int]


class MetricTable(Struct, frozen=True):
    """A :class:`~trimtab.descheduling.planning.node_usage.UsageTable` whose values come from a query."""

    capacity: int
    used: BoolArray
    allocatable: IntArray
    requested: IntArray
    axis: OneColumn


class QueriedUsage:
    """The values that a query returned for nodes, distributed over their pods.

    The load of a node is its value multiplied by its cpu, so that a pod that uses a tenth of a small node uses a
    twentieth of a node twice as large. A pod's part of the load is the result of the query for pods. If there is no
    such query, it is the mean of the pod's shares of the cpu, memory and pods requested on its node. Planned moves are
    applied to the measurement, which does not contain them.

    Args:
        snapshot: the cluster.
        usage: the measurement; empty if there is none.
    """

    resources: tuple[str, ...] = (METRIC_RESOURCE,)

    def __init__(self, snapshot: Snapshot, usage: Usage) -> None:
        nodes = snapshot.nodes
        self._snapshot = snapshot
        self._pods = usage.pods
        self.is_estimate = not usage.pods
        self._size: IntArray = nodes.allocatable[:, CPU].copy()
        self._requested: IntArray = nodes.requested[:, _ASKED].copy()
        self.known_nodes: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        self._load: IntArray = np.zeros((nodes.capacity, 1), dtype=np.int64)
        for name, amounts in usage.nodes.items():
            slot = nodes.slot_of.get(name)
            if slot is not None and 0 < self._size[slot] <= _LARGEST:
                self.known_nodes[slot] = True
                self._load[slot, 0] = amounts[METRIC_RESOURCE] * self._size[slot]
        self._first: IntArray = self._load.copy()
        self.table: UsageTable = MetricTable(
            capacity=nodes.capacity,
            used=nodes.used,
            allocatable=np.where(self.known_nodes, self._size * FULL_SHARE, 0)[:, np.newaxis],
            requested=self._load,
            axis=OneColumn({METRIC_RESOURCE: 0}),
        )
        self._parts: dict[str, int] = {}
        self._relief: IntArray = np.zeros_like(self._load)
        for pod in snapshot.pods.values():
            if pod.deleted is not None and not pod.terminal and (where := snapshot.slot(pod)) is not None:
                self._relief[where] += self.of_pod(pod)

    def current(self) -> IntArray:
        """Return the nodes' loads."""
        return self._load

    def without_terminating(self) -> IntArray:
        """Return the nodes' loads, excluding those of terminating pods."""
        staying: IntArray = np.maximum(self._load - self._relief, 0)
        return staying

    def without_terminating_on(self, slot: int) -> IntArray:
        """Return one row of :meth:`without_terminating`."""
        row: IntArray = np.maximum(self._load[slot] - self._relief[slot], 0)
        return row

    def of_pod(self, pod: Pod) -> IntArray:
        """Return the pod's part of the load, computed for the node that it was on when planning started."""
        part = self._parts.get(pod.key)
        if part is None:  # pod_moved() calls this for every moved pod before its node changes
            part = self._parts[pod.key] = self._part(pod)
        return np.array([part], dtype=np.int64)

    def pod_moved(self, before: Pod, after: Pod) -> None:
        """Subtract the pod's load from its old node and add it to the new one."""
        part = self.of_pod(before)
        for pod, sign in ((before, -1), (after, 1)):
            slot = self._snapshot.nodes.slot_of.get(pod.node)
            if slot is not None and self.known_nodes[slot]:
                self._load[slot] += sign * part

    def _part(self, pod: Pod) -> int:
        slot = self._snapshot.nodes.slot_of.get(pod.node)
        if slot is None or not self.known_nodes[slot]:
            return 0
        measured = self._pods.get(pod.key)
        if measured is not None:
            return int(min(measured[METRIC_RESOURCE] * self._size[slot], self._first[slot, 0]))
        row, there = self._snapshot.row(pod.spec)[_ASKED], self._requested[slot]
        requested = there > 0
        if not requested.any():
            return 0
        return int(self._first[slot, 0] * float((row[requested] / there[requested]).mean()))


def node_usage_of(metrics: MetricsUtilization | None, snapshot: Snapshot, usage: Usage | None) -> NodeUsage:
    """Return the utilization of nodes from the source that the policy configures.

    Args:
        metrics: the source of measurements; ``None`` to use requests.
        snapshot: the cluster.
        usage: the measurement; ``None`` if there is none.
    """
    if metrics is None:
        return UsageByRequests(snapshot)
    kind = QueriedUsage if metrics.source == PROMETHEUS else MeasuredUsage
    return kind(snapshot, usage or Usage(problem="no measurement has been made"))
