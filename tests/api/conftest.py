"""Clusters that several test modules share."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.conftest import MakeCluster
from tests.fixtures.machine_sets import MachineSets
from tests.fixtures.placement_admission import AdmissionCluster
from tests.fixtures.waiting import eventually
from trimtab.kube.resources import MACHINE_SETS
from trimtab_local.cluster import LocalCluster
from trimtab_local.components import WITH_MACHINES, Settings

HOLD = "local.trimtab.dev/hold"
CONTROLLERS = ("controllers.pressure.enabled=true", "controllers.scheduler.enabled=true")
"""The chart values that install the CRDs of NodePressurePolicies and SchedulerPolicies."""


@pytest.fixture(scope="session")
def machine_cluster(make_lasting_cluster: MakeCluster) -> LocalCluster:
    """A local cluster whose nodes all come from MachineSets; it starts without nodes."""
    return make_lasting_cluster(Settings(components=WITH_MACHINES), nodes=0)


@pytest.fixture(scope="session")
def admission_cluster(
    make_lasting_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[AdmissionCluster]:
    """A local cluster with one node whose API server calls a replica of the admission role."""
    if request.config.getoption("--cluster") != "local":
        pytest.skip("these tests run the admission role as a process next to a local control plane")
    with ExitStack() as stack:
        cluster = AdmissionCluster(
            make_lasting_cluster(nodes=1), tmp_path_factory.mktemp("admission"), stack, values=CONTROLLERS
        )
        cluster.start()
        yield cluster


@pytest.fixture
def sets(machine_cluster: LocalCluster) -> Iterator[MachineSets]:
    """A namespace of the test; its MachineSets, Machines and nodes are deleted afterwards."""
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
