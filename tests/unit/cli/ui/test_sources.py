"""The live source of the page: what it reads, when it is ready, and what it says about what it cannot read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.builders import node, pod
from tests.fakes.cluster import FakeCluster
from tests.unit.descheduling.planning import NOW, built
from tests.unit.inspection.test_history import entry, record
from trimtab.api.base import ObjectMeta
from trimtab.api.node_pressure_policy import NodePressurePolicy, NodePressurePolicySpec
from trimtab.api.placement_admission import PlacementAdmission
from trimtab.cli.ui.sources import FileSource, LiveSource, ReadOnly, without_omitted
from trimtab.cluster.snapshot import Snapshot
from trimtab.inspection.cluster import ClusterInput, PolicySet
from trimtab.kube.api import Forbidden, ServerError
from trimtab.kube.resources import DEPLOYMENTS, DESCHEDULER_POLICIES, HISTORY_RECORDS, NODES, PODS

pytestmark = pytest.mark.looptime(start=0)


def named(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"strategies": {"RemoveDuplicates": {}}, **spec}}


@pytest.fixture
def server() -> FakeCluster:
    server = FakeCluster()
    server.add(NODES, node("n1"))
    server.add(PODS, pod("web-1", namespace="shop").on("n1"))
    return server


@asynccontextmanager
async def running(server: FakeCluster) -> AsyncIterator[LiveSource]:
    """A source that has been started, and is ready."""
    source = LiveSource(server, "https://example.com")
    task = asyncio.create_task(source.run())
    await until(lambda: source.ready)
    try:
        yield source
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(30_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not become so within 300 s")


async def test_changes_of_the_cluster_reach_both_snapshots(server: FakeCluster) -> None:
    async with running(server) as source:
        before = source.revision
        server.add(NODES, node("n2"))
        await until(lambda: source.revision > before)

        for lend in (source.borrow, source.borrow_for_plan):
            async with lend() as cluster:
                assert sorted(cluster.snapshot.nodes.slot_of) == ["n1", "n2"]
                assert list(cluster.snapshot.pods) == ["shop/web-1"]
                assert cluster.source == "https://example.com"
        assert (source.connection.ok, source.warnings) == (True, ())


async def test_custom_resources_are_read_again_only_after_a_change(server: FakeCluster) -> None:
    async with running(server) as source:
        server.add(DESCHEDULER_POLICIES, named("nightly"))
        server.add(HISTORY_RECORDS, record("h", entry("web-1")))
        await asyncio.sleep(5)
        async with source.borrow() as cluster:
            assert [each.name for each in cluster.policies.descheduler] == ["nightly"]
            assert [each.pod for each in cluster.history] == ["web-1"]
        revision = source.revision
        await asyncio.sleep(60)
        assert source.revision == revision


async def test_invalid_policy_is_a_warning_and_hides_no_other(server: FakeCluster) -> None:
    server.add(DESCHEDULER_POLICIES, named("nightly"))
    server.add(DESCHEDULER_POLICIES, named("wrong", mode="Ask"))
    async with running(server) as source:
        await asyncio.sleep(5)
        [warning] = source.warnings
        assert "DeschedulerPolicy/wrong: spec.mode" in warning
        async with source.borrow() as cluster:
            assert [each.name for each in cluster.policies.descheduler] == ["nightly"]


async def test_kind_that_may_not_be_listed_delays_the_page_only_for_a_while(server: FakeCluster, monkeypatch) -> None:
    monkeypatch.setattr("trimtab.cli.ui.sources.FIRST_FILL", 0.0)
    server.fail(Forbidden("may not list csinodes", status=403), times=10**6, path="/csinodes")
    async with running(server) as source:
        [warning] = source.warnings
        assert "csinodes" in warning
        assert source.connection.ok


async def test_lost_server_is_reported_since_the_last_contact(server: FakeCluster) -> None:
    async with running(server) as source:
        assert source.connection.ok
        server.down = True
        await until(lambda: not source.connection.ok)
        lost = source.connection
        assert lost.message
        assert lost.since is not None
        server.down = False
        await until(lambda: source.connection.ok)


async def test_forbidden_policies_are_a_warning_and_a_broken_list_is_a_lost_connection(server: FakeCluster) -> None:
    server.fail(Forbidden("may not list taintmanagers", status=403), times=10**6, path="/taintmanagers")
    async with running(server) as source:
        await asyncio.sleep(5)
        assert "taintmanagers" in " ".join(source.warnings)
        assert source.connection.ok
        server.fail(ServerError("etcd is slow", status=500), times=10**6, path="/clusterautoscalers")
        await asyncio.sleep(5)
        assert "etcd is slow" in source.connection.message


async def test_managed_fields_are_read_on_demand(server: FakeCluster) -> None:
    fields = {"manager": "kubectl"}
    server.add(NODES, node("n2").merge(metadata={"managedFields": [fields, "malformed"]}))
    async with running(server) as source:
        assert await source.managed_fields("n2") == (fields,)
        assert await source.managed_fields("n3") == ()


async def test_measurements_are_read_only_for_policies_that_need_them(server: FakeCluster) -> None:
    def reads() -> int:
        return len(server.sent("GET", DEPLOYMENTS.path())) + len(server.sent("GET", "metrics.k8s.io/v1beta1/nodes"))

    async with running(server) as source:
        await asyncio.sleep(60)
        assert reads() == 0
        params = {
            "metricsUtilization": {"source": "KubernetesMetrics"},
            "nodeResourceUtilizationThresholds": {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}},
        }
        strategies = {"LowNodeUtilization": {"params": params}}
        server.add(DESCHEDULER_POLICIES, named("measured", strategies=strategies, singleReplica="Surge"))
        await asyncio.sleep(10)
        assert reads() == 2
        async with source.borrow() as cluster:
            assert list(cluster.usages) == ["measured"]
            assert cluster.rollouts is not None
        await asyncio.sleep(10)
        assert reads() == 2


async def test_source_only_sends_get(server: FakeCluster) -> None:
    with pytest.raises(PermissionError):
        await ReadOnly(server).request("POST", NODES.path(), body={})
    assert server.calls == []
    async with running(server) as source:
        await source.managed_fields("n1")
    assert {call.method for call in server.calls} <= {"GET", "WATCH"}


def test_policies_without_their_data_are_omitted_from_the_plan_and_named() -> None:
    named_default = ObjectMeta(name="default")
    policies = PolicySet(
        pressure=(NodePressurePolicy(metadata=named_default, spec=NodePressurePolicySpec()),),
        admission=PlacementAdmission(metadata=named_default),
    )
    cluster = ClusterInput(snapshot=Snapshot(built([node("n1")])), now=NOW, source="test", policies=policies)

    planned, omitted = without_omitted(cluster)

    assert omitted == ("NodePressurePolicy", "PlacementAdmission")
    assert (planned.policies.pressure, planned.policies.admission) == ((), None)


async def test_cluster_from_files_never_changes() -> None:
    source = FileSource(ClusterInput(snapshot=Snapshot(built([node("n1")])), now=NOW, source="c.json"))
    task = asyncio.create_task(source.run())
    await asyncio.sleep(3600)
    assert not task.done()
    assert (source.ready, source.revision, await source.managed_fields("n1")) == (True, 0, ())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
