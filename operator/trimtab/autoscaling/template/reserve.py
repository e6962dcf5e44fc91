"""What of a node's capacity pods cannot have: the kubelet's and the system's share, where no real node tells it.

Upstream takes all of the capacity for allocatable where a group has no node yet. Then pods are found to fit that will
not, the node is added in vain, and the next pass adds another one. The amounts here are those that GKE publishes for
its nodes, and that OpenShift's automatic node sizing reserves: shares of the memory and the cores that fall as both
grow; the 100Mi of memory and the tenth of the disk below which the kubelet begins to evict by default come on top.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Final

from trimtab.kube.frozen import ResourceList

_GIB: Final = 1 << 30
_EVICTION: Final = 100 << 20
_TINY: Final = 255 << 20
_MEMORY: Final = ((4 * _GIB, 25), (4 * _GIB, 20), (8 * _GIB, 10), (112 * _GIB, 6), (None, 2))
"""Bytes and the percentage of them that is reserved, from below."""

_CPU: Final = ((1000, 600), (1000, 100), (2000, 50), (None, 25))
"""Millicores and the hundredths of a percent of them that are reserved, from below."""


def reserve(capacity: ResourceList) -> ResourceList:
    """What is not allocatable of a node of that capacity, as far as nobody says it."""
    held = {}
    if memory := capacity.get("memory", 0):
        held["memory"] = min(memory, (_steps(memory, _MEMORY, 100) if memory >= _GIB else _TINY) + _EVICTION)
    if cpu := capacity.get("cpu", 0):
        held["cpu"] = _steps(cpu, _CPU, 10_000)
    if disk := capacity.get("ephemeral-storage", 0):
        held["ephemeral-storage"] = -(-disk // 10)
    return ResourceList(held)


def allocatable(capacity: ResourceList, held: ResourceList) -> ResourceList:
    """The capacity without what is held back."""
    return ResourceList({name: max(0, amount - held.get(name, 0)) for name, amount in capacity.items()})


def _steps(amount: int, steps: Iterable[tuple[int | None, int]], whole: int) -> int:
    """The sum of the shares of each step, rounded up."""
    total, left = Fraction(0), amount
    for size, share in steps:
        part = left if size is None else min(left, size)
        total += Fraction(part * share, whole)
        left -= part
    return -(-total.numerator // total.denominator)
