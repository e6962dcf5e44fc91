"""Measures how long the recheck of a planned eviction waits for the snapshot while planners use it, on 5,000 nodes."""

from __future__ import annotations

import asyncio
import gc
import logging
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import uvloop

from benchmarks import passing, planning
from benchmarks.clusters import Shape, cluster
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.plan import Evict
from trimtab.cluster.lister import Lister
from trimtab.cluster.shared_snapshot import SharedSnapshot, in_thread
from trimtab.descheduling.planning.planner import plan_evictions
from trimtab.descheduling.planning.recheck import recheck_move
from trimtab.kube.events.recorder import EventRecorder
from trimtab.kube.watching.store import Store

PLANS: Final = 6
WORKERS: Final = 8
"""The number of concurrent rechecks, which equals the descheduler's number of concurrent requests."""
PAUSE: Final = 0.05
"""Seconds between an eviction and the next recheck of a worker."""

Result = dict[str, Any]


def behind_plans() -> Result:
    """Recheck the evictions of ``plan-5k`` while the same planner plans repeatedly, with a pause of one second."""
    policy = planning.five()
    shared = _shared(cluster(Shape()))

    async def planner() -> None:
        async with shared.borrow() as snapshot:
            await in_thread(lambda: plan_evictions(snapshot, [policy], now=planning.NOW))
        await asyncio.sleep(1)

    async def actions() -> Sequence[Evict]:
        async with shared.borrow() as snapshot:
            return (await in_thread(lambda: plan_evictions(snapshot, [policy], now=planning.NOW))).actions

    async def run() -> Result:
        return await _measured(shared, policy, await actions(), planner)

    return uvloop.run(run())


def behind_iterations() -> Result:
    """Recheck evictions while an autoscaler with 5,000 pending pods iterates, with a pause of one second."""
    policy, lister = planning.five(), Lister(Store(), Store(), Store())
    shared = _shared(passing.objects(passing.Cluster(pending=5000)))

    async def run() -> Result:
        server = passing.Server()
        async with EventRecorder(server, instance="benchmark") as recorder:
            passes, autoscaler = passing.make_autoscaler(shared, lister, server, recorder)
            async with shared.borrow() as snapshot:
                bound = [pod for pod in snapshot.pods.values() if pod.node][:: len(snapshot.pods) // 500]
            found = [
                Evict("p", "LowNodeUtilization", pod.namespace, pod.name, pod.node, "node-00001", "", "", uid=pod.uid)
                for pod in bound
            ]

            async def iterate() -> None:
                await passes.reconcile(autoscaler)
                await asyncio.sleep(1)

            await iterate()  # the first one asks for nodes
            result = await _measured(shared, policy, found, iterate)
            await passes.stop()
            return result

    return uvloop.run(run())


def _shared(objects: Any) -> SharedSnapshot:
    logging.disable(logging.INFO)
    shared = SharedSnapshot()
    for each in objects:
        shared.apply(None, each)
    gc.collect()
    gc.freeze()
    return shared


async def _measured(
    shared: SharedSnapshot, policy: DeschedulerPolicy, actions: Sequence[Evict], work: Callable[[], Awaitable[None]]
) -> Result:
    waited, took, lent = list[float](), list[float](), list[float]()
    worked = time.process_time()

    async def validate(number: int) -> None:
        for turn in range(number, 10**9, WORKERS):
            asked = time.perf_counter()
            async with shared.borrow(short=True) as snapshot:
                served = time.perf_counter()
                recheck_move(snapshot, policy, actions[turn % len(actions)], planning.NOW)
                took.append(time.perf_counter() - served)
            waited.append(served - asked)
            await asyncio.sleep(PAUSE)

    validating = [asyncio.create_task(validate(number)) for number in range(WORKERS)]
    for _ in range(PLANS):
        started = time.perf_counter()
        await work()
        lent.append(time.perf_counter() - started - 1.0)
    for task in validating:
        task.cancel()
    await asyncio.gather(*validating, return_exceptions=True)
    behind = sorted(wait for wait in waited if wait > 0.05)
    params = {
        "validations": len(waited),
        "waited": len(behind),
        "waited_median_s": round(statistics.median(behind or [0.0]), 3),
        "waited_max_s": round(max(waited), 3),
        "others_ms": round(1e3 * statistics.median(wait for wait in waited if wait <= 0.05), 2),
        "took_ms": round(1e3 * statistics.median(took), 2),
        "took_max_ms": round(1e3 * max(took), 1),
        "planner_max_s": round(max(lent), 3),
        "cpu_s": round(time.process_time() - worked, 2),
    }
    return {"seconds": statistics.median(lent), "params": params}
