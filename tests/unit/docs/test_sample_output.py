"""Pages show the current output of commands on the files in examples/; ``make golden`` rewrites it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tools.generate import ROOT

from trimtab.cli.main import cli

SAMPLE = re.compile(
    r"^```console\n\$ trimtab ((?:plan|explain|convert) [^>|\n]*examples/[^>|\n]*)\n((?:[^$].*\n|\n)+?)```$",
    re.MULTILINE,
)


def samples() -> Iterator[object]:
    """Page, command and output, of commands whose files exist and whose output is complete."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for command, output in SAMPLE.findall(page.read_text(encoding="utf-8")):
            files = [word for word in command.split() if word.endswith(".yaml")]
            if "..." not in output and all((ROOT / file).exists() for file in files):
                yield pytest.param(page, command, output, id=f"{page.stem}: {command}")


@pytest.mark.usefixtures("golden")
@pytest.mark.parametrize(("page", "command", "output"), list(samples()))
def test_page_shows_the_output_of_the_command(
    page: Path, command: str, output: str, request: pytest.FixtureRequest
) -> None:
    arguments = [str(ROOT / word) if word.startswith("examples/") else word for word in shlex.split(command)]
    result = CliRunner().invoke(cli, arguments, prog_name="trimtab", catch_exceptions=False)
    assert result.exit_code == 0, result.output
    if request.config.getoption("--update-golden"):
        page.write_text(page.read_text(encoding="utf-8").replace(output, result.stdout), encoding="utf-8")
    else:
        assert result.stdout == output


def test_pages_show_output() -> None:
    assert len(list(samples())) >= 8
