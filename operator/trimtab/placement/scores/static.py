"""What scores share that read nothing of a node but its labels and taints."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Final

import numpy as np

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement.framework import MAX_SCORE, normalized

_MOST: Final = 256
"""Entries that are kept: at most 32 MiB on 8,192 slots."""


class _Entry:
    """Points of one key, and what they came to when the best of them was last ``largest``; none where all are 0."""

    __slots__ = ("largest", "points", "scaled")

    def __init__(self, points: IntArray | None) -> None:
        self.points = points
        self.largest = 0
        self.scaled: IntArray | int = 0


class StaticScore:
    """Points per node that are 0 or more, computed once per distinct :meth:`key` and kept until a node changes.

    They are brought to 0 … 100 by the largest among the nodes to choose from, and that is kept too: from one decision
    to the next it rarely changes.
    """

    reverse: ClassVar[bool] = False
    """Whether many points are bad."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._kept: dict[Hashable, _Entry] = {}
        self._version = -1

    def key(self, pod: Pod) -> Hashable | None:
        """What of the pod the score reads, ``None`` where every node gets 0 points for it."""
        raise NotImplementedError

    def points(self, pod: Pod) -> IntArray:
        """Not normalized: int64, shape (capacity,); free slots may have anything."""
        raise NotImplementedError

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        """See :meth:`~trimtab.placement.framework.Score.scores`."""
        flat = MAX_SCORE if self.reverse else 0
        key = self.key(pod)
        if key is None:
            return flat
        entry = self._entry(key, pod)
        if entry.points is None:
            return flat
        largest = int(np.where(among, entry.points, 0).max())
        if largest == 0:
            return flat
        if entry.largest != largest:
            entry.largest = largest
            entry.scaled = normalized(entry.points, among, reverse=self.reverse)
        return entry.scaled

    def _entry(self, key: Hashable, pod: Pod) -> _Entry:
        version = self.snapshot.nodes.version
        if self._version != version or len(self._kept) >= _MOST:
            self._kept.clear()
            self._version = version
        found = self._kept.get(key)
        if found is None:
            points = self.points(pod)
            found = self._kept[key] = _Entry(points if np.any(points) else None)
        return found
