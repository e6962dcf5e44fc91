"""Limits Python's cyclic garbage collector: while an index of many long-lived objects is built, and in general.

The collector runs after every 700 new objects, and every few runs it traverses all objects of the process. While 50,000
pods with different terms are indexed, that takes twice as long as the indexing itself and frees nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NEVER: Final = 2**31 - 1
"""Collections of the middle generation until an automatic full collection."""


@contextmanager
def collector_paused(*, exempt: bool = False) -> Iterator[None]:
    """Disable the collector for the duration of the block.

    It is disabled for all threads, so the block must be short. If it is already disabled, it stays disabled.

    Args:
        exempt: whether to exempt all objects that exist after the block from later collections. Otherwise, traversing
            many new objects blocks all threads after the block, for 0.1 s per 50,000 pods with different terms. Exempt
            objects are still deleted when nothing refers to them, unless they refer to each other. So this is only for
            data that a process builds rarely.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if exempt:
            gc.freeze()
        if enabled:
            gc.enable()


def disable_automatic_full_collections() -> None:
    """Let Python collect only young objects automatically.

    :class:`~trimtab.runtime.memory.FullCollections` collects the others.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)
