"""``trimtab what-if`` and ``trimtab capacity``."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import node, pod
from tests.fixtures.golden import Golden

NOW = "2026-11-20T12:00:00Z"


def objects() -> list[Any]:
    pods = [pod(f"web-{number}").on("n1").cpu("1").owned_by("ReplicaSet", "web") for number in range(2)]
    return [node("n1").zone("a"), node("n2").zone("b"), *pods]


def test_forecast_is_printed_as_json_and_as_a_sentence(run, write, golden: Golden) -> None:
    path = write("c.json", *objects())
    result = run("what-if", "--cluster", path, "--without", "zone=a", "--now", NOW, "-o", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [each["to"] for each in msgspec.json.decode(result.stdout)["rescheduled"]] == ["n2", "n2"]

    result = run("what-if", "--cluster", path, "--without", "node/n1")
    golden(result.stdout)


def test_workers_share_the_survival_table(run, write, tmp_path, golden: Golden) -> None:
    path = write("c.json", *objects())
    whole = run("what-if", "--cluster", path, "--each", "node", "-o", "json").stdout
    parts = []
    for index in range(3):
        part = tmp_path / f"part-{index}.json"
        part.write_text(
            run("what-if", "--cluster", path, "--each", "node", "--index", f"{index}/3", "-o", "json").stdout
        )
        parts += ["--merge", part]

    assert run("what-if", *parts, "-o", "json").stdout == whole
    golden(run("what-if", *parts).stdout)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "--without"),
        (("--without", "n1"), "node/NAME"),
        (("--without", "node/n3"), "no node n3"),
        (("--add", "workers"), "GROUP=NUMBER"),
        (("--add", "workers=1"), "no node group workers"),
        (("--index", "0/2", "--without", "node/n1"), "--each"),
        (("--each", "node", "--index", "2/2"), "I/N"),
        (
            (
                "--each",
                "rack",
            ),
            "rack",
        ),
    ],
)
def test_invalid_scenarios_are_refused(run, write, arguments, word) -> None:
    result = run("what-if", "--cluster", write("c.json", *objects()), *arguments)
    assert result.exit_code == 2
    assert word in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_objects_to_apply_are_read_from_a_file(run, write) -> None:
    path = write("new.yaml", pod("new").cpu("1"))
    result = run("what-if", "--cluster", write("c.json", *objects()), "--apply", path, "-o", "json")
    assert result.exit_code == 0
    assert [each["pod"] for each in msgspec.json.decode(result.stdout)["scheduled"]] == ["shop/new"]


def test_capacity_reads_a_pod(run, write) -> None:
    result = run("capacity", write("p.yaml", pod("p").cpu("1")), "--cluster", write("c.json", *objects()), "-o", "json")
    assert result.exit_code == 0
    assert msgspec.json.decode(result.stdout)["instances"] == 6

    result = run("capacity", write("n.yaml", node("n")), "--cluster", write("c.json", *objects()))
    assert result.exit_code == 2


@pytest.mark.parametrize("command", [("explain", "pod", "shop/web-0"), ("what-if", "--without", "node/n2")])
def test_pods_on_missing_nodes_are_reported_once(run, write, command) -> None:
    path = write("c.json", *objects(), pod("x").on("n8"), pod("y").on("n9"))
    result = run(*command, "--cluster", path)
    [warning] = [line for line in result.stderr.splitlines() if "nodes that it does not contain" in line]
    assert "2 pods" in warning
    assert "n8, n9" in warning


def test_terminated_pods_on_missing_nodes_are_not_reported(run, write) -> None:
    path = write("c.json", *objects(), pod("x").on("n8").phase("Succeeded"))
    assert run("what-if", "--cluster", path, "--without", "node/n2").stderr == ""


@pytest.mark.parametrize("command", [("explain", "pod", "shop/x"), ("what-if", "--add", "g=1")])
def test_a_cluster_without_nodes_is_reported(run, write, command) -> None:
    result = run(*command, "--cluster", write("c.json", pod("x").on("n8"), pod("y").on("n9")))
    [warning] = [line for line in result.stderr.splitlines() if "contains no Node" in line]
    assert "n8, n9" in warning
    assert "ignored: 2" in warning


def test_plan_and_capacity_report_a_cluster_without_nodes(run, write, policy) -> None:
    path = write("c.json", pod("x").on("n8"))
    wanted = policy("{apiVersion: trimtab.dev/v1alpha1, kind: TaintManager, metadata: {name: default}}\n")
    assert "contains no Node" in run("plan", "--policy", wanted, "--cluster", path).stderr
    assert "contains no Node" in run("capacity", write("p.yaml", pod("p")), "--cluster", path).stderr


def test_node_groups_of_unread_apis_are_reported_once_per_kind(run, write) -> None:
    foreign = [
        {"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment", "metadata": {"name": f"workers-{n}"}}
        for n in range(7)
    ]
    hive = {"apiVersion": "hive.openshift.io/v1", "kind": "MachinePool", "metadata": {"name": "worker"}}
    result = run("what-if", "--without", "node/n2", "--cluster", write("c.json", *objects(), *foreign, hive))
    [warning] = result.stderr.splitlines()
    assert "7 MachineDeployments of cluster.k8s.io" in warning
    assert "workers-4" in warning
    assert "workers-5" not in warning


def test_scenario_that_changes_nothing_is_a_usage_error(run, write) -> None:
    assert run("what-if", "--cluster", write("c.json", *objects())).exit_code == 2


@pytest.mark.parametrize("job", [("--job", "2"), ("--job", "2", "--each", "zone")])
def test_job_needs_a_live_cluster(run, write, job) -> None:
    assert run("what-if", "--cluster", write("c.json", *objects()), *job, "--without", "n1").exit_code == 2


def test_job_in_a_live_cluster_needs_an_operator_there(run, server, kubeconfig) -> None:
    result = run("what-if", "--kubeconfig", kubeconfig, "--each", "node", "--job", "2")

    assert result.exit_code not in (0, 2)
    assert [call.method for call in server.calls] == ["GET"] * len(server.calls)


def test_merged_files_must_be_survival_tables(run, write) -> None:
    result = run("what-if", "--merge", write("c.json", *objects()))

    assert result.exit_code == 2
    assert "SurvivalTable" in result.stderr
