"""Converts resource lists to integer rows: the column of each resource, and the amounts that a pod uses on a node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from trimtab.kube.frozen import ResourceList
from trimtab.kube.objects import PodSpec
from trimtab.kube.wire.limits import name_hash

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

CPU: Final = 0
MEMORY: Final = 1
PODS: Final = 2
UNKNOWN: Final = 4
_NAMES: Final = ("cpu", "memory", "pods", "ephemeral-storage", "")
FIXED: Final = len(_NAMES)
"""Number of columns that are the same in every cluster.

The last of them, ``UNKNOWN``, stands for all resources that no node has.
"""

SCORED: Final = 2
"""Number of resources for which scores use separate amounts: cpu and memory."""

_WIDTH: Final = 8
"""Minimum number of columns of an amounts array."""


class ResourceAxis:
    """Assigns resource names to columns.

    The first five columns are fixed. The others are resources that at least one node has.

    Only nodes add columns, because users can invent resource names in the requests of pods. Requests for resources that
    no node has are added up in column ``UNKNOWN``. All nodes have 0 allocatable there, so such a pod fits on no node. A
    column is reused after the last node with the resource is removed (:meth:`release`).

    Rows are ``int64`` arrays with :attr:`width` columns: cpu in millicores, memory in bytes, the number of pods,
    ephemeral storage in bytes, then whole units of other resources. The width grows by doubling, so older rows may be
    narrower; :class:`~trimtab.cluster.node_table.NodeTable` is resized with the axis.

    Attributes:
        names: the resource name of each column; empty for ``UNKNOWN`` and for free columns.
        column: the column of each resource name.
        width: the length of a row.
        version: a number that increases when a name is assigned to a column or removed from it.
    """

    def __init__(self) -> None:
        self.names: list[str] = list(_NAMES)
        self.column: dict[str, int] = {name: index for index, name in enumerate(_NAMES) if name}
        self.width = _WIDTH
        self.version = 0
        self._node_counts: list[int] = [0] * FIXED
        self._free: list[int] = []

    def add(self, name: str) -> int:
        """Return the column of a resource. A resource without a column is assigned one."""
        found = self.column.get(name)
        if found is not None:
            return found
        if self._free:
            found = self._free.pop()
            self.names[found] = name
        else:
            found = len(self.names)
            self.names.append(name)
            self._node_counts.append(0)
            if found >= self.width:
                self.width *= 2
        self.column[name] = found
        self.version += 1
        return found

    def count_nodes(self, names: Iterable[str], number: int) -> None:
        """Change the recorded number of nodes that have these resources.

        Args:
            names: the resources, which must have columns.
            number: the number to add, which may be negative.
        """
        for name in names:
            self._node_counts[self.column[name]] += number

    def unused(self) -> list[str]:
        """Return the names of the resources with a column that no node has."""
        return [name for name, column in self.column.items() if column >= FIXED and not self._node_counts[column]]

    def release(self, names: Iterable[str]) -> None:
        """Free the columns of these resources. The caller must ensure that no row has amounts in them."""
        for name in names:
            column = self.column.pop(name)
            self.names[column] = ""
            self._free.append(column)
            self.version += 1
        while len(self.names) > FIXED and not self.names[-1]:
            self.names.pop()
            self._node_counts.pop()
            self._free.remove(len(self.names))
        while self.width > _WIDTH and len(self.names) <= self.width // 2:
            self.width //= 2

    def row(self, amounts: ResourceList) -> IntArray:
        """Return a resource list as a row: int64, shape (width,). Resources without a column are ignored."""
        row = np.zeros(self.width, dtype=np.int64)
        column = self.column
        for name, amount in amounts.items():
            found = column.get(name)
            if found is not None:
                row[found] = amount
        return row

    def missing(self, amounts: ResourceList) -> tuple[str, ...]:
        """Return the names of the resources in ``amounts`` that no node has, sorted."""
        column = self.column
        found = [name for name, amount in amounts.items() if amount > 0 and name not in column]
        return tuple(sorted(found)) if found else ()


DEFAULT_CPU: Final = 100
"""Millicores that scores assume for a container without a cpu request (kube-scheduler v1.36 ``schedutil``)."""

DEFAULT_MEMORY: Final = 200 << 20
"""Bytes that scores assume for a container without a memory request."""


class Amounts(Struct, frozen=True, eq=False):
    """The amounts that a pod uses on a node.

    Attributes:
        taken: ``nonzero`` followed by ``row``: int64, shape (2 + axis.width,). Both are views of this array, so that
            counting a pod is one addition.
        row: the requests, and 1 in column ``PODS``: int64, shape (axis.width,). Filters use this.
        wanted: the columns of ``row`` with amounts above 0, and these amounts. It is equal for pods with the same
            requests.
        nonzero: the cpu and memory requests, with defaults for containers without requests: int64, shape (2,).
            LeastAllocated and MostAllocated use this for pods on a node.
        scored: the cpu and memory requests that these scores use for the pod being placed. They differ from ``nonzero``
            if the pod has pod-level requests.
        missing: the names of requested resources that no node has. Column ``UNKNOWN`` of ``row`` then contains a number
            that depends on these names.
        amounts_only: whether the spec has neither host ports nor volumes nor pod affinity.
    """

    taken: IntArray
    row: IntArray
    wanted: tuple[tuple[int, int], ...]
    nonzero: IntArray
    scored: tuple[int, int]
    missing: tuple[str, ...]
    amounts_only: bool


_FURTHER: Final = np.dtype([("name", "<u4"), ("amount", "<i8")])
"""The binary format of one request in :attr:`~trimtab.kube.objects.PodSpec.further_requests`."""


def _add_further(row: IntArray, spec: PodSpec, axis: ResourceAxis) -> None:
    further = np.frombuffer(spec.further_requests, dtype=_FURTHER)
    for name, column in axis.column.items():
        if name not in spec.requests:
            row[column] += further["amount"][further["name"] == name_hash(name)].sum()


def amounts_of(spec: PodSpec, axis: ResourceAxis) -> Amounts:
    """Return the amounts that a pod with this spec uses on a node."""
    row = axis.row(spec.requests)
    row[PODS] = 1
    if spec.further_requests:
        _add_further(row, spec, axis)
    missing = axis.missing(spec.requests)
    if missing:
        row[UNKNOWN] = 1 + crc32("\n".join(missing).encode())
    if spec.nonzero_requests:
        nonzero = spec.nonzero_requests.get("cpu", 0), spec.nonzero_requests.get("memory", 0)
    else:  # a spec that was not decoded from an API object
        nonzero = spec.requests.get("cpu", DEFAULT_CPU), spec.requests.get("memory", DEFAULT_MEMORY)
    stated = spec.scored_requests
    scored = (stated.get("cpu", 0), stated.get("memory", 0)) if stated else nonzero
    wanted = tuple((column, amount) for column, amount in enumerate(row.tolist()) if amount > 0)
    taken = np.concatenate((np.array(nonzero, dtype=np.int64), row))
    amounts_only = not (spec.host_ports or spec.volumes or spec.affinity.has_pod_terms)
    return Amounts(taken, taken[len(nonzero) :], wanted, taken[: len(nonzero)], scored, missing, amounts_only)
