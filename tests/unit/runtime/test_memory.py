"""Memory that returns after objects are gone."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from tests.builders import node, pod
from tests.fakes.clock import LoopClock
from tests.protobuf import encode_object
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.controller.loop import TaskSupervisor
from trimtab.kube.objects import LabelSelector
from trimtab.kube.rules.selectors import label_matcher
from trimtab.kube.watching.informer import prune_in_slices
from trimtab.kube.watching.store import Store
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.protobuf import ProtobufCodec
from trimtab.runtime import memory
from trimtab.runtime.memory import (
    COLLECTION_PERIOD,
    COMPLETE_PERIOD,
    EXCLUSION_PERIOD,
    GROWTH,
    RECLAIM_PERIOD,
    FullCollections,
    MemoryReclaimer,
)

pytestmark = pytest.mark.looptime


class FakeWatches:
    """A pod store that feeds a snapshot, as the real watches."""

    def __init__(self, shared: SharedSnapshot) -> None:
        self.interner = Interner()
        self.store = Store()
        self.store.subscribe(shared.apply)
        self.codec = ProtobufCodec("Pod", self.interner)
        self.reclaimed = 0

    @property
    def removals(self) -> int:
        return self.store.removals

    async def reclaim(self) -> None:
        self.reclaimed += 1
        await prune_in_slices(self.interner)


def hostile(number: int) -> bytes:
    manifest = pod(f"hostile-{number}").on("n1").manifest()
    terms = [
        {"topologyKey": f"k{each % 7}", "labelSelector": {"matchLabels": {f"a{number}-{each}": "x"}}}
        for each in range(60)
    ]
    manifest["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    requests = {f"x.io/r{number}-{each}": "1" for each in range(50)}
    manifest["spec"]["containers"] = [{"name": "c", "resources": {"requests": requests}}]
    return encode_object(manifest)


async def test_memory_of_deleted_pods_is_reclaimed(monkeypatch) -> None:
    trimmed = []
    monkeypatch.setattr(memory, "trim", lambda: trimmed.append(True))
    shared = SharedSnapshot()
    watches = FakeWatches(shared)
    shared.apply(None, node("n1").build())
    kept = watches.codec.decode(encode_object(pod("kept").on("n1").manifest()))
    watches.store.apply(kept)
    await MemoryReclaimer(watches, shared).reclaim()
    before = watches.interner.statistics()
    for number in range(40):
        watches.store.apply(watches.codec.decode(hostile(number)))
    async with shared.borrow() as snapshot:
        assert len(snapshot._accounting._amounts) == 41
    label_matcher(LabelSelector())
    for key in [key for key in watches.store.objects if "hostile" in key]:
        watches.store.remove(key)
    await MemoryReclaimer(watches, shared).reclaim()
    after = watches.interner.statistics()
    assert (after.specs, after.values) == (before.specs, before.values)
    async with shared.borrow() as snapshot:
        assert len(snapshot._accounting._amounts) == 1
        assert not snapshot.complexity._namespaces
    assert label_matcher.cache_info().currsize == 0
    assert len(trimmed) == 2


async def test_memory_is_not_reclaimed_without_removals(monkeypatch) -> None:
    monkeypatch.setattr(memory, "trim", lambda: None)
    shared = SharedSnapshot()
    watches, tasks = FakeWatches(shared), TaskSupervisor("process", LoopClock())
    tasks.start_periodic("reclaim memory", MemoryReclaimer(watches, shared).reclaim_after_removals, RECLAIM_PERIOD)
    await asyncio.sleep(3.5 * RECLAIM_PERIOD)
    assert watches.reclaimed == 0
    watches.store.apply(watches.codec.decode(hostile(1)))
    await asyncio.sleep(2 * RECLAIM_PERIOD)
    assert watches.reclaimed == 0
    watches.store.remove("shop/hostile-1")
    await asyncio.sleep(3 * RECLAIM_PERIOD)
    assert watches.reclaimed == 1
    await tasks.cancel()


def test_heap_is_trimmed_if_the_c_library_supports_it() -> None:
    memory.tune_allocator()
    memory.trim()


@pytest.mark.skipif(memory._libc() is None, reason="the C library is not glibc")
def test_buffers_of_tls_reads_have_no_memory_mapping_of_their_own() -> None:
    script = """
import os, resource
from trimtab.runtime.memory import tune_allocator

def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

tune_allocator()
reading, writing = os.pipe()
for number in range(110):
    if number == 10:
        before = page_faults()
    os.write(writing, b"record")
    os.read(reading, 256 * 1024)  # allocates a buffer as uvloop does for a TLS connection
print(page_faults() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 50


class Collections:
    """Records the full garbage collections of a process whose memory the test sets."""

    def __init__(self, monkeypatch) -> None:
        self.calls: list[str] = []
        self.resident = 100_000_000.0
        monkeypatch.setattr(memory.gc, "collect", lambda: self.calls.append("collect") or 0)
        monkeypatch.setattr(memory.gc, "freeze", lambda: self.calls.append("freeze"))
        monkeypatch.setattr(memory.gc, "unfreeze", lambda: self.calls.append("unfreeze"))
        monkeypatch.setattr(memory, "resident_bytes", lambda: int(self.resident))
        self.full = FullCollections(LoopClock())

    async def after(self, seconds: float) -> list[str]:
        await asyncio.sleep(seconds)
        self.calls.clear()
        await self.full.collect_if_due()
        return self.calls


async def test_garbage_is_collected_when_memory_has_grown(monkeypatch) -> None:
    collections = Collections(monkeypatch)
    assert await collections.after(1.0) == []
    collections.resident *= GROWTH - 0.01
    assert await collections.after(1.0) == []
    collections.resident *= 1.02
    assert await collections.after(1.0) == ["collect", "freeze"]
    assert await collections.after(1.0) == []
    collections.resident *= GROWTH + 0.01
    assert await collections.after(1.0) == ["collect"]


async def test_garbage_is_collected_every_minute_and_survivors_are_excluded_every_ten(monkeypatch) -> None:
    collections = Collections(monkeypatch)
    assert await collections.after(COLLECTION_PERIOD) == ["collect", "freeze"]
    assert await collections.after(COLLECTION_PERIOD - 1.0) == []
    assert await collections.after(1.0) == ["collect"]
    assert await collections.after(EXCLUSION_PERIOD - COLLECTION_PERIOD) == ["collect", "freeze"]
    assert await collections.after(COLLECTION_PERIOD) == ["collect"]
    assert await collections.after(EXCLUSION_PERIOD) == ["collect", "freeze"]


async def test_garbage_is_collected_completely_at_times(monkeypatch) -> None:
    collections = Collections(monkeypatch)
    assert await collections.after(COMPLETE_PERIOD) == ["unfreeze", "collect", "freeze"]
    assert await collections.after(COLLECTION_PERIOD) == ["collect"]
