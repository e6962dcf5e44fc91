"""Groups of kwok's node templates on a real API server, where kwok plays the nodes that are made."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator

import pytest

from tests.api.test_machines_live import loaded
from tests.fixtures.machine_sets import eventually
from tests.unit.autoscaling.external.test_kwok import CONFIG, TEMPLATES
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.external import ExternalSettings, open_sources
from trimtab.autoscaling.groups import NodeGroup, groups
from trimtab.autoscaling.providers import Scaled
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.local.cluster import LocalCluster

pytestmark = pytest.mark.api

NOW = 1_795_176_000.0


@pytest.fixture
def namespace(machine_cluster: LocalCluster) -> Iterator[str]:
    """With the ConfigMaps; gone afterwards, with all nodes that were made of them."""
    client, name = machine_cluster.client, f"kwok-{secrets.token_hex(4)}"
    client.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    texts = {"kwok-provider-config": {"config": CONFIG}, "kwok-provider-templates": {"templates": TEMPLATES}}
    for each, data in texts.items():
        client.request("POST", f"/api/v1/namespaces/{name}/configmaps", {"metadata": {"name": each}, "data": data})
    yield name
    for node in client.request("GET", "/api/v1/nodes")["items"]:
        if node["spec"].get("providerID", "").startswith("kwok:"):
            client.request("DELETE", f"/api/v1/nodes/{node['metadata']['name']}")
    client.request("DELETE", f"/api/v1/namespaces/{name}")


def test_a_group_grows_by_nodes_that_become_ready_and_shrinks_by_those_that_were_chosen(
    machine_cluster: LocalCluster, namespace: str
) -> None:
    def act(to: int = 0, remove: int = 0) -> tuple[NodeGroup, Scaled | None]:
        """One pass of a process that has just started."""

        snapshot = loaded(machine_cluster.kubeconfig)

        async def run() -> tuple[NodeGroup, Scaled | None]:
            async with Transport(load_config(str(machine_cluster.kubeconfig))) as api:
                sources = open_sources(ExternalSettings(kwok_namespace=namespace), api=api, snapshot=lambda: snapshot)
                told = await sources.observe(ClusterAutoscalerSpec())
                assert told.problems == ()
                group = groups(snapshot, external=told).by_id["kwok/small"]
                provider = sources.providers["kwok"]
                if to:
                    return group, await provider.increase(group, to)
                if remove:
                    return group, await provider.remove(group, group.machines[:remove], now=NOW)
                return group, None

        return asyncio.run(run())

    def ready() -> list[str]:
        found = machine_cluster.client.request("GET", "/api/v1/nodes")["items"]
        return [
            each["metadata"]["name"]
            for each in found
            if each["spec"].get("providerID", "").startswith("kwok:small-")
            and any(c["type"] == "Ready" and c["status"] == "True" for c in each["status"].get("conditions", ()))
        ]

    group, scaled = act(to=4)
    assert (group.target, scaled is not None and scaled.done) == (0, True)
    eventually(lambda: len(ready()) == 4, what="four nodes are ready")
    group, removal = act(remove=3)
    assert (group.target, len(group.nodes), group.upcoming) == (4, 4, 0)
    assert removal is not None
    assert removal.done, removal.message
    eventually(lambda: len(ready()) == 1, what="one node is left")
    group, _ = act()
    assert (group.target, group.nodes) == (1, tuple(ready()))
