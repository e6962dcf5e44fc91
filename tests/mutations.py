"""Random changes of manifests, for tests that the decoder and the API server judge them alike."""

from __future__ import annotations

import copy
from typing import Any

# 3.0 is left out: where a rule reads the number the API server refuses it, elsewhere it takes it for 3, as we do.
VALUES: list[Any] = [
    *(True, False, 0, 1, -1, 2.5, 101, 2**31, 10**20, "", "a", "5m", "1s", "Act", "20", "PodsWithPVC", "Job"),
    *([], {}, ["a"], ["PodsWithPVC", "PodsWithPVC"], {"a": "b"}, {"cpu": 3}, {"enabled": True}, "x" * 400),
    *("Prometheus", "KubernetesMetrics", {"MetricResource": 20}, {"source": "KubernetesMetrics"}),
]
"""Values of every type, valid and invalid ones."""


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of a manifest and of all values in it."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner for key, item in children for inner in paths(item, (*path, key)))]


def mutate(where: Any, path: Any, value: Any, change: str, key: str) -> None:
    """Change one place, if an earlier change has left it there.

    Args:
        where: the manifest, or a part of it.
        path: the keys and indexes of the place.
        value: the value that is set or added.
        change: ``set``, ``add`` or ``drop``. An index of a list is set instead of added.
        key: the key that is added.
    """
    for step in path[:-1]:
        try:
            where = where[step]
        except (KeyError, IndexError, TypeError):
            return
    last = path[-1]
    if not isinstance(where, dict):
        if not isinstance(where, list) or not isinstance(last, int) or last >= len(where):
            return
        if change == "drop":
            del where[last]
        else:
            where[last] = copy.deepcopy(value)
    elif change == "drop":
        where.pop(last, None)
    else:
        where[key if change == "add" else last] = copy.deepcopy(value)
