"""The broken lines of the churn's broken operators exist, and their copies are modules."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.broken_operators import BROKEN, PACKAGE, BrokenLine, broken_copy


def test_every_line_occurs_once() -> None:
    lines = [(each.name, (PACKAGE / each.module).read_text().splitlines(), each.old) for each in BROKEN]

    assert [name for name, of_module, old in lines if [line.strip() for line in of_module].count(old) != 1] == []


def test_readme_lists_every_line() -> None:
    readme = (PACKAGE.parents[1] / "tests" / "README.md").read_text()

    rows = [f"| `{each.name}` | {each.violation} |" in readme and f"(`{each.module}`)" in readme for each in BROKEN]

    assert all(rows)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda each: each.name)
def test_broken_module_can_be_imported(broken: BrokenLine) -> None:
    source = (PACKAGE / broken.module).read_text()

    assert ast.unparse(ast.parse(source)) != ast.unparse(ast.parse(source.replace(broken.old, broken.new)))


def test_processes_run_the_broken_copy(tmp_path: Path) -> None:
    kind = broken_copy(BROKEN[0], tmp_path)

    process = kind.__new__(kind)
    process.kubeconfig, process.port, process._arguments = tmp_path, 1, ()

    assert f"PYTHONPATH={tmp_path}/operator" in process._command()
    assert BROKEN[0].new in (tmp_path / "operator" / "trimtab" / BROKEN[0].module).read_text()
