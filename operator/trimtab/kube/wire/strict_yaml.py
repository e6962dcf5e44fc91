"""YAML as the API server's strict decoding takes it: a key that is there twice is an error.

PyYAML keeps the last of them without a word. A second ``limits:`` in a policy, or two files put together without
``---``, would thus lose what the first one said. Nor does it mind how deep a text is nested, until the C stack ends and
the process with it, or how much is meant by a few aliases of aliases, which who reads them finds out.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Final

import yaml

from trimtab.kube.errors import InputError

DEEPEST: Final = 1000
"""Lists and mappings in one another. Objects of Kubernetes need a hundred; at 20,000 libyaml's reader crashes."""

MOST_REPEATED: Final = 1_000_000
"""Values that a document may stand for by its aliases, beside one for each byte of its text."""

_BRACKET: Final = re.compile(rb"[\[\]{}]")
_DEEP_BLOCK: Final = re.compile(rb"^[ ?:-]{%d}" % DEEPEST, re.MULTILINE)
_ANCHOR: Final = re.compile(rb"(?:^|[\s\[{,])&\S")


class _Strict(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader, of C where libyaml is there."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Refuse a repeated key. Merged keys (``<<``) may be overridden: that is what they are for."""
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value} is there twice", key.start_mark)
                seen.add(key.value)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def load_all(text: bytes) -> list[Any]:
    """Every document of a text.

    Raises:
        InputError: it is no YAML, or a key is there twice; the message names line and column. Or it is nested too
            deeply, or stands for too much by its aliases.
    """
    try:
        deep = _may_be_deep(text) and _is_deep(text)
        found = [] if deep else list(yaml.load_all(text, Loader=_Strict))
    except (yaml.YAMLError, ValueError) as error:  # the latter of dates that are none, and numbers of 5,000 digits
        raise InputError(f"is not YAML: {_one_line(error)}") from None
    if deep:
        raise InputError(f"is nested too deeply to be read: allowed are {DEEPEST} lists and mappings in one another")
    if _ANCHOR.search(text):
        for content in found:
            _refuse_bomb(content, most=len(text) + MOST_REPEATED)
    return found


def _may_be_deep(text: bytes) -> bool:
    """Whether the exact look, which costs a quarter of the reading, is worth it. Brackets in strings count here."""
    depth = deepest = 0
    for bracket in _BRACKET.findall(text):
        depth = depth + 1 if bracket in b"[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest > DEEPEST or _DEEP_BLOCK.search(text) is not None


def _is_deep(text: bytes) -> bool:
    depth = 0
    for event in yaml.parse(text, Loader=_Strict):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            return True
    return False


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).replace(' in "<byte string>",', " at")


def _refuse_bomb(content: Any, *, most: int) -> None:
    """Refuse a document that is small only as long as nobody goes through it: aliases of aliases of aliases."""
    values = _size(content, {})
    if values > most:
        raise InputError(f"stands for {values} values by its aliases: allowed are {most} for a text of this length")


def _size(content: Any, sizes: dict[int, int]) -> int:
    """How many values there are to whoever goes through it; ``sizes`` has those of lists and mappings by their ids."""
    if not isinstance(content, dict | list):
        return 1
    known = sizes.get(id(content))
    if known is None:
        sizes[id(content)] = 1  # where it is a part of itself, which is found out by who reads it
        parts = content.values() if isinstance(content, dict) else content
        known = sizes[id(content)] = 1 + sum(_size(part, sizes) for part in parts)
    return known
