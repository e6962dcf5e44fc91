"""``trimtab convert`` and ``trimtab plan`` with the settings of cluster-autoscaler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.builders import node, pod

SIZES = "cluster.x-k8s.io/cluster-api-autoscaler-node-group"


def deployment(*arguments: str) -> dict[str, Any]:
    container = {
        "name": "ca",
        "image": "cluster-autoscaler:v1.37.0",
        "args": ["--cloud-provider=clusterapi", *arguments],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "cluster-autoscaler", "namespace": "kube-system"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


def machines(name: str, kind: str = "MachineDeployment", **sizes: int) -> dict[str, Any]:
    annotations = {f"{SIZES}-{key}-size": str(value) for key, value in sizes.items()}
    metadata = {"name": name, "namespace": "fleet", "annotations": annotations}
    return {"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": kind, "metadata": metadata}


def documents(run: Any, path: Path, *more: str) -> list[dict[str, Any]]:
    result = run("convert", path, "-o", "json", *more)
    assert result.exit_code == 0, result.stderr
    found = msgspec.json.decode(result.stdout)
    return list(found["items"]) if found.get("kind") == "List" else [found]


def sizes(found: list[dict[str, Any]]) -> dict[str, tuple[str, int, int]]:
    """The MachineAutoscalers: the target's kind, the minimum and the maximum by name."""
    return {
        each["metadata"]["name"]: (
            each["spec"]["scaleTargetRef"]["kind"],
            each["spec"]["minReplicas"],
            each["spec"]["maxReplicas"],
        )
        for each in found
        if each["kind"] == "MachineAutoscaler"
    }


def test_a_deployment_and_node_groups_become_autoscalers(run, write) -> None:
    path = write(
        "bundle.yaml",
        machines("a", min=1, max=5),
        machines("a", kind="MachinePool", min=2, max=6),
        machines("b", kind="MachineDeployment"),
        deployment("--nodes=0:3:b", "--max-nodes-total=9"),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "cluster-autoscaler"}},
    )
    found = documents(run, path)
    assert [each["kind"] for each in found].count("ClusterAutoscaler") == 1
    assert found[0]["spec"]["resourceLimits"] == {"maxNodesTotal": 9}
    assert sizes(found) == {
        "a": ("MachineDeployment", 1, 5),
        "a-machinepool": ("MachinePool", 2, 6),
        "b": ("MachineDeployment", 0, 3),
    }


def test_a_machine_autoscaler_in_the_input_takes_precedence(run, write) -> None:
    own = {
        "apiVersion": "autoscaling.openshift.io/v1beta1",
        "kind": "MachineAutoscaler",
        "metadata": {"name": "mine", "namespace": "fleet"},
        "spec": {
            "minReplicas": 3,
            "maxReplicas": 4,
            "scaleTargetRef": {
                "apiVersion": "cluster.x-k8s.io/v1beta1",
                "kind": "MachineDeployment",
                "name": "a",
            },
        },
    }
    found = documents(run, write("bundle.yaml", machines("a", min=1, max=5), own))
    assert sizes(found) == {"mine": ("MachineDeployment", 3, 4)}


@pytest.mark.parametrize("package", ["values", "HelmRelease", "Application"])
def test_the_charts_values_are_read_from_each_package(run, tmp_path, package) -> None:
    values = {
        "cloudProvider": "clusterapi",
        "autoDiscovery": {"clusterName": "prod"},
        "extraArgs": {"expander": "priority", "scale-down-unneeded-time": "5m"},
        "expanderPriorities": {10: [".*spot.*"]},
    }
    wrapped = {
        "values": values,
        "HelmRelease": {
            "apiVersion": "helm.toolkit.fluxcd.io/v2",
            "kind": "HelmRelease",
            "metadata": {"name": "ca", "namespace": "kube-system"},
            "spec": {"chart": {"spec": {"chart": "cluster-autoscaler", "version": "9.59.0"}}, "values": values},
        },
        "Application": {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {"name": "ca", "namespace": "argocd"},
            "spec": {
                "destination": {"namespace": "kube-system"},
                "source": {
                    "chart": "cluster-autoscaler",
                    "targetRevision": "9.59.0",
                    "helm": {"values": msgspec.yaml.encode(values).decode()},
                },
            },
        },
    }
    path = tmp_path / "input.yaml"
    path.write_bytes(msgspec.yaml.encode(wrapped[package]))
    autoscaler, priorities = documents(run, path)
    assert autoscaler["spec"]["scaleDown"]["unneededTime"] == "5m"
    assert autoscaler["spec"]["nodeGroupAutoDiscovery"] == {"clusterName": "prod"}
    assert priorities["metadata"] == {"name": "cluster-autoscaler-priority-expander", "namespace": "kube-system"}


def test_lost_and_unknown_flags_are_named_on_stderr(run, write) -> None:
    result = run("convert", write("d.yaml", deployment("--scan-interval=1m", "--unknown=1", "--cluster-name=x")))
    lines = result.stderr.splitlines()
    assert sum("--scan-interval: 1m: has no equivalent" in line for line in lines) == 1
    assert sum("--unknown" in line for line in lines) == 1
    assert [line for line in lines if "--cluster-name" in line and "(low)" in line]


def test_lost_flags_are_in_the_report(run, write, tmp_path) -> None:
    report = tmp_path / "report.json"
    path = write("d.yaml", deployment("--scan-interval=1m", "--nodes=0:5:unknown"))
    result = run("convert", path, "--report", report, "-o", "json")
    assert result.exit_code == 0, result.stderr
    document = msgspec.json.decode(report.read_bytes())
    severities = {each["field"]: each["severity"] for each in document["differences"]}
    assert severities["--scan-interval"] == "medium"
    assert severities["--nodes"] == "high"
    assert document["summary"]["high"] == list(severities.values()).count("high")
    assert set(document["converted"]) == {"ClusterAutoscaler/default", "MachineAutoscaler/unknown"}


def test_an_invalid_value_names_the_object_and_the_flag(run, write) -> None:
    result = run("convert", write("d.yaml", deployment("--scan-interval=often")))
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert "Deployment/cluster-autoscaler" in line
    assert "--scan-interval" in line


def test_a_plan_is_made_with_the_settings_of_a_deployment(run, write) -> None:
    cluster = write("cluster.json", node("n1"), pod("web").on("n1"))
    path = write("d.yaml", deployment("--scale-down-unneeded-time=5m"))
    result = run("plan", "--cluster", cluster, "--policy", path, "-o", "json")
    assert result.exit_code == 0, result.stderr
    kept = msgspec.json.decode(result.stdout)["kept"]
    assert [(each["kind"], each["name"]) for each in kept if each["kind"] == "Node"] == [("Node", "n1")]


def test_several_deployments_are_refused(run, write) -> None:
    second = deployment()
    second["metadata"]["name"] = "other"
    result = run("convert", write("d.yaml", deployment(), second))
    assert result.exit_code == 2
    assert "ClusterAutoscaler/default" in result.stderr
