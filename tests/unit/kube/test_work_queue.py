from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.fakes.clock import LoopClock, SetClock
from trimtab.kube.api import Unreachable
from trimtab.kube.work_queue import WorkQueue


async def worked(reconcile: Callable[[str], Awaitable[float | None]], *keys: str, workers: int = 2) -> None:
    queue = WorkQueue(reconcile, workers=workers, clock=SetClock())
    for key in keys:
        queue.add(key)
    task = asyncio.create_task(queue.run())
    for _ in range(50):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_key_that_is_added_twice_is_looked_at_once() -> None:
    seen = []

    async def reconcile(key: str) -> None:
        seen.append(key)

    await worked(reconcile, "a", "b", "a")
    assert seen == ["a", "b"]


async def test_a_key_that_is_added_while_it_is_looked_at_has_its_turn_after_that() -> None:
    seen: list[str] = []
    busy = 0

    async def reconcile(key: str) -> None:
        nonlocal busy
        assert not busy
        busy += 1
        seen.append(key)
        if len(seen) == 1:
            queue.add(key)
        await asyncio.sleep(0)
        busy -= 1

    queue = WorkQueue(reconcile, workers=3, clock=SetClock())
    queue.add("a")
    task = asyncio.create_task(queue.run())
    for _ in range(50):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert seen == ["a", "a"]


async def test_what_fails_is_tried_again_and_what_asks_for_another_look_gets_it() -> None:
    seen = []

    async def reconcile(key: str) -> float | None:
        seen.append(key)
        if len(seen) == 1:
            raise Unreachable("no")
        return 5.0 if len(seen) == 2 else None

    await worked(reconcile, "a")
    assert seen == ["a", "a", "a"]


async def test_what_goes_wrong_in_an_unforeseen_way_is_tried_again_and_holds_nothing_else_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = []

    async def reconcile(key: str) -> None:
        seen.append(key)
        if seen.count("a") == 1 and key == "a":
            raise ValueError("a slip of ours")

    await worked(reconcile, "a", "b", workers=1)

    assert sorted(seen) == ["a", "a", "b"]
    assert "a slip of ours" in caplog.text


@pytest.mark.looptime
async def test_of_several_wishes_for_a_later_look_the_earliest_counts() -> None:
    seen: list[float] = []
    clock = LoopClock()

    async def reconcile(key: str) -> None:
        seen.append(clock.monotonic())

    queue = WorkQueue(reconcile, workers=1, clock=clock)
    task = asyncio.create_task(queue.run())
    for seconds in (10, 3, 7):
        queue.add_after("a", seconds)
    await asyncio.sleep(20)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert seen == [3]


@pytest.mark.looptime
async def test_a_queue_that_drains_ends_what_it_has_and_begins_nothing() -> None:
    seen = []

    async def reconcile(key: str) -> None:
        await asyncio.sleep(2)
        seen.append(key)

    queue = WorkQueue(reconcile, workers=1, clock=LoopClock())
    for key in ("a", "b"):
        queue.add(key)
    task = asyncio.create_task(queue.run())
    await asyncio.sleep(1)

    assert not await queue.drain(0.5)
    assert await queue.drain(5)
    await asyncio.sleep(5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert seen == ["a"]
