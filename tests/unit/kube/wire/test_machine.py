"""Machines and what makes them, as both APIs write them in all their versions."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from msgspec.structs import asdict

from tests.builders import (
    cluster_machine,
    cluster_machine_set,
    daemon_set,
    machine,
    machine_deployment,
    machine_pool,
    machine_set,
    pod,
)
from tests.fixtures.golden import Golden
from trimtab.kube.errors import InputError
from trimtab.kube.objects import (
    ClusterMachine,
    ClusterMachineSet,
    Machine,
    MachineDeployment,
    MachinePool,
    MachineSet,
    Taint,
)
from trimtab.kube.wire.decode import decode_object
from trimtab.kube.wire.files.reader import read_objects
from trimtab.kube.wire.projection.machine import propagated_labels

OPENSHIFT: dict[str, Any] = {
    "apiVersion": "machine.openshift.io/v1beta1",
    "kind": "MachineSet",
    "metadata": {
        "name": "workers-a",
        "namespace": "openshift-machine-api",
        "annotations": {
            "machine.openshift.io/vCPU": "4",
            "machine.openshift.io/memoryMb": "16384",
            "autoscaling.openshift.io/machineautoscaler": "openshift-machine-api/a",
            "capacity.cluster-autoscaler.kubernetes.io/labels": "kubernetes.io/arch=amd64",
            "unrelated.example/note": "x",
        },
    },
    "spec": {
        "replicas": 0,
        "deletePolicy": "Oldest",
        "selector": {"matchLabels": {"machine.openshift.io/cluster-api-machineset": "workers-a"}},
        "template": {
            "metadata": {"labels": {"machine.openshift.io/cluster-api-machineset": "workers-a"}},
            "spec": {
                "metadata": {"labels": {"node-role.kubernetes.io/infra": "", "pool": "a"}},
                "taints": [{"key": "infra", "effect": "NoSchedule", "value": "yes"}],
                "providerSpec": {"value": {"instanceType": "m6i.xlarge", "placement": {"availabilityZone": "a"}}},
                "lifecycleHooks": {},
            },
        },
    },
    "status": {"replicas": 0, "availableReplicas": 0, "authoritativeAPI": "MachineAPI"},
}


def test_a_machine_set_of_the_machine_api_is_read() -> None:
    value = decode_object(OPENSHIFT)

    assert isinstance(value, MachineSet)
    assert (value.key, value.replicas, value.delete_policy) == ("openshift-machine-api/workers-a", 0, "Oldest")
    assert value.node_labels == {"node-role.kubernetes.io/infra": "", "pool": "a"}
    assert value.node_taints == (Taint(key="infra", effect="NoSchedule", value="yes"),)
    assert value.machine_labels == {"machine.openshift.io/cluster-api-machineset": "workers-a"}
    assert value.authoritative_api == "MachineAPI"
    assert "unrelated.example/note" not in value.annotations
    assert len(value.annotations) == 4


def test_labels_and_taints_of_a_machines_node_are_read() -> None:
    kept = {"node.cluster.x-k8s.io/pool": "a"}
    for builder in (machine("m"), cluster_machine("m")):
        value = builder.node_labels(**kept).node_taint("a", "1").node_taint("b", effect="NoExecute").build()
        assert value.node_labels == kept
        assert value.node_taints == (Taint("a", "NoSchedule", "1"), Taint("b", "NoExecute"))
    assert cluster_machine("m").node_labels(own="x").build().node_labels == {}


def test_taints_on_initialization_are_read() -> None:
    value = cluster_machine_set().node_taint("a", propagation="Always").node_taint("b", propagation="OnInitialization")

    assert [each.key for each in value.build().node_taints] == ["a", "b"]
    assert [each.key for each in value.build().initial_taints] == ["b"]


@pytest.mark.parametrize(
    ("builder", "kind"),
    [
        (machine_set(), MachineSet),
        (machine(), Machine),
        (cluster_machine_set(), ClusterMachineSet),
        (cluster_machine_set(version="v1beta1"), ClusterMachineSet),
        (machine_deployment(), MachineDeployment),
        (machine_pool(version="v1beta1"), MachinePool),
        (cluster_machine(), ClusterMachine),
    ],
    ids=lambda value: value.manifest()["apiVersion"] if hasattr(value, "manifest") else value.__name__,
)
def test_each_api_has_its_own_types(builder, kind) -> None:
    assert type(builder.build()) is kind


def test_without_a_version_a_machine_set_is_the_machine_apis() -> None:
    assert type(decode_object({"kind": "MachineSet", "metadata": {"name": "a"}})) is MachineSet


@pytest.mark.parametrize("version", ["machine.sapcloud.io/v1alpha1", "cluster.k8s.io/v1alpha1"])
def test_machines_of_other_apis_are_ignored(version: str) -> None:
    assert decode_object({"apiVersion": version, "kind": "Machine", "metadata": {"name": "a"}}) is None


def test_an_unknown_version_of_a_known_api_is_an_error_that_names_the_known_ones(golden: Golden) -> None:
    manifest = {"apiVersion": "cluster.x-k8s.io/v1alpha4", "kind": "Machine", "metadata": {"name": "a"}}

    with pytest.raises(InputError) as caught:
        decode_object(manifest)

    assert caught.value.field == "apiVersion"
    golden(caught.value.message)


def test_machine_sets_of_both_apis_may_have_one_name() -> None:
    ours, theirs = machine_set("a", "x").manifest(), cluster_machine_set("a", "x").manifest()

    assert len(read_objects(io.BytesIO(_listed(ours, theirs))).objects) == 2
    with pytest.raises(InputError, match="is a duplicate"):
        read_objects(io.BytesIO(_listed(ours, theirs, ours)))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"errorReason": "A", "errorMessage": "b"}, ("A", "b")),
        ({"failureReason": "A", "failureMessage": "b"}, ("A", "b")),
        ({"deprecated": {"v1beta1": {"failureReason": "A", "failureMessage": "b"}}}, ("A", "b")),
        ({}, ("", "")),
    ],
    ids=["Machine API", "Cluster API v1beta1", "Cluster API v1beta2", "none"],
)
def test_a_failure_is_read_in_every_version(status: dict[str, Any], expected: tuple[str, str]) -> None:
    for builder in (machine(), cluster_machine(), machine_set(), machine_pool()):
        value = builder.merge(status=status).build()
        assert (value.error_reason, value.error_message) == expected


def test_a_machine_names_its_node_and_its_owner() -> None:
    value = machine_set("workers-a").machine("a-1").on("n1").provider_id("aws:///a/i-1").build()

    assert (value.node, value.phase, value.provider_id) == ("n1", "Running", "aws:///a/i-1")
    assert [(owner.kind, owner.name) for owner in value.owners] == [("MachineSet", "workers-a")]


def test_cluster_api_propagates_labels_of_three_domains() -> None:
    handed = {
        "node-role.kubernetes.io/worker": "",
        "node-restriction.kubernetes.io/pool": "a",
        "team.node-restriction.kubernetes.io/pool": "b",
        "node.cluster.x-k8s.io/pool": "c",
        "gpu.node.cluster.x-k8s.io/pool": "d",
    }
    own = {"pool": "e", "example.com/pool": "f", "xnode.cluster.x-k8s.io/p": "", "node-role.kubernetes.io": ""}

    assert propagated_labels(handed | own) == handed
    assert machine_deployment().node_labels(handed | own).build().node_labels == handed


def test_a_pool_names_its_machines_by_provider_and_its_nodes() -> None:
    value = (
        machine_pool()
        .merge(spec={"providerIDList": ["x://1"]}, status={"nodeRefs": [{"name": "n1", "uid": "u1"}]})
        .build()
    )

    assert (value.provider_ids, value.nodes) == (("x://1",), (("n1", "u1"),))


@pytest.mark.parametrize(
    ("spec", "policy"), [({"deletePolicy": "Newest"}, "Newest"), ({"deletion": {"order": "Oldest"}}, "Oldest")]
)
def test_the_delete_policy_is_read_in_both_versions(spec: dict[str, Any], policy: str) -> None:
    assert cluster_machine_set().merge(spec=spec).build().delete_policy == policy


@pytest.mark.parametrize(
    ("builder", "field", "words"),
    [
        (machine_set().replicas(-1), "spec.replicas", "must be between 0 and"),
        (machine_set().merge(spec={"replicas": "3"}), "spec.replicas", "expected int"),
        (machine_set().node_taint("a", effect="Never"), "spec.template.spec.taints[0].effect", "NoSchedule"),
        (machine().merge(spec={"taints": [{"key": "a"}]}), "spec.taints[0].effect", "is required"),
        (machine().merge(status={"nodeRef": "n1"}), "status.nodeRef", "expected object"),
        (daemon_set().of_pods(pod().cpu("many")), "spec.template.spec.containers[0].resources.requests.cpu", "many"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_fields_are_refused_with_object_and_field(builder, field: str, words: str) -> None:
    manifest = builder.manifest()
    name = f"{manifest['kind']}/{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"

    with pytest.raises(InputError) as caught:
        read_objects(io.BytesIO(_listed(manifest)))

    assert (caught.value.object, caught.value.field) == (name, field)
    assert words in caught.value.message


def test_an_invalid_machine_does_not_stop_the_others() -> None:
    recorded: list[InputError] = []
    text = _listed(machine_set().replicas(-1).manifest(), machine("good").manifest())

    found = read_objects(io.BytesIO(text), skip_invalid=recorded.append)

    assert [asdict(each)["name"] for each in found.objects] == ["good"]
    assert len(recorded) == 1


def test_requests_of_a_daemon_sets_pods_are_read() -> None:
    value = daemon_set().of_pods(pod().cpu("150m").tolerates()).build()

    assert value.template.spec.requests == {"cpu": 150}
    assert value.template.labels == {"app": "agent"}


def _listed(*manifests: dict[str, Any]) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)}).encode()


def test_machine_names_its_node_and_cluster() -> None:
    made = cluster_machine().on("n1")

    assert (made.build().node, made.build().node_uid, made.build().cluster) == ("n1", "node--n1", "")
    assert made.labels({"cluster.x-k8s.io/cluster-name": "prod"}).build().cluster == "prod"
    assert made.merge(spec={"clusterName": "dev"}).build().cluster == "dev"


def test_node_group_names_its_cluster() -> None:
    assert machine_pool().merge(spec={"clusterName": "dev"}).build().cluster == "dev"
    assert machine_set().labels({"machine.openshift.io/cluster-api-cluster": "infra"}).build().cluster == "infra"
