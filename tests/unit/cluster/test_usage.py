"""Measured use: what metrics.k8s.io says, read over the wire and smoothed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes.server import Handler, fake_server, json
from trimtab.cluster.usage.measurement import HALF_LIFE, Usage, read_usage, smooth, usage_of
from trimtab.kube.connection.config import ServerConfig
from trimtab.kube.connection.transport import Transport
from trimtab.kube.retry import Backoff

MEBI = 1024 * 1024


def node_metrics(name: str, cpu: str = "250m", memory: str = "1Mi") -> dict[str, Any]:
    return {"kind": "NodeMetrics", "metadata": {"name": name}, "usage": {"cpu": cpu, "memory": memory}}


def pod_metrics(name: str, *usages: dict[str, str]) -> dict[str, Any]:
    containers = [{"name": f"c{index}", "usage": usage} for index, usage in enumerate(usages)]
    return {"kind": "PodMetrics", "metadata": {"namespace": "shop", "name": name}, "containers": containers}


def test_usage_is_summed_over_containers_in_base_units() -> None:
    usage = usage_of(
        [
            node_metrics("n1", cpu="1500000001n"),
            pod_metrics("web", {"cpu": "100m", "memory": "1Mi"}, {"cpu": "1", "memory": "2Mi"}),
        ],
        taken=1.0,
    )
    assert usage.nodes == {"n1": {"cpu": 1501, "memory": MEBI}}
    assert usage.pods == {"shop/web": {"cpu": 1100, "memory": 3 * MEBI}}


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param(node_metrics("n1", cpu="much"), id="an amount that is none"),
        pytest.param(node_metrics("n1", cpu="-1"), id="less than nothing"),
        pytest.param({"kind": "NodeMetrics", "metadata": {"name": "n1"}, "usage": {"cpu": "1"}}, id="cpu alone"),
        pytest.param({"kind": "NodeMetrics", "metadata": {"name": "n1"}}, id="nothing measured"),
        pytest.param({"kind": "NodeMetrics", "usage": {"cpu": "1", "memory": "1"}}, id="no name"),
        pytest.param(pod_metrics("web"), id="a pod without containers"),
        pytest.param(pod_metrics("web", {"cpu": "1", "memory": "1"}, {"cpu": "1"}), id="half of a pod"),
        pytest.param(node_metrics("n1", memory="9Ei"), id="more than any machine has"),
        pytest.param(pod_metrics("web", *[{"cpu": "1", "memory": "700Ti"}] * 2), id="a pod that has it in sum"),
        pytest.param({"kind": "Node", "metadata": {"name": "n1"}}, id="another kind"),
    ],
)
def test_invalid_metrics_count_as_missing(manifest: dict[str, Any]) -> None:
    usage = usage_of([manifest], taken=1.0)
    assert (usage.nodes, usage.pods) == ({}, {})


def cpu(millis: int, taken: float) -> Usage:
    return Usage(taken=taken, nodes={"n1": {"cpu": millis, "memory": 0}})


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        pytest.param(0.0, 500, id="read twice at once, both count the same"),
        pytest.param(HALF_LIFE, 750, id="after the half-life the earlier one counts half of that"),
        pytest.param(-5.0, 500, id="a clock that was set back is no time"),
        pytest.param(1e6, 1000, id="what is long ago is forgotten"),
    ],
)
def test_earlier_measurements_decay(seconds: float, expected: int) -> None:
    assert smooth(cpu(0, 100.0), cpu(1000, 100.0 + seconds)).nodes["n1"]["cpu"] == expected


def test_new_values_count_fully_and_missing_values_are_dropped() -> None:
    assert smooth(None, cpu(7, 1.0)) == cpu(7, 1.0)
    other = Usage(taken=2.0, nodes={"n2": {"cpu": 9, "memory": 9}}, problem="half of it")
    assert smooth(cpu(7, 1.0), other) == other


def items(*found: Any) -> Callable[..., Any]:
    return json({"kind": "List", "items": list(found)})


def status(code: int) -> Handler:
    return json({"kind": "Status", "status": "Failure", "code": code, "message": "no"}, status=code)


N1 = node_metrics("n1")
WEB = pod_metrics("web", {"cpu": "1", "memory": "1"})


@pytest.mark.parametrize(
    ("answers", "nodes", "pods", "problem"),
    [
        pytest.param([items(N1), items(WEB)], 1, 1, "", id="both"),
        pytest.param([status(404)], 0, 0, "nodes.metrics.k8s.io is not served", id="no metrics-server"),
        pytest.param([status(403)], 0, 0, "nodes.metrics.k8s.io cannot be listed", id="not allowed"),
        pytest.param([status(503)], 0, 0, "nodes.metrics.k8s.io cannot be listed", id="metrics-server is down"),
        pytest.param([items(N1), status(403)], 1, 0, "pods.metrics.k8s.io cannot be listed", id="nodes alone"),
        pytest.param([json([])], 0, 0, "the response is not a list", id="no list"),
        pytest.param([items(), items()], 0, 0, "has no items", id="nothing measured yet"),
        pytest.param([items("?"), items()], 0, 0, "has no items", id="nonsense in a list"),
    ],
)
def test_usage_is_read_with_two_lists_without_raising(
    answers: list[Handler], nodes: int, pods: int, problem: str
) -> None:
    async def main() -> tuple[Usage, list[str]]:
        async with fake_server() as server:
            server.answer(*answers)
            config = ServerConfig(server=server.url, source="test")
            async with Transport(config, retries=Backoff(initial=0.01, attempts=1)) as api:
                usage = await read_usage(api, now=5.0)
            return usage, [path for _, path, _, _ in server.requests]

    usage, paths = asyncio.run(main())
    assert (len(usage.nodes), len(usage.pods), usage.taken) == (nodes, pods, 5.0)
    assert problem in usage.problem
    assert bool(usage.problem) == bool(problem)
    assert paths[0] == "/apis/metrics.k8s.io/v1beta1/nodes"
    assert set(paths[1:]) <= {"/apis/metrics.k8s.io/v1beta1/nodes", "/apis/metrics.k8s.io/v1beta1/pods"}
