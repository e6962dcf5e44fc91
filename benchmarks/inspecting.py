"""Measures the inspection API's answers from a snapshot in memory, and how long they delay the event loop."""

from __future__ import annotations

import asyncio
import resource
import statistics
import time
from typing import Any, Final

from benchmarks.clusters import Shape, cluster
from benchmarks.placement import replica_sets
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.runtime.inspection.inspector import Inspector
from trimtab.runtime.inspection.questions import NotServed, Question

CLIENTS: Final = 10
SECONDS: Final = 10.0
TICK: Final = 0.005

Result = dict[str, Any]


class _NoPolicies:
    """An API server without policies and history."""

    async def request(self, *_: Any, **__: Any) -> Any:
        return {"items": [], "metadata": {}}

    def stream(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def inspect() -> Result:
    """Ask for explanations: one client at first, then ten clients that ask continuously for ten seconds.

    ``seconds`` is the slowest answer for the only client.
    """
    return asyncio.run(_inspect())


async def _inspect() -> Result:
    shape, shared = Shape(), SharedSnapshot()
    names = []
    for each in (*cluster(shape), *replica_sets()):
        shared.apply(None, each)
    async with shared.borrow() as snapshot:
        names = [pod.key.split("/") for pod in list(snapshot.pods.values())[: CLIENTS * 50]]
        nodes = list(snapshot.nodes.slot_of)[:CLIENTS]
    inspector = Inspector(_NoPolicies(), shared, not_ready=lambda: None)
    pods = [Question("pods/explanation", namespace, name) for namespace, name in names]
    before = _peak()
    alone = {}
    for kind, question in (("pod", pods[0]), ("node", Question("nodes/explanation", "", nodes[0]))):
        began = time.perf_counter()
        await inspector.answer(question)
        alone[kind] = time.perf_counter() - began
    taken: list[float] = []
    refused = 0
    ends = time.perf_counter() + SECONDS

    async def client(questions: list[Question]) -> None:
        nonlocal refused
        number = 0
        while time.perf_counter() < ends:
            began = time.perf_counter()
            try:
                await inspector.answer(questions[number % len(questions)])
                taken.append(time.perf_counter() - began)
            except NotServed:
                refused += 1
                await asyncio.sleep(1.0)
            number += 1

    lag = asyncio.create_task(_lag(ends))
    await asyncio.gather(*(client(pods[number::CLIENTS]) for number in range(CLIENTS)))
    lags = sorted(await lag)
    params = {
        "nodes": shape.nodes,
        "pods": shape.pods,
        "milliseconds": {kind: round(1000 * seconds, 1) for kind, seconds in alone.items()},
        "clients": CLIENTS,
        "answers": len(taken),
        "refused": refused,
        "median_milliseconds": round(1000 * statistics.median(taken), 1),
        "slowest_milliseconds": round(1000 * max(taken), 1),
        "lag_p99_milliseconds": round(1000 * lags[int(len(lags) * 0.99)], 1),
        "lag_max_milliseconds": round(1000 * lags[-1], 1),
        "growth_mb": round((_peak() - before) / 1024, 1),
    }
    return {"seconds": max(alone.values()), "params": params}


async def _lag(ends: float) -> list[float]:
    found = []
    while (began := time.perf_counter()) < ends:
        await asyncio.sleep(TICK)
        found.append(time.perf_counter() - began - TICK)
    return found


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
