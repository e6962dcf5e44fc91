"""What is a reason for a pass, and how reasons are gathered."""

from __future__ import annotations

import asyncio

import pytest

from tests.builders import machine_set, pod
from tests.fakes.clock import LoopClock
from trimtab.autoscaling.trigger import Trigger
from trimtab.autoscaling.turn import Turn
from trimtab.kube.objects import Machine, Pod

pytestmark = pytest.mark.looptime(start=0)

WAITING = pod("a").unschedulable().build()
RUNNING = pod("a").on("n1").ready().build()
FRESH = pod("a").phase("Pending").build()


@pytest.mark.parametrize(
    ("old", "new", "is_one"),
    [
        pytest.param(None, WAITING, True, id="a pod that comes without a place"),
        pytest.param(FRESH, WAITING, True, id="a pod that the scheduler has looked at"),
        pytest.param(WAITING, WAITING, False, id="the same told again"),
        pytest.param(WAITING, RUNNING, False, id="a pod that has its place"),
        pytest.param(None, FRESH, False, id="a pod that nobody has looked at"),
        pytest.param(WAITING, None, False, id="a pod that is gone"),
    ],
)
async def test_a_reason_is_a_pod_that_newly_finds_no_node(old: Pod | None, new: Pod | None, is_one: bool) -> None:
    trigger = Trigger(LoopClock())
    trigger.pod_changed(old, new)
    assert trigger.pending is is_one


async def test_a_machine_that_failed_is_a_reason_once() -> None:
    trigger = Trigger(LoopClock())
    made = machine_set("a")
    well, failed = made.machine("m").build(), made.machine("m").failed("Quota", "none left").build()
    assert isinstance(well, Machine)
    assert isinstance(failed, Machine)
    trigger.machine_changed(None, well)
    assert not trigger.pending
    trigger.machine_changed(well, failed)
    assert trigger.pending
    trigger.clear()
    trigger.machine_changed(failed, failed)
    assert not trigger.pending


async def test_reasons_that_come_together_make_one_pass_and_a_stream_of_them_does_not_hold_it_up() -> None:
    clock = LoopClock()
    trigger = Trigger(clock)

    async def stream() -> None:
        while True:
            trigger.wake()
            await asyncio.sleep(0.05)

    streaming = asyncio.create_task(stream())
    await trigger.wait(10.0)
    assert clock.monotonic() == pytest.approx(0.5, abs=0.15)
    streaming.cancel()


async def test_without_a_reason_the_period_passes() -> None:
    clock = LoopClock()
    await Trigger(clock).wait(10.0)
    assert clock.monotonic() == pytest.approx(10.0)


async def test_a_turn_is_taken_only_where_nobody_has_it_and_who_stands_in_line_is_woken() -> None:
    lock, woken = asyncio.Lock(), asyncio.Event()
    turn = Turn(lock, woken.set)
    assert await turn.take()
    assert lock.locked()
    turn.give_back()
    await lock.acquire()
    assert not await turn.take()
    turn.stand_in_line()
    await asyncio.sleep(1)
    assert not woken.is_set()
    lock.release()
    await woken.wait()
    assert turn.ours
    assert await turn.take()
    await turn.leave()
    assert not lock.locked()


async def test_who_leaves_the_line_does_not_get_the_turn() -> None:
    lock = asyncio.Lock()
    turn = Turn(lock, lambda: None)
    await lock.acquire()
    turn.stand_in_line()
    await asyncio.sleep(0)
    await turn.leave()
    lock.release()
    await asyncio.sleep(0)
    assert not lock.locked()
