"""Decodes the ConfigMap of the Priority expander, which has cluster-autoscaler's format.

Users who may write ConfigMaps in the operator's namespace are not trusted to control the operator. Therefore, as in
cluster-autoscaler, patterns are evaluated by RE2, whose time is linear in the length of the input, and their number and
length are limited.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from trimtab.kube.errors import InputError
from trimtab.kube.wire.files.strict_yaml import load_all

CONFIG_MAP: Final = "cluster-autoscaler-priority-expander"
"""Name of the ConfigMap, as in upstream."""

KEY: Final = "priorities"
"""Key in the ConfigMap. Its value is YAML that maps priorities to lists of regular expressions."""

MOST_PATTERNS: Final = 1000
"""Maximum number of regular expressions."""

LONGEST_PATTERN: Final = 1000
"""Maximum length of a regular expression in characters."""

_PROGRAM_BYTES: Final = 1 << 20
_SHOWN: Final = 60
_FIELD: Final = f"data[{KEY}]"


def read_priorities(data: Mapping[str, str]) -> dict[int, tuple[str, ...]]:
    """Return patterns of group ids by priority, from the ConfigMap's data.

    Upstream ignores the whole ConfigMap if any part of it is invalid, and reports that only in an event. Callers of
    this function must report the error.

    Args:
        data: ``data`` of the ConfigMap.

    Raises:
        InputError: the data is invalid; the error names the field.
    """
    if KEY not in data:
        raise InputError(f"must have the key {KEY}", field="data")
    try:
        documents = load_all(data[KEY].encode(errors="replace"))
    except InputError as error:
        raise InputError(error.message, field=_FIELD) from None
    found = documents[0] if len(documents) == 1 else None
    if not isinstance(found, dict) or not found:
        raise InputError('must be priorities with lists of regular expressions, e.g. 10: [".*spot.*"]', field=_FIELD)
    priorities = {_number(key): _patterns(key, value) for key, value in found.items()}
    number = sum(map(len, priorities.values()))
    if number > MOST_PATTERNS:
        raise InputError(f"has {number} regular expressions, and at most {MOST_PATTERNS} are allowed", field=_FIELD)
    return priorities


def matches(pattern: str, group: str) -> bool:
    """Return whether a regular expression matches anywhere in a group id."""
    return _compiled(pattern).search(group) is not None


@lru_cache(MOST_PATTERNS)
def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = _PROGRAM_BYTES
    options.log_errors = False
    return re2.compile(pattern, options)


def _number(key: object) -> int:
    try:
        return int(str(key))
    except ValueError:
        raise InputError(f"a priority must be a whole number, not {_shorten(key)}", field=_FIELD) from None


def _patterns(key: object, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise InputError(
            f"priority {key} must have a list of regular expressions, not {type(value).__name__}", field=_FIELD
        )
    for pattern in value:
        _check(key, pattern)
    return tuple(value)


def _check(key: object, pattern: str) -> None:
    import re2

    if len(pattern) > LONGEST_PATTERN:
        raise InputError(
            f"priority {key}: {_shorten(pattern)} has {len(pattern)} characters, and at most {LONGEST_PATTERN} are "
            "allowed",
            field=_FIELD,
        )
    try:
        _compiled(pattern)
    except re2.error as error:
        why = error.args[0]
        text = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        raise InputError(
            f"priority {key}: {_shorten(pattern)} is not a valid RE2 regular expression: {text}", field=_FIELD
        ) from None


def _shorten(value: object) -> str:
    text = repr(value) if isinstance(value, str | int | float) else type(value).__name__
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
