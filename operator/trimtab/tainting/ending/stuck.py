"""Pods that cannot end: their node is dead, and nobody there tells the API server that they have. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trimtab.api.taint_manager_status import StuckNode
from trimtab.kube.objects import Node
from trimtab.kube.rules.taints import OUT_OF_SERVICE, UNREACHABLE
from trimtab.tainting.conditions import READY
from trimtab.tainting.picture import Picture

PATIENCE: Final = 30.0
"""Seconds after the end of a pod's grace period that it may still take: kubelets report late when many pods end."""

PROPOSAL: Final = (
    "kubectl taint nodes {node} " + OUT_OF_SERVICE + "=nodeshutdown:NoExecute frees them and their volumes; "
    "only once it is certain that the machine is off"
)


def stuck_nodes(picture: Picture, *, now: float) -> tuple[StuckNode, ...]:
    """Dead nodes with pods that should have ended by now, by name.

    A node with the taint out-of-service is left out: kube-controller-manager frees its pods.

    Args:
        picture: nodes and pods.
        now: seconds since the epoch.
    """
    found = ((name, _stuck_on(picture, name, now)) for name in sorted(_dead(picture.nodes)))
    return tuple(
        StuckNode(
            name=name,
            terminating=number,
            message=f"{number} pods are past their grace period, and the node is unreachable: "
            + PROPOSAL.format(node=name),
        )
        for name, number in found
        if number
    )


def _dead(nodes: Mapping[str, Node]) -> Iterable[str]:
    for name, node in nodes.items():
        keys = {taint.key for taint in node.taints}
        unknown = any(each.type == READY and each.status == "Unknown" for each in node.conditions)
        if (unknown or UNREACHABLE in keys) and OUT_OF_SERVICE not in keys:
            yield name


def _stuck_on(picture: Picture, node: str, now: float) -> int:
    """``metadata.deletionTimestamp`` is when the grace period ends, not when it began."""
    return sum(pod.deleted is not None and pod.deleted + PATIENCE < now for _, pod in picture.pods_on(node))
