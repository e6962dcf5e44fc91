"""Machines of both APIs on a live API server: saved in a snapshot, loaded, and made into node groups."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.api.test_cli_live import run
from tests.builders import Builder, daemon_set, machine_deployment, machine_set, pod
from tests.fixtures.clusters import Cluster
from tests.fixtures.custom_resources import DEFINITIONS, definition
from tests.fixtures.waiting import eventually
from trimtab.autoscaling.groups import build_groups
from trimtab.autoscaling.template import build_templates
from trimtab.cli.sources import read_cluster
from trimtab.cluster.kinds import SNAPSHOT_KINDS
from trimtab.cluster.loader import load
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.api import NotFound
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.kube.resources import DAEMON_SETS, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, Resource

pytestmark = pytest.mark.live

NOW = 1_795_176_000.0
V1BETA1 = Resource("cluster.x-k8s.io", "v1beta1", MACHINE_DEPLOYMENTS.plural, MACHINE_DEPLOYMENTS.kind)
"""As a cluster has it whose Cluster API is older than v1beta2."""


@pytest.fixture
def machines(cluster: Cluster, namespace: str) -> Iterator[str]:
    """A MachineSet with a machine and its node, and an empty one of Cluster API. Returns the node's name."""
    served = (MACHINE_SETS, MACHINES, V1BETA1)
    for resource in served:
        cluster.client.request("POST", DEFINITIONS, definition(resource))
    found = [each["metadata"] for each in cluster.client.request("GET", "/api/v1/nodes")["items"]]
    node, uid = min((each["name"], each["uid"]) for each in found)
    owner = machine_set("workers-a", namespace).limits(1, 5).replicas(2)
    empty = machine_deployment("empty", namespace, version="v1beta1").limits(0, 3).capacity(cpu="4", memory="16Gi")
    agent = daemon_set("agent", namespace).of_pods(pod().cpu("100m").node_selector(nowhere="yes"))
    for resource, builder in (
        (MACHINE_SETS, owner),
        (MACHINES, owner.machine("workers-a-1").on(node, uid=uid)),
        (V1BETA1, empty),
        (DAEMON_SETS, agent),
    ):
        _post(cluster, resource, namespace, builder)
    for resource in served:  # the first reads of a new definition may come from a cache that is being built
        eventually(partial(_one_is_listed, cluster, resource), f"{resource.name} is listed")
    yield node
    for resource in served:
        cluster.client.request("DELETE", f"{DEFINITIONS}/{resource.name}")
    cluster.client.request("DELETE", DAEMON_SETS.path("agent", namespace=namespace))
    eventually(lambda: not _defined(cluster) & {resource.name for resource in served}, "the definitions are gone")


def _one_is_listed(cluster: Cluster, resource: Resource) -> bool:
    return len(cluster.client.request("GET", resource.path(), params={"limit": "500"})["items"]) == 1


def _defined(cluster: Cluster) -> set[str]:
    return {each["metadata"]["name"] for each in cluster.client.request("GET", DEFINITIONS)["items"]}


def _post(cluster: Cluster, resource: Resource, namespace: str, builder: Builder) -> None:
    manifest = builder.manifest()
    manifest["metadata"].pop("uid")

    def created() -> bool:
        try:
            cluster.client.request("POST", resource.path(namespace=namespace), manifest)
        except NotFound:
            return False
        return True

    eventually(created, f"{resource.name} is served", seconds=30)


def loaded(admin: Path, missed: list[Any] | None = None) -> Snapshot:
    """The live cluster, loaded completely."""

    async def read() -> Snapshot:
        async with Transport(load_config(str(admin))) as api:
            reported = None if missed is None else lambda *what: missed.append(what)
            return await load(api, kinds=SNAPSHOT_KINDS, on_absent=reported)

    return asyncio.run(read())


def test_groups_and_templates_are_equal_live_and_from_a_snapshot(
    cluster: Cluster, machines: str, namespace: str, admin: Path, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.json"
    saved = run("snapshot", "--kubeconfig", admin, "-o", file)
    assert (saved.exit_code, saved.stderr) == (0, "")
    live = loaded(admin)

    found, read = build_groups(live), build_groups(read_cluster(str(file)))

    assert [(group.id, group.nodes, group.upcoming) for group in read.all] == [
        (f"MachineDeployment/{namespace}/empty", (), 0),
        (f"MachineSet/{namespace}/workers-a", (machines,), 1),
    ]
    assert read.by_id[f"MachineDeployment/{namespace}/empty"].api_version == "cluster.x-k8s.io/v1beta1"
    assert read == found
    assert not read.problems
    made = build_templates(live, found.all, now=NOW)
    assert list(made.of_group) == list(found.by_id)
    assert not made.problems


def test_live_plan_contains_the_node_groups(
    cluster: Cluster, machines: str, namespace: str, admin: Path, tmp_path: Path
) -> None:
    del cluster, namespace
    policy = tmp_path / "autoscaler.yaml"
    policy.write_text(
        "{apiVersion: autoscaling.openshift.io/v1, kind: ClusterAutoscaler, metadata: {name: default}, spec: {}}"
    )

    planned = run("plan", "--kubeconfig", admin, "--policy", policy, "-o", "json")

    assert planned.exit_code == 0, planned.stderr
    nodes = {each["name"]: each["reason"] for each in json.loads(planned.stdout)["kept"] if each["kind"] == "Node"}
    assert nodes.pop(machines) != "NotAutoscaled"
    assert set(nodes.values()) <= {"NotAutoscaled"}


def test_pending_pod_is_explained_with_the_node_groups(
    cluster: Cluster, machines: str, namespace: str, admin: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "autoscaler.yaml"
    policy.write_text(
        "{apiVersion: autoscaling.openshift.io/v1, kind: ClusterAutoscaler, metadata: {name: default}, spec: {}}"
    )
    container = {"name": "main", "image": "registry.example/app:1", "resources": {"requests": {"cpu": "3900m"}}}
    wanted = {"kubernetes.io/hostname": "nowhere"}
    body = {"metadata": {"name": "big"}, "spec": {"containers": [container], "nodeSelector": wanted}}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cluster.client.request("POST", pods, body)

    def reported() -> bool:
        conditions = cluster.client.request("GET", f"{pods}/big")["status"].get("conditions", ())
        return any(each.get("reason") == "Unschedulable" for each in conditions)

    eventually(reported, "the scheduler reports the pod as unschedulable")
    result = run("explain", "pod/big", "-n", namespace, "--kubeconfig", admin, "--policy", policy, "-o", "json")

    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert (document["state"], document["scheduling"]["reported"]["reason"]) == ("Pending", "Unschedulable")
    groups = {each["nodeGroup"]: each for each in document["nodeGroups"]}
    assert set(groups) == {f"{namespace}/empty", f"{namespace}/workers-a"}
    assert [each["fits"] for each in groups.values()] == [False, False]
    assert document["autoscaling"]["reason"] == "NoGroupFits"
    assert (groups[f"{namespace}/workers-a"]["size"], groups[f"{namespace}/workers-a"]["maximum"]) == (2, 5)


def test_cluster_without_machines_has_no_node_groups(cluster: Cluster, admin: Path) -> None:
    del cluster
    missed: list[Any] = []
    live = loaded(admin, missed)

    assert build_groups(live).by_id == {}
    assert not missed
