"""``plan``, ``explain`` and ``snapshot`` on a live API server."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from tests.fixtures.clusters import Cluster
from tests.fixtures.waiting import eventually
from trimtab.cli.main import cli

NOW = "2026-11-20T12:00:00Z"


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(cli, [str(each) for each in arguments], prog_name="trimtab")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def policy(tmp_path: Path, namespace: str) -> Path:
    path = tmp_path / "policy.yaml"
    spec = {"strategies": {"RemoveDuplicates": {}}, "namespaces": {"include": [namespace]}}
    head = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "DeschedulerPolicy", "metadata": {"name": "live"}}
    path.write_bytes(msgspec.yaml.encode({**head, "spec": spec}))
    return path


@pytest.fixture
def crowded(cluster: Cluster, namespace: str) -> list[str]:
    """Pods of two owners on one node; the second owner has a budget. Returns the names of the first owner's pods."""
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
        observed = cluster.client.request("GET", f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/db")
        healthy = observed.get("status", {}).get("currentHealthy") == 2
        return healthy and [pod["status"].get("phase") for pod in listed] == ["Running"] * 5

    eventually(settled, "the pods run")
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
    """Affinity preferences for a node that outweigh all other scores of the scheduler."""
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
def test_plan_on_a_snapshot_equals_plan_on_the_cluster(
    crowded: list[str], admin: Path, policy: Path, tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"cluster.{suffix}"
    planning = ["plan", "--policy", policy, "--now", NOW, "-o", "json"]

    def settled() -> bool:
        """Wait until pods of earlier tests are gone: the cluster is shared."""
        before = run(*planning, "--kubeconfig", admin)
        assert run("snapshot", "-o", file, "--kubeconfig", admin).exit_code == 0
        live.append(run(*planning, "--kubeconfig", admin).stdout)
        return before.stdout == live[-1]

    live: list[str] = []
    eventually(settled, "nothing changes in the cluster")

    saved = run(*planning, "--cluster", file)
    assert saved.stdout == live[-1]
    document = msgspec.json.decode(saved.stdout)
    assert {action["pod"] for action in document["actions"]} < set(crowded)
    assert document["summary"]["Evict"] == 2
    assert {each["reason"] for each in document["kept"] if each["name"].startswith("db-")} == {"DisruptionBudget"}
    assert "s3cr3t" not in file.read_text()


def test_plan_of_a_scheduler_policy_reads_the_live_cluster(
    cluster: Cluster, namespace: str, admin: Path, tmp_path: Path
) -> None:
    scheduler, pods = f"planned-{namespace}", f"/api/v1/namespaces/{namespace}/pods"
    for name, cpu in (("small", "10m"), ("large", "1000")):
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        spec = {"schedulerName": scheduler, "containers": [container], "tolerations": [{"operator": "Exists"}]}
        cluster.client.request("POST", pods, {"metadata": {"name": name}, "spec": spec})
    head = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "SchedulerPolicy", "metadata": {"name": "planned"}}
    policy, saved = tmp_path / "scheduler.yaml", tmp_path / "cluster.yaml"
    policy.write_bytes(msgspec.yaml.encode({**head, "spec": {"schedulerName": scheduler}}))

    live = run("plan", "--kubeconfig", admin, "--policy", policy, "-o", "json")
    assert live.exit_code == 0, live.output
    document = msgspec.json.decode(live.stdout)
    [bind] = document["actions"]
    nodes = {each["metadata"]["name"] for each in cluster.client.request("GET", "/api/v1/nodes")["items"]}
    assert (bind["action"], bind["pod"]) == ("Bind", "small")
    assert bind["node"] in nodes
    assert [(each["name"], each["reason"]) for each in document["kept"]] == [("large", "Unschedulable")]

    assert run("snapshot", "--kubeconfig", admin, "-o", saved).exit_code == 0
    offline = run("plan", "--cluster", saved, "--policy", policy, "-o", "json")
    assert msgspec.json.decode(offline.stdout)["summary"] == document["summary"]
    assert not any(each["spec"].get("nodeName") for each in cluster.client.request("GET", pods)["items"])


def test_explain_reads_the_live_cluster(crowded: list[str], admin: Path, namespace: str) -> None:
    result = run("explain", "pod", f"{namespace}/{crowded[0]}", "--kubeconfig", admin, "-o", "json")

    assert result.exit_code == 0
    assert len(msgspec.json.decode(result.stdout)["fits"]) > 1


def test_evicted_pod_is_explained_after_it_is_gone(
    cluster: Cluster, crowded: list[str], admin: Path, namespace: str
) -> None:
    pods, victim = f"/api/v1/namespaces/{namespace}/pods", crowded[0]
    found = cluster.client.request("GET", f"{pods}/{victim}")
    time.sleep(1.1)  # creation times have whole seconds, so that pods of the same second cannot be distinguished
    cluster.client.request("POST", f"{pods}/{victim}/eviction", {"metadata": {"name": victim}})
    event = {
        "metadata": {"name": f"{victim}.1", "namespace": namespace},
        "eventTime": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        "reportingController": "trimtab.dev/trimtab",
        "reportingInstance": "test",
        "type": "Normal",
        "reason": "DuplicateOnNode",
        "action": "Evict",
        "note": "3 pods on one node",
        "regarding": {"kind": "Pod", "name": victim, "namespace": namespace, "uid": found["metadata"]["uid"]},
        "related": {"kind": "Node", "name": found["spec"]["nodeName"]},
    }
    cluster.client.request("POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", event)
    answers: list[dict[str, Any]] = []

    def replaced() -> bool:
        result = run("explain", "pod", victim, "-n", namespace, "--kubeconfig", admin, "-o", "json")
        assert result.exit_code == 0, result.stderr
        answers.append(msgspec.json.decode(result.stdout))
        eviction = answers[-1]["eviction"]
        return answers[-1]["state"] == "Gone" and bool(eviction["replacement"] and eviction["replacement"]["node"])

    eventually(replaced, "the replacement is found")
    eviction = answers[-1]["eviction"]
    assert (eviction["controller"], eviction["reason"]) == ("descheduler", "DuplicateOnNode")
    assert eviction["node"] == found["spec"]["nodeName"]
    assert eviction["replacement"]["pod"].removeprefix(f"{namespace}/") not in crowded


def test_missing_permissions_are_reported_by_name(
    cluster: Cluster, namespace: str, policy: Path, tmp_path: Path
) -> None:
    kubeconfig = cluster.service_account_kubeconfig(namespace, "default", path=tmp_path / "nobody")

    for command in (["plan", "--policy", policy], ["snapshot"], ["explain", "pod", "a/b"]):
        result = run(*command, "--kubeconfig", kubeconfig)

        assert result.exit_code == 1
        assert result.stderr.startswith("trimtab: ")
        assert "nodes is forbidden" in result.stderr
        assert f"system:serviceaccount:{namespace}:default" in result.stderr
        assert result.stderr.count("\n") == 1


def test_unknown_context_lists_the_existing_ones(admin: Path) -> None:
    result = run("snapshot", "--kubeconfig", admin, "--context", "nowhere")

    assert result.exit_code == 2
    assert "context" in result.stderr


def test_snapshot_contains_no_secret_of_a_tenant(cluster: Cluster, namespace: str, admin: Path, tmp_path: Path) -> None:
    """Secrets in every place where the API server accepts them, of a pod and of a workload's template."""
    secret = "pl4nted-s3cr3t"
    container = {
        "name": "main",
        "command": ["sh", "-c", secret],
        "args": [f"--password={secret}"],
        "env": [{"name": "PASSWORD", "value": secret}],
        "livenessProbe": {"exec": {"command": [secret]}},
        "lifecycle": {"preStop": {"exec": {"command": [secret]}}},
    }
    images = (f"user:{secret}@r.example/x", f"https://user:{secret}@r.example/x", f"u:a/{secret}@x", f"x?t={secret}")
    spec = {
        "containers": [{**container, "name": f"c{number}", "image": image} for number, image in enumerate(images)],
        "imagePullSecrets": [{"name": secret}],
        "volumes": [{"name": "v", "secret": {"secretName": secret}}],
        "hostAliases": [{"ip": "127.0.0.1", "hostnames": [secret]}],
        "nodeSelector": {"no": "node"},
    }
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": secret, "example.com/token": secret}
    pod = {"metadata": {"name": "planted", "annotations": annotations}, "spec": spec}
    template = {"metadata": {"labels": {"app": "planted"}, "annotations": annotations}, "spec": spec}
    workload = {"selector": {"matchLabels": {"app": "planted"}}, "template": template}
    cluster.client.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
    for plural in ("replicasets", "daemonsets", "deployments"):
        manifest = {"metadata": {"name": "planted", "annotations": annotations}, "spec": workload}
        cluster.client.request("POST", f"/apis/apps/v1/namespaces/{namespace}/{plural}", manifest)
    secrets = {"metadata": {"name": "planted"}, "stringData": {"token": secret}}
    cluster.client.request("POST", f"/api/v1/namespaces/{namespace}/secrets", secrets)

    file = tmp_path / "cluster.json"
    assert run("snapshot", "-o", file, "--kubeconfig", admin).exit_code == 0

    text = file.read_text()
    assert text.count("planted") >= 3
    assert secret not in text
