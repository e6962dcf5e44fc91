"""What a report takes from the picture itself: totals, and pods without a node."""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.api.cluster_limits import GIB
from trimtab.autoscaling.report.pass_report import Totals, Waiting
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node, Pod

_CORE = 1000
"""Millicores."""


def totals(nodes: Iterable[Node]) -> Totals:
    """What the nodes have together, as limits count it: what they are, not what is left for pods.

    Args:
        nodes: all of the cluster.
    """
    number = cores = memory = 0
    for node in nodes:
        amounts = node.capacity or node.allocatable
        number += 1
        cores += amounts.get("cpu", 0)
        memory += amounts.get("memory", 0)
    return Totals(nodes=number, cores=cores // _CORE, memory_gib=memory // GIB)


def waiting(snapshot: Snapshot) -> dict[str, Waiting]:
    """The pods of a snapshot that have no node, by ``namespace/name``."""
    return {
        key: Waiting(pod.uid, _unschedulable_since(pod))
        for key, pod in snapshot.pods.items()
        if not pod.node and not pod.terminal
    }


def _unschedulable_since(pod: Pod) -> float | None:
    for condition in pod.conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
            return condition.since
    return None
