"""Whether tolerations tolerate taints (core/v1 ``ToleratesTaint`` and kube-scheduler's use of it, v1.36)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from trimtab.kube.objects.node import Taint
from trimtab.kube.objects.pod import Toleration

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"
SCHEDULING_EFFECTS: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})
"""The effects that keep a pod from a node; PreferNoSchedule only makes it less welcome."""

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
MEMORY_PRESSURE: Final = "node.kubernetes.io/memory-pressure"
DISK_PRESSURE: Final = "node.kubernetes.io/disk-pressure"
PID_PRESSURE: Final = "node.kubernetes.io/pid-pressure"
NETWORK_UNAVAILABLE: Final = "node.kubernetes.io/network-unavailable"
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
UNINITIALIZED: Final = "node.cloudprovider.kubernetes.io/uninitialized"
TO_BE_DELETED: Final = "ToBeDeletedByClusterAutoscaler"
DELETION_CANDIDATE: Final = "DeletionCandidateOfClusterAutoscaler"
"""Cluster autoscalers' keys, upstream's and trimtab's alike: of nodes that go, and of nodes that may go soon."""

_DECIMAL_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_INT64: Final = range(-(2**63), 2**63)


def tolerates(toleration: Toleration, taint: Taint, *, compare_values: bool = False) -> bool:
    """Whether one toleration tolerates one taint.

    An empty effect stands for every effect and an empty key for every key; ``Exists`` accepts any value, ``Equal``
    (also where no operator is given) the same one. The API server allows an empty key with ``Exists`` only. Whether
    the toleration is limited in time plays no part: kube-scheduler doesn't ask either.

    Args:
        toleration: the pod's.
        taint: the node's.
        compare_values: whether ``Gt`` and ``Lt`` compare the taint's value with the toleration's as integers; without
            it they tolerate nothing. Kubernetes has them behind the feature gate
            TaintTolerationComparisonOperators (alpha in v1.35, off).
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    operator = toleration.operator
    if operator == "Exists":
        return True
    if operator in ("", "Equal"):
        return toleration.value == taint.value
    if compare_values and operator in ("Gt", "Lt"):
        bound, value = _int64(toleration.value), _int64(taint.value)
        if bound is None or value is None:
            return False
        return value > bound if operator == "Gt" else value < bound
    return False


def untolerated(
    taints: Iterable[Taint],
    tolerations: Collection[Toleration],
    effects: Collection[str] = SCHEDULING_EFFECTS,
    *,
    compare_values: bool = False,
) -> Taint | None:
    """The first taint with one of the effects that no toleration tolerates, in the node's order, or ``None``.

    The order matters for messages only: kube-scheduler names the first one too.
    """
    for taint in taints:
        if taint.effect not in effects:
            continue
        if not any(tolerates(toleration, taint, compare_values=compare_values) for toleration in tolerations):
            return taint
    return None


def _int64(text: str) -> int | None:
    """An integer as Kubernetes wants it in tolerations: no plus sign, no leading zeros, 64 bits."""
    if not _DECIMAL_INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if number in _INT64 else None


def taint_in_words(taint: Taint) -> str:
    """``key=value:NoExecute`` as kubectl writes it; without ``=value`` where there is none."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
