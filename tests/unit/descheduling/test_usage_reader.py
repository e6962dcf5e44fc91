"""Real use while a plan is carried out: read again and again, on a virtual clock, and what is no longer so is left."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.builders import node, pod
from tests.fakes.api import FakeApi
from tests.fakes.clock import LoopClock
from tests.fixtures.golden import Golden
from tests.unit.descheduling.test_controller import Desk
from tests.unit.descheduling.test_controller import plan_on_the_loop as plan_on_the_loop
from trimtab.api.strategies import MetricsUtilization, PrometheusQuery
from trimtab.cluster.usage.measurement import Usage
from trimtab.descheduling import usage_reader
from trimtab.descheduling.usage_reader import REFRESH_PERIOD, UsageReader

pytestmark = pytest.mark.looptime(start=0)

NODES = "/apis/metrics.k8s.io/v1beta1/nodes"
PODS = "/apis/metrics.k8s.io/v1beta1/pods"
KUBERNETES = MetricsUtilization(source="KubernetesMetrics")
BY_USE = {
    "LowNodeUtilization": {
        "params": {
            "metricsUtilization": {"source": "KubernetesMetrics"},
            "nodeResourceUtilizationThresholds": {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}},
        }
    }
}


def measure(api: FakeApi, uses: Mapping[str, int]) -> None:
    """What nodes use, in millicores."""
    for name, cpu in uses.items():
        api.put(f"{NODES}/{name}", {"metadata": {"name": name}, "usage": {"cpu": f"{cpu}m", "memory": "1Gi"}})


def desk() -> Desk:
    """Two nodes of 4 cores and two pods on the first, whose real use is not measured."""
    made = Desk()
    made.executor.takes = 1000.0
    made.caches.apply(None, node("n3").allocatable(cpu="4", memory="8Gi", pods=110).build())
    for name in ("big", "other"):
        builder = pod(name, namespace="shop").on("n1").cpu("1").owned_by("ReplicaSet", name).phase("Running")
        made.caches.apply(None, builder.build())
    measure(made.api, {"n1": 3000, "n2": 100, "n3": 2000})
    return made


async def test_evictions_are_rechecked_with_latest_measurement(golden: Golden) -> None:
    made = desk()
    made.write(mode="Act", interval="10m", strategies=BY_USE)
    async with made.running():
        await asyncio.sleep(1)
        [call] = made.executor.calls
        [action] = call["actions"]
        assert (action.strategy, action.node, action.target) == ("LowNodeUtilization", "n1", "n2")
        assert await call["recheck"](action) is None
        measure(made.api, {"n1": 0})
        assert await call["recheck"](action) is None  # not measured yet
        await asyncio.sleep(REFRESH_PERIOD + 1)
        refusal = await call["recheck"](action)
        assert refusal.reason == "PlanOutdated"
        golden(refusal.message)
        assert len(made.api.sent("GET", NODES)) == 2
        [known] = made.services.policies.usages().values()  # so that others' cycles heed it
        assert known.nodes["n1"]["cpu"] < 3000


async def test_lost_measurements_stop_evictions_and_set_status() -> None:
    made = desk()
    made.write(mode="Act", interval="10m", strategies=BY_USE)
    async with made.running():
        await asyncio.sleep(1)
        [call] = made.executor.calls
        for name in ("n1", "n2", "n3"):
            del made.api.objects[f"{NODES}/{name}"]
        await asyncio.sleep(REFRESH_PERIOD + 1)
        assert (await call["recheck"](call["actions"][0])).reason == "NotMeasured"
        made.executor.takes = 0.0
        made.write(mode="Act", interval="10m", strategies=BY_USE, generation=2)
        await asyncio.sleep(60)
        assert made.condition("Degraded") == ("True", "UsageNotMeasured")
        assert made.condition("Ready") == ("True", "CycleCompleted")


async def test_utilization_is_read_only_while_acting() -> None:
    made = desk()
    made.executor.takes = 2.5 * REFRESH_PERIOD
    made.write(mode="Act", interval="1h", strategies=BY_USE)
    async with made.running():
        await asyncio.sleep(3000)
        assert len(made.api.sent("GET", NODES)) == 3


async def test_policy_by_requests_reads_no_metrics() -> None:
    made = desk()
    made.executor.takes = 2.5 * REFRESH_PERIOD
    made.write(mode="Act", interval="1h")
    async with made.running():
        await asyncio.sleep(1000)
        assert made.executor.calls
        assert made.api.sent("GET", "metrics.k8s.io") == []


async def test_measurements_are_smoothed_until_query_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    api, shares = FakeApi(), iter([0, 1_000_000, 1_000_000])

    async def read(*_: Any, now: float) -> Usage:
        return Usage(taken=now, nodes={"n1": {"MetricResource": next(shares)}})

    monkeypatch.setattr(usage_reader, "read_prometheus_usage", read)
    reader = UsageReader(api, None)
    first = MetricsUtilization(source="Prometheus", prometheus=PrometheusQuery(query="a"))
    other = MetricsUtilization(source="Prometheus", prometheus=PrometheusQuery(query="b"))
    assert (await reader.read(first, 0.0)).nodes["n1"]["MetricResource"] == 0
    assert (await reader.read(first, 0.0)).nodes["n1"]["MetricResource"] == 500_000
    assert (await reader.read(other, 0.0)).nodes["n1"]["MetricResource"] == 1_000_000


async def test_measurements_before_a_gap_are_discarded() -> None:
    api = FakeApi()
    reader = UsageReader(api, None)
    measure(api, {"n1": 0})
    await reader.read(KUBERNETES, 0.0)
    del api.objects[f"{NODES}/n1"]
    assert (await reader.read(KUBERNETES, 1.0)).problem
    measure(api, {"n1": 1000})
    assert (await reader.read(KUBERNETES, 2.0)).nodes["n1"]["cpu"] == 1000


async def test_refreshing_ends_with_the_block() -> None:
    api, clock, recorded = FakeApi(), LoopClock(), list[Usage]()
    reader = UsageReader(api, None)
    async with reader.refreshing(KUBERNETES, recorded.append, clock=clock):
        await asyncio.sleep(2.5 * REFRESH_PERIOD)
    await asyncio.sleep(10 * REFRESH_PERIOD)
    assert len(recorded) == 2
    async with reader.refreshing(None, recorded.append, clock=clock):
        await asyncio.sleep(2.5 * REFRESH_PERIOD)
    assert len(recorded) == 2
