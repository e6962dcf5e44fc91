"""``plan``, ``explain`` and ``snapshot`` on a live API server."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from tests.fixtures.clusters import Cluster
from trimtab.cli.main import cli

NOW = "2026-11-20T12:00:00Z"


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(cli, [str(each) for each in arguments], prog_name="trimtab")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.1)


@pytest.fixture
def policy(tmp_path: Path, namespace: str) -> Path:
    path = tmp_path / "policy.yaml"
    spec = {"strategies": {"RemoveDuplicates": {}}, "namespaces": {"include": [namespace]}}
    head = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "DeschedulerPolicy", "metadata": {"name": "live"}}
    path.write_bytes(msgspec.yaml.encode({**head, "spec": spec}))
    return path


@pytest.fixture
def crowded(cluster: Cluster, namespace: str) -> list[str]:
    """Two owners' pods, all on one node; the second owner has a budget. The names of the first owner's pods."""
    node = min(each["metadata"]["name"] for each in cluster.client.request("GET", "/api/v1/nodes")["items"])
    for name, count in (("web", 3), ("db", 2)):
        cluster.client.request(
            "POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment(name, count, node)
        )
    budget = {"metadata": {"name": "db"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "db"}}}}
    cluster.client.request("POST", f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", budget)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    listed: list[dict[str, Any]] = []

    def settled() -> bool:
        listed[:] = cluster.client.request("GET", pods)["items"]
        seen = cluster.client.request("GET", f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/db")
        healthy = seen.get("status", {}).get("currentHealthy") == 2
        return healthy and [pod["status"].get("phase") for pod in listed] == ["Running"] * 5

    until(settled, "the pods to run")
    return sorted(pod["metadata"]["name"] for pod in listed if pod["metadata"]["labels"]["app"] == "web")


def deployment(name: str, replicas: int, node: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "registry.example/app:1",
        "env": [{"name": "PASSWORD", "value": "s3cr3t"}],
        "args": ["--password=s3cr3t"],
        "resources": {"requests": {"cpu": "10m", "memory": "10Mi"}},
    }
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "containers": [container],
                    "affinity": on(node),
                    "tolerations": [{"operator": "Exists"}],
                },
            },
        },
    }


def on(node: str) -> dict[str, Any]:
    """A preference that is heavier than all that the scheduler would weigh against it."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    together = {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}
    return {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": term}]},
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "podAffinityTerm": {**together, "topologyKey": "kubernetes.io/hostname"}}
            ]
        },
    }


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_plan_on_the_snapshot_is_the_plan_on_the_cluster(
    crowded: list[str], admin: Path, policy: Path, tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"cluster.{suffix}"
    planning = ["plan", "--policy", policy, "--now", NOW, "-o", "json"]

    def settled() -> bool:
        """The cluster is shared: what ran before may still be going while the snapshot is taken."""
        before = run(*planning, "--kubeconfig", admin)
        assert run("snapshot", "-o", file, "--kubeconfig", admin).exit_code == 0
        live.append(run(*planning, "--kubeconfig", admin).stdout)
        return before.stdout == live[-1]

    live: list[str] = []
    until(settled, "the cluster to stand still")

    saved = run(*planning, "--cluster", file)
    assert saved.stdout == live[-1]
    document = msgspec.json.decode(saved.stdout)
    assert {action["pod"] for action in document["actions"]} < set(crowded)
    assert document["summary"]["Evict"] == 2
    assert {each["reason"] for each in document["kept"] if each["name"].startswith("db-")} == {"DisruptionBudget"}
    assert "s3cr3t" not in file.read_text()


def test_explain_reads_the_live_cluster(crowded: list[str], admin: Path, namespace: str) -> None:
    result = run("explain", "pod", f"{namespace}/{crowded[0]}", "--kubeconfig", admin, "-o", "json")

    assert result.exit_code == 0
    assert len(msgspec.json.decode(result.stdout)["fits"]) > 1


def test_missing_rights_are_named(cluster: Cluster, namespace: str, policy: Path, tmp_path: Path) -> None:
    kubeconfig = cluster.service_account_kubeconfig(namespace, "default", path=tmp_path / "nobody")

    for command in (["plan", "--policy", policy], ["snapshot"], ["explain", "pod", "a/b"]):
        result = run(*command, "--kubeconfig", kubeconfig)

        assert result.exit_code == 1
        assert result.stderr.startswith("trimtab: may not list nodes: nodes is forbidden: User ")
        assert f"system:serviceaccount:{namespace}:default" in result.stderr
        assert result.stderr.count("\n") == 1


def test_an_unknown_context_is_bad_input_and_names_those_that_are_there(admin: Path) -> None:
    result = run("snapshot", "--kubeconfig", admin, "--context", "nowhere")

    assert result.exit_code == 2
    assert "no such context; choose one of: " in result.stderr
