"""Arrays that are kept: what is computed anew, and what goes first."""

from __future__ import annotations

import numpy as np

from tests.builders import node, pod
from trimtab.cluster.resources import CPU, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.placement import kept
from trimtab.placement.kept import Kept, Slots


class Counting:
    """Free cpu less what is asked for, with a note of what was computed."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes = snapshot.nodes
        self.passes: list[int] = []
        self.kept: Kept[int, np.int64] = Kept(snapshot.nodes, self.compute)

    def compute(self, asked: int, slots: Slots) -> IntArray:
        free: IntArray = self.nodes.allocatable[slots, CPU] - self.nodes.requested[slots, CPU] - asked
        self.passes.append(len(free))
        return free


def snapshot() -> Snapshot:
    return Snapshot(node(f"n{number}").build() for number in range(20))


def test_only_slots_that_changed_are_computed_again():
    picture = snapshot()
    counting = Counting(picture)
    before = counting.kept.of(100).copy()
    picture.put(pod("p").on("n3").cpu("1").build())
    after = counting.kept.of(100)
    assert counting.passes == [picture.nodes.capacity, 1]
    assert np.flatnonzero(before != after).tolist() == [picture.nodes.slot_of["n3"]]
    assert after[picture.nodes.slot_of["n3"]] == 4000 - 1000 - 100


def test_hundreds_of_sizes_are_kept():
    counting = Counting(snapshot())
    for _ in range(3):
        for asked in range(500):
            counting.kept.of(asked)
    assert len(counting.passes) == 500


def test_what_was_not_asked_for_longest_goes_first(monkeypatch):
    monkeypatch.setattr(kept, "_KEYS", 2)
    counting = Counting(snapshot())
    for asked in (1, 2, 1, 3, 1):
        counting.kept.of(asked)
    assert len(counting.passes) == 3
    counting.kept.of(2)
    assert len(counting.passes) == 4
