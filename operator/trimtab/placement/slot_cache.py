"""Caches arrays over node slots that depend on resource amounts, and updates them slot by slot."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from trimtab.cluster.node_table import NodeTable
from trimtab.cluster.resources import IntArray

K = TypeVar("K", bound=Hashable)
D = TypeVar("D", bound=np.generic)
Slots = slice | IntArray

_MAX_KEYS: Final = 1024
"""Maximum number of cached arrays, 8 KiB each for 8,192 slots.

A cluster has hundreds of pod sizes, and sizes that are not cached are computed over all nodes.
"""

_RECOMPUTE_SHARE: Final = 8
"""Default of ``recompute_share``. An array operation on all slots costs little more than one on some slots."""


Points = npt.NDArray[np.int8]
"""An array of scores, which are at most 100."""


class _Entry(Generic[D]):
    __slots__ = ("array", "seen")

    def __init__(self, array: npt.NDArray[D], seen: int) -> None:
        self.array = array
        self.seen = seen


class SlotCache(Generic[K, D]):
    """Caches one array per key. On access, only slots whose amounts have changed since the last access are recomputed.

    So the cost of a scheduling decision depends on the number of slots that the previous decision changed, and not on
    the size of the cluster.

    Args:
        nodes: the node table with its log of changes.
        recompute_share: if more than one in this number of slots has changed, the whole array is recomputed. Use 1 if
            the cost of ``compute`` of :meth:`of` is proportional to the number of slots.
    """

    def __init__(self, nodes: NodeTable, *, recompute_share: int = _RECOMPUTE_SHARE) -> None:
        self._nodes = nodes
        self._recompute_share = recompute_share
        self._entries: dict[K, _Entry[D]] = {}

    def of(self, key: K, compute: Callable[[K, Slots], npt.NDArray[D]]) -> npt.NDArray[D]:
        """Return the up-to-date array of a key: shape (capacity,).

        Callers must not write to the array. Later calls update it in place.

        Args:
            key: the key.
            compute: returns the values of a key for some slots (a slice or int64 indices), from allocatable and
                requested amounts only. It must be the same in all calls. The cache does not store it, because most
                callers pass a method of the cache's owner, and a reference cycle would keep all arrays until the
                next garbage collection.
        """
        nodes = self._nodes
        entry = self._entries.get(key)
        if entry is None or len(entry.array) != nodes.capacity:
            return self._recompute(key, compute)
        touched = nodes.touched_since(entry.seen)
        if touched is None:
            return self._recompute(key, compute)
        self._entries[key] = self._entries.pop(key)  # least recently used first
        if not touched:
            return entry.array
        slots = touched
        if len(touched) > 1:
            slots = list(set(touched))
            if len(slots) * self._recompute_share > nodes.capacity:
                return self._recompute(key, compute)
        where = np.array(slots, dtype=np.int64)
        entry.array[where] = compute(key, where)
        entry.seen += len(touched)
        return entry.array

    def _recompute(self, key: K, compute: Callable[[K, Slots], npt.NDArray[D]]) -> npt.NDArray[D]:
        self._entries.pop(key, None)
        if len(self._entries) >= _MAX_KEYS:
            del self._entries[next(iter(self._entries))]
        array = compute(key, slice(None))
        self._entries[key] = _Entry(array, self._nodes.changes)
        return array
