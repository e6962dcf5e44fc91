"""Outcomes are written while a run acts, in few writes, and none is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.fakes.api import Call, FakeApi
from tests.fakes.clock import LoopClock
from tests.fixtures.garbage import unreachable_objects, without_collections
from tests.unit.descheduling.runs.runs import NOW, kept, made, move, policy
from trimtab.controller.status_writer import RETRY
from trimtab.descheduling.runs.lifecycle import Run
from trimtab.descheduling.runs.manager import PAUSE, OutcomeWriter, RunManager
from trimtab.descheduling.runs.record import run_plan
from trimtab.disruption.outcome import EVICTED, SKIPPED, Outcome
from trimtab.kube.api import ServerError

pytestmark = pytest.mark.looptime(start=0)

MOVES = [move(f"web-{index}") for index in range(6)]


def outcome(index: int, reason: str = "Evicted") -> Outcome:
    return Outcome(MOVES[index], EVICTED if reason == "Evicted" else SKIPPED, reason, "", NOW)


class Bench:
    """A run that is really there, and its keeper."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.keeper = RunManager("default", api=self.api, clock=LoopClock())

    async def begin(self) -> Run:
        spec = policy("Act")
        run = await self.keeper.record(spec, run_plan(spec, made(*MOVES), nodes=1, pods=1))
        assert run is not None
        return run

    @property
    def recorded(self) -> list[str]:
        [body] = self.api.objects.values()
        return [each["pod"] for each in body["status"].get("outcomes", ())]

    @property
    def writes(self) -> int:
        return len(self.api.sent("PATCH"))


async def test_outcomes_are_written_in_batches() -> None:
    bench = Bench()
    run = await bench.begin()
    before = bench.writes
    async with OutcomeWriter(bench.keeper, run, include_not_attempted=True) as journal:
        for index in range(3):
            journal.note(outcome(index))
        assert bench.recorded == []
        await asyncio.sleep(PAUSE + 1)
        assert bench.recorded == ["web-0", "web-1", "web-2"]
        await asyncio.sleep(10 * PAUSE)
        assert bench.writes == before + 1, "nothing new, nothing written"
        journal.note(outcome(3))
    assert bench.recorded == ["web-0", "web-1", "web-2", "web-3"]


async def test_in_flight_write_is_awaited_at_exit() -> None:
    bench = Bench()
    run = await bench.begin()

    async def slow(call: Call) -> None:
        if call.method == "PATCH":
            await asyncio.sleep(20)

    bench.api.before = slow
    async with OutcomeWriter(bench.keeper, run, include_not_attempted=True) as journal:
        journal.note(outcome(0))
        await asyncio.sleep(PAUSE + 1)
        journal.note(outcome(1))
    assert bench.recorded == ["web-0", "web-1"]


async def test_failed_outcomes_are_written_with_next_batch() -> None:
    bench = Bench()
    run = await bench.begin()
    bench.api.fail(ServerError("down", status=500), times=4, method="PATCH")
    async with OutcomeWriter(bench.keeper, run, include_not_attempted=True) as journal:
        journal.note(outcome(0))
        await asyncio.sleep(PAUSE + 10)
        assert bench.recorded == []
        journal.note(outcome(1))
    assert bench.recorded == ["web-0", "web-1"]


@pytest.mark.parametrize(("passing", "expected"), [(True, ["web-0", "web-1"]), (False, ["web-1"])])
async def test_not_attempted_outcomes_are_written_only_in_mode_act(passing: bool, expected: list[Any]) -> None:
    bench = Bench()
    run = await bench.begin()
    async with OutcomeWriter(bench.keeper, run, include_not_attempted=passing) as journal:
        journal.note(outcome(0, "CycleDeadline"))
        journal.note(outcome(1, "NoPlace"))
    assert bench.recorded == expected


async def test_without_a_run_nothing_is_written() -> None:
    bench = Bench()
    async with OutcomeWriter(bench.keeper, None, include_not_attempted=True) as journal:
        journal.note(outcome(0))
    assert bench.api.calls == []


async def test_deleted_run_is_dropped() -> None:
    bench = Bench()
    run = await bench.begin()
    bench.api.objects.clear()
    async with OutcomeWriter(bench.keeper, run, include_not_attempted=True) as journal:
        journal.note(outcome(0))
    assert bench.keeper.runs == ()


async def test_ended_writer_is_freed_without_a_garbage_collection() -> None:
    bench = Bench()
    run = await bench.begin()
    with without_collections():
        async with OutcomeWriter(bench.keeper, run, include_not_attempted=True) as journal:
            await asyncio.sleep(PAUSE + 1)
        del journal
        await asyncio.sleep(0)  # the event loop forgets the task
        found = [type(each).__name__ for each in unreachable_objects()]
    assert "OutcomeWriter" not in found


async def test_kept_pods_are_written_but_not_remembered() -> None:
    bench = Bench()
    spec = policy("Act")
    await bench.keeper.record(spec, run_plan(spec, made(MOVES[0], kept=[kept("web-9")]), nodes=1, pods=2))
    [body] = bench.api.objects.values()
    assert len(body["spec"]["plan"]["keptPods"]) == 1
    assert [run.plan.kept_pods for run in bench.keeper.runs] == [()]
    bench.keeper.observe(body)
    assert [run.plan.kept_pods for run in bench.keeper.runs] == [()]


async def acted(bench: Bench, *, at: float) -> Run:
    """A run that has acted on its first pod, and has ended."""
    spec = policy("Act")
    run = await bench.keeper.record(spec, run_plan(spec, made(*MOVES, now=at), nodes=1, pods=1))
    assert run is not None
    async with OutcomeWriter(bench.keeper, run, include_not_attempted=True) as journal:
        journal.note(outcome(0))
    await bench.keeper.complete(bench.keeper.get(run))
    return run


def remembered(bench: Bench) -> list[tuple[int, int]]:
    """The number of actions and of outcomes of each run, the oldest first."""
    return [(len(each.plan.actions), len(each.status.outcomes)) for each in bench.keeper.runs]


def stored(bench: Bench) -> list[tuple[int, int]]:
    bodies = [bench.api.objects[path] for path in sorted(bench.api.objects)]
    return [(len(each["spec"]["plan"]["actions"]), len(each["status"]["outcomes"])) for each in bodies]


async def test_actions_of_an_ended_run_are_forgotten_when_a_newer_one_exists() -> None:
    bench = Bench()
    await acted(bench, at=NOW)
    assert remembered(bench) == [(6, 1)]
    older = bench.api.objects[min(bench.api.objects)]
    await acted(bench, at=NOW + 60)
    bench.keeper.observe(older)
    assert remembered(bench) == [(0, 0), (6, 1)]
    assert stored(bench) == [(6, 1), (6, 1)]


async def test_outcomes_of_an_ended_run_are_kept_until_they_are_written() -> None:
    bench = Bench()
    spec = policy("Act")
    run = await bench.keeper.record(spec, run_plan(spec, made(*MOVES), nodes=1, pods=1))
    assert run is not None
    bench.api.fail(ServerError("down", status=500), times=4 * RETRY.attempts, method="PATCH", path=run.name)
    async with OutcomeWriter(bench.keeper, run, include_not_attempted=True) as journal:
        journal.note(outcome(0))
    await bench.keeper.complete(bench.keeper.get(run))
    assert bench.keeper.out_of_sync
    await acted(bench, at=NOW + 60)
    assert remembered(bench) == [(6, 1), (6, 1)]
    for _ in range(4):
        await bench.keeper.tidy(generation=1)
    assert not bench.keeper.out_of_sync
    assert stored(bench) == [(6, 1), (6, 1)]
    assert remembered(bench) == [(0, 0), (6, 1)]


async def test_empty_plan_is_recorded_if_an_ended_run_becomes_the_newest_again() -> None:
    bench, spec = Bench(), policy("Act")
    await acted(bench, at=NOW)
    empty = await bench.keeper.record(spec, run_plan(spec, made(now=NOW + 60), nodes=1, pods=1))
    assert empty is not None
    bench.keeper.forget(empty.name)
    again = await bench.keeper.record(spec, run_plan(spec, made(now=NOW + 120), nodes=1, pods=1))
    assert again is not None
    assert again.plan.planned == 0


async def test_actions_of_an_open_run_are_kept_when_a_newer_one_has_ended() -> None:
    bench, other = Bench(), Bench()
    await bench.begin()
    await acted(other, at=NOW + 60)
    [ended] = other.api.objects.values()
    bench.keeper.observe(ended)
    assert [run.open for run in bench.keeper.runs] == [True, False]
    assert remembered(bench) == [(6, 0), (6, 1)]
