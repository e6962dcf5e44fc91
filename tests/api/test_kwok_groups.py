"""Node groups of kwok's node templates on a real API server, with kwok as the kubelet of the created nodes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator

import pytest

from tests.api.test_machines_live import loaded
from tests.fakes.node_provider import remove_machines
from tests.fixtures.waiting import eventually
from tests.unit.autoscaling.external.test_kwok import CONFIG, TEMPLATES
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.external import ExternalSettings, open_sources
from trimtab.autoscaling.groups import NodeGroup, build_groups
from trimtab.autoscaling.providers import ScaleResult
from trimtab.cluster.lister import Lister
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.kube.objects import Node
from trimtab.kube.watching.store import Store
from trimtab_local.cluster import LocalCluster

pytestmark = pytest.mark.api

NOW = 1_795_176_000.0


@pytest.fixture
def namespace(machine_cluster: LocalCluster) -> Iterator[str]:
    """A namespace with the ConfigMaps; it is deleted afterwards with all nodes created from them."""
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


def test_kwok_group_scales_up_to_ready_nodes_and_removes_chosen_ones(
    machine_cluster: LocalCluster, namespace: str
) -> None:
    def act(to: int = 0, remove: int = 0) -> tuple[NodeGroup, ScaleResult | None]:
        """One iteration of a newly started process."""

        snapshot = loaded(machine_cluster.kubeconfig)

        async def run() -> tuple[NodeGroup, ScaleResult | None]:
            async with Transport(load_config(str(machine_cluster.kubeconfig))) as api:
                nodes: Store[Node] = Store()
                nodes.replace(each for each in snapshot.nodes.at if each is not None)
                lister = Lister(nodes, Store(), Store())
                sources = open_sources(ExternalSettings(kwok_namespace=namespace), api=api, lister=lister)
                reported = await sources.observe(ClusterAutoscalerSpec())
                assert reported.problems == ()
                group = build_groups(snapshot, external=reported).by_id["kwok/small"]
                provider = sources.providers["kwok"]
                if to:
                    return group, await provider.increase(group, to)
                if remove:
                    return group, await remove_machines(provider, group, group.machines[:remove], now=NOW)
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
