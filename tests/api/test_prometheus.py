"""Queries to a real Prometheus, by the reader and by `trimtab plan` for now and for a past time."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner
from tools.generate import ROOT

from tests.builders import node, pod
from tests.fixtures.prometheus import RealPrometheus, binary, scraped, with_history
from trimtab.api.strategies import PrometheusQuery
from trimtab.cli.main import cli
from trimtab.cluster.usage.measurement import Usage
from trimtab.cluster.usage.prometheus import Prometheus, PrometheusSettings, read_prometheus_usage
from trimtab.descheduling.imports.strategy_mapping import QUERIES
from trimtab_local.certificates import make_keys

POLICY: dict[str, Any] = {
    "apiVersion": "trimtab.dev/v1alpha1",
    "kind": "DeschedulerPolicy",
    "metadata": {"name": "level"},
    "spec": {
        "strategies": {
            "LowNodeUtilization": {
                "params": {
                    "metricsUtilization": {"source": "Prometheus", "prometheus": {"query": "node_load_share"}},
                    "nodeResourceUtilizationThresholds": {
                        "thresholds": {"MetricResource": 30},
                        "targetThresholds": {"MetricResource": 60},
                    },
                }
            }
        }
    },
}


def asked(url: str, query: str, *, pods: str | None = None, label: str = "instance", ca: str = "") -> Usage:
    """The result that the reader decodes."""

    async def main() -> Usage:
        async with Prometheus(PrometheusSettings(url, ca_file=ca).server()) as prometheus:
            wanted = PrometheusQuery(query=query, node_label=label, pod_query=pods)
            return await read_prometheus_usage(prometheus, wanted, now=1.0)

    return asyncio.run(main())


def shares(usage: Usage) -> dict[str, float]:
    return {name: amounts["MetricResource"] / 1e6 for name, amounts in usage.nodes.items()}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A Prometheus with the series of three nodes and their pods, and unrelated series."""
    with scraped(tmp_path_factory.mktemp("prometheus"), a=0.9, b=0.1) as (prometheus, exporter):
        exporter.lines += [
            'pod_load_share{namespace="shop",pod="web"} 0.25',
            'pod_load_share{namespace="shop",pod="db"} 0.5',
            'cores{instance="a"} 12',
            'by_address{instance="10.0.0.1:9100",node="a"} 0.5',
        ]
        prometheus.wait_for("by_address")
        yield prometheus.url


def test_utilization_equals_scraped_values(url: str) -> None:
    usage = asked(url, "node_load_share", pods="pod_load_share")
    assert shares(usage) == {"a": 0.9, "b": 0.1}
    assert usage.pods == {"shop/web": {"MetricResource": 250_000}, "shop/db": {"MetricResource": 500_000}}
    assert usage.problem == ""


def test_preset_queries_return_values(url: str) -> None:
    assert shares(asked(url, "1 - node_load_share"))["a"] == pytest.approx(0.1)
    assert shares(asked(url, "avg_over_time(node_load_share[1m])")) == {"a": 0.9, "b": 0.1}
    assert shares(asked(url, "by_address", label="node")) == {"a": 0.5}


def documented() -> list[str]:
    """Every query in the docs, and those of OpenShift's profiles."""
    page = (ROOT / "docs" / "tasks" / "use-actual-utilization.md").read_text(encoding="utf-8")
    found = list(QUERIES.values())
    for block in page.split("```yaml\n")[1:]:
        document = yaml.safe_load(block.partition("```")[0])
        strategies = document.get("spec", {}).get("strategies", {})
        asked = strategies.get("LowNodeUtilization", {}).get("params", {}).get("metricsUtilization", {})
        found += [text for key, text in asked.get("prometheus", {}).items() if key.lower().endswith("query")]
    return found


def test_queries_of_the_docs_are_valid_promql(url: str) -> None:
    queries = documented()
    assert len(queries) == len(QUERIES) + 2
    for query in queries:
        assert "no series" in asked(url, query).problem


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("node_load_share{", "HTTP status 400: invalid parameter"),
        ("node_load_share[5m]", "matrix"),
        ("scalar(node_load_share)", "scalar"),
        ("no_such_series", "no series"),
        ("sum(node_load_share)", "no series with the label instance"),
        ("node_load_share / on() group_left() node_load_share", "HTTP status 422"),
    ],
)
def test_prometheus_error_message_is_reported(url: str, query: str, words: str) -> None:
    usage = asked(url, query)
    assert usage.nodes == {}
    assert words in usage.problem


@pytest.mark.parametrize(("query", "shown"), [("cores", "12"), ("cores * 0 / 0", "NaN"), ("cores / 0", "+Inf")])
def test_values_outside_0_to_1_are_reported_per_node(url: str, query: str, shown: str) -> None:
    usage = asked(url, query)
    assert (usage.nodes, usage.problem) == ({}, "")
    assert usage.remarks.keys() == {"a"}
    assert shown in usage.remarks["a"]


def test_unaggregated_series_are_reported_per_node(url: str) -> None:
    query = 'node_load_share or label_replace(node_load_share, "cpu", "1", "", "")'
    assert "2 series" in asked(url, query).remarks["a"]


def test_prometheus_certificate_is_verified(tmp_path: Path) -> None:
    binary()
    keys = make_keys(tmp_path / "keys")
    web = tmp_path / "web.yml"
    tls = {"cert_file": str(keys.serving), "key_file": str(keys.serving_key)}
    web.write_text(yaml.safe_dump({"tls_server_config": tls}))
    prometheus = RealPrometheus(tmp_path, web=web, ca=keys.ca)
    prometheus.start()
    try:
        assert "CERTIFICATE_VERIFY_FAILED" in asked(prometheus.url, "vector(1)").problem
        labelled = 'label_replace(vector(1), "instance", "a", "", "")'
        assert shares(asked(prometheus.url, labelled, ca=str(keys.ca))) == {"a": 1.0}
    finally:
        prometheus.stop()


def moves(path: Path, url: str, *, now: str) -> dict[str, Any]:
    """The plan of a cluster in a folder of files."""
    arguments = ["--cluster", path / "cluster.yaml", "--policy", path / "policy.yaml", "--now", now, "-o", "json"]
    command = ["plan", *map(str, arguments), *(["--prometheus-url", url] if url else [])]
    result = CliRunner().invoke(cli, command, prog_name="trimtab")
    assert result.exit_code == 0, result.stderr
    plan: dict[str, Any] = msgspec.json.decode(result.stdout)
    return plan


def test_plan_for_a_past_time_uses_the_metrics_of_that_time(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(POLICY))
    objects = [
        *(node(name) for name in ("a", "b")),
        *(
            pod(f"on-{name}-{number}").on(name).cpu("1").owned_by("ReplicaSet", f"on-{name}").ready()
            for name in ("a", "b")
            for number in (1, 2)
        ),
    ]
    documents = [each.manifest() for each in objects]
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(documents))
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()
    history = {noon: {"a": 0.9, "b": 0.1}, noon + 3600: {"a": 0.1, "b": 0.9}, noon + 7200: {"a": 0.9}}
    with with_history(tmp_path / "prometheus", history) as prometheus:
        [first] = moves(tmp_path, prometheus.url, now="2026-11-20T12:00:30Z")["actions"]
        assert (first["pod"], first["target"], first["reason"]) == ("on-a-1", "b", "NodeOverutilized")
        assert re.findall(r"\d+%", first["message"]) == ["90%", "60%", "10%"]
        [second] = moves(tmp_path, prometheus.url, now="2026-11-20T13:00:30Z")["actions"]
        assert (second["pod"], second["target"]) == ("on-b-1", "a")
        third = moves(tmp_path, prometheus.url, now="2026-11-20T14:00:30Z")
        assert third["actions"] == []
        assert {each["name"]: each["reason"] for each in third["kept"]} == {
            "a": "NoUnderutilizedNodes",
            "b": "NotMeasured",
        }
    deleted = moves(tmp_path, prometheus.url, now="2026-11-20T12:00:30Z")
    assert {each["reason"] for each in deleted["kept"]} == {"NotMeasured"}
    assert "prometheus: query: " in deleted["kept"][0]["message"]
    unplaced = moves(tmp_path, "", now="2026-11-20T12:00:30Z")
    assert "--prometheus-url" in unplaced["kept"][0]["message"]
