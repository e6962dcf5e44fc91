"""What examples/autoscaling has is taken by a real API server as it stands, and planned on as its comments say."""

from __future__ import annotations

import json
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
from trimtab.local.cluster import LocalCluster

FOLDER = Path(__file__).parents[2] / "examples" / "autoscaling"
RESOURCES = {each.kind: each for each in (CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS, MACHINE_SETS, DEPLOYMENTS)}
DECODERS = {"ClusterAutoscaler": decode_cluster_autoscaler, "MachineAutoscaler": decode_machine_autoscaler}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


ALL = [
    pytest.param(each, id=f"{path.name}: {each['kind']} {each['metadata']['name']}")
    for path in sorted(FOLDER.glob("*.yaml"))
    for each in documents(path.name)
]


def test_the_example_of_openshifts_documentation_is_unchanged() -> None:
    assert documents("cluster-autoscaler.yaml") == [autoscalers.seed()]


@pytest.mark.parametrize("manifest", ALL)
def test_an_example_is_taken_as_it_stands(
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


def test_machine_autoscalers_name_machine_sets_that_are_there() -> None:
    sets = {each["metadata"]["name"] for each in documents("machine-sets.yaml")}
    targets = [each["spec"]["scaleTargetRef"]["name"] for each in documents("machine-autoscalers.yaml")]
    assert sorted(targets) == sorted(sets)


def test_the_load_makes_a_set_grow_from_nothing(tmp_path: Path) -> None:
    """On the files alone: what a plan says before anything runs."""
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
    grown = {each["machineSet"]: each["to"] for each in json.loads(result.stdout)["actions"]}
    assert set(grown) == {"default/workers-a", "default/workers-b"}
    assert sum(grown.values()) == 10  # three pods a node: of four cores a part is held back
