"""What a snapshot keeps of an object."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from tests.builders import (
    attachment,
    budget,
    capacity,
    csi_driver,
    csi_node,
    daemon_set,
    machine_deployment,
    machine_pool,
    machine_set,
    node,
    pod,
    pv,
    pvc,
    replica_set,
    replication_controller,
    service,
    stateful_set,
    storage_class,
)
from trimtab.cli.redaction import redact
from trimtab.cluster.kinds import AUTOSCALING, OWNERS, VOLUMES
from trimtab.kube.wire import decode_object

SECRET = "s3cr3t"


def loaded_pod() -> dict[str, Any]:
    """A pod with something private wherever a pod can have it, and something planners read beside it."""
    private: dict[str, Any] = {
        "command": ["run", f"--password={SECRET}"],
        "args": [SECRET],
        "env": [{"name": "PASSWORD", "value": SECRET}],
        "envFrom": [{"secretRef": {"name": SECRET}}],
        "livenessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "Authorization", "value": SECRET}]}},
        "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
        "fieldOfALaterKubernetes": SECRET,
    }
    manifest = (
        pod("web-1", namespace="shop")
        .on("n1")
        .cpu("500m", "1")
        .host_port(8080)
        .anti_affinity()
        .volume("emptyDir")
        .volume("persistentVolumeClaim", claimName="data")
        .volume("secret", secretName=SECRET)
        .volume("projected", sources=[{"secret": {"name": SECRET}}])
        .volume("csi", driver="d", volumeAttributes={"token": SECRET})
        .volume("gitRepo", repository=f"https://{SECRET}@example.com/x.git")
        .init_container("sidecar", restartPolicy="Always", resources={"requests": {"cpu": "1"}}, **private)
        .annotations({"kubectl.kubernetes.io/last-applied-configuration": SECRET, "team": "shop"})
        .ready()
        .restarted(3)
        .manifest()
    )
    manifest["metadata"]["managedFields"] = [{"manager": SECRET}]
    manifest["spec"]["containers"][0] |= private
    manifest["spec"]["ephemeralContainers"] = [{"name": "debug", "command": [SECRET]}]
    state = {"terminated": {"exitCode": 1, "reason": "Error", "message": f"log: {SECRET}"}}
    manifest["status"]["containerStatuses"][0] |= {"lastState": state, "state": {"running": {"startedAt": None}}}
    manifest["status"]["ephemeralContainerStatuses"] = [{"name": "debug", "state": state}]
    return manifest


def test_nothing_private_is_left_of_a_pod() -> None:
    assert SECRET not in msgspec.json.encode(redact("Pod", loaded_pod())).decode()


def test_planners_read_the_same_before_and_after() -> None:
    before = loaded_pod()

    assert decode_object(redact("Pod", copy.deepcopy(before))) == decode_object(before)


def private(kind: str) -> dict[str, Any]:
    """An object of a kind with something private wherever it can have it."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": loaded_pod()["spec"]}
    secret_ref = {"name": SECRET, "namespace": SECRET}
    csi = {"nodeStageSecretRef": secret_ref, "volumeAttributes": {"token": SECRET}, "fsType": SECRET}
    provided = {
        "providerSpec": {"value": {"userDataSecret": {"name": SECRET}, "instanceType": "m5.large"}},
        "lifecycleHooks": {"preDrain": [SECRET]},
    }
    provided |= {"bootstrap": {"dataSecretName": SECRET}, "infrastructureRef": {"name": "large", "namespace": SECRET}}
    machine_parts = {"spec": provided, "status": {"addresses": [{"address": SECRET}], "providerStatus": {"id": SECRET}}}
    set_parts = {"spec": {"template": {"spec": provided}, "strategy": SECRET}, "status": {"conditions": [SECRET]}}
    claims = {"volumeClaimTemplates": [{"spec": {"dataSource": {"name": SECRET}}}], "serviceName": SECRET}
    builders: dict[str, Any] = {
        "PersistentVolume": pv().claimed_by("data").on("n1").merge(spec={"csi": csi, "mountOptions": [SECRET]}),
        "PersistentVolumeClaim": pvc().bound_to("volume-1").merge(spec={"dataSource": {"name": SECRET}}),
        "StorageClass": storage_class().merge(parameters={"restuserkey": SECRET}, mountOptions=[SECRET]),
        "CSINode": csi_node().driver("a", 5),
        "CSIDriver": csi_driver(storage_capacity=True).merge(spec={"tokenRequests": [{"audience": SECRET}]}),
        "CSIStorageCapacity": capacity().where(zone="a"),
        "VolumeAttachment": attachment("a", "volume-1", "n1").merge(
            spec={"source": {"inlineVolumeSpec": {"csi": csi}}}, status={"attachmentMetadata": {"x": SECRET}}
        ),
        "Service": service().selecting(app="web").merge(spec={"externalName": SECRET, "externalIPs": [SECRET]}),
        "ReplicationController": replication_controller().selecting(app="web").merge(spec={"template": template}),
        "ReplicaSet": replica_set().selecting(app="web").merge(spec={"template": template}),
        "StatefulSet": stateful_set().selecting(app="web").merge(spec={"template": template, **claims}),
        "DaemonSet": daemon_set().merge(spec={"template": template}, status={"conditions": [SECRET]}),
        "Machine": machine_set().machine("a-1").on("n1").failed().merge(**machine_parts),
        "MachineSet": machine_set().limits(0, 3).node_labels(a="b").node_taint("c").merge(**set_parts),
        "MachineDeployment": machine_deployment().node_labels({"node-role.kubernetes.io/a": ""}).merge(**set_parts),
        "MachinePool": machine_pool().merge(spec={"providerIDList": ["x://1"]}, status={"nodeRefs": [{"name": "n"}]}),
    }
    manifest: dict[str, Any] = builders[kind].manifest()
    manifest["metadata"]["managedFields"] = [{"manager": SECRET}]
    return manifest


NEWER = list(dict.fromkeys(resource.kind for resource in (*VOLUMES, *OWNERS, *AUTOSCALING)))


@pytest.mark.parametrize("kind", NEWER)
def test_nothing_private_is_left_of_volumes_owners_and_machines(kind) -> None:
    assert SECRET not in msgspec.json.encode(redact(kind, private(kind))).decode()


@pytest.mark.parametrize("kind", NEWER)
def test_planners_read_the_same_of_them_before_and_after(kind) -> None:
    assert decode_object(redact(kind, private(kind))) == decode_object(private(kind))


@pytest.mark.parametrize("kind", NEWER)
@pytest.mark.parametrize("parts", [{}, {"metadata": None, "spec": None, "status": None}], ids=["empty", "nulls"])
def test_sparse_ones_are_no_trouble(kind, parts) -> None:
    redact(kind, dict(parts))


@pytest.mark.parametrize(
    ("kind", "source", "kept"),
    [
        ("nfs", {"server": SECRET, "path": SECRET}, {}),
        ("azureFile", {"secretName": SECRET, "shareName": SECRET}, {}),
        (
            "azureDisk",
            {"diskURI": "/x", "kind": "Managed", "cachingMode": "None"},
            {"diskURI": "/x", "kind": "Managed"},
        ),
        ("aSourceOfALaterKubernetes", {"token": SECRET}, {}),
    ],
)
def test_of_a_volumes_source_only_the_disk_stays(kind, source, kept) -> None:
    assert redact("PersistentVolume", pv().source(kind, **source).manifest())["spec"][kind] == kept


def test_reasons_of_container_states_stay_for_strategies_that_ask_for_them() -> None:
    redacted = redact("Pod", loaded_pod())

    assert redacted["status"]["containerStatuses"][0]["lastState"] == {"terminated": {"exitCode": 1, "reason": "Error"}}


def test_other_annotations_stay() -> None:
    assert redact("Pod", loaded_pod())["metadata"]["annotations"] == {"team": "shop"}


@pytest.mark.parametrize("built", [node("n1").zone("a").taint("x"), budget("b").selecting(app="web")], ids=str)
def test_other_kinds_lose_their_managed_fields_only(built) -> None:
    manifest = built.manifest()
    managed = copy.deepcopy(manifest)
    managed["metadata"]["managedFields"] = [{"manager": "kubectl"}]

    assert redact(manifest["kind"], managed) == manifest


@pytest.mark.parametrize(
    "sparse",
    [{}, {"metadata": None, "spec": None, "status": None}, {"spec": {"containers": None, "volumes": None}}],
    ids=["empty", "nulls", "null lists"],
)
def test_sparse_objects_are_no_trouble(sparse) -> None:
    redact("Pod", sparse)
