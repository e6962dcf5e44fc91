"""Readings of simulated kubelets, which review tokens with a real API server as kubelets do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.fixtures.clusters import require_local_cluster
from tests.fixtures.machine_sets import MERGE
from tests.fixtures.waiting import eventually
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.kube.objects.node import Node
from trimtab.kube.resources import NODES
from trimtab.kube.wire.decode import decode_object
from trimtab.pressure.kubelet_client import KubeletClientSettings, KubeletReader, StatsToken, kubelet_reader
from trimtab.pressure.measurement import ReadFailure
from trimtab.pressure.readings import ReadError, Readings
from trimtab_local.cluster import LocalCluster
from trimtab_local.components import DEFAULT_COMPONENTS, Settings
from trimtab_local.nodes import SILENT, loopback_address, node, ready
from trimtab_local.versions import KUBELET_STATS

READER, POWERLESS = "kubelet-stats", "powerless"
NAMES = ("n1", "n2", "n3", "n4")
SCENARIO = """\
nodes:
- {measureEvery: 1s, memory: {capacity: 1Gi, used: {start: 100Mi}}}
"""


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LocalCluster:
    require_local_cluster(request)
    scenario = tmp_path_factory.mktemp("stats") / "stats.yaml"
    scenario.write_text(SCENARIO)
    settings = Settings(components=(*DEFAULT_COMPONENTS, KUBELET_STATS), stats_scenario=str(scenario))
    found: LocalCluster = request.getfixturevalue("make_cluster")(settings, nodes=0)
    client = found.client
    for account in (READER, POWERLESS):
        client.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": account}})
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": [""], "resources": ["nodes/stats"], "verbs": ["get"]}]
    client.request("POST", f"{rbac}/clusterroles", {"metadata": {"name": READER}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": READER, "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READER}
    binding = {"metadata": {"name": READER}, "subjects": [subject], "roleRef": role}
    client.request("POST", f"{rbac}/clusterrolebindings", binding)
    for name in NAMES:
        client.request("POST", NODES.path(), node(name, zone="zone-a"))
    for name in NAMES:
        eventually(lambda name=name: _listens(client.request("GET", NODES.path(name))), what="the kubelet listens")
    return found


def _listens(manifest: dict[str, Any]) -> bool:
    address = {"type": "InternalIP", "address": loopback_address(manifest["metadata"]["name"])}
    return ready(manifest) and address in manifest["status"]["addresses"]


@pytest.fixture
async def api(cluster: LocalCluster) -> AsyncIterator[Transport]:
    async with Transport(load_config(cluster.kubeconfig)) as transport:
        yield transport


def reader(api: Transport, **settings: str) -> KubeletReader:
    return kubelet_reader(KubeletClientSettings(**settings), api, api.config, namespace="default")  # type: ignore[arg-type]


async def read_node(api: Transport, name: str) -> Node:
    found = decode_object(await api.request("GET", NODES.path(name)))
    assert isinstance(found, Node)
    return found


async def test_signals_are_read_with_a_token_of_the_service_account(api: Transport) -> None:
    kubelets = reader(api, service_account=READER)
    found = await kubelets.read(await read_node(api, "n1"), only_memory=False)
    memory = await kubelets.read(await read_node(api, "n1"), only_memory=True)
    await kubelets.close()
    assert {"memory.available", "nodefs.available", "pid.available"} <= found.signals.keys()
    assert found.signals["memory.available"].capacity == 2**30
    assert found.problems == {}
    assert memory.signals.keys() <= {"memory.available", "allocatableMemory.available"}


async def test_api_server_issues_short_lived_tokens_of_the_service_account_only(api: Transport) -> None:
    token = await StatsToken(api, namespace="default", service_account=READER).get()
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = await api.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body=review)
    assert answer["status"]["user"]["username"] == f"system:serviceaccount:default:{READER}"


@pytest.mark.parametrize("account", [POWERLESS, "missing"])
async def test_node_cannot_be_read_without_a_permitted_service_account(api: Transport, account: str) -> None:
    kubelets = reader(api, service_account=account)
    with pytest.raises(ReadError) as caught:
        await kubelets.read(await read_node(api, "n1"), only_memory=False)
    await kubelets.close()
    assert caught.value.reason == "StatsForbidden"


async def test_a_node_that_does_not_respond_delays_no_other(cluster: LocalCluster, api: Transport) -> None:
    nodes = [await read_node(api, name) for name in NAMES]
    kubelets = reader(api, service_account=READER)
    readings = Readings(kubelets)
    await readings.refresh(nodes, only_memory=False)
    assert [readings.failure(name) for name in NAMES] == [None] * len(NAMES)
    silence = {"metadata": {"labels": {SILENT: "true"}}}
    cluster.client.request("PATCH", NODES.path("n2"), silence, content_type=MERGE)

    async def failed() -> bool:
        await readings.refresh(nodes, only_memory=False, interval=5.0)
        return isinstance(readings.latest("n2"), ReadFailure)

    for _ in range(5):
        if await failed():
            break
    failure = readings.failure("n2")
    assert failure is not None
    assert failure.reason == "StatsUnreachable"
    assert [readings.failure(name) for name in NAMES if name != "n2"] == [None] * (len(NAMES) - 1)
    await readings.close()
    await kubelets.close()
