"""Decoding protobuf, and that it says the same as JSON."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import (
    NOW,
    ZONE,
    attachment,
    budget,
    capacity,
    csi_driver,
    csi_node,
    expression,
    limit_range,
    namespace,
    node,
    pod,
    priority_class,
    pv,
    pvc,
    replica_set,
    replication_controller,
    runtime_class,
    selector,
    service,
    stateful_set,
    storage_class,
)
from tests.fixtures.golden import Golden
from tests.protobuf import encode_frame, encode_object, encode_status
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Volume
from trimtab.kube.wire import protobuf, slim_pb2
from trimtab.kube.wire.codec import Metadata, StatusMessage, WatchFrame
from trimtab.kube.wire.decode import decode_object
from trimtab.kube.wire.identity import CUSTOM, GROUPS
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.projection.pod import VOLUME_KINDS

CODEC = protobuf.ProtobufCodec("Pod", Interner())
BY_EXPRESSION = {"matchExpressions": [expression("a", "Exists")]}
RICH_POD = (
    pod("web-1", "shop")
    .on("n1")
    .labels(app="web")
    .annotations({"trimtab.dev/note": "x", "other": "y"})
    .owned_by("ReplicaSet", "web")
    .created(NOW)
    .deleted(NOW)
    .started(NOW)
    .ready()
    .condition("PodScheduled", "False", reason="Because", message="so")
    .cpu("250m", "1")
    .memory("1Gi")
    .host_port(80, ip="10.0.0.1")
    .container("second", resources={"limits": {"example.com/gpu": "1"}})
    .init_container("side", restartPolicy="Always", resources={"requests": {"cpu": "1"}})
    .priority(5, "high")
    .node_selector(disk="ssd")
    .node_affinity(expression("zone", "In", "a"), fields=(expression("metadata.name", "In", "n1"),))
    .prefers_nodes(10, expression("zone", "Exists"))
    .affinity(preferred=3, namespaceSelector={}, matchLabelKeys=["x"])
    .anti_affinity(namespaces=["a"], mismatchLabelKeys=["y"], labelSelector=BY_EXPRESSION)
    .spread(minDomains=2, nodeAffinityPolicy="Ignore", nodeTaintsPolicy="Honor", matchLabelKeys=["z"])
    .tolerates("a", "b", "NoExecute", seconds=0)
    .tolerates()
    .volume("emptyDir")
    .volume("persistentVolumeClaim", claimName="data", readOnly=True)
    .grace_period(0)
    .restarted(4)
    .container_state("CrashLoopBackOff")
    .merge(
        metadata={"resourceVersion": "9"},
        spec={
            "overhead": {"cpu": "10m"},
            "hostNetwork": True,
            "preemptionPolicy": "Never",
            "schedulerName": "other",
            "restartPolicy": "Never",
            "schedulingGates": [{"name": "g"}],
            "resourceClaims": [{"name": "c"}],
            "resources": {"requests": {"cpu": "3"}, "limits": {"memory": "8Gi"}},
        },
        status={
            "nominatedNodeName": "n2",
            "reason": "Evicted",
            "qosClass": "Burstable",
            "initContainerStatuses": [{"name": "side", "restartCount": 2, "state": {"running": {}}}],
            "ephemeralContainerStatuses": [{"name": "debug", "state": {"terminated": {"exitCode": -1, "reason": "x"}}}],
        },
    )
)
RESIZED_POD = (
    pod()
    .cpu("1")
    .condition("PodResizeInProgress", "True")
    .merge(
        spec={"resources": {"requests": {"memory": "1Gi"}}},
        status={
            "containerStatuses": [
                {"name": "main", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "3"}}
            ],
            "resources": {"requests": {"memory": "2Gi"}},
            "allocatedResources": {"memory": "1Gi"},
        },
    )
)
OBJECTS = {
    "a plain pod": pod(),
    "a pod with everything": RICH_POD,
    "a pod being resized": RESIZED_POD,
    "a pod without pod-level amounts": pod().cpu("1", "1").memory("1Gi", "1Gi").merge(spec={"resources": {}}),
    "a required affinity without terms": pod().merge(
        spec={"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}
    ),
    "a node": node().zone("a").taint("a", "b", added=NOW).cordoned().provider_id("x").created(NOW).deleted(NOW),
    "a budget": budget().selecting(app="web").disrupted("a", "b").unhealthy_policy("AlwaysAllow").labels(a="b"),
    "a budget without a selector": budget(),
    "a budget for all": budget().selecting(),
    "a budget by expressions": budget().merge(
        spec={"selector": {**selector(a="b"), "matchExpressions": [expression("c", "NotIn", "d", "e")]}}
    ),
    "a namespace": namespace().labels(a="b").annotations({"scheduler.alpha.kubernetes.io/node-selector": "a=b"}),
    "a priority class": priority_class("high", 7).by_default(),
    "a node with features": node().merge(status={"declaredFeatures": ["b", "a"]}),
    "a pod that needs a feature": pod().container("c", restartPolicyRules=[{"action": "RestartAllContainers"}]),
    "a node with images": node().image("a:1", "a@sha256:x", size=1 << 40).image("b", size=0),
    "a pod of disks": pod()
    .volume("gcePersistentDisk", pdName="pd", readOnly=True)
    .volume("awsElasticBlockStore", volumeID="v")
    .volume("iscsi", targetPortal="t", iqn="iqn.x", lun=1)
    .volume("rbd", monitors=["m2", "m1"], image="i", pool="p")
    .volume("azureDisk", diskName="d", diskURI="/x", kind="Managed")
    .volume("cinder", volumeID="c")
    .volume("portworxVolume", volumeID="p")
    .volume("image", reference="r"),
    "a pod with ephemeral volumes": pod().ephemeral("scratch").volume("emptyDir").ephemeral("more"),
    "a volume": pv()
    .labels({ZONE: "a"})
    .of_class("fast")
    .claimed_by("data")
    .block()
    .access("ReadWriteOnce", "ReadWriteMany")
    .where(expression(ZONE, "In", "a"), expression("x", "Exists"))
    .on("n1")
    .deleted()
    .merge(metadata={"resourceVersion": "3"}, spec={"volumeAttributesClassName": ""}),
    "a volume on a disk": pv().source("azureDisk", diskURI="/x", kind="Managed"),
    "a volume of a class by annotation": pv().annotations({"volume.beta.kubernetes.io/storage-class": ""}),
    "a volume that says nothing": pv().source("nfs").merge(spec={"capacity": {}, "nodeAffinity": {}}),
    "a claim": pvc()
    .of_class("fast")
    .bound_to("volume-1")
    .selected_node("n1")
    .selecting(a="b")
    .block()
    .owned_by_pod("web-1")
    .deleted()
    .merge(spec={"volumeAttributesClassName": "gold"}),
    "a claim of an empty class": pvc(),
    "a claim of no class": pvc().merge(spec={"storageClassName": None, "resources": {}}, status={}),
    "a class": storage_class().topology({ZONE: ("a", "b"), "disk": ("ssd",)}).topology({}),
    "drivers of a node": csi_node().driver("a", 5).driver("b").driver("c", 0).migrated("x", "y"),
    "a driver": csi_driver(storage_capacity=True),
    "a capacity": capacity().largest("1Gi").where(zone="a"),
    "a capacity of nothing": capacity(amount=None),
    "a capacity everywhere": capacity().where(),
    "an attachment": attachment("a", "volume-1", "n1"),
    "a service": service().selecting(app="web"),
    "a service without a selector": service(),
    "a replication controller": replication_controller().selecting(app="web"),
    "a replica set": replica_set().selecting(app="web"),
    "a replica set of a Deployment": replica_set()
    .annotations({"deployment.kubernetes.io/revision": "12"})
    .merge(metadata={"ownerReferences": [{"kind": "Deployment", "name": "web", "uid": "1", "controller": True}]}),
    "a replica set of no known revision": replica_set().annotations({"deployment.kubernetes.io/revision": "x" * 30}),
    "a replica set by expressions": replica_set().merge(spec={"selector": BY_EXPRESSION}),
    "a replica set for all": replica_set().selecting(),
    "a stateful set": stateful_set().selecting(app="web"),
    "a stateful set without a selector": stateful_set(),
    "a limit range": limit_range()
    .containers(max={"cpu": "2"}, min={"cpu": "10m"}, default={"memory": "1Gi"}, defaultRequest={"memory": "64Mi"})
    .merge(metadata={"labels": {"a": "b"}}),
    "a limit range without limits": limit_range(),
    "a runtime class": runtime_class()
    .overhead(cpu="250m", memory="120Mi")
    .merge(scheduling={"nodeSelector": {"sandbox": "yes"}, "tolerations": [{"key": "a", "tolerationSeconds": 0}]}),
    "a runtime class without overhead": runtime_class(),
}


def decoded(builder):
    manifest = builder.manifest()
    return protobuf.decode_protobuf(manifest["kind"], encode_object(manifest), interner=Interner())


@pytest.mark.parametrize("builder", OBJECTS.values(), ids=OBJECTS)
def test_protobuf_and_json_give_equal_values(builder):
    manifest = builder.manifest()
    codec = protobuf.ProtobufCodec(manifest["kind"], Interner())
    assert decoded(builder) == codec.decode(encode_object(manifest)) == builder.build()


@pytest.mark.parametrize("kind", VOLUME_KINDS.values())
def test_both_formats_read_every_kind_of_volume(kind):
    builder = pod().volume(kind)
    assert decoded(builder) == builder.build()
    assert [volume.kind for volume in builder.build().spec.volumes] == [kind]


@given(
    labels=st.dictionaries(st.text(min_size=1), st.text(), max_size=4),
    cpu=st.integers(0, 10**6),
    tolerations=st.lists(st.tuples(st.text(min_size=1), st.none() | st.integers(-(2**40), 2**40)), max_size=3),
    restarts=st.integers(0, 2**31 - 1),
    priority=st.none() | st.integers(-(2**31), 2**31 - 1),
)
def test_protobuf_and_json_give_equal_values_for_any_pod(labels, cpu, tolerations, restarts, priority):
    builder = pod().labels(labels).cpu(f"{cpu}m").restarted(restarts)
    for key, seconds in tolerations:
        builder.tolerates(key, seconds=seconds)
    if priority is not None:
        builder.priority(priority)
    assert decoded(builder) == builder.build()


def test_pods_of_a_template_share_their_spec_across_nodes_and_codecs():
    interner = Interner()
    builders = [pod("a").cpu("1").on("n1"), pod("b").cpu("1").on("n2"), pod("c").cpu("1")]
    specs = [
        protobuf.decode_protobuf("Pod", encode_object(builder.manifest()), interner=interner).spec
        for builder in builders
    ]
    specs.append(decode_object(pod("d").cpu("1").on("n3").manifest(), interner=interner).spec)
    assert len({id(spec) for spec in specs}) == 1


def test_fields_that_are_not_read_do_not_separate_equal_specs():
    interner = Interner()
    plain = slim_pb2.Pod()
    plain.metadata.name = "a"
    plain.spec.containers.add().name = "main"
    volume_name_and_host_name = b"\x0a\x05\x0a\x03abc" + b"\x82\x01\x01h"
    pods = [plain.SerializeToString()]
    plain.spec.MergeFromString(volume_name_and_host_name)
    del plain.spec.volumes[:]
    pods.append(plain.SerializeToString())
    assert pods[0] != pods[1]
    one, other = (protobuf.decode_protobuf("Pod", raw, interner=interner) for raw in pods)
    assert one.spec is other.spec


def _token(pod_name, volume_name):
    """A pod with a volume of a service account's token, whose name is random."""
    volumes = [{"name": volume_name, "projected": {}}, {"name": "scratch", "emptyDir": {"medium": "Memory"}}]
    return pod(pod_name).merge(spec={"volumes": volumes})


def test_names_of_volumes_do_not_separate_equal_specs():
    interner = Interner()
    interner = Interner()
    raws = [encode_object(_token(name, f"kube-api-access-{name}").manifest()) for name in ("a", "b")]
    values = [protobuf.decode_protobuf("Pod", raw, interner=interner) for raw in raws]
    values.append(decode_object(_token("c", "kube-api-access-c").manifest(), interner=interner))
    assert len({id(value.spec) for value in values}) == 1
    assert values[0].spec.volumes == (Volume("emptyDir", name="scratch", medium="Memory"),)


@pytest.mark.parametrize("decode", [decoded, lambda builder: builder.build()], ids=["protobuf", "JSON"])
def test_names_of_ephemeral_volumes_separate_specs(decode):
    first, second = decode(pod().volume("emptyDir").ephemeral("a")), decode(pod().volume("emptyDir").ephemeral("b"))
    assert first.spec.volumes == (Volume("emptyDir", name="volume-0"), Volume("ephemeral", name="a"))
    assert second.spec.volumes == (Volume("emptyDir", name="volume-0"), Volume("ephemeral", name="b"))


def test_a_time_of_zero_is_no_time():
    message = slim_pb2.Pod()
    message.metadata.name = "a"
    message.metadata.creation_timestamp.SetInParent()
    assert protobuf.decode_protobuf("Pod", message.SerializeToString(), interner=Interner()).created is None


def test_invalid_bytes_are_refused_with_the_kind(golden: Golden):
    with pytest.raises(InputError) as raised:
        protobuf.decode_protobuf("Pod", b"\xff\xff\xff", interner=Interner())
    golden(str(raised.value))


def test_an_error_names_object_and_field():
    with pytest.raises(InputError) as caught:
        decoded(pod("web-1", "shop").cpu("1K"))
    assert (caught.value.object, caught.value.field) == (
        "Pod/shop/web-1",
        "spec.containers[0].resources.requests.cpu",
    )


def test_a_frame_is_opened():
    raw = encode_object(pod().manifest())
    frame = encode_frame("ADDED", "Pod", raw)
    assert CODEC.frame(frame[4:]) == WatchFrame(type="ADDED", raw=raw)


@pytest.mark.parametrize("body", [b"", b'{"kind":"Pod"}', b"k8s\0\xff\xff"], ids=["nothing", "JSON", "garbage"])
def test_a_body_that_is_not_protobuf_is_refused(body, golden: Golden):
    with pytest.raises(InputError) as raised:
        protobuf.decode_envelope(body)
    golden(str(raised.value))


def test_a_frame_that_is_not_an_event_is_refused(golden: Golden):
    with pytest.raises(InputError) as raised:
        CODEC.frame(b"\xff\xff")
    golden(str(raised.value))


def test_a_status_is_read():
    raw = encode_status(429, "TooManyRequests", "slow down", retry_after=3)
    assert CODEC.status(raw) == StatusMessage(429, "TooManyRequests", "slow down", 3.0)
    assert CODEC.status(b"\xff").code == 0


def test_the_metadata_of_any_object_is_read():
    noted = pod("web-1", "shop").annotations({"a": "b"}).merge(metadata={"resourceVersion": "3"})
    assert CODEC.metadata(encode_object(noted.manifest())) == Metadata("shop", "web-1", "3", {"a": "b"})
    assert CODEC.metadata(b"\xff") == Metadata()


@given(
    frames=st.lists(st.binary(max_size=300), max_size=10),
    cuts=st.lists(st.integers(1, 50), min_size=1, max_size=10),
)
def test_frames_do_not_depend_on_chunk_boundaries(frames, cuts):
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    splitter = protobuf.FrameSplitter()
    found, position, turn = [], 0, 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        found += splitter.feed(stream[position : position + size])
        position, turn = position + size, turn + 1
    assert found == frames


def test_an_implausible_length_is_refused(golden: Golden):
    with pytest.raises(InputError) as raised:
        list(protobuf.FrameSplitter().feed(b'{"type": "ADDED"}'))
    golden(str(raised.value))


def test_kinds_with_a_message_are_those_of_the_schema():
    assert {kind for kind in GROUPS if not hasattr(slim_pb2, kind)} == CUSTOM


def test_the_generated_code_is_that_of_the_schema(tmp_path):
    protoc = pytest.importorskip("grpc_tools.protoc", reason="protoc comes with the dev dependencies")
    import grpc_tools

    code = Path(slim_pb2.__file__)
    includes = [code.parents[3], Path(grpc_tools.__file__).with_name("_proto")]
    schema = code.with_name("slim.proto")
    arguments = [*(f"--proto_path={path}" for path in includes), f"--python_out={tmp_path}", str(schema)]
    assert protoc.main(["", *arguments]) == 0
    made = (tmp_path / "trimtab/kube/wire" / code.name).read_text()
    assert _descriptor(made) == _descriptor(code.read_text()), "run `make proto`"


def _descriptor(code):
    return next(line for line in code.splitlines() if line.startswith("DESCRIPTOR = "))
