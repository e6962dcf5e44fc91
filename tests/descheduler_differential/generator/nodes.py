"""Nodes: sizes, zones, taints, cordons, and some that are not ready."""

from __future__ import annotations

from typing import Final

from tests.builders import NodeBuilder, node
from tests.differential.generator.chance import Chance

ZONES: Final = ("a", "b", "c")
DISKS: Final = ("ssd", "hdd")
TAINTS: Final = ("dedicated", "spot")
NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"


def random_node(chance: Chance, name: str) -> NodeBuilder:
    """A node; one in some has no zone, is tainted, cordoned or not ready."""
    made = node(name).labels(disk=chance.pick(*DISKS))
    if not chance.one_in(8):
        made.zone(chance.pick(*ZONES))
    made.allocatable(
        cpu=chance.pick("2", "4", "8", "8", "16", "3900m"),
        memory=chance.pick("4Gi", "8Gi", "16Gi", "16Gi", "32Gi", "7812Mi"),
        pods=chance.pick("8", "30", "30", "110"),
    )
    if chance.one_in(4):
        effect = chance.pick("NoSchedule", "NoSchedule", "PreferNoSchedule", "NoExecute")
        made.taint(chance.pick(*TAINTS), chance.pick("", "db"), effect)
    if chance.one_in(12):
        made.cordoned()
    if chance.one_in(20):
        made.taint(UNREACHABLE)  # it is back, and the taint is about to go
    elif chance.one_in(16):
        made.not_ready().taint(NOT_READY).taint(NOT_READY, effect="NoExecute")
    return made
