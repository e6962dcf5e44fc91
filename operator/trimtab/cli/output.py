"""Output: documents as JSON or YAML, and tables for people."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click
import msgspec


def emit(document: Any, form: str) -> None:
    """Print a document; its keys keep their order, so that equal documents are equal bytes.

    Args:
        document: of dictionaries, lists and scalars.
        form: ``json`` (indented by two) or ``yaml``.
    """
    if form == "json":
        data = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    else:
        data = msgspec.yaml.encode(document)
    click.echo(data, nl=False)  # bytes: the form is UTF-8 whatever the terminal's encoding


def emit_all(objects: Sequence[Any], form: str) -> None:
    """Print objects: as documents of YAML, or as one of JSON, which is a v1 List where there are several.

    Args:
        objects: at least one.
        form: ``json`` or ``yaml``.
    """
    if form == "json":
        emit(objects[0] if len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(objects)}, form)
        return
    for number, each in enumerate(objects):
        if number:
            click.echo(b"---\n", nl=False)
        emit(each, form)


def echo(text: str = "") -> None:
    """Print text; styles are kept on a terminal only, and not where ``NO_COLOR`` is set (no-color.org)."""
    click.echo(text, color=False if os.environ.get("NO_COLOR") else None)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, indent: str = "") -> str:
    """Columns as kubectl prints them: as wide as their widest cell, three spaces apart, the last one open.

    Args:
        headers: of the columns; printed bold. None of them is no header line.
        rows: cells as text, without styles and line breaks.
        indent: what every line begins with.
    """
    lines = [*([headers] if headers else []), *rows]
    if not lines:
        return ""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    texts = [
        indent + "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    if headers:
        texts[0] = click.style(texts[0], bold=True)
    return "\n".join(texts)
