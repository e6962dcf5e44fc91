"""Which parts count as inactive or failing, and whose plans as stale."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from tests.fakes.clock import LoopClock
from trimtab.api import reasons
from trimtab.controller.loop import Loop, TaskSupervisor
from trimtab.controller.metrics import WorkQueueMetrics
from trimtab.controller.progress import (
    MAX_TOLERANCE,
    MIN_TOLERANCE,
    PROGRESS_REGISTRY,
    RESTART_TIME,
    Component,
    PlanSchedule,
    Problem,
    Progress,
)
from trimtab.controller.work_queue import WorkQueue
from trimtab.kube.resources import TAINT_MANAGERS
from trimtab.kube.token_bucket import ALWAYS

pytestmark = pytest.mark.looptime
INACTIVITY, FAILING = 600.0, 900.0


@pytest.fixture
async def progress() -> Iterator[Progress]:
    made = Progress(asyncio.get_running_loop().time)
    PROGRESS_REGISTRY.set(made)
    return made


def found(progress: Progress) -> list[tuple[str, str]]:
    problems = progress.problems(max_inactivity=INACTIVITY, max_failing_time=FAILING)
    return [(each.component, each.reason) for each in problems]


def part_of(progress: Progress) -> Component:
    return progress.component("it")


async def test_work_in_progress_without_a_sign_is_inactive(progress: Progress) -> None:
    component = part_of(progress)
    component.begin()
    await asyncio.sleep(INACTIVITY - 1)
    component.advance()
    await asyncio.sleep(INACTIVITY - 1)
    assert found(progress) == []
    await asyncio.sleep(2)
    assert found(progress) == [("it", reasons.INACTIVE)]
    component.succeed()
    await asyncio.sleep(10 * INACTIVITY)
    assert found(progress) == [], "nothing is due"


async def test_work_that_is_due_and_does_not_begin_is_inactive(progress: Progress) -> None:
    component = part_of(progress)
    component.begin()
    component.succeed(due_in=3600.0)
    await asyncio.sleep(3600 + INACTIVITY - 1)
    assert found(progress) == []
    await asyncio.sleep(2)
    assert found(progress) == [("it", reasons.INACTIVE)]


async def test_failures_in_a_row_are_failing_and_a_success_ends_them(progress: Progress) -> None:
    component = part_of(progress)
    for _ in range(int(FAILING / 30)):
        component.begin()
        component.fail(ValueError("x"), due_in=30.0)
        await asyncio.sleep(30)
    assert found(progress) == []
    await asyncio.sleep(1)
    assert progress.problems(max_inactivity=INACTIVITY, max_failing_time=FAILING) == [
        Problem("it", reasons.FAILING, FAILING + 1, "x")
    ]
    component.succeed()
    assert found(progress) == []


async def test_a_wait_that_is_expected_and_one_for_another_part_are_no_inactivity(progress: Progress) -> None:
    component = part_of(progress)
    component.begin()
    component.allow_silence(2 * INACTIVITY)
    await asyncio.sleep(2 * INACTIVITY - 1)
    assert found(progress) == []
    with component.waiting_for_other():
        await asyncio.sleep(3 * INACTIVITY)
        assert found(progress) == []
    component.begin()
    await asyncio.sleep(INACTIVITY + 1)
    assert found(progress) == [("it", reasons.INACTIVE)]


def test_allowed_silence_that_ends_during_a_check_is_not_inactivity() -> None:
    ended, component = False, None

    def now() -> float:
        nonlocal ended
        if component is None or ended:
            return 0.0
        ended = True  # as the part's own thread does, between two reads of the judging one
        component.succeed()
        return 1.5 * INACTIVITY

    progress = Progress(now)
    made = progress.component("it")
    made.begin()
    made.allow_silence(2 * INACTIVITY)
    component = made
    assert found(progress) == []
    assert ended


async def test_a_part_that_belongs_to_nothing_is_forgotten(progress: Progress) -> None:
    component = part_of(progress)
    component.begin()
    del component
    gc.collect()
    await asyncio.sleep(2 * INACTIVITY)
    assert found(progress) == []


@pytest.mark.parametrize(
    ("interval", "tolerance"),
    [(1.0, MIN_TOLERANCE), (30.0, 90.0), (3600.0, MAX_TOLERANCE)],
    ids=["short", "some", "long"],
)
async def test_a_plan_is_stale_after_a_few_intervals_within_bounds(
    progress: Progress, interval: float, tolerance: float
) -> None:
    component = part_of(progress)
    component.plan_schedule = PlanSchedule(TAINT_MANAGERS, "default", interval)
    assert component.plan_schedule.tolerance == tolerance
    component.begin()
    await asyncio.sleep(tolerance)
    assert not component.plan_is_stale()
    await asyncio.sleep(1)
    assert component.plan_is_stale()
    component.plan_made()
    await asyncio.sleep(10 * tolerance)
    assert not component.plan_is_stale(), "acting takes its time"
    component.succeed(due_in=interval)
    await asyncio.sleep(interval + tolerance)
    assert not component.plan_is_stale()
    await asyncio.sleep(1)
    assert component.plan_is_stale()


class Iterating(Loop):
    """Iterates every ten seconds; what an iteration does is the test's."""

    def __init__(self) -> None:
        super().__init__("loop", LoopClock())
        self.hangs = False
        self.fails = False

    async def run(self) -> None:
        await self._iterate_until_closed()

    async def _iterate(self) -> float:
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise ValueError("x")
        return 10.0

    async def _failed(self, error: Exception) -> float:
        return 10.0


async def started(loop: Iterating) -> asyncio.Task[None]:
    task = asyncio.create_task(loop.run())
    await asyncio.sleep(100)
    return task


async def ended(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_loop_that_iterates_is_neither(progress: Progress) -> None:
    loop = Iterating()
    task = await started(loop)
    await asyncio.sleep(5 * INACTIVITY)
    assert found(progress) == []
    loop.close()
    await task
    await asyncio.sleep(5 * INACTIVITY)
    assert progress.components == []


async def test_a_loop_that_hangs_is_inactive_within_the_time(progress: Progress) -> None:
    loop = Iterating()
    task = await started(loop)
    loop.hangs = True
    await asyncio.sleep(10 + INACTIVITY + 1)
    assert found(progress) == [("loop", reasons.INACTIVE)]
    await ended(task)


async def test_a_loop_that_only_fails_is_failing(progress: Progress) -> None:
    loop = Iterating()
    task = await started(loop)
    loop.fails = True
    await asyncio.sleep(10 + FAILING + 1)
    assert found(progress) == [("loop", reasons.FAILING)]
    await ended(task)


async def test_killed_loop_is_inactive_until_another_one_registers(progress: Progress) -> None:
    await ended(await started(Iterating()))
    await asyncio.sleep(INACTIVITY + 1)
    assert found(progress) == [("loop", reasons.INACTIVE)]
    task = await started(Iterating())
    assert found(progress) == []
    await ended(task)


async def test_restarted_task_is_not_failing(progress: Progress) -> None:
    failures = iter([ValueError("x"), ValueError("y")])

    async def run() -> None:
        for failure in failures:
            raise failure
        await asyncio.Event().wait()

    supervisor = TaskSupervisor("them", LoopClock())
    supervisor.start("task", run)
    await asyncio.sleep(1)
    assert [component.failing_seconds() > 0 for component in progress.components] == [True]
    await asyncio.sleep(2 * FAILING)
    assert found(progress) == []
    await supervisor.cancel()
    assert progress.components == []


async def test_a_supervised_task_that_is_killed_is_inactive(progress: Progress) -> None:
    supervisor = TaskSupervisor("them", LoopClock())
    supervisor.start("task", asyncio.Event().wait)  # type: ignore[arg-type]
    await asyncio.sleep(1)
    supervisor._tasks["task"].cancel()
    await asyncio.sleep(INACTIVITY + 1)
    assert found(progress) == [("them: task", reasons.INACTIVE)]


async def test_expected_work_is_due_at_once(progress: Progress) -> None:
    component = part_of(progress)
    component.succeed(due_in=2 * INACTIVITY)
    await asyncio.sleep(INACTIVITY - 1)
    assert component.inactive_seconds() == 0.0
    component.expect()
    component.expect()
    await asyncio.sleep(INACTIVITY + 1)
    assert found(progress) == [("it", reasons.INACTIVE)]
    component.begin()
    component.expect()  # it is in progress
    component.succeed()
    await asyncio.sleep(2 * INACTIVITY)
    assert found(progress) == []


async def test_component_whose_task_ended_has_the_time_of_a_restart(progress: Progress) -> None:
    component = part_of(progress)
    component.mark_dead()
    progress.keep_dead(component)
    await asyncio.sleep(RESTART_TIME - 1)
    assert found(progress) == []
    await asyncio.sleep(2)
    assert found(progress) == [("it", reasons.INACTIVE)]


@pytest.mark.parametrize("fault", ["hangs", "fails", "nothing"])
async def test_periodic_task_reports_each_step(progress: Progress, fault: str) -> None:
    steps = 0

    async def step() -> None:
        nonlocal steps
        steps += 1
        if steps > 3 and fault == "hangs":
            await asyncio.Event().wait()
        if steps > 3 and fault == "fails":
            raise ValueError("x")

    supervisor = TaskSupervisor("them", LoopClock())
    supervisor.start_periodic("task", step, 10.0)
    await asyncio.sleep(FAILING + INACTIVITY)
    expected = {"hangs": [("them: task", reasons.INACTIVE)], "fails": [("them: task", reasons.FAILING)], "nothing": []}
    assert found(progress) == expected[fault]
    await supervisor.cancel()


async def test_queue_that_takes_no_key_is_inactive_unless_it_is_paused(progress: Progress) -> None:
    paused = True

    async def reconcile(key: str) -> None:
        del key

    queue = WorkQueue(
        reconcile, workers=2, clock=LoopClock(), metrics=WorkQueueMetrics().queue("q"), paused=lambda: paused
    )
    task = asyncio.create_task(queue.run())
    queue.add("a")
    await asyncio.sleep(2 * INACTIVITY)
    assert found(progress) == []
    queue._move_up = lambda _now: None  # type: ignore[method-assign]
    queue.add("b")
    await asyncio.sleep(INACTIVITY + 1)
    assert found(progress) == [("work queue q", reasons.INACTIVE)]
    await ended(task)


@pytest.mark.parametrize("waits", ["delayed", "rate limited"])
async def test_queue_that_moves_no_waiting_key_is_inactive(progress: Progress, waits: str) -> None:
    """The task of the queue hangs before a key becomes ready."""

    async def reconcile(key: str) -> None:
        del key

    class Unlimited:
        def flow_of(self, key: str) -> str:
            return key

        def next_at(self, flow: object) -> float:
            del flow
            return ALWAYS

        def next_at_any_flow(self) -> float:
            return ALWAYS

        def take(self, key: str, flow: object, now: float) -> None:
            pass

    queue = WorkQueue(
        reconcile, workers=2, clock=LoopClock(), metrics=WorkQueueMetrics().queue("q"), rate_limiter=Unlimited()
    )
    task = asyncio.create_task(queue.run())
    queue.add("a")
    queue.add_after("b", INACTIVITY)
    await asyncio.sleep(3 * INACTIVITY)
    assert found(progress) == []
    queue._changed.wait = asyncio.Event().wait  # type: ignore[method-assign]
    queue.add("c")
    await asyncio.sleep(1)  # the last key that the queue moves
    if waits == "delayed":
        queue.add_after("d", 1)
    else:
        queue.add("d")
    await asyncio.sleep(INACTIVITY + 3)
    assert found(progress) == [("waiting keys of work queue q", reasons.INACTIVE)]
    await ended(task)


async def test_queue_with_hung_workers_is_inactive(progress: Progress) -> None:
    hanging = asyncio.Event()

    async def reconcile(key: str) -> None:
        if key == "b":
            await hanging.wait()

    queue = WorkQueue(reconcile, workers=2, clock=LoopClock(), metrics=WorkQueueMetrics().queue("q"))
    task = asyncio.create_task(queue.run())
    queue.add("a")
    await asyncio.sleep(2 * INACTIVITY)
    assert found(progress) == []
    queue.add("b")
    await asyncio.sleep(INACTIVITY + 1)
    assert found(progress) == [("work queue q", reasons.INACTIVE)]
    hanging.set()
    await asyncio.sleep(1)
    assert found(progress) == []
    await ended(task)
