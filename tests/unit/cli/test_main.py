"""The group of commands: help, usage errors, and commands of packages that are not installed."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from trimtab.cli.main import COMMANDS


def test_help_lists_every_command(run: Run) -> None:
    result = run("--help")
    assert result.exit_code == 0
    listed = result.stdout.split("Commands:\n")[1].splitlines()
    assert [line.split()[0] for line in listed if line[2:3].strip()] == list(COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "named", "command"),
    [
        (["plna"], "plna", "trimtab"),
        (["plam"], "did you mean plan?", "trimtab"),
        (["snap"], "did you mean snapshot?", "trimtab"),
        (["--no-such-option"], "--no-such-option", "trimtab"),
        (["explain", "node"], "NAME", "trimtab explain node"),
        (["crds", "--no-such-option", "x"], "--no-such-option", "trimtab crds"),
        (["plan", "--policy"], "--policy", "trimtab"),
    ],
)
def test_usage_error_is_one_line_that_names_the_command(
    run: Run, arguments: list[str], named: str, command: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert line.startswith("trimtab: ")
    assert named in line
    assert line.endswith(f"(see '{command} --help')")


def test_group_without_arguments_prints_its_help(run: Run) -> None:
    result = run()
    assert result.exit_code == 2
    assert "Commands:" in result.output


def test_command_of_a_package_that_is_not_installed_is_a_run_time_failure(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib, "import_module", missing("trimtab_local"))
    result = run("local", "up")
    assert result.exit_code == 1
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert "pip install 'trimtab[local]'" in line


def test_other_missing_modules_are_bugs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib, "import_module", missing("numpy"))
    with pytest.raises(ModuleNotFoundError):
        run("plan")


def missing(module: str) -> Any:
    def fail(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}, imported for {name}", name=module)

    return fail
