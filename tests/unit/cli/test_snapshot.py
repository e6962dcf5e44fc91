"""``trimtab snapshot``, on an API server in memory."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tests.builders import (
    ZONE,
    attachment,
    budget,
    capacity,
    cluster_machine_set,
    csi_driver,
    csi_node,
    daemon_set,
    eviction_request,
    job,
    limit_range,
    machine,
    machine_deployment,
    machine_pool,
    machine_set,
    namespace,
    node,
    pod,
    priority_class,
    pv,
    pvc,
    replica_set,
    replication_controller,
    runtime_class,
    service,
    stateful_set,
    storage_class,
    vertical_pod_autoscaler,
)
from tests.fixtures.golden import Golden
from tests.node_summaries import summary
from tests.unit.inspection.test_history import NOW, entry, record
from tests.unit.inspection.test_history import run as run_of
from trimtab.cli.live import OWN_KINDS, JsonList, Progress, YamlList, write_cluster
from trimtab.cli.redaction import LEFT_OUT, redact
from trimtab.cluster.kinds import NODE_GROUPS, SNAPSHOT_KINDS
from trimtab.cluster.loader import LoadFailed
from trimtab.cluster.snapshot import Snapshot
from trimtab.inspection.node_stats import NodeStats
from trimtab.kube.api import Forbidden, Gone, NotFound, Unreachable
from trimtab.kube.resources import Resource
from trimtab.kube.wire.decode import decode_object
from trimtab.kube.wire.files.reader import read_objects

OBJECTS = {
    "nodes": [node("n1"), node("n2").zone("a")],
    "namespaces": [namespace("shop")],
    "priorityclasses": [priority_class("high", 1000)],
    "poddisruptionbudgets": [budget("web").selecting(app="web")],
    "persistentvolumes": [
        pv("volume-1").claimed_by("data").on("n1"),
        pv("volume-2").source("awsElasticBlockStore", volumeID="v"),
    ],
    "persistentvolumeclaims": [pvc("data").bound_to("volume-1")],
    "storageclasses": [storage_class().topology({ZONE: ("a",)})],
    "csinodes": [csi_node("n1").driver("csi.example", 5)],
    "csidrivers": [csi_driver(storage_capacity=True)],
    "csistoragecapacities": [capacity().where(zone="a")],
    "volumeattachments": [attachment("a", "volume-1", "n1")],
    "services": [service().selecting(app="web")],
    "replicationcontrollers": [replication_controller().selecting(app="web")],
    "replicasets": [replica_set().selecting(app="web")],
    "statefulsets": [stateful_set().selecting(app="web")],
    "jobs": [job().of_pods(pod().cpu("100m")), job("old").finished()],
    "verticalpodautoscalers": [vertical_pod_autoscaler()],
    "evictionrequests": [eviction_request(), eviction_request("old").ended("TargetEvicted")],
    "limitranges": [limit_range().containers(defaultRequest={"cpu": "100m"})],
    "runtimeclasses": [runtime_class().overhead(cpu="250m")],
    "daemonsets": [daemon_set().of_pods(pod().cpu("100m").tolerates())],
    "machinesets": [machine_set().replicas(2).limits(1, 5).node_labels(pool="a").node_taint("a", "b")],
    "machines": [machine_set().machine("a-1").on("n1").provider_id("x://1"), machine("a-2").failed()],
    "machinedeployments.cluster.x-k8s.io": [machine_deployment().replicas(1).limits(0, 9)],
    "machinesets.cluster.x-k8s.io": [cluster_machine_set().replicas(1).owned_by("MachineDeployment", "md")],
    "machinepools.cluster.x-k8s.io": [machine_pool().merge(spec={"providerIDList": ["x://2"]})],
    "machines.cluster.x-k8s.io": [cluster_machine_set().machine("md-1-a").on("n2")],
    "pods": [pod(f"web-{number}").on("n1").cpu("100m").labels(app="web", version="1e3") for number in range(5)],
}

POLICY = {
    "apiVersion": "trimtab.dev/v1alpha1",
    "kind": "DeschedulerPolicy",
    "metadata": {"name": "default", "generation": 2, "labels": {"team": "shop"}},
    "spec": {"strategies": {"RemoveDuplicates": {}}, "mode": "Act"},
    "status": {
        "observedGeneration": 2,
        "conditions": [
            {
                "type": "Degraded",
                "status": "True",
                "reason": "EvictionFailed",
                "message": "1 eviction failed",
                "lastTransitionTime": "2026-11-23T08:00:00Z",
            }
        ],
        "lastRun": {"time": "2026-11-23T08:00:00Z", "planned": 2, "evicted": 1, "refused": 1},
    },
}
AUTOSCALER = {
    "apiVersion": "autoscaling.openshift.io/v1",
    "kind": "ClusterAutoscaler",
    "metadata": {"name": "default"},
    "spec": {"scaleDown": {"enabled": True, "unneededTime": "10m"}},
}
OWN_OBJECTS: dict[str, list[dict[str, Any]]] = {each.plural: [] for each in OWN_KINDS} | {
    "deschedulerpolicies": [POLICY],
    "clusterautoscalers": [AUTOSCALER],
    "historyrecords": [
        record("a", entry("gone", message="5 pods on n1", target="n2")),
        record("b", entry("web-9", result="Refused", result_reason="DisruptionBudget", result_message="no budget")),
    ],
    "deschedulingruns": [run_of(("web-8", "Evicted", NOW))],
}


def own_objects() -> list[dict[str, Any]]:
    return [each for found in OWN_OBJECTS.values() for each in found]


def named(resource: Resource) -> str:
    return resource.name if resource.name in OBJECTS else resource.plural


class PagedApi:
    """Lists in pages of two, as the API server does it; `faults` are raised at the n-th request of a kind."""

    def __init__(self, faults: dict[tuple[str, int], Exception] | None = None) -> None:
        self.faults = faults or {}
        self.asked: list[str] = []

    async def request(self, method: str, path: str, *, params: dict[str, str], timeout: float) -> Any:
        *_, group, _, plural = path.split("/")
        if group == "cluster.x-k8s.io":  # has kinds of the same names as the Machine API
            plural = f"{plural}.{group}"
        self.asked.append(plural)
        fault = self.faults.get((plural, self.asked.count(plural)))
        if fault is not None:
            raise fault
        start = int(params.get("continue", 0))
        own = OWN_OBJECTS.get(plural)
        wanted = [each.manifest() for each in OBJECTS[plural]] if own is None else own
        items = msgspec.json.decode(msgspec.json.encode(wanted))
        for item in items:
            del item["kind"], item["apiVersion"]  # lists say it once
            item["metadata"]["managedFields"] = [{"manager": "kubectl"}]
        metadata: dict[str, Any] = {"resourceVersion": "7"}
        if start + 2 < len(items):
            metadata |= {"continue": str(start + 2), "remainingItemCount": len(items) - start - 2}
        return {"metadata": metadata, "items": items[start : start + 2]}


async def written(form: Any, api: PagedApi) -> bytes:
    stream = io.BytesIO()
    await write_cluster(api, form(stream), progress=Progress(io.StringIO()))
    return stream.getvalue()


@pytest.mark.parametrize("form", [JsonList, YamlList])
async def test_the_file_reads_back_as_the_same_cluster(form) -> None:
    found = read_objects(io.BytesIO(await written(form, PagedApi())))

    expected = [redact(kind.kind, each.manifest()) for kind in SNAPSHOT_KINDS for each in OBJECTS[named(kind)]]
    assert list(found.objects) == [decode_object(manifest) for manifest in expected]


async def test_snapshot_is_a_list_for_kubectl() -> None:
    document = msgspec.json.decode(await written(JsonList, PagedApi()))

    assert {key: document[key] for key in ("apiVersion", "kind")} == {"apiVersion": "v1", "kind": "List"}
    assert document["items"][0] == node("n1").manifest()  # managedFields are gone, kind and apiVersion are there


@pytest.mark.parametrize("form", [JsonList, YamlList])
async def test_stats_are_among_the_objects_on_request(form, capsys, golden: Golden) -> None:
    class WithStats(PagedApi):
        @asynccontextmanager
        async def stream(self, path: str, **_: Any) -> AsyncIterator[AsyncIterator[bytes]]:
            if "/n2/" in path:
                raise Unreachable("connection refused")

            async def chunks() -> AsyncIterator[bytes]:
                yield msgspec.json.encode(summary("n1", 5, capacity=10))

            yield chunks()

    stream = io.BytesIO()
    await write_cluster(WithStats(), form(stream), progress=Progress(io.StringIO()), stats=True)
    stats = NodeStats()
    found = read_objects(io.BytesIO(stream.getvalue()), on_untyped=stats.take)

    assert len(found.objects) == sum(map(len, OBJECTS.values()))
    assert list(stats.readings(Snapshot(found.objects), now=0.0)) == ["n1"]
    golden(capsys.readouterr().err)


@pytest.mark.parametrize("form", [JsonList, YamlList])
async def test_expired_pages_are_written_again(form) -> None:
    expiring = PagedApi({("pods", 3): Gone("expired", status=410)})

    assert await written(form, expiring) == await written(form, PagedApi())


@pytest.mark.parametrize("kind", ["nodes", "pods"])
async def test_restarted_first_kind_is_valid_json(kind) -> None:
    msgspec.json.decode(await written(JsonList, PagedApi({(kind, 1): Gone("expired", status=410)})))


async def test_pages_that_keep_expiring_are_an_error() -> None:
    api = PagedApi({("pods", number): Gone("expired", status=410) for number in range(9)})

    with pytest.raises(LoadFailed, match="list pods: expired"):
        await written(JsonList, api)


async def test_missing_permissions_name_verb_and_resource(golden: Golden) -> None:
    api = PagedApi({("poddisruptionbudgets", 1): Forbidden("no", status=403)})

    with pytest.raises(LoadFailed) as raised:
        await written(JsonList, api)
    golden(str(raised.value))


async def test_kind_unknown_to_the_server_is_omitted() -> None:
    api, recorded = PagedApi({("csistoragecapacities", 1): NotFound("no such resource", status=404)}), []
    stream = io.BytesIO()

    await write_cluster(
        api, JsonList(stream), progress=Progress(io.StringIO()), on_absent=lambda *missed: recorded.append(missed)
    )

    kinds = {item["kind"] for item in msgspec.json.decode(stream.getvalue())["items"]}
    assert [resource.name for resource, _ in recorded] == ["csistoragecapacities.storage.k8s.io"]
    assert {resource.kind for resource in SNAPSHOT_KINDS} - kinds == {"CSIStorageCapacity"}


@pytest.mark.parametrize(
    ("error", "reported"),
    [(NotFound("no such resource", status=404), []), (Forbidden("no", status=403), ["historyrecords.trimtab.dev"])],
    ids=["not installed", "forbidden"],
)
async def test_missing_history_is_omitted(error, reported) -> None:
    api, recorded = PagedApi({("historyrecords", 1): error}), []
    stream = io.BytesIO()

    await write_cluster(
        api, JsonList(stream), progress=Progress(io.StringIO()), on_absent=lambda *missed: recorded.append(missed)
    )

    kinds = {item["kind"] for item in msgspec.json.decode(stream.getvalue())["items"]}
    assert {"DeschedulerPolicy", "DeschedulingRun", "HistoryRecord"} & kinds == {"DeschedulerPolicy", "DeschedulingRun"}
    assert [resource.name for resource, _ in recorded] == reported


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize(
    "command",
    [
        ("history", "--since", "2026-11-20T00:00:00Z", "--until", "2026-11-24T00:00:00Z"),
        ("explain", "pod", "shop/gone"),
        ("explain", "policy", "dp/default"),
        ("explain", "policy", "ca/default"),
        ("explain", "nodegroup", "openshift-machine-api/workers-a"),
        ("plan",),
    ],
    ids=" ".join,
)
async def test_answers_for_a_saved_cluster_are_those_for_the_cluster(run, write, tmp_path, command, form) -> None:
    """The answers for a file with all fields of all objects are those for the live cluster, except stored messages."""
    complete = write("complete.json", *(each for found in OBJECTS.values() for each in found), *own_objects())
    saved = tmp_path / f"saved.{form}"
    saved.write_bytes(await written(JsonList if form == "json" else YamlList, PagedApi()))
    now = () if command[0] == "history" else ("--now", "2026-11-23T09:30:00Z")

    answers = [run(*command, *now, "-o", "json", "--cluster", each) for each in (complete, saved)]

    assert [each.exit_code for each in answers] == [0, 0], answers[1].output
    live, kept = (msgspec.json.decode(each.stdout) for each in answers)
    assert kept == with_left_out(live, kept)


def with_left_out(live: Any, kept: Any) -> Any:
    """Return the answer for a live cluster without the messages that are left out of the answer for a saved cluster."""
    if kept == LEFT_OUT and live:
        return kept
    if isinstance(live, dict) and isinstance(kept, dict):
        return {key: with_left_out(value, kept.get(key)) for key, value in live.items()}
    if isinstance(live, list) and isinstance(kept, list) and len(live) == len(kept):
        return [with_left_out(*each) for each in zip(live, kept, strict=True)]
    return live


async def test_saved_cluster_has_the_history_and_the_policies(run, write, tmp_path) -> None:
    saved = tmp_path / "saved.json"
    saved.write_bytes(await written(JsonList, PagedApi()))

    def ask(*arguments: str) -> Any:
        result = run(*arguments, "-o", "json")
        assert result.exit_code == 0, result.output
        return msgspec.json.decode(result.stdout)

    period = ("--since", "2026-11-20T00:00:00Z", "--until", "2026-11-24T00:00:00Z")
    actions = ask("history", "--cluster", str(saved), *period)["entries"]
    assert {(each["pod"], each["result"]) for each in actions} == {
        ("shop/gone", "Succeeded"),
        ("shop/web-9", "Refused"),
        ("shop/web-8", "Succeeded"),
    }
    gone = ask("explain", "pod", "shop/gone", "--cluster", str(saved))
    assert (gone["state"], gone["eviction"]["reason"]) == ("Gone", "DuplicateOnNode")
    policy = ask("explain", "policy", "dp/default", "--cluster", str(saved))
    assert (policy["state"], policy["heldBackBy"][0]["message"]) == ("Degraded", LEFT_OUT)
    assert len(policy["lastActions"]) == 3
    before = write("before.json", node("n1"), POLICY | {"spec": {**POLICY["spec"], "mode": "Approve"}}, AUTOSCALER)
    [changed] = ask("diff", str(before), str(saved))["policies"]
    assert changed["fields"] == [{"field": "spec.mode", "before": "Approve", "after": "Act"}]


async def test_missing_machine_kinds_cause_no_warning() -> None:
    missing = NotFound("no such resource", status=404)
    api, recorded = PagedApi({(named(kind), turn): missing for kind in NODE_GROUPS for turn in (1, 2)}), []
    stream = io.BytesIO()

    await write_cluster(
        api, JsonList(stream), progress=Progress(io.StringIO()), on_absent=lambda *missed: recorded.append(missed)
    )

    kinds = {item["kind"] for item in msgspec.json.decode(stream.getvalue())["items"]}
    assert not recorded
    assert not kinds & {resource.kind for resource in NODE_GROUPS}


async def test_forbidden_machines_are_omitted_with_a_warning() -> None:
    api, recorded = PagedApi({("machinesets", 1): Forbidden("no", status=403)}), []

    await write_cluster(
        api, JsonList(io.BytesIO()), progress=Progress(io.StringIO()), on_absent=lambda *missed: recorded.append(missed)
    )

    assert [resource.name for resource, _ in recorded] == ["machinesets.machine.openshift.io"]


async def test_omitted_kinds_cause_no_warning_if_pods_are_forbidden() -> None:
    refused = Forbidden("no", status=403)
    api, recorded = PagedApi({("machinesets", 1): refused, ("pods", 1): refused}), []

    with pytest.raises(LoadFailed):
        await write_cluster(
            api,
            JsonList(io.BytesIO()),
            progress=Progress(io.StringIO()),
            on_absent=lambda *missed: recorded.append(missed),
        )

    assert not recorded


async def test_cluster_api_is_read_in_the_version_that_is_served() -> None:
    api = PagedApi({("machines.cluster.x-k8s.io", 1): NotFound("no such version", status=404)})

    written_by = msgspec.json.decode(await written(JsonList, api))["items"]

    versions = {item["apiVersion"] for item in written_by if item["kind"] == "Machine"}
    assert versions == {"machine.openshift.io/v1beta1", "cluster.x-k8s.io/v1beta1"}


async def test_server_without_pods_is_an_error(golden: Golden) -> None:
    with pytest.raises(LoadFailed) as raised:
        await written(JsonList, PagedApi({("pods", 1): NotFound("no such resource", status=404)}))
    golden(str(raised.value))


async def test_progress_is_for_terminals_only() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, file = Terminal(), io.StringIO()

    await write_cluster(PagedApi(), JsonList(io.BytesIO()), progress=Progress(terminal))
    await write_cluster(PagedApi(), JsonList(io.BytesIO()), progress=Progress(file))

    assert "pods 4 of 5" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert file.getvalue() == ""


def test_file_name_determines_the_format(run, tmp_path) -> None:
    result = run("snapshot", "-o", tmp_path / "cluster.txt")

    assert result.exit_code == 2
    assert "use .json, .yaml, .yml" in result.stderr


def test_failed_snapshot_leaves_no_file(run, tmp_path, golden: Golden) -> None:
    target = tmp_path / "cluster.json"
    target.write_text("yesterday")

    result = run("snapshot", "-o", target, "--kubeconfig", tmp_path / "nowhere")

    assert result.exit_code == 2
    golden(result.stderr.replace(str(tmp_path), "folder"))
    assert [each.name for each in tmp_path.iterdir()] == ["cluster.json"]
    assert target.read_text() == "yesterday"


def test_unresponsive_server_is_a_run_time_failure(run, tmp_path, golden: Golden) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: dev\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "contexts: [{name: dev, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n"
    )

    for command, first in ((["snapshot"], "/api/v1/"), (["explain", "pod", "a/b"], "/apis/trimtab.dev/")):
        result = run(*command, "--kubeconfig", kubeconfig)

        assert result.exit_code == 1
        assert f" GET http://127.0.0.1:1{first}" in result.stderr
        assert result.stderr.endswith(f" (kubeconfig {kubeconfig}, context dev)\n")
        assert result.stderr.count("\n") == 1
        golden(result.stderr.partition("GET")[0])


@pytest.mark.parametrize("name", ["cluster.JSON", "cluster.yml", "-"])
def test_snapshot_is_written_to_the_file_or_standard_output(run, tmp_path, monkeypatch, name) -> None:
    def write(work, **_) -> None:
        asyncio.run(work(PagedApi()))

    monkeypatch.setattr("trimtab.cli.live.with_api", write)
    target = name if name == "-" else str(tmp_path / name)

    result = run("snapshot", "-o", target)

    assert result.exit_code == 0, result.output
    if name == "-":
        content = result.stdout_bytes
    else:
        assert result.stdout == ""
        assert [each.name for each in tmp_path.iterdir()] == [name]
        content = (tmp_path / name).read_bytes()
    decode = msgspec.yaml.decode if name.endswith("yml") else msgspec.json.decode
    document = decode(content)
    assert document["kind"] == "List"
    assert sum(each["kind"] == "Pod" for each in document["items"]) == 5


def test_interrupted_snapshot_keeps_the_previous_file(run, tmp_path, monkeypatch) -> None:
    def fail(_work, **_) -> None:
        raise Forbidden("pods is forbidden", status=403)

    monkeypatch.setattr("trimtab.cli.live.with_api", fail)
    (tmp_path / "cluster.json").write_text("previous")

    result = run("snapshot", "-o", tmp_path / "cluster.json")

    assert result.exit_code == 1
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("cluster.json", "previous")]
