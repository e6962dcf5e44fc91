"""Commands that read a live cluster, on an API server in memory: what they ask, and what they do when it is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.builders import machine_set, node, pod
from tests.fakes.cluster import FakeCluster
from tests.fixtures.golden import Golden
from tests.unit.cli.test_plan_admission import ADMISSION, deployment
from tests.unit.inspection.clusters import cluster_of
from tests.unit.inspection.test_history import entry, record
from tests.unit.inspection.test_migration import autoscaler, controller_manager, policy_map, workload
from tests.unit.inspection.test_pod import registered, waiting
from trimtab.cli.inspection_client import PREFIX
from trimtab.inspection.pod import explain_pod
from trimtab.kube.api import Forbidden, ServerError
from trimtab.kube.resources import (
    CLUSTER_AUTOSCALERS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    DESCHEDULER_POLICIES,
    EVENTS,
    HISTORY_RECORDS,
    MACHINE_SETS,
    MACHINES,
    NAMESPACES,
    NODES,
    PLACEMENT_ADMISSIONS,
    PODS,
)

NOW = ("--now", "2026-11-20T12:00:00Z")
DUPLICATES = {"metadata": {"name": "default"}, "spec": {"strategies": {"RemoveDuplicates": {}}}}


def answer(run, *arguments: Any) -> Any:
    result = run(*arguments, "-o", "json")
    assert result.exit_code == 0, result.stderr
    return msgspec.json.decode(result.stdout)


@pytest.fixture
def server() -> FakeCluster:
    server = FakeCluster()
    for each in (node("n1"), node("n2")):
        server.add(NODES, each)
    for number in range(2):
        server.add(PODS, pod(f"web-{number}", "shop").on("n1").owned_by("ReplicaSet", "web").ready())
    return server


# --- the operator's answer, or the cluster --------------------------------------------------------------------------


def test_explanation_of_the_operator_is_shown_without_reading_the_cluster(run, server, kubeconfig) -> None:
    given = explain_pod(cluster_of(node("n1"), pod("web-0", "shop").on("n1")), "shop", "web-0")
    server.put(f"{PREFIX}/namespaces/shop/pods/web-0/explanation", given or {})

    document = answer(run, "explain", "pod", "shop/web-0", "--kubeconfig", kubeconfig)
    table = run("explain", "pod", "shop/web-0", "--kubeconfig", kubeconfig).stdout

    assert (document["pod"], document["node"]) == ("shop/web-0", "n1")
    assert table.startswith("shop/web-0")
    assert {call.path.rpartition("/")[2] for call in server.calls} == {"explanation"}


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("node", "n1"), "nodes/n1/explanation"),
        (("nodegroup",), "nodegroups/current"),
    ],
)
def test_direct_does_not_ask_the_operator(run, server, kubeconfig, arguments: tuple[str, ...], path: str) -> None:
    run("explain", *arguments, "--kubeconfig", kubeconfig)
    assert [call.path for call in server.sent(path=PREFIX)] == [f"{PREFIX}/{path}"]
    server.calls.clear()

    assert run("explain", *arguments, "--kubeconfig", kubeconfig, "--direct").exit_code == 0
    assert server.sent(path=PREFIX) == []


def test_node_shows_who_changed_it_last(run, server, kubeconfig) -> None:
    fields = {"f:spec": {"f:unschedulable": {}}}
    managed = {"manager": "kubectl-cordon", "operation": "Update", "time": "2026-11-20T11:00:00Z", "fieldsV1": fields}
    server.add(NODES, node("n3").cordoned().merge(metadata={"managedFields": [managed]}))

    result = run("explain", "node", "n3", "--kubeconfig", kubeconfig, "--direct")

    assert result.exit_code == 0
    assert "kubectl-cordon" in result.stdout


# --- explain pod ----------------------------------------------------------------------------------------------------


def test_pod_that_is_gone_is_explained_by_its_events(run, server, kubeconfig) -> None:
    event = {
        "metadata": {"name": "e", "namespace": "shop"},
        "type": "Normal",
        "reason": "DuplicateOnNode",
        "action": "Evict",
        "related": {"kind": "Node", "name": "n1"},
        "note": "2 pods on n1",
        "reportingController": "trimtab.dev/trimtab",
        "regarding": {"kind": "Pod", "namespace": "shop", "name": "web-9", "uid": "old"},
        "eventTime": "2026-11-20T11:00:00.000000Z",
    }
    other = {**event, "metadata": {"name": "f", "namespace": "shop"}, "regarding": {"kind": "Pod", "name": "web-8"}}
    server.add(EVENTS, event)
    server.add(EVENTS, other)

    arguments = ("explain", "pod", "shop/web-9", "--kubeconfig", kubeconfig)
    document = answer(run, *arguments)
    lines = run(*arguments).stdout

    assert (document["state"], document["eviction"]["source"]) == ("Gone", "Events")
    assert document["eviction"]["time"] == "2026-11-20T11:00:00Z"
    assert "Evicted by:" in lines

    server.fail(Forbidden("may not list events", status=403), times=9, path="/events")
    assert run(*arguments).exit_code == 2


def test_recorded_eviction_shows_the_policy_and_the_replacement(run, server, kubeconfig, golden: Golden) -> None:
    at = datetime(2026, 11, 20, 11, tzinfo=UTC)
    gone = entry("web-9", at=at, strategy="RemoveDuplicates", owner="ReplicaSet/web", target="n2", message="2 pods")
    server.add(HISTORY_RECORDS, record("h", gone))
    replacement = pod("web-10", "shop").on("n1").owned_by("ReplicaSet", "web")
    server.add(PODS, replacement.merge(metadata={"creationTimestamp": "2026-11-20T11:00:02Z"}))

    result = run("explain", "pod", "shop/web-9", "--kubeconfig", kubeconfig, *NOW)

    assert result.exit_code == 0
    assert server.sent(path="/events") == []
    golden(result.stdout)


def test_pending_pod_shows_each_node_group(run, server, kubeconfig, golden: Golden) -> None:
    server.unserved = ("cluster.x-k8s.io",)
    full, machine, filler = registered("n3")
    server.add(NODES, full)
    server.add(MACHINES, machine)
    server.add(PODS, filler)
    small = machine_set("small").replicas(1).limits(0, 1).capacity(cpu="8", memory="32Gi", pods="110")
    server.add(MACHINE_SETS, machine_set().replicas(1).limits(0, 3).capacity(cpu="8", memory="32Gi", pods="110"))
    server.add(MACHINE_SETS, small)
    server.add(PODS, waiting("big", cpu="6"))
    server.add(CLUSTER_AUTOSCALERS, {"metadata": {"name": "default"}, "spec": {}})

    result = run("explain", "pod", "shop/big", "--kubeconfig", kubeconfig, *NOW)

    assert result.exit_code == 0
    golden(result.stdout)


# --- plan, migrate, history -----------------------------------------------------------------------------------------


def test_plan_uses_the_policies_in_the_cluster(run, server, kubeconfig) -> None:
    server.add(DESCHEDULER_POLICIES, DUPLICATES)

    document = answer(run, "plan", "--kubeconfig", kubeconfig, *NOW)

    [eviction] = document["actions"]
    assert (eviction["action"], eviction["policy"], eviction["target"]) == ("Evict", "default", "n2")
    assert {call.method for call in server.calls} <= {"GET"}


def test_audit_of_a_live_cluster_reads_page_by_page(run, server, kubeconfig) -> None:
    server.unserved = (*server.unserved, "apps.openshift.io")
    server.add(PLACEMENT_ADMISSIONS, msgspec.yaml.decode(ADMISSION))
    server.add(NAMESPACES, {"metadata": {"name": "team-a"}})
    server.add(DEPLOYMENTS, deployment("api", "team-a"))

    document = answer(run, "plan", "--kubeconfig", kubeconfig, *NOW)

    [mutation] = document["actions"]
    assert (mutation["action"], mutation["kind"], mutation["name"]) == ("Mutate", "Deployment", "api")


@pytest.mark.parametrize(("options", "code"), [((), 2), (("--skip-invalid",), 0)])
def test_invalid_object_stops_the_audit_unless_it_is_skipped(
    run, server, kubeconfig, options: tuple[str, ...], code: int
) -> None:
    server.add(PLACEMENT_ADMISSIONS, msgspec.yaml.decode(ADMISSION))
    server.add(DEPLOYMENTS, deployment("api", "team-a", {"key": 1}))  # type: ignore[dict-item]

    result = run("plan", "--kubeconfig", kubeconfig, *NOW, *options)

    assert result.exit_code == code
    assert "Deployment/team-a/api" in result.stderr


def test_migration_is_checked_with_what_the_user_may_list(run, server, kubeconfig) -> None:
    server.add(DEPLOYMENTS, autoscaler("--scan-interval=1m"))
    server.add(DEPLOYMENTS, workload("descheduler", "descheduler:v0.34.0"))
    server.add(CONFIG_MAPS, policy_map())
    server.fail(Forbidden("may not list cronjobs", status=403), times=9, path="/cronjobs")

    result = run("migrate", "check", "--kubeconfig", kubeconfig, *NOW, "-o", "json")

    assert result.exit_code == 0
    assert "cronjobs.batch is treated as empty" in result.stderr
    document = msgspec.json.decode(result.stdout)
    assert {each["program"]: each["converted"] for each in document["programs"]} == {
        "cluster-autoscaler": True,
        "descheduler": True,
    }


def test_taint_controllers_are_found_in_the_pods_of_the_control_plane(run, server, kubeconfig) -> None:
    server.add(PODS, controller_manager())

    document = answer(run, "migrate", "check", "--kubeconfig", kubeconfig, *NOW)

    assert "kube-controller-manager" in {each["program"] for each in document["programs"]}


def test_server_that_fails_is_named_with_the_request(run, server, kubeconfig) -> None:
    server.add(DESCHEDULER_POLICIES, DUPLICATES)
    server.fail(ServerError("etcd is slow", status=500), times=99, path=PODS.path())

    result = run("plan", "--kubeconfig", kubeconfig)

    assert result.exit_code not in (0, 2)
    assert "etcd is slow" in result.stderr


def test_all_kinds_that_the_user_may_not_list_are_named_at_once(run, server, kubeconfig) -> None:
    server.add(DESCHEDULER_POLICIES, DUPLICATES)
    server.may = lambda review: review["resource"] not in ("pods", "nodes")
    for path in (PODS.path(), NODES.path()):
        server.fail(Forbidden("forbidden", status=403), times=99, path=path)

    result = run("plan", "--kubeconfig", kubeconfig)

    assert result.exit_code not in (0, 2)
    assert "list nodes" in result.stderr
    assert "list pods" in result.stderr


def test_capacity_of_a_live_cluster(run, write, server, kubeconfig, golden: Golden) -> None:
    server.unserved = ("cluster.x-k8s.io",)
    server.add(MACHINE_SETS, machine_set().replicas(0).limits(0, 3).capacity(cpu="8", memory="32Gi", pods="110"))
    server.add(CLUSTER_AUTOSCALERS, {"metadata": {"name": "default"}, "spec": {}})
    manifest = write("pod.json", pod("api", "shop").cpu("2"))

    document = answer(run, "capacity", manifest, "--kubeconfig", kubeconfig, *NOW)
    table = run("capacity", manifest, "--kubeconfig", kubeconfig, *NOW).stdout

    assert document["instances"] == sum(each["instances"] for each in document["nodes"])
    assert document["withNodeGroups"] > document["instances"]
    golden(table)
