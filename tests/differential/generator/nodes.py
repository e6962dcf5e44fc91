"""Nodes: sizes, labels, taints, cordons and images."""

from __future__ import annotations

from typing import Final

from tests.builders import HOSTNAME, NodeBuilder, node
from tests.differential.generator.chance import Chance
from tests.differential.generator.names import GPU, IMAGES, REGION, REGIONS, RESTARTS, ZONES
from tests.differential.generator.theme import Theme

GENERATIONS: Final = ("1", "5", "10", "007", "new", "1e1", "99999999999999999999")


def random_node(chance: Chance, name: str, theme: Theme) -> NodeBuilder:
    """A node; one in some has no zone, no hostname, a taint, a cordon, or is small."""
    made = node(name).labels(disk=chance.pick("ssd", "hdd"), gen=chance.pick(*GENERATIONS))
    if not chance.one_in(6):
        made.zone(chance.pick(*ZONES))
    if not chance.one_in(4):
        made.labels({REGION: chance.pick(*REGIONS)})
    if chance.one_in(3):
        made.labels(rack=chance.pick("r1", "r2", ""))
    if chance.one_in(15):
        made.merge(metadata={"labels": {HOSTNAME: "same"}})
    elif chance.one_in(20):
        del made._at("metadata", "labels")[HOSTNAME]
    _sizes(chance, made)
    if chance.one_in(theme.taints):
        _taints(chance, made)
    if chance.one_in(3):
        held = chance.sample(sorted(IMAGES), chance.number(1, 3))
        # The same size everywhere: where nodes tell different ones it is chance which of them kube-scheduler goes by.
        images = [{"names": [name, f"{name.partition(':')[0]}@sha256:0"], "sizeBytes": IMAGES[name]} for name in held]
        made.merge(status={"images": images})
    if chance.one_in(3):
        made.merge(status={"declaredFeatures": chance.pick([], [RESTARTS], ["Another", RESTARTS])})
    return made


def _sizes(chance: Chance, made: NodeBuilder) -> None:
    made.allocatable(
        cpu=chance.pick("4", "8", "16", "16", "7900m", "3930m", "6.5"),
        memory=chance.pick("4Gi", "16Gi", "7812Mi", "16374564Ki", "15.5G", "12e9"),
        pods=chance.pick("5", "10", "30", "30", "110", "110"),
    )
    if chance.one_in(2):
        made.allocatable({"ephemeral-storage": chance.pick("5Gi", "50Gi")})
    if chance.one_in(3):
        made.allocatable({GPU: chance.pick("1", "2", "4")})
    if chance.one_in(8):
        made.allocatable({"hugepages-2Mi": chance.pick("64Mi", "128Mi")})
    if chance.one_in(4):
        made.capacity(cpu="32")  # what the node keeps for itself is no matter of the scheduler's


def _taints(chance: Chance, made: NodeBuilder) -> None:
    if chance.one_in(15):
        made.merge(spec={"unschedulable": True})
        if chance.one_in(2):
            made.taint("node.kubernetes.io/unschedulable")
    for key in chance.pick(*((),) * 6, ("t",), ("t", "u"), ("soft",), ("soft",)):
        effects = ("PreferNoSchedule",) if key == "soft" else ("NoSchedule", "NoExecute", "PreferNoSchedule")
        made.taint(key, chance.pick("", "v", "w"), chance.pick(*effects))
    if chance.one_in(20):
        made.taint("node.kubernetes.io/not-ready", "", chance.pick("NoSchedule", "NoExecute"))
