"""An iteration plans with what runs already, also if the watch does not show it yet."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import pod
from tests.unit.autoscaling.scale_down_plans import LONG_AGO, NOW, flat, group, web, worker, workers
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.plan import RemoveNode, ScaleUp
from trimtab.autoscaling.cluster_state import AutoscalerState
from trimtab.autoscaling.groups import ExternalGroups
from trimtab.autoscaling.iteration import IterationInput, IterationResult, plan_iteration
from trimtab.cluster.snapshot import Snapshot

REMOVING = pytest.mark.parametrize(
    "draining", [pytest.param(False, id="not in the watch yet"), pytest.param(True, id="tainted")]
)


def planned(*parts: Any, removing: tuple[str, ...] = (), **spec: Any) -> tuple[IterationResult, Snapshot]:
    snapshot = Snapshot([each.build() for each in flat(parts)])
    status = {"unneeded": [{"name": f"n{number}", "since": LONG_AGO} for number in range(1, 5)]}
    iteration = IterationInput(
        spec=msgspec.convert({"scaleDown": {"enabled": True}, **spec}, ClusterAutoscalerSpec),
        status=msgspec.convert(status, ClusterAutoscalerStatus),
        state=AutoscalerState(),
        now=NOW,
        machine_autoscalers=(),
        external=ExternalGroups(),
        removing=removing,
    )
    return plan_iteration(snapshot, iteration), snapshot


def scale_ups(result: IterationResult) -> dict[str, int]:
    return {each.machine_set: each.to for each in result.plan.scaling or () if isinstance(each, ScaleUp)}


def removals(result: IterationResult) -> list[str]:
    return [each.node for each in result.plan.scaling or () if isinstance(each, RemoveNode)]


@REMOVING
def test_room_of_a_node_that_is_being_removed_is_not_counted(draining: bool) -> None:
    of = group(size=1, most=3)
    waiting = pod("waiting").cpu("3").owned_by("ReplicaSet", "waiting").unschedulable()
    there, machine = worker("n1", of)
    there = there.taint("ToBeDeletedByClusterAutoscaler") if draining else there
    there = (there, machine)

    assert scale_ups(planned(of, there, waiting, removing=("n1",))[0]) == {"openshift-machine-api/a": 2}
    if not draining:
        assert scale_ups(planned(of, there, waiting)[0]) == {}


def test_no_pod_is_moved_to_a_node_that_is_being_removed() -> None:
    of = group(size=2)
    cluster = of, workers(2, of), web("a", "n1", cpu="1")

    assert removals(planned(*cluster)[0]) == ["n2"]
    result, _ = planned(*cluster, removing=("n2",))
    assert removals(result) == []
    assert {each.name: each.reason for each in result.plan.kept if each.kind == "Node"}["n1"] == "NoPlaceToMovePods"


def test_snapshot_and_the_reported_nodes_stay_as_they_are() -> None:
    of = group(size=2)
    result, snapshot = planned(of, workers(2, of), removing=("n2", "gone"))

    assert [each.taints for each in result.nodes.values()] == [(), ()]
    assert [each.taints for each in snapshot.nodes.at if each is not None] == [(), ()]
