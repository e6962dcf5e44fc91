"""What examples/tainting has can be used as it stands, and does what its comments and the pages say."""

from __future__ import annotations

import re
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
PAGE = ROOT / "docs" / "how-to" / "when-nodes-fail.md"
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
def test_an_example_is_a_good_taint_manager(path: Path) -> None:
    [manifest] = yaml.safe_load_all(path.read_text(encoding="utf-8"))

    assert decode_taint_manager(manifest).name == "default"


@pytest.mark.parametrize("path", MANAGERS, ids=lambda path: path.stem)
def test_only_in_mode_own_nodes_are_tainted(path: Path) -> None:
    summary = plan(path)["summary"]

    assert ("Taint" in summary) is path.stem.startswith("own")
    assert summary["Delete"] == 3


def test_with_caution_pods_go_by_their_own_tolerations_all_the_same() -> None:
    due = {(each["pod"], each["due"]) for each in plan(FOLDER / "own-cautious.yaml")["actions"] if "due" in each}

    assert ("web-1", "2026-11-20T12:05:00Z") in due


def test_what_the_page_shows_is_what_the_command_prints() -> None:
    [(line, shown)] = re.findall(
        r"^```console\n\$ (trimtab plan .*)\n((?:.*\n)*?)```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    arguments = [str(ROOT / each) if each.startswith("examples/") else each for each in line.split()[1:]]

    assert run(*arguments) == shown
