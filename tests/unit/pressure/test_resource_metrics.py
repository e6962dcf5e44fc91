"""The memory of nodes from metrics.k8s.io."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fakes.clock import SetClock
from trimtab.kube.api import Forbidden, NotFound, Unreachable
from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects.node import Node
from trimtab.pressure.measurement import NodeMeasurement, PodUsage, SignalValue
from trimtab.pressure.resource_metrics import ResourceMetrics

NODES = "/apis/metrics.k8s.io/v1beta1/nodes"
PODS = "/apis/metrics.k8s.io/v1beta1/pods"
MEBI = 2**20
TIME, AT = "2026-11-23T06:00:00Z", 1795413600.0


def metrics(name: str, memory: str = "60Mi", time: Any = TIME) -> dict[str, Any]:
    return {"metadata": {"name": name}, "timestamp": time, "usage": {"cpu": "1", "memory": memory}}


WEB = {
    "metadata": {"namespace": "shop", "name": "web"},
    "containers": [{"name": "main", "usage": {"cpu": "1", "memory": "5Mi"}}],
}


class MetricsApi:
    def __init__(self, **answers: Any) -> None:
        self.answers = {NODES: answers.get("nodes", []), PODS: answers.get("pods", [WEB])}
        self.requests: list[str] = []

    async def request(self, _method: str, path: str, **_options: Any) -> Any:
        self.requests.append(path)
        answer = self.answers[path]
        if isinstance(answer, Exception):
            raise answer
        return {"items": answer} if isinstance(answer, list) else answer

    @asynccontextmanager
    async def stream(self, path: str, **_options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        self.requests.append(path)
        answer = self.answers[path]
        if isinstance(answer, Exception):
            raise answer
        body = answer if isinstance(answer, bytes) else json.dumps({"items": answer}).encode()

        async def chunks() -> AsyncIterator[bytes]:
            for start in range(0, len(body), 20):
                yield body[start : start + 20]

        yield chunks()


def node(name: str, memory: int = 100 * MEBI) -> Node:
    return Node(name=name, capacity=FrozenMap({"memory": memory}))


def never(_measurement: NodeMeasurement) -> bool:
    return False


async def test_memory_of_all_nodes_is_listed_once() -> None:
    api = MetricsApi(nodes=[metrics("n1"), metrics("n2", "10Mi"), metrics("other")])
    found = await ResourceMetrics(api).read([node("n1"), node("n2"), node("n3")], pods_needed=never)
    assert {name: each.signals for name, each in found.items()} == {
        "n1": {"memory.available": SignalValue(40 * MEBI, 100 * MEBI, AT)},
        "n2": {"memory.available": SignalValue(90 * MEBI, 100 * MEBI, AT)},
    }
    assert {each.source for each in found.values()} == {"Metrics"}
    assert api.requests == [NODES]
    with pytest.raises(LookupError):
        found["n1"].pods()


async def test_pods_are_listed_only_if_a_node_needs_them() -> None:
    api = MetricsApi(nodes=[metrics("n1"), metrics("n2")])
    reader = ResourceMetrics(api)
    found = await reader.read([node("n1"), node("n2")], pods_needed=lambda measurement: measurement.node == "n2")
    assert api.requests == [NODES, PODS]
    assert found["n2"].pods() == {"shop/web": PodUsage(uid="", memory=5 * MEBI)}
    with pytest.raises(LookupError):
        found["n1"].pods()


async def test_pods_are_listed_again_after_some_intervals() -> None:
    api, clock = MetricsApi(nodes=[metrics("n1")]), SetClock()
    reader = ResourceMetrics(api, clock=clock)
    for _ in range(7):
        await reader.read([node("n1")], pods_needed=lambda _: True)
        clock.time += 10
    assert api.requests.count(PODS) == 3
    await reader.read([node("n1")], pods_needed=never)
    await reader.read([node("n1")], pods_needed=lambda _: True)
    assert api.requests.count(PODS) == 4


def pod_metrics(*usages: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "shop", "name": "bad"},
        "containers": [{"name": "main", "usage": usage} for usage in usages],
    }


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(pod_metrics(), id="no containers"),
        pytest.param(pod_metrics({"cpu": "1"}), id="no memory"),
        pytest.param(pod_metrics({"memory": "much"}), id="no quantity"),
        pytest.param(pod_metrics({"memory": "1Gi"}, {"memory": "-1"}), id="negative"),
        pytest.param(pod_metrics(*[{"memory": "700Ti"}] * 2), id="more than any machine has"),
        pytest.param({"metadata": {"name": "bad"}, "containers": []}, id="no namespace"),
        pytest.param(7, id="a number"),
    ],
)
async def test_pods_with_invalid_metrics_are_skipped(pod: Any) -> None:
    api = MetricsApi(nodes=[metrics("n1")], pods=[pod, WEB])
    found = await ResourceMetrics(api).read([node("n1")], pods_needed=lambda _: True)
    assert found["n1"].pods() == {"shop/web": PodUsage(uid="", memory=5 * MEBI)}


@pytest.mark.parametrize(
    "pods", [Forbidden("no", status=403), Unreachable("down"), b"<html>", b"[]", b'{"items": 5}'], ids=repr
)
async def test_node_under_pressure_is_unknown_if_pods_cannot_be_listed(pods: Any) -> None:
    api = MetricsApi(nodes=[metrics("n1"), metrics("n2")], pods=pods)
    found = await ResourceMetrics(api).read(
        [node("n1"), node("n2")], pods_needed=lambda measurement: measurement.node == "n2"
    )
    assert found.keys() == {"n1"}


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(metrics("n1", "101Mi"), id="more than the capacity"),
        pytest.param(metrics("n1", "0"), id="nothing"),
        pytest.param(metrics("n1", "-1"), id="negative"),
        pytest.param(metrics("n1", "much"), id="no quantity"),
        pytest.param({"metadata": "n1"}, id="no metadata"),
        pytest.param({}, id="empty"),
        pytest.param(7, id="a number"),
    ],
)
async def test_implausible_metrics_count_as_missing(item: Any) -> None:
    found = await ResourceMetrics(MetricsApi(nodes=[item, metrics("n2")])).read(
        [node("n1"), node("n2")], pods_needed=never
    )
    assert found.keys() == {"n2"}


@pytest.mark.parametrize("time", [None, "yesterday", 5, "2026-11-23T06:00:00"])
async def test_invalid_timestamp_counts_as_missing(time: Any) -> None:
    found = await ResourceMetrics(MetricsApi(nodes=[metrics("n1", time=time)])).read([node("n1")], pods_needed=never)
    assert found["n1"].signals["memory.available"].measured_at is None


async def test_node_without_a_capacity_is_unknown() -> None:
    found = await ResourceMetrics(MetricsApi(nodes=[metrics("n1")])).read([Node(name="n1")], pods_needed=never)
    assert found == {}


@pytest.mark.parametrize(
    "answer", [NotFound("no metrics", status=404), Unreachable("down"), {"kind": "Status"}, None], ids=repr
)
async def test_no_node_is_known_without_metrics(answer: Any) -> None:
    assert await ResourceMetrics(MetricsApi(nodes=answer)).read([node("n1")], pods_needed=never) == {}
