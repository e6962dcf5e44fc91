"""Actual utilization on a real control plane, from metrics.k8s.io and from a Prometheus that fails and recovers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from tests.e2e.conftest import NODES, Stage, Start
from tests.fixtures.metrics_api import measure_nodes, measure_pods, serve_metrics_api
from tests.fixtures.prometheus import scraped
from tests.fixtures.waiting import wait_for
from trimtab.cli.main import cli

LOW = "LowNodeUtilization"


def low(metrics: dict[str, Any], **shares: dict[str, int]) -> dict[str, Any]:
    """LowNodeUtilization with a metrics source and thresholds."""
    return {LOW: {"params": {"metricsUtilization": metrics, "nodeResourceUtilizationThresholds": shares}}}


BY_METRICS = low({"source": "KubernetesMetrics"}, thresholds={"cpu": 30}, targetThresholds={"cpu": 60})
BY_QUERY = low(
    {"source": "Prometheus", "prometheus": {"query": "node_load_share"}},
    thresholds={"MetricResource": 30},
    targetThresholds={"MetricResource": 60},
)


def names(stage: Stage, app: str) -> dict[str, str]:
    """The node of each pod of a Deployment, by name."""
    path = f"/api/v1/namespaces/{stage.namespace}/pods"
    pods = stage.client.request("GET", path, params={"labelSelector": f"app={app}"})["items"]
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}


def planned(stage: Stage, tmp_path: Path, strategies: dict[str, Any], *arguments: str) -> dict[str, Any]:
    """The output of `trimtab plan` for the live cluster."""
    spec = {"namespaces": {"include": [stage.namespace]}, "strategies": strategies}
    head = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "DeschedulerPolicy", "metadata": {"name": "use"}}
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump({**head, "spec": spec}))
    command = ["plan", "--kubeconfig", str(stage.cluster.kubeconfig), "--policy", str(tmp_path / "policy.yaml")]
    result = CliRunner().invoke(cli, [*command, "-o", "json", *arguments], prog_name="trimtab")
    assert result.exit_code == 0, result.stderr
    plan: dict[str, Any] = msgspec.json.decode(result.stdout)
    return plan


def test_pod_with_the_highest_real_usage_is_evicted(stage: Stage, start: Start, tmp_path: Path) -> None:
    # Of 8 cores each; requests are a tenth of a core a pod, and say nothing of it.
    unknown = planned(stage, tmp_path, BY_METRICS)
    assert {each["reason"] for each in unknown["kept"]} == {"NotMeasured"}
    assert "metrics-server" in unknown["kept"][0]["message"]

    serve_metrics_api(stage.client)
    stage.deploy_on("web", 3, on="a")
    idle, busy, middle = sorted(names(stage, "web"))
    uses = {idle: {"cpu": "10m"}, busy: {"cpu": "4"}, middle: {"cpu": "2"}}
    measure_pods(stage.client, stage.namespace, {name: {**use, "memory": "1Gi"} for name, use in uses.items()})
    measure_nodes(stage.client, {"a": {"cpu": "6500m", "memory": "4Gi"}, "b": {"cpu": "7", "memory": "1Gi"}})
    measure_nodes(stage.client, {"c": {"cpu": "800m", "memory": "1Gi"}})

    plan = planned(stage, tmp_path, BY_METRICS)
    [action] = [each for each in plan["actions"] if each["node"] == "a"]
    assert (action["pod"], action["target"]) == (middle, "c")
    assert re.findall(r"\d+%", action["message"]) == ["81%", "60%", "10%"]

    start()
    stage.write_policy("use", mode="Act", interval="1h", strategies=BY_METRICS)
    wait_for(lambda: stage.status("use").get("evicted") == 1, "the eviction", timeout=60)
    wait_for(lambda: len(stage.running("web")) == 3, "the pods to run again")
    assert {idle, busy} < set(names(stage, "web"))
    assert middle not in names(stage, "web")
    assert stage.condition("use", "Degraded")["reason"] == "AllWell"


def test_prometheus_outage_does_not_stop_the_loop(stage: Stage, start: Start, tmp_path: Path) -> None:
    stage.deploy_on("web", 4, on="a")
    before = stage.running("web")
    with scraped(tmp_path / "prometheus", a=0.8, b=0.1, c=0.7) as (prometheus, exporter):
        plan = planned(stage, tmp_path, BY_QUERY, "--prometheus-url", prometheus.url)
        assert [(each["node"], each["target"]) for each in plan["actions"]] == [("a", "b")]

        start("--prometheus-url", prometheus.url)
        stage.write_policy("load", mode="Act", interval="1h", strategies=BY_QUERY)
        wait_for(lambda: stage.status("load").get("evicted") == 1, "the eviction", timeout=60)
        wait_for(lambda: len(stage.running("web")) == 4, "the pods to run again")
        assert len(set(stage.running("web")) & set(before)) == 3
        assert [each["reason"] for each in stage.status("load")["lastEvictions"]] == ["NodeOverutilized"]

        prometheus.stop()
        stage.write_policy("load", mode="Simulate", interval="5s", strategies=BY_QUERY)
        wait_for(lambda: stage.condition("load", "Degraded").get("reason") == "UsageNotMeasured", "the problem")
        assert "http://127.0.0.1" in stage.condition("load", "Degraded")["message"]
        assert stage.condition("load", "Ready")["status"] == "True"

        exporter.loads(**dict.fromkeys(NODES, 0.5))
        prometheus.start()
        wait_for(lambda: stage.condition("load", "Degraded").get("reason") == "AllWell", "the end of it")
        prometheus.wait_for("node_load_share == 0.5")  # only what it has scraped itself can it know to be gone
        exporter.loads(**{"10.0.0.1:9100": 0.5})
        wait_for(
            lambda: "10.0.0.1:9100" in stage.condition("load", "Degraded").get("message", ""), "the unknown node name"
        )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--prometheus-url", "prometheus:9090"], "is not an http or https URL"),
        (["--prometheus-token-file", "/nowhere"], "need --prometheus-url"),
        (["--prometheus-url", "https://p", "--prometheus-token-file", "/nowhere/token"], "No such file"),
    ],
)
def test_invalid_prometheus_flags_fail_at_start(stage: Stage, start: Start, arguments: list[str], words: str) -> None:
    process = start(*arguments, ready=False)
    wait_for(lambda: not process.running(), "the operator to exit")
    assert process.stop() == 2
    assert words in process.log.read_text(encoding="utf-8")
