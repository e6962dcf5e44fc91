"""Generates the table of the chart's values from the comments in values.yaml (``# -- …``, as in helm-docs)."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import yaml
from msgspec import Struct

from tools.generate import CHART, table

_KEY: Final = re.compile(r"^(?P<indent> *)(?P<name>[A-Za-z0-9]+):")
_COMMENT: Final = re.compile(r"^ *# ?(?P<text>.*)$")


class Value(Struct, frozen=True):
    """A chart value.

    Attributes:
        path: the path, for example ``metrics.service.port``.
        default: the default as written in values.yaml.
        description: the description from the comment.
    """

    path: str
    default: Any
    description: str


def read_values(text: str) -> list[Value]:
    """Return the values that have a description, in the order of the file."""
    values: list[Value] = []
    tree = yaml.safe_load(text)
    parents: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        if (said := _COMMENT.match(line)) is not None:
            words = said["text"]
            comment = [words[3:]] if words.startswith("-- ") else [*comment, words] if comment else []
            continue
        if (key := _KEY.match(line)) is not None:
            indent = len(key["indent"])
            parents = [*(parent for parent in parents if parent[0] < indent), (indent, key["name"])]
            if comment:
                names = [name for _, name in parents]
                values.append(Value(path=".".join(names), default=_at(tree, names), description=" ".join(comment)))
        comment = []
    return values


def leaves(tree: Any, path: str = "") -> list[str]:
    """Return the paths of all values without nested keys."""
    if not isinstance(tree, dict) or not tree:
        return [path]
    return [leaf for key, below in tree.items() for leaf in leaves(below, f"{path}.{key}".strip("."))]


def values_table() -> str:
    """Return the table for the chart's README and the reference."""
    values = read_values((CHART / "values.yaml").read_text(encoding="utf-8"))
    rows = [(f"`{value.path}`", f"`{json.dumps(value.default)}`", value.description) for value in values]
    return table(("Value", "Default", "What it does"), *rows)


def _at(tree: Any, names: list[str]) -> Any:
    for name in names:
        tree = tree[name]
    return tree
