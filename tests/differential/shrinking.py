"""The smallest case that shows a disagreement: what can be left out is left out, and both are asked again each time."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from tests.differential.comparison import Difference, differences
from tests.differential.dropping import dropped
from tests.differential.report import Disagreement
from tests.differential.server import Manifest
from tests.differential.world import World

ATTEMPTS: Final = 200
"""How often both are asked for one disagreement, at half a second or more each."""

_FIXED: Final = frozenset({"Namespace"})
_FIRST: Final = ("Pod", "PodDisruptionBudget", "Service", "ReplicaSet", "StatefulSet", "ReplicationController")
_LAST: Final = ("Node",)
_NEEDED: Final = frozenset(
    {"apiVersion", "kind", "name", "namespace", "metadata", "spec", "nodeName", "containers", "image"}
)

Path = tuple[str | int, ...]


class _Shrinker:
    def __init__(self, world: World, found: Disagreement) -> None:
        self._world = world
        self.found = found
        self._left = ATTEMPTS

    def run(self) -> None:
        if not self._holds(self.found.objects, self.found.pod):
            text = f"{self.found.difference.text}\n(It did not show again in a cluster made anew.)"
            self.found = replace(self.found, difference=replace(self.found.difference, text=text))
            return
        for kinds in (_FIRST[:1], _FIRST[1:], None, _LAST, _FIRST[:1]):
            self._drop_objects(kinds)
        self._drop_fields(self.found.pod)
        for manifest in [obj for obj in self.found.objects if obj["kind"] not in _FIXED]:
            self._drop_fields(manifest)

    def _drop_objects(self, kinds: Sequence[str] | None) -> None:
        """Halves first, then quarters and so on; ``None`` stands for all kinds that are named nowhere else."""

        def droppable(manifest: Manifest) -> bool:
            if kinds is None:
                return manifest["kind"] not in {*_FIRST, *_LAST, *_FIXED}
            return manifest["kind"] in kinds

        dropped(self.found.objects, droppable, lambda rest: self._holds(rest, self.found.pod))

    def _drop_fields(self, manifest: Manifest) -> None:
        """The widest parts of an object first."""
        refused: set[Path] = set()
        while True:
            paths = [path for path in sorted(_paths(manifest), key=len) if path not in refused]
            if not paths or not self._left:
                return
            smaller = copy.deepcopy(manifest)
            _drop(smaller, paths[0])
            objects = [smaller if obj is manifest else obj for obj in self.found.objects]
            if self._holds(objects, smaller if manifest is self.found.pod else self.found.pod):
                manifest = smaller
            else:
                refused.add(paths[0])

    def _holds(self, objects: list[Manifest], pod: Manifest) -> bool:
        if not self._left:
            return False
        self._left -= 1
        difference = again(self._world, objects, pod, self.found.difference)
        if difference is None:
            return False
        self.found = replace(self.found, objects=objects, pod=pod, difference=difference)
        return True


def again(world: World, objects: list[Manifest], pod: Manifest, before: Difference) -> Difference | None:
    """Ask both once more, in a cluster made anew; ``None`` where they agree, or where the server refuses an object."""
    try:
        ours = world.load(objects)
        verdict = world.scheduler.judge(pod)
    except AssertionError:
        return None
    found = differences(verdict, ours.judge(verdict.created))
    alike = (difference for difference in found if (difference.kind, difference.plugin) == (before.kind, before.plugin))
    return next(alike, None)


def shrunk(world: World, found: Disagreement) -> Disagreement:
    """The smallest case found, or the case itself where it does not show again."""
    shrinker = _Shrinker(world, found)
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


def _drop(value: Any, path: Path) -> None:
    for name in path[:-1]:
        value = value[name]
    del value[path[-1]]
