"""The statements in docs/taint-conformance.md name existing tests."""

from __future__ import annotations

import ast
import re

from tools.generate import ROOT

PAGE = ROOT / "docs/taint-conformance.md"
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE.read_text(encoding="utf-8"))))


def functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_test_on_the_page_exists() -> None:
    assert len(NAMED) > 20
    assert [(file, name) for file, name in NAMED if name not in functions(file)] == []


def test_every_statement_has_a_test() -> None:
    table = PAGE.read_text(encoding="utf-8")
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 20
    assert not [row for row in rows if "::" not in row]
