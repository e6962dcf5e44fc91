"""Changes of one place of a manifest, for tests that two judges of it judge alike."""

from __future__ import annotations

from typing import Any


def mutate(where: Any, path: Any, value: Any, change: str, key: str) -> None:
    """Change one place, if an earlier change has left it there.

    Args:
        where: the manifest, or a part of it.
        path: keys and places down to the one that is changed.
        value: what is set or added.
        change: ``set``, ``add`` or ``drop``.
        key: under which it is added.
    """
    for step in path[:-1]:
        try:
            where = where[step]
        except (KeyError, IndexError, TypeError):
            return
    last = path[-1]
    if not isinstance(where, dict):
        if isinstance(where, list) and change == "set" and isinstance(last, int) and last < len(where):
            where[last] = value
    elif change == "drop":
        where.pop(last, None)
    else:
        where[key if change == "add" else last] = value
