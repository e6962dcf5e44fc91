"""Stats of nodes for plans: through the API server's proxy, from metrics.k8s.io, and reduced for snapshot files."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import node, pod
from tests.fixtures.golden import Golden
from tests.node_summaries import GI, summary
from trimtab.cli.live import JsonList, Progress, YamlList
from trimtab.cli.node_stats import CONCURRENT, read_live_stats, read_summaries
from trimtab.cli.sources import read_cluster
from trimtab.cluster.snapshot import Snapshot
from trimtab.inspection.node_stats import NodeStats, slim_summary
from trimtab.kube.api import Forbidden, NotFound, ServerError, Unreachable
from trimtab.kube.errors import InputError
from trimtab.pressure.kubelet_connections import MAX_BODY
from trimtab.pressure.measurement import NodeMeasurement, ReadFailure
from trimtab.pressure.summary import InvalidSummary

NOW = 1_795_176_000.0
QUIET = Progress(io.StringIO())


class ProxyApi:
    """An API server whose proxy returns summaries or raises errors, by node, and that serves metrics or not."""

    def __init__(self, answers: Mapping[str, Any], metrics: Mapping[str, int] | None = None) -> None:
        self.asked: list[str] = []
        self.active = self.most = 0
        self._answers = answers
        self._metrics = metrics

    @asynccontextmanager
    async def stream(self, path: str, **_: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        name = path.removeprefix("/api/v1/nodes/").removesuffix("/proxy/stats/summary")
        self.asked.append(name)
        answer = self._answers[name]
        if isinstance(answer, Exception):
            raise answer

        async def chunks() -> AsyncIterator[bytes]:
            body = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
            for start in range(0, len(body), 1 << 20):
                yield body[start : start + (1 << 20)]

        self.active += 1
        self.most = max(self.most, self.active)
        try:
            yield chunks()
        finally:
            self.active -= 1

    async def request(self, method: str, path: str, **_: Any) -> Any:
        if self._metrics is None:
            raise NotFound("no such API", status=404)
        if path.endswith("/pods"):
            return {"items": []}
        items = [
            {"metadata": {"name": name}, "usage": {"cpu": "1", "memory": str(used)}}
            for name, used in self._metrics.items()
        ]
        return {"items": items}


def snapshot(*names: str) -> Snapshot:
    return Snapshot([node(name).allocatable(memory="10Gi").build() for name in names])


async def test_each_node_is_read_and_few_at_a_time() -> None:
    names = [f"n{number}" for number in range(3 * CONCURRENT)]
    api = ProxyApi({name: summary(name, GI) for name in names})
    found: dict[str, bytes] = {}

    assert await read_summaries(api, names, progress=QUIET, on_summary=found.__setitem__) == {}
    assert sorted(found) == sorted(names)
    assert api.most <= CONCURRENT


async def test_missing_permission_is_asked_for_once_and_names_nodes_proxy(capsys, golden: Golden) -> None:
    api = ProxyApi({"n1": Forbidden("nodes n1 is forbidden", status=403)}, metrics={"n1": GI, "n2": 2 * GI})
    stats = await read_live_stats(api, ["n2", "n1"], QUIET, kubelets=True)

    assert api.asked == ["n1"]
    [line] = capsys.readouterr().err.splitlines()
    golden(line)
    found = stats.readings(snapshot("n1", "n2"), now=NOW)
    assert [each.latest.source for each in found.values()] == ["Metrics", "Metrics"]
    available = {name: each.latest.signals["memory.available"].available for name, each in found.items()}
    assert available == {"n1": 9 * GI, "n2": 8 * GI}


async def test_kubelets_are_not_read_without_a_request(capsys) -> None:
    api = ProxyApi({"n1": summary("n1", GI), "n2": summary("n2", GI)}, metrics={"n1": GI})
    stats = await read_live_stats(api, ["n1", "n2"], QUIET, kubelets=False)

    assert api.asked == []
    assert "--stats" in capsys.readouterr().err
    found = stats.readings(snapshot("n1", "n2"), now=NOW)
    assert found["n1"].latest.source == "Metrics"
    assert found["n2"].latest.reason == "StatsUnknown"


async def test_nodes_without_stats_and_metrics_keep_their_failure(capsys, golden: Golden) -> None:
    api = ProxyApi({"n1": summary("n1", GI), "n2": ServerError("dial tcp: timeout", status=502)})
    stats = await read_live_stats(api, ["n1", "n2"], QUIET, kubelets=True)
    found = stats.readings(snapshot("n1", "n2"), now=NOW)

    assert isinstance(found["n1"].latest, NodeMeasurement)
    assert isinstance(found["n2"].latest, ReadFailure)
    assert found["n2"].latest.reason == "StatsUnreachable"
    golden(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Unreachable("connection refused"), "StatsUnreachable"),
        (NotFound("no node", status=404), "StatsInvalid"),
        (b"<html>", "StatsInvalid"),
        (b"[" * 100_000, "StatsInvalid"),
        (b" " * (MAX_BODY + 1), "StatsInvalid"),
        (summary("another", GI), "StatsInvalid"),
        ({"node": {"nodeName": "n1", "memory": {"availableBytes": "much"}}, "pods": []}, "StatsInvalid"),
    ],
)
async def test_hostile_or_silent_kubelets_are_failures(answer, reason) -> None:
    failures = await read_summaries(
        ProxyApi({"n1": answer}), ["n1"], progress=QUIET, on_summary=lambda *_: pytest.fail("unexpected summary")
    )

    assert failures["n1"].reason == reason


def test_snapshot_files_contain_only_what_planners_read() -> None:
    full = summary("n1", GI, {"shop/web": GI}, network={"name": "eth0"}, startTime="2026-11-20T10:00:00Z")
    full["pods"][0] |= {
        "network": {"name": "secret"},
        "volume": [{"name": "secret", "usedBytes": 7, "pvcRef": {"name": "secret", "namespace": "shop"}}],
        "containers": [{"name": "main", "userDefinedMetrics": [{"name": "secret"}], "rootfs": {"usedBytes": 9}}],
    }
    name, slim = slim_summary(msgspec.json.encode(full))

    assert name == "n1"
    assert b"secret" not in slim
    assert b"eth0" not in slim
    document = msgspec.json.decode(slim)
    assert document["pods"][0]["volume"] == [{"usedBytes": 7, "pvcRef": {}}]
    assert document["pods"][0]["containers"] == [{"name": "main", "rootfs": {"usedBytes": 9}}]


def test_slim_summary_has_the_same_measurement() -> None:
    from trimtab.pressure.summary import read_summary

    psi = {"full": {"total": 1, "avg10": 1.5, "avg60": 2.5, "avg300": 3.5}, "some": {"avg10": 9.0}}
    file_system = {"availableBytes": 5 * GI, "capacityBytes": 9 * GI, "inodes": 9, "inodesFree": 5}
    full = summary(
        "n1",
        GI,
        {"shop/web": GI},
        fs=file_system,
        runtime={"imageFs": file_system, "containerFs": file_system},
        rlimit={"maxpid": 100, "curproc": 7},
        systemContainers=[{"name": "pods", "memory": {"availableBytes": GI, "workingSetBytes": GI}}],
    )
    full["node"]["memory"]["psi"] = psi
    body = msgspec.json.encode(full)
    one = read_summary(body, node="n1", read_at=NOW)
    other = read_summary(slim_summary(body)[1], node="n1", read_at=NOW)

    assert len(one.signals) == 9
    assert (one.signals, one.memory_stall, one.pods()) == (other.signals, other.memory_stall, other.pods())


def test_document_of_another_form_is_no_summary() -> None:
    stats = NodeStats()

    assert not stats.take(msgspec.Raw(b'{"node": "n1", "pods": []}'))
    assert not stats.take({"pods": []})
    assert not stats.take({"node": {"nodeName": "n1"}})
    assert not stats
    with pytest.raises(InvalidSummary):
        slim_summary(b'{"node": {}, "pods": []}')


@pytest.mark.parametrize("form", [JsonList, YamlList])
def test_summaries_in_a_snapshot_file_are_read_back(tmp_path, form) -> None:
    path = tmp_path / ("c.json" if form is JsonList else "c.yaml")
    with path.open("wb") as stream:
        writer = form(stream)
        writer.begin()
        for item in (node("n1").manifest(), summary("n1", GI, {"shop/web": GI}), pod("web").on("n1").manifest()):
            writer.item(item)
        writer.end()
    found: list[NodeStats] = []
    made = read_cluster(str(path), on_stats=found.append)

    [latest] = [each.latest for each in found[0].readings(made, now=NOW).values()]
    assert latest.signals["memory.available"].available == GI
    assert found[0].resident_memory("n1") == {("shop/web", "main"): GI}


NUMBERS = st.one_of(st.none(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=3))
NODE = st.fixed_dictionaries(
    {"nodeName": st.one_of(st.just("n1"), NUMBERS)},
    optional={
        "memory": st.dictionaries(st.sampled_from(["time", "availableBytes", "workingSetBytes", "psi"]), NUMBERS),
        "fs": st.dictionaries(st.sampled_from(["availableBytes", "capacityBytes", "inodes"]), NUMBERS),
        "rlimit": st.dictionaries(st.sampled_from(["maxpid", "curproc"]), NUMBERS),
        "systemContainers": st.lists(NUMBERS, max_size=2),
    },
)


@given(st.fixed_dictionaries({"node": st.one_of(NODE, NUMBERS), "pods": st.one_of(st.lists(NUMBERS), NUMBERS)}))
def test_any_document_is_a_summary_or_an_error(document: dict[str, Any]) -> None:
    raw = json.dumps(document).encode()
    stats = NodeStats()
    with suppress(InputError):
        assert stats.take(msgspec.Raw(raw)) == bool(stats)

    stats.readings(snapshot("n1"), now=NOW)
    stats.resident_memory("n1")
