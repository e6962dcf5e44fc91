"""Pods stand in line for workers: namespaces take turns, and none takes them all."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.kube.objects import Taint
from trimtab.tainting.deadlines import Deadline
from trimtab.tainting.ending.job import Job
from trimtab.tainting.ending.line import Line

pytestmark = pytest.mark.looptime(start=0)


def job(namespace: str, name: object = "p") -> Job:
    return Job(Deadline(f"{namespace}/{name}", "", "n1", 0, 0, Taint("a", "NoExecute"), None))


async def handed(line: Line, workers: int) -> tuple[list[Job], list[asyncio.Task[Job]]]:
    """What so many workers get that ask at once, and those that get nothing."""
    tasks = [asyncio.create_task(line.next()) for _ in range(workers)]
    await asyncio.sleep(0.1)
    return [task.result() for task in tasks if task.done()], [task for task in tasks if not task.done()]


async def end(tasks: list[asyncio.Task[Job]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_namespace_has_three_quarters_of_the_workers_and_others_the_rest() -> None:
    line = Line(32)
    for number in range(100):
        line.put(job("a", number))
    got, idle = await handed(line, 32)
    assert len(got) == 24
    for number in range(100):
        line.put(job("b", number))
    for number in range(100):
        line.put(job("c", number))
    await asyncio.sleep(0.1)
    took = Counter(each.result().deadline.key[0] for each in idle if each.done())
    assert took["b"] >= 2
    assert took["c"] >= 1
    await end(idle)


async def test_a_single_worker_takes_all_in_turn() -> None:
    line = Line(1)
    for number in range(3):
        line.put(job("a", number))
        line.put(job("b", number))
    keys = []
    for _ in range(6):
        each = await line.next()
        keys.append(each.deadline.key)
        line.done(each)
    assert keys == ["a/0", "b/0", "a/1", "b/1", "a/2", "b/2"]


async def test_a_worker_that_is_ended_in_the_moment_it_gets_a_pod_leaves_it_in_line() -> None:
    line = Line(2)
    task = asyncio.create_task(line.next())
    await asyncio.sleep(0)
    line.put(job("a"))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (await line.next()).deadline.key == "a/p"


@given(
    st.lists(st.sampled_from("aaaaaabcd"), max_size=60),
    st.integers(1, 9),
)
def test_everybody_comes_once_while_workers_end(namespaces: list[str], workers: int) -> None:
    async def all_go() -> list[str]:
        line, seen = Line(workers), []

        async def work() -> None:
            while True:
                each = await line.next()
                seen.append(each.deadline.key)
                await asyncio.sleep(0)
                line.done(each)

        tasks = [asyncio.create_task(work()) for _ in range(workers)]
        for number, namespace in enumerate(namespaces):
            line.put(job(namespace, number))
            if number % 7 == 0:
                await asyncio.sleep(0)
        for _ in range(10 * len(namespaces) + 10):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return seen

    seen = asyncio.run(all_go())
    assert sorted(seen) == sorted(f"{each}/{number}" for number, each in enumerate(namespaces))
