"""Generates files: ``python -m tools.generate``, or ``make generate``.

Information that is needed in two places is written in one and generated for the other, so that they cannot differ: CRDs
and reference pages from the types, the kustomize base and the OLM bundle from the chart, and tables of values, metrics
and reasons from the code. Tests compare every generated file with the generator's output.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
"""The root directory of the repository."""

CHART: Final = ROOT / "manifests" / "charts" / "trimtab"
BASE: Final = ROOT / "manifests" / "base"
BUNDLE: Final = ROOT / "manifests" / "bundle"
REFERENCE: Final = ROOT / "docs" / "reference"


def between(text: str, name: str, content: str, *, by: str = "make generate") -> str:
    """Replace the text between the lines ``<!-- name: made by … -->`` and ``<!-- end of name -->`` by ``content``.

    Args:
        text: the text of the page.
        name: the name of the part.
        content: the content of the part.
        by: the command that writes the part.

    Raises:
        ValueError: the text has no such lines.
    """
    start = f"<!-- {name}: made by `{by}` -->\n"
    end = f"<!-- end of {name} -->\n"
    before, found, rest = text.partition(start)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"there is no part between {start.strip()} and {end.strip()}")
    return before + start + "\n" + content.strip() + "\n\n" + end + after


def table(*rows: tuple[str, ...]) -> str:
    """Format a Markdown table; the first row is its header."""
    head, *body = rows
    lines = [head, tuple("---" for _ in head), *body]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in lines)
