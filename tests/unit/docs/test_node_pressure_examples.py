"""The files in examples/node-pressure are valid, and the pages show what the commands print for them."""

from __future__ import annotations

import re

import pytest
import yaml
from click.testing import CliRunner
from tools.generate import ROOT

from trimtab.api.decode import decode_node_pressure_policy
from trimtab.cli.main import cli
from trimtab.pressure.assignment import threshold_conflicts
from trimtab.pressure.imports import read_pressure_policy

EXAMPLES = ROOT / "examples" / "node-pressure"
PAGE = ROOT / "docs" / "tasks" / "convert-kubelet-eviction-settings.md"


@pytest.mark.parametrize("name", ["workers.yaml", "dedicated-image-filesystem.yaml"])
def test_thresholds_of_the_examples_are_above_those_of_the_kubelet(name: str) -> None:
    policy = decode_node_pressure_policy(yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8")))

    assert threshold_conflicts(policy) == ()


def test_page_shows_the_converted_node_config() -> None:
    text = PAGE.read_text(encoding="utf-8")
    given, shown, *_ = (
        yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    )
    assert given == yaml.safe_load((EXAMPLES / "node-config.yaml").read_text(encoding="utf-8"))
    imported = read_pressure_policy(given)
    assert imported is not None
    assert imported.document == shown

    [(command, output)] = re.findall(r"^\$ trimtab (convert \S+) > policy.yaml\n((?:trimtab.*\n)+)", text, re.MULTILINE)
    arguments = [str(ROOT / word) if word.startswith("examples/") else word for word in command.split()]
    result = CliRunner().invoke(cli, arguments, prog_name="trimtab", catch_exceptions=False)
    assert (result.exit_code, result.stderr) == (0, output.replace("examples/", f"{ROOT}/examples/"))


def test_slips_in_the_example_are_reported() -> None:
    found = read_pressure_policy(yaml.safe_load((EXAMPLES / "kubelet-config.yaml").read_text(encoding="utf-8")))

    assert found is not None
    assert {each.field for each in found.warnings} == {
        *("evictionHard", "evictionSoft", "evictionSoftGracePeriod", "nodeSelector")
    }
