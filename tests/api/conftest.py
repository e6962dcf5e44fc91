"""Clusters that several files of tests share."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.conftest import MakeCluster
from tests.fixtures.machine_sets import MachineSets, eventually
from trimtab.kube.resources import MACHINE_SETS
from trimtab.local.cluster import LocalCluster
from trimtab.local.components import COMPONENTS, Settings

HOLD = "local.trimtab.dev/hold"


@pytest.fixture(scope="session")
def machine_cluster(make_lasting_cluster: MakeCluster) -> LocalCluster:
    """A local cluster that makes nodes of MachineSets, and has none else."""
    return make_lasting_cluster(Settings(components=COMPONENTS), nodes=0)


@pytest.fixture
def sets(machine_cluster: LocalCluster) -> Iterator[MachineSets]:
    """A namespace of the test's own; its sets, machines and nodes are gone afterwards."""
    namespace = f"machines-{secrets.token_hex(4)}"
    client = machine_cluster.client
    client.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    found = MachineSets(client, namespace)
    yield found
    for each in client.request("GET", MACHINE_SETS.path(namespace=namespace))["items"]:
        name = each["metadata"]["name"]
        found.annotate(name, {HOLD: None})
        found.scale(name, 0)
        eventually(lambda name=name: not found.machines(name), what=f"{name} is empty")
        found.remove(name)
    client.request("DELETE", f"/api/v1/namespaces/{namespace}")
