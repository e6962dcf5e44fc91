"""``trimtab plan`` with a PlacementAdmission on a live API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tests.fixtures.clusters import Cluster
from tests.fixtures.waiting import eventually
from trimtab.cli import live
from trimtab.cli.main import cli
from trimtab.kube.resources import CRON_JOBS, DAEMON_SETS, DEPLOYMENTS, NAMESPACES, POD_TEMPLATES, PODS, Resource

OWN = {"key": "dedicated", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
SELECTOR = "scheduler.alpha.kubernetes.io/node-selector"


def template(**spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1m"}}}]
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers, **spec}}


def workload(resource: Resource, name: str, **spec: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"selector": {"matchLabels": {"app": "web"}}, "template": template(**spec)}
    if resource is CRON_JOBS:
        job = {"spec": {"template": template(restartPolicy="Never", **spec)}}
        body = {"schedule": "0 0 1 1 *", "jobTemplate": job}
    return {"metadata": {"name": name}, "spec": body}


@pytest.fixture
def populated(cluster: Cluster, namespace: str) -> str:
    """Workloads and pods in the namespace, three pods of a Deployment among them."""
    client = cluster.client
    client.request(
        "PATCH",
        NAMESPACES.path(namespace),
        {"metadata": {"annotations": {SELECTOR: "env=test"}}},
        content_type="application/merge-patch+json",
    )
    deployment = workload(DEPLOYMENTS, "guest", tolerations=[OWN])
    deployment["spec"]["replicas"] = 3
    node = min(each["metadata"]["name"] for each in client.request("GET", "/api/v1/nodes")["items"])
    for resource, manifest in (
        (DEPLOYMENTS, deployment),
        (DAEMON_SETS, workload(DAEMON_SETS, "agent", nodeSelector={"env": "prod"})),
        (CRON_JOBS, workload(CRON_JOBS, "nightly")),
        (POD_TEMPLATES, {"metadata": {"name": "stored"}, "template": template(nodeName="n1")}),
        (PODS, {**template(nodeName=node), "metadata": {"name": "pinned"}}),
    ):
        client.request("POST", resource.path(namespace=namespace), manifest)

    def scheduled() -> bool:
        pods = client.request("GET", PODS.path(namespace=namespace))["items"]
        return sum(bool(each["spec"].get("nodeName")) for each in pods) == 4

    eventually(scheduled, what="pods are scheduled")
    return namespace


def test_live_objects_are_audited_page_by_page(
    cluster: Cluster, populated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PAGE_SIZE", 2)
    others = [each["metadata"]["name"] for each in cluster.client.request("GET", NAMESPACES.path())["items"]]
    spec = {
        "exemptNamespaces": sorted(set(others) - {populated, "kube-system"}),
        "podNodeConstraints": {"additionalChecks": ["DaemonSets"]},
        "podNodeSelector": {},
        "dedicatedNodes": {"pools": [{"name": "a", "groups": ["team-a"], "taint": {"key": "dedicated", "value": "a"}}]},
    }
    policy = tmp_path / "policy.yaml"
    head = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "PlacementAdmission", "metadata": {"name": "default"}}
    policy.write_bytes(msgspec.yaml.encode({**head, "spec": spec}))
    arguments = ["plan", "--kubeconfig", str(cluster.kubeconfig), "--policy", str(policy), "-o", "json"]

    result = CliRunner().invoke(cli, arguments, prog_name="trimtab", catch_exceptions=False)

    assert result.exit_code == 0, result.stderr
    found = msgspec.json.decode(result.stdout)
    actions = {
        (each["action"], each["kind"], each["name"], each["rule"], each["reason"]): each.get("pods", 0)
        for each in found["actions"]
        if each["namespace"] == populated
    }
    assert actions == {
        ("Refuse", "Deployment", "guest", "DedicatedNodes", "AdmissionRefused"): 0,
        ("Mutate", "Deployment", "guest", "PodNodeSelector", "AdmissionMutated"): 3,
        ("Refuse", "DaemonSet", "agent", "PodNodeSelector", "AdmissionRefused"): 0,
        ("Refuse", "PodTemplate", "stored", "PodNodeConstraints", "RequiresPodsBinding"): 0,
        ("Refuse", "PodTemplate", "stored", "DedicatedNodes", "RequiresPodsBinding"): 0,
        ("Refuse", "Pod", "pinned", "PodNodeConstraints", "RequiresPodsBinding"): 0,
        ("Refuse", "Pod", "pinned", "DedicatedNodes", "RequiresPodsBinding"): 0,
        ("Mutate", "Pod", "pinned", "PodNodeSelector", "AdmissionMutated"): 0,
    }
    (change,) = (each for each in found["actions"] if each["name"] == "pinned" and each["action"] == "Mutate")
    assert change["nodeSelector"] == {"env": "test"}
