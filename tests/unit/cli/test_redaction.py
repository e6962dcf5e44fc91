"""What a snapshot keeps of an object."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.builders import (
    NOW,
    attachment,
    budget,
    capacity,
    csi_driver,
    csi_node,
    daemon_set,
    eviction_request,
    job,
    limit_range,
    machine_deployment,
    machine_pool,
    machine_set,
    namespace,
    node,
    pod,
    priority_class,
    pv,
    pvc,
    replica_set,
    replication_controller,
    runtime_class,
    service,
    stateful_set,
    storage_class,
    vertical_pod_autoscaler,
)
from tests.unit.inspection.test_history import entry, record
from tests.validity.objects import OBJECTS
from trimtab.api import decode
from trimtab.cli import redaction
from trimtab.cli.redaction import redact
from trimtab.cluster.kinds import ADDITIONAL, AUTOSCALING, OWNERS, VOLUMES
from trimtab.inspection.history import entries_of
from trimtab.kube.rules.in_tree_volumes import TranslationError, handle_of
from trimtab.kube.wire.decode import decode_object

SECRET = "s3cr3t"
EXAMPLES = Path(__file__).parents[3] / "examples"


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


def test_private_pod_fields_are_removed() -> None:
    assert SECRET not in msgspec.json.encode(redact("Pod", loaded_pod())).decode()


def test_redaction_does_not_change_decoded_pods() -> None:
    before = loaded_pod()

    assert decode_object(redact("Pod", copy.deepcopy(before))) == decode_object(before)


def rewritten(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest with the texts that a snapshot rewrites; all else is as it was."""
    plain = copy.deepcopy(manifest)
    spec = plain.get("spec") or {}
    for source, key in (("csi", "volumeHandle"), ("awsElasticBlockStore", "volumeID")):
        if (spec.get(source) or {}).get(key):
            spec[source][key] = redaction._volume_pseudonym(spec[source][key])
    if spec.get("providerID"):
        spec["providerID"] = redaction._instance_pseudonym(spec["providerID"])
    if spec.get("providerIDList"):
        spec["providerIDList"] = list(map(redaction._instance_pseudonym, spec["providerIDList"]))
    status = plain.get("status") or {}
    for key in ("errorMessage", "failureMessage"):
        if status.get(key):
            status[key] = redaction.LEFT_OUT
    return plain


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
        "Job": job().merge(
            spec={"template": template}, status={"conditions": [{"type": "Suspended", "message": SECRET}]}
        ),
        "LimitRange": limit_range().containers(defaultRequest={"cpu": "1"}).merge(status={"x": SECRET}),
        "RuntimeClass": runtime_class().merge(handler=SECRET).overhead(cpu="1"),
        "VerticalPodAutoscaler": vertical_pod_autoscaler().merge(
            spec={"resourcePolicy": {"x": SECRET}}, status={"recommendation": {"x": SECRET}}
        ),
        "EvictionRequest": eviction_request().ended("Failed").merge(status={"message": SECRET}),
        "DaemonSet": daemon_set().merge(spec={"template": template}, status={"conditions": [SECRET]}),
        "Machine": machine_set().machine("a-1").on("n1").failed().merge(**machine_parts),
        "MachineSet": machine_set().limits(0, 3).node_labels(a="b").node_taint("c").merge(**set_parts),
        "MachineDeployment": machine_deployment().node_labels({"node-role.kubernetes.io/a": ""}).merge(**set_parts),
        "MachinePool": machine_pool().merge(spec={"providerIDList": ["x://1"]}, status={"nodeRefs": [{"name": "n"}]}),
    }
    manifest: dict[str, Any] = builders[kind].manifest()
    manifest["metadata"]["managedFields"] = [{"manager": SECRET}]
    return manifest


NEWER = list(dict.fromkeys(resource.kind for resource in (*VOLUMES, *OWNERS, *ADDITIONAL, *AUTOSCALING)))


@pytest.mark.parametrize("kind", NEWER)
def test_private_fields_of_other_kinds_are_removed(kind) -> None:
    assert SECRET not in msgspec.json.encode(redact(kind, private(kind))).decode()


@pytest.mark.parametrize("kind", NEWER)
def test_redaction_does_not_change_decoded_volumes_owners_and_machines(kind) -> None:
    assert decode_object(redact(kind, private(kind))) == decode_object(rewritten(private(kind)))


def _kind_of(manifest: dict[str, Any]) -> str:
    return str(manifest["kind"])


RICH = {
    "Node": node("n1").zone("a").taint("x", added=NOW).image("a:1", size=5).annotations({"trimtab.dev/note": "x"}),
    "Namespace": namespace("a").labels(a="b").annotations({"scheduler.alpha.kubernetes.io/node-selector": "a=b"}),
    "PriorityClass": priority_class("high", 7).by_default(),
    "PodDisruptionBudget": budget("b").selecting(app="web").disrupted("web-1").unhealthy_policy("AlwaysAllow"),
}


@pytest.mark.parametrize("manifest", [*OBJECTS.values(), *(each.manifest() for each in RICH.values())], ids=_kind_of)
def test_redaction_does_not_change_decoded_objects_of_any_kind(manifest) -> None:
    assert decode_object(redact(manifest["kind"], copy.deepcopy(manifest))) == decode_object(rewritten(manifest))


@pytest.mark.parametrize("kind", NEWER)
@pytest.mark.parametrize("parts", [{}, {"metadata": None, "spec": None, "status": None}], ids=["empty", "nulls"])
def test_sparse_volumes_owners_and_machines_are_redacted(kind, parts) -> None:
    redact(kind, dict(parts))


@pytest.mark.parametrize(
    ("kind", "source", "kept"),
    [
        ("nfs", {"server": SECRET, "path": SECRET}, {}),
        ("azureFile", {"secretName": SECRET, "shareName": SECRET}, {}),
        (
            "azureDisk",
            {"diskURI": "", "kind": "Managed", "cachingMode": "None"},
            {"diskURI": "", "kind": "Managed"},
        ),
        ("aSourceOfALaterKubernetes", {"token": SECRET}, None),
    ],
)
def test_only_the_disk_of_a_volume_source_is_kept(kind, source, kept) -> None:
    assert redact("PersistentVolume", pv().source(kind, **source).manifest())["spec"].get(kind) == kept


def test_reasons_of_container_states_are_kept() -> None:
    redacted = redact("Pod", loaded_pod())

    assert redacted["status"]["containerStatuses"][0]["lastState"] == {"terminated": {"exitCode": 1, "reason": "Error"}}


def test_only_annotations_that_are_read_are_kept() -> None:
    manifest = loaded_pod()
    manifest["metadata"]["annotations"]["trimtab.dev/note"] = "read"

    assert redact("Pod", manifest)["metadata"]["annotations"] == {"trimtab.dev/note": "read"}


PRIVATE_FIELDS = {"args", "bootstrap", "command", "data", "env", "envFrom", "httpGet", "lifecycle", "livenessProbe"}
PRIVATE_FIELDS |= {"options", "parameters", "secret", "secretName", "secretRef", "stringData", "userDataSecret"}


def test_no_kind_keeps_secret_fields() -> None:
    """Snapshot files contain every field of slim.proto: this fails if one that may hold a secret is added there."""
    kept = {kind: PRIVATE_FIELDS & set(keys(fields)) for kind, fields in redaction._BY_KIND.items()}
    assert len(kept) > 20
    assert {kind: fields for kind, fields in kept.items() if fields} == {}


def keys(allowed: Any) -> list[str]:
    if allowed is None or callable(allowed):
        return []
    return [each for key, below in allowed.items() for each in (key, *keys(below))]


@pytest.mark.parametrize(
    "built", [node("n1").zone("a").taint("x"), budget("b").selecting(app="web")], ids=["node", "budget"]
)
def test_other_fields_of_nodes_and_budgets_are_kept(built) -> None:
    manifest = built.manifest()
    managed = copy.deepcopy(manifest)
    managed["metadata"]["managedFields"] = [{"manager": "kubectl"}]

    assert redact(manifest["kind"], managed) == manifest


def test_of_managed_fields_the_entries_for_a_node_name_are_kept() -> None:
    fields = {
        "f:metadata": {"f:labels": {SECRET: {}}},
        "f:spec": {"f:nodeName": {SECRET: {}}, "f:containers": {SECRET: {}}},
    }
    entries = [{"manager": SECRET, "fieldsV1": fields}, {"fieldsV1": {"f:status": {}}}, SECRET]
    manifest = pod("web").on("n1").merge(metadata={"managedFields": entries}).manifest()

    assert redact("Pod", manifest)["metadata"]["managedFields"] == [{"fieldsV1": {"f:spec": {"f:nodeName": {}}}}]


@pytest.mark.parametrize(
    "sparse",
    [{}, {"metadata": None, "spec": None, "status": None}, {"spec": {"containers": None, "volumes": None}}],
    ids=["empty", "nulls", "null lists"],
)
def test_sparse_pods_are_redacted(sparse) -> None:
    redact("Pod", sparse)


def _known_places() -> dict[str, dict[str, Any]]:
    """By kind: an object with a secret in each place of which it is known that people or programs put one there."""
    notes = {
        "kubectl.kubernetes.io/last-applied-configuration": SECRET,
        "kapp.k14s.io/original": SECRET,
        "objectset.rio.cattle.io/applied": SECRET,
        "banzaicloud.com/last-applied": SECRET,
        "vault.hashicorp.com/agent-inject-template-x": SECRET,
        "kubernetes.io/change-cause": SECRET,
    }
    volumes = {
        "csi": {"driver": "d", "nodePublishSecretRef": {"name": SECRET}, "volumeAttributes": {"k": SECRET}},
        "azureFile": {"secretName": SECRET, "shareName": SECRET},
        "iscsi": {"targetPortal": SECRET, "iqn": "i", "lun": 1, "secretRef": {"name": SECRET}},
        "flexVolume": {"driver": "d", "secretRef": {"name": SECRET}, "options": {"p": SECRET}},
        "cephfs": {"monitors": [SECRET], "user": SECRET, "secretRef": {"name": SECRET}, "secretFile": SECRET},
        "ephemeral": {"volumeClaimTemplate": {"metadata": {"annotations": notes}, "spec": {}}},
        "image": {"reference": f"user:{SECRET}@registry.example/x"},
        "secret": {"secretName": SECRET},
        "configMap": {"name": SECRET},
        "projected": {"sources": [{"secret": {"name": SECRET}}]},
        "hostPath": {"path": SECRET},
    }
    container = {
        "name": "c",
        "image": f"user:{SECRET}@registry.example/x@sha256:{'0' * 64}",
        "env": [{"name": "PW", "value": SECRET}],
        "args": [SECRET],
        "readinessProbe": {"exec": {"command": [SECRET]}},
    }
    ended = {"terminated": {"message": SECRET, "exitCode": 1, "reason": "Error"}}
    spec = {
        "imagePullSecrets": [{"name": SECRET}],
        "hostAliases": [{"hostnames": [SECRET]}],
        "dnsConfig": {"nameservers": [SECRET]},
        **{key: [container] for key in ("containers", "initContainers", "ephemeralContainers")},
        "volumes": [{"name": kind, kind: source} for kind, source in volumes.items()],
    }
    template = {"template": {"metadata": {"annotations": notes}, "spec": spec}}
    csi = {"driver": "d", "volumeHandle": SECRET, "nodeStageSecretRef": {"name": SECRET}}
    cloud = {"userDataSecret": {"name": SECRET}, "iamInstanceProfile": SECRET, "instanceType": "m5.large"}
    machines = {"template": {"metadata": {"annotations": notes}, "spec": {"providerSpec": {"value": cloud}}}}
    conditions = [{"type": "Ready", "status": "False", "reason": "X", "message": SECRET}]
    parts: dict[str, dict[str, Any]] = {
        "Pod": {
            "spec": spec,
            "status": {
                "message": SECRET,
                "conditions": conditions,
                "containerStatuses": [
                    {"name": "c", "image": f"u:{SECRET}@r/x", "imageID": SECRET, "state": ended, "lastState": ended}
                ],
            },
        },
        "Node": {
            "status": {
                "conditions": conditions,
                "images": [{"names": [f"user:{SECRET}@registry.example/x:1"], "sizeBytes": 5}],
                "nodeInfo": {"machineID": SECRET, "bootID": SECRET, "systemUUID": SECRET},
            }
        },
        "PersistentVolume": {"spec": {"csi": csi, "mountOptions": [SECRET]}},
        "MachineSet": {"spec": machines, "status": {"errorMessage": SECRET}},
        "MachineDeployment": {"spec": machines, "status": {"conditions": conditions}},
        "Machine": {
            "spec": machines["template"]["spec"] | {"bootstrap": {"dataSecretName": SECRET}},
            "status": {"errorMessage": SECRET, "failureMessage": SECRET, "conditions": conditions},
        },
        **{
            key: {"spec": template}
            for key in ("ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Job")
        },
    }
    return {
        kind: {"metadata": {"name": "x", "annotations": notes, "managedFields": [{"manager": SECRET}]}}
        | copy.deepcopy(parts.get(kind, {}))
        for kind in redaction._BY_KIND
    }


@pytest.mark.parametrize(("kind", "manifest"), _known_places().items())
def test_known_secret_fields_are_not_written(kind, manifest) -> None:
    assert SECRET not in msgspec.json.encode(redact(kind, manifest)).decode()


def test_an_image_keeps_its_name_and_digest() -> None:
    manifest = _known_places()["Pod"]

    (container,) = redact("Pod", manifest)["spec"]["containers"]
    assert container["image"] == f"registry.example/x@sha256:{'0' * 64}"


DISKS = [
    ("csi", "vol-1"),
    ("csi", "vol-2"),
    ("csi", "aws://us-east-1a/vol-1"),
    ("csi", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/pd-1"),
    ("csi", "projects/acme/zones/b/disks/pd-1"),
    ("awsElasticBlockStore", "vol-1"),
    ("awsElasticBlockStore", "aws://us-east-1a/vol-1"),
    ("awsElasticBlockStore", "aws:///vol-1"),
    ("awsElasticBlockStore", "aws://us-east-1a/vol-2/"),
    ("awsElasticBlockStore", "aws://us-east-1a/other"),
    ("gcePersistentDisk", "pd-1"),
    ("gcePersistentDisk", "vol-1"),
    ("azureDisk", "/subscriptions/acme/resourceGroups/acme/disks/pd-1"),
    ("azureDisk", "/subscriptions/ACME/resourceGroups/acme/disks/pd-1"),
    ("cinder", "pd-1"),
    ("portworxVolume", "pd-1"),
]
DISK_FIELDS = {"csi": "volumeHandle", "gcePersistentDisk": "pdName", "azureDisk": "diskURI"}


def translated(source: str, disk: str) -> str:
    try:
        return disk if source == "csi" else handle_of(source, disk)
    except TranslationError:
        return "untranslatable"


def test_volumes_are_equal_in_a_snapshot_if_they_are_in_the_cluster() -> None:
    kept = []
    for source, disk in DISKS:
        field = DISK_FIELDS.get(source, "volumeID")
        spec = redact("PersistentVolume", {"spec": {source: {field: disk}}})["spec"]
        inline = redact("Pod", {"spec": {"volumes": [{"name": "v", source: {field: disk}}]}})["spec"]["volumes"][0]
        assert inline.get(source, {}).get(field) in ((None,) if source == "csi" else (spec[source][field],))
        kept.append((source, spec[source][field]))

    for identity in (lambda source, disk: disk, translated):
        before, after = ([identity(*each) for each in found] for found in (DISKS, kept))
        assert partition(before) == partition(after)
    assert not any(text in disk for _, disk in kept for text in ("acme", "pd-1", "east"))


def partition(values: list[str]) -> list[int]:
    """Return the index of the first equal value, for each value."""
    return [values.index(each) for each in values]


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ({"rbd": {"monitors": ["10.0.0.1:6789"], "image": "acme-disk", "pool": "acme"}}, ()),
        ({"rbd": {"monitors": ["acme.example:6789"], "image": "a b", "pool": "rbd"}}, ("rbd",)),
        ({"iscsi": {"iqn": "iqn.2001-04.example.acme:disk"}}, ()),
    ],
)
def test_shared_disks_of_pods_are_pseudonyms(source, kept) -> None:
    [volume] = redact("Pod", {"spec": {"volumes": [{"name": "v", **source}]}})["spec"]["volumes"]

    texts = [text for each in volume.values() if isinstance(each, dict) for text in strings(each)]
    assert texts
    assert [text for text in texts if not re.fullmatch("[0-9a-f]{32}", text)] == list(kept)


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [text for each in (value.values() if isinstance(value, dict) else value) for text in strings(each)]


SUBSCRIPTION = "5ab1e5ca-0000-4000-8000-000000000001"
PROVIDER_IDS = [
    f"azure:///subscriptions/{SUBSCRIPTION}/resourceGroups/acme/providers/Microsoft.Compute/virtualMachines/a",
    f"azure:///subscriptions/{SUBSCRIPTION.upper()}/resourceGroups/acme/providers/Microsoft.Compute/virtualMachines/a",
    "gce://acme-project/europe-west1-b/a",
    "gce://acme-project/europe-west1-b/b",
    "aws:///eu-west-1a/i-0acme",
    "aws:///eu-west-1b/i-0acme",
    "a",
    "acme:b",
    "openstack://a/",
    "",
]


@pytest.mark.parametrize("part", [lambda text: text, lambda text: text.rpartition("/")[2]], ids=["whole", "instance"])
def test_provider_ids_are_equal_in_a_snapshot_if_they_are_in_the_cluster(part) -> None:
    nodes, machines = (
        [redact(kind, {"spec": {"providerID": each}})["spec"]["providerID"] for each in PROVIDER_IDS]
        for kind in ("Node", "Machine")
    )
    pool = redact("MachinePool", {"spec": {"providerIDList": PROVIDER_IDS}})["spec"]["providerIDList"]

    assert nodes == machines == pool
    assert partition(list(map(part, nodes))) == partition(list(map(part, PROVIDER_IDS)))
    assert not any(text in each.lower() for each in nodes for text in ("acme", SUBSCRIPTION, "europe", "eu-west"))
    assert [each.partition("//")[0] for each in nodes[:3]] == ["azure:", "azure:", "gce:"]


def test_addresses_of_nodes_are_left_out() -> None:
    status = {"addresses": [{"type": "InternalIP", "address": "10.0.0.7"}], "capacity": {"cpu": "4"}}
    node = {"metadata": {"name": "n1"}, "status": status | {"daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}}
    assert redact("Node", node)["status"] == {"capacity": {"cpu": "4"}}


# --- trimtab's own custom resources -----------------------------------------------------------------------------------

DECODERS = {
    kind.name: kind
    for kind in (
        decode.POLICY,
        decode.CLUSTER_AUTOSCALER,
        decode.MACHINE_AUTOSCALER,
        decode.TAINT_MANAGER,
        decode.SCHEDULER_POLICY,
        decode.PLACEMENT_ADMISSION,
        decode.NODE_PRESSURE_POLICY,
    )
}


def examples() -> list[Any]:
    found = []
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        documents = [each for each in yaml.safe_load_all(path.read_text()) if isinstance(each, dict)]
        found += [
            pytest.param(each, id=f"{path.name}-{each['kind']}") for each in documents if each.get("kind") in DECODERS
        ]
    return found


def test_examples_have_each_kind_of_policy() -> None:
    assert {each.values[0]["kind"] for each in examples()} == set(DECODERS)


@pytest.mark.parametrize("manifest", examples())
def test_redaction_does_not_change_policies(manifest) -> None:
    kind = DECODERS[manifest["kind"]]
    notes = {"kubectl.kubernetes.io/last-applied-configuration": SECRET}
    stored = manifest | {"metadata": manifest["metadata"] | {"managedFields": [SECRET], "annotations": notes}}

    redacted = redact(manifest["kind"], stored)

    assert decode.read_object(redacted, kind) == decode.read_object(stored, kind)
    assert SECRET not in msgspec.json.encode(redacted).decode()


def from_json(manifest: dict[str, Any]) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(manifest))
    return decoded


def test_history_entries_are_kept_without_their_messages() -> None:
    stored = from_json(record("a", entry("web-1", message=SECRET, target="n2", owner="ReplicaSet/web")))
    expected = from_json(record("a", entry("web-1", message=redaction.LEFT_OUT, target="n2", owner="ReplicaSet/web")))

    assert entries_of([redact("HistoryRecord", stored)]) == entries_of([expected]) != ()


FREE_TEXT = {"message", "paused", "problem", "resultMessage", "unhealthy"}


def _full(allowed: Any, text: str) -> Any:
    """Return an object with this text in every field of an own kind."""
    return text if not isinstance(allowed, dict) else {key: _full(below, text) for key, below in allowed.items()}


@pytest.mark.parametrize("kind", redaction.OWN_TYPES)
def test_no_free_text_of_own_kinds_is_written(kind) -> None:
    status = redaction._BY_KIND[kind].get("status") or {}
    redacted = redact(kind, {"status": _full(status, SECRET)}).get("status", {})

    kept = {key for key, text in leaves(redacted) if text == SECRET}
    assert not kept & FREE_TEXT
    assert {key for key, text in leaves(redacted) if text == redaction.LEFT_OUT} <= FREE_TEXT


def leaves(value: Any) -> list[tuple[str, Any]]:
    return [
        found
        for key, below in value.items()
        for found in (leaves(below) if isinstance(below, dict) else [(key, below)])
    ]


def test_certificates_of_extenders_are_left_out() -> None:
    tls = {"caData": SECRET, "serverName": "gpu"}
    extenders = [{"urlPrefix": "https://gpu.example", "filterVerb": "filter", "tlsConfig": tls}]
    spec = {"schedulerName": "a", "extenders": extenders, "later": SECRET}

    [extender] = redact("SchedulerPolicy", {"metadata": {"name": "a"}, "spec": spec})["spec"]["extenders"]

    assert extender == {**extenders[0], "tlsConfig": {"serverName": "gpu"}}


DIGEST = f"@sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("image", "kept"),
    [
        (f"https://user:{SECRET}@reg.example/x", "reg.example/x"),
        (f"docker://u:{SECRET}@r/x:1", "r/x:1"),
        (f"user:{SECRET[:3]}/{SECRET}@reg/x", "reg/x"),
        (f"u:{SECRET}@x", "x"),
        (f"u:{SECRET}@{SECRET}@reg:5000/x{DIGEST}", f"reg:5000/x{DIGEST}"),
        (f"u:{SECRET}@sha256:{'0' * 8}", f"sha256:{'0' * 8}"),
        (f"reg/x?token=a@{SECRET}", redaction.LEFT_OUT),
        (f"u:{SECRET}?{SECRET}@reg/x", redaction.LEFT_OUT),
        *((each, each) for each in ("web", "reg:5000/a/b:1", f"reg/x{DIGEST}", f"x:1{DIGEST}", "")),
    ],
)
def test_credentials_are_removed_from_images(image: str, kept: str) -> None:
    container = {"name": "c", "image": image}
    manifest = {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [container]}}

    assert redact("Pod", manifest)["spec"]["containers"][0].get("image") == kept
