from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.kube.errors import InputError
from trimtab_local.manifests import (
    budget_manifest,
    namespace_manifests,
    node_manifests,
    owner_manifest,
    owners,
    placements,
    pod_manifest,
    suffix,
)
from trimtab_local.nodes import as_ready, ready
from trimtab_local.scenario import Scenario, decode_scenario, read_scenario

EXAMPLES = Path(__file__).parents[3] / "examples" / "local"


def scenario(**parts) -> Scenario:
    return decode_scenario({"nodes": [{"count": 10}], **parts})


def direct(**more) -> dict:
    return {"kind": "ReplicaSet", "name": "app", "via": "direct", **more}


@pytest.mark.parametrize(("name", "nodes", "pods"), [("small", 12, 44), ("1k", 1_000, 30_000), ("5k", 5_000, 150_000)])
def test_example_scenarios_match_their_names(name: str, nodes: int, pods: int) -> None:
    found = read_scenario(EXAMPLES / f"{name}.yaml")
    assert (found.node_count, found.pod_count) == (nodes, pods)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"node": []}, "f.yaml: node: unknown field; did you mean nodes? allowed: nodes, namespaces, workloads"),
        ([], "f.yaml: must be a mapping, not a list"),
        ({"nodes": [{}]}, "f.yaml: nodes[0].count: is required"),
        ({"nodes": [{"count": 0}]}, "f.yaml: nodes[0].count: must be at least 1, not 0"),
        ({"nodes": [{"count": 1, "cpu": "two"}]}, "f.yaml: nodes[0].cpu: 'two' is not a quantity"),
        ({"nodes": [{"count": 1, "zones": []}]}, "f.yaml: nodes[0].zones: must have at least 1 items"),
        ({"nodes": [{"count": 1}, {"count": 2}]}, "f.yaml: nodes: two have the same prefix: node"),
        (
            {"nodes": [{"count": 1, "taints": [{"key": "a", "effect": "NoRun"}]}]},
            "f.yaml: nodes[0].taints[0].effect: must be NoExecute or NoSchedule or PreferNoSchedule",
        ),
        (
            {"workloads": [{"kind": "Deployment", "name": "web", "namespace": "shop"}]},
            "f.yaml: workloads[0].namespace: is not in namespaces; there are default",
        ),
        (
            {"nodes": [{"count": 1}], "workloads": [direct(kind="StatefulSet")]},
            "f.yaml: workloads[0].kind: via: direct makes ReplicaSet or Pod, not StatefulSet",
        ),
        ({"workloads": [direct()]}, "f.yaml: workloads[0].via: direct needs nodes"),
        (
            {"workloads": [{"kind": "Deployment", "name": "web", "placement": {}}]},
            "f.yaml: workloads[0].placement: is for via: direct",
        ),
        (
            {"nodes": [{"count": 1}], "workloads": [direct(placement={"nodeGroups": ["big"]})]},
            "f.yaml: workloads[0].placement.nodeGroups[0]: no nodes have the prefix big; there are node",
        ),
        (
            {"workloads": [{"kind": "Deployment", "name": "web", "budget": {}}]},
            "f.yaml: workloads[0].budget: needs one of minAvailable and maxUnavailable",
        ),
        (
            {"workloads": [{"kind": "Pod", "name": "p", "requests": {"cpu": 1}, "podSpec": {"containers": [{}]}}]},
            "f.yaml: workloads[0].podSpec.containers: brings its own resources",
        ),
    ],
)
def test_error_names_the_field_and_the_allowed_values(data, message: str) -> None:
    with pytest.raises(InputError) as caught:
        decode_scenario(data, source="f.yaml")
    assert str(caught.value).startswith(message)


def test_all_errors_are_reported_together() -> None:
    with pytest.raises(InputError) as caught:
        decode_scenario({"nodes": [{"count": 1, "cpus": 4, "mem": 1}]}, source="f.yaml")
    assert [line.split(": ")[1] for line in str(caught.value).splitlines()] == ["nodes[0].cpus", "nodes[0].mem"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [", "is not YAML"),
        (b"\xff", "is not YAML"),
        (b"nodes: []\nnodes: []", "duplicate key nodes"),
        (b"nodes: []\n---\nnodes: []", "holds 2 documents"),
    ],
)
def test_file_that_is_not_yaml_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_scenario(path)
    assert caught.value.source == str(path)
    with pytest.raises(InputError, match="No such file"):
        read_scenario(tmp_path / "none.yaml")


def test_nodes_alternate_between_zones_and_have_labels_and_taints() -> None:
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    group = {"count": 3, "prefix": "big", "zones": ["a", "b"], "labels": {"disk": "ssd"}, "taints": [taint]}
    found = list(node_manifests(scenario(nodes=[{**group, "capacity": {"nvidia.com/gpu": 2}}])))
    assert [n["metadata"]["name"] for n in found] == ["big-1", "big-2", "big-3"]
    assert [n["metadata"]["labels"]["topology.kubernetes.io/zone"] for n in found] == ["a", "b", "a"]
    assert found[0]["metadata"]["labels"]["disk"] == "ssd"
    assert found[0]["spec"]["taints"] == [taint]
    assert found[0]["status"]["allocatable"]["nvidia.com/gpu"] == "2"


def test_node_set_to_ready_is_ready() -> None:
    (manifest,) = node_manifests(scenario(nodes=[{"count": 1}]))
    assert not ready(manifest)
    assert ready(as_ready(manifest, version="v1", now="2026-01-01T00:00:00Z"))


def test_owners_alternate_between_namespaces() -> None:
    found = scenario(
        namespaces=[{"name": "team", "count": 2}],
        workloads=[{"kind": "Deployment", "name": "web", "namespace": "team", "owners": 3}],
    )
    assert [m["metadata"]["name"] for m in namespace_manifests(found)] == ["team-1", "team-2"]
    assert [(o.namespace, o.name) for o in owners(found, found.workloads[0])] == [
        ("team-1", "web-1"),
        ("team-2", "web-2"),
        ("team-1", "web-3"),
    ]


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"])
def test_the_selector_of_an_owner_selects_its_pods(kind: str) -> None:
    workload = {"kind": kind, "name": "web", "replicas": 4, "labels": {"tier": "front"}, "requests": {"cpu": "1"}}
    found = scenario(workloads=[workload])
    manifest = owner_manifest(owners(found, found.workloads[0])[0])
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    assert manifest["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert labels["tier"] == "front"
    assert manifest["spec"].get("replicas") == (None if kind == "DaemonSet" else 4)
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"] == {"requests": {"cpu": "1"}}


def test_pod_spec_contains_the_owners_name() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "{owner}"}}, "topologyKey": "zone"}
    found = scenario(
        workloads=[
            {"kind": "Pod", "name": "p", "owners": 2, "podSpec": {"affinity": {"x": [term]}, "hostNetwork": True}}
        ]
    )
    manifest = owner_manifest(owners(found, found.workloads[0])[1])
    assert manifest["spec"]["affinity"]["x"][0]["labelSelector"]["matchLabels"] == {"app": "p-2"}
    assert manifest["spec"]["hostNetwork"] is True
    assert found.workloads[0].pod_spec["affinity"]["x"] == [term]


def test_each_owner_has_a_budget() -> None:
    found = scenario(workloads=[{"kind": "Deployment", "name": "web", "budget": {"maxUnavailable": "25%"}}])
    manifest = budget_manifest(owners(found, found.workloads[0])[0])
    assert manifest is not None
    assert manifest["spec"] == {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": "25%"}


def test_a_directly_created_pod_belongs_to_its_owner_and_its_node() -> None:
    found = scenario(workloads=[direct()])
    pod = pod_manifest(owners(found, found.workloads[0])[0], 3, uid="u", node_name="node-7")
    assert pod["spec"]["nodeName"] == "node-7"
    assert (
        pod["metadata"]["ownerReferences"][0] | {"uid": "u", "controller": True, "kind": "ReplicaSet"}
        == (pod["metadata"]["ownerReferences"][0])
    )


def test_two_fifths_of_the_nodes_hold_three_times_the_pods_of_the_rest() -> None:
    found = read_scenario(EXAMPLES / "1k.yaml")
    counts = Counter(placements(found)[0])
    heavy = [counts[f"node-{number}"] for number in range(1, 401)]
    light = [counts[f"node-{number}"] for number in range(401, 1001)]
    assert (set(heavy), set(light)) == ({50}, {16, 17})


def test_the_same_seed_gives_the_same_cluster_and_another_seed_another() -> None:
    def slots(seed: int) -> list[str]:
        return placements(scenario(workloads=[direct(replicas=40, placement={"seed": seed})]))[0]

    assert slots(1) == slots(1)
    assert slots(1) != slots(2)
    assert Counter(slots(1)) == Counter(slots(2))


def test_pods_go_to_the_node_groups_that_are_named() -> None:
    nodes = [{"count": 2, "prefix": "a"}, {"count": 2, "prefix": "b"}]
    found = scenario(nodes=nodes, workloads=[direct(replicas=4, placement={"nodeGroups": ["b"]})])
    assert Counter(placements(found)[0]) == {"b-1": 2, "b-2": 2}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"replicas": 1101}, r"node-\d+ would hold 111 of pods, and has 110"),
        ({"replicas": 20, "requests": {"cpu": "5"}}, r"node-\d+ would hold 10 of cpu, and has 8"),
        ({"requests": {"nvidia.com/gpu": 1}}, r"would hold 1 of nvidia.com/gpu, and has 0"),
    ],
)
def test_a_load_that_does_not_fit_is_refused_before_anything_is_sent(more: dict, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        placements(scenario(workloads=[direct(**more)]))
    assert caught.value.field == "workloads[0]"


def test_all_workloads_together_must_fit() -> None:
    half = {"replicas": 10, "requests": {"cpu": "5"}}
    found = scenario(workloads=[direct(**half), direct(name="other", **half)])
    with pytest.raises(InputError) as caught:
        placements(found)
    assert caught.value.field == "workloads[1]"


@given(
    count=st.integers(1, 60),
    replicas=st.integers(0, 400),
    share=st.floats(0, 1),
    factor=st.floats(0.1, 10),
)
def test_every_pod_gets_a_node_and_the_weights_are_kept(count: int, replicas: int, share: float, factor: float) -> None:
    found = scenario(
        nodes=[{"count": count, "pods": 10_000}],
        workloads=[direct(replicas=replicas, placement={"heavyShare": share, "heavyFactor": factor})],
    )
    counts = Counter(placements(found)[0])
    assert sum(counts.values()) == replicas
    heavy = round(count * share)
    each = replicas / (heavy * factor + count - heavy)
    for index, name in enumerate(found.nodes[0].names()):
        assert abs(counts[name] - each * (factor if index < heavy else 1)) < 1.001


@given(st.integers(0, 27**5 - 1), st.integers(0, 27**5 - 1))
def test_different_pods_of_an_owner_have_different_names(one: int, other: int) -> None:
    assert (suffix(one) == suffix(other)) == (one == other)
