"""Pods of a megabyte that come through a watch: what they cost the event loop, the snapshot and the memory.

Each is a pod of the security review, or one of the same kind. The loop's share is measured in CPU time of its thread,
so that other processes on the machine do not matter.
"""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any, Final

import pytest

from tests.builders import node, pod
from tests.fakes.watch import END, HOLD, Protobuf, ScriptedApi
from trimtab.api import reasons
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.kube.resources import PODS
from trimtab.kube.watching.informer import Informer, prune_in_slices
from trimtab.kube.watching.store import Store
from trimtab.runtime.memory import MemoryReclaimer

pytestmark = pytest.mark.live

WIRE: Final = Protobuf()
LONGEST_SLICE: Final = 0.05
"""Seconds of CPU time that the loop may work without a pause."""

APPS: Final = 300
HOSTILE: Final = 10


def resources(number: int) -> dict[str, Any]:
    amounts = {f"x.io/p{number}-{each}": "1" for each in range(10_000)}
    return {"containers": [{"name": "c", "image": "i", "resources": {"limits": amounts, "requests": amounts}}]}


def anti_terms(number: int, many: int = 8_000) -> dict[str, Any]:
    required = [
        {
            "topologyKey": f"k{number}-{each % 7}",
            "namespaceSelector": {},
            "labelSelector": {"matchExpressions": [{"key": f"a{number}-{each}", "operator": "Exists"}]},
        }
        for each in range(many)
    ]
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def allowed_terms(number: int) -> dict[str, Any]:
    return anti_terms(number, 64)


def tolerations(number: int) -> dict[str, Any]:
    return {"tolerations": [{"key": f"k{number}-{each}", "operator": "Exists"} for each in range(20_000)]}


def node_selector(number: int) -> dict[str, Any]:
    return {"nodeSelector": {f"k{number}-{each}": "v" for each in range(20_000)}}


def containers(number: int) -> dict[str, Any]:
    return {"containers": [{"name": f"c{each}", "image": f"i{number}-{each}" * 8} for each in range(8_000)]}


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (resources, HOSTILE),
        (anti_terms, HOSTILE),
        (allowed_terms, 0),
        (tolerations, HOSTILE),
        (node_selector, HOSTILE),
        (containers, HOSTILE),
    ],
)
async def test_hostile_pods_block_the_event_loop_for_at_most_a_time_slice(make, expected) -> None:
    shared = SharedSnapshot()
    for number in range(20):
        shared.apply(None, node(f"n{number}").build())
    apps = [pod(f"w{number}").on(f"n{number % 20}").labels(app=f"a{number}").manifest() for number in range(APPS)]
    hostile = []
    for number in range(HOSTILE):
        manifest = pod(f"hostile-{number}").on("n0").manifest()
        manifest["spec"] |= make(number)
        hostile.append(WIRE.event("ADDED", manifest, 100 + number))
    attack = asyncio.Event()
    store: Store[Any] = Store()
    store.subscribe(shared.apply)
    initial = [*(WIRE.event("ADDED", each, 1) for each in apps), WIRE.bookmark("Pod", 10, END)]
    informer = Informer(ScriptedApi([[*initial, attack, *hostile, HOLD]]), PODS, store)
    running = asyncio.create_task(informer.run())
    await informer.synced()
    async with shared.borrow() as snapshot:
        width = snapshot.nodes.axis.width
        assert snapshot.affinity is not None  # from now on every pod is counted in it
    before, longest = informer._interner.statistics(), 0.0
    gc.collect()
    gc.freeze()  # as the operator does after the first fill: the objects of other tests are not to be walked
    attack.set()
    while len(store) < APPS + HOSTILE:
        began = time.thread_time()
        await asyncio.sleep(0.001)
        longest = max(longest, time.thread_time() - began)
    gc.unfreeze()
    assert longest < LONGEST_SLICE
    assert shared.too_complex[reasons.POD_TOO_COMPLEX] == expected
    async with shared.borrow() as snapshot:
        assert snapshot.nodes.axis.width == width
        assert snapshot.nodes.requested[snapshot.nodes.slot_of["n0"], 2] == APPS // 20 + HOSTILE
    for number in range(HOSTILE):
        store.remove(f"shop/hostile-{number}")

    class Watched:
        removals = HOSTILE

        async def reclaim(self) -> None:
            await prune_in_slices(informer._interner)

    await MemoryReclaimer(Watched(), shared).reclaim()
    after = informer._interner.statistics()
    assert after.specs <= before.specs
    assert after.values <= before.values + 1  # the informer still holds the last pod
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
