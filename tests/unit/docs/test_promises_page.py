"""The page that says which test holds which promise names tests that there are."""

from __future__ import annotations

import ast
import re

import pytest
from tools.generate import ROOT

PAGE = ROOT / "docs/how-to/reserve-nodes.md"
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE.read_text(encoding="utf-8"))))


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_named_test_exists(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_promise_names_one() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## What you can count on")[2]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 20
    assert not [row for row in rows if "::" not in row]
