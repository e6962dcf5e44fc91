"""The autoscaler with an externalgrpc provider that creates real nodes on a real control plane."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from tests.e2e.conftest import Start
from tests.fixtures.audit import broken_budgets, pods_lost, require_none
from tests.fixtures.autoscaling import MACHINE_NAMESPACE, Fleet
from tests.fixtures.external_provider import FakeGroup, FakeProvider
from tests.fixtures.waiting import patiently
from tests.protobuf import encode_object
from trimtab.autoscaling.external.externalgrpc import cloud_provider_pb2 as pb
from trimtab.kube.resources import NODES
from trimtab_local.client import Client
from trimtab_local.nodes import node

CAPACITY = {"cpu": "4", "memory": "16Gi", "pods": "110"}
OURS = {"namespaces": [MACHINE_NAMESPACE]}
"""Needed by MachineSets without nodes next to an external provider."""


class Cloud(FakeProvider):
    """Creates a node in the cluster for each instance."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client

    def group(self, name: str, *, least: int = 0, most: int = 9) -> FakeGroup:
        like = node("like", zone="zone-a", capacity=CAPACITY, labels={"pool": name})
        group = self.groups[name] = FakeGroup(least=least, most=most, template=encode_object(like))
        return group

    def _NodeGroupIncreaseSize(self, request: Any) -> Any:  # noqa: N802
        group = self.groups[request.id]
        before = set(group.instances)
        answer = super()._NodeGroupIncreaseSize(request)
        for provider_id in sorted(group.instances.keys() - before):
            name = provider_id.removeprefix("fake://").replace("/", "-")
            manifest = node(name, zone="zone-a", capacity=CAPACITY, labels={"pool": request.id})
            manifest["spec"]["providerID"] = provider_id
            self._client.request("POST", NODES.path(), manifest)
            group.instances[provider_id] = (pb.RUNNING, "")
        return answer

    def _NodeGroupDeleteNodes(self, request: Any) -> Any:  # noqa: N802
        answer = super()._NodeGroupDeleteNodes(request)
        for reported in request.nodes:
            self._client.request("DELETE", NODES.path(reported.name))
        return answer


@pytest.fixture
def cloud(fleet: Fleet) -> Iterator[Cloud]:
    """The provider in a thread; in production it is a separate process."""
    found = Cloud(fleet.client)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(found.start(), loop).result(patiently(30))
        yield found
        asyncio.run_coroutine_threadsafe(found.stop(), loop).result(patiently(30))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(patiently(30))
        loop.close()


def reported(fleet: Fleet, name: str) -> dict[str, Any]:
    return next((each for each in fleet.status().get("nodeGroups", ()) if each["id"] == f"external/{name}"), {})


def size(fleet: Fleet, name: str) -> int:
    return sum(each["metadata"]["labels"].get("pool") == name for each in fleet.all_nodes().values())


def test_external_node_group_scales_up_and_down_to_its_minimum(fleet: Fleet, operate: Start, cloud: Cloud) -> None:
    cloud.group("pool", least=1, most=6)
    fleet.autoscale()
    operate(f"--cloud-provider-grpc-address={cloud.address}")

    fleet.deploy("web", 10)
    fleet.until_running("web", 10)
    assert fleet.pools("web") == {"pool": 10}
    assert (cloud.groups["pool"].target, size(fleet, "pool")) == (5, 5)
    fleet.until(lambda: reported(fleet, "pool").get("ready") == 5, "the status counts five ready nodes")
    assert (reported(fleet, "pool")["minSize"], reported(fleet, "pool")["maxSize"]) == (1, 6)

    fleet.budget("web", maxUnavailable=2)
    fleet.resize("web", 2)
    fleet.until(lambda: size(fleet, "pool") == 1, "one node is left", seconds=120)
    fleet.until_running("web", 2)
    assert (cloud.groups["pool"].target, len(cloud.groups["pool"].instances)) == (1, 1)
    assert len(cloud.deleted) == 4
    fleet.iterate_twice()
    assert size(fleet, "pool") == 1
    require_none(broken_budgets(fleet.audit, fleet.pods_namespace))
    assert not pods_lost(fleet.audit, fleet.pods_namespace)
    assert not fleet.audit.ours("pods", verbs=("delete", "deletecollection"))


def test_failing_external_provider_blocks_no_other_node_group(fleet: Fleet, operate: Start, cloud: Cloud) -> None:
    cloud.group("pool")
    fleet.group("workers", maximum=3)
    cloud.fails["Refresh"] = grpc.StatusCode.UNAVAILABLE
    fleet.autoscale(nodeGroupAutoDiscovery=OURS)
    operate(f"--cloud-provider-grpc-address={cloud.address}")

    fleet.deploy("web", 6)  # two a node
    fleet.until_running("web", 6)
    assert fleet.pools("web") == {"workers": 6}
    fleet.until(lambda: "ProviderUnreachable" in str(fleet.status()), "the status says that nobody answers")

    fleet.resize("web", 10)
    fleet.until(lambda: "MaxSizeReached" in str(fleet.status().get("pending")), "the set is as large as it may be")
    cloud.fails.clear()
    fleet.until_running("web", 10)
    assert fleet.pools("web") == {"workers": 6, "pool": 4}


def test_failed_external_instance_is_deleted_and_its_pods_rescheduled(
    fleet: Fleet, operate: Start, cloud: Cloud
) -> None:
    group = cloud.group("pool", most=2)
    group.makes = 0
    fleet.group("workers", maximum=3, cpu="16", memory="64Gi")  # LeastWaste likes the pool
    fleet.autoscale(nodeGroupAutoDiscovery=OURS)
    operate(f"--cloud-provider-grpc-address={cloud.address}")

    fleet.deploy("web", 2)
    fleet.until(lambda: group.target == 1, "the pool is asked")
    group.instances["fake://pool/0"] = (pb.CREATING, "QUOTA_EXCEEDED")
    fleet.until_running("web", 2)
    assert fleet.pools("web") == {"workers": 2}
    fleet.until(lambda: not group.instances and group.target == 0, "the failed instance is gone")
    fleet.until(lambda: "QUOTA_EXCEEDED" in str(fleet.status()), "the status has the provider's code")
