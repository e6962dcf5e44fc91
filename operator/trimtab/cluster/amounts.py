"""What a pod takes of a node, as rows to add to and to take from the node's."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from trimtab.cluster.resources import PODS, IntArray, ResourceAxis
from trimtab.kube.objects import PodSpec

DEFAULT_CPU: Final = 100
"""Millicores that a container without a cpu request counts for in scores (kube-scheduler v1.36 ``schedutil``)."""

DEFAULT_MEMORY: Final = 200 << 20
"""Bytes that a container without a memory request counts for in scores."""


class Amounts(Struct, frozen=True, eq=False):
    """What a pod takes.

    Attributes:
        taken: int64, shape (2 + axis.width,): ``nonzero``, then ``row``, which are parts of it: one addition a pod.
        row: int64, shape (axis.width,): its requests, and 1 in column ``PODS``. Filters count this.
        wanted: the columns of ``row`` above 0 with their amounts; equal for pods that fit alike.
        nonzero: int64, shape (2,): cpu and memory, with defaults for containers that state none. LeastAllocated and
            MostAllocated count this of pods on a node.
        scored: what they count of the pod that is to be placed, which differs where it has pod-level requests.
        only: whether amounts are all that is counted of the spec: it has no host ports, volumes or pod affinity.
    """

    taken: IntArray
    row: IntArray
    wanted: tuple[tuple[int, int], ...]
    nonzero: IntArray
    scored: tuple[int, int]
    only: bool


def amounts_of(spec: PodSpec, axis: ResourceAxis) -> Amounts:
    """The amounts of a spec; the axis may widen by it."""
    row = axis.row(spec.requests)
    row[PODS] = 1
    if spec.nonzero_requests:
        nonzero = spec.nonzero_requests.get("cpu", 0), spec.nonzero_requests.get("memory", 0)
    else:  # a spec made by hand
        nonzero = spec.requests.get("cpu", DEFAULT_CPU), spec.requests.get("memory", DEFAULT_MEMORY)
    stated = spec.scored_requests
    scored = (stated.get("cpu", 0), stated.get("memory", 0)) if stated else nonzero
    wanted = tuple((column, amount) for column, amount in enumerate(row.tolist()) if amount > 0)
    taken = np.concatenate((np.array(nonzero, dtype=np.int64), row))
    only = not (spec.host_ports or spec.volumes or spec.affinity.of_pods)
    return Amounts(taken, taken[len(nonzero) :], wanted, taken[: len(nonzero)], scored, only)
