"""Which taints and labels of a node its successors will have, and which are only this node's, or only of the moment."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from trimtab.kube.objects import Taint
from trimtab.kube.rules.taints import DELETION_CANDIDATE as DELETION_CANDIDATE
from trimtab.kube.rules.taints import NETWORK_UNAVAILABLE, NOT_READY, UNINITIALIZED
from trimtab.kube.rules.taints import TO_BE_DELETED as TO_BE_DELETED

_AUTOSCALERS: Final = frozenset({TO_BE_DELETED, DELETION_CANDIDATE})
_STATES: Final = ("node.kubernetes.io", "node.cloudprovider.kubernetes.io", "node.cluster.x-k8s.io")
"""Domains of taints that say what state a node is in: they come and go with it."""

STARTUP_PREFIXES: Final = (
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
)
_UNTIL_UP: Final = frozenset({NOT_READY, NETWORK_UNAVAILABLE, UNINITIALIZED, "node.cluster.x-k8s.io/uninitialized"})
"""What Kubernetes' own controllers take from a new node once they have looked at it: some time after it is ready."""
_STATUS_PREFIX: Final = "status-taint.cluster-autoscaler.kubernetes.io/"


def starts_up(taint: Taint, startup: Collection[str]) -> bool:
    """Whether the taint says that its node is not ready for pods yet.

    Args:
        taint: the taint.
        startup: the keys of ``spec.startupTaints``.
    """
    return taint.key in startup or taint.key in _UNTIL_UP or taint.key.startswith(STARTUP_PREFIXES)


def lasting(taints: Iterable[Taint], startup: Collection[str]) -> tuple[Taint, ...]:
    """The taints that a new node of the same make will have once it is up, without their times.

    Those of Kubernetes' own domains go whatever else they say: of all that may be there, they tell the node's state.
    """
    return tuple(
        Taint(key=taint.key, effect=taint.effect, value=taint.value)
        for taint in taints
        if taint.key not in _AUTOSCALERS
        and taint.key.partition("/")[0] not in _STATES
        and not taint.key.startswith(_STATUS_PREFIX)
        and not starts_up(taint, startup)
    )


def with_taints(taints: Iterable[Taint], sure: Iterable[Taint]) -> tuple[Taint, ...]:
    """Both, sorted; of two with one key and effect the value of ``sure`` counts."""
    merged = {(taint.key, taint.effect): taint for taint in (*taints, *sure)}
    return tuple(merged[key] for key in sorted(merged))
