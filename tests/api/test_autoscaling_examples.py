"""A real API server accepts the files of examples/autoscaling, and plans on them are as their comments say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests import autoscalers
from tests.api.test_machine_autoscalers import served as served
from trimtab.api.decode import decode_cluster_autoscaler, decode_machine_autoscaler
from trimtab.cli.main import cli
from trimtab.kube.resources import (
    CLUSTER_AUTOSCALERS,
    DEPLOYMENTS,
    MACHINE_AUTOSCALERS,
    MACHINE_SETS,
)
from trimtab_local.cluster import LocalCluster

FOLDER = Path(__file__).parents[2] / "examples" / "autoscaling"
RESOURCES = {each.kind: each for each in (CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS, MACHINE_SETS, DEPLOYMENTS)}
DECODERS: dict[str, Callable[..., Any]] = {
    "ClusterAutoscaler": decode_cluster_autoscaler,
    "MachineAutoscaler": decode_machine_autoscaler,
}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


ALL = [
    pytest.param(each, id=f"{path.name}: {each['kind']} {each['metadata']['name']}")
    for path in sorted(FOLDER.glob("*.yaml"))
    for each in documents(path.name)
]


def test_the_example_equals_the_one_in_openshifts_documentation() -> None:
    assert documents("cluster-autoscaler.yaml") == [autoscalers.seed()]


@pytest.mark.parametrize("manifest", ALL)
def test_api_server_accepts_every_example(
    machine_cluster: LocalCluster, served: None, manifest: dict[str, Any]
) -> None:
    del served
    resource = RESOURCES[manifest["kind"]]
    path = resource.path(namespace=manifest["metadata"].get("namespace", ""))
    params = {"dryRun": "All", "fieldValidation": "Strict"}
    created = machine_cluster.client.request("POST", path, manifest, params=params)

    decode = DECODERS.get(manifest["kind"])
    if decode is not None:
        assert decode(created).spec == decode(manifest).spec


def test_targets_of_machine_autoscalers_exist() -> None:
    sets = {each["metadata"]["name"] for each in documents("machine-sets.yaml")}
    targets = [each["spec"]["scaleTargetRef"]["name"] for each in documents("machine-autoscalers.yaml")]
    assert sorted(targets) == sorted(sets)


def test_example_load_scales_a_machine_set_up_from_zero(tmp_path: Path) -> None:
    """The plan is made from the files alone."""
    [load] = documents("load.yaml")
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"load-{number}", "namespace": "default", "uid": str(number)},
            "spec": load["spec"]["template"]["spec"],
            "status": {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
            },
        }
        for number in range(load["spec"]["replicas"])
    ]
    cluster = tmp_path / "cluster.json"
    cluster.write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [*documents("machine-sets.yaml"), *pods]})
    )
    given = ["--cluster", str(cluster), "-o", "json", "--now", "2026-11-20T12:00:00Z"]
    for name in ("cluster-autoscaler.yaml", "machine-autoscalers.yaml"):
        given += ["--policy", str(FOLDER / name)]

    result = CliRunner().invoke(cli, ["plan", *given], prog_name="trimtab")

    assert result.exit_code == 0, result.output
    scale_up = {each["machineSet"]: each["to"] for each in json.loads(result.stdout)["actions"]}
    assert set(scale_up) == {"default/workers-a", "default/workers-b"}
    assert sum(scale_up.values()) == 10  # three pods a node: of four cores a part is held back
