"""The chart's values as a table, from the comments in values.yaml (``# -- …``, helm-docs' way of marking them)."""

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
    """One value that a user may set.

    Attributes:
        path: ``metrics.service.port``.
        default: as it stands in values.yaml.
        description: what it does.
    """

    path: str
    default: Any
    description: str


def read_values(text: str) -> list[Value]:
    """The values that have a description, in the file's order."""
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
    """The paths of all that has no keys below it."""
    if not isinstance(tree, dict) or not tree:
        return [path]
    return [leaf for key, below in tree.items() for leaf in leaves(below, f"{path}.{key}".strip("."))]


def values_table() -> str:
    """The table that stands in the chart's README and in the reference."""
    values = read_values((CHART / "values.yaml").read_text(encoding="utf-8"))
    rows = [(f"`{value.path}`", f"`{json.dumps(value.default)}`", value.description) for value in values]
    return table(("Value", "Default", "What it does"), *rows)


def _at(tree: Any, names: list[str]) -> Any:
    for name in names:
        tree = tree[name]
    return tree
