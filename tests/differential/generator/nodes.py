"""Nodes: sizes, labels, taints, cordons and images."""

from __future__ import annotations

import copy
from typing import Final

from tests.builders import HOSTNAME, NodeBuilder, node
from tests.differential.api_client import Manifest
from tests.differential.generator.feature_mix import FeatureMix
from tests.differential.generator.names import GPU, IMAGES, REGION, REGIONS, RESTART_FEATURE, ZONES
from tests.differential.generator.rng import RandomSource
from trimtab.cluster.disruption_signals import as_draining
from trimtab.kube.objects import Node
from trimtab.kube.wire.decode import decode_object

GENERATIONS: Final = ("1", "5", "10", "007", "new", "1e1", "99999999999999999999")


def random_node(rng: RandomSource, name: str, mix: FeatureMix) -> NodeBuilder:
    """Generate a node; some nodes have no zone or hostname, a taint or little capacity, or are cordoned."""
    made = node(name).labels(disk=rng.pick("ssd", "hdd"), gen=rng.pick(*GENERATIONS))
    if not rng.one_in(6):
        made.zone(rng.pick(*ZONES))
    if not rng.one_in(4):
        made.labels({REGION: rng.pick(*REGIONS)})
    if rng.one_in(3):
        made.labels(rack=rng.pick("r1", "r2", ""))
    if rng.one_in(15):
        made.merge(metadata={"labels": {HOSTNAME: "same"}})
    elif rng.one_in(20):
        del made._at("metadata", "labels")[HOSTNAME]
    _sizes(rng, made)
    if rng.one_in(mix.taints):
        _taints(rng, made)
    if rng.one_in(3):
        held = rng.sample(sorted(IMAGES), rng.number(1, 3))
        # The size is the same on all nodes. If nodes report different sizes, kube-scheduler uses a random one of them.
        images = [{"names": [name, f"{name.partition(':')[0]}@sha256:0"], "sizeBytes": IMAGES[name]} for name in held]
        made.merge(status={"images": images})
    if rng.one_in(3):
        made.merge(status={"declaredFeatures": rng.pick([], [RESTART_FEATURE], ["Another", RESTART_FEATURE])})
    return made


def drained(manifest: Manifest) -> Manifest:
    """Return the manifest of a node as it is while an autoscaler drains it."""
    node = decode_object(manifest)
    assert isinstance(node, Node)
    found = copy.deepcopy(manifest)
    taints = [{"key": each.key, "value": each.value, "effect": each.effect} for each in as_draining(node).taints]
    found["spec"] |= {"unschedulable": True, "taints": taints}
    return found


def _sizes(rng: RandomSource, made: NodeBuilder) -> None:
    made.allocatable(
        cpu=rng.pick("4", "8", "16", "16", "7900m", "3930m", "6.5"),
        memory=rng.pick("4Gi", "16Gi", "7812Mi", "16374564Ki", "15.5G", "12e9"),
        pods=rng.pick("5", "10", "30", "30", "110", "110"),
    )
    if rng.one_in(2):
        made.allocatable({"ephemeral-storage": rng.pick("5Gi", "50Gi")})
    if rng.one_in(3):
        made.allocatable({GPU: rng.pick("1", "2", "4")})
    if rng.one_in(8):
        made.allocatable({"hugepages-2Mi": rng.pick("64Mi", "128Mi")})
    if rng.one_in(4):
        made.capacity(cpu="32")  # kube-scheduler ignores the capacity that is reserved for the system


def _taints(rng: RandomSource, made: NodeBuilder) -> None:
    if rng.one_in(15):
        made.merge(spec={"unschedulable": True})
        if rng.one_in(2):
            made.taint("node.kubernetes.io/unschedulable")
    for key in rng.pick(*((),) * 6, ("t",), ("t", "u"), ("soft",), ("soft",)):
        effects = ("PreferNoSchedule",) if key == "soft" else ("NoSchedule", "NoExecute", "PreferNoSchedule")
        made.taint(key, rng.pick("", "v", "w"), rng.pick(*effects))
    if rng.one_in(20):
        made.taint("node.kubernetes.io/not-ready", "", rng.pick("NoSchedule", "NoExecute"))
