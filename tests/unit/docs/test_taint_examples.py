"""The TaintManagers in examples/tainting are valid and act as their comments say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner
from tools.generate import ROOT

from trimtab.api.decode import decode_taint_manager
from trimtab.cli.main import cli

FOLDER = ROOT / "examples" / "tainting"
CLUSTER = FOLDER / "cluster.yaml"
MANAGERS = sorted(path for path in FOLDER.glob("*.yaml") if path != CLUSTER)
NOW = "2026-11-20T12:00:00Z"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, arguments, prog_name="trimtab", catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def plan(path: Path) -> Any:
    return msgspec.json.decode(
        run("plan", "--cluster", str(CLUSTER), "--policy", str(path), "--now", NOW, "-o", "json")
    )


@pytest.mark.parametrize("path", MANAGERS, ids=lambda path: path.stem)
def test_examples_are_valid(path: Path) -> None:
    [manifest] = yaml.safe_load_all(path.read_text(encoding="utf-8"))

    assert decode_taint_manager(manifest).name == "default"


@pytest.mark.parametrize("path", MANAGERS, ids=lambda path: path.stem)
def test_only_mode_taint_and_evict_taints_nodes(path: Path) -> None:
    summary = plan(path)["summary"]

    assert ("Taint" in summary) is path.stem.startswith("taint-and-evict")
    assert summary["Delete"] == 3


def test_cautious_example_keeps_deadlines_of_pods() -> None:
    due = {
        (each["pod"], each["due"])
        for each in plan(FOLDER / "taint-and-evict-cautious.yaml")["actions"]
        if "due" in each
    }

    assert ("web-1", "2026-11-20T12:05:00Z") in due
