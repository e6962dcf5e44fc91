"""Arrays over node slots that are computed from the nodes' amounts, and kept up to date slot by slot."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.resources import IntArray

K = TypeVar("K", bound=Hashable)
D = TypeVar("D", bound=np.generic)
Slots = slice | IntArray

_KEYS: Final = 1024
"""Arrays that are kept, 8 KiB each on 8,192 slots: a cluster has hundreds of sizes of pods, and each that is not kept
costs a pass over all nodes."""

_FEW: Final = 8
"""Where more than one in so many slots changed, all are computed anew."""


Points = npt.NDArray[np.int8]
"""Scores that are kept: none is above 100."""


class _Entry(Generic[D]):
    __slots__ = ("array", "epoch", "seen")

    def __init__(self, array: npt.NDArray[D], epoch: int, seen: int) -> None:
        self.array = array
        self.epoch = epoch
        self.seen = seen


class Kept(Generic[K, D]):
    """An array per key; when it is asked for again, only slots whose amounts changed meanwhile are computed anew.

    That makes a decision cost what the last one changed, not what the cluster holds.

    Args:
        nodes: the node slots, with the log of what changed.
        compute: the values of a key for some slots (a slice or int64 indices), from allocatable and requested amounts
            alone.
    """

    def __init__(self, nodes: NodeTable, compute: Callable[[K, Slots], npt.NDArray[D]]) -> None:
        self._nodes = nodes
        self._compute = compute
        self._entries: dict[K, _Entry[D]] = {}

    def of(self, key: K) -> npt.NDArray[D]:
        """The array of a key: shape (capacity,); callers must not write to it, and it changes with the cluster."""
        nodes = self._nodes
        entry = self._entries.get(key)
        touched = nodes.touched
        if entry is None or entry.epoch != nodes.epoch or len(entry.array) != nodes.capacity:
            return self._anew(key)
        self._entries[key] = self._entries.pop(key)  # the last is the one asked for last
        changed = len(touched) - entry.seen
        if not changed:
            return entry.array
        if changed == 1:
            slots: Any = touched[-1:]
        else:
            slots = list(set(touched[entry.seen :]))
            if len(slots) * _FEW > nodes.capacity:
                return self._anew(key)
        where = np.array(slots, dtype=np.int64)
        entry.array[where] = self._compute(key, where)
        entry.seen = len(touched)
        return entry.array

    def _anew(self, key: K) -> npt.NDArray[D]:
        self._entries.pop(key, None)
        if len(self._entries) >= _KEYS:
            del self._entries[next(iter(self._entries))]
        array = self._compute(key, slice(None))
        self._entries[key] = _Entry(array, self._nodes.epoch, len(self._nodes.touched))
        return array
