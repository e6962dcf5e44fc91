"""Events that wake the autoscaler's loop, and how bursts of them are gathered."""

from __future__ import annotations

import asyncio

import pytest

from tests.builders import machine_set, pod
from tests.fakes.clock import LoopClock
from trimtab.autoscaling.reconciler import DisruptionLock
from trimtab.autoscaling.trigger import Trigger
from trimtab.kube.objects import Machine, Pod

pytestmark = pytest.mark.looptime(start=0)

WAITING = pod("a").unschedulable().build()
RUNNING = pod("a").on("n1").ready().build()
FRESH = pod("a").phase("Pending").build()


@pytest.mark.parametrize(
    ("old", "new", "is_one"),
    [
        pytest.param(None, WAITING, True, id="new unschedulable pod"),
        pytest.param(FRESH, WAITING, True, id="pod becomes unschedulable"),
        pytest.param(WAITING, WAITING, False, id="repeated event"),
        pytest.param(WAITING, RUNNING, False, id="scheduled pod"),
        pytest.param(None, FRESH, False, id="pod not evaluated yet"),
        pytest.param(WAITING, None, False, id="deleted pod"),
    ],
)
async def test_newly_unschedulable_pod_wakes_the_loop(old: Pod | None, new: Pod | None, is_one: bool) -> None:
    trigger = Trigger(LoopClock())
    trigger.pod_changed(old, new)
    assert trigger.pending is is_one


async def test_failed_machine_wakes_the_loop_once() -> None:
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


async def test_burst_of_wakeups_starts_one_iteration_and_does_not_delay_it() -> None:
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


async def test_without_a_wakeup_the_period_passes() -> None:
    clock = LoopClock()
    await Trigger(clock).wait(10.0)
    assert clock.monotonic() == pytest.approx(10.0)


async def test_lock_is_acquired_only_if_free_and_waiters_are_woken() -> None:
    lock, woken = asyncio.Lock(), asyncio.Event()
    turn = DisruptionLock(lock, woken.set)
    assert await turn.try_acquire()
    assert lock.locked()
    turn.release()
    await lock.acquire()
    assert not await turn.try_acquire()
    turn.acquire_later()
    await asyncio.sleep(1)
    assert not woken.is_set()
    lock.release()
    await woken.wait()
    assert turn.held
    assert await turn.try_acquire()
    await turn.close()
    assert not lock.locked()


async def test_cancelled_waiter_does_not_get_the_lock() -> None:
    lock = asyncio.Lock()
    turn = DisruptionLock(lock, lambda: None)
    await lock.acquire()
    turn.acquire_later()
    await asyncio.sleep(0)
    await turn.close()
    lock.release()
    await asyncio.sleep(0)
    assert not lock.locked()
