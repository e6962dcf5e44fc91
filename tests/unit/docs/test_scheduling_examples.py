"""The SchedulerPolicies in examples/scheduling are valid and place pods as the pages say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner
from tools.generate import ROOT

from trimtab.api.decode import decode_scheduler_policy
from trimtab.cli.main import cli

FOLDER = ROOT / "examples" / "scheduling"
CLUSTER = FOLDER / "cluster.yaml"
POLICIES = sorted(path for path in FOLDER.glob("*.yaml") if path != CLUSTER)
NOW = "2026-11-22T00:00:00Z"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, arguments, prog_name="trimtab", catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def bound(name: str) -> dict[str, str]:
    """The node that each pending pod is bound to."""
    policy = str(FOLDER / name)
    plan: Any = msgspec.json.decode(
        run("plan", "--cluster", str(CLUSTER), "--policy", policy, "--now", NOW, "-o", "json")
    )
    return {each["pod"]: each["node"] for each in plan["actions"] if each["action"] == "Bind"}


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_examples_are_valid(path: Path) -> None:
    [manifest] = yaml.safe_load_all(path.read_text(encoding="utf-8"))

    assert decode_scheduler_policy(manifest).spec.scheduler_name


def test_policy_file_is_converted_to_the_example() -> None:
    converted = yaml.safe_load(run("convert", str(FOLDER / "region-zone.json")))
    example = yaml.safe_load((FOLDER / "region-zone.yaml").read_text(encoding="utf-8"))

    assert (converted["metadata"]["name"], converted["spec"].pop("schedulerName")) == ("default", "default-scheduler")
    assert example["spec"].pop("schedulerName") == "topology"
    assert converted["spec"] == example["spec"]


def test_service_stays_in_its_region_and_spreads_over_zones() -> None:
    assert bound("region-zone.yaml") == {"web-1": "north-b", "web-2": "north-a"}


def test_packing_fills_the_fullest_node_first() -> None:
    assert bound("bin-packing.yaml") == {"batch-1": "south-a", "batch-2": "north-a"}


def test_gpu_pods_are_placed_on_the_node_with_most_free_gpus() -> None:
    assert bound("gpu-spread.yaml")["train-1"] == "south-b"


def test_page_shows_the_example() -> None:
    page = (ROOT / "docs" / "tasks" / "pack-pods-and-spread-gpus.md").read_text(encoding="utf-8")
    shown = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])

    example = yaml.safe_load((FOLDER / "bin-packing.yaml").read_text(encoding="utf-8"))
    example["spec"]["profile"]["scoringStrategy"].pop("resources")  # the default
    assert shown["metadata"] == example["metadata"]
    assert {each["name"]: each["weight"] for each in shown["spec"]["profile"]["scores"]} == {
        each["name"]: each["weight"] for each in example["spec"]["profile"]["scores"]
    }
    assert shown["spec"]["profile"]["scoringStrategy"] == example["spec"]["profile"]["scoringStrategy"]
