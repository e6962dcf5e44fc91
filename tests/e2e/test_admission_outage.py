"""What an outage of all replicas of the admission role means: Fail refuses, Ignore admits, the control plane works."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.conftest import MakeCluster
from tests.fixtures.machine_sets import MERGE
from tests.fixtures.placement_admission import AdmissionCluster, pod, workload
from tests.fixtures.waiting import eventually
from trimtab.kube.api import ApiError, Forbidden, ServerError
from trimtab.kube.resources import DAEMON_SETS, DEPLOYMENTS, LEASES, NAMESPACES, NODES, PODS

RULES: dict[str, Any] = {
    "podNodeConstraints": {"failurePolicy": "Fail"},
    "extendedResourceToleration": {"failurePolicy": "Ignore"},
}
BY_NAME = "node selection by nodeName is prohibited by policy for your role"
GPU = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
GPU_POD = {"containers": [{"name": "main", "image": "none", "resources": GPU}]}
NO_ANSWER = 'failed calling webhook "validate-fail.placement.trimtab.dev"'


@pytest.fixture
def two_replicas(
    make_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[AdmissionCluster]:
    """A cluster with one node and two replicas."""
    if request.config.getoption("--cluster") != "local":
        pytest.skip("these tests run the admission role as processes next to a local control plane")
    cluster = make_cluster(nodes=1)
    with ExitStack() as stack:
        found = AdmissionCluster(cluster, tmp_path_factory.mktemp("outage"), stack)
        found.start()
        found.start()
        yield found
    cluster.down()


def kill_all(cluster: AdmissionCluster) -> None:
    for each in cluster.replicas:
        if each.running():
            each.stop(signal.SIGKILL)


def answer(cluster: AdmissionCluster, namespace: str, **spec: Any) -> str:
    """Return the message with which a tenant's pod is refused; empty if it is admitted."""
    try:
        cluster.dev.create(PODS, pod(**spec), namespace=namespace, dry_run=True)
    except ApiError as error:
        return error.message
    return ""


def test_outage_refuses_what_fail_concerns_and_nothing_else(two_replicas: AdmissionCluster) -> None:
    cluster = two_replicas
    name, exempt = cluster.namespace(), cluster.namespace()
    cluster.write(**RULES, exemptNamespaces=[exempt])
    eventually(lambda: BY_NAME in answer(cluster, name, nodeName="node-1"), what="the rule to apply", seconds=30)
    eventually(
        lambda: any(
            each["key"] == "example.com/gpu"
            for each in cluster.dev.create(PODS, pod(**GPU_POD), namespace=name, dry_run=True).object["spec"][
                "tolerations"
            ]
        ),
        what="the other rule to apply",
        seconds=30,
    )
    cluster.dev.create(DEPLOYMENTS, workload(DEPLOYMENTS, "web"), namespace=name)

    # One replica is gone: nothing changes.
    cluster.replicas[0].stop(signal.SIGKILL)
    for _ in range(20):
        assert answer(cluster, name, nodeName="node-1").endswith(BY_NAME)
        assert answer(cluster, name) == ""

    # Both are gone.
    cluster.replicas[1].stop(signal.SIGKILL)
    with pytest.raises(ServerError) as refused:
        cluster.dev.create(PODS, pod(nodeName="node-1"), namespace=name)
    assert refused.value.status == 500
    assert refused.value.message.startswith(f"Internal error occurred: {NO_ANSWER}")
    with pytest.raises(ServerError):
        cluster.dev.create(DEPLOYMENTS, workload(DEPLOYMENTS, "new", nodeName="node-1"), namespace=name)
    # The webhook is not called for pods that its rule cannot concern.
    assert answer(cluster, name) == ""
    # Ignore: admitted, without the toleration.
    spec = cluster.dev.create(PODS, pod(**GPU_POD), namespace=name, dry_run=True).object["spec"]
    assert "example.com/gpu" not in {each["key"] for each in spec["tolerations"]}

    # Exempt namespaces, the control plane and nodes are not concerned.
    cluster.dev.create(PODS, pod(nodeName="node-1"), namespace=exempt, dry_run=True)
    client = cluster.client
    for system in ("kube-system", "trimtab-system"):
        account = f"/api/v1/namespaces/{system}/serviceaccounts/default"
        eventually(lambda account=account: client.request("GET", account), what="the service account")
        client.request("POST", PODS.path(namespace=system), pod("static", nodeName="node-1"), params={"dryRun": "All"})
        manifest = workload(DEPLOYMENTS, "addon", nodeName="node-1")
        client.request("POST", DEPLOYMENTS.path(namespace=system), manifest, params={"dryRun": "All"})
    lease = LEASES.path("node-1", namespace="kube-node-lease")
    before = client.request("GET", lease)["spec"]["renewTime"]
    eventually(lambda: client.request("GET", lease)["spec"]["renewTime"] > before, what="the heartbeat", seconds=60)
    client.request("PATCH", NODES.path("node-1"), {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE)
    client.request("POST", NAMESPACES.path(), {"metadata": {"name": "during"}})
    kubelet = cluster.user("system:node:node-1", groups=["system:nodes"])
    cluster.bind(name, "edit", {"kind": "User", "name": "system:node:node-1"})
    mirror = pod("static-node-1", nodeName="node-1")
    uid = client.request("GET", NODES.path("node-1"))["metadata"]["uid"]
    mirror["metadata"] |= {
        "annotations": {"kubernetes.io/config.mirror": "abc"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": uid, "controller": True}],
    }

    def reported() -> bool:
        try:
            kubelet.create(PODS, mirror, namespace=name, dry_run=True)
        except Forbidden:  # until the RBAC rules apply
            return False
        return True

    eventually(reported, what="the mirror pod", seconds=10)

    # Running pods can be evicted, deleted and labelled.
    params = {"labelSelector": "app=web"}
    path = PODS.path(namespace=name)
    [running] = eventually(lambda: client.request("GET", path, params=params)["items"], what="the Deployment's pod")
    running_name = running["metadata"]["name"]
    cluster.dev.patch(PODS, running_name, {"metadata": {"labels": {"a": "b"}}}, namespace=name)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": running_name, "namespace": name}}
    client.request("POST", PODS.path(running_name, namespace=name, subresource="eviction"), eviction)

    # A DaemonSet's pods select their node by affinity, so an outage does not stop those either.
    cluster.binder.create(DAEMON_SETS, workload(DAEMON_SETS, "agent"), namespace=name)
    found = {"labelSelector": "app=agent"}
    eventually(lambda: client.request("GET", path, params=found)["items"], what="the DaemonSet's pod", seconds=30)

    # A replica returns: no other step is needed.
    cluster.start()
    eventually(lambda: BY_NAME in answer(cluster, name, nodeName="node-1"), what="the rule to apply again", seconds=30)
    assert "example.com/gpu" in {
        each["key"]
        for each in cluster.dev.create(PODS, pod(**GPU_POD), namespace=name, dry_run=True).object["spec"]["tolerations"]
    }


def test_controllers_create_delayed_pods_after_an_outage(two_replicas: AdmissionCluster) -> None:
    """A rule that concerns every pod stops all creations outside exempt namespaces, and delays those of controllers."""
    cluster = two_replicas
    name = cluster.namespace()
    cluster.enforce(podNodeSelector={"clusterDefaultNodeSelector": "kubernetes.io/os=linux"})
    cluster.dev.create(DEPLOYMENTS, workload(DEPLOYMENTS, "web"), namespace=name)
    client, path = cluster.client, PODS.path(namespace=name)

    def running() -> int:
        found = client.request("GET", path)["items"]
        return sum(each["status"].get("phase") == "Running" for each in found)

    eventually(lambda: running() == 1, what="the first pod")
    kill_all(cluster)
    with pytest.raises(ServerError) as refused:
        cluster.dev.create(PODS, pod(), namespace=name)
    assert 'failed calling webhook "mutate-fail.placement.trimtab.dev"' in refused.value.message
    cluster.dev.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 3}}, namespace=name, subresource="scale")

    def failing() -> bool:
        sets = client.request("GET", f"/apis/apps/v1/namespaces/{name}/replicasets")["items"]
        return any(
            each["type"] == "ReplicaFailure" and "failed calling webhook" in each["message"]
            for found in sets
            for each in found["status"].get("conditions", ())
        )

    eventually(failing, what="the ReplicaSet to report the failure", seconds=30)
    assert running() == 1

    cluster.start()
    eventually(lambda: running() == 3, what="the delayed pods", seconds=120)
    pods = client.request("GET", path)["items"]
    assert {each["spec"]["nodeSelector"]["kubernetes.io/os"] for each in pods} == {"linux"}
