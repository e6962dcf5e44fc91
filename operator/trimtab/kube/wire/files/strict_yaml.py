"""A strict YAML loader: like the API server's strict decoding, it rejects duplicate keys.

PyYAML silently keeps the last of several identical keys, so a second ``limits:`` in a policy, or two files joined
without ``---``, would lose content. PyYAML also limits neither the nesting depth, so that deep nesting overflows the C
stack and ends the process, nor the size to which nested aliases expand. This loader limits both.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Final

import yaml

from trimtab.kube.errors import InputError

MAX_DEPTH: Final = 1000
"""Maximum depth of nested lists and mappings. Kubernetes objects need about 100; at 20,000 libyaml crashes."""

MAX_ALIASED_VALUES: Final = 1_000_000
"""Maximum number of values to which a document's aliases may expand, in addition to one value for each byte of the
text.
"""

MAX_MERGED_KEYS: Final = 100_000
"""Maximum number of keys that the merges (``<<``) of a document may add."""

_MERGE: Final = "tag:yaml.org,2002:merge"
_BRACKET: Final = re.compile(rb"[\[\]{}]")
_DEEP_BLOCK: Final = re.compile(rb"^[ ?:-]{%d}" % MAX_DEPTH, re.MULTILINE)
_ANCHOR: Final = re.compile(rb"(?:^|[\s\[{,])&\S")


class _Strict(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """PyYAML's safe loader with stricter rules. It is implemented in C if libyaml is available."""

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self._merged = 0
        self._sizes: dict[int, int] = {}

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Apply merges, unless nested merges add too many keys."""
        if any(key.tag == _MERGE for key, _ in node.value):
            self._merged += self._pairs(node)
            if self._merged > MAX_MERGED_KEYS:
                raise InputError(f"merges more than {MAX_MERGED_KEYS} keys into its mappings (<<)")
        super().flatten_mapping(node)

    def _pairs(self, node: yaml.Node) -> int:
        """Return the number of keys of a mapping after all merges."""
        if not isinstance(node, yaml.MappingNode):
            return 0
        known = self._sizes.get(id(node))
        if known is None:
            self._sizes[id(node)] = 0  # ends the recursion of a mapping that merges itself
            known = 0
            for key, value in node.value:
                if key.tag != _MERGE:
                    known += 1
                else:
                    sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
                    known += sum(self._pairs(source) for source in sources)
            self._sizes[id(node)] = known
        return known

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Reject a duplicate key, except one that overrides a merged key (``<<``)."""
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key.value}", key.start_mark)
                seen.add(key.value)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def load_all(text: bytes) -> list[Any]:
    """Load all documents of a YAML stream.

    Raises:
        InputError: the content is not YAML or has a duplicate key (the message has line and column), is nested too
            deeply, or its aliases or merges expand to too many values.
    """
    try:
        deep = _may_be_deep(text) and _is_deep(text)
        found = [] if deep else list(yaml.load_all(text, Loader=_Strict))
    except (yaml.YAMLError, ValueError) as error:  # ValueError: invalid dates, and numbers of 5,000 digits
        raise InputError(f"is not YAML: {_one_line(error)}") from None
    if deep:
        raise InputError(f"is nested too deeply to be read: allowed are {MAX_DEPTH} lists and mappings in one another")
    if _ANCHOR.search(text):
        for content in found:
            _reject_alias_bomb(content, most=len(text) + MAX_ALIASED_VALUES)
    return found


def _may_be_deep(text: bytes) -> bool:
    """Return whether the exact check of the depth is necessary.

    That check costs a quarter of the loading time. The result may be a false alarm.
    """
    depth = deepest = 0
    for bracket in _BRACKET.findall(text):
        depth = depth + 1 if bracket in b"[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest > MAX_DEPTH or _DEEP_BLOCK.search(text) is not None


def _is_deep(text: bytes) -> bool:
    depth = 0
    for event in yaml.parse(text, Loader=_Strict):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            return True
    return False


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).replace(' in "<byte string>",', " at")


def _reject_alias_bomb(content: Any, *, most: int) -> None:
    """Reject a document whose nested aliases expand to too many values."""
    values = _size(content, {})
    if values > most:
        raise InputError(f"expands to {values} values by its aliases: allowed are {most} for a text of this length")


def _size(content: Any, sizes: dict[int, int]) -> int:
    """Return the number of values with all aliases expanded. ``sizes`` caches it for lists and mappings by ID."""
    if not isinstance(content, dict | list):
        return 1
    known = sizes.get(id(content))
    if known is None:
        sizes[id(content)] = 1  # ends the recursion of a document that contains itself, which its decoder reports
        parts = content.values() if isinstance(content, dict) else content
        known = sizes[id(content)] = 1 + sum(_size(part, sizes) for part in parts)
    return known
