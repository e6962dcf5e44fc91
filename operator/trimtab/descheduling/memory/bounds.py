"""Keeps a memory within its bounds: a status is read whole by every watcher and stored whole on every write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from trimtab.api.eviction_memory import MAX_SETBACKS, MAX_WATCHED, Memory, Setback, WatchedEviction
from trimtab.descheduling.fitting import fitting
from trimtab.descheduling.memory.owners import key

WATCHED_BYTES: Final = 96 * 1024
SETBACKS_BYTES: Final = 96 * 1024
"""How much of a status each list may take, as JSON."""


def bounded(memory: Memory, *, watched: Iterable[WatchedEviction], setbacks: Iterable[Setback]) -> Memory:
    """The memory with these entries, the least important of which are dropped and counted where they are too many.

    Of evictions the latest matter most, and those that came to rest elsewhere least. Of setbacks those matter most that
    were given up, then those with the most failures, then the latest. The lists themselves are ordered by name, so that
    equal memories are equal values.
    """
    all_watched, all_setbacks = list(watched), list(setbacks)
    by_landing = sorted(all_watched, key=lambda each: (bool(each.landed), -each.time.timestamp(), *key(each), each.uid))
    by_weight = sorted(
        all_setbacks, key=lambda each: (not each.gave_up, -each.failures, -each.time.timestamp(), *key(each))
    )
    kept_watched = fitting(by_landing, limit=MAX_WATCHED, size=WATCHED_BYTES)
    kept_setbacks = fitting(by_weight, limit=MAX_SETBACKS, size=SETBACKS_BYTES)
    dropped = len(all_watched) - len(kept_watched) + len(all_setbacks) - len(kept_setbacks)
    return msgspec.structs.replace(
        memory,
        watched=tuple(sorted(kept_watched, key=lambda each: (each.time, *key(each), each.uid))),
        setbacks=tuple(sorted(kept_setbacks, key=key)),
        forgotten=memory.forgotten + dropped,
    )
