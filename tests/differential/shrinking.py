"""Shrinks a test case: removes objects and fields as long as both schedulers still disagree."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from tests.differential.api_client import Manifest
from tests.differential.comparison import Difference, differences
from tests.differential.delta_debugging import minimize
from tests.differential.environment import Environment
from tests.differential.report import Disagreement

ATTEMPTS: Final = 200
"""Maximum number of comparisons per disagreement; each takes half a second or more."""

_FIXED: Final = frozenset({"Namespace"})
_FIRST: Final = ("Pod", "PodDisruptionBudget", "Service", "ReplicaSet", "StatefulSet", "ReplicationController")
_LAST: Final = ("Node",)
_NEEDED: Final = frozenset(
    {"apiVersion", "kind", "name", "namespace", "metadata", "spec", "nodeName", "containers", "image"}
)

Path = tuple[str | int, ...]


class _Shrinker:
    def __init__(self, environment: Environment, found: Disagreement) -> None:
        self._environment = environment
        self.found = found
        self._attempts_left = ATTEMPTS

    def run(self) -> None:
        if not self._reproduces(self.found.objects, self.found.pod):
            text = f"{self.found.difference.text}\n(The disagreement was not reproduced in a new cluster.)"
            self.found = replace(self.found, difference=replace(self.found.difference, text=text))
            return
        for kinds in (_FIRST[:1], _FIRST[1:], None, _LAST, _FIRST[:1]):
            self._remove_objects(kinds)
        self._remove_fields(self.found.pod)
        for manifest in [obj for obj in self.found.objects if obj["kind"] not in _FIXED]:
            self._remove_fields(manifest)

    def _remove_objects(self, kinds: Sequence[str] | None) -> None:
        """Remove objects of these kinds; ``None`` means the kinds that are in none of the lists."""

        def removable(manifest: Manifest) -> bool:
            if kinds is None:
                return manifest["kind"] not in {*_FIRST, *_LAST, *_FIXED}
            return manifest["kind"] in kinds

        minimize(self.found.objects, removable, lambda rest: self._reproduces(rest, self.found.pod))

    def _remove_fields(self, manifest: Manifest) -> None:
        """Remove fields of an object, parents before their children."""
        refused: set[Path] = set()
        while True:
            paths = [path for path in sorted(_paths(manifest), key=len) if path not in refused]
            if not paths or not self._attempts_left:
                return
            smaller = copy.deepcopy(manifest)
            _remove(smaller, paths[0])
            objects = [smaller if obj is manifest else obj for obj in self.found.objects]
            if self._reproduces(objects, smaller if manifest is self.found.pod else self.found.pod):
                manifest = smaller
            else:
                refused.add(paths[0])

    def _reproduces(self, objects: list[Manifest], pod: Manifest) -> bool:
        if not self._attempts_left:
            return False
        self._attempts_left -= 1
        difference = reproduce(self._environment, objects, pod, self.found.difference)
        if difference is None:
            return False
        self.found = replace(self.found, objects=objects, pod=pod, difference=difference)
        return True


def reproduce(
    environment: Environment, objects: list[Manifest], pod: Manifest, before: Difference
) -> Difference | None:
    """Compare once more in a new cluster; ``None`` if both agree or the API server rejects an object."""
    try:
        placer = environment.load(objects)
        verdict = environment.scheduler.evaluate(pod)
    except AssertionError:
        return None
    found = differences(verdict, placer.evaluate(verdict.created))
    alike = (difference for difference in found if (difference.kind, difference.plugin) == (before.kind, before.plugin))
    return next(alike, None)


def shrink_case(environment: Environment, found: Disagreement) -> Disagreement:
    """Return the smallest case found, or the case with a note if it is not reproducible."""
    shrinker = _Shrinker(environment, found)
    shrinker.run()
    return shrinker.found


def _paths(value: Any, at: Path = ()) -> Iterator[Path]:
    pairs: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in pairs:
        if name in _NEEDED or (name == 0 and at[-1:] == ("containers",)):
            yield from _paths(part, (*at, name))
            continue
        yield (*at, name)
        yield from _paths(part, (*at, name))


def _remove(value: Any, path: Path) -> None:
    for name in path[:-1]:
        value = value[name]
    del value[path[-1]]
