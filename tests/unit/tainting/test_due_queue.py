"""Due pods wait for workers: namespaces take turns, none takes all workers, refused pods go behind the others."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.unit.tainting.test_user_taint_rates import Desk, due_pod
from trimtab.api.taint_manager import UserTaintRates

pytestmark = pytest.mark.looptime(start=0)


class Slow(Desk):
    """Its workers take ten seconds for each pod."""

    async def _process(self, key: str) -> None:
        await super()._process(key)
        await asyncio.sleep(10)


async def test_one_namespace_has_three_quarters_of_the_workers_and_others_the_rest() -> None:
    desk = Slow(UserTaintRates(), workers=32)
    desk.add(*(due_pod(f"a{number}", namespace="a") for number in range(100)))
    running = asyncio.create_task(desk.queue.work.run())
    await asyncio.sleep(1)
    assert len(desk.went) == 24
    desk.add(*(due_pod(f"{name}{number}", namespace=name) for name in "bc" for number in range(100)))
    await asyncio.sleep(1)
    took = Counter(name[0] for name in desk.went)
    assert took["b"] >= 2
    assert took["c"] >= 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_single_worker_alternates_namespaces() -> None:
    desk = Desk(UserTaintRates(), workers=1)
    for number in range(3):
        desk.add(*(due_pod(f"{name}{number}", due=number, namespace=name) for name in "ab"))
    assert await desk.run(1) == ["a0", "b0", "a1", "b1", "a2", "b2"]


async def test_refused_pod_is_queued_behind_new_ones() -> None:
    desk = Desk(UserTaintRates(), workers=1)
    refused = due_pod("old", due=-100)
    refused.attempts = 3
    desk.add(refused, due_pod("new", due=0))
    assert await desk.run(1) == ["new", "old"]


async def test_cancelled_pod_is_processed_by_next_run() -> None:
    desk = Slow(UserTaintRates(), workers=2)
    desk.add(due_pod("p"))
    assert await desk.run(1) == ["p"]
    desk.went.clear()
    assert await desk.run(1) == ["p"]
