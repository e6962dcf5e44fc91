"""Queries put to a real Prometheus: by the reader, and by `trimtab plan` for now and for earlier."""

from __future__ import annotations

import asyncio
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
from trimtab.cluster.prometheus import Prometheus, PrometheusSettings, read_shares
from trimtab.cluster.usage import Usage
from trimtab.descheduling.imports.actual_utilization import QUERIES
from trimtab.local.certificates import make_keys

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
    """What the reader makes of an answer."""

    async def main() -> Usage:
        async with Prometheus(PrometheusSettings(url, ca_file=ca).server()) as prometheus:
            wanted = PrometheusQuery(query=query, node_label=label, pod_query=pods)
            return await read_shares(prometheus, wanted, now=1.0)

    return asyncio.run(main())


def shares(usage: Usage) -> dict[str, float]:
    return {name: amounts["MetricResource"] / 1e6 for name, amounts in usage.nodes.items()}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A Prometheus with three nodes, their pods and some of what else one meets."""
    with scraped(tmp_path_factory.mktemp("prometheus"), a=0.9, b=0.1) as (prometheus, exporter):
        exporter.lines += [
            'pod_load_share{namespace="shop",pod="web"} 0.25',
            'pod_load_share{namespace="shop",pod="db"} 0.5',
            'cores{instance="a"} 12',
            'by_address{instance="10.0.0.1:9100",node="a"} 0.5',
        ]
        prometheus.wait_for("by_address")
        yield prometheus.url


def test_shares_are_read_as_they_are_scraped(url: str) -> None:
    usage = asked(url, "node_load_share", pods="pod_load_share")
    assert shares(usage) == {"a": 0.9, "b": 0.1}
    assert usage.pods == {"shop/web": {"MetricResource": 250_000}, "shop/db": {"MetricResource": 500_000}}
    assert usage.problem == ""


def test_queries_compute(url: str) -> None:
    assert shares(asked(url, "1 - node_load_share"))["a"] == pytest.approx(0.1)
    assert shares(asked(url, "avg_over_time(node_load_share[1m])")) == {"a": 0.9, "b": 0.1}
    assert shares(asked(url, "by_address", label="node")) == {"a": 0.5}


def documented() -> list[str]:
    """Every query that the documentation shows, and those that OpenShift's profiles stand for."""
    page = (ROOT / "docs" / "how-to" / "judge-by-real-use.md").read_text(encoding="utf-8")
    found = list(QUERIES.values())
    for block in page.split("```yaml\n")[1:]:
        document = yaml.safe_load(block.partition("```")[0])
        strategies = document.get("spec", {}).get("strategies", {})
        asked = strategies.get("LowNodeUtilization", {}).get("params", {}).get("metricsUtilization", {})
        found += [text for key, text in asked.get("prometheus", {}).items() if key.lower().endswith("query")]
    return found


def test_the_queries_of_the_documentation_are_understood(url: str) -> None:
    queries = documented()
    assert len(queries) == len(QUERIES) + 2
    for query in queries:
        assert "the answer has no series" in asked(url, query).problem


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("node_load_share{", "HTTP status 400: invalid parameter"),
        ("node_load_share[5m]", "gives a matrix"),
        ("scalar(node_load_share)", "gives a scalar"),
        ("no_such_series", "no series"),
        ("sum(node_load_share)", "no series with the label instance"),
        ("node_load_share / on() group_left() node_load_share", "HTTP status 422"),
    ],
)
def test_what_prometheus_refuses_is_told_in_its_words(url: str, query: str, words: str) -> None:
    usage = asked(url, query)
    assert usage.nodes == {}
    assert words in usage.problem


@pytest.mark.parametrize(("query", "shown"), [("cores", "12"), ("cores * 0 / 0", "NaN"), ("cores / 0", "+Inf")])
def test_values_that_are_no_shares_are_said_of_their_node(url: str, query: str, shown: str) -> None:
    usage = asked(url, query)
    assert (usage.nodes, usage.problem) == ({}, "")
    assert usage.remarks == {"a": f"the query gives {shown} for it, which is no share from 0 to 1"}


def test_series_that_were_not_aggregated_are_said_of_their_node(url: str) -> None:
    query = 'node_load_share or label_replace(node_load_share, "cpu", "1", "", "")'
    assert asked(url, query).remarks["a"] == "the query gives 2 series for it"


def test_the_servers_certificate_is_verified(tmp_path: Path) -> None:
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
    """The plan of the cluster that lies in a folder."""
    arguments = ["--cluster", path / "cluster.yaml", "--policy", path / "policy.yaml", "--now", now, "-o", "json"]
    command = ["plan", *map(str, arguments), *(["--prometheus-url", url] if url else [])]
    result = CliRunner().invoke(cli, command, prog_name="trimtab")
    assert result.exit_code == 0, result.stderr
    plan: dict[str, Any] = msgspec.json.decode(result.stdout)
    return plan


def test_a_plan_for_an_earlier_time_judges_by_what_was_measured_then(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(POLICY))
    things = [
        *(node(name) for name in ("a", "b")),
        *(
            pod(f"on-{name}-{number}").on(name).cpu("1").owned_by("ReplicaSet", f"on-{name}").ready()
            for name in ("a", "b")
            for number in (1, 2)
        ),
    ]
    documents = [each.manifest() for each in things]
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(documents))
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()
    history = {noon: {"a": 0.9, "b": 0.1}, noon + 3600: {"a": 0.1, "b": 0.9}, noon + 7200: {"a": 0.9}}
    with with_history(tmp_path / "prometheus", history) as prometheus:
        [first] = moves(tmp_path, prometheus.url, now="2026-11-20T12:00:30Z")["actions"]
        assert (first["pod"], first["target"], first["reason"]) == ("on-a-1", "b", "NodeOverutilized")
        assert first["message"] == "MetricResource 90% of a is above its target 60%; b is at 10%, by real use"
        [second] = moves(tmp_path, prometheus.url, now="2026-11-20T13:00:30Z")["actions"]
        assert (second["pod"], second["target"]) == ("on-b-1", "a")
        third = moves(tmp_path, prometheus.url, now="2026-11-20T14:00:30Z")
        assert third["actions"] == []
        assert {each["name"]: each["reason"] for each in third["kept"]} == {
            "a": "NoUnderutilizedNodes",
            "b": "NotMeasured",
        }
    gone = moves(tmp_path, prometheus.url, now="2026-11-20T12:00:30Z")
    assert {each["reason"] for each in gone["kept"]} == {"NotMeasured"}
    assert "prometheus: query: " in gone["kept"][0]["message"]
    nowhere = moves(tmp_path, "", now="2026-11-20T12:00:30Z")
    assert "--prometheus-url" in nowhere["kept"][0]["message"]
