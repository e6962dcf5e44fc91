"""Decoding pods by what they share with pods before them: always as the general decoder does it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import NOW, Pod, pod
from tests.protobuf import encode_object
from tests.strategies import examples
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Pod as PodObject
from trimtab.kube.wire import caching_pod_decoder, slim_pb2
from trimtab.kube.wire.decode import decode_json, decode_object
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.protobuf import ProtobufCodec, decode_protobuf

NAMES = st.sampled_from(["a", "b"])
STANDARD = ("PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
CONDITIONS = st.lists(
    st.tuples(
        st.sampled_from([*STANDARD, "Read", "ReadyAgain", "DisruptionTarget", "PodResizeInProgress"]),
        st.sampled_from(["True", "True", "True", "False", "Unknown", "Trueish"]),
        st.sampled_from(["", "Because"]),
    ),
    max_size=6,
    unique_by=lambda each: each[0],
)
STATES: list[dict[str, Any]] = [
    {},
    {"running": {}},
    {"waiting": {"reason": "CrashLoopBackOff"}},
    {"terminated": {"exitCode": 1, "reason": "Error"}},
]
STATUSES = st.lists(
    st.builds(
        lambda name, state, restarts: {"name": name, "state": state, "restartCount": restarts},
        NAMES,
        st.sampled_from(STATES),
        st.integers(0, 2),
    ),
    max_size=2,
)
LABELS = st.dictionaries(st.sampled_from(["app", "é" * 100]), NAMES, max_size=2)
ANNOTATIONS = st.dictionaries(
    st.sampled_from(["trimtab.dev/x", "trimtab.devil/x", "note", "n" * 200, "trimtab.dev/" + "n" * 200, ""]),
    NAMES,
    max_size=3,
)
BY_USER = {"manager": "kubectl", "fieldsV1": {"f:spec": {"f:nodeName": {}}}}
MANAGED: list[list[dict[str, Any]]] = [
    [],
    [{"manager": "kubectl"}, {"fieldsV1": {"f:metadata": {"f:labels": {"f:nodeName": {}}}, "f:spec": {}}}],
    [{"fieldsV1": {"f:status": {}}}, BY_USER],
]
VOLUMES = st.lists(
    st.tuples(
        st.sampled_from(["data", "kube-api-access-abcde", "kube-api-access-fghij", "kube-api-access-"]),
        st.sampled_from(["projected", "emptyDir", "hostPath", "ephemeral", "persistentVolumeClaim"]),
    ),
    max_size=2,
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "nodeName": st.sampled_from(["n1", "n2"]),
        "priority": st.integers(0, 1),
        "hostNetwork": st.booleans(),
        "tolerations": st.lists(st.builds(lambda key: {"key": key, "operator": "Exists"}, NAMES), max_size=2),
        "nodeSelector": st.dictionaries(NAMES, NAMES, max_size=2),
    },
)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """Pods that differ in few things, so that many of a list share a part with one before."""
    built = pod(draw(NAMES), draw(st.sampled_from(["shop", ""]))).cpu(draw(st.sampled_from(["1", "2"])))
    volumes = [{"name": name, kind: {}} for name, kind in draw(VOLUMES)]
    conditions = [
        {"type": kind, "status": status, "reason": reason, "lastTransitionTime": "2026-11-21T00:00:00Z"}
        for kind, status, reason in draw(CONDITIONS)
    ]
    owner = {"kind": "ReplicaSet", "name": draw(NAMES), "uid": "u", "apiVersion": "apps/v1", "controller": True}
    metadata = {
        "labels": draw(LABELS),
        "annotations": draw(ANNOTATIONS),
        "ownerReferences": draw(st.sampled_from([[], [owner]])),
        "managedFields": draw(st.sampled_from(MANAGED)),
        **draw(st.sampled_from([{}, {"creationTimestamp": NOW}, {"deletionTimestamp": NOW}])),
    }
    status = {
        "phase": draw(st.sampled_from(["Running", "Pending"])),
        "qosClass": draw(st.sampled_from(["", "Burstable", "BestEffort"])),
        "nominatedNodeName": draw(st.sampled_from(["", "", "n3"])),
        "conditions": conditions,
        "containerStatuses": draw(STATUSES),
        "initContainerStatuses": draw(st.just([]) | STATUSES),
        "ephemeralContainerStatuses": draw(st.just([]) | STATUSES),
    }
    return built.merge(metadata=metadata, spec={**draw(SPECS), "volumes": volumes}, status=status)


# What slim.proto leaves out, as a server sends it: host name, mounts, an environment, a container that runs.
HOST_NAME = b"\x82\x01\x01h"
MOUNT = b"\x4a\x17\x0a\x15kube-api-access-abcde"
ENVIRONMENT = st.sampled_from([b"", b"\x3a\x06\x0a\x01k\x12\x01v", b"\x3a\x06\x0a\x01k\x12\x01w"])


@st.composite
def raws(draw: st.DrawFn) -> bytes:
    message = slim_pb2.Pod()
    message.MergeFromString(encode_object(draw(pods()).manifest()))
    if draw(st.booleans()):
        message.spec.MergeFromString(HOST_NAME)
    for container in message.spec.containers:
        container.MergeFromString(draw(ENVIRONMENT) + draw(st.sampled_from([b"", MOUNT])))
    return message.SerializeToString()


@settings(max_examples=examples(300))
@given(st.lists(raws(), min_size=1, max_size=8))
def test_earlier_pods_do_not_change_the_value_of_a_pod(many) -> None:
    codec, interner = ProtobufCodec("Pod", Interner()), Interner()
    assert [codec.decode(raw) for raw in many] == [decode_protobuf("Pod", raw, interner=interner) for raw in many]


# What a server does not write, but protobuf allows: parts that come in pieces, text that is no UTF-8.
PIECES = [
    pytest.param(
        pod("a").merge(metadata={"deletionTimestamp": NOW}), b"\x0a\x02\x4a\x00", id="a deletion, then nothing"
    ),
    pytest.param(
        pod("a").merge(status={"initContainerStatuses": [{"name": "i", "restartCount": 3}]}),
        b"\x1a\x02\x52\x00",
        id="an init container, then an empty one",
    ),
    pytest.param(pod("a"), b"\x12\x05\x0a\x03\x0a\x01\xff", id="a volume's name that is no UTF-8"),
]


@pytest.mark.parametrize(("built", "more"), PIECES)
def test_unusual_encodings_give_the_same_value(built, more) -> None:
    raw = encode_object(built.manifest()) + more
    expected = decode_protobuf("Pod", raw, interner=Interner())

    assert ProtobufCodec("Pod", Interner()).decode(raw) == expected


@given(st.lists(raws(), min_size=1, max_size=6))
def test_full_tables_change_nothing(many) -> None:
    codec, interner = ProtobufCodec("Pod", Interner()), Interner()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caching_pod_decoder, "_TABLE", 1)
        found = [codec.decode(raw) for raw in many]
    assert found == [decode_protobuf("Pod", raw, interner=interner) for raw in many]


def _running(name: str, volume: str = "", *, evicted: bool = False) -> bytes:
    built = pod(name).cpu("1").on(f"node-of-{name}").ready().merge(status={"qosClass": "Burstable"})
    if volume:
        built.merge(spec={"volumes": [{"name": volume, "projected": {}}]})
    if evicted:
        ready = built.manifest()["status"]["conditions"]
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        built.merge(metadata={"deletionTimestamp": NOW}, status={"conditions": [*ready, condition]})
    return encode_object(built.manifest())


def _counted(codec: ProtobufCodec, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What was read in full from now on."""
    observed: list[bytes] = []
    parse, decoder = caching_pod_decoder._parse_slim, codec._decode.__self__
    general = decoder._general
    monkeypatch.setattr(caching_pod_decoder, "_parse_slim", lambda raw: observed.append(raw) or parse(raw))
    monkeypatch.setattr(decoder, "_general", lambda raw: observed.append(raw) or general(raw))
    return observed


@pytest.mark.parametrize(
    "siblings",
    [
        pytest.param([_running("a"), _running("b")], id="other nodes"),
        pytest.param([_running("a", "kube-api-access-abcde"), _running("b", "kube-api-access-fghij")], id="tokens"),
        pytest.param([_running("a"), _running("b", evicted=True)], id="evicted"),
    ],
)
def test_a_sibling_is_not_read_in_full(siblings, monkeypatch) -> None:
    codec = ProtobufCodec("Pod", Interner())
    first = codec.decode(siblings[0])
    observed = _counted(codec, monkeypatch)

    second = codec.decode(siblings[1])

    assert not observed
    assert (first.node, second.node) == ("node-of-a", "node-of-b")
    assert first.spec is second.spec
    assert first.labels is second.labels


def test_table_entries_do_not_leak_between_pods() -> None:
    codec = ProtobufCodec("Pod", Interner())
    first, second = (codec.decode(encode_object(pod(name).priority(7).manifest())) for name in ("a", "b"))
    other = codec.decode(encode_object(pod("c").priority(8).manifest()))

    assert first.spec is second.spec
    assert (second.spec.priority, other.spec.priority) == (7, 8)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        pytest.param(b"\xff\xff", "Pod: is not the protobuf of a Pod", id="garbage"),
        pytest.param(b"", "metadata.name: is required", id="no name"),
        pytest.param(encode_object(pod("a").cpu("many").manifest()), r"requests\.cpu", id="a quantity"),
    ],
)
def test_errors_are_those_of_the_general_decoder(raw, message) -> None:
    with pytest.raises(InputError, match=message):
        ProtobufCodec("Pod", Interner()).decode(raw)


@pytest.mark.parametrize(("entries", "expected"), list(zip(MANAGED, (False, False, True), strict=True)))
def test_managed_fields_show_who_set_the_node_name(entries: list[dict[str, Any]], expected: bool) -> None:
    manifest = (
        pod("a").on("n1").annotations({"note": '"f:nodeName"'}).merge(metadata={"managedFields": entries}).manifest()
    )
    message = slim_pb2.Pod()
    message.MergeFromString(encode_object(manifest))
    for encoded, entry in zip(message.metadata.managed_fields, entries, strict=True):
        if "fieldsV1" in entry:
            encoded.fields_v1.raw = msgspec.json.encode(entry["fieldsV1"])
    named = [
        each.node_name_managed
        for each in (
            ProtobufCodec("Pod", Interner()).decode(message.SerializeToString()),
            decode_object(manifest),
            decode_json("Pod", msgspec.json.encode(manifest)),
        )
        if isinstance(each, PodObject)
    ]
    assert named == [expected] * 3
    message.spec.node_name = ""
    unbound = pod("a").merge(metadata={"managedFields": entries})
    assert not ProtobufCodec("Pod", Interner()).decode(message.SerializeToString()).node_name_managed
    assert not unbound.build().node_name_managed


@pytest.mark.parametrize(
    "owned",
    [b'{"f:nodeName"', b'{"f:spec":{"f:nodeName":1}}', b"\xff" + b'"f:nodeName"', b'{"f:nodeName":' + b"[" * 100_000],
    ids=["cut off", "another type", "no UTF-8", "too deep"],
)
def test_unreadable_entries_count_as_a_node_name(owned: bytes) -> None:
    message = slim_pb2.Pod()
    message.MergeFromString(encode_object(pod("a").on("n1").manifest()))
    message.metadata.managed_fields.add().fields_v1.raw = owned
    raw = message.SerializeToString()
    assert ProtobufCodec("Pod", Interner()).decode(raw).node_name_managed
    assert decode_protobuf("Pod", raw, interner=Interner()).node_name_managed


QUICK = {name: message for name, message in slim_pb2.DESCRIPTOR.message_types_by_name.items() if name[:5] == "Quick"}
CLEARED = {"hostname", "volume_mounts"}
"""Fields that no planner reads: they are named only to be taken out of the bytes that a spec is looked up by."""
LEFT_OUT = {
    "ObjectMeta": {"managed_fields"},
    "PodStatus": {"allocated_resources", "resources"},
    "ContainerStatus": {"name", "allocated_resources", "resources"},
}
"""Fields of these that no Pod keeps, or that are read from the full message: of a pod that is being resized, and of one
whose bytes contain the name of ``spec.nodeName`` in ``managedFields``.
"""


@pytest.mark.parametrize("name", QUICK)
def test_fields_have_the_numbers_of_the_full_message(name: str) -> None:
    whole = {each.name: each.number for each in slim_pb2.DESCRIPTOR.message_types_by_name[name[5:]].fields}
    quick = {each.name: each.number for each in QUICK[name].fields if each.name not in CLEARED}
    assert quick.items() <= whole.items()


@pytest.mark.parametrize(("name", "left_out"), LEFT_OUT.items())
def test_no_field_of_a_pod_is_overlooked(name: str, left_out: set[str]) -> None:
    """Fails where a field is added to one of these messages, and caching_pod_decoder.py would not read it."""
    whole = slim_pb2.DESCRIPTOR.message_types_by_name[name]
    assert set(whole.fields_by_name) - set(QUICK[f"Quick{name}"].fields_by_name) == left_out
