"""Timers in one heap: set, moved and cancelled as often as one likes, handed out when they are due. Time is virtual."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.clock import START, LoopClock
from trimtab.controller.timers import CLOCK_CHECK, MAX_BATCH, TimerHeap, Timers

pytestmark = pytest.mark.looptime(start=0)


class Handed:
    """What was handed out and when, in seconds from the start."""

    def __init__(self) -> None:
        self.clock = LoopClock()
        self.timers: Timers[str] = Timers(self._take, self.clock)
        self.out: list[tuple[str, float]] = []

    def _take(self, value: str) -> None:
        self.out.append((value, round(self.clock.now() - START, 3)))

    def set(self, key: str, due: float, value: str = "") -> None:
        self.timers.set(key, START + due, value or key)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.timers.run())
        await asyncio.sleep(0)
        yield
        assert not task.done()
        task.cancel()
        await asyncio.wait({task})


@pytest.fixture
def handed() -> Handed:
    return Handed()


async def test_overdue_timer_fires_immediately(handed: Handed) -> None:
    async with handed.running():
        for number in range(5):
            handed.set(f"p{number}", -1)
        await asyncio.sleep(0.001)

    assert handed.out == [(f"p{number}", 0) for number in range(5)]


async def test_timer_fires_when_due(handed: Handed) -> None:
    async with handed.running():
        for number in range(5):
            handed.set(f"p{number}", 100)
        await asyncio.sleep(99.9)
        assert not handed.out
        await asyncio.sleep(0.2)

    assert handed.out == [(f"p{number}", 100) for number in range(5)]


async def test_cancelled_timer_does_not_fire(handed: Handed) -> None:
    async with handed.running():
        for number in range(5):
            handed.set(f"p{number}", 100)
        assert handed.timers.cancel("p2") == "p2"
        assert handed.timers.cancel("p2") is None
        assert handed.timers.cancel("unknown") is None
        await asyncio.sleep(200)

    assert [value for value, _ in handed.out] == ["p0", "p1", "p3", "p4"]


@pytest.mark.parametrize(("first", "then"), [(100, 30), (30, 100), (50, 50), (50, -5)])
async def test_rescheduled_timer_fires_once_at_its_new_time(handed: Handed, first: float, then: float) -> None:
    async with handed.running():
        handed.set("p", first, "old")
        await asyncio.sleep(10)
        handed.set("p", then, "new")
        await asyncio.sleep(300)

    assert handed.out == [("new", max(then, 10))]


async def test_timer_can_be_rescheduled_a_second_before_it_is_due(handed: Handed) -> None:
    async with handed.running():
        handed.set("p", 60)
        await asyncio.sleep(59)
        handed.set("p", 3600)
        await asyncio.sleep(100)
        assert not handed.out
        await asyncio.sleep(3600)

    assert handed.out == [("p", 3600)]


async def test_earlier_timer_set_during_a_wait_fires_first(handed: Handed) -> None:
    async with handed.running():
        handed.set("late", 500)
        await asyncio.sleep(100.25)
        handed.set("early", 100.5)
        await asyncio.sleep(1)

    assert handed.out == [("early", 100.5)]


async def test_many_are_handed_out_in_the_order_of_their_times(handed: Handed) -> None:
    number = 3 * MAX_BATCH + 1
    async with handed.running():
        for each in reversed(range(number)):
            handed.set(f"p{each:05}", 10 + each / 1000)
        assert len(handed.timers) == number
        await asyncio.sleep(60)

    assert [value for value, _ in handed.out] == [f"p{each:05}" for each in range(number)]
    assert len(handed.timers) == 0
    assert handed.timers.next_due is None


async def test_other_tasks_run_while_many_timers_are_due(handed: Handed) -> None:
    for each in range(4 * MAX_BATCH):
        handed.set(f"p{each}", -1)
    async with handed.running():
        assert len(handed.out) == MAX_BATCH
        await asyncio.sleep(0)
        assert MAX_BATCH < len(handed.out) <= 2 * MAX_BATCH
        await asyncio.sleep(0.1)
        assert len(handed.out) == 4 * MAX_BATCH


async def test_the_hosts_clock_may_be_set_forward(handed: Handed) -> None:
    async with handed.running():
        handed.set("p", 600)
        await asyncio.sleep(10)
        handed.clock.skew = 1000
        await asyncio.sleep(CLOCK_CHECK + 0.01)

    assert [value for value, _ in handed.out] == ["p"]


async def test_the_hosts_clock_may_be_set_back(handed: Handed) -> None:
    async with handed.running():
        handed.set("p", 20)
        await asyncio.sleep(10)
        handed.clock.skew = -100
        await asyncio.sleep(100)
        assert not handed.out
        await asyncio.sleep(20)

    assert handed.out == [("p", 20)]


async def test_failing_timer_does_not_delay_others(caplog: pytest.LogCaptureFixture) -> None:
    taken = []

    def take(value: int) -> None:
        taken.append(10 // value)

    timers: Timers[int] = Timers(take, LoopClock())
    task = asyncio.create_task(timers.run())
    for number in (2, 0, 5):
        timers.set(f"p{number}", START + number, number)
    with caplog.at_level(logging.CRITICAL, logger="trimtab"):
        await asyncio.sleep(10)
    task.cancel()
    await asyncio.wait({task})

    assert taken == [5, 2]


async def test_timers_set_before_run_fire(handed: Handed) -> None:
    handed.set("p", 5)
    await asyncio.sleep(60)
    assert "p" in handed.timers
    async with handed.running():
        await asyncio.sleep(0)

    assert handed.out == [("p", 60)]


def test_moving_timers_over_and_over_does_not_fill_the_memory() -> None:
    heap: TimerHeap[int] = TimerHeap()
    for round_ in range(20):
        for number in range(1000):
            heap.set(f"p{number}", round_ + number, number)

    assert len(heap) == 1000
    assert heap.entries <= 2 * len(heap)
    for number in range(1000):
        heap.cancel(f"p{number}")
    assert heap.next_due is None
    assert heap.entries == 0


operations = st.lists(
    st.tuples(st.sampled_from(["set", "set", "cancel", "take"]), st.sampled_from("abcdefgh"), st.integers(0, 20)),
    max_size=60,
)


@given(story=operations)
def test_heap_behaves_like_a_sorted_list(story: list[tuple[str, str, int]]) -> None:
    heap: TimerHeap[int] = TimerHeap()
    plain: dict[str, tuple[float, int]] = {}
    for number, (what, key, time) in enumerate(story):
        if what == "set":
            heap.set(key, time, number)
            plain[key] = (time, number)
        elif what == "cancel":
            assert heap.cancel(key) == plain.pop(key, (0, None))[1]
        else:
            due = sorted(each for each in plain.values() if each[0] <= time)[:3]
            assert heap.take(time, limit=3) == [each[1] for each in due]
            plain = {name: each for name, each in plain.items() if each not in due}
        assert len(heap) == len(plain)
        assert set("abcdefgh") & plain.keys() == {name for name in "abcdefgh" if name in heap}
        assert heap.next_due == min((each[0] for each in plain.values()), default=None)
