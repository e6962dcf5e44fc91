"""Nodes: sizes, zones, taints, cordons, and some that are not ready."""

from __future__ import annotations

from typing import Final

from tests.builders import NodeBuilder, node
from tests.differential.generator.rng import RandomSource

ZONES: Final = ("a", "b", "c")
DISKS: Final = ("ssd", "hdd")
TAINTS: Final = ("dedicated", "spot")
NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"


def random_node(rng: RandomSource, name: str) -> NodeBuilder:
    """Generate a node; some nodes have no zone, or are tainted, cordoned or not ready."""
    made = node(name).labels(disk=rng.pick(*DISKS))
    if not rng.one_in(8):
        made.zone(rng.pick(*ZONES))
    made.allocatable(
        cpu=rng.pick("2", "4", "8", "8", "16", "3900m"),
        memory=rng.pick("4Gi", "8Gi", "16Gi", "16Gi", "32Gi", "7812Mi"),
        pods=rng.pick("8", "30", "30", "110"),
    )
    if rng.one_in(4):
        effect = rng.pick("NoSchedule", "NoSchedule", "PreferNoSchedule", "NoExecute")
        made.taint(rng.pick(*TAINTS), rng.pick("", "db"), effect)
    if rng.one_in(12):
        made.cordoned()
    if rng.one_in(20):
        made.taint(UNREACHABLE)  # the node is ready again, but still has the taint
    elif rng.one_in(16):
        made.not_ready().taint(NOT_READY).taint(NOT_READY, effect="NoExecute")
    return made
