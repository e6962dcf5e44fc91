"""Real use while a plan is carried out: read again and again, on a virtual clock, and what is no longer so is left."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.builders import node, pod
from tests.fakes.api import FakeApi
from tests.fakes.clock import LoopClock
from tests.unit.descheduling.test_controller import Desk
from tests.unit.descheduling.test_controller import plan_on_the_loop as plan_on_the_loop
from trimtab.api.strategies import MetricsUtilization, PrometheusQuery
from trimtab.cluster.usage import Usage
from trimtab.descheduling import measuring
from trimtab.descheduling.measuring import FRESH, UseReader

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
    """Two nodes of 4 cores and two pods on the first, which use nothing that anybody measures."""
    made = Desk()
    made.executor.takes = 1000.0
    made.live.apply(None, node("n3").allocatable(cpu="4", memory="8Gi", pods=110).build())
    for name in ("big", "other"):
        builder = pod(name, namespace="shop").on("n1").cpu("1").owned_by("ReplicaSet", name).phase("Running")
        made.live.apply(None, builder.build())
    measure(made.api, {"n1": 3000, "n2": 100, "n3": 2000})
    return made


async def test_what_was_planned_by_use_is_judged_by_the_latest_use() -> None:
    made = desk()
    made.write(mode="Act", interval="10m", strategies=BY_USE)
    async with made.running():
        await asyncio.sleep(1)
        [call] = made.executor.calls
        [action] = call["actions"]
        assert (action.strategy, action.node, action.target) == ("LowNodeUtilization", "n1", "n2")
        assert call["recheck"](action) is None
        measure(made.api, {"n1": 0})
        assert call["recheck"](action) is None  # nobody has looked yet
        await asyncio.sleep(FRESH + 1)
        refusal = call["recheck"](action)
        assert refusal.reason == "PlanOutdated"
        assert "n1 is no longer above any target by real use" in refusal.message
        assert len(made.api.sent("GET", NODES)) == 2
        [known] = made.services.peers.usages().values()  # so that others' cycles heed it
        assert known.nodes["n1"]["cpu"] < 3000


async def test_where_nobody_measures_any_more_nothing_goes_and_the_status_says_so() -> None:
    made = desk()
    made.write(mode="Act", interval="10m", strategies=BY_USE)
    async with made.running():
        await asyncio.sleep(1)
        [call] = made.executor.calls
        for name in ("n1", "n2", "n3"):
            del made.api.objects[f"{NODES}/{name}"]
        await asyncio.sleep(FRESH + 1)
        assert call["recheck"](call["actions"][0]).reason == "NotMeasured"
        made.executor.takes = 0.0
        made.write(mode="Act", interval="10m", strategies=BY_USE, generation=2)
        await asyncio.sleep(60)
        assert made.condition("Degraded") == ("True", "UseNotMeasured")
        assert made.condition("Ready") == ("True", "CycleCompleted")


async def test_use_is_read_while_something_is_done_and_not_in_between() -> None:
    made = desk()
    made.executor.takes = 2.5 * FRESH
    made.write(mode="Act", interval="1h", strategies=BY_USE)
    async with made.running():
        await asyncio.sleep(3000)
        assert len(made.api.sent("GET", NODES)) == 3


async def test_a_policy_by_requests_asks_nobody() -> None:
    made = desk()
    made.executor.takes = 2.5 * FRESH
    made.write(mode="Act", interval="1h")
    async with made.running():
        await asyncio.sleep(1000)
        assert made.executor.calls
        assert made.api.sent("GET", "metrics.k8s.io") == []


async def test_measurements_are_smoothed_until_something_else_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    api, shares = FakeApi(), iter([0, 1_000_000, 1_000_000])

    async def read(*_: Any, now: float) -> Usage:
        return Usage(taken=now, nodes={"n1": {"MetricResource": next(shares)}})

    monkeypatch.setattr(measuring, "read_shares", read)
    reader = UseReader(api, None)
    first = MetricsUtilization(source="Prometheus", prometheus=PrometheusQuery(query="a"))
    other = MetricsUtilization(source="Prometheus", prometheus=PrometheusQuery(query="b"))
    assert (await reader.read(first, 0.0)).nodes["n1"]["MetricResource"] == 0
    assert (await reader.read(first, 0.0)).nodes["n1"]["MetricResource"] == 500_000
    assert (await reader.read(other, 0.0)).nodes["n1"]["MetricResource"] == 1_000_000


async def test_what_was_read_before_a_gap_is_forgotten() -> None:
    api = FakeApi()
    reader = UseReader(api, None)
    measure(api, {"n1": 0})
    await reader.read(KUBERNETES, 0.0)
    del api.objects[f"{NODES}/n1"]
    assert (await reader.read(KUBERNETES, 1.0)).problem
    measure(api, {"n1": 1000})
    assert (await reader.read(KUBERNETES, 2.0)).nodes["n1"]["cpu"] == 1000


async def test_reading_on_ends_with_the_block() -> None:
    api, clock, told = FakeApi(), LoopClock(), list[Usage]()
    reader = UseReader(api, None)
    async with reader.reading_on(KUBERNETES, told.append, clock=clock):
        await asyncio.sleep(2.5 * FRESH)
    await asyncio.sleep(10 * FRESH)
    assert len(told) == 2
    async with reader.reading_on(None, told.append, clock=clock):
        await asyncio.sleep(2.5 * FRESH)
    assert len(told) == 2
