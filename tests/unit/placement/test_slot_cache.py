"""Arrays that are kept: what is computed anew, and what goes first."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders import node, pod
from trimtab.cluster import node_table
from trimtab.cluster.resources import CPU, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.placement import slot_cache
from trimtab.placement.slot_cache import SlotCache, Slots


class Counting:
    """Free cpu less what is asked for, with a note of what was computed."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes = snapshot.nodes
        self.passes: list[int] = []
        self.kept: SlotCache[int, np.int64] = SlotCache(snapshot.nodes)

    def compute(self, asked: int, slots: Slots) -> IntArray:
        free: IntArray = self.nodes.allocatable[slots, CPU] - self.nodes.requested[slots, CPU] - asked
        self.passes.append(len(free))
        return free


def snapshot() -> Snapshot:
    return Snapshot(node(f"n{number}").build() for number in range(20))


def test_only_changed_slots_are_recomputed():
    cluster = snapshot()
    counting = Counting(cluster)
    before = counting.kept.of(100, counting.compute).copy()
    cluster.put(pod("p").on("n3").cpu("1").build())
    after = counting.kept.of(100, counting.compute)
    assert counting.passes == [cluster.nodes.capacity, 1]
    assert np.flatnonzero(before != after).tolist() == [cluster.nodes.slot_of["n3"]]
    assert after[cluster.nodes.slot_of["n3"]] == 4000 - 1000 - 100


def test_hundreds_of_keys_are_cached():
    counting = Counting(snapshot())
    for _ in range(3):
        for requested in range(500):
            counting.kept.of(requested, counting.compute)
    assert len(counting.passes) == 500


def test_least_recently_used_key_is_dropped_first(monkeypatch):
    monkeypatch.setattr(slot_cache, "_MAX_KEYS", 2)
    counting = Counting(snapshot())
    for requested in (1, 2, 1, 3, 1):
        counting.kept.of(requested, counting.compute)
    assert len(counting.passes) == 3
    counting.kept.of(2, counting.compute)
    assert len(counting.passes) == 4


def test_reader_that_keeps_up_never_recomputes_all_slots_when_the_log_is_truncated(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(node_table, "_LOG", 10)
    cluster = snapshot()
    counting, slow = Counting(cluster), Counting(cluster)
    slow.kept.of(100, slow.compute)
    bound = pod("p").on("n3").cpu("1").build()
    for _ in range(30):
        counting.kept.of(100, counting.compute)
        cluster.put(bound)
        cluster.remove(bound)
    assert counting.passes == [cluster.nodes.capacity, *[1] * 29]
    slow.kept.of(100, slow.compute)
    assert slow.passes == [cluster.nodes.capacity] * 2, "the log no longer contains all changes"
    cluster.nodes.touch_all()
    counting.kept.of(100, counting.compute)
    assert counting.passes[-1] == cluster.nodes.capacity
