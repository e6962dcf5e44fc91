"""Returns memory to the kernel after objects were deleted, and runs the full garbage collections of the process.

Interning tables, caches and the C library's heap keep memory for reuse. A tenant who creates and deletes thousands of
pods could bring the process permanently closer to its memory limit. Therefore this module drops unused entries and
returns free pages.

Python's automatic full collections traverse all objects and block all threads. With 5,000 nodes and 150,000 pods they
took 60 to 100 ms every ten seconds (``benchmarks/loop_lag.py``) and freed little, because plans contain no reference
cycles (``tests/unit/test_reference_cycles.py``). :class:`FullCollections` replaces them.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import cache, partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from trimtab.kube.clock import Clock
from trimtab.kube.rules.selectors import label_matcher, node_matcher, node_term_matcher

if TYPE_CHECKING:
    from trimtab.cluster.shared_snapshot import SharedSnapshot
    from trimtab.cluster.snapshot import Snapshot

log = logging.getLogger(__name__)

RECLAIM_PERIOD: Final = 30.0
"""Seconds between two reclamations. A reclamation is skipped if no object was removed since the previous one."""

COLLECTION_CHECK_PERIOD: Final = 15.0
"""Seconds between two checks of whether a full garbage collection is due."""

COLLECTION_PERIOD: Final = 60.0
"""Maximum seconds between two full garbage collections."""

EXCLUSION_PERIOD: Final = 600.0
"""Seconds after which the objects that survived the last collections are excluded from the following ones."""

COMPLETE_PERIOD: Final = 6 * 3600.0
"""Seconds after which a full garbage collection also traverses the objects that survived the previous ones."""

GROWTH: Final = 1.1
"""A full garbage collection is due once the resident memory has grown by this factor since the previous one."""

_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
"""Options of glibc's ``mallopt`` (malloc.h)."""

_MMAP_THRESHOLD_BYTES: Final = 512 * 1024
"""Minimum size in bytes of an allocation with its own memory mapping, which is returned to the kernel when freed. By
default glibc raises this threshold dynamically up to 32 MiB.

uvloop allocates 256 KiB for each read of a TLS connection. With a mapping of its own, a read of a few bytes would need
three system calls and two page faults more.
"""

_MAX_ARENAS: Final = 2
"""Maximum number of heaps. By default glibc uses eight for each core, and none reuses memory that another freed."""


class ReclaimableCaches(Protocol):
    """The methods of the informers that :class:`MemoryReclaimer` uses."""

    @property
    def removals(self) -> int:
        """Return the number of objects that were removed from the stores since the start."""
        ...

    async def reclaim(self) -> None:
        """Drop interned values that no object uses any longer. Other tasks of the event loop run in between."""
        ...


class MemoryReclaimer:
    """Returns memory to the kernel after objects were removed. Call :meth:`reclaim_after_removals` periodically.

    Args:
        watches: the informers of the process.
        shared: the snapshot that all planners share; ``None`` if the process has none.
    """

    def __init__(self, watches: ReclaimableCaches, shared: SharedSnapshot | None) -> None:
        self._watches = watches
        self._shared = shared
        self._seen = 0

    async def reclaim_after_removals(self) -> None:
        """Reclaim memory if objects were removed since the last call. Call it every :data:`RECLAIM_PERIOD` seconds."""
        removals = self._watches.removals
        if removals > self._seen:
            self._seen = removals
            await self.reclaim()

    async def reclaim(self) -> None:
        """Drop unreferenced values from the snapshot, the selector caches and the interning tables, then trim the heap.

        The order matters: caches of the snapshot refer to pod specs, which refer to interned values.
        """
        if self._shared is None:
            forget_removed(None)
        else:
            from trimtab.cluster.shared_snapshot import in_thread  # it loads NumPy, which not all processes need

            async with self._shared.borrow(short=True) as snapshot:
                await in_thread(partial(forget_removed, snapshot))
        await self._watches.reclaim()
        await asyncio.to_thread(trim)


def forget_removed(snapshot: Snapshot | None) -> None:
    """Drop what the snapshot, if there is one, and the caches of selectors keep for objects that no longer exist."""
    if snapshot is not None:
        snapshot.forget_removed()
    for cached in (label_matcher, node_matcher, node_term_matcher):
        cached.cache_clear()


class FullCollections:
    """Runs the full garbage collections of the process. Call :meth:`collect_if_due` periodically.

    Every :data:`EXCLUSION_PERIOD` seconds, the objects that survive a collection are excluded from the next ones, so
    that a collection only traverses objects that were created since. They are not excluded more often, because the
    objects that Kopf is handling become garbage soon. Every :data:`COMPLETE_PERIOD` seconds, a collection traverses all
    objects.

    Args:
        clock: the clock.
        idle: returns a context in which no planner runs, whose temporary objects would make a collection longer.
    """

    def __init__(self, clock: Clock, *, idle: Callable[[], AbstractAsyncContextManager[object]] = nullcontext) -> None:
        self._clock = clock
        self._idle = idle
        self._collected = self._completed = clock.monotonic()
        self._excluded = -inf
        self._resident = resident_bytes()

    async def collect_if_due(self) -> None:
        """Collect if memory has grown, or if the last collection was too long ago."""
        now, resident = self._clock.monotonic(), resident_bytes()
        if now - self._collected < COLLECTION_PERIOD and resident <= GROWTH * self._resident:
            return
        async with self._idle():
            complete = now - self._completed >= COMPLETE_PERIOD
            if complete:
                self._completed = now
                gc.unfreeze()
            began = self._clock.cpu()
            found = gc.collect()
            if complete or now - self._excluded >= EXCLUSION_PERIOD:
                self._excluded = now
                gc.freeze()
            took = self._clock.cpu() - began
        message = "Garbage collection freed %d objects in %.0f ms; resident memory is %d MiB"
        self._collected, self._resident = now, resident_bytes()
        log.debug(message, found, 1000 * took, self._resident >> 20)


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes; 0 if the operating system is not Linux."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def tune_allocator() -> None:
    """Configure glibc to return large allocations immediately. Call it before threads are started."""
    libc = _libc()
    if libc is not None:
        libc.mallopt(_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
        libc.mallopt(_ARENA_MAX, _MAX_ARENAS)


def trim() -> None:
    """Return free pages of glibc's heap to the kernel. No-op with another C library."""
    libc = _libc()
    if libc is not None:
        libc.malloc_trim(0)


@cache  # each CDLL object creates a class, which only a full garbage collection frees
def _libc() -> Any:
    """Return the C library of this process if it is glibc, else ``None``."""
    try:
        libc = ctypes.CDLL(None)
        libc.malloc_trim.argtypes = [ctypes.c_size_t]
        libc.mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
    except (AttributeError, OSError):
        log.debug("Freed memory cannot be returned to the operating system because the C library is not glibc")
        return None
    return libc
