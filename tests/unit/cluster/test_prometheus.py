"""Shares that a query gives: what is taken of an answer, what is said of the rest, and whom a token goes to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.fakes.server import FakeServer, Handler, cut, fake_server, json, needs_token, text
from tests.fixtures.golden import Golden
from trimtab.api.strategies import PrometheusQuery
from trimtab.cluster.usage import prometheus as module
from trimtab.cluster.usage.measurement import Usage, check_node_names, smooth
from trimtab.cluster.usage.prometheus import Prometheus, PrometheusSettings, read_prometheus_usage
from trimtab.kube.errors import InputError

QUERY = PrometheusQuery(query="load")
WITH_PODS = PrometheusQuery(query="load", pod_query="pods")


def vector(*series: tuple[dict[str, str], Any], **more: Any) -> Handler:
    result = [{"metric": labels, "value": [1.5, str(value)]} for labels, value in series]
    return json({"status": "success", "data": {"resultType": "vector", "result": result}, **more})


def nodes(**values: Any) -> Handler:
    return vector(*(({"instance": name}, value) for name, value in values.items()))


def read(
    *answers: Handler, wanted: PrometheusQuery = QUERY, at: float | None = None, path: str = ""
) -> tuple[Usage, FakeServer]:
    async def main() -> tuple[Usage, FakeServer]:
        async with fake_server() as server:
            server.answer(*answers)
            async with Prometheus(PrometheusSettings(server.url + path).server()) as prometheus:
                return await read_prometheus_usage(prometheus, wanted, now=5.0, at=at), server

    return asyncio.run(main())


def shares(usage: Usage) -> dict[str, int]:
    return {name: amounts["MetricResource"] for name, amounts in usage.nodes.items()}


def test_query_returns_a_share_per_node_in_millionths() -> None:
    usage, server = read(nodes(n1=0.5, n2="6.25e-02", n3=1))
    assert shares(usage) == {"n1": 500_000, "n2": 62_500, "n3": 1_000_000}
    assert (usage.taken, usage.pods, usage.problem, usage.remarks) == (5.0, {}, "", {})
    [(method, path, _, _)] = server.requests
    assert (method, path) == ("GET", "/api/v1/query?query=load&timeout=30s")


def test_node_label_and_server_path_are_configurable() -> None:
    wanted = PrometheusQuery(query="load", node_label="node")
    usage, server = read(vector(({"node": "n1", "instance": "10.0.0.1:9100"}, 0.5)), wanted=wanted, path="/prom/")
    assert shares(usage) == {"n1": 500_000}
    assert server.requests[0][1].startswith("/prom/api/v1/query?")


def test_query_uses_the_time_of_the_plan() -> None:
    _, server = read(nodes(n1=0), at=1_795_176_000)
    assert "time=1795176000.000" in server.requests[0][1]


@pytest.mark.parametrize(
    ("value", "share"),
    [
        pytest.param("-0.003", 0, id="a little less than idle is idle"),
        pytest.param("1.0004", 1_000_000, id="a little more than full is full"),
        pytest.param("-0.2", None, id="less than nothing"),
        pytest.param("3.2", None, id="cores are no share"),
        pytest.param("NaN", None, id="divided by nothing"),
        pytest.param("+Inf", None, id="divided by nothing else"),
        pytest.param("much", None, id="no number"),
    ],
)
def test_node_with_an_invalid_value_is_reported_and_others_count(value: str, share: int | None) -> None:
    usage, _ = read(nodes(n1=value, n2=0.1))
    assert shares(usage) == {"n2": 100_000} | ({} if share is None else {"n1": share})
    assert ("n1" in usage.remarks) is (share is None)
    if share is None:
        assert value in usage.remarks["n1"]
    assert usage.problem == ""


def test_a_node_with_several_series_is_not_measured(golden: Golden) -> None:
    usage, _ = read(vector(({"instance": "n1", "cpu": "0"}, 0.1), ({"instance": "n1", "cpu": "1"}, 0.9)))
    assert usage.nodes == {}
    golden("\n".join(f"{key}: {text}" for key, text in usage.remarks.items()))


def test_histogram_is_rejected() -> None:
    result = [{"metric": {"instance": "n1"}, "histogram": [1.5, {"count": "1"}]}]
    usage, _ = read(json({"status": "success", "data": {"resultType": "vector", "result": result}}))
    assert "a histogram" in usage.remarks["n1"]


REFUSED = {"status": "error", "errorType": "bad_data", "error": 'invalid parameter "query": 1:5: parse error: no'}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(json(REFUSED, status=400), "HTTP status 400: invalid parameter", id="a query that is wrong"),
        pytest.param(text("login here", status=401), "HTTP status 401: login here", id="a token that is wrong"),
        pytest.param(json({}, status=302, headers={"Location": "/x"}), "HTTP status 302", id="a login page"),
        pytest.param(text("x" * 10**6, status=500), "HTTP status 500", id="a long error"),
        pytest.param(cut, "/api/v1/query", id="no answer"),
        pytest.param(text("<html>"), "is the URL correct?", id="no Prometheus"),
        pytest.param(json({"kind": "List"}), "is the URL correct?", id="another API"),
        pytest.param(text('{"data":' + "[" * 10**5), "is the URL correct?", id="lists in lists without end"),
        pytest.param(vector(), "no series", id="nothing"),
        pytest.param(vector(({"node": "n1"}, 1)), "no series with the label instance", id="another label"),
        pytest.param(
            json({"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}}), "a scalar", id="a number"
        ),
        pytest.param(
            json({"status": "success", "data": {"resultType": "matrix", "result": []}}), "a matrix", id="a range"
        ),
        pytest.param(
            json({"status": "success", "data": {"resultType": "vector", "result": [{"metric": 3}]}}),
            "is the URL correct?",
            id="labels that are none",
        ),
    ],
)
def test_unreadable_metrics_are_reported_without_raising(answer: Handler, words: str) -> None:
    usage, _ = read(answer)
    assert usage.nodes == {}
    assert usage.problem.startswith("prometheus: query: ")
    assert words in usage.problem
    assert len(usage.problem) < 500


@pytest.mark.parametrize("host", ["a..b", "a" * 300], ids=["an empty label", "a long one"])
def test_unresolvable_host_is_reported(host: str) -> None:
    async def main() -> Usage:
        async with Prometheus(PrometheusSettings(f"http://{host}").server()) as prometheus:
            return await read_prometheus_usage(prometheus, QUERY, now=5.0)

    assert asyncio.run(main()).problem.startswith("prometheus: query: ")


def test_response_size_is_limited(monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    monkeypatch.setattr(module, "LARGEST", 2**20)
    usage, _ = read(text("[" + " " * 2**21))
    golden(usage.problem)


def test_response_time_is_limited(monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.2)

    async def never(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(5)
        raise AssertionError

    usage, _ = read(never)
    golden(usage.problem)


def test_missing_server_configuration_is_reported() -> None:
    usage = asyncio.run(read_prometheus_usage(None, QUERY, now=5.0))
    assert "--prometheus-url" in usage.problem


def test_pod_shares_are_read_and_unnamed_series_skipped(golden: Golden) -> None:
    pods = vector(
        ({"namespace": "shop", "pod": "web"}, 0.25),
        ({"namespace": "shop", "pod": "db", "container": "a"}, 0.1),
        ({"namespace": "shop", "pod": "db", "container": "b"}, 0.2),
        ({"id": "/kubepods.slice"}, 0.9),
    )
    usage, _ = read(nodes(n1=0.5), pods, wanted=WITH_PODS)
    assert usage.pods == {"shop/web": {"MetricResource": 250_000}}
    golden(usage.problem)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(json(REFUSED, status=400), "parse error", id="a query that is wrong"),
        pytest.param(vector(), "labels namespace and pod", id="nothing"),
        pytest.param(vector(({"namespace": "a", "pod": "b"}, 7)), "not between 0 and 1 for a/b", id="no share"),
    ],
)
def test_nodes_are_measured_without_pod_metrics(answer: Handler, words: str) -> None:
    usage, _ = read(nodes(n1=0.5), answer, wanted=WITH_PODS)
    assert (shares(usage), usage.pods) == ({"n1": 500_000}, {})
    assert usage.problem.startswith("prometheus: podQuery: ")
    assert words in usage.problem


def test_unknown_node_names_are_reported() -> None:
    usage = Usage(nodes={"10.0.0.1:9100": {"MetricResource": 1}, "10.0.0.2:9100": {"MetricResource": 1}})
    recorded = "none of the 2 measured names is a node of the cluster, e.g. 10.0.0.1:9100"
    assert check_node_names(usage, {"n1"}).problem == recorded
    assert check_node_names(usage, {"10.0.0.2:9100"}) is usage


def test_remarks_belong_to_the_last_measurement() -> None:
    before, now = Usage(taken=1.0, remarks={"n1": "a"}), Usage(taken=2.0, remarks={"n2": "b"})
    assert smooth(before, now).remarks == {"n2": "b"}


# ── The server ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("prometheus:9090", "is not an http or https URL"),
        ("ftp://p", "is not an http or https URL"),
        ("http://", "is not an http or https URL"),
        ("http://[::1", "is not a URL"),
        ("http://p:99999", "is not a URL"),
        ("http://me:secret@p", "must not have a user"),
        ("http://p/?a=b", "must not have a user, query"),
    ],
)
def test_invalid_url_is_rejected(url: str, words: str) -> None:
    with pytest.raises(InputError, match="--prometheus-url") as refused:
        PrometheusSettings(url).server()
    assert words in str(refused.value)


def test_token_over_plain_http_is_rejected(tmp_path: Path, golden: Golden) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    with pytest.raises(InputError) as raised:
        PrometheusSettings("http://prometheus.monitoring:9090", str(token)).server()
    golden(str(raised.value))
    server = PrometheusSettings("https://prometheus.monitoring:9091", str(token)).server()
    assert server.login.authorization == "Bearer secret"
    assert "secret" not in repr(server)


@pytest.mark.parametrize("content", [None, "", "two\nlines"], ids=["no file", "empty", "several lines"])
def test_empty_token_file_is_rejected(tmp_path: Path, content: str | None) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_text(content)
    with pytest.raises(InputError, match="--prometheus-token-file"):
        PrometheusSettings("https://p", str(token)).server()


def test_invalid_ca_file_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_text("no PEM")
    with pytest.raises(InputError, match="is not a PEM file"):
        Prometheus(PrometheusSettings("https://p", ca_file=str(file)).server())


def test_renewed_token_is_reread(tmp_path: Path, golden: Golden) -> None:
    token = tmp_path / "token"
    token.write_text("old")

    async def main() -> Usage:
        async with fake_server() as server:
            server.answer(needs_token("new"))
            settings = PrometheusSettings(server.url, str(token))
            async with Prometheus(settings.server()) as prometheus:
                token.write_text("new")
                return await read_prometheus_usage(prometheus, QUERY, now=5.0)

    golden(asyncio.run(main()).problem)
