"""Loops on virtual time: what starts an iteration, what a failure does, how a loop ends; and supervised tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from tests.fakes.clock import LoopClock
from tests.fakes.daemon import Stopped
from tests.fixtures.golden import Golden
from trimtab.controller.loop import TASK_RESTART, BackgroundTasks, ControllerLoop, NotReadyReason, TaskSupervisor
from trimtab.kube.errors import InputError

pytestmark = pytest.mark.looptime(start=0)


class Controller(ControllerLoop[str]):
    """A controller of an object whose spec is a word; records what was called when."""

    def __init__(self, *, pause: float | None = 10.0, takes: float = 0.0, busy: float = 1.0, **options: Any) -> None:
        super().__init__("thing", LoopClock(busy=busy), **options)
        self.calls: list[tuple[str, float]] = []
        self.failures = 0
        self._pause = pause
        self._takes = takes

    def _record(self, what: str) -> None:
        self.calls.append((what, round(self._loop_clock.monotonic(), 3)))

    def _decode(self, body: Mapping[str, Any]) -> str:
        if body["spec"] == "bad":
            raise InputError("spec: bad")
        return str(body["spec"])

    def _resume(self, status: Mapping[str, Any]) -> None:
        self._record(f"resume {status.get('count', 0)}")

    async def _reconcile(self, obj: str) -> float | None:
        self._record(obj)
        await asyncio.sleep(self._takes)
        if self.failures:
            self.failures -= 1
            raise ValueError("a slip")
        return self._pause

    async def _invalid(self, problem: InputError) -> float | None:
        self._record(str(problem))
        return None

    async def _failed(self, error: Exception) -> float | None:
        self._record(f"failed: {error}")
        return 3.0

    async def _finish(self) -> None:
        self._record("finish")


def body(spec: str, *, generation: int = 1, uid: str = "u1", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "thing", "generation": generation, "uid": uid}, "spec": spec, **more}


async def run(controller: Controller, seconds: float) -> None:
    stop = Stopped()
    task = asyncio.create_task(controller.run(stop))
    await asyncio.sleep(seconds)
    stop.set()
    await asyncio.wait({task}, timeout=60)
    assert task.done()
    task.result()


async def test_iterations_start_after_the_returned_delay_and_when_woken() -> None:
    controller = Controller()
    controller.observe(body("a"))
    asyncio.get_running_loop().call_later(14, controller.wake)
    await run(controller, 30)
    assert controller.calls == [("resume 0", 0), ("a", 0), ("a", 10), ("a", 14), ("a", 24), ("finish", 30)]


async def test_a_new_generation_starts_an_iteration_and_an_old_one_does_not() -> None:
    controller = Controller(pause=None)
    controller.observe(body("a", status={"count": 7}))
    loop = asyncio.get_running_loop()
    loop.call_later(1, controller.observe, body("a"))
    loop.call_later(2, controller.observe, body("b", generation=2))
    loop.call_later(3, controller.observe, body("b", generation=2, uid="u2"))
    await run(controller, 5)
    assert controller.calls == [("resume 7", 0), ("a", 0), ("b", 2), ("resume 0", 3), ("b", 3), ("finish", 5)]


async def test_a_spec_that_cannot_be_used_is_reported_until_it_can() -> None:
    controller = Controller(pause=None)
    controller.observe(body("bad"))
    asyncio.get_running_loop().call_later(2, controller.observe, body("good", generation=2))
    await run(controller, 5)
    assert controller.calls[1:] == [("spec: bad", 0), ("good", 2), ("finish", 5)]


async def test_an_iteration_that_fails_is_reported_and_retried(
    caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    controller = Controller()
    controller.failures = 2
    controller.observe(body("a"))
    await run(controller, 15)
    failed = "failed: a slip"
    assert controller.calls[1:] == [("a", 0), (failed, 0), ("a", 3), (failed, 3), ("a", 6), ("finish", 15)]
    first, second = (each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING)
    assert first == second
    golden(first)


async def test_loop_pauses_between_iterations_even_if_woken() -> None:
    controller = Controller(pause=0.0, takes=1.0, rest=0.5, rest_share=2.0)
    controller.observe(body("a"))
    await run(controller, 8.5)
    assert controller.calls[1:] == [("a", 0), ("a", 3), ("a", 6), ("finish", 8.5)]


@pytest.mark.parametrize(
    ("busy", "max_rest", "starts"),
    [
        pytest.param(1.0, 60.0, [0, 11, 22], id="all of the time on the CPU"),
        pytest.param(0.01, 60.0, [0, 1.5, 3, 4.5, 6], id="almost all of the time waiting"),
        pytest.param(1.0, 2.0, [0, 3, 6, 9], id="limited"),
        pytest.param(4.0, 60.0, [0, 11, 22], id="other threads use the CPU as well"),
    ],
)
async def test_pause_follows_the_cpu_time_of_the_iteration(busy: float, max_rest: float, starts: list[float]) -> None:
    controller = Controller(pause=0.0, takes=1.0, busy=busy, rest=0.5, rest_share=10.0, max_rest=max_rest)
    controller.observe(body("a"))
    await run(controller, starts[-1] + 0.9)
    assert [at for what, at in controller.calls if what == "a"] == starts


@pytest.mark.parametrize("how", ["stopped", "ended", "closed"])
async def test_a_rest_ends_with_the_loop_and_nothing_else_shortens_it(how: str) -> None:
    controller = Controller(pause=0.0, rest=1000.0)
    controller.observe(body("a"))
    stop = Stopped()
    task = asyncio.create_task(controller.run(stop))
    loop = asyncio.get_running_loop()
    loop.call_later(2, controller.wake)
    loop.call_later(3, controller.observe, body("b", generation=2))
    loop.call_later(5, {"stopped": stop.set, "ended": controller.end, "closed": controller.close}[how])
    await asyncio.wait({task}, timeout=60)
    assert task.done()
    assert controller.calls[1:] == [("a", 0), ("finish", 5)]


async def test_the_iteration_in_progress_finishes_before_the_loop_ends() -> None:
    controller = Controller(takes=5)
    controller.observe(body("a"))
    await run(controller, 1)
    assert controller.calls[1:] == [("a", 0), ("finish", 5)]


async def test_the_loop_of_a_deleted_object_ends() -> None:
    controller = Controller()
    controller.observe(body("a"))
    asyncio.get_running_loop().call_later(4, controller.end)
    task = asyncio.create_task(controller.run(Stopped()))
    await asyncio.sleep(20)
    assert task.done()
    assert controller.deleted
    assert controller.calls[1:] == [("a", 0), ("finish", 4)]


async def test_a_cancelled_loop_finishes_too() -> None:
    controller = Controller(takes=100)
    controller.observe(body("a"))
    task = asyncio.create_task(controller.run(Stopped()))
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait({task})
    assert controller.calls[-1] == ("finish", 1)


def test_a_reason_not_to_act_is_reported_once_it_lasts() -> None:
    reason = NotReadyReason(5)
    assert not reason
    assert [reason.lasting("stale", now) for now in (0, 4, 5, 6)] == ["", "", "stale", "stale"]
    assert reason
    assert reason.lasting(None, 7) == ""
    assert not reason
    assert reason.lasting("stale", 8) == ""


async def test_failed_task_is_restarted_and_other_tasks_continue() -> None:
    tasks = TaskSupervisor("things", LoopClock())
    starts: dict[str, int] = {"fails": 0, "returns": 0, "runs": 0}

    async def fails() -> None:
        starts["fails"] += 1
        raise ValueError("a slip")

    async def returns() -> None:
        starts["returns"] += 1

    async def runs() -> None:
        starts["runs"] += 1
        await asyncio.sleep(1000)

    for each in (fails, returns, runs):
        tasks.start(each.__name__, each)
    await asyncio.sleep(0.5)
    assert tasks.problems == {"fails": "fails: ValueError: a slip"}
    await asyncio.sleep(100)
    assert starts["fails"] > 3
    assert starts["returns"] > 3
    assert starts["runs"] == 1
    await tasks.cancel()
    assert tasks.problems == {}


async def test_a_supervised_task_backs_off_from_the_start_once_it_was_stable() -> None:
    tasks, starts = TaskSupervisor("things", LoopClock()), list[float]()

    async def fails_late() -> None:
        starts.append(asyncio.get_running_loop().time())
        await asyncio.sleep(100)
        raise ValueError("a slip")

    tasks.start("fails late", fails_late)
    await asyncio.sleep(1000)
    pauses = [after - before - 100 for before, after in pairwise(starts)]
    assert len(pauses) > 5
    assert max(pauses) <= TASK_RESTART.initial * (1 + TASK_RESTART.jitter)
    await tasks.cancel()


async def test_background_tasks_are_awaited_for_the_grace_period_and_then_cancelled() -> None:
    tasks, ended = BackgroundTasks(), list[str]()

    async def work(name: str, takes: float) -> None:
        try:
            await asyncio.sleep(takes)
        except asyncio.CancelledError:
            ended.append(f"{name} cancelled")
            raise
        ended.append(f"{name} done")
        if name == "parent":
            tasks.start(work("child", 100))

    async def fails() -> None:
        raise ValueError("a slip")

    tasks.start(work("parent", 2))
    tasks.start(work("slow", 100))
    tasks.start(fails(), "fails")
    assert len(tasks) == 3
    await asyncio.sleep(1)
    assert len(tasks) == 2
    began = asyncio.get_running_loop().time()
    await tasks.stop(10)
    assert asyncio.get_running_loop().time() - began == pytest.approx(10)
    assert (ended[0], set(ended[1:]), len(tasks)) == ("parent done", {"child cancelled", "slow cancelled"}, 0)


async def test_background_tasks_without_grace_period_are_cancelled_immediately() -> None:
    tasks = BackgroundTasks()
    task = tasks.start(asyncio.sleep(100), "sleep")
    assert task.get_name() == "sleep"
    began = asyncio.get_running_loop().time()
    await tasks.stop()
    assert (task.cancelled(), len(tasks)) == (True, 0)
    assert asyncio.get_running_loop().time() == began


@pytest.mark.parametrize(("takes", "ended"), [(2, "by itself"), (100, "cancelled")])
async def test_supervised_task_may_end_before_its_deadline(takes: float, ended: str) -> None:
    tasks, closing, how = TaskSupervisor("things", LoopClock()), asyncio.Event(), list[str]()

    async def run() -> None:
        try:
            await closing.wait()
            await asyncio.sleep(takes)
        except asyncio.CancelledError:
            how.append("cancelled")
            raise
        how.append("by itself")

    async def stop() -> None:
        closing.set()

    tasks.start("slow", run)
    await asyncio.sleep(1)
    await tasks.end("slow", stop, seconds=10)
    assert how == [ended]
