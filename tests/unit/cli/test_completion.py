"""Shell completion and the plugin of kubectl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from tests.unit.cli.conftest import Run
from trimtab.cli import completion
from trimtab.cli.completion import PLUGIN, complete_plugin, completion_variable
from trimtab.cli.main import COMMANDS, cli


def completed(*typed: str, incomplete: str = "") -> list[str]:
    found = ShellComplete(cli, {}, "trimtab", "_TRIMTAB_COMPLETE").get_completions(list(typed), incomplete)
    return [each.value for each in found]


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A kubeconfig, and an API server with the same names in each collection, after their namespace."""

    async def names(api: Any, resource: Any, namespace: str) -> list[str]:
        return [f"{resource.plural}-{namespace}-{number}" for number in (1, 2)]

    monkeypatch.setattr(completion, "_names", names)
    path = tmp_path / "config"
    path.write_text(
        "{apiVersion: v1, kind: Config, current-context: dev,"
        " clusters: [{name: dev, cluster: {server: 'http://127.0.0.1:1'}}],"
        " contexts: [{name: dev, context: {cluster: dev, namespace: shop}}, {name: prod, context: {cluster: dev}}]}"
    )
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_of_each_shell(run: Run, shell: str) -> None:
    result = run("completion", shell)

    assert result.exit_code == 0
    assert "_TRIMTAB_COMPLETE" in result.stdout


def test_commands_are_completed_without_importing_them() -> None:
    assert completed() == list(COMMANDS)
    assert completed(incomplete="expl") == ["explain"]
    assert "pod" in completed("explain")


@pytest.mark.parametrize(
    ("typed", "incomplete", "expected"),
    [
        (["explain", "pod"], "", ["pods-shop-1", "pods-shop-2"]),
        (["explain", "pod", "-n", "billing"], "pods-b", ["pods-billing-1", "pods-billing-2"]),
        (["explain", "pod"], "billing/pods-billing-1", ["billing/pods-billing-1"]),
        (["explain"], "po/", ["po/pods-shop-1", "po/pods-shop-2"]),
        (["explain", "node"], "nodes--2", ["nodes--2"]),
        (["explain", "pdb"], "", ["poddisruptionbudgets-shop-1", "poddisruptionbudgets-shop-2"]),
        (["explain", "pod", "-n"], "", ["namespaces--1", "namespaces--2"]),
        (["explain", "pod", "--context"], "p", ["prod"]),
        (["explain", "pod", "--cluster", "file.json"], "", []),
    ],
)
def test_names_of_the_live_cluster(objects: Path, typed: list[str], incomplete: str, expected: list[str]) -> None:
    assert completed(*typed, incomplete=incomplete) == expected


@pytest.mark.parametrize("failure", [OSError("no such file"), TimeoutError(), KeyError("items")])
def test_failures_offer_and_print_nothing(
    objects: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failure: Exception
) -> None:
    async def fails(*_: Any) -> list[str]:
        raise failure

    monkeypatch.setattr(completion, "_names", fails)

    assert completed("explain", "pod") == []
    assert capsys.readouterr() == ("", "")


def test_plugin_answers_kubectl(objects: Path) -> None:
    assert complete_plugin(cli, ["explain", "node", ""]) == ["nodes--1", "nodes--2", ":4"]
    assert complete_plugin(cli, []) == [*(f"{name}\t{text}" for name, (_, text) in COMMANDS.items()), ":4"]
    assert completion_variable(PLUGIN) == "_KUBECTL_TRIMTAB_COMPLETE"


def test_plugin_shows_its_own_name_in_usage() -> None:
    from click.testing import CliRunner

    result = CliRunner().invoke(cli, ["explain", "pod", "-h"], prog_name=PLUGIN)

    assert f" {PLUGIN} explain pod " in result.stdout.splitlines()[0]
