"""Determines whether tolerations tolerate taints, as core/v1 ``ToleratesTaint`` and kube-scheduler v1.36 do."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final, Protocol

from trimtab.kube.objects.node import Taint

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"
SCHEDULING_EFFECTS: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})
"""The effects that prevent scheduling. PreferNoSchedule only lowers a node's score."""

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
"""Keys of the taints with which cluster-autoscaler and trimtab mark nodes that are being removed, or may be removed
soon.
"""
KARPENTER_DISRUPTED: Final = "karpenter.sh/disrupted"
KARPENTER_DISRUPTION: Final = "karpenter.sh/disruption"
"""Karpenter's taint keys of nodes that it drains: since v1, and before v1 with the value ``disrupting``."""

TRIMTAB_PRESSURE_DOMAIN: Final = "pressure.trimtab.dev"
"""Domain of the NoSchedule taints that trimtab adds to nodes under pressure. Its node-pressure controller evicts pods
from these nodes one by one, and removes the taint afterwards.
"""

_DECIMAL_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_INT64: Final = range(-(2**63), 2**63)


class TaintLike(Protocol):
    """A taint of a node, or of a policy that describes nodes."""

    @property
    def key(self) -> str:
        """Return the key of the taint."""
        ...

    @property
    def value(self) -> str:
        """Return the value of the taint; ``""`` if it has none."""
        ...

    @property
    def effect(self) -> str:
        """Return the effect of the taint."""
        ...


class TolerationLike(TaintLike, Protocol):
    """A toleration, whatever type it was decoded to."""

    @property
    def operator(self) -> str:
        """Return the operator; ``""`` is Equal."""
        ...


def tolerates(toleration: TolerationLike, taint: TaintLike) -> bool:
    """Return whether one toleration tolerates one taint.

    An empty effect matches every effect, and an empty key matches every key. ``Exists`` matches any value, and
    ``Equal`` (the default) an equal value. ``Gt`` and ``Lt`` match if the taint's value is greater or less than the
    toleration's; they never match a value that is not an integer. The API server allows an empty key only with
    ``Exists``. ``tolerationSeconds`` is ignored, as in kube-scheduler.

    ``Gt`` and ``Lt`` need the feature gate TaintTolerationComparisonOperators (KEP-5471, off by default in v1.36). They
    are always compared, because the API server accepts such a toleration only if the gate is on. If it is switched off
    later, kube-scheduler no longer matches these tolerations, but their pods are still not evicted.

    Args:
        toleration: the toleration of the pod.
        taint: the taint of the node.
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
    if operator in ("Gt", "Lt"):
        bound, value = _int64(toleration.value), _int64(taint.value)
        if bound is None or value is None:
            return False
        return value > bound if operator == "Gt" else value < bound
    return False


def find_untolerated_taint(
    taints: Iterable[Taint],
    tolerations: Collection[TolerationLike],
    effects: Collection[str] = SCHEDULING_EFFECTS,
) -> Taint | None:
    """Return the first taint that has one of the effects and is not tolerated, or ``None`` if there is none.

    The taints are examined in the node's order, as in kube-scheduler. The order only affects messages.
    """
    for taint in taints:
        if taint.effect not in effects:
            continue
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def _int64(text: str) -> int | None:
    """Parse a 64-bit integer as Kubernetes' tolerations require it, without a plus sign or leading zeros.

    ``None`` if it is invalid.
    """
    if not _DECIMAL_INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if number in _INT64 else None


def format_taint(taint: TaintLike) -> str:
    """Format a taint as in kubectl: ``key=value:NoExecute``, or ``key:NoExecute`` without a value."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
