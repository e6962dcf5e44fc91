"""Loading scenarios into a real API server."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.waiting import eventually
from trimtab.kube.api import Conflict
from trimtab_local import LocalError
from trimtab_local.cluster import LocalCluster
from trimtab_local.load import BATCH, Etcd, load, pod_copy
from trimtab_local.scenario import decode_scenario, read_scenario

pytestmark = pytest.mark.live

EXAMPLES = Path(__file__).parents[2] / "examples" / "local"


@pytest.fixture(scope="module")
def empty(make_cluster) -> LocalCluster:
    """A cluster of this module, which counts nodes and pods."""
    return make_cluster(nodes=0)


@pytest.fixture
def plain_namespace(empty: LocalCluster) -> Iterator[str]:
    name = "plain"
    empty.client.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    account = {"metadata": {"name": "default"}}
    with contextlib.suppress(Conflict):
        empty.client.request("POST", f"/api/v1/namespaces/{name}/serviceaccounts", account)
    yield name
    empty.client.request("DELETE", f"/api/v1/namespaces/{name}")


def pods(cluster: LocalCluster, namespace: str = "") -> list[dict]:
    path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
    listed: list[dict] = cluster.client.request("GET", path)["items"]
    return listed


def direct(namespace: str) -> dict:
    return {
        "nodes": [{"count": 10, "prefix": "direct"}],
        "namespaces": [{"name": namespace, "count": 2}],
        "workloads": [
            {
                "kind": "ReplicaSet",
                "name": "app",
                "namespace": namespace,
                "via": "direct",
                "owners": 10,
                "replicas": 20,
                "requests": {"cpu": "10m"},
                "placement": {"heavyShare": 0.4, "heavyFactor": 3},
            },
            {"kind": "Pod", "name": "bare", "namespace": namespace, "via": "direct"},
        ],
    }


def test_loaded_pods_keep_their_nodes_and_are_adopted_by_their_controllers(empty: LocalCluster) -> None:
    scenario = decode_scenario(direct("first"))
    report = load(empty, scenario)
    assert (report.nodes, report.pods) == (10, 201)
    first = [pod for pod in pods(empty) if pod["metadata"]["namespace"].startswith("first-")]
    assert Counter(pod["status"]["phase"] for pod in first) == {"Running": 201}
    assert all(pod["metadata"]["labels"]["app"] for pod in first)
    counts = Counter(pod["spec"]["nodeName"] for pod in first if "ownerReferences" in pod["metadata"])
    assert {counts[f"direct-{number}"] for number in range(1, 5)} <= {33, 34}
    assert {counts[f"direct-{number}"] for number in range(5, 11)} <= {11, 12}
    owners = empty.client.request("GET", "/apis/apps/v1/replicasets")["items"]
    assert {owner["status"]["readyReplicas"] for owner in owners} == {20}

    names = {pod["metadata"]["name"] for pod in first}
    load(empty, scenario)  # a second time changes nothing
    again = [pod for pod in pods(empty) if pod["metadata"]["namespace"].startswith("first-")]
    assert {pod["metadata"]["name"] for pod in again} == names


def test_evicted_loaded_pod_is_recreated(empty: LocalCluster) -> None:
    load(empty, decode_scenario(direct("second")))
    victim = next(pod for pod in pods(empty, "second-1") if "ownerReferences" in pod["metadata"])["metadata"]
    before = {pod["metadata"]["name"] for pod in pods(empty, "second-1")}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": victim["name"]}}
    empty.client.request("POST", f"/api/v1/namespaces/second-1/pods/{victim['name']}/eviction", eviction)

    def replaced() -> set[str] | None:
        running = {
            pod["metadata"]["name"] for pod in pods(empty, "second-1") if pod["status"].get("phase") == "Running"
        }
        return running if len(running) == len(before) and victim["name"] not in running else None

    running = eventually(replaced, "the evicted pod is replaced")
    assert len(running - before) == 1


def test_pods_of_the_small_example_are_scheduled(empty: LocalCluster) -> None:
    load(empty, read_scenario(EXAMPLES / "small.yaml"))
    found = [pod for pod in pods(empty, "shop") if pod["status"]["phase"] == "Running"]
    owners = Counter(pod["metadata"]["labels"]["app"].partition("-")[0] for pod in found)
    assert (owners["web"], owners["api"], owners["database"]) == (9, 20, 3)
    databases = [pod["spec"]["nodeName"] for pod in found if pod["metadata"]["labels"]["app"] == "database"]
    assert len(set(databases)) == 3
    budgets = empty.client.request("GET", "/apis/policy/v1/namespaces/shop/poddisruptionbudgets")["items"]
    assert {budget["metadata"]["name"] for budget in budgets} == {"web", "database"}


def test_rejected_object_is_reported_with_the_api_servers_message(empty: LocalCluster) -> None:
    workload = {"kind": "Deployment", "name": "bad", "podSpec": {"restartPolicy": "Sometimes"}}
    with pytest.raises(LocalError, match=r"POST /apis/apps/v1/namespaces/default/deployments: .*Sometimes"):
        load(empty, decode_scenario({"workloads": [workload]}))


def test_copied_pod_equals_a_created_one(empty: LocalCluster) -> None:
    load(empty, decode_scenario(direct("third")))
    found = [pod for pod in pods(empty, "third-1") if pod["metadata"]["labels"]["app"] == "app-1"]
    assert len({pod["metadata"]["uid"] for pod in found}) == 20
    assert len({pod["metadata"]["resourceVersion"] for pod in found}) > 1

    def plain(pod: dict) -> dict:
        own = ("name", "uid", "resourceVersion")
        return {
            **pod,
            "metadata": {key: value for key, value in pod["metadata"].items() if key not in own},
            "spec": {**pod["spec"], "nodeName": ""},
        }

    assert all(plain(pod) == plain(found[0]) for pod in found)
    for pod in found:  # the API server accepts it as the former state of a change, validation included
        path = f"/api/v1/namespaces/third-1/pods/{pod['metadata']['name']}"
        body = {"metadata": {"labels": {"seen": "yes"}}}
        changed = empty.client.request("PATCH", path, body, content_type="application/merge-patch+json")
        assert changed["spec"] == pod["spec"]
        assert changed["metadata"]["uid"] == pod["metadata"]["uid"]
    selected = empty.client.request(
        "GET", "/api/v1/namespaces/third-1/pods", params={"labelSelector": "seen=yes", "resourceVersion": "0"}
    )
    assert len(selected["items"]) == 20


async def test_interrupted_load_resumes_without_duplicates(empty: LocalCluster, plain_namespace: str) -> None:
    path = f"/api/v1/namespaces/{plain_namespace}/pods"
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "none"}], "nodeName": "none"}}
    original = empty.client.request("POST", path, pod)
    names = ["a", *(f"b-{number}" for number in range(BATCH + 5))]
    async with Etcd(empty.layout.etcd) as etcd:
        await etcd.create([pod_copy(original, name=name, node_name="other") for name in names])
    found = {pod["metadata"]["name"]: pod for pod in pods(empty, plain_namespace)}
    assert sorted(found) == sorted(names)
    assert found["a"]["metadata"]["uid"] == original["metadata"]["uid"]
    assert found["a"]["spec"]["nodeName"] == "none"
    assert found["b-0"]["spec"]["nodeName"] == "other"
