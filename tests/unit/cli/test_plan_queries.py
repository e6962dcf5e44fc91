"""``trimtab plan`` for policies that judge by queries, with a server that answers as Prometheus does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from tests.builders import node, pod

NOW = "2026-11-20T12:00:00Z"
POLICY = """\
apiVersion: trimtab.dev/v1alpha1
kind: DeschedulerPolicy
metadata: {name: default}
spec:
  strategies:
    LowNodeUtilization:
      params:
        metricsUtilization: {source: Prometheus, prometheus: {query: load, podQuery: parts}}
        nodeResourceUtilizationThresholds:
          thresholds: {MetricResource: 20}
          targetThresholds: {MetricResource: 50}
"""
ANSWERS: dict[str, list[tuple[dict[str, str], str]]] = {
    "load": [({"instance": "n1"}, "0.8"), ({"instance": "n2"}, "0.1")],
    "parts": [({"namespace": "shop", "pod": "web"}, "0.05"), ({"namespace": "shop", "pod": "db"}, "0.35")],
}


class Handler(BaseHTTPRequestHandler):
    """Knows two queries, and writes down what it was asked."""

    asked: list[dict[str, list[str]]]

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        self.asked.append(query)
        found = [{"metric": labels, "value": [1, value]} for labels, value in ANSWERS[query["query"][0]]]
        body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": found}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict[str, list[str]]]]]:
    requested: list[dict[str, list[str]]] = []
    handler = type("Asked", (Handler,), {"asked": requested})
    serving = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{serving.server_port}", requested
    serving.shutdown()
    serving.server_close()
    thread.join()


@pytest.fixture
def command(write, tmp_path) -> tuple[Any, ...]:
    """Two nodes with two pods on the first."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    pods = (
        pod(name, namespace="shop").on("n1").cpu("1").owned_by("ReplicaSet", name).ready() for name in ("web", "db")
    )
    cluster = write("c.yaml", *(node(name) for name in ("n1", "n2")), *pods)
    return "plan", "--cluster", cluster, "--policy", tmp_path / "policy.yaml"


def test_prometheus_is_queried_for_policies_with_queries(run, command, server) -> None:
    url, requested = server
    plan = msgspec.json.decode(run(*command, "--now", NOW, "--prometheus-url", url, "-o", "json").stdout)
    assert [(each["pod"], each["target"]) for each in plan["actions"]] == [("db", "n2")]
    assert [each["time"] for each in requested] == [["1795176000.000"]] * 2
    table = run(*command, "--prometheus-url", url)
    assert "MetricResource utilization of n1 is 80%" in table.stdout
    assert "time" not in requested[-1]
    assert run(*command, "--prometheus-url", url, "-o", "html").exit_code == 0


def test_missing_prometheus_configuration_is_reported_in_the_plan(run, command) -> None:
    plan = msgspec.json.decode(run(*command, "-o", "json").stdout)
    assert plan["actions"] == []
    assert {each["reason"] for each in plan["kept"]} == {"NotMeasured"}
    assert "--prometheus-url" in plan["kept"][0]["message"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--prometheus-url", "localhost:9090"), "'localhost:9090' is not an http or https URL"),
        (("--prometheus-url", "https://p", "--prometheus-ca-file", "/nowhere"), "/nowhere: No such file"),
        (("--prometheus-token-file", "/nowhere"), "need --prometheus-url"),
    ],
)
def test_invalid_prometheus_options_are_one_line_errors(run, command, arguments, words) -> None:
    result = run(*command, *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert words in result.stderr
