"""``trimtab snapshot``, on an API server in memory."""

from __future__ import annotations

import copy
import io
from typing import Any

import msgspec
import pytest

from tests.builders import (
    ZONE,
    attachment,
    budget,
    capacity,
    csi_driver,
    csi_node,
    namespace,
    node,
    pod,
    priority_class,
    pv,
    pvc,
    replica_set,
    replication_controller,
    service,
    stateful_set,
    storage_class,
)
from trimtab.cli.cluster_list import JsonList, Progress, YamlList, write_cluster
from trimtab.cluster.load import KINDS, LoadFailed
from trimtab.kube.api import Forbidden, Gone, NotFound
from trimtab.kube.wire import read_objects

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
    "pods": [pod(f"web-{number}").on("n1").cpu("100m").labels(app="web", version="1e3") for number in range(5)],
}


class PagedApi:
    """Lists in pages of two, as the API server does it; `faults` are raised at the n-th request of a kind."""

    def __init__(self, faults: dict[tuple[str, int], Exception] | None = None) -> None:
        self.faults = faults or {}
        self.asked: list[str] = []

    async def request(self, method: str, path: str, *, params: dict[str, str], timeout: float) -> Any:
        plural = path.rsplit("/", 1)[-1]
        self.asked.append(plural)
        fault = self.faults.get((plural, self.asked.count(plural)))
        if fault is not None:
            raise fault
        start = int(params.get("continue", 0))
        items = [copy.deepcopy(each.manifest()) for each in OBJECTS[plural]]
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

    assert list(found.objects) == [each.build() for kind in KINDS for each in OBJECTS[kind.plural]]


async def test_it_is_a_list_that_kubectl_reads_too() -> None:
    document = msgspec.json.decode(await written(JsonList, PagedApi()))

    assert {key: document[key] for key in ("apiVersion", "kind")} == {"apiVersion": "v1", "kind": "List"}
    assert document["items"][0] == node("n1").manifest()  # managedFields are gone, kind and apiVersion are there


@pytest.mark.parametrize("form", [JsonList, YamlList])
async def test_pages_that_expire_midway_are_written_anew(form) -> None:
    expiring = PagedApi({("pods", 3): Gone("expired", status=410)})

    assert await written(form, expiring) == await written(form, PagedApi())


@pytest.mark.parametrize("kind", ["nodes", "pods"])
async def test_a_list_begins_well_where_its_first_kind_is_written_anew(kind) -> None:
    msgspec.json.decode(await written(JsonList, PagedApi({(kind, 1): Gone("expired", status=410)})))


async def test_pages_that_keep_expiring_are_an_error() -> None:
    api = PagedApi({("pods", number): Gone("expired", status=410) for number in range(9)})

    with pytest.raises(LoadFailed, match="list pods: expired"):
        await written(JsonList, api)


async def test_missing_rights_name_verb_and_resource() -> None:
    api = PagedApi({("poddisruptionbudgets", 1): Forbidden("no", status=403)})

    with pytest.raises(LoadFailed, match=r"list poddisruptionbudgets\.policy: no"):
        await written(JsonList, api)


async def test_a_kind_that_the_server_is_too_old_to_know_is_left_out() -> None:
    api, told = PagedApi({("csistoragecapacities", 1): NotFound("no such resource", status=404)}), []
    stream = io.BytesIO()

    await write_cluster(api, JsonList(stream), progress=Progress(io.StringIO()), on_absent=told.append)

    kinds = {item["kind"] for item in msgspec.json.decode(stream.getvalue())["items"]}
    assert [resource.name for resource in told] == ["csistoragecapacities.storage.k8s.io"]
    assert {resource.kind for resource in KINDS} - kinds == {"CSIStorageCapacity"}


async def test_a_server_that_knows_no_pods_is_none() -> None:
    with pytest.raises(LoadFailed, match="list pods: no such resource"):
        await written(JsonList, PagedApi({("pods", 1): NotFound("no such resource", status=404)}))


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


def test_the_name_says_the_format(run, tmp_path) -> None:
    result = run("snapshot", "-o", tmp_path / "cluster.txt")

    assert result.exit_code == 2
    assert "allowed are .json, .yaml, .yml" in result.stderr


def test_nothing_is_left_behind_of_a_snapshot_that_failed(run, tmp_path) -> None:
    target = tmp_path / "cluster.json"
    target.write_text("the one of yesterday")

    result = run("snapshot", "-o", target, "--kubeconfig", tmp_path / "nowhere")

    assert result.exit_code == 2
    assert result.stderr == f"trimtab: kubeconfig {tmp_path / 'nowhere'}: no such file\n"
    assert [each.name for each in tmp_path.iterdir()] == ["cluster.json"]
    assert target.read_text() == "the one of yesterday"


def test_a_server_that_does_not_answer_fails_at_run_time(run, tmp_path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: dev\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "contexts: [{name: dev, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n"
    )

    for command, first in ((["snapshot"], "/api/v1/"), (["explain", "pod", "a/b"], "/version")):
        result = run(*command, "--kubeconfig", kubeconfig)

        assert result.exit_code == 1
        assert result.stderr.startswith(f"trimtab: the API server does not answer: GET http://127.0.0.1:1{first}")
        assert result.stderr.endswith(f" (kubeconfig {kubeconfig}, context dev)\n")
        assert result.stderr.count("\n") == 1
