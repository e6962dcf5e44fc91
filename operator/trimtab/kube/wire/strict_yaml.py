"""YAML as the API server's strict decoding takes it: a key that is there twice is an error.

PyYAML keeps the last of them without a word. A second ``limits:`` in a policy, or two files put together without
``---``, would thus lose what the first one said.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml


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
        yaml.YAMLError: it is no YAML, or a key is there twice; the message names line and column.
    """
    return list(yaml.load_all(text, Loader=_Strict))
