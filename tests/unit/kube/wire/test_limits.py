"""Pods beyond the limits of complexity: what is kept of them, in every wire format."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest

from tests.builders import pod
from tests.fixtures.golden import Golden
from tests.protobuf import encode_object
from trimtab.kube.objects import LabelSelector, Pod, PodDisruptionBudget, ReplicaSet, Service
from trimtab.kube.wire.decode import decode_json, decode_object
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.limits import DEFAULT_LIMITS, MESSAGE_LENGTH, ComplexityLimits, name_hash
from trimtab.kube.wire.protobuf import ProtobufCodec

KIB = 1024


def by_protobuf(manifest: dict[str, Any]) -> Any:
    return ProtobufCodec(manifest["kind"], Interner()).decode(encode_object(manifest))


def by_json(manifest: dict[str, Any]) -> Any:
    return decode_json(manifest["kind"], msgspec.json.encode(manifest))


FORMATS = pytest.mark.parametrize("decode", [by_protobuf, by_json, decode_object])


def with_spec(**spec: Any) -> dict[str, Any]:
    manifest = pod("web").on("n1").manifest()
    manifest["spec"] |= spec
    return manifest


def with_metadata(**metadata: Any) -> dict[str, Any]:
    manifest = pod("web").on("n1").manifest()
    manifest["metadata"] |= metadata
    return manifest


def container(**resources: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i", "resources": resources}


def anti_term(number: int, key: str = "zone", values: int = 1) -> dict[str, Any]:
    expression = {"key": f"a{number}", "operator": "In", "values": [f"v{each}" for each in range(values)]}
    return {"topologyKey": key, "labelSelector": {"matchExpressions": [expression]}}


def anti_affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


@FORMATS
def test_an_ordinary_pod_is_not_complex(decode):
    found = decode(
        with_spec(
            affinity=anti_affinity(*(anti_term(number, values=10) for number in range(5))),
            tolerations=[{"key": f"k{number}", "operator": "Exists"} for number in range(20)],
            containers=[container(requests={"cpu": "1", "example.com/gpu": "1"}, limits={"example.com/gpu": "1"})] * 12,
        )
    )
    assert found.spec.complexity == ""
    assert len(found.spec.containers) == 12
    assert len(found.spec.affinity.anti_required) == 5


@FORMATS
def test_requests_of_a_pod_with_too_many_resources_count_all_the_same(decode):
    amounts = {f"x.io/r{number:05}": "2" for number in range(10_000)} | {"zz.example.com/gpu": "3"}
    found = decode(
        with_spec(containers=[container(requests={"cpu": "1500m", "memory": "1Gi", **amounts}, limits=amounts)])
    )
    spec = found.spec
    assert "10,003 resource names" in spec.complexity
    assert len(spec.requests) == DEFAULT_LIMITS.resource_names
    assert (spec.requests["cpu"], spec.requests["memory"]) == (1500, 2**30)
    assert "zz.example.com/gpu" not in spec.requests
    assert len(spec.further_requests) == 12 * (10_003 - DEFAULT_LIMITS.resource_names)
    assert name_hash("zz.example.com/gpu").to_bytes(4, "little") + (3).to_bytes(8, "little") in spec.further_requests
    assert spec.containers == ()


@FORMATS
def test_of_too_many_anti_affinity_terms_the_first_keep_others_away(decode):
    found = decode(with_spec(affinity=anti_affinity(*(anti_term(number) for number in range(8_000)))))
    assert "8,000 affinity terms" in found.spec.complexity
    kept = found.spec.affinity.anti_required
    assert [each.selector.match_expressions[0].key for each in kept] == [f"a{number}" for number in range(64)]


@FORMATS
@pytest.mark.parametrize(
    ("terms", "text", "kept"),
    [
        ([anti_term(0, values=1_500), anti_term(1, values=1_500)], "3,002 values in selectors", 1),
        ([anti_term(number, f"key-{number}") for number in range(20)], "20 topology keys", 16),
    ],
)
def test_selectors_and_topology_keys_are_bounded(decode, terms, text, kept):
    spec = decode(with_spec(affinity=anti_affinity(*terms))).spec
    assert text in spec.complexity
    assert len(spec.affinity.anti_required) == kept


@FORMATS
def test_tolerations_of_kubernetes_taints_are_dropped_last(decode):
    own = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}
    others = [{"key": f"k{number}", "operator": "Exists"} for number in range(5_000)]
    spec = decode(with_spec(tolerations=[*others, *others, own])).spec
    assert "10,001 tolerations" in spec.complexity
    assert len(spec.tolerations) == DEFAULT_LIMITS.tolerations
    assert (spec.tolerations[0].key, spec.tolerations[0].seconds) == (own["key"], 9)


@FORMATS
@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"nodeSelector": {f"key-{number}": "v" for number in range(3_000)}}, "3,000 values in selectors"),
        ({"containers": [{"name": f"c{number}"} for number in range(300)]}, "300 containers"),
        ({"containers": [{"name": "c", "image": "x" * 100_000}]}, "bytes of spec"),
        ({"volumes": [{"name": f"v{number}", "emptyDir": {}} for number in range(300)]}, "300 containers"),
        ({"schedulingGates": [{"name": f"g{number}"} for number in range(300)]}, "300 containers"),
        (
            {
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": f"k{number}", "whenUnsatisfiable": "DoNotSchedule"}
                    for number in range(20)
                ]
            },
            "20 topology keys",
        ),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "k", "operator": "In", "values": [f"v{number}"]}]}
                                for number in range(100)
                            ]
                        }
                    }
                }
            },
            "100 affinity terms",
        ),
    ],
)
def test_every_part_of_a_spec_is_bounded(decode, spec, text):
    found = decode(with_spec(**spec)).spec
    assert text in found.complexity
    assert len(msgspec.json.encode(found)) < 32 * KIB


@FORMATS
def test_container_ports_that_are_no_host_ports_are_no_matter(decode):
    ports = [{"containerPort": number} for number in range(1, 1_000)]
    spec = decode(with_spec(containers=[{"name": "c", "image": "i", "ports": ports}])).spec
    assert spec.complexity == ""


@FORMATS
@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"labels": {f"key-{number:04}": "v" for number in range(2_000)}}, "2,000 labels"),
        ({"annotations": {"trimtab.dev/notes": "x" * 250_000, "trimtab.dev/a": "b"}}, "bytes of annotations"),
        (
            {
                "ownerReferences": [
                    *({"apiVersion": "v1", "kind": "X", "name": f"x{number}", "uid": "u"} for number in range(1_000)),
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "r", "controller": True},
                ]
            },
            "1,001 owner references",
        ),
    ],
)
def test_metadata_of_a_pod_is_bounded(decode, metadata, text):
    found: Pod = decode(with_metadata(**metadata))
    assert text in found.spec.complexity
    assert len(found.labels) <= DEFAULT_LIMITS.labels
    assert len(found.owners) <= DEFAULT_LIMITS.items
    assert sum(map(len, found.annotations.values())) <= DEFAULT_LIMITS.annotation_bytes
    if "annotations" in metadata:
        assert found.annotations == {"trimtab.dev/a": "b"}
    if "ownerReferences" in metadata:
        assert found.controller is not None


@FORMATS
def test_annotations_that_are_not_read_are_no_matter(decode):
    found = decode(with_metadata(annotations={"example.com/notes": "x" * 250_000}))
    assert (found.spec.complexity, dict(found.annotations)) == ("", {})


@FORMATS
def test_long_messages_of_conditions_are_cut(decode):
    manifest = pod("web").manifest()
    message = "0/1 nodes are available: " + ", ".join(f"1 Insufficient x.io/{number}" for number in range(10_000))
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    manifest["status"] = {"phase": "Pending", "conditions": [condition]}
    found = decode(manifest)
    assert found.conditions[0].message == message[:MESSAGE_LENGTH]
    assert found.spec.complexity == ""


@FORMATS
@pytest.mark.parametrize(("length", "kibibytes"), [(100, {0}), (20_000, {19, 20})])
def test_size_of_large_spec_is_kept(decode, length, kibibytes):
    spec = decode(with_spec(containers=[{"name": "c", "image": "x" * length}])).spec
    assert spec.kibibytes in kibibytes


def test_all_formats_keep_the_same():
    terms = [anti_term(number, f"key-{number % 30}", values=3) for number in range(500)]
    manifest = with_spec(
        affinity=anti_affinity(*terms),
        containers=[container(requests={f"x.io/r{number}": "1" for number in range(100)})],
        tolerations=[{"key": f"k{number}", "operator": "Exists"} for number in range(500)],
    )
    specs = [msgspec.structs.replace(decode(manifest).spec, complexity="") for decode in (by_protobuf, by_json)]
    assert specs[0] == specs[1]


def test_limits_are_settings(golden: Golden):
    limits = ComplexityLimits(affinity_terms=2)
    manifest = with_spec(affinity=anti_affinity(*(anti_term(number) for number in range(3))))
    found = ProtobufCodec("Pod", Interner(limits)).decode(encode_object(manifest))
    golden(found.spec.complexity)


def test_other_objects_with_endless_selectors_are_read_on_the_safe_side():
    expression = {"key": "k", "operator": "In", "values": [f"v{number}" for number in range(5_000)]}
    selector = {"matchExpressions": [expression]}
    meta = {"name": "x", "namespace": "shop"}
    budget = decode_object({"kind": "PodDisruptionBudget", "metadata": meta, "spec": {"selector": selector}})
    owner = decode_object({"kind": "ReplicaSet", "metadata": meta, "spec": {"selector": selector}})
    many = {f"key-{number}": "v" for number in range(5_000)}
    service = decode_object({"kind": "Service", "metadata": meta, "spec": {"selector": many}})
    assert isinstance(budget, PodDisruptionBudget)
    assert budget.selector == LabelSelector()  # all pods of its namespace
    assert isinstance(owner, ReplicaSet)
    assert owner.selector is None
    assert isinstance(service, Service)
    assert service.selector is None


def test_template_of_a_daemon_set_is_bounded_as_its_pods_are():
    template = {"metadata": {"labels": {f"k{number}": "v" for number in range(500)}}, "spec": {}}
    template["spec"] = {"containers": [{"name": "c", "image": "x" * 100_000}]}
    meta = {"name": "x", "namespace": "shop"}
    found: Any = decode_object({"kind": "DaemonSet", "metadata": meta, "spec": {"template": template}})
    assert "bytes of spec" in found.template.spec.complexity
    assert len(found.template.labels) == DEFAULT_LIMITS.labels


@pytest.mark.parametrize(
    "manifest",
    [
        with_spec(containers=[container(limits={f"x.io/p-{number}": "1" for number in range(10_000)})]),
        with_spec(affinity=anti_affinity(*(anti_term(number) for number in range(8_000)))),
        with_metadata(annotations={"trimtab.dev/notes": "x" * 250_000}),
        with_metadata(labels={f"label-{number:05}": "v" * 63 for number in range(10_000)}),
    ],
    ids=["resources", "terms", "annotations", "labels"],
)
def test_a_megabyte_of_pod_keeps_little_memory(manifest):
    codec = ProtobufCodec("Pod", Interner())
    codec.decode(encode_object(pod("warm").manifest()))
    raws = []
    for number in range(5):
        manifest["metadata"]["name"] = f"pod-{number}"
        manifest["metadata"]["uid"] = f"uid-{number}"
        raws.append(encode_object(manifest))
    tracemalloc.start()
    try:
        kept = [codec.decode(raw) for raw in raws]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == 5
    assert held < 5 * 256 * KIB
