"""How many more instances of a pod fit, and what limits them."""

from __future__ import annotations

from typing import Any

from tests.builders import machine_set, node, pod
from trimtab.api.cluster_autoscaler import ClusterAutoscaler, ClusterAutoscalerSpec
from trimtab.cluster.snapshot import Snapshot
from trimtab.inspection.applied_objects import pod_of
from trimtab.inspection.capacity import capacity
from trimtab.inspection.cluster import ClusterInput, PolicySet

AUTOSCALED = PolicySet(cluster_autoscaler=ClusterAutoscaler(spec=ClusterAutoscalerSpec()))


def counted(template: Any, *objects: Any, policies: PolicySet | None = None, limit: int = 1000) -> dict[str, Any]:
    made = ClusterInput(snapshot=Snapshot(each.build() for each in objects), now=0.0, policies=policies or PolicySet())
    before = dict(made.snapshot.pods)
    found = capacity(made, pod_of(made.snapshot, template.manifest(), now=0.0), limit=limit)
    assert made.snapshot.pods == before
    return found


def test_instances_are_counted_by_node() -> None:
    found = counted(pod("p").cpu("1500m"), node("n1"), node("n2").allocatable(cpu="2"), pod("x").on("n1").cpu("1"))

    assert found["instances"] == 3
    assert found["nodes"] == [{"node": "n1", "instances": 2}, {"node": "n2", "instances": 1}]
    assert found["limitedBy"] == "Insufficient cpu"
    assert found["withNodeGroups"] is None


def test_pending_pods_are_ignored_and_running_pods_are_not_preempted() -> None:
    found = counted(pod("p").cpu("1").priority(100), node("n1"), pod("x").on("n1").cpu("3"), pod("y").cpu("1"))
    assert found["instances"] == 1


def test_anti_affinity_limits_to_one_instance_per_node() -> None:
    found = counted(pod("p").labels(app="p").anti_affinity(), node("n1"), node("n2"), node("n3").taint("gpu"))
    assert found["instances"] == 2
    assert found["limitedBy"] == "node(s) didn't match pod anti-affinity rules"


def test_limit_ends_the_count() -> None:
    assert counted(pod("p"), node("n1"), limit=5)["limitedBy"] == "limit"


def test_cluster_without_nodes_fits_nothing() -> None:
    found = counted(pod("p"))
    assert (found["instances"], found["limitedBy"]) == (0, "no nodes available to schedule pods")


def test_node_groups_add_instances_up_to_their_maximum() -> None:
    group = machine_set("workers").replicas(1).limits(0, 3).capacity(cpu="4", memory="16Gi")
    found = counted(pod("p").cpu("1500m"), node("n1"), group, group.machine("m").on("n1"), policies=AUTOSCALED)

    assert found["instances"] == 2
    assert found["withNodeGroups"] == 6
    assert found["nodeGroups"] == [{"nodeGroup": "openshift-machine-api/workers", "from": 1, "to": 3, "instances": 4}]
    assert found["limitedByWithNodeGroups"] == "MaxSizeReached"
