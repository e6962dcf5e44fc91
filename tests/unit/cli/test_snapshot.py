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
    cluster_machine_set,
    csi_driver,
    csi_node,
    daemon_set,
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
    service,
    stateful_set,
    storage_class,
)
from trimtab.cli.cluster_list import JsonList, Progress, YamlList, write_cluster
from trimtab.cluster.kinds import EVERYTHING, NODE_GROUPS
from trimtab.cluster.load import LoadFailed
from trimtab.kube.api import Forbidden, Gone, NotFound
from trimtab.kube.resources import Resource
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
    "daemonsets": [daemon_set().of_pods(pod().cpu("100m").tolerates())],
    "machinesets": [machine_set().replicas(2).limits(1, 5).node_labels(pool="a").node_taint("a", "b")],
    "machines": [machine_set().machine("a-1").on("n1").provider_id("x://1"), machine("a-2").failed()],
    "machinedeployments.cluster.x-k8s.io": [machine_deployment().replicas(1).limits(0, 9)],
    "machinesets.cluster.x-k8s.io": [cluster_machine_set().replicas(1).owned_by("MachineDeployment", "md")],
    "machinepools.cluster.x-k8s.io": [machine_pool().merge(spec={"providerIDList": ["x://2"]})],
    "machines.cluster.x-k8s.io": [cluster_machine_set().machine("md-1-a").on("n2")],
    "pods": [pod(f"web-{number}").on("n1").cpu("100m").labels(app="web", version="1e3") for number in range(5)],
}


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

    assert list(found.objects) == [each.build() for kind in EVERYTHING for each in OBJECTS[named(kind)]]


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

    await write_cluster(
        api, JsonList(stream), progress=Progress(io.StringIO()), on_absent=lambda *missed: told.append(missed)
    )

    kinds = {item["kind"] for item in msgspec.json.decode(stream.getvalue())["items"]}
    assert [resource.name for resource, _ in told] == ["csistoragecapacities.storage.k8s.io"]
    assert {resource.kind for resource in EVERYTHING} - kinds == {"CSIStorageCapacity"}


async def test_a_cluster_without_machines_is_written_without_a_word() -> None:
    missing = NotFound("no such resource", status=404)
    api, told = PagedApi({(named(kind), turn): missing for kind in NODE_GROUPS for turn in (1, 2)}), []
    stream = io.BytesIO()

    await write_cluster(
        api, JsonList(stream), progress=Progress(io.StringIO()), on_absent=lambda *missed: told.append(missed)
    )

    kinds = {item["kind"] for item in msgspec.json.decode(stream.getvalue())["items"]}
    assert not told
    assert not kinds & {resource.kind for resource in NODE_GROUPS}


async def test_machines_that_one_may_not_read_are_left_out_and_told() -> None:
    api, told = PagedApi({("machinesets", 1): Forbidden("no", status=403)}), []

    await write_cluster(
        api, JsonList(io.BytesIO()), progress=Progress(io.StringIO()), on_absent=lambda *missed: told.append(missed)
    )

    assert [resource.name for resource, _ in told] == ["machinesets.machine.openshift.io"]


async def test_cluster_api_is_read_in_the_version_that_is_served() -> None:
    api = PagedApi({("machines.cluster.x-k8s.io", 1): NotFound("no such version", status=404)})

    written_by = msgspec.json.decode(await written(JsonList, api))["items"]

    versions = {item["apiVersion"] for item in written_by if item["kind"] == "Machine"}
    assert versions == {"machine.openshift.io/v1beta1", "cluster.x-k8s.io/v1beta1"}


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
