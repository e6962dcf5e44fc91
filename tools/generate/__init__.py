"""Files that are made from other files: ``python -m tools.generate``, or ``make generate``.

What stands in two places is written in one and made in the other, so that they cannot drift apart: definitions and
reference pages from the types, the kustomize base from the chart, tables of values, metrics and reasons from the code.
Tests compare every file with what would be written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
"""The repository."""

CHART: Final = ROOT / "manifests" / "charts" / "trimtab"
BASE: Final = ROOT / "manifests" / "base"
REFERENCE: Final = ROOT / "docs" / "reference"


def between(text: str, name: str, content: str) -> str:
    """The text with ``content`` between the lines ``<!-- name: made by … -->`` and ``<!-- end of name -->``.

    Raises:
        ValueError: the text has no such lines.
    """
    start = f"<!-- {name}: made by `make generate` -->\n"
    end = f"<!-- end of {name} -->\n"
    before, found, rest = text.partition(start)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"there is no part between {start.strip()} and {end.strip()}")
    return before + start + "\n" + content.strip() + "\n\n" + end + after


def table(*rows: tuple[str, ...]) -> str:
    """A Markdown table; the first row is its head."""
    head, *body = rows
    lines = [head, tuple("---" for _ in head), *body]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in lines)
