"""What the tests of single scores share: points by node name."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.cluster.snapshot import Snapshot
from trimtab.placement.interface import Score


def built(things: list[Any]) -> Snapshot:
    """A snapshot of builders and values alike."""
    return Snapshot([item.build() if hasattr(item, "build") else item for item in things])


def points(score: Score, snapshot: Snapshot, candidate: Any, among: str = "") -> dict[str, int]:
    """What a score gives the nodes among those named (separated by spaces; all without), one number for all or not."""
    pod = candidate.build() if hasattr(candidate, "build") else candidate
    names = among.split() or sorted(snapshot.nodes.slot_of)
    slots = [snapshot.nodes.slot_of[name] for name in names]
    mask = np.zeros(snapshot.nodes.capacity, dtype=np.bool_)
    mask[slots] = True
    found = score.scores(pod, mask)
    if isinstance(found, int):
        return dict.fromkeys(names, found)
    assert found.dtype == np.int64
    assert found.shape == mask.shape
    return {name: int(found[slot]) for name, slot in zip(names, slots, strict=True)}
