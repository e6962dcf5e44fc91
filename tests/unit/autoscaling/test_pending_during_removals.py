"""Pods that wait only for the end of a node that is being removed need no new node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import node, pod
from tests.unit.autoscaling.scale_up_helpers import NOW, group, reasons, sizes
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.plan import rfc3339
from trimtab.api.reasons import FITS_AFTER_REMOVALS
from trimtab.autoscaling.scale_up import PlanInputs, ScaleUpPlan, scale_up
from trimtab.cluster.snapshot import Snapshot

ZONE = "topology.kubernetes.io/zone"


def place(name: str, zone: str) -> Any:
    return node(name).allocatable(cpu="8", memory="16Gi", pods=20).zone(zone)


def planned(*more: Any, draining: bool = True, since: int = 5, **spread: str) -> ScaleUpPlan:
    """A node of zone east drains, the only one there; the pod from it waits, another one runs in zone west."""
    east = place("east-1", "east")
    if draining:
        east.taint("ToBeDeletedByClusterAutoscaler").taint("node.kubernetes.io/unschedulable")
    web = pod("web-w").labels(app="web").cpu("1").spread(ZONE, **spread).owned_by("ReplicaSet", "web")
    wants = pod("wants").labels(app="web").cpu("1").memory("1Gi").spread(ZONE, **spread)
    builders = [
        group().node_labels({ZONE: "east"}),
        east,
        place("west-1", "west"),
        web.on("west-1").ready(),
        wants.unschedulable(since=rfc3339(NOW - since)),
        *more,
    ]
    snapshot = Snapshot([each.build() for each in builders])
    before = dict(snapshot.pods), set(snapshot.nodes.slot_of)
    made = scale_up(snapshot, PlanInputs(ClusterAutoscalerSpec(), NOW))
    assert (snapshot.pods, set(snapshot.nodes.slot_of)) == before
    return made


def test_pod_whose_spread_waits_for_a_removed_node_needs_no_node() -> None:
    made = planned()
    assert (sizes(made), reasons(made)) == ({}, {"wants": FITS_AFTER_REMOVALS})
    (entry,) = [each for each in made.kept if each.name == "wants"]
    assert entry.node == "west-1"


@pytest.mark.parametrize(("since", "asks"), [(599, False), (600, True)])
def test_wait_for_a_removal_is_limited(since: int, asks: bool) -> None:
    assert bool(planned(since=since).actions) is asks


def test_pod_that_fits_while_the_node_drains_is_placed_there() -> None:
    assert reasons(planned(nodeTaintsPolicy="Honor")) == {"wants": "FitsOnNode"}


def test_pod_that_does_not_fit_without_the_node_either_gets_one() -> None:
    taken = pod("large").cpu("6500m").owned_by("ReplicaSet", "large").on("west-1").ready()
    assert planned(taken).actions
